"""The Spark job of a window: one for all tables of a pipeline.

    small          one task   --read, sort in Arrow, write-----------------------------------> OUTPUT, collected
    one machine    bins tasks --read, pack--> files of a folder --> shards tasks --unpack, write--> OUTPUT, collected
    a cluster,     bins tasks --read, pack--> PARCEL --shuffle by shard, sort--> unpack, write--> OUTPUT, collected
    or very large

Each bin of partitions is one task of the reading stage, filled so that bins weigh about the same; no task is the
funnel. Rows go in blocks (`ingest.shuffle`), and a task sorts one group of them at a time, so an epoch of any size
needs the memory of a few chunks. Below some ten thousand changes two stages cost more than the work: then one task does
all of it. Only the shuffle needs a query, and the planning that a query costs.

This is the only module of the stage that knows Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import Broadcast, SparkFiles, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from frazil.errors import FrazilError, Terminal, Transient
from frazil.ingest.shuffle.blocks import BLOCK_DDL, Groups, from_spark, pack, to_spark, unpack
from frazil.ingest.shuffle.local_files import WrittenBlocks, block_folder, fetch, write_blocks
from frazil.ingest.write.change_rows import (
    OUTPUT_DDL,
    FileOf,
    PositionOf,
    as_change_rows,
    error_row,
    from_partition,
    output_batch,
    read_output,
    text_like,
)
from frazil.ingest.write.fold import sort_changes
from frazil.ingest.write.row_versions import ColumnChanges
from frazil.ingest.write.target_writer import is_log
from frazil.ingest.write.write_task import write_changes, write_columns
from frazil.model.arrow import CHANGE_SCHEMA
from frazil.model.change import Report
from frazil.model.files import Message, Resolved
from frazil.model.position import Position
from frazil.model.write import WriteJob
from frazil.sources.base import Cut, Decoder, InputPartition, Reader
from frazil.spark.bins import Piece, Work, binned, fill_bins, in_bins, members, pieces
from frazil.spark.errors import ArrowTask, carried, collected, guarded, packed

# Beyond that, blocks would no longer stay in the memory that the system has to spare, and they are many.
WRITTEN_BYTES_MAX = 4 << 30

Result = TypeVar("Result")
OutputRow = tuple[int, bytes]


def run_write_job(
    spark: SparkSession,
    partitions: Sequence[InputPartition],
    cuts: Mapping[int, Cut],
    reader: Reader,
    decoder: Decoder,
    job: WriteJob,
    epochs: tuple[Position, ...],
    position_of: PositionOf,
    small: bool,
) -> tuple[list[Message], list[Report]]:
    """Reads the partitions, writes the files of all tables and epochs, and returns what the tasks reported.

    `cuts` are by table index. A small job is one task whatever `job.shards` says, and its messages say so. Raises
    the FrazilError that a task met, with its facts, or what Spark raised.
    """
    if small:
        job = replace(job, shards=1)
    if not partitions:
        return [Resolved(epoch, shard, job.shards) for shard in range(job.shards) for epoch in epochs], []
    with _names(spark, partitions, small) as file_of:
        rows = _rows(spark, partitions, cuts, reader, decoder, job, epochs, small, file_of)
    messages, reports = read_output(rows, position_of)
    _must_be_whole(messages, job.shards, epochs)
    return messages, reports


@contextmanager
def _names(spark: SparkSession, partitions: Sequence[InputPartition], small: bool) -> Iterator[FileOf]:
    """A writing task asks for a partition's name only if it meets a bad row; where there are many, it fetches them
    then."""
    names = [partition.name for partition in partitions]
    if small:
        yield names.__getitem__
        return
    shared = spark.sparkContext.broadcast(names)
    try:
        yield partial(_shared_name, shared)
    finally:
        with suppress(Exception):  # without a JVM there is nothing to free
            shared.destroy()


def _shared_name(names: Broadcast[list[str]], number: int) -> str:
    return str(names.value[number])


def _rows(
    spark: SparkSession,
    partitions: Sequence[InputPartition],
    cuts: Mapping[int, Cut],
    reader: Reader,
    decoder: Decoder,
    job: WriteJob,
    epochs: tuple[Position, ...],
    small: bool,
    file_of: FileOf,
) -> list[OutputRow]:
    position_text, numbered = text_like(epochs[0]), pieces(partitions, lambda partition: partition.size)

    def read(mine: Iterable[Piece[InputPartition]]) -> Iterator[pa.RecordBatch]:
        for piece in mine:
            partition = piece.what
            try:
                for rows in reader.read(partition, cuts[partition.table]):
                    yield from_partition(as_change_rows(rows), piece.number)
            except Terminal as error:
                yield error_row(partition.table, partition.name, packed(error))

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shard, attempt = running_task()
        return write_changes(
            batches, job, decoder, shard, attempt, epochs=epochs, position_text=position_text, file_of=file_of
        )

    def read_and_write(bins: Iterator[list[Piece[InputPartition]]]) -> Iterator[OutputRow]:
        # Read within the output, so that an error of reading is answered as one of writing is.
        rows = (sort_changes(pa.Table.from_batches(read(mine), CHANGE_SCHEMA)) for mine in bins)
        return _output_rows(write(rows))

    if small:
        one = spark.sparkContext.parallelize(fill_bins(numbered, 1), 1)
        return collected(one.mapPartitions(read_and_write).collect)
    weights: dict[int, int] = {}
    for partition in partitions:
        weights[partition.table] = weights.get(partition.table, 0) + partition.size
    writes_blocks = _is_one_machine(spark) and sum(weights.values()) <= WRITTEN_BYTES_MAX
    road = _through_files if writes_blocks else _through_shuffle
    return road(
        spark,
        _Stages(
            read=read,
            write=write,
            bins=in_bins(spark, numbered),
            shards=job.shards,
            groups=Groups.by_weight(weights, len(epochs), job.shards),
            logs=frozenset(task.index for task in job.tables if is_log(task)),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stages:
    """A job whose rows go from the tasks that read to the tasks that write."""

    read: Callable[[Iterable[Piece[InputPartition]]], Iterator[pa.RecordBatch]]
    write: ArrowTask
    bins: Sequence[list[Piece[InputPartition]]]
    shards: int
    groups: Groups
    logs: frozenset[int]


def _through_files(spark: SparkSession, stages: _Stages) -> list[OutputRow]:
    read, write, groups, logs = stages.read, stages.write, stages.groups, stages.logs
    with block_folder(SparkFiles.getRootDirectory()) as folder:

        def read_and_write_blocks(bins: Iterator[list[Piece[InputPartition]]]) -> Iterator[WrittenBlocks]:
            bin_number, attempt = running_task()
            blocks = pack(read(partition for mine in bins for partition in mine), groups, logs)
            return write_blocks(blocks, f"{folder}/{bin_number}-{attempt}")

        def fetch_and_write(shards: Iterator[list[WrittenBlocks]]) -> Iterator[OutputRow]:
            return _output_rows(write(unpack((part for mine in shards for part in fetch(mine)), logs)))

        context = spark.sparkContext
        reading = context.parallelize(stages.bins, len(stages.bins)).mapPartitions(guarded(read_and_write_blocks))
        written_blocks: list[list[WrittenBlocks]] = [[] for _ in range(stages.shards)]
        for block in collected(reading.collect):
            written_blocks[block.shard].append(block)
        return collected(context.parallelize(written_blocks, stages.shards).mapPartitions(fetch_and_write).collect)


def _through_shuffle(spark: SparkSession, stages: _Stages) -> list[OutputRow]:
    read, write, groups, logs = stages.read, stages.write, stages.groups, stages.logs

    def read_and_pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return to_spark(pack(read(members(batches)), groups, logs))

    def unpack_and_write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write(unpack(from_spark(batches), logs))

    blocks = binned(spark, stages.bins).mapInArrow(guarded(read_and_pack), BLOCK_DDL)
    placed = blocks.repartitionById(stages.shards, F.col("shard")).sortWithinPartitions("group")
    return collected(placed.mapInArrow(_crossing(unpack_and_write), OUTPUT_DDL).collect)


def run_columns_job(
    rows: DataFrame, changes: ColumnChanges, job: WriteJob, epochs: tuple[Position, ...]
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
    spark: SparkSession, function: Callable[[Work], Result], work: Sequence[Work], tasks: int | None = None
) -> list[Result]:
    """What `function` returns for each piece of work, computed in tasks, in any order; in so many of them at most,
    which is how many cores it may take. Raises like `run_write_job`."""
    bins = in_bins(spark, work, tasks)

    def apply(mine: Iterator[list[Work]]) -> Iterator[Result]:
        return (function(piece) for own in mine for piece in own)

    return collected(spark.sparkContext.parallelize(bins, len(bins)).mapPartitions(guarded(apply)).collect)


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
    raise AssertionError(f"a job over columns has no partition reports, yet one came at {major}.{minor}")
