"""A write job on a real Spark session: what the tasks report, what the files hold, how errors come home."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import SparkFiles, cloudpickle
from pyspark.sql import SparkSession

from frazil.errors import BadInput, CatalogRefused, DoesNotFit, SourceUnavailable, Unexplained
from frazil.ingest.shuffle import blocks
from frazil.ingest.write import write_job as worker_job
from frazil.ingest.write.row_versions import ColumnChanges
from frazil.ingest.write.write_job import run_columns_job
from frazil.model import schema as c
from frazil.model.arrow import CHANGE_SCHEMA
from frazil.model.change import CHANGE_COLUMNS, REPORT_EPOCH, Op
from frazil.model.files import FileClosed, FileKind, Message, Resolved
from frazil.model.ids import TableName
from frazil.model.position import BatchNumber, Position
from frazil.model.schema import LONG, STRING, Field, Schema
from frazil.model.write import DeleteMode, EpochTarget, TableTask, WriteJob
from frazil.sources.base import Cut, InputPartition
from frazil.sources.cockroachdb.position import Hlc

pytestmark = pytest.mark.spark

# The executors cannot import a test module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

R1, R2 = Hlc(100), Hlc(200)
USERS = Schema(3, (Field(1, "id", LONG, required=True), Field(2, "name", STRING)), identifier_ids=(1,))
CUT = Cut(None, (R1.order, R2.order))


@dataclass(frozen=True)
class ListReader:
    """A partition's facts are its changes: [key, position, name or null] each. Fails where it is told to, and does not
    answer where it is told to."""

    fails_at: str = ""
    silent_at: str = ""

    def read(self, partition: InputPartition, cut: Cut) -> Iterator[pa.RecordBatch]:
        if partition.name == self.silent_at:
            raise SourceUnavailable(f"{partition.name} does not answer", hint="wait", file=partition.name)
        if partition.name == self.fails_at:
            raise BadInput(f"{partition.name}, line 3: no key", hint="mend the file", file=partition.name, line=3)
        rows: list[tuple[Any, ...]] = []
        newest = -1
        for key, at, name in json.loads(partition.facts):
            newest = max(newest, at)
            epoch = next((i for i, upper in enumerate(cut.uppers) if (at, 0) <= upper), None)
            if epoch is None:
                continue
            payload = None if name is None else json.dumps({"id": key, "name": name}).encode()
            op = Op.DELETE if name is None else Op.UPSERT
            rows.append((partition.table, epoch, f"[{key}]", 0, at, 0, int(op), payload, None))
        found = json.dumps({"rows": len(rows), "dropped": 0}).encode()
        rows.append((partition.table, REPORT_EPOCH, partition.name, 0, newest, 0, int(Op.REPORT), found, None))
        yield pa.RecordBatch.from_pylist(
            [dict(zip(CHANGE_COLUMNS, row, strict=False)) for row in rows], schema=CHANGE_SCHEMA
        )


@dataclass(frozen=True)
class UserDecoder:
    refuses: str = ""

    def keys(self, _table: int, keys: pa.Array) -> pa.RecordBatch:
        return pa.record_batch({"id": [json.loads(key)[0] for key in keys.to_pylist()]})

    def rows(self, _table: int, _keys: pa.Array, payloads: pa.Array) -> pa.RecordBatch:
        rows = [json.loads(payload) for payload in payloads.to_pylist()]
        if self.refuses in [row["name"] for row in rows]:
            raise DoesNotFit("name does not fit", hint="widen it", column="name", value=self.refuses)
        return pa.record_batch({"id": [row["id"] for row in rows], "name": [row["name"] for row in rows]})


def job(
    folder: Path | str, *, tables: int = 1, shards: int = 3, attempt: str = "j1", epochs: Sequence[Position] = (R1, R2)
) -> WriteJob:
    return WriteJob(
        tables=tuple(
            TableTask(
                index=index,
                format_version=3,
                data_location="d",
                name=TableName.parse(f"shop.t{index}"),
                schema=USERS,
                key=("id",),
                mode=DeleteMode.EQUALITY,
                epochs=tuple(
                    EpochTarget(epoch, uuid5(UUID(int=index), epoch.text), f"{folder}/t{index}/epoch={epoch.text}")
                    for epoch in epochs
                ),
            )
            for index in range(tables)
        ),
        attempt=attempt,
        shards=shards,
    )


def split(table: int, name: str, changes: list[tuple[int, int, str | None]]) -> InputPartition:
    facts = json.dumps(changes)
    return InputPartition(table, name, facts, len(facts))


every_road = pytest.mark.parametrize("road", ["small", "files", "shuffle"])


def run(
    spark: SparkSession, given: WriteJob, partitions: list[InputPartition], *, road: str = "files", **roles: Any
) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_job, "_is_one_machine", lambda _: road == "files")
        return worker_job.run_write_job(
            spark,
            partitions,
            {task.index: CUT for task in given.tables},
            roles.get("reader", ListReader()),
            roles.get("decoder", UserDecoder()),
            given,
            (R1, R2),
            Hlc,
            road == "small",
        )


def files(messages: Sequence[Message], kind: FileKind) -> list[FileClosed]:
    return [m for m in messages if isinstance(m, FileClosed) and m.kind is kind]


def contents(messages: Sequence[Message], kind: FileKind) -> list[tuple[Any, ...]]:
    return sorted(
        (file.table.name, file.epoch, *row.values())
        for file in files(messages, kind)
        for row in pq.ParquetFile(file.path).read().to_pylist()
    )


def mixed_partitions() -> list[InputPartition]:
    """Two tables; keys over all partitions, so that only a shuffle brings their versions together."""
    return [
        split(t, f"t{t}-s{s}", [(k, 10 + s * 10 + k % 7, None if (k + s) % 5 == 0 else f"s{s}") for k in range(40)])
        for t in (0, 1)
        for s in range(18)
    ]


def model(partitions: list[InputPartition]) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    newest: dict[tuple[str, Hlc, int], tuple[int, str | None]] = {}
    for given in partitions:
        for key, at, name in json.loads(given.facts):
            if at <= R2.wall:
                place = (f"t{given.table}", R1 if at <= R1.wall else R2, key)
                newest[place] = max(newest.get(place, (-1, None)), (at, name), key=lambda change: change[0])
    rows = sorted((*place, name) for place, (_, name) in newest.items() if name is not None)
    return rows, sorted(newest)


@every_road
def test_every_road_writes_the_net_change_of_every_key(spark: SparkSession, tmp_path: Path, road: str) -> None:
    """H2, H34."""
    partitions = mixed_partitions()
    messages, reports = run(spark, job(tmp_path, tables=2), partitions, road=road)
    rows, keys = model(partitions)
    assert contents(messages, FileKind.DATA) == rows
    assert contents(messages, FileKind.EQUALITY_DELETE) == keys
    assert sorted(report.partition for report in reports) == sorted(given.name for given in partitions)
    assert {report.newest for report in reports if report.partition == "t0-s0"} == {Hlc(16)}


@pytest.mark.parametrize("road", ["files", "shuffle"])
def test_tables_that_travel_in_many_groups_are_written_alike(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, road: str
) -> None:
    monkeypatch.setattr(blocks, "GROUP_BYTES", 1_000)
    partitions = mixed_partitions()
    messages, reports = run(spark, job(tmp_path, tables=2), partitions, road=road)
    rows, keys = model(partitions)
    assert contents(messages, FileKind.DATA) == rows
    assert contents(messages, FileKind.EQUALITY_DELETE) == keys
    assert sorted(report.partition for report in reports) == sorted(given.name for given in partitions)


@every_road
def test_every_shard_resolves_every_epoch_after_its_files(spark: SparkSession, tmp_path: Path, road: str) -> None:
    """One key means that most shards have no row at all."""
    messages, _ = run(spark, job(tmp_path, shards=5), [split(0, "s", [(1, 10, "x")])], road=road)
    shards = 1 if road == "small" else 5
    found = [(m.worker, m.epoch, m.workers) for m in messages if isinstance(m, Resolved)]
    assert sorted(found) == [(shard, epoch, shards) for shard in range(shards) for epoch in (R1, R2)]
    by_worker = {w: [type(m) for m in messages if m.worker == w] for w in range(shards)}
    assert all(kinds[-2:] == [Resolved, Resolved] for kinds in by_worker.values())
    assert [f.records for f in files(messages, FileKind.DATA)] == [1]


def test_without_splits_all_shards_resolve(spark: SparkSession, tmp_path: Path) -> None:
    messages, reports = run(spark, job(tmp_path, shards=2), [])
    assert messages == [Resolved(epoch, shard, 2) for shard in (0, 1) for epoch in (R1, R2)]
    assert reports == []


def test_a_second_job_writes_other_paths(spark: SparkSession, tmp_path: Path) -> None:
    """H46."""
    partitions = mixed_partitions()
    first, _ = run(spark, job(tmp_path, attempt="j1"), partitions[:18])
    again, _ = run(spark, job(tmp_path, attempt="j2"), partitions[:18])
    paths = [m.path for m in (*first, *again) if isinstance(m, FileClosed)]
    assert len(paths) == len(set(paths))
    assert all(Path(path).exists() for path in paths)


@every_road
def test_a_readers_error_comes_home_as_it_was_raised(spark: SparkSession, tmp_path: Path, road: str) -> None:
    """H11."""
    with pytest.raises(BadInput, match=r"t0-s3, line 3: no key") as caught:
        run(spark, job(tmp_path, tables=2), mixed_partitions(), road=road, reader=ListReader("t0-s3"))
    assert caught.value.facts == {"file": "t0-s3", "line": 3}
    assert caught.value.hint == "mend the file"


@every_road
def test_a_decoders_error_comes_home_as_it_was_raised(spark: SparkSession, tmp_path: Path, road: str) -> None:
    """H11, H39."""
    with pytest.raises(DoesNotFit) as caught:
        run(spark, job(tmp_path), [split(0, "s", [(1, 10, "bad")])], road=road, decoder=UserDecoder("bad"))
    assert caught.value.facts == {"column": "name", "value": "bad"}


def test_a_place_that_cannot_be_written_comes_home_with_its_path(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "t0").write_bytes(b"in the way")
    with pytest.raises(CatalogRefused, match="t0/epoch=") as caught:
        run(spark, job(tmp_path), [split(0, "s", [(1, 10, "x")])])
    assert caught.value.hint


def test_only_a_cluster_needs_the_shuffle(spark: SparkSession) -> None:
    class Session:
        def __init__(self, master: str) -> None:
            self.sparkContext = type("Context", (), {"master": master})

    assert worker_job._is_one_machine(spark)
    one, many = ["local", "local[2]", "local[*,3]"], ["local-cluster[2,1,1024]", "yarn", "spark://local:7077"]
    assert [worker_job._is_one_machine(Session(master)) for master in (*one, *many)] == [True] * 3 + [False] * 3


@every_road
def test_a_source_that_does_not_answer_can_be_tried_again(spark: SparkSession, tmp_path: Path, road: str) -> None:
    """H11: an error that passes must never look like one that ends the daemon."""
    with pytest.raises(SourceUnavailable) as caught:
        run(spark, job(tmp_path), [split(0, "s", [(1, 10, "x")])], road=road, reader=ListReader(silent_at="s"))
    assert caught.value.facts == {"file": "s"}


READERS = {"written": ListReader(), "refused": ListReader("t0-s3"), "silent": ListReader(silent_at="t0-s3")}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_what_readers_wrote_is_gone_when_the_job_is_over(
    spark: SparkSession, tmp_path: Path, reader: ListReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    (tmp_path / "out").mkdir()
    with suppress(BadInput, SourceUnavailable):
        run(spark, job(tmp_path / "out", tables=2), mixed_partitions(), reader=reader)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_error_of_somebody_else_comes_home_as_what_nobody_explains(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Unexplained, match=r"^a Spark job failed: json.decoder.JSONDecodeError: Expecting value"):
        run(spark, job(tmp_path), [InputPartition(0, "s", "no json", 1)])


def test_a_dataframe_of_changes_folds_like_a_feed(spark: SparkSession, tmp_path: Path) -> None:
    """At one order value an upsert outranks a delete, whatever partition and place the rows came from."""
    changes = [(k, f"v{at}", at, "d" if (k + at) % 4 == 0 else "u") for k in range(50) for at in range(6)]
    changes += [(100, "kept", 1, "u"), (100, None, 1, "d"), (101, None, 1, "d"), (101, "kept", 1, "u")]
    rows = spark.createDataFrame(changes, "id bigint, name string, seq int, op string").repartition(4, "name")
    given = job(tmp_path, shards=3, epochs=(BatchNumber(7),))
    messages = run_columns_job(
        rows, ColumnChanges(order=("seq",), op="op", delete_values=("d",)), given, (BatchNumber(7),)
    )
    expected = {k: "v5" for k in range(50) if (k + 5) % 4} | {100: "kept", 101: "kept"}
    assert {row[2]: row[3] for row in contents(messages, FileKind.DATA)} == expected
    assert [row[2] for row in contents(messages, FileKind.EQUALITY_DELETE)] == [*range(50), 100, 101]
    assert sorted(m.worker for m in messages if isinstance(m, Resolved)) == [0, 1, 2]


def commit(spark: SparkSession, table: str, messages: Sequence[Message]) -> None:
    """Lands files as the lake does, without any of its decisions."""
    iceberg = spark._jvm.org.apache.iceberg
    loaded = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table)
    mapper = iceberg.util.JsonUtil.mapper()
    delta = loaded.newRowDelta()
    for message in messages:
        if isinstance(message, FileClosed):
            entry = iceberg.ContentFileParser.fromJson(
                mapper.readTree(json.dumps(message.manifest_json())), loaded.specs()
            )
            add = delta.addRows if message.kind is FileKind.DATA else delta.addDeletes
            add(entry)
    delta.commit()


def test_iceberg_reads_every_type_and_applies_the_deletes(spark: SparkSession, tmp_path: Path, namespace: str) -> None:
    table = f"frazil.{namespace}.types"
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS frazil.{namespace}")
    fields = (
        Field(1, "u", c.UUID, required=True),
        Field(2, "n", c.Decimal(12, 2)),
        Field(3, "big", c.Decimal(30, 3)),
        Field(4, "day", c.DATE),
        Field(5, "at", c.TIMESTAMPTZ),
        Field(6, "local", c.TIMESTAMP),
        Field(7, "tags", c.ListOf(STRING, 8)),
        Field(9, "raw", c.BINARY),
        Field(10, "x", c.DOUBLE),
    )
    iceberg = spark._jvm.org.apache.iceberg
    catalog = iceberg.spark.Spark3Util.loadIcebergCatalog(spark._jsparkSession, "frazil")
    name = iceberg.catalog.TableIdentifier.parse(f"{namespace}.types")
    created = catalog.createTable(name, iceberg.SchemaParser.fromJson(json.dumps(Schema(0, fields).to_json())))
    schema = Schema.from_json(json.loads(iceberg.SchemaParser.toJson(created.schema())))
    changes = spark.sql(
        """
        SELECT * FROM VALUES
          ('f79c3e09-677c-4bbd-a479-3f349cb785e7', 1.50BD, 12345678901234567890123.456BD, date'1969-12-31',
           timestamp'2024-02-29 12:30:15.123456Z', timestamp_ntz'1900-01-01 00:00:00', array('x', null), X'00FF', 2.5D),
          ('00000000-0000-0000-0000-000000000003', null, null, null, null, null, null, null, double('NaN'))
          AS t(u, n, big, day, at, local, tags, raw, x)
        """
    )
    prefix = str(created.location())

    def write(rows: Any, number: int, how: ColumnChanges) -> list[Message]:
        task = TableTask(
            index=0,
            format_version=3,
            data_location="d",
            name=TableName.parse(f"{namespace}.types"),
            schema=schema,
            key=("u",),
            mode=DeleteMode.EQUALITY,
            epochs=(EpochTarget(BatchNumber(number), UUID(int=number), f"{prefix}/data/b{number}"),),
        )
        return run_columns_job(rows, how, WriteJob(tables=(task,), attempt="a", shards=2), (BatchNumber(number),))

    commit(spark, table, write(changes, 1, ColumnChanges()))
    written = spark.table(table)
    assert written.schema["u"].dataType.simpleString() == "string"
    assert sorted(map(str, written.collect())) == sorted(map(str, changes.select(written.columns).collect()))
    for key in ("00000000-0000-0000-0000-000000000003", "f79c3e09-677c-4bbd-a479-3f349cb785e7"):
        # iceberg-java orders uuids as signed numbers; what it is given must not let it skip by that order.
        assert spark.table(table).where(f"u = '{key}'").count() == 1
        assert spark.table(table).where(f"u >= '{key}' AND u <= '{key}'").count() == 1
    assert spark.table(table).where("isnan(x)").count() == 1
    assert spark.table(table).where("n = 1.50 AND day < date'1970-01-01'").count() == 1

    gone = spark.sql("SELECT 'f79c3e09-677c-4bbd-a479-3f349cb785e7' AS u, 'd' AS op")
    commit(spark, table, write(gone, 2, ColumnChanges(op="op", delete_values=("d",))))
    spark.sql(f"REFRESH TABLE {table}")
    assert [row.u for row in spark.table(table).collect()] == ["00000000-0000-0000-0000-000000000003"]
