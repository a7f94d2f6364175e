"""What each task of a job gets: its own part of the work, and nothing of the others'.

    pieces --fill_bins--> bins of about equal weight --parallelize, binned--> one bin in each task
    a closure, what all tasks need -------------------------------------------^

A closure crosses to every task, whole, and is unpickled there. So whatever grows with the number of files is data of
the job, never part of a closure.
"""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

BIN_BYTES = 128 << 20
BINS_PER_CORE = 2

Thing = TypeVar("Thing")


class Weighed(Protocol):
    """Something to do; `size` balances the tasks and says how many there should be."""

    @property
    def size(self) -> int: ...


Work = TypeVar("Work", bound=Weighed)


@dataclass(frozen=True, slots=True)
class Piece(Generic[Thing]):
    """One of several things, by its number among them."""

    number: int
    what: Thing
    size: int


def pieces(things: Iterable[Thing], size: Callable[[Thing], int]) -> list[Piece[Thing]]:
    return [Piece(number, one, size(one)) for number, one in enumerate(things)]


def fill_bins(work: Sequence[Work], count: int) -> list[list[Work]]:
    """The work in `count` bins of about equal weight: the heaviest first, each into the lightest bin so far."""
    bins: list[list[Work]] = [[] for _ in range(count)]
    weights = [(0, number) for number in range(count)]
    for piece in sorted(work, key=lambda piece: -piece.size):
        weight, number = heapq.heappop(weights)
        bins[number].append(piece)
        # An empty file still costs an open; without this many of them would fall into one bin.
        heapq.heappush(weights, (weight + max(piece.size, 1), number))
    return bins


def in_bins(spark: SparkSession, work: Sequence[Work], tasks: int | None = None) -> list[list[Work]]:
    """So many that every core has some and none of them is too large; `tasks` at most."""
    cores = int(spark.sparkContext.defaultParallelism)
    by_size = -(-sum(piece.size for piece in work) // BIN_BYTES)
    count = min(len(work), max(by_size, cores * BINS_PER_CORE))
    return fill_bins(work, count if tasks is None else min(count, tasks))


def binned(spark: SparkSession, bins: Sequence[Sequence[Work]]) -> DataFrame:
    """A row for each bin, in a partition of its own; `members` takes it apart."""
    rows = spark.sparkContext.parallelize([(pickle.dumps(one),) for one in bins], len(bins))
    return spark.createDataFrame(rows, "bin binary")


def members(batches: Iterable[pa.RecordBatch]) -> Iterator[Work]:
    """The work in the bins of one task."""
    for batch in batches:
        for one in batch.column("bin").to_pylist():
            yield from pickle.loads(one)


def beside_files(
    spark: SparkSession, rows: DataFrame, files: Sequence[Piece[Thing]], files_a_task: int, tasks: int, *order: str
) -> DataFrame:
    """Rows of files (by number: `f`) that belong together in one task, each file ahead of its first row (`x`):
    `taken_apart` tells them from each other."""
    spread = spark.sparkContext.parallelize([(one.number, pickle.dumps(one.what)) for one in files], tasks)
    told = rows.unionByName(spark.createDataFrame(spread, "f int, x binary"), allowMissingColumns=True)
    placed = told.withColumn("t", F.floor(F.col("f") / files_a_task).cast("int")).repartitionById(tasks, F.col("t"))
    return placed.drop("t").sortWithinPartitions("f", F.col("x").isNull(), *order)


def taken_apart(batches: Iterable[pa.RecordBatch], files: dict[int, Thing]) -> Iterator[pa.RecordBatch]:
    """The rows, without `x`; the files they are of are put into `files`, each before its rows come."""
    for batch in batches:
        is_file = pc.is_valid(batch.column("x"))
        for number, one in zip(*(batch.column(name).filter(is_file).to_pylist() for name in ("f", "x")), strict=True):
            files[number] = pickle.loads(one)
        yield batch.drop_columns(["x"]).filter(pc.invert(is_file))
