"""Removes old snapshots, and tags those that stay for longer.

    main    s9 s8 s7 s6 | s5 s4 s3 s2 s1          newest first; | is where age and count draw the line
    stays   every one before the line             however few `min_snapshots` and `min_epochs` ask for
            s3: the newest epoch of a pipeline    whatever its age (H3), by ancestry, by property, by tag
            all from main back to it              if main was rolled back behind what the property names (H4): without
                                                  them that would look like an expiry
            s2: a tag or a branch names it        ours: frazil_keep_2026-03-01, the last epoch of that day of the source
            all that is only on a branch
    goes    s5 s4 s1, and what a rollback left behind once it is as old

    look --> plan --nothing to do?--> Nothing
     ^        | files that only the removed ones reach: to the deletion queue, before the commit
     |        v
     +-- conflict or unknown -- commit, once, on what was looked at --accepted--> Done
     `-- the same snapshots still to go? their files are queued: only the commit is made again

The queue is told first, so that a crash can leave a file there too many and none out of it: before anything is deleted
the queue asks once more whether it is still referred to (H46), and drops what is. To find those files takes longer than
an epoch; that an epoch landed meanwhile frees none, so a stream cannot win by being faster (H16). Planning is pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from frazil.clock import Clock
from frazil.iceberg.commits.snapshots import MAIN, Expiry, TableSnapshots
from frazil.iceberg.system.queue_rows import QueuedDeletion, Why
from frazil.maintenance.commit_rewrite import Turn, turn_after
from frazil.model.commit import CommitAnswer
from frazil.model.ids import TableName
from frazil.model.ledger import LEDGER_PROPERTY, LedgerEntry, SnapshotFacts
from frazil.retry import Attempt, commit_with_retry

KEEP_TAG = "frazil_keep_"


class Period(StrEnum):
    HOURLY = "hourly"
    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"

    def label(self, at: datetime) -> str:
        """The period that a moment lies in. No two kinds of period share a label."""
        return at.strftime(_LABELS[self])


_LABELS = {Period.HOURLY: "%Y-%m-%dT%H", Period.DAILY: "%Y-%m-%d", Period.WEEKLY: "%G-W%V", Period.MONTHLY: "%Y-%m"}


@dataclass(frozen=True, slots=True)
class Keep:
    """The last epoch of each period of the source's time stays for so long."""

    period: Period
    span: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireSettings:
    """`min_epochs` holds for each pipeline."""

    max_age: timedelta
    max_snapshots: int
    min_snapshots: int = 1
    min_epochs: int = 1
    keep: tuple[Keep, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.min_snapshots <= self.max_snapshots or self.min_epochs < 1:
            raise ValueError("at least one snapshot and one epoch stay, and no more than max_snapshots must")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpirePlan:
    """`reason` is for people."""

    expiry: Expiry
    reason: str

    @property
    def counts(self) -> dict[str, int]:
        return {
            "snapshots": len(self.expiry.removed),
            "tags": len(self.expiry.tags),
            "dropped_tags": len(self.expiry.dropped_tags),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """What was done."""

    snapshots: int = 0
    tags: int = 0
    dropped_tags: int = 0
    files_queued: int = 0


def plan_expiry(table: TableSnapshots, settings: ExpireSettings, now: datetime) -> ExpirePlan | None:
    """What is to go from a table that looks like this; None if nothing is. Pure."""
    main = table.ancestry()
    if not main or not table.may_be_cleaned:
        return None
    line = _line(main, settings, now)
    tags, dropped = _keep_tags(table, main, line, settings.keep)
    protected = _protected(table, main, tags, dropped)
    stays = {snapshot.snapshot_id for snapshot in main[:line]} | protected
    for own in _by_pipeline((*main, *_behind_the_cut(table, main))).values():
        stays |= {snapshot.snapshot_id for snapshot in own[: settings.min_epochs]}
    on_main = {snapshot.snapshot_id for snapshot in main}
    for snapshot in table.snapshots.values():
        if snapshot.snapshot_id not in on_main and not _is_older(snapshot, now - settings.max_age):
            stays.add(snapshot.snapshot_id)
    expiry = Expiry(removed=frozenset(table.snapshots.keys() - stays), tags=tags, dropped_tags=dropped)
    if not (expiry.removed or expiry.tags or expiry.dropped_tags):
        return None
    expiry.check_against(table)
    return ExpirePlan(expiry=expiry, reason=_reason(table, expiry, settings))


def _line(main: Sequence[SnapshotFacts], settings: ExpireSettings, now: datetime) -> int:
    """How many of main's newest stay by age and count. The line is drawn once: timestamps of several writers need not
    descend, and a hole in the ancestry would hide all that is behind it."""
    young = next(
        (place for place, snapshot in enumerate(main) if _is_older(snapshot, now - settings.max_age)), len(main)
    )
    return max(min(young, settings.max_snapshots), settings.min_snapshots)


def _protected(
    table: TableSnapshots, main: Sequence[SnapshotFacts], tags: Mapping[str, int], dropped: frozenset[str]
) -> set[int]:
    """What must stay whatever its age."""
    found = {ref.snapshot_id for name, ref in table.references.items() if name not in dropped and name not in tags}
    found |= set(tags.values())
    on_main = {snapshot.snapshot_id for snapshot in main}
    for name, reference in table.references.items():
        if reference.is_branch and name != MAIN:
            # A load of ours begins with a mark of its own there, so what it must read lies on the branch alone.
            found |= {one.snapshot_id for one in table.ancestry(name) if one.snapshot_id not in on_main}
    in_properties = list(_in_properties(table))
    found |= _newest_own((*main, *_behind_the_cut(table, main))) | {entry.snapshot_id or 0 for entry in in_properties}
    for entry in in_properties:
        found |= _proof_of_rollback(entry, main)
    return found & table.snapshots.keys()


def _proof_of_rollback(in_property: LedgerEntry, main: Sequence[SnapshotFacts]) -> set[int]:
    """What tells the pipeline that main was set back behind its newest epoch, until somebody sets that right; nothing
    if it was not."""
    own = (place for place, one in enumerate(main) if one.summary.get("frazil.job-id") == in_property.job.text)
    mark = next(own, None)
    newest = in_property.sequence_number or 0
    if mark is None:
        is_expired = main[-1].parent_id is not None and newest < main[-1].sequence_number
        return set() if is_expired else {one.snapshot_id for one in main}
    if newest <= main[mark].sequence_number or in_property.snapshot_id == main[mark].snapshot_id:
        return set()
    return {one.snapshot_id for one in main[: mark + 1]}


def _newest_own(snapshots: Iterable[SnapshotFacts]) -> set[int]:
    """Of each pipeline the newest snapshot, and the newest one with a position: a mark need not have one."""
    found = set()
    for own in _by_pipeline(snapshots).values():
        with_position = (snapshot for snapshot in own if "frazil.resolved" in snapshot.summary)
        found |= {snapshot.snapshot_id for snapshot in (own[0], next(with_position, own[0]))}
    return found


def _by_pipeline(snapshots: Iterable[SnapshotFacts]) -> dict[str, list[SnapshotFacts]]:
    found: dict[str, list[SnapshotFacts]] = {}
    for snapshot in snapshots:
        job = snapshot.summary.get("frazil.job-id")
        if job is not None:
            found.setdefault(job, []).append(snapshot)
    return found


def _behind_the_cut(table: TableSnapshots, main: Sequence[SnapshotFacts]) -> list[SnapshotFacts]:
    """What is older than all that is left of main's ancestry, newest first: earlier runs have kept some of it, and
    nothing tells which of it was on main."""
    oldest = main[-1]
    if oldest.parent_id is None:
        return []
    before = [s for s in table.snapshots.values() if s.sequence_number < oldest.sequence_number and s.branch is None]
    return sorted(before, key=lambda s: s.sequence_number, reverse=True)


def _in_properties(table: TableSnapshots) -> Iterator[LedgerEntry]:
    """What ledger properties tell. One that cannot be read tells nothing, and is for the pipeline to report."""
    begin, end = LEDGER_PROPERTY
    for name, text in table.properties.items():
        if name.startswith(begin) and name.endswith(end):
            try:
                entry = LedgerEntry.from_property(text)
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
            if entry is not None:
                yield entry


def _keep_tags(
    table: TableSnapshots, main: Sequence[SnapshotFacts], line: int, rules: Iterable[Keep]
) -> tuple[dict[str, int], frozenset[str]]:
    """Tags to set and to drop. A period is over once the source has shown a later one; the last epoch of one that is
    not is tagged if it lies behind the line, for nothing would tell later that it was on main. A span is counted back
    from the newest moment that the source has shown, so that a source that rests, or is years behind, keeps what it
    has."""
    epochs = [(at, snapshot) for snapshot in main if (at := _source_time(snapshot)) is not None]
    behind = {snapshot.snapshot_id for snapshot in main[line:]}
    wanted: dict[str, int] = {}
    if epochs:
        newest = max(at for at, _ in epochs)
        own = _own_tags(table)
        for rule in rules:
            current = rule.period.label(newest)
            for at, snapshot in sorted(epochs, key=lambda found: (found[0], found[1].sequence_number)):
                label = rule.period.label(at)
                wanted.pop(KEEP_TAG + label, None)
                if (label != current or snapshot.snapshot_id in behind) and at >= newest - rule.span:
                    wanted[KEEP_TAG + label] = snapshot.snapshot_id
            for name in own:
                snapshot_id = table.references[name].snapshot_id
                facts = table.snapshots.get(snapshot_id)
                at_tag = None if facts is None else _source_time(facts)
                if at_tag is not None and name == KEEP_TAG + rule.period.label(at_tag) and at_tag >= newest - rule.span:
                    wanted.setdefault(name, snapshot_id)
    elif rules:
        return {}, frozenset()
    set_now = {
        name: snapshot_id
        for name, snapshot_id in wanted.items()
        if name not in table.references or table.references[name].snapshot_id != snapshot_id
    }
    taken = {name for name in set_now if name in table.references and name not in _own_tags(table)}
    new = {name: snapshot_id for name, snapshot_id in set_now.items() if name not in taken}
    return new, frozenset(_own_tags(table) - wanted.keys())


def _own_tags(table: TableSnapshots) -> frozenset[str]:
    """Tags that earlier runs have set, and nobody else: a pipeline may be called keep_2026, and has its own tag."""
    pipelines = {f"frazil_{job}" for job in _jobs(table.snapshots.values())}
    return frozenset(
        name
        for name, reference in table.references.items()
        if not reference.is_branch and name not in pipelines and _is_label(name)
    )


def _is_label(name: str) -> bool:
    if not name.startswith(KEEP_TAG):
        return False
    label = name.removeprefix(KEEP_TAG)
    for period, form in _LABELS.items():
        # A week has no day by itself: its Monday stands in.
        text, form = (label + "-1", form + "-%u") if period is Period.WEEKLY else (label, form)
        try:
            if period.label(datetime.strptime(text, form)) == label:  # noqa: DTZ007
                return True
        except ValueError:
            continue
    return False


def _jobs(snapshots: Iterable[SnapshotFacts]) -> set[str]:
    return {job for snapshot in snapshots if (job := snapshot.summary.get("frazil.job-id")) is not None}


def _source_time(snapshot: SnapshotFacts) -> datetime | None:
    if snapshot.branch is not None:
        return None
    try:
        entry = LedgerEntry.from_summary(snapshot.summary)
    except ValueError:
        return None
    return None if entry is None else entry.source_time


def _is_older(snapshot: SnapshotFacts, than: datetime) -> bool:
    return snapshot.timestamp_ms < than.timestamp() * 1000


def _reason(table: TableSnapshots, expiry: Expiry, settings: ExpireSettings) -> str:
    parts = []
    if expiry.removed:
        parts.append(
            f"{len(expiry.removed)} of {len(table.snapshots)} snapshots are older than {settings.max_age} or more than "
            f"{settings.max_snapshots}"
        )
    if expiry.tags:
        parts.append(f"{len(expiry.tags)} to tag")
    if expiry.dropped_tags:
        parts.append(f"{len(expiry.dropped_tags)} tags outlived their rule")
    return ", ".join(parts)


class ExpiringCommitter(Protocol):
    def snapshots(self, table: TableName) -> TableSnapshots:
        """Raises CatalogUnavailable, CatalogRefused, or TableChanged if the table is gone."""

    def freed(self, table: TableName, seen: TableSnapshots, removed: frozenset[int]) -> Sequence[str]:
        """Files that nothing refers to once these snapshots are gone. Raises like `snapshots`."""

    def expire(self, table: TableName, seen: TableSnapshots, expiry: Expiry) -> CommitAnswer:
        """Lands on exactly what was seen or not at all; never retries by itself, and deletes nothing."""


class Enqueues(Protocol):
    def enqueue(self, deletions: Sequence[QueuedDeletion]) -> None:
        """Raises CatalogUnavailable, CatalogRefused or StorageUnavailable; then none of them is in the queue."""


class Expire:
    """The action: looks, plans, queues and commits until it has landed."""

    name = "expire"

    def __init__(
        self,
        committer: ExpiringCommitter,
        queue: Enqueues,
        settings: ExpireSettings,
        clock: Clock,
        turn: Turn | None = None,
    ) -> None:
        self._committer = committer
        self._turn = turn
        self._queue = queue
        self._settings = settings
        self._clock = clock

    def plan(self, table: TableName) -> ExpirePlan | None:
        """What `perform` would do now. Raises like `ExpiringCommitter.snapshots`."""
        return plan_expiry(self._committer.snapshots(table), self._settings, self._clock.now())

    def perform(self, table: TableName) -> Expired:
        """Raises CatalogUnavailable if others kept getting in the way, CatalogRefused if the catalog says no."""
        queued: set[str] = set()
        sent: list[ExpirePlan] = []

        def once(lost: int) -> Attempt[Expired]:
            with turn_after(lost, self._turn):
                seen = self._committer.snapshots(table)
                plan = plan_expiry(seen, self._settings, self._clock.now())
                if plan is None:
                    # Without an answer the commit may have landed all the same.
                    landed = bool(sent) and not (sent[-1].expiry.removed & seen.snapshots.keys())
                    return Attempt(Expired(**(sent[-1].counts if landed else {}), files_queued=len(queued)))
                if sent and sent[-1].expiry.removed and sent[-1].expiry.removed <= plan.expiry.removed:
                    plan = replace(plan, expiry=replace(plan.expiry, removed=sent[-1].expiry.removed))
                else:
                    queued.update(self._enqueue(table, seen, plan, queued))
                sent.append(plan)
                answer = self._committer.expire(table, seen, plan.expiry)
            return Attempt(Expired(**plan.counts, files_queued=len(queued)), answer)

        return commit_with_retry(f"snapshots of {table} were not expired", once, self._clock, table=table.text)[0]

    def _enqueue(self, table: TableName, seen: TableSnapshots, plan: ExpirePlan, known: Collection[str]) -> set[str]:
        """The files that the plan frees; those that are not known yet are queued."""
        freed = set(self._committer.freed(table, seen, plan.expiry.removed))
        now = self._clock.now()
        self._queue.enqueue(
            [
                QueuedDeletion(path=path, table=table, table_uuid=seen.uuid, orphaned_at=now, why=Why.EXPIRED)
                for path in sorted(freed.difference(known))
            ]
        )
        return freed
