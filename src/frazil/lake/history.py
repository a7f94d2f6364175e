"""What a pipeline has published to a table, read from a head. Pure.

ancestry of main   s9 -> s8 (shop, R=7) -> s7 (foreign) -> s6 (shop, R=5) -> expired ...   tag daily: s2 (shop, R=2)
published("shop")        R=7, s8, when                     R=5, s6, when
retained("shop")         R=7, s8                           R=5, s6                                     R=2, s2
as_of(R=6)                                                 R=5, s6

A table that was loaded anew on a branch shows what main showed: the epochs before, then the adoption of the branch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from frazil.model.ledger import LedgerEntry, SnapshotFacts, TableHead
from frazil.model.names import JobId
from frazil.model.position import Position, is_before

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PublishedEpoch:
    entry: LedgerEntry
    snapshot_id: int
    committed_at: datetime

    def is_within(self, moment: Position | datetime) -> bool:
        """Whether the source was there already at this position, or at this time of its own clock."""
        resolved = self.entry.resolved
        if isinstance(moment, datetime):
            return resolved.source_time is not None and resolved.source_time <= moment
        return not is_before(moment, resolved)

    def reaches(self, moment: Position | datetime) -> bool:
        """Whether nothing up to this moment can be missing."""
        resolved = self.entry.resolved
        if isinstance(moment, datetime):
            return resolved.source_time is not None and resolved.source_time >= moment
        return not is_before(resolved, moment)


def published(head: TableHead, job: JobId) -> tuple[PublishedEpoch, ...]:
    """The epochs that are on main, newest first. Raises ValueError on a damaged entry."""
    return _own(head.ancestry, job)


def retained(head: TableHead, job: JobId) -> tuple[PublishedEpoch, ...]:
    """All epochs that can still be read, newest first: those on main, and older ones that a tag has kept.

    Where expiry has cut the ancestry off, nothing proves any more that a tagged snapshot was on it. What the oldest
    epoch on main follows is older than both its own `lower` and its own commit; a tag on an epoch that was rolled
    back, and published again since, is not.
    """
    on_main = published(head, job)
    if head.history_is_whole or not on_main or (border := on_main[-1].entry.lower) is None:
        return on_main
    oldest = on_main[-1].entry
    tagged = {epoch.snapshot_id: epoch for epoch in _own(head.tags.values(), job)}
    older = [
        epoch
        for epoch in tagged.values()
        if epoch.is_within(border) and (epoch.entry.sequence_number or 0) < (oldest.sequence_number or 0)
    ]
    return *on_main, *sorted(older, key=lambda epoch: epoch.entry.resolved.order, reverse=True)


def as_of(head: TableHead, job: JobId, moment: Position | datetime) -> PublishedEpoch | None:
    """The epoch that shows the table as it was at this moment of the source: the newest one up to there."""
    return next((epoch for epoch in retained(head, job) if epoch.is_within(moment)), None)


def pipelines(head: TableHead) -> tuple[JobId, ...]:
    """Every pipeline that has published to this table, the latest first."""
    return tuple(dict.fromkeys(epoch.entry.job for epoch in _all(head.ancestry)))


def _own(snapshots: Iterable[SnapshotFacts], job: JobId) -> tuple[PublishedEpoch, ...]:
    return tuple(epoch for epoch in _all(snapshots) if epoch.entry.job == job)


def _all(snapshots: Iterable[SnapshotFacts]) -> tuple[PublishedEpoch, ...]:
    found = []
    for snapshot in snapshots:
        if snapshot.branch is not None:
            # A step of a load on a branch: main showed only what came of them all.
            continue
        entry = LedgerEntry.from_summary(
            snapshot.summary, snapshot_id=snapshot.snapshot_id, sequence_number=snapshot.sequence_number
        )
        if entry is not None:
            at = _EPOCH + timedelta(milliseconds=snapshot.timestamp_ms)
            found.append(PublishedEpoch(entry, snapshot.snapshot_id, at))
    return tuple(found)
