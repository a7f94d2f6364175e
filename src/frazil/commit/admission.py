"""May this coordinator go on with this table? Asked at every start and before every commit.

    head --read_frontier--> Damaged                      -> Stopped   edited
                            RolledBack                   -> Stopped   rolled back: `frazil rewind`
                            a newer or an equal, other fence -> FencedOut    (H12, H45)
                            another source's incarnation -> Stopped   positions are not comparable (H9)
                            otherwise                    -> Admitted  with the newest own entry, if any

Pure. What follows from being admitted, the compare-and-set on the frontier, is decided by `machine`.
"""

from __future__ import annotations

from dataclasses import dataclass

from frazil import errors
from frazil.commit.frontier_check import At, Damaged, Fresh, RolledBack, read_frontier
from frazil.config.routing import matches
from frazil.model.ids import JobId, TableName
from frazil.model.ledger import Fence, LedgerEntry, TableHead
from frazil.model.position import Position

_KEEP_ONE = "Another process runs this pipeline. Keep one of them; do not restart this one."


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinator:
    """Who publishes: what every ledger entry of one running coordinator has in common."""

    job: JobId
    fence: Fence
    incarnation: str
    config_hash: str = ""


@dataclass(frozen=True, slots=True)
class Admitted:
    entry: LedgerEntry | None

    @property
    def position(self) -> Position | None:
        return None if self.entry is None else self.entry.resolved


@dataclass(frozen=True, slots=True)
class FencedOut:
    """Another coordinator of the pipeline has taken over."""

    by: Fence


@dataclass(frozen=True, slots=True)
class Stopped:
    """A person must act; `error` says how."""

    error: errors.Terminal


def admit(head: TableHead, table: TableName, coordinator: Coordinator) -> Admitted | FencedOut | Stopped:
    """`coordinator` may go on only if nothing on the head proves that it must not."""
    match read_frontier(head, coordinator.job):
        case Damaged(reason):
            return Stopped(edited_error(table, coordinator.job, reason))
        case RolledBack(lost, left, _):
            return Stopped(_rolled_back(table, lost, left))
        case Fresh(forgotten_by):
            entry, newest = None, forgotten_by
        case At(entry):
            newest = entry.fence
    if newest is not None and outranks(newest, coordinator.fence):
        return FencedOut(newest)
    if entry is not None and _incomparable(entry.incarnation, coordinator.incarnation):
        return Stopped(_other_source(table, entry, coordinator.incarnation))
    return Admitted(entry)


def outranks(theirs: Fence, ours: Fence) -> bool:
    """A newer generation does; so does an equal one of another owner, since only an exact match may publish."""
    if theirs.generation == ours.generation:
        return theirs.owner != ours.owner
    return theirs.generation > ours.generation


def _incomparable(theirs: str, ours: str) -> bool:
    """A source that cannot tell its incarnation says nothing, and nothing follows from it."""
    return bool(theirs and ours) and theirs != ours


def fenced_error(table: TableName, by: Fence, ours: Fence) -> errors.Fenced:
    return errors.Fenced(
        f"{table} is published by coordinator {by.label}; this one, {ours.label}, has been replaced",
        hint=_KEEP_ONE,
        table=table.text,
        by=by.text,
        fence=ours.text,
    )


def replaced(job: JobId, newest: Fence | None, ours: Fence) -> errors.Fenced | None:
    """What the register of pipelines says: the error to stop with if another coordinator has taken over.

    A look that decides no commit. Without it an older coordinator that is always the first to publish would never
    meet the newer fence on a table, and the two would run side by side for ever.
    """
    if newest is None or not outranks(newest, ours):
        return None
    return errors.Fenced(
        f"pipeline {job} is run by coordinator {newest.label}; this one, {ours.label}, has been replaced",
        hint=_KEEP_ONE,
        pipeline=job.text,
        by=newest.text,
        fence=ours.text,
    )


def other_table_error(entry: LedgerEntry | None, table: TableName, source: str) -> errors.ConfigError | None:
    """The error to stop with if another source table was published there: the rows of the two would be taken for one's.
    A name with or without database and schema is the same one."""
    if entry is None or not entry.source or not source or matches(entry.source, source):
        return None
    return errors.ConfigError(
        f"{table} holds the rows of {entry.source}, and {source} would be published there too",
        hint=f"Under `tables:`, give {source} a target of its own. If {entry.source} is gone for good: drop or "
        f"rename {table}, and {source} is loaded there from the start of its source.",
        table=table.text,
        source=source,
    )


def _rolled_back(table: TableName, lost: LedgerEntry, left: LedgerEntry | None) -> errors.TableChanged:
    now = "holds no epoch of this pipeline any more" if left is None else f"ends at {left.resolved}"
    return errors.TableChanged(
        f"{table} was rolled back: {lost.resolved} was published as snapshot {lost.snapshot_id}, "
        f"but the main branch {now}",
        hint=f"If that was intended, run `frazil rewind CONFIG {table}`: the pipeline then goes on from what the "
        f"table holds now. If not, set main forward to snapshot {lost.snapshot_id} and restart.",
        table=table.text,
        what="rolled back",
        published=lost.resolved.text,
        published_snapshot=lost.snapshot_id,
        found=None if left is None else left.resolved.text,
    )


def edited_error(table: TableName, job: JobId, reason: str) -> errors.TableChanged:
    return errors.TableChanged(
        f"the ledger of {table} was edited and cannot be read: {reason}",
        hint=f"Look at the property {job.ledger_property} and at the summaries of the newest snapshots; set the "
        "property back to what it was, then restart.",
        table=table.text,
        what="edited",
    )


def _other_source(table: TableName, entry: LedgerEntry, incarnation: str) -> errors.SourceLost:
    return errors.SourceLost(
        f"{table} was published from source {entry.incarnation!r}, this one is {incarnation!r}: "
        "their positions cannot be compared",
        hint="Point the configuration back at the first source, or give the pipeline a new name and new target "
        "tables to load the other one from its start.",
        table=table.text,
        ledger=entry.incarnation,
        source=incarnation,
    )
