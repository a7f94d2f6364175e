"""What a pipeline has published to a table, read from a head. Pure.

ancestry of main   s9 -> s8 (shop, R=7) -> s7 (foreign) -> s6 (shop, R=5)
published("shop")        R=7, s8, when                     R=5, s6, when
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from frazil.model.ledger import LedgerEntry, TableHead
from frazil.model.names import JobId

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PublishedEpoch:
    entry: LedgerEntry
    snapshot_id: int
    committed_at: datetime


def published(head: TableHead, job: JobId) -> tuple[PublishedEpoch, ...]:
    """The epochs that are on main, newest first. Raises ValueError on a damaged entry."""
    return tuple(epoch for epoch in _all(head) if epoch.entry.job == job)


def pipelines(head: TableHead) -> tuple[JobId, ...]:
    """Every pipeline that has published to this table, the latest first."""
    return tuple(dict.fromkeys(epoch.entry.job for epoch in _all(head)))


def _all(head: TableHead) -> tuple[PublishedEpoch, ...]:
    found = []
    for snapshot in head.ancestry:
        entry = LedgerEntry.from_summary(
            snapshot.summary, snapshot_id=snapshot.snapshot_id, sequence_number=snapshot.sequence_number
        )
        if entry is not None:
            at = _EPOCH + timedelta(milliseconds=snapshot.timestamp_ms)
            found.append(PublishedEpoch(entry, snapshot.snapshot_id, at))
    return tuple(found)
