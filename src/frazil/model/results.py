"""What a pipeline tells its callers: values for the command line, for scripts and for tests.

    run()    -> RunProgress, RunProgress, ... -> RunSummary
    check()  -> CheckReport of CheckedTable
    status() -> TableStatus of each table
    epochs() -> EpochRow, newest first
    as_of()  -> SourceSnapshot; consistent() -> ConsistentEpoch: all tables at one moment
    maintain() -> MaintenanceStep, as they happen
    doctor() -> Diagnosis of each table, with its findings
    quarantine() -> QuarantinedChange, in source order; replay() -> ReplayReport

Field names are what `--json` prints: renaming one breaks scripts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from frazil.model.frontier import ConsistentEpoch as ConsistentEpoch
from frazil.model.frontier import LoadProgress
from frazil.model.state import TableState


class TableAction(StrEnum):
    CREATE = "create"
    EXISTS = "exists"
    ADD_COLUMNS = "add columns"
    CHANGE_COLUMNS = "change columns"
    REFUSED = "refused"
    NO_TABLE = "no table yet"


@dataclass(frozen=True, slots=True)
class TableProgress:
    """How far one table has come in this run. `epochs`, `rows` and `deletes` count since it started; `data_files`,
    `delete_files` and `table_rows` are what the table holds, the last one None if equality deletes hide it.
    `snapshot_id` is the newest snapshot that the run has seen, `epoch_snapshot_id` that of the newest epoch.
    `quarantined` counts the changes in quarantine, None if there is none. `error` is why the table is held up, `hint`
    what to do about it, `exit_code` that of the kind of error. `maintenance` is what was done to its files and
    snapshots when it was maintained last in this run, `maintenance_waits` what could not be done and why, `debt` what
    has come since."""

    name: str
    state: TableState
    resolved: str | None
    epochs: int
    rows: int
    lag_seconds: float | None
    source: str = ""
    deletes: int = 0
    snapshot_id: int | None = None
    data_files: int | None = None
    delete_files: int | None = None
    snapshots: int | None = None
    error: str = ""
    hint: str = ""
    load: LoadProgress | None = None
    maintained_at: datetime | None = None
    maintenance: str = ""
    maintenance_waits: str = ""
    debt: str = ""
    epoch_snapshot_id: int | None = None
    table_rows: int | None = None
    quarantined: int | None = None
    exit_code: int = 0
    source_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class RunProgress:
    """`resolved` is the newest position that every table has, `source_time` its time by the source's clock.
    `index_bytes` and `index_hit_rate` are of the key index, None before it was used."""

    tables: tuple[TableProgress, ...]
    resolved: str | None = None
    pipeline: str = ""
    started_at: datetime | None = None
    index_bytes: int | None = None
    index_hit_rate: float | None = None
    source_time: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """What a run has published. `dropped` counts late changes and duplicates at or below a frontier."""

    epochs: int
    rows: int
    deletes: int
    dropped: int
    tables: int
    resolved: str | None
    source_time: datetime | None = None

    def __post_init__(self) -> None:
        if min(self.epochs, self.rows, self.deletes, self.dropped, self.tables) < 0:
            raise ValueError(f"a run cannot publish less than nothing: {self}")


@dataclass(frozen=True, slots=True)
class CheckedColumn:
    """A column of a target table. `origin` says who told the type: configuration, sql, enriched, table, inferred."""

    name: str
    type: str
    source_type: str
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeAs:
    """How a table is made, or is already: `side_tables` are the tables beside it (changelog, quarantine)."""

    deletes: str
    format_version: int
    partition: tuple[str, ...] = ()
    sort: tuple[str, ...] = ()
    side_tables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedTable:
    """What would become of one source table. `exit_code` is that of the first problem that stops it, 0 if none does."""

    source: str
    target: str
    action: TableAction
    columns: tuple[CheckedColumn, ...]
    key: tuple[str, ...]
    key_origin: str
    notes: tuple[str, ...] = ()
    exit_code: int = 0
    made: MadeAs | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedCatalog:
    """A catalog, what it can do, and what follows from that."""

    name: str
    described: str
    abilities: Mapping[str, bool]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """`catalogs` and `feed` describe what was reached, without secrets; `pin_yaml` pins what was discovered."""

    tables: tuple[CheckedTable, ...]
    catalogs: tuple[CheckedCatalog, ...]
    feed: str
    pin_yaml: str = ""


class ToldBy(StrEnum):
    """Who knows: the running daemon, or the tables' ledgers, which cannot tell what is done with them now."""

    DAEMON = "daemon"
    TABLES = "tables"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """`snapshot_id` is the table's newest snapshot, `epoch_snapshot_id` that of its newest epoch. The tables tell
    `resolved`, and the lag with it, of that epoch, the daemon of all it has seen: a source without changes is not
    behind. `epochs` and `rows` count since the daemon started or was reloaded; tables do not tell them. `table_rows`,
    `data_files`, `delete_files` and `snapshots` are what the table holds; `table_rows` is None if equality deletes
    hide it.
    `quarantined` counts the changes in quarantine; it is None for a table that has none. `error` is why the table is
    held up, `hint` what to do about it, `exit_code` that of the kind of error, 0 if there is none. `index_bytes` and
    `index_hit_rate` are of the key index, which all tables of a pipeline share; None before it was used. `maintenance`
    and `maintained_at` tell what maintenance last did to the table."""

    table: str
    state: TableState
    resolved: str | None
    snapshot_id: int | None
    lag_seconds: float | None
    epochs: int | None = None
    rows: int | None = None
    quarantined: int | None = None
    index_bytes: int | None = None
    index_hit_rate: float | None = None
    data_files: int | None = None
    delete_files: int | None = None
    snapshots: int | None = None
    maintenance: str | None = None
    maintained_at: datetime | None = None
    epoch_snapshot_id: int | None = None
    table_rows: int | None = None
    error: str = ""
    hint: str = ""
    exit_code: int = 0
    source_time: datetime | None = None
    told_by: ToldBy = ToldBy.TABLES

    def __post_init__(self) -> None:
        if self.resolved is None and self.epoch_snapshot_id is not None:
            raise ValueError(f"{self.table}: an epoch of ours has a resolved position")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRow:
    """One snapshot of one table that this pipeline published."""

    table: str
    resolved: str
    snapshot_id: int
    batch_id: str
    committed_at: datetime
    data_files: int
    delete_files: int
    rows: int
    deletes: int = 0
    source_time: datetime | None = None

    def __post_init__(self) -> None:
        if self.committed_at.tzinfo is None:
            raise ValueError(f"{self.table}: committed_at has no time zone")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSnapshot:
    """The snapshot that shows a table as it was at a moment of the source. `reached` is False if the table is not
    published up to that moment yet: then it is the newest one, and changes may be missing. `sql` reads it, in Spark."""

    table: str
    asked: str
    snapshot_id: int
    resolved: str
    source_time: datetime | None
    reached: bool
    sql: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedChange:
    """One change that could not be taken, or waits behind one of its key (`captured`). `key` and `position` are None
    if the line did not tell them; `file` and `line` are known of lines that are no message of the feed."""

    table: str
    id: str
    reason: str
    column: str | None
    key: str | None
    op: str | None
    position: str | None
    captured: bool
    file: str | None
    line: int | None
    payload: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """How many changes a replay took out of quarantine, and which it had to leave, each with today's reason."""

    table: str
    replayed: int
    left: tuple[QuarantinedChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceStep:
    """One action on one table. `done` is False if it was only planned or failed; `counts` tell what it did or would.
    `exit_code` is that of the kind of error which it failed with, 0 if it did not."""

    table: str
    action: str
    reason: str
    counts: Mapping[str, int]
    done: bool
    seconds: float
    error: str = ""
    hint: str = ""
    exit_code: int = 0
