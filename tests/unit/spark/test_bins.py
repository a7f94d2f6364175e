"""What crosses to one task: its own part of the work. Spark is one that only weighs what it is given to send."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark import SparkFiles
from pyspark.cloudpickle import dumps
from unit.ingest.write.worker_builders import R1, USERS, JsonDecoder

from frazil.clock import SystemClock
from frazil.doctor.examination import ExaminedTable
from frazil.doctor.tasks import SparkExamining
from frazil.ingest.locate.searched_table import SearchedTable
from frazil.ingest.locate.spark_search import SparkSearch
from frazil.ingest.write.write_job import run_write_job
from frazil.maintenance.compact.tasks import SparkRewriting
from frazil.maintenance.convert.tasks import SparkConverting
from frazil.model.compaction import Group, Rewrite, RewrittenTable
from frazil.model.conversion import DeleteKeys, KeyColumn, Search, SearchedFile
from frazil.model.files import FileClosed, FileKind, LiveFile
from frazil.model.ids import TableName
from frazil.model.schema import LONG, Field
from frazil.model.write import WriteJob
from frazil.sources.base import Cut, InputPartition
from frazil.sources.cockroachdb.position import Hlc
from frazil.spark.bins import BIN_BYTES, taken_apart

T = TableName(("shop",), "t")
KEY = Field(1, "id", LONG, required=True)


class Weighed(BaseException):
    """The job was to be sent; nothing is run. No error of a job, so nobody takes it for one."""


class Broadcast:
    """Crosses as a number, whatever it holds: a task that asks fetches it."""

    def __reduce__(self) -> Any:
        return Broadcast, ()

    def destroy(self) -> None:
        pass


class WeighingSpark:
    """A session that notes, for each stage, the bytes of the largest task: the closure, and its partition's data."""

    def __init__(self, master: str = "local[2]") -> None:
        self.sparkContext = self
        self.master = master
        self.defaultParallelism = 2
        self.stages: list[int] = []

    def parallelize(self, data: Sequence[Any], slices: int) -> Data:
        rows, step = list(data), -(-len(data) // slices)
        return Data(self, max(len(pickle.dumps(rows[at : at + step])) for at in range(0, len(rows), step)))

    def range(self, start: int, end: int, step: int, slices: int) -> Data:
        return Data(self, 8 * -(-end // slices))

    def createDataFrame(self, data: Data, schema: str) -> Data:
        return data

    def broadcast(self, value: object) -> Broadcast:
        return Broadcast()

    @property
    def read(self) -> Any:
        raise Weighed


class Data:
    def __init__(self, spark: WeighingSpark, partition: int) -> None:
        self._spark = spark
        self._partition = partition

    def mapPartitions(self, task: Callable[..., Any]) -> Data:
        self._spark.stages.append(self._partition + len(dumps(task)))
        return Data(self._spark, 0)

    def mapInArrow(self, task: Callable[..., Any], schema: str) -> Data:
        return self.mapPartitions(task)

    def collect(self) -> list[Any]:
        raise Weighed

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """What a query does between two stages."""
        if name in ("repartitionById", "groupBy", "distinct"):
            raise Weighed
        raise AttributeError(name)


class NoReader:
    def read(self, partition: InputPartition, cut: Cut) -> Any:
        raise AssertionError("nothing is run")


def live(count: int) -> list[LiveFile]:
    return [
        LiveFile(path=f"memory/to/{n}", format="parquet", size=BIN_BYTES, records=1, sequence_number=1, spec_id=0)
        for n in range(count)
    ]


def write(spark: Any, count: int) -> None:
    partitions = [
        InputPartition(0, f"2023-11-14/a-name-as-long-as-a-feed-has-{n:08}-t-1.ndjson", "{}", BIN_BYTES)
        for n in range(count)
    ]
    cuts = {0: Cut(None, (R1.order,))}
    job = WriteJob(tables=(), attempt="a", shards=2)
    run_write_job(spark, partitions, cuts, NoReader(), JsonDecoder(), job, (R1,), Hlc, small=False)


def table() -> RewrittenTable:
    return RewrittenTable(name=T, schema=USERS, format_version=3, sequence_number=1, data_location="memory/t/data")


def concatenate(spark: Any, count: int) -> None:
    groups = tuple(Group((file,), "small files", BIN_BYTES, 1) for file in live(count))
    rewrite = Rewrite(
        table=table(), snapshot_id=1, number=UUID(int=1), folder="memory/t/data/x", sequence_number=1, groups=groups
    )
    SparkRewriting(spark, SystemClock()).concatenate(rewrite)


def look(spark: Any, count: int) -> None:
    examined = ExaminedTable(table(), USERS.fields, (KEY,))
    SparkExamining(spark, SystemClock()).look(examined, live(count), ())


def find_duplicates(spark: Any, count: int) -> None:
    examined = ExaminedTable(table(), USERS.fields, (KEY,))
    SparkExamining(spark, SystemClock()).duplicates(examined, live(count), None)


def convert(spark: Any, count: int) -> None:
    deletes = tuple(DeleteKeys(f"memory/a/longer/path/to/{n}.deletes.parquet", BIN_BYTES, 0, 2) for n in range(count))
    search = Search(
        table=T,
        number=UUID(int=1),
        folder="memory/t/data/x",
        schema_id=0,
        format_version=3,
        key_sets=((KeyColumn(KEY),),),
        places=(0,),
        deletes=deletes,
        files=tuple(SearchedFile(file, (0,)) for file in live(count)),
    )
    SparkConverting(spark, SystemClock()).search(search)


def join(spark: Any, count: int) -> None:
    searched = SearchedTable(
        name=T,
        key=(KEY,),
        schema=USERS,
        format_version=3,
        data_location="d",
    )
    files = [
        FileClosed(
            table=T, epoch=R1, batch_id=UUID(int=1), worker=0, schema_id=0, spec_id=0, path=file.path,
            kind=FileKind.DATA, records=1, size=file.size, digest="d",
        )
        for file in live(count)
    ]  # fmt: skip
    SparkSearch(spark, "frazil", Path("unused"), 0).join(searched, files, 1)


def largest_tasks(job: Callable[[Any, int], None], count: int, master: str) -> list[int]:
    spark = WeighingSpark(master)
    with pytest.raises(Weighed):
        job(spark, count)
    assert spark.stages
    return spark.stages


@pytest.mark.parametrize("job", [write, concatenate, look, find_duplicates, convert, join])
@pytest.mark.parametrize("master", ["local[2]", "yarn"])
def test_a_task_gets_its_own_files_however_many_there_are(
    job: Callable[[Any, int], None], master: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file here is large enough for a task of its own."""
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    few, many = largest_tasks(job, 10, master), largest_tasks(job, 30, master)
    assert [after - before < 100 for before, after in zip(few, many, strict=True)] == [True] * len(few), (few, many)


def test_files_that_come_among_their_rows_are_told_from_them() -> None:
    files = [pickle.dumps(name) for name in ("first", "second")]
    sent = pa.record_batch(
        {"f": [4, 4, 4, 9, 9], "p": [None, 1, 2, None, 7], "x": pa.array([files[0], None, None, files[1], None])}
    )
    known: dict[int, str] = {}
    (rows,) = taken_apart([sent], known)
    assert known == {4: "first", 9: "second"}
    assert rows.to_pylist() == [{"f": 4, "p": 1}, {"f": 4, "p": 2}, {"f": 9, "p": 7}]
