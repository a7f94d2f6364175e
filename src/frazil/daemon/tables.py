"""One target table of a running pipeline: what it looks like, how far it is, what it has counted.

The reading loop hands epochs over, the commit line tells which landed; both threads meet here, under one lock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from threading import Lock

from frazil.config.routing import Route
from frazil.epochs.progress import Progress
from frazil.lake.tables import LoadedTable
from frazil.model.columns import TableShape
from frazil.model.epoch import Frontier
from frazil.model.ledger import LedgerEntry
from frazil.model.position import Position
from frazil.model.state import TableState


@dataclass
class RunningTable:
    route: Route
    index: int
    loaded: LoadedTable | None = None
    shape: TableShape | None = None
    empty: bool = True
    """No snapshot when it was last looked at: the first epoch needs no deletes."""
    progress: Progress = field(default_factory=Progress)
    published_at: datetime | None = None
    snapshot_id: int | None = None
    state: TableState = TableState.INITIALIZING
    epochs: int = 0
    rows: int = 0
    deletes: int = 0
    dropped: int = 0
    _lock: Lock = field(default_factory=Lock, repr=False)

    @property
    def source(self) -> str:
        return self.route.source

    @property
    def name(self) -> str:
        return self.route.target.text

    def start_at(self, frontier: Frontier | None, entry: LedgerEntry | None, at: datetime) -> None:
        """Takes up what the ledger says; whatever was in flight is forgotten. Heartbeats count from now."""
        with self._lock:
            self.progress = Progress(published=frontier, read=None if frontier is None else frontier.position)
            self.published_at = at
            self.snapshot_id = None if entry is None else entry.snapshot_id
            self.state = TableState.INITIAL_SYNC if frontier is None else TableState.STEADY_STATE

    def read_through(self, upper: Position, met_changes: bool) -> None:
        with self._lock:
            self.progress = self.progress.read_through(upper, met_changes)

    def hand_over(self, frontier: Frontier) -> None:
        with self._lock:
            self.progress = self.progress.handed_over(frontier)

    def landed(self, entry: LedgerEntry, snapshot_id: int | None, at: datetime) -> None:
        """The oldest epoch in flight is published."""
        with self._lock:
            self.progress = self.progress.landed(entry.resolved)
            self.snapshot_id, self.published_at = snapshot_id, at
            self.state = TableState.STEADY_STATE
            self.epochs += 1
            self.rows += entry.rows
            self.deletes += entry.deletes

    @property
    def done_through(self) -> Position | None:
        """Everything up to here is published, or there was nothing to publish."""
        if not self.progress.in_flight:
            return self.progress.read
        return None if self.progress.published is None else self.progress.published.position
