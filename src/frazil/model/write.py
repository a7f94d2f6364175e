"""What the driver asks of the workers: which tables and epochs to write, and where. Picklable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from uuid import UUID

from frazil.model.ids import TableName
from frazil.model.partition import WantedPartition
from frazil.model.position import Position
from frazil.model.schema import ColumnFamily
from frazil.model.sort import SortField
from frazil.model.table import Table

DEFAULT_FORMAT_VERSION = 3


class DeleteMode(StrEnum):
    """How a net change takes older rows of its key away: by vectors at exact positions, by equality deletes, or
    not at all, in a changelog."""

    VECTORS = "vectors"
    EQUALITY = "equality"
    APPEND_ONLY = "append-only"

    @property
    def needs_key(self) -> bool:
        return self is not DeleteMode.APPEND_ONLY


class Role(StrEnum):
    """What a target table is to its source table; one source table may fill one of each."""

    MAIN = "main"
    CHANGELOG = "changelog"
    QUARANTINE = "quarantine"


def side_table(target: TableName, role: Role) -> TableName:
    """`shop.orders` and `shop.orders__changelog`."""
    return target if role is Role.MAIN else replace(target, name=f"{target.name}__{role}")


def main_table_of(table: TableName) -> TableName:
    """`shop.orders`, of itself and of `shop.orders__changelog`."""
    for role in (Role.CHANGELOG, Role.QUARANTINE):
        if table.name.endswith(f"__{role}"):
            return replace(table, name=table.name.removesuffix(f"__{role}"))
    return table


class SchemaConflict(StrEnum):
    """What a column does whose new type the old one cannot be widened to."""

    STOP = "stop"
    NEW_COLUMN = "new-column"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """How the target table is to be: what creates and evolves it. `insists_on_version` if a table of an older format is
    of no use. `by_position` if no row may be deleted by its key, since some reader would not see it."""

    mode: DeleteMode = DeleteMode.VECTORS
    format_version: int = DEFAULT_FORMAT_VERSION
    insists_on_version: bool = False
    by_position: bool = False
    partition: tuple[WantedPartition, ...] = ()
    sort: tuple[SortField, ...] = ()
    location: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    drop: bool = False
    on_conflict: SchemaConflict = SchemaConflict.STOP


@dataclass(frozen=True, slots=True)
class EpochTarget:
    """One epoch of one table. `prefix` is where its files go. `deletes` is False only while the table is known
    to be empty: then an upsert needs no delete of an older row."""

    epoch: Position
    batch_id: UUID
    prefix: str
    deletes: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTask(Table):
    """One target table of a write job. `epochs` are those of the window, in order.

    `index` is the source table whose changes it takes: several targets may take the same ones. `lower` is this
    target's own last epoch: of changes up to there it takes none. Equality deletes are written under `delete_spec`,
    an unpartitioned one, so that they reach a row wherever it lies (H1). `parts` if the source sends rows in parts,
    which are put together again.
    """

    index: int
    key: tuple[str, ...]
    mode: DeleteMode
    epochs: tuple[EpochTarget, ...]
    role: Role = Role.MAIN
    lower: tuple[int, int] | None = None
    parts: tuple[ColumnFamily, ...] = ()

    def __post_init__(self) -> None:
        if self.mode.needs_key and not self.key:
            raise ValueError(f"{self.name}: {self.mode} needs a key")
        if self.parts and self.mode is not DeleteMode.VECTORS:
            raise ValueError(f"{self.name}: {self.mode} cannot fill what a source leaves out of a row")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSettings:
    compression: str = "zstd"
    row_group_rows: int = 1_000_000
    page_bytes: int = 1 << 20
    dictionary: bool = True
    target_file_bytes: int = 256 << 20
    bloom_filter: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteJob:
    """One Spark job for all tables of a window. `attempt` is never used for a second job, so that no path is
    ever written twice."""

    tables: tuple[TableTask, ...]
    attempt: str
    shards: int
    parquet: ParquetSettings = ParquetSettings()
    quarantined: Mapping[int, Mapping[str, tuple[int, int]]] = field(default_factory=dict)
    """By source table: keys that are in quarantine, with the oldest position there. They capture what follows (H49).
    Lines without a key are among them by what they travel under, where they may be read again."""
    puts_away: bool = True
    """Whether a change that cannot be taken goes to the quarantine of its table, where there is one. If not, it stops
    the job."""
