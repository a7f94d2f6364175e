"""A table under test with a model beside it: epochs published through the real writers, machine and locator.

    epoch(upserts, deletes) --TableEpochWriter--> files --make_intent--> publish(locator) --> snapshot
    the same on `rows`, a bag of (key, name): others may append a key that is there already

Everybody who reads the table must see the bag: Spark, PyIceberg, and the listing of live files must agree with what
iceberg-java plans.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal as Number
from pathlib import Path
from typing import Any
from uuid import UUID as Uuid

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from frazil.clock import SystemClock
from frazil.commit.admission import Coordinator
from frazil.commit.machine import EpochCommit, Outcome, Published, make_epoch_commit
from frazil.commit.publisher import publish
from frazil.data.deletes.deleted_rows import DeletedRows
from frazil.data.keys.index_cache import IndexCache
from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.tables.file_index import LiveReader
from frazil.iceberg.tables.tables import LoadedTable, Tables
from frazil.ingest.locate.locator import Searches, TableLocator
from frazil.ingest.locate.search import SearchMode
from frazil.ingest.locate.searched_table import SearchedTable
from frazil.ingest.write.table_writer import TableEpochWriter, TaskOutput
from frazil.model.arrow import value_type
from frazil.model.commit import CommitAnswer
from frazil.model.files import FileClosed, LiveFile, LiveFiles
from frazil.model.frontier import Frontier
from frazil.model.ids import JobId, TableName, batch_id, epoch_prefix
from frazil.model.ledger import Fence, TableHead
from frazil.model.partition import parse_partition
from frazil.model.ports import Located, Locator
from frazil.model.schema import (
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIMESTAMPTZ,
    UUID,
    Column,
    Decimal,
    SourceSchema,
    Type,
)
from frazil.model.write import DeleteMode, EpochTarget, ParquetSettings, TableOptions, TableTask
from frazil.sources.cockroachdb.position import Hlc

JOB = JobId("shop")
ME = Coordinator(job=JOB, fence=Fence(1, Uuid(int=1)), incarnation="cluster-1", config_hash="c0ffee")
CACHE_BYTES = 1 << 30
Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class KeyKind:
    """Key columns, their types, and the n-th key."""

    columns: Mapping[str, Type]
    key: Callable[[int], Key]


KEYS = {
    "int": KeyKind({"id": LONG}, lambda n: (n * 3 - 20,)),
    "string": KeyKind({"id": STRING}, lambda n: (f"a very long common beginning of keys {n % 3}é{n}",)),
    "uuid": KeyKind({"id": UUID}, lambda n: (Uuid(int=(n * 0x9E3779B97F4A7C15F39CC0605CEDC835) % (1 << 128)),)),
    "decimal": KeyKind({"id": Decimal(12, 2)}, lambda n: (Number(n * 50 - 700).scaleb(-2),)),
    "composite": KeyKind({"shop": INT, "code": STRING}, lambda n: (n % 4, f"c{n // 4}")),
}


@dataclass(frozen=True, slots=True)
class PartKind:
    """The type of the column `part`, its three values, and how Spark SQL writes them."""

    type: Type
    values: Sequence[Any]
    literals: Sequence[str]


PARTS = {
    "int": PartKind(INT, (0, 1, 2), ("0", "1", "2")),
    "float": PartKind(FLOAT, (0.1, math.nan, -0.0), ("float(0.1)", "float('NaN')", "float('-0.0')")),
    "double": PartKind(DOUBLE, (0.0, math.inf, -0.0), ("0.0D", "double('Infinity')", "double('-0.0')")),
    "timestamp": PartKind(
        TIMESTAMPTZ,
        [datetime(2020, 1, 1, 0, 0, second, micros, UTC) for second, micros in ((0, 0), (1, 500_000), (2, 3))],
        [f"TIMESTAMP'2020-01-01 00:00:0{second}Z'" for second in ("0", "1.5", "2.000003")],
    ),
}


class Stage:
    """One table, its locator and its model."""

    def __init__(
        self,
        catalog: Catalog,
        name: TableName,
        folder: Path,
        kind: str = "int",
        *,
        part: str = "int",
        format_version: int = 3,
        partition: Sequence[str] = (),
        roads: Searches | None = None,
        road: SearchMode | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.catalog, self.name, self.kind, self.part = catalog, name, KEYS[kind], PARTS[part]
        self.committer, self.tables = IcebergCommitter(catalog), Tables(catalog)
        columns = [Column(c, t, str(t), "sql", required=True) for c, t in self.kind.columns.items()]
        columns += [Column("name", STRING, "STRING", "sql"), Column("part", self.part.type, "", "sql")]
        self.source_schema = SourceSchema(tuple(columns), tuple(self.kind.columns), "sql")
        self.options = TableOptions(
            mode=DeleteMode.VECTORS,
            format_version=format_version,
            partition=tuple(map(parse_partition, partition)),
            properties=properties or {},
        )
        self.loaded = self.tables.ensure(name, self.source_schema, self.options)
        self.cache = IndexCache(folder / "index", CACHE_BYTES)
        self.roads, self.road = roads, road
        self.rows: Counter[tuple[Key, str]] = Counter()
        self._numbers = itertools.count(1)
        self._attempts = itertools.count(1)
        self._lower: Hlc | None = None
        self.reload()

    @property
    def sql(self) -> str:
        return f"{self.catalog.settings.name}.{self.name.sql}"

    @property
    def locator(self) -> TableLocator:
        return self._locator

    def reload(self) -> None:
        """After somebody changed the table's schema, specs or version."""
        self.loaded = self.tables.load(self.name)
        deleted = DeletedRows()
        self._locator = TableLocator(
            searched(self.loaded, tuple(self.kind.columns)),
            self.committer,
            self.cache,
            deleted,
            SystemClock(),
            self.roads,
            self.road,
        )

    # our epochs

    def write(self, upserts: Mapping[int, str], deletes: Iterable[int] = ()) -> tuple[Hlc, list[FileClosed]]:
        """The files of the next epoch, of keys by number."""
        epoch = Hlc(next(self._numbers) * 10)
        prefix = epoch_prefix(self.loaded.data_location, JOB, epoch, ME.fence.label)
        target = EpochTarget(epoch, batch_id(JOB, self.name, epoch), prefix)
        key = tuple(self.kind.columns)
        task = TableTask.of(self.loaded, index=0, key=key, mode=DeleteMode.VECTORS, epochs=(target,))
        place = TaskOutput(shard=0, attempt=str(next(self._attempts)), parquet=ParquetSettings())
        writer = TableEpochWriter(task, target, place)
        if upserts:
            writer.upserts(self._batch(upserts))
        if gone := list(deletes):
            writer.deletes(self._batch(dict.fromkeys(gone, "")).select(list(self.kind.columns)))
        return epoch, list(writer.close())

    def epoch_commit(self, epoch: Hlc, files: Sequence[FileClosed]) -> EpochCommit:
        return make_epoch_commit(ME, self.name, self.loaded.uuid, self._lower, Frontier(epoch), files, vectors=True)

    def epoch(self, upserts: Mapping[int, str], deletes: Iterable[int] = (), locator: Locator | None = None) -> Outcome:
        """Publishes an epoch, and tells the model."""
        deletes = list(deletes)
        epoch, files = self.write(upserts, deletes)
        outcome = publish(
            self.epoch_commit(epoch, files), self.committer, SystemClock(), Quiet(), locator or self.locator
        )
        assert isinstance(outcome, Published), outcome
        self._lower = epoch
        touched = {self.kind.key(n) for n in (*upserts, *deletes)}
        self.rows = Counter({row: count for row, count in self.rows.items() if row[0] not in touched})
        self.rows.update((self.kind.key(n), name) for n, name in upserts.items())
        return outcome

    # others

    def append(self, rows: Mapping[int, str]) -> None:
        """Somebody's INSERT, of keys that may be there already."""
        values = ", ".join(
            f"({', '.join(map(literal, self.kind.key(n)))}, {literal(name)}, {self.part.literals[n % 3]})"
            for n, name in rows.items()
        )
        self.catalog.spark.sql(f"INSERT INTO {self.sql} VALUES {values}")
        self.rows.update((self.kind.key(n), name) for n, name in rows.items())

    def delete(self, names: Sequence[str]) -> None:
        """Somebody's DELETE, by a column that is no key."""
        self.catalog.spark.sql(f"DELETE FROM {self.sql} WHERE name IN ({', '.join(map(literal, names))})")
        self.rows = Counter({row: count for row, count in self.rows.items() if row[1] not in names})

    def rewrite(self) -> None:
        """Somebody's compaction of everything."""
        options = "map('rewrite-all', 'true', 'remove-dangling-deletes', 'true')"
        catalog = self.catalog.settings.name
        self.catalog.spark.sql(
            f"CALL {catalog}.system.rewrite_data_files(table => '{self.name.text}', options => {options})"
        )

    def upgrade(self) -> None:
        self.catalog.spark.sql(f"ALTER TABLE {self.sql} SET TBLPROPERTIES ('format-version' = '3')")
        self.reload()

    # what others see

    def check(self, pyiceberg: bool = True) -> None:
        assert self.seen_by_spark() == self.rows
        if pyiceberg:
            assert self.seen_by_pyiceberg() == self.rows
        head = self.committer.head(self.name)
        bounds_of = [f.id for f in self.loaded.schema.select(tuple(self.kind.columns))][:1]
        if len(self.kind.columns) > 1:
            bounds_of = []
        derived = self.committer.live(self.name, head, bounds_of)
        assert comparable(derived) == comparable(LiveReader(self.catalog).live(self.name, head, bounds_of))
        for file in derived.files:
            assert sum(delete.is_vector for delete in file.deletes) <= 1, f"two vectors for {file.path} (H23)"
            for delete in file.deletes:
                if delete.data_file == file.path:
                    assert (delete.spec_id, delete.partition) == (file.spec_id, file.partition), "H22"

    def seen_by_spark(self) -> Counter[tuple[Key, str]]:
        rows = self.catalog.spark.sql(f"SELECT * FROM {self.sql}").collect()
        return Counter(
            (tuple(self._plain(row[c], t) for c, t in self.kind.columns.items()), row["name"]) for row in rows
        )

    def seen_by_pyiceberg(self) -> Counter[tuple[Key, str]]:
        catalog = SqlCatalog(
            "frazil",
            uri=f"sqlite:///{self.catalog.settings.database}",
            warehouse=str(self.catalog.settings.warehouse),
        )
        rows = catalog.load_table(self.name.text).scan().to_arrow().to_pylist()
        return Counter(
            (tuple(self._plain(row[c], t) for c, t in self.kind.columns.items()), row["name"]) for row in rows
        )

    @staticmethod
    def _plain(value: Any, type_: Type) -> Any:
        if type_ == UUID and not isinstance(value, Uuid):
            return Uuid(value) if isinstance(value, str) else Uuid(bytes=bytes(value))
        return value

    def _batch(self, rows: Mapping[int, str]) -> pa.RecordBatch:
        keys = [self.kind.key(n) for n in rows]
        columns = {
            name: pa.array([_storable(key[place]) for key in keys], value_type(type_))
            for place, (name, type_) in enumerate(self.kind.columns.items())
        }
        return pa.RecordBatch.from_pydict(
            {
                **columns,
                "name": pa.array(list(rows.values()), pa.string()),
                "part": pa.array(
                    [self.part.values[sum(name.encode()) % 3] for name in rows.values()], value_type(self.part.type)
                ),
            }
        )


def searched(loaded: LoadedTable, key: tuple[str, ...]) -> SearchedTable:
    return SearchedTable.of(loaded, key=loaded.schema.select(key))


def comparable(live: LiveFiles) -> tuple[int | None, dict[str, tuple[LiveFile, frozenset[Any]]]]:
    """Two listings are equal whatever the order of their files."""
    files = {file.path: (_without_deletes(file), frozenset(file.deletes)) for file in live.files}
    return live.snapshot_id, files


def _without_deletes(file: LiveFile) -> tuple[Any, ...]:
    facts = (file.format, file.size, file.records, file.sequence_number, file.spec_id, file.partition)
    return (*facts, dict(file.bounds))


@dataclass
class Meddling:
    """A locator between whose answer and the commit others get a chance; `answers` are written down."""

    inner: Locator
    acts: list[Callable[[], None]]
    answers: list[Located] = field(default_factory=list)
    asked_by_equality: list[bool] = field(default_factory=list)

    def locate(self, files: Sequence[FileClosed], head: TableHead, *, by_equality: bool) -> Located:
        located = self.inner.locate(files, head, by_equality=by_equality)
        self.answers.append(located)
        self.asked_by_equality.append(by_equality)
        if self.acts:
            self.acts.pop(0)()
        return located


class Quiet:
    def answered(self, epoch_commit: EpochCommit, answer: CommitAnswer, seconds: float) -> None: ...

    def finished(self, epoch_commit: EpochCommit, outcome: Outcome) -> None: ...


def literal(value: Any) -> str:
    match value:
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case Uuid():
            return f"'{value}'"
        case Number():
            return f"CAST('{value}' AS DECIMAL(12,2))"
        case _:
            return str(value)


def _storable(value: Any) -> Any:
    return value.bytes if isinstance(value, Uuid) else value
