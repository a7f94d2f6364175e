"""Tells readers the moments at which all tables of a pipeline agree.

every table published up to R --look at each head--> all show it --> recorded --> the source may forget up to R
                                          `--> one does not: CutAgain

A commit of several tables may land in part, or be answered and lost: only tables prove what they hold. One that is
beyond R already, as after another one was rewound, proves what it held there by an epoch that ended at R, or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from frazil.commit.frontier_check import At, read_frontier
from frazil.ingest.loop.components import RecordsAgreement
from frazil.ingest.loop.reader_loop import CutAgain
from frazil.ingest.loop.target_tables import TargetTable
from frazil.model.frontier import Frontier
from frazil.model.ids import JobId
from frazil.model.ledger import as_of
from frazil.model.ports import Committer
from frazil.model.position import Position, is_before
from frazil.observability.logs import Log
from frazil.threads import Threads

_log = Log("frazil.pipeline")


@dataclass(frozen=True, slots=True)
class _Shown:
    """Which snapshot of a table shows a moment, and the epoch that ends there; none if it had nothing yet."""

    snapshot_id: int | None = None
    frontier: Frontier | None = None
    is_proven: bool = True


class Agreement:
    """Any thread may ask."""

    def __init__(self, records: RecordsAgreement, committer: Committer, job: JobId, threads: Threads) -> None:
        self._records = records
        self._committer = committer
        self._job = job
        self._reached: Position | None = None
        self._lock = threads.lock()

    def reached(self, resolved: Position | None, main_tables: Sequence[TargetTable]) -> Position | None:
        """Up to where all tables are proven to agree, if they are published up to `resolved`. Raises CutAgain if one of
        them does not show what was published to it."""
        with self._lock:
            if resolved is not None and is_before(self._reached, resolved):
                shown = {main_table.target: self._shown(main_table, resolved) for main_table in main_tables}
                if all(one.is_proven for one in shown.values()):
                    frontiers = (one.frontier for one in shown.values() if one.frontier is not None)
                    told = next((one for one in frontiers if one.position == resolved), Frontier(resolved))
                    snapshots = {table: one.snapshot_id for table, one in shown.items()}
                    if not self._records.record(self._job, told, snapshots):
                        _log.warning("the moment at which all tables agree was not recorded", resolved=resolved.text)
                    self._reached = resolved
            return self._reached

    def _shown(self, main_table: TargetTable, resolved: Position) -> _Shown:
        published = main_table.progress.published
        if published is None:
            return _Shown()
        head = self._committer.head(main_table.target)
        match read_frontier(head, self._job):
            case At(newest) if not is_before(newest.resolved, published.position):
                epoch = as_of(head, self._job, resolved)
            case _:
                text = f"{main_table.name} does not show the epoch up to {published.position} any more"
                raise CutAgain(text, table=main_table.name)
        if is_before(resolved, newest.resolved) and (epoch is None or epoch.entry.resolved != resolved):
            return _Shown(is_proven=False)
        if epoch is None:
            # What is on main for long may be known by its property alone.
            return _Shown(head.snapshot_id, newest.frontier)
        return _Shown(epoch.snapshot_id, epoch.entry.frontier)
