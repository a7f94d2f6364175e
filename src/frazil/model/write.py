"""What the driver asks of the workers: which tables and epochs to write, and where. Picklable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID

from frazil.model.columns import Schema
from frazil.model.names import TableName
from frazil.model.position import Position

CHANGELOG_OP = "_op"
CHANGELOG_POSITION = "_position"


class DeleteMode(StrEnum):
    EQUALITY = "equality"
    APPEND_ONLY = "append-only"


@dataclass(frozen=True, slots=True)
class EpochTarget:
    """One epoch of one table. `prefix` is where its files go. `deletes` is False only while the table is known
    to be empty: then an upsert needs no delete of an older row."""

    epoch: Position
    batch_id: UUID
    prefix: str
    deletes: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTask:
    """One table of a write job. `epochs` are those of the window, in order."""

    index: int
    table: TableName
    schema: Schema
    spec_id: int
    key: tuple[str, ...]
    mode: DeleteMode
    epochs: tuple[EpochTarget, ...]

    def __post_init__(self) -> None:
        if self.mode is DeleteMode.EQUALITY and not self.key:
            raise ValueError(f"{self.table}: {self.mode} needs a key")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSettings:
    compression: str = "zstd"
    row_group_rows: int = 1_000_000
    page_bytes: int = 1 << 20
    dictionary: bool = True
    target_file_bytes: int = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteJob:
    """One Spark job for all tables of a window. `attempt` is never used for a second job, so that no path is
    ever written twice; `storage` holds the options of the file system that takes the files."""

    tables: tuple[TableTask, ...]
    attempt: str
    shards: int
    parquet: ParquetSettings = ParquetSettings()
    storage: Mapping[str, str] = field(default_factory=dict)
