"""Finds the rows that equality deletes delete, and writes their positions: many of them by a join that spills.

    keys of the delete files: key at place, sequence --max by key--+
                                                                   +-- sort-merge join, delete's sequence is greater
    key columns of the data files: key at place, sequence, _pos ---+            |
                                                                     by data file, a bin of files in one task
                                                                                v
                      positions found, with what is deleted already --> Puffin files (v3) or position deletes (v2)

No process ever holds the keys of more than a batch of rows. Spark is told to sort and merge: it takes what comes out of
Python for small, and would send all keys to every executor. The tasks that know a data file's rows write them, so that
the driver sees messages alone. What fits into memory needs none of it: see `converting_small`.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from frazil.clock import Clock
from frazil.model.conversion import DeleteKeys, Marked, Search, SearchedFile
from frazil.model.files import Blob, FileClosed, Kind
from frazil.model.live import LiveFile
from frazil.model.names import position_delete_path, vectors_path
from frazil.model.ports import Split
from frazil.model.position import Hlc
from frazil.workers.converting_small import Newest, TooLarge, is_small
from frazil.workers.crossing import collected, guarded
from frazil.workers.job import fill_bins, run_on_executors, running_task
from frazil.workers.lookup.deleted import DeletedRows
from frazil.workers.lookup.nullable_keys import at_place, nullable_keys
from frazil.workers.lookup.plan import VECTORS_FROM_VERSION, Deletion, deletion
from frazil.workers.lookup.positions import write_positions
from frazil.workers.lookup.reading import read_columns
from frazil.workers.lookup.vectors import PuffinFile, read_vector, to_bitmap, write_puffin
from frazil.workers.partition_values import json_scalar

READ_ROWS = 1 << 16
"""Of a batch: with keys of 32 KB each they still fit the offsets of Arrow's binary columns."""
FILES_A_TASK = 64
FLUSH_ROWS = 1 << 22
"""Deleted rows that may wait in memory before they are written."""
_NO_EPOCH = Hlc(0)
_BIN_BYTES = 128 << 20


class SparkConverting:
    """Implements `frazil.model.conversion.Converting` on one session."""

    def __init__(self, spark: SparkSession, clock: Clock, *, tasks: int | None = None) -> None:
        """`tasks` run at once at most."""
        self._spark = spark
        self._clock = clock
        self._tasks = tasks

    def search(self, search: Search) -> tuple[Marked, ...]:
        """See the port."""
        if not search.deletes or not search.files:
            return ()
        if is_small(search):
            found = self._without_shuffle(search)
            if found is not None:
                return found
        return self.mark(search, self.matches(search))

    def _without_shuffle(self, search: Search) -> tuple[Marked, ...] | None:
        """None if the keys are too large for it."""
        sizes = [searched.file.size for searched in search.files]
        # Each task reads all keys, so there are no more of them than can run at once.
        bins = _bins(self._spark, sizes, self._tasks or int(self._spark.sparkContext.defaultParallelism))

        def task(split: Split) -> list[Marked] | None:
            try:
                newest = Newest.of(batch for delete in search.deletes for batch in _delete_keys(search, delete))
            except TooLarge:
                return None
            # In the order of the search, which is that of the partitions.
            numbers = sorted(bins[int(split.name)])
            rows = (batch for number in numbers for batch in _row_keys(search, number))
            return list(_Writer(search, running_task()[1]).run(newest.deleted(rows)))

        splits = [Split(0, str(number), "", 1) for number in range(len(bins))]
        answers = run_on_executors(self._spark, task, splits, len(bins))
        if any(answer is None for answer in answers):
            return None
        return _in_order(marked for answer in answers for marked in answer or ())

    def mark(self, search: Search, found: DataFrame) -> tuple[Marked, ...]:
        """Writes rows that were found, by number of the file in the search and position, as deletes of them. Raises
        like `search`."""
        tasks = self._bounded(-(-len(search.files) // FILES_A_TASK))

        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for marked in _Writer(search, running_task()[1]).run(batches):
                yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(marked)], pa.binary())], ["m"])

        found = found.withColumn("t", F.floor(F.col("f") / FILES_A_TASK).cast("int"))
        placed = found.repartitionById(tasks, F.col("t")).select("f", "p").sortWithinPartitions("f")
        rows = collected(placed.mapInArrow(guarded(write), "m binary").collect)
        return _in_order(pickle.loads(bytes(row.m)) for row in rows)

    def matches(self, search: Search) -> DataFrame:
        """Number of the file and position of every row that is deleted, some of them twice. Both sides are read at the
        same time: they share the tasks there may be."""
        share = None if self._tasks is None else max(1, self._tasks // 2)
        deletes = _bins(self._spark, [delete.size for delete in search.deletes], share)
        files = _bins(self._spark, [searched.file.size for searched in search.files], share)

        def delete_keys(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number in _numbers(batches, deletes):
                yield from _delete_keys(search, search.deletes[number])

        def row_keys(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number in _numbers(batches, files):
                yield from _row_keys(search, number)

        spark = self._spark
        wanted = spark.range(0, len(deletes), 1, len(deletes)).mapInArrow(guarded(delete_keys), "k binary, s long")
        rows = spark.range(0, len(files), 1, len(files)).mapInArrow(
            guarded(row_keys), "k binary, n long, f int, p long"
        )
        newest = wanted.groupBy("k").agg(F.max("s").alias("s")).hint("merge")
        found = rows.join(newest, "k").where(F.col("s") > F.col("n")).select("f", "p")
        # One task then joins several partitions, one after the other.
        return found if self._tasks is None else found.coalesce(self._tasks)

    def _bounded(self, tasks: int) -> int:
        return tasks if self._tasks is None else min(tasks, self._tasks)

    def merged(self, search: Search, vector: FileClosed, file: LiveFile) -> FileClosed:
        """See the port."""
        blob = vector.vector
        if blob is None or blob.data_file != file.path:
            raise ValueError(f"{vector.path} is no vector of {file.path}")
        found = read_vector(vector.path, blob.offset, blob.length, search.storage)
        rows = found | DeletedRows().of(file, search.storage)
        path = vectors_path(search.folder, f"merged-{self._clock.new_uuid().hex}")
        puffin = write_puffin(path, {file.path: rows}, search.storage)
        return _vector(search, file, path, puffin, puffin.blobs[0], len(rows))


# reading, in tasks


def _delete_keys(search: Search, delete: DeleteKeys) -> Iterator[pa.RecordBatch]:
    fields = [column.field for column in search.key_sets[search.places[delete.place]]]
    batches = read_columns(delete.path, delete.size, fields, search.storage, search.name_mapping, rows=READ_ROWS)
    for batch in batches:
        keys = at_place(nullable_keys(fields, batch.columns), delete.place)
        yield pa.RecordBatch.from_arrays([keys, _repeated(delete.sequence_number, len(keys), pa.int64())], ["k", "s"])


def _row_keys(search: Search, number: int) -> Iterator[pa.RecordBatch]:
    """Every row once for each place that may delete it."""
    searched = search.files[number]
    key_sets = {place: search.key_sets[search.places[place]] for place in searched.places}
    columns = {column.field.id: column for key_set in key_sets.values() for column in key_set}
    fields = [column.field for column in columns.values()]
    missing = {
        id_: json_scalar(column.field.type, searched.constants.get(id_, column.default))
        for id_, column in columns.items()
    }
    file = searched.file
    start = 0
    for batch in read_columns(
        file.path, file.size, fields, search.storage, search.name_mapping, missing=missing, rows=READ_ROWS
    ):
        by_id = dict(zip(columns, batch.columns, strict=True))
        count = batch.num_rows
        positions = pa.array(np.arange(start, start + count))
        start += count
        sequence, numbers = (
            _repeated(file.sequence_number, count, pa.int64()),
            _repeated(number, count, pa.int32()),
        )
        known: dict[int, pa.Array] = {}
        for place in searched.places:
            key_set = search.places[place]
            if key_set not in known:
                own = [column.field for column in key_sets[place]]
                known[key_set] = nullable_keys(own, [by_id[field.id] for field in own])
            keys = at_place(known[key_set], place)
            yield pa.RecordBatch.from_arrays([keys, sequence, numbers, positions], ["k", "n", "f", "p"])


# writing, in tasks


class _Writer:
    """Of one task: rows come by file, files in the order of their partitions."""

    def __init__(self, search: Search, attempt: str) -> None:
        self._search = search
        self._attempt = attempt
        self._written = 0
        self._deleted = DeletedRows()
        self._waiting: list[Deletion] = []
        self._waiting_rows = 0
        self._vectors = search.format_version >= VECTORS_FROM_VERSION

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Marked]:
        """Of the columns f and p."""
        for number, bitmap in _by_file(batches):
            yield from self._take(self._search.files[number], bitmap)
        yield from self._flush()

    def _take(self, searched: SearchedFile, matched: BitMap64) -> Iterator[Marked]:
        one = deletion(searched.file, matched, self._deleted.of(searched.file, self._search.storage))
        if one is None:
            return
        if self._waiting_rows > FLUSH_ROWS:
            yield from self._flush()
        self._waiting.append(one)
        self._waiting_rows += len(one.all)

    def _flush(self) -> Iterator[Marked]:
        waiting, self._waiting, self._waiting_rows = self._waiting, [], 0
        if not waiting:
            return
        if self._vectors:
            yield from self._write_vectors(waiting)
            return
        for _, group in groupby(waiting, key=lambda one: (one.file.spec_id, one.file.partition)):
            yield self._write_positions(list(group))

    def _write_vectors(self, deletions: Sequence[Deletion]) -> Iterator[Marked]:
        path = vectors_path(self._search.folder, f"{self._attempt}-{self._next()}")
        puffin = write_puffin(path, {one.file.path: one.all for one in deletions}, self._search.storage)
        for one, blob in zip(deletions, puffin.blobs, strict=True):
            message = _vector(self._search, one.file, path, puffin, blob, len(one.all))
            yield Marked(message, (one.file.path,), len(one.fresh))

    def _write_positions(self, group: Sequence[Deletion]) -> Marked:
        search = self._search
        path = position_delete_path(search.folder, self._attempt, self._next())
        closed = write_positions(path, {one.file.path: one.fresh for one in group}, search.parquet, search.storage)
        message = _message(
            search,
            group[0].file,
            path=path,
            records=closed.records,
            size=closed.size,
            digest=closed.digest,
            metrics=closed.metrics,
            split_offsets=closed.split_offsets,
        )
        return Marked(message, tuple(one.file.path for one in group), sum(len(one.fresh) for one in group))

    def _next(self) -> int:
        self._written += 1
        return self._written


def _vector(search: Search, file: LiveFile, path: str, puffin: PuffinFile, blob: Blob, records: int) -> FileClosed:
    return _message(search, file, path=path, records=records, size=puffin.size, digest=puffin.digest, vector=blob)


def _message(search: Search, like: LiveFile, **facts: Any) -> FileClosed:
    """Spec and partition are those of the data file (H22)."""
    return FileClosed(
        table=search.table,
        epoch=_NO_EPOCH,
        batch_id=search.number,
        worker=0,
        schema_id=search.schema_id,
        kind=Kind.POSITION_DELETE,
        spec_id=like.spec_id,
        partition=like.partition,
        **facts,
    )


def _by_file(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, BitMap64]]:
    """One bitmap is held at a time, of rows that come sorted by file."""
    current: int | None = None
    bitmap = BitMap64()
    for batch in batches:
        numbers, positions = batch.column("f").to_numpy(), batch.column("p").to_numpy()
        for number, part in _runs(numbers, positions):
            if number != current:
                if current is not None:
                    yield current, bitmap
                current, bitmap = number, BitMap64()
            bitmap |= to_bitmap(part)
    if current is not None:
        yield current, bitmap


def _runs(numbers: NDArray[Any], positions: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    if len(numbers):
        ends = np.flatnonzero(np.diff(numbers)) + 1
        firsts = numbers[np.concatenate([[0], ends])]
        yield from zip(firsts.tolist(), np.split(positions, ends), strict=True)


def _in_order(marked: Iterable[Marked]) -> tuple[Marked, ...]:
    """Vectors in the order in which they lie in their file: DuckDB 1.5.5 may take one for its neighbour otherwise."""
    return tuple(sorted(marked, key=lambda one: (one.file.path, one.file.vector.offset if one.file.vector else 0)))


# Spark


def _bins(spark: SparkSession, sizes: Sequence[int], most: int | None = None) -> list[list[int]]:
    """Numbers of files, in bins of about the same bytes."""
    cores = int(spark.sparkContext.defaultParallelism)
    count = min(len(sizes), most or max(cores * 2, -(-sum(sizes) // _BIN_BYTES)))
    splits = [Split(0, str(number), "", size) for number, size in enumerate(sizes)]
    return [[int(split.name) for split in bin_] for bin_ in fill_bins(splits, count)]


def _numbers(batches: Iterator[pa.RecordBatch], bins: Sequence[Sequence[int]]) -> Iterator[int]:
    for batch in batches:
        for bin_ in batch.column("id").to_pylist():
            yield from bins[bin_]


def _repeated(value: int, count: int, type_: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, type_), count)
