"""Tells readers the moments at which all tables of a pipeline agree.

every table published up to R --look at each head--> all show it --> recorded --> the source may forget up to R
                                          `--> one does not: CutAgain

A commit of several tables may land in part, or be answered and lost: only tables prove what they hold.
"""

from __future__ import annotations

from collections.abc import Sequence

from frazil.ingest.loop.components import RecordsAgreement
from frazil.ingest.loop.reader_loop import CutAgain
from frazil.ingest.loop.target_tables import TargetTable
from frazil.model.frontier import Frontier
from frazil.model.ids import JobId
from frazil.model.ledger import PublishedEpoch, as_of
from frazil.model.ports import Committer
from frazil.model.position import Position, is_before
from frazil.observability.logs import Log
from frazil.threads import Threads

_log = Log("frazil.pipeline")


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
                frontiers = (epoch.entry.frontier for epoch in shown.values() if epoch is not None)
                told = next((frontier for frontier in frontiers if frontier.position == resolved), Frontier(resolved))
                snapshots = {table: None if epoch is None else epoch.snapshot_id for table, epoch in shown.items()}
                if not self._records.record(self._job, told, snapshots):
                    _log.warning("the moment at which all tables agree was not recorded", resolved=resolved.text)
                self._reached = resolved
            return self._reached

    def _shown(self, main_table: TargetTable, resolved: Position) -> PublishedEpoch | None:
        published = main_table.progress.published
        if published is None:
            return None
        head = self._committer.head(main_table.target)
        newest = head.newest(self._job)
        if newest is None or is_before(newest.resolved, published.position):
            text = f"{main_table.name} does not show the epoch up to {published.position} any more"
            raise CutAgain(text, table=main_table.name)
        return as_of(head, self._job, resolved)
