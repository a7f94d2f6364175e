"""The tables of a running pipeline: what is read, and what it is written to.

    SourceState orders                         one source table: its source schema, its index in a job
      +-- TargetTable orders             main table: what it looks like, how far it is, what it has counted
      +-- TargetTable orders__changelog
      +-- TargetTable orders__quarantine

The reading loop hands epochs over, the commit line tells which landed; both threads meet here, under one lock.

Side tables (changelog, quarantine) are committed before their main table. So whatever the main table holds, they
hold: the source is read from the main table's frontier, the main table's alone is acknowledged, and a side table that
is new, or was switched off for a while, goes on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from threading import Lock, RLock
from typing import Protocol

from frazil.config.routing import Route
from frazil.errors import FrazilError
from frazil.iceberg.tables.layout import LayoutChange
from frazil.iceberg.tables.schema_steps import SchemaChange
from frazil.iceberg.tables.tables import LoadedTable
from frazil.ingest.loop.table_stats import Added, TableStats
from frazil.model.commit import CommitPlan
from frazil.model.frontier import EpochProgress, Frontier, LoadProgress
from frazil.model.ids import TableName
from frazil.model.ledger import LedgerEntry, TableHead
from frazil.model.position import Position, is_before
from frazil.model.quarantine import SOURCE_SCHEMA as QUARANTINE_SCHEMA
from frazil.model.schema import Column, SourceSchema
from frazil.model.state import TableState
from frazil.model.write import DeleteMode, Role, TableOptions, side_table


class KeepsTables(Protocol):
    """What a pipeline needs of the catalogs its tables are in; see `frazil.iceberg.tables.tables.Tables`."""

    def exists(self, table: TableName) -> bool: ...
    def load(self, table: TableName) -> LoadedTable: ...
    def ensure(self, table: TableName, source_schema: SourceSchema, options: TableOptions) -> LoadedTable: ...
    def set_property(self, table: TableName, name: str, value: str | None) -> None: ...
    def plan(self, table: TableName, columns: Sequence[Column], options: TableOptions) -> SchemaChange: ...
    def plan_layout(self, table: TableName, options: TableOptions) -> LayoutChange: ...


@dataclass(frozen=True, slots=True)
class MaintenanceStatus:
    """How a table was maintained in this run: when last, what was done, what could not be and why; and what has come
    since."""

    at: datetime | None = None
    done: str = ""
    waits: str = ""
    debt: str = ""


@dataclass
class SourceState:
    """A source table: what its targets share."""

    route: Route
    index: int
    source_schema: SourceSchema | None = None
    tried: set[str] = field(default_factory=set)
    """Columns with a value that did not fit, of which the source was asked again."""


@dataclass
class TargetTable:
    """One target of a source table."""

    origin: SourceState
    role: Role = Role.MAIN
    turn: AbstractContextManager[object] = field(default_factory=RLock, repr=False)
    """Held while an epoch is published, and by maintenance that loses against the stream."""
    loaded: LoadedTable | None = None
    empty: bool = True
    """No snapshot when it was last looked at: the first epoch needs no deletes."""
    progress: EpochProgress = field(default_factory=EpochProgress)
    reading: bool = False
    """A window of the source is read for it."""
    published_at: datetime | None = None
    snapshot_id: int | None = None
    """Of its newest epoch."""
    head_snapshot_id: int | None = None
    """The newest that was seen, whoever made it."""
    quarantined: int | None = None
    """Changes in its quarantine; None if there is none."""
    state: TableState = TableState.INITIALIZING
    epochs: int = 0
    rows: int = 0
    deletes: int = 0
    dropped: int = 0
    load: LoadProgress | None = None
    """How far its first load is; None if there is none under way."""
    trouble: FrazilError | None = None
    """Why it is held up."""
    stats: TableStats | None = None
    """What it holds; None until it was looked at."""
    added: Added = field(default_factory=Added)
    """What this run has added to it."""
    maintenance_status: MaintenanceStatus = field(default_factory=MaintenanceStatus)
    _lock: Lock = field(default_factory=Lock, repr=False)

    @property
    def route(self) -> Route:
        return self.origin.route

    @property
    def index(self) -> int:
        return self.origin.index

    @property
    def source_schema(self) -> SourceSchema | None:
        return self.origin.source_schema

    @property
    def source(self) -> str:
        return self.route.source

    @property
    def target(self) -> TableName:
        return side_table(self.route.target, self.role)

    @property
    def name(self) -> str:
        return self.target.text

    @property
    def is_main(self) -> bool:
        return self.role is Role.MAIN

    @property
    def options(self) -> TableOptions:
        """What creates and evolves the target. A side table is neither partitioned nor sorted."""
        own, volume = self.route.options, self.route.volume
        place = None if volume is None else volume.table_location(self.target.namespace, self.target.name)
        if self.is_main:
            return replace(own, location=own.location or place)
        mode = DeleteMode.APPEND_ONLY if self.role is Role.CHANGELOG else DeleteMode.EQUALITY
        return replace(own, mode=mode, partition=(), sort=(), location=place)

    @property
    def columns(self) -> SourceSchema | None:
        """The source schema of the target; a quarantine has one of its own."""
        return QUARANTINE_SCHEMA if self.role is Role.QUARANTINE else self.origin.source_schema

    @property
    def starts_empty(self) -> bool:
        return self.is_main and self.empty and self.progress.tip is None

    def start_at(self, frontier: Frontier | None, entry: LedgerEntry | None, at: datetime) -> None:
        """Takes up what the ledger says; whatever was in flight is forgotten. Heartbeats count from now."""
        with self._lock:
            self.reading = False
            self.progress = EpochProgress(published=frontier, read=None if frontier is None else frontier.position)
            self.published_at = at
            self.snapshot_id = None if entry is None else entry.snapshot_id
            self.state = TableState.INITIAL_SYNC if frontier is None else TableState.STEADY_STATE

    def begin_behind(self, main_table: Position | None) -> None:
        """A side table takes up where its main table does."""
        with self._lock:
            read = main_table if is_before(self.progress.read, main_table) else self.progress.read
            self.progress = replace(self.progress, begins=main_table, read=read)

    def begin_reading(self) -> None:
        with self._lock:
            self.reading = True

    def read_through(self, upper: Position, met_changes: bool) -> None:
        with self._lock:
            self.reading = False
            self.progress = self.progress.read_through(upper, met_changes)

    def hand_over(self, frontier: Frontier) -> None:
        with self._lock:
            self.progress = self.progress.handed_over(frontier)

    def show(self, head: TableHead) -> None:
        """What the table holds, whoever wrote it."""
        with self._lock:
            self.stats = TableStats.at(head)
            self.head_snapshot_id = head.snapshot_id

    def holds_more(self, plan: CommitPlan) -> None:
        """What a commit has added and taken away."""
        with self._lock:
            if self.stats is not None:
                self.stats = self.stats.with_commit(plan)
            if plan.files:
                self.added = self.added.with_commit(plan)

    def landed(self, entry: LedgerEntry, snapshot_id: int | None, at: datetime) -> None:
        """The oldest epoch in flight is published."""
        with self._lock:
            self.progress = self.progress.landed(entry.resolved)
            self.snapshot_id = self.head_snapshot_id = snapshot_id
            self.published_at = at
            self.state = TableState.STEADY_STATE if self.load is None else TableState.INITIAL_SYNC
            self.trouble = None
            self.epochs += 1
            self.rows += entry.rows
            self.deletes += entry.deletes

    @property
    def is_underway(self) -> bool:
        """Whether something of it is on its way from the source to the table."""
        return self.reading or bool(self.progress.in_flight)

    @property
    def done_through(self) -> Position | None:
        """Everything up to here is published, or there was nothing to publish."""
        if not self.progress.in_flight:
            return self.progress.read
        return None if self.progress.published is None else self.progress.published.position

    @property
    def published_time(self) -> datetime | None:
        """When the source was at the last epoch, by its own clock."""
        return None if self.progress.published is None else self.progress.published.source_time

    @property
    def done_time(self) -> datetime | None:
        """When the source was at `done_through`, by its own clock: as the ledger has it, else as the position tells it.
        Where neither does, the time of the last epoch."""
        done, published = self.done_through, self.progress.published
        if published is not None and (done is None or done == published.position or done.source_time is None):
            return self.published_time
        return None if done is None else done.source_time

    def lag(self, now: datetime) -> float | None:
        """Seconds by the source's clock; None if nothing is published, or nothing tells its time."""
        moment = self.done_time
        return None if moment is None else max(0.0, (now - moment).total_seconds())
