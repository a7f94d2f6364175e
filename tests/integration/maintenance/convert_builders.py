"""A table that is written by equality deletes, and everybody who reads it.

epoch(upserts, deletes)       a real epoch in `equality` mode, with its ledger
delete_by(columns, keys)      somebody's equality deletes: of any columns, everywhere or in one partition
convert()                     plan and perform, as the daemon does it; `between` happens after the search
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID as Uuid

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from frazil.clock import SystemClock
from frazil.commit.admission import Coordinator
from frazil.commit.frontier_check import At, read_frontier
from frazil.commit.machine import EpochCommit, Outcome, Published, make_epoch_commit
from frazil.commit.publisher import publish
from frazil.data.parquet_writer import RollingWriter
from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.tables.file_index import LiveReader
from frazil.iceberg.tables.tables import Tables
from frazil.ingest.locate.locators import LocatorSettings
from frazil.ingest.write.table_writer import TableEpochWriter, TaskOutput
from frazil.maintenance.convert.planner import ConvertPlan, ConvertSettings
from frazil.maintenance.convert.runner import Convert, Converted
from frazil.maintenance.convert.tasks import SparkConverting
from frazil.model.arrow import value_type
from frazil.model.commit import Accepted, CommitAnswer, ReplaceFiles
from frazil.model.conversion import Marked, Search
from frazil.model.files import FileClosed, FileKind, LiveFile, LiveFiles
from frazil.model.frontier import Frontier
from frazil.model.ids import JobId, TableName, batch_id, epoch_prefix
from frazil.model.ledger import Fence
from frazil.model.partition import parse_partition
from frazil.model.schema import INT, LONG, STRING, Column, Field, SourceSchema
from frazil.model.write import DeleteMode, EpochTarget, ParquetSettings, TableOptions, TableTask
from frazil.sources.cockroachdb.position import Hlc

JOB = JobId("shop")
ME = Coordinator(job=JOB, fence=Fence(1, Uuid(int=1)), incarnation="cluster-1", config_hash="c0ffee")
COLUMNS = {"id": LONG, "name": STRING, "part": INT}
Row = tuple[Any, ...]
Rows = Counter[Row]


class Ground:
    """One table with the columns id, name and part; the key of its epochs is id."""

    def __init__(
        self,
        catalog: Catalog,
        name: TableName,
        *,
        version: int = 3,
        partition: Sequence[str] = (),
        columns: Mapping[str, Any] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.catalog, self.name, self.spark = catalog, name, catalog.spark
        self.committer, self.tables, self.clock = IcebergCommitter(catalog), Tables(catalog), SystemClock()
        self.columns = dict(columns or COLUMNS)
        made = [Column(c, t, str(t), "sql", required=c == "id") for c, t in self.columns.items()]
        options = TableOptions(
            mode=DeleteMode.EQUALITY,
            format_version=version,
            partition=tuple(map(parse_partition, partition)),
            properties={"write.delete.mode": "merge-on-read", **(properties or {})},
        )
        self.tables.ensure(name, SourceSchema(tuple(made), ("id",), "sql"), options)
        self._numbers = itertools.count(1)
        self._folder = TemporaryDirectory()
        self.index = LocatorSettings(directory=Path(self._folder.name), size=1 << 28)
        self._lower: Hlc | None = None

    @property
    def sql(self) -> str:
        return f"{self.catalog.settings.name}.{self.name.sql}"

    # writers

    def epoch(self, upserts: Mapping[int, str], deletes: Iterable[int] = ()) -> Outcome:
        """Rows of the key and a name; the partition follows from the name, so that rows move."""
        loaded = self.tables.load(self.name)
        epoch = Hlc(next(self._numbers) * 10)
        prefix = epoch_prefix(loaded.data_location, JOB, epoch, ME.fence.label)
        target = EpochTarget(epoch, batch_id(JOB, self.name, epoch), prefix)
        task = TableTask.of(loaded, index=0, key=("id",), mode=DeleteMode.EQUALITY, epochs=(target,))
        place = TaskOutput(shard=0, attempt=str(next(self._numbers)), parquet=ParquetSettings())
        writer = TableEpochWriter(task, target, place)
        if upserts:
            writer.upserts(self._batch([(n, text, sum(text.encode()) % 3) for n, text in upserts.items()]))
        if gone := list(deletes):
            writer.deletes(pa.record_batch({"id": pa.array(gone, pa.int64())}))
        epoch_commit = make_epoch_commit(ME, self.name, loaded.uuid, self._lower, Frontier(epoch), writer.close())
        outcome = publish(epoch_commit, self.committer, self.clock, Quiet())
        assert isinstance(outcome, Published), outcome
        self._lower = epoch
        return outcome

    def append(self, rows: Sequence[Row]) -> None:
        """One file of each partition."""
        names = list(self.tables.load(self.name).schema)
        kinds = ", ".join(f"`{one.name}` {_spark_type(one)}" for one in names)
        frame = self.spark.createDataFrame([tuple(row) for row in rows], kinds)
        frame.coalesce(1).writeTo(self.sql).append()

    def run(self, statement: str) -> None:
        self.spark.sql(statement.format(table=self.sql, name=self.name.text, catalog=self.catalog.settings.name))

    def delete_by(
        self, columns: Sequence[str], keys: Sequence[Row], part: tuple[Any, ...] | None = None, spec_id: int = 0
    ) -> str:
        """An equality delete file: everywhere, or in one partition of a spec. Columns are those of today's schema."""
        loaded = self.tables.load(self.name)
        ids = tuple(field.id for field in loaded.schema.select(tuple(columns)))
        spec = loaded.delete_spec.spec_id if part is None else spec_id
        return self._add(
            columns, keys, kind=FileKind.EQUALITY_DELETE, equality_ids=ids, spec_id=spec, partition=part or ()
        )

    def add_file(self, columns: Sequence[str], rows: Sequence[Row], part: tuple[Any, ...]) -> str:
        """Somebody's data file with these columns alone, in a partition of today's spec."""
        return self._add(
            columns, rows, kind=FileKind.DATA, spec_id=self.tables.load(self.name).spec.spec_id, partition=part
        )

    def _add(self, columns: Sequence[str], rows: Sequence[Row], **facts: Any) -> str:
        loaded = self.tables.load(self.name)
        fields = loaded.schema.select(tuple(columns))
        path = f"{loaded.data_location}/foreign/{next(self._numbers)}.parquet"
        writer = RollingWriter([Field(f.id, f.name, f.type) for f in fields], lambda _: path, ParquetSettings(), {})
        arrays = [pa.array([row[n] for row in rows], value_type(f.type)) for n, f in enumerate(fields)]
        writer.write(pa.RecordBatch.from_arrays(arrays, schema=writer.schema))
        (closed,) = writer.close()
        message = FileClosed(
            table=self.name,
            epoch=Hlc(0),
            batch_id=Uuid(int=0),
            worker=0,
            schema_id=loaded.schema.schema_id,
            path=closed.path,
            records=closed.records,
            size=closed.size,
            digest=closed.digest,
            metrics=closed.metrics,
            **facts,
        )
        answer = self.committer.repair(
            self.name, self.committer.head(self.name), ReplaceFiles(files=(message,), summary={})
        )
        assert isinstance(answer, Accepted), answer
        return path

    # conversion

    def plan(self, settings: ConvertSettings | None = None) -> ConvertPlan | None:
        head = self.committer.head(self.name)
        return self._convert().plan(self.name, head, self.committer.live(self.name, head), settings)

    def convert(
        self, between: Callable[[], object] | None = None, settings: ConvertSettings | None = None
    ) -> Converted:
        plan = self.plan(settings)
        assert plan is not None, "nothing to convert"
        self.searching = Between(SparkConverting(self.spark, self.clock, self.index), [between] if between else [])
        return Convert(self.committer, self.searching, self.clock).perform(plan, settings)

    def _convert(self) -> Convert:
        return Convert(self.committer, SparkConverting(self.spark, self.clock, self.index), self.clock)

    # readers

    def seen_by_spark(self, columns: str = "*") -> Rows:
        return Counter(tuple(row) for row in self.spark.sql(f"SELECT {columns} FROM {self.sql}").collect())

    def seen_by_pyiceberg(self) -> Rows:
        """Raises for a table with equality deletes."""
        settings = self.catalog.settings
        catalog = SqlCatalog("frazil", uri=f"sqlite:///{settings.database}", warehouse=str(settings.warehouse))
        rows = catalog.load_table(self.name.text).scan().to_arrow().to_pylist()
        return Counter(tuple(row.values()) for row in rows)

    def seen_by_duckdb(self) -> Rows:
        """Skips the test where DuckDB is not installed."""
        duckdb = pytest.importorskip("duckdb")
        connection = duckdb.connect()
        for extension in ("avro", "iceberg"):
            package = pytest.importorskip(f"duckdb_extension_{extension}")
            path = next(Path(package.__file__).parent.rglob("*.duckdb_extension"))
            connection.execute(f"LOAD '{path}'")
        rows = connection.execute(f"SELECT * FROM iceberg_scan('{self.metadata_location}')").fetchall()
        return Counter(map(tuple, rows))

    @property
    def live(self) -> LiveFiles:
        """As the manifests have it."""
        return LiveReader(self.catalog).live(self.name, self.committer.head(self.name), ())

    @property
    def equality(self) -> set[str]:
        return {delete.path for delete in self.live.deletes if delete.kind is FileKind.EQUALITY_DELETE}

    @property
    def frontier(self) -> Hlc:
        match read_frontier(self.committer.head(self.name), JOB):
            case At(entry):
                assert isinstance(entry.resolved, Hlc)
                return entry.resolved
            case other:
                raise AssertionError(other)

    @property
    def metadata_location(self) -> str:
        table = self.catalog.java.loadTable(self.catalog.identifier(self.name))
        return str(table.operations().current().metadataFileLocation())

    def check_converted(self, before: Rows) -> None:
        """Everybody sees the rows that Spark saw before, and no data file has two vectors or one of another place."""
        assert self.equality == set()
        assert self.seen_by_spark() == before
        assert self.seen_by_pyiceberg() == before
        for file in self.live.files:
            assert sum(delete.is_vector for delete in file.deletes) <= 1, f"H23: {file.path}"
            for delete in file.deletes:
                assert (delete.spec_id, delete.partition) == (file.spec_id, file.partition), "H22"

    def _batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        arrays = [pa.array([row[n] for row in rows], value_type(t)) for n, t in enumerate(self.columns.values())]
        return pa.RecordBatch.from_arrays(arrays, names=list(self.columns))


@dataclass
class Between:
    """Spark's part, after which others get a chance."""

    inner: SparkConverting
    acts: list[Callable[[], object]]
    searches: list[Search] = field(default_factory=list)
    merges: int = 0

    def search(self, search: Search) -> tuple[Marked, ...]:
        marked = self.inner.search(search)
        self.searches.append(search)
        if self.acts:
            self.acts.pop(0)()
        return marked

    def merged(self, search: Search, vector: FileClosed, file: LiveFile) -> FileClosed:
        self.merges += 1
        return self.inner.merged(search, vector, file)


class Quiet:
    def answered(self, epoch_commit: EpochCommit, answer: CommitAnswer, seconds: float) -> None: ...

    def finished(self, epoch_commit: EpochCommit, outcome: Outcome) -> None: ...


def _spark_type(field: Field) -> str:
    names = {"long": "bigint", "uuid": "string", "timestamptz": "timestamp", "timestamp": "timestamp_ntz"}
    text = str(field.type)
    return names.get(text, "binary" if text.startswith("fixed") else text)
