"""The Spark job of a window: one for all tables of a pipeline.

    small          one task   --read, sort in Arrow, write-----------------------------------> OUTPUT, collected
    one machine    bins tasks --read, pack--> files of a folder --> shards tasks --unpack, write--> OUTPUT, collected
    a cluster,     bins tasks --read, pack--> PARCEL --shuffle by shard, sort--> unpack, write--> OUTPUT, collected
    or very large

Each bin of splits is one task of the reading stage, filled so that bins weigh about the same; no task is the
funnel. Rows travel in parcels (see `parcels`), and a task sorts one group of them at a time, so an epoch of any size
needs the memory of a few chunks. Below some ten thousand changes two stages cost more than the work: then one task does
all of it. Only the shuffle needs a query, and the planning that a query costs.

This is the only module of the stage that knows Spark.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import SparkFiles, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from frazil.errors import FrazilError, Terminal, Transient
from frazil.model.arrow import TRAVEL
from frazil.model.change import Report
from frazil.model.files import Message, Resolved
from frazil.model.ports import Cut, Decoder, Reader, Split
from frazil.model.position import Position
from frazil.model.write import WriteJob
from frazil.workers.crossing import ArrowTask, carried, collected, guarded, packed
from frazil.workers.depot import Stowed, fetch, parcel_folder, stow
from frazil.workers.fold import sort_travel
from frazil.workers.parcels import PARCEL_DDL, Groups, from_spark, pack, to_spark, unpack
from frazil.workers.targets import is_log
from frazil.workers.task import ColumnChanges, write_changes, write_columns
from frazil.workers.travel import (
    OUTPUT_DDL,
    PositionOf,
    as_travel,
    error_row,
    output_batch,
    read_output,
    text_like,
)

BIN_BYTES = 128 << 20
BINS_PER_CORE = 2
# Beyond that, parcels would no longer stay in the memory that the system has to spare, and they are many.
STOWED_BYTES_MAX = 4 << 30

Result = TypeVar("Result")
OutputRow = tuple[int, bytes]


def run_write_job(
    spark: SparkSession,
    splits: Sequence[Split],
    cuts: Mapping[int, Cut],
    reader: Reader,
    decoder: Decoder,
    job: WriteJob,
    epochs: tuple[Position, ...],
    position_of: PositionOf,
    small: bool,
) -> tuple[list[Message], list[Report]]:
    """Reads the splits, writes the files of all tables and epochs, and returns what the tasks reported.

    `cuts` are by table index. A small job is one task whatever `job.shards` says, and its messages say so. Raises
    the FrazilError that a task met, with its facts, or what Spark raised.
    """
    if small:
        job = replace(job, shards=1)
    if not splits:
        return [Resolved(epoch, shard, job.shards) for shard in range(job.shards) for epoch in epochs], []
    position_text = text_like(epochs[0])
    bins = fill_bins(splits, 1 if small else _bin_count(spark, splits))

    def read(numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
        for number in numbers:
            for split in bins[number]:
                try:
                    for rows in reader.read(split, cuts[split.table]):
                        yield as_travel(rows)
                except Terminal as error:
                    yield error_row(split.table, split.name, packed(error))

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shard, attempt = running_task()
        return write_changes(batches, job, decoder, shard, attempt, epochs=epochs, position_text=position_text)

    def read_and_write(numbers: Iterator[int]) -> Iterator[OutputRow]:
        # Read within the output, so that an error of reading is answered as one of writing is.
        rows = (sort_travel(pa.Table.from_batches(read(whole), TRAVEL)) for whole in (numbers,))
        return _output_rows(write(rows))

    if small:
        rows = collected(spark.sparkContext.parallelize([0], 1).mapPartitions(read_and_write).collect)
    else:
        weights: dict[int, int] = {}
        for split in splits:
            weights[split.table] = weights.get(split.table, 0) + split.size
        stows = _is_one_machine(spark) and sum(weights.values()) <= STOWED_BYTES_MAX
        road = _through_files if stows else _through_shuffle
        rows = road(
            spark,
            _Stages(
                read=read,
                write=write,
                bins=len(bins),
                shards=job.shards,
                groups=Groups.by_weight(weights, len(epochs), job.shards),
                logs=frozenset(task.index for task in job.tables if is_log(task)),
            ),
        )
    messages, reports = read_output(rows, position_of)
    _must_be_whole(messages, job.shards, epochs)
    return messages, reports


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stages:
    """A job whose rows go from the tasks that read to the tasks that write."""

    read: Callable[[Iterable[int]], Iterator[pa.RecordBatch]]
    write: ArrowTask
    bins: int
    shards: int
    groups: Groups
    logs: frozenset[int]


def _through_files(spark: SparkSession, stages: _Stages) -> list[OutputRow]:
    with parcel_folder(SparkFiles.getRootDirectory()) as folder:

        def read_and_stow(numbers: Iterator[int]) -> Iterator[Stowed]:
            bin_number, attempt = running_task()
            parcels = pack(stages.read(numbers), stages.groups, stages.logs)
            return stow(parcels, f"{folder}/{bin_number}-{attempt}")

        def fetch_and_write(shards: Iterator[list[Stowed]]) -> Iterator[OutputRow]:
            return _output_rows(stages.write(unpack((part for mine in shards for part in fetch(mine)), stages.logs)))

        context = spark.sparkContext
        reading = context.parallelize(range(stages.bins), stages.bins).mapPartitions(guarded(read_and_stow))
        stowed: list[list[Stowed]] = [[] for _ in range(stages.shards)]
        for parcel in collected(reading.collect):
            stowed[parcel.shard].append(parcel)
        return collected(context.parallelize(stowed, stages.shards).mapPartitions(fetch_and_write).collect)


def _through_shuffle(spark: SparkSession, stages: _Stages) -> list[OutputRow]:
    def read_and_pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = (number for batch in batches for number in batch.column("id").to_pylist())
        return to_spark(pack(stages.read(numbers), stages.groups, stages.logs))

    def unpack_and_write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return stages.write(unpack(from_spark(batches), stages.logs))

    parcels = spark.range(0, stages.bins, 1, stages.bins).mapInArrow(guarded(read_and_pack), PARCEL_DDL)
    placed = parcels.repartitionById(stages.shards, F.col("shard")).sortWithinPartitions("group")
    return collected(placed.mapInArrow(_crossing(unpack_and_write), OUTPUT_DDL).collect)


def run_columns_job(
    spark: SparkSession, rows: DataFrame, changes: ColumnChanges, job: WriteJob, epochs: tuple[Position, ...]
) -> list[Message]:
    """Writes a DataFrame of typed changes as the one epoch of the job's one table. Raises like `run_write_job`."""
    (task,) = job.tables
    key = [_column(name) for name in task.key]
    order = [*key, *(_column(name) for name in changes.order)]
    if changes.op is not None:
        is_delete = _column(changes.op).cast("string").isin(list(changes.delete_values))
        order.append(F.coalesce(is_delete, F.lit(False)).desc())

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shard, attempt = running_task()
        return write_columns(batches, job, changes, shard, attempt, epochs=epochs)

    placed = rows.repartition(job.shards, *key)
    output = (placed.sortWithinPartitions(*order) if order else placed).mapInArrow(_crossing(write), OUTPUT_DDL)
    messages, _ = read_output(collected(output.collect), _no_reports)
    _must_be_whole(messages, job.shards, epochs)
    return messages


def run_on_executors(
    spark: SparkSession, function: Callable[[Split], Result], splits: Sequence[Split], tasks: int | None = None
) -> list[Result]:
    """What `function` returns for each split, computed in tasks, in any order; in so many of them at most, which is how
    many cores it may take. Raises like `run_write_job`."""
    count = _bin_count(spark, splits)
    bins = fill_bins(splits, count if tasks is None else min(count, tasks))

    def apply(numbers: Iterator[int]) -> Iterator[Result]:
        return (function(split) for number in numbers for split in bins[number])

    return collected(spark.sparkContext.parallelize(range(len(bins)), len(bins)).mapPartitions(guarded(apply)).collect)


def fill_bins(splits: Sequence[Split], count: int) -> list[list[Split]]:
    """The splits in `count` bins of about equal weight: the heaviest first, each into the lightest bin so far."""
    bins: list[list[Split]] = [[] for _ in range(count)]
    weights = [(0, number) for number in range(count)]
    for split in sorted(splits, key=lambda split: (-split.size, split.name)):
        weight, number = heapq.heappop(weights)
        bins[number].append(split)
        # An empty split still costs an open; without this many of them would fall into one bin.
        heapq.heappush(weights, (weight + max(split.size, 1), number))
    return bins


def _bin_count(spark: SparkSession, splits: Sequence[Split]) -> int:
    by_size = -(-sum(split.size for split in splits) // BIN_BYTES)
    cores = int(spark.sparkContext.defaultParallelism)
    return min(len(splits), max(by_size, cores * BINS_PER_CORE))


def running_task() -> tuple[int, str]:
    """Shard and attempt of the running task; Spark never gives an attempt id twice in one application."""
    context = TaskContext.get()
    if context is None:
        raise AssertionError("the body of a task runs inside a Spark task")
    return context.partitionId(), str(context.taskAttemptId())


def _is_one_machine(spark: SparkSession) -> bool:
    return re.fullmatch(r"local(\[.*\])?", spark.sparkContext.master) is not None


def _output_rows(output: Iterator[pa.RecordBatch]) -> Iterator[OutputRow]:
    for batch in _answering(output):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _crossing(task: ArrowTask) -> ArrowTask:
    return lambda batches: _answering(task(batches))


def _answering(output: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A task's output; an error that ends it becomes an answer, or, if trying again may help, an exception."""
    try:
        yield from output
    except Terminal as error:
        yield output_batch(errors=[packed(error)])
    except FrazilError as error:
        raise carried(error) from error


def _must_be_whole(messages: Sequence[Message], shards: int, epochs: Sequence[Position]) -> None:
    """Every shard has resolved every epoch, or the job's output is not the output of all its tasks."""
    found = {(m.worker, m.epoch) for m in messages if isinstance(m, Resolved)}
    missing = [shard for shard in range(shards) for epoch in epochs if (shard, epoch) not in found]
    if missing:
        raise Transient(
            f"shards {sorted(set(missing))} of {shards} did not report",
            hint="Run again. If it repeats, Spark merges the job's partitions: set spark.sql.adaptive.enabled=false.",
            shards=sorted(set(missing)),
        )


def _column(name: str) -> Any:
    return F.col("`" + name.replace("`", "``") + "`")


def _no_reports(major: int, minor: int) -> Position:
    raise AssertionError(f"a job over columns has no split reports, yet one came at {major}.{minor}")
