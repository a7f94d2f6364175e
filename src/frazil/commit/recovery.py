"""Where a table goes on after a start, and how an operator sets a rolled back one right. The ledger alone decides.

    head --admit--> StartPoint(frontier)         go on from here; None: from the source's start
                    a Terminal error        a person must act

    head, rolled back --rewind_plan-->  an empty snapshot that states the newest own entry on main again, so that
                                        property, tag and ancestry agree; or, if nothing of ours is left on main,
                                        one that forgets the pipeline: the table starts over

The fence must have been taken before the head is read: then no older coordinator can publish behind this look
without being seen by the next one. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from frazil import errors
from frazil.commit.admission import Admitted, Coordinator, FencedOut, Stopped, admit, fenced_error, outranks
from frazil.commit.frontier_check import At, Fresh, RolledBack, read_frontier
from frazil.model.commit import CommitPlan
from frazil.model.frontier import Frontier
from frazil.model.ids import JobId, TableName
from frazil.model.ledger import Fence, LedgerEntry, TableHead


@dataclass(frozen=True, slots=True)
class StartPoint:
    """What the ledger says: `entry` is the newest own one, `frontier` what follows from it."""

    frontier: Frontier | None
    entry: LedgerEntry | None


def start(head: TableHead, table: TableName, coordinator: Coordinator) -> StartPoint | errors.Terminal:
    """The frontier to go on from, or the error to stop with."""
    match admit(head, table, coordinator):
        case Admitted(None):
            return StartPoint(None, None)
        case Admitted(LedgerEntry() as entry):
            return StartPoint(entry.frontier, entry)
        case FencedOut(by):
            return fenced_error(table, by, coordinator.fence)
        case Stopped(error):
            return error
    raise AssertionError("every admission is handled")


def newest_generation(head: TableHead, job: JobId) -> int:
    """The highest generation this table has seen: the floor for taking a fence from a register that was lost."""
    match read_frontier(head, job):
        case At(entry) | RolledBack(entry, _, _):
            return entry.fence.generation
        case Fresh(Fence() as fence):
            return fence.generation
        case _:
            return 0


def source_table(head: TableHead, job: JobId) -> str:
    """The source's own name of the table that this pipeline filled it from; empty if the ledger does not tell."""
    match read_frontier(head, job):
        case At(entry) | RolledBack(entry, _, _):
            return entry.source
        case _:
            return ""


def rewind_plan(
    head: TableHead, table: TableName, job: JobId, fence: Fence
) -> CommitPlan | errors.TableChanged | errors.Fenced | None:
    """The commit after which the pipeline goes on from what main holds now; None if nothing was rolled back.

    An error if history was cut so that nobody can tell what main holds, or if `fence` is not the newest.
    """
    match read_frontier(head, job):
        case RolledBack(lost, left, starts_over):
            if outranks(lost.fence, fence):
                return fenced_error(table, lost.fence, fence)
            if left is not None:
                return restated(left, fence)
            return _forget(lost, fence) if starts_over else _cannot_tell(table, lost)
        case _:
            return None


def restated(entry: LedgerEntry, fence: Fence, operation: str = "rewind") -> CommitPlan:
    """An empty snapshot that says again what the entry said, with another fence."""
    again = replace(
        entry,
        fence=fence,
        operation=operation,
        data_files=0,
        delete_files=0,
        rows=0,
        deletes=0,
        snapshot_id=None,
        sequence_number=None,
    )
    return CommitPlan(entry=again, files=())


def _forget(lost: LedgerEntry, fence: Fence) -> CommitPlan:
    return replace(restated(lost, fence, "forget"), forget=True)


def _cannot_tell(table: TableName, lost: LedgerEntry) -> errors.TableChanged:
    return errors.TableChanged(
        f"{table} was rolled back behind {lost.resolved}, to a point whose own history has expired: "
        "nobody can tell which epochs it holds",
        hint=f"Set main forward to snapshot {lost.snapshot_id}, which the tag {lost.job.tag} keeps, or load the table "
        "anew: drop it and restart the pipeline.",
        table=table.text,
        what="rolled back",
        published=lost.resolved.text,
        published_snapshot=lost.snapshot_id,
    )
