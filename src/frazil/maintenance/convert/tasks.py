"""Finds the rows that equality deletes delete, and writes their positions: many of them by a join that spills.

    keys of the delete files: key at place, sequence --max by key--+
                                                                   +-- sort-merge join, delete's sequence is greater
    key columns of the data files: key at place, sequence, _pos ---+            |
                                                                     by data file, a bin of files in one task
                                                                                v
                      positions found, with what is deleted already --> Puffin files (v3) or position deletes (v2)

No process ever holds the keys of more than a batch of rows. Spark is told to sort and merge: it takes what comes out of
Python for small, and would send all keys to every executor. The tasks that know a data file's rows write them, so that
the driver sees messages alone. Deletes of our own, and most of others, need none of it: see `indexed`.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from frazil.clock import Clock
from frazil.data.deletes.delete_files import VECTORS_FROM_VERSION, write_position_deletes, write_vectors
from frazil.data.deletes.deleted_rows import DeletedRows
from frazil.data.deletes.vectors import read_vector, to_bitmap
from frazil.data.keys.index_cache import process_cache
from frazil.data.keys.nullable import at_place, nullable_keys
from frazil.data.partition_values import json_scalar
from frazil.data.read.parquet import UnreadableFile, read_columns
from frazil.ingest.locate.locators import LocatorSettings
from frazil.ingest.locate.search import DeletedPositions, deletion
from frazil.ingest.write.write_job import run_on_executors, running_task
from frazil.maintenance.convert.indexed import IndexedSearch, NotIndexed, may_be_indexed
from frazil.model.conversion import DeleteKeys, Marked, Search, SearchedFile
from frazil.model.files import LiveFile, WrittenFile
from frazil.model.ids import position_delete_path, vectors_path
from frazil.spark.bins import Piece, beside_files, binned, in_bins, members, pieces, taken_apart
from frazil.spark.errors import collected, guarded

READ_ROWS = 1 << 16
"""Of a batch: with keys of 32 KB each they still fit the offsets of Arrow's binary columns."""
FILES_A_TASK = 64
FLUSH_ROWS = 1 << 22
"""Deleted rows that may wait in memory before they are written."""


class SparkConverting:
    """Implements `frazil.model.conversion.Converting` on one session."""

    def __init__(
        self, spark: SparkSession, clock: Clock, index: LocatorSettings | None = None, *, tasks: int | None = None
    ) -> None:
        """`index` is where key indexes are kept; without it everything is joined. `tasks` run at once at most."""
        self._spark = spark
        self._index = index
        self._clock = clock
        self._tasks = tasks

    def search(self, search: Search) -> tuple[Marked, ...]:
        """See the port."""
        if not search.deletes or not search.files:
            return ()
        found = self._by_index(search) if may_be_indexed(search) else None
        return self.mark(search, self.matches(search)) if found is None else found

    def _by_index(self, search: Search) -> tuple[Marked, ...] | None:
        """None if only the join can tell."""
        if self._index is None:
            return None
        bare, directory, limit = replace(search, files=()), self._index.directory, self._index.size
        # Each task reads all keys, so there are no more of them than can run at once.
        most = self._tasks or int(self._spark.sparkContext.defaultParallelism)

        def task(piece: Piece[list[Piece[SearchedFile]]]) -> list[Marked] | None:
            # In the order of the search, which is that of the partitions.
            mine = {one.number: one.what for one in sorted(piece.what, key=lambda one: one.number)}
            try:
                keys = IndexedSearch(bare, process_cache(directory, limit))
                found = ((number, keys.deleted(searched)) for number, searched in mine.items())
                return list(_Writer(bare, mine, running_task()[1]).write(found))
            except (NotIndexed, UnreadableFile):
                return None

        bins = pieces(in_bins(self._spark, _files(search), most), lambda _: 1)
        answers = run_on_executors(self._spark, task, bins, len(bins))
        if any(answer is None for answer in answers):
            return None
        return _in_order(marked for answer in answers for marked in answer or ())

    def mark(self, search: Search, found: DataFrame) -> tuple[Marked, ...]:
        """Writes rows that were found, by number of the file in the search and position, as deletes of them. Raises
        like `search`."""
        tasks, bare = self._bounded(-(-len(search.files) // FILES_A_TASK)), replace(search, files=(), deletes=())

        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            files: dict[int, SearchedFile] = {}
            for marked in _Writer(bare, files, running_task()[1]).write(_by_file(taken_apart(batches, files))):
                yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(marked)], pa.binary())], ["m"])

        placed = beside_files(self._spark, found.select("f", "p"), _files(search), FILES_A_TASK, tasks)
        rows = collected(placed.mapInArrow(guarded(write), "m binary").collect)
        return _in_order(pickle.loads(bytes(row.m)) for row in rows)

    def matches(self, search: Search) -> DataFrame:
        """Number of the file and position of every row that is deleted, some of them twice. Both sides are read at the
        same time: they share the tasks there may be."""
        share = None if self._tasks is None else max(1, self._tasks // 2)
        bare = replace(search, files=(), deletes=())

        def delete_keys(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            delete: DeleteKeys
            for delete in members(batches):
                yield from _delete_keys(bare, delete)

        def row_keys(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            piece: Piece[SearchedFile]
            for piece in members(batches):
                yield from _row_keys(bare, piece.number, piece.what)

        spark = self._spark
        deletes, files = in_bins(spark, search.deletes, share), in_bins(spark, _files(search), share)
        wanted = binned(spark, deletes).mapInArrow(guarded(delete_keys), "k binary, s long")
        rows = binned(spark, files).mapInArrow(guarded(row_keys), "k binary, n long, f int, p long")
        newest = wanted.groupBy("k").agg(F.max("s").alias("s")).hint("merge")
        found = rows.join(newest, "k").where(F.col("s") > F.col("n")).select("f", "p")
        # One task then joins several partitions, one after the other.
        return found if self._tasks is None else found.coalesce(self._tasks)

    def _bounded(self, tasks: int) -> int:
        return tasks if self._tasks is None else min(tasks, self._tasks)

    def merged(self, search: Search, vector: WrittenFile, file: LiveFile) -> WrittenFile:
        """See the port."""
        blob = vector.vector
        if blob is None or blob.data_file != file.path:
            raise ValueError(f"{vector.path} is no vector of {file.path}")
        found = read_vector(vector.path, blob.offset, blob.length, search.storage)
        rows = found | DeletedRows().of(file, search.storage)
        path = vectors_path(search.folder, f"merged-{self._clock.new_uuid().hex}")
        (merged,) = write_vectors(path, {file.path: rows}, {file.path: file.place}, search.storage)
        return merged


# reading, in tasks


def _delete_keys(search: Search, delete: DeleteKeys) -> Iterator[pa.RecordBatch]:
    fields = [column.field for column in search.key_sets[search.places[delete.place]]]
    batches = read_columns(delete.path, delete.size, fields, search.storage, search.name_mapping, rows=READ_ROWS)
    for batch in batches:
        keys = at_place(nullable_keys(fields, batch.columns), delete.place)
        yield pa.RecordBatch.from_arrays([keys, _repeated(delete.sequence_number, len(keys), pa.int64())], ["k", "s"])


def _row_keys(search: Search, number: int, searched: SearchedFile) -> Iterator[pa.RecordBatch]:
    """Every row once for each place that may delete it."""
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
    """Of one task: rows come by file, files in the order of their partitions. `files` are those of the task, by their
    numbers."""

    def __init__(self, search: Search, files: Mapping[int, SearchedFile], attempt: str) -> None:
        self._search = search
        self._files = files
        self._attempt = attempt
        self._written = 0
        self._deleted = DeletedRows()
        self._waiting: list[DeletedPositions] = []
        self._waiting_rows = 0
        self._vectors = search.format_version >= VECTORS_FROM_VERSION

    def write(self, found: Iterable[tuple[int, BitMap64]]) -> Iterator[Marked]:
        """The rows of each file, by its number."""
        for number, bitmap in found:
            if bitmap:
                yield from self._take(self._files[number], bitmap)
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
        for _, group in groupby(waiting, key=lambda one: one.file.place):
            yield self._write_positions(list(group))

    def _write_vectors(self, deletions: Sequence[DeletedPositions]) -> Iterator[Marked]:
        path = vectors_path(self._search.folder, f"{self._attempt}-{self._next()}")
        rows = {one.file.path: one.all for one in deletions}
        places = {one.file.path: one.file.place for one in deletions}
        written = write_vectors(path, rows, places, self._search.storage)
        for one, file in zip(deletions, written, strict=True):
            yield Marked(file, (one.file.path,), len(one.fresh))

    def _write_positions(self, group: Sequence[DeletedPositions]) -> Marked:
        search, rows = self._search, {one.file.path: one.fresh for one in group}
        path = position_delete_path(search.folder, self._attempt, self._next())
        file = write_position_deletes(path, rows, group[0].file.place, search.parquet, search.storage)
        return Marked(file, tuple(rows), sum(map(len, rows.values())))

    def _next(self) -> int:
        self._written += 1
        return self._written


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


def _files(search: Search) -> list[Piece[SearchedFile]]:
    return pieces(search.files, lambda searched: searched.file.size)


def _repeated(value: int, count: int, type_: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, type_), count)
