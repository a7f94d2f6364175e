"""Finds keys that more than one live row has, by an aggregation that spills, and marks rows of them as deleted.

    key columns of the data files --without deleted rows--> key, sequence, file, position
        by key: count --more than one--> keys, rows               none: that was all
            rows of those keys --whole rows, read by file--> SHA-256 of all columns --by key: one or several?
                one      equal: all but the oldest row are surplus --> vectors (v3) or position deletes (v2)
                several  shown, and left to a person

Rows that equality deletes delete are found by the join of a conversion, and taken out. No process ever holds the keys
of more than a batch of rows. A key with a NULL is nobody's key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from frazil.clock import Clock
from frazil.data.arrow_types import arrow_schema
from frazil.data.deletes.deleted_rows import DeletedRows
from frazil.data.keys.nullable import nullable_keys
from frazil.data.partition_values import json_values
from frazil.data.read.live_rows import live_rows
from frazil.doctor.examination import SAMPLES, DuplicateKeys, ExaminedTable, Folder, KeySample, Surplus
from frazil.maintenance.convert.tasks import FILES_A_TASK, SparkConverting
from frazil.model.compaction import RewrittenTable
from frazil.model.conversion import Search, SearchedFile
from frazil.model.files import LiveFile
from frazil.model.schema import Schema
from frazil.spark.bins import Piece, beside_files, binned, in_bins, members, pieces, taken_apart
from frazil.spark.errors import collected, guarded

_NO_LINEAGE = 2
_ROWS_DDL = "k binary, n long, f int, p long"


class KeySearch:
    """Of one session."""

    def __init__(self, spark: SparkSession, clock: Clock) -> None:
        self._spark = spark
        self._converting = SparkConverting(spark, clock)

    def find(self, table: ExaminedTable, files: Sequence[LiveFile], deletes: Search | None) -> DuplicateKeys:
        """See `SparkExamining.duplicates`."""
        if not table.key or not files:
            return DuplicateKeys()
        ordered = _ordered(files, deletes)
        rows = self._rows(table, ordered, deletes)
        several = _several(rows)
        (counted,) = collected(several.agg(F.count("*").alias("keys"), F.sum("c").alias("rows")).collect)
        if not counted["keys"]:
            return DuplicateKeys()
        judged = _judged(self._digested(table, ordered, rows.join(several.select("k"), "k")))
        judged.persist(StorageLevel.DISK_ONLY)
        try:
            (equal,) = collected(judged.agg(F.sum(F.col("equal").cast("long")).alias("keys")).collect)
            shown = collected(judged.orderBy("equal", "first").limit(SAMPLES).collect)
        finally:
            judged.unpersist()
        samples = [self._sample(table, ordered, row) for row in shown]
        return DuplicateKeys(counted["keys"], counted["rows"], equal["keys"] or 0, tuple(samples))

    def mark_surplus(
        self, table: ExaminedTable, files: Sequence[LiveFile], deletes: Search | None, folder: Folder
    ) -> Surplus:
        """See `SparkExamining.surplus`."""
        ordered = _ordered(files, deletes)
        rows = self._rows(table, ordered, deletes)
        digested = self._digested(table, ordered, rows.join(_several(rows).select("k"), "k"))
        alike = _judged(digested).where("equal").select("k")
        oldest_first = Window.partitionBy("k").orderBy("n", "f", "p")
        numbered = digested.join(alike, "k").withColumn("r", F.row_number().over(oldest_first))
        numbered.persist(StorageLevel.DISK_ONLY)
        try:
            surplus = numbered.where("r > 1").select("f", "p")
            marked = self._converting.mark(_search(table, ordered, folder), surplus)
            kept = collected(numbered.where("r = 1").select("f").distinct().collect)
        finally:
            numbered.unpersist()
        return Surplus(marked, tuple(sorted(ordered[row["f"]].path for row in kept)))

    def _rows(self, table: ExaminedTable, files: Sequence[LiveFile], deletes: Search | None) -> DataFrame:
        """Key, sequence number, number of the file and position of every live row."""

        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            piece: Piece[LiveFile]
            for piece in members(batches):
                yield from _keys(table, piece.what, piece.number)

        bins = in_bins(self._spark, pieces(files, lambda file: file.size))
        rows = binned(self._spark, bins).mapInArrow(guarded(read), _ROWS_DDL)
        if deletes is None or not deletes.deletes:
            return rows
        # Files that equality deletes reach come first, in the order of the search.
        return rows.join(self._converting.matches(deletes).distinct().hint("merge"), ["f", "p"], "left_anti")

    def _digested(self, table: ExaminedTable, files: Sequence[LiveFile], rows: DataFrame) -> DataFrame:
        tasks = -(-len(files) // FILES_A_TASK)

        def digest(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            mine: dict[int, LiveFile] = {}
            for number, part in _by_file(taken_apart(batches, mine)):
                digests = _digests(table.table, mine[number], part.column("p").to_numpy())
                yield part.append_column("d", digests)

        numbered = pieces(files, lambda file: file.size)
        placed = beside_files(self._spark, rows.select("k", "n", "f", "p"), numbered, FILES_A_TASK, tasks, "p")
        return placed.mapInArrow(guarded(digest), f"{_ROWS_DDL}, d binary")

    def _sample(self, table: ExaminedTable, files: Sequence[LiveFile], row: Any) -> KeySample:
        places = [(files[one["f"]], int(one["p"])) for one in (row["first"], row["last"])]
        file, position = places[0]
        (found,) = _rows_at(replace(table.table, schema=Schema(0, table.key)), file, np.array([position]))
        values = [json_values(field.type, _plain(column))[0] for field, column in zip(table.key, found, strict=True)]
        key = ", ".join(f"{field.name}={value!r}" for field, value in zip(table.key, values, strict=True))
        return KeySample(key, tuple((one.path, at) for one, at in places), row["equal"])


# tasks


def _keys(table: ExaminedTable, file: LiveFile, number: int) -> Iterator[pa.RecordBatch]:
    plain = replace(table.table, schema=Schema(0, table.key), format_version=_NO_LINEAGE)
    gone = DeletedRows().of(file, table.table.storage)
    for batch, positions in live_rows(plain, file, gone, arrow_schema(_optional(table.key))):
        whole = np.ones(batch.num_rows, np.bool_)
        for column in batch.columns:
            whole &= column.is_valid().to_numpy(zero_copy_only=False)
        places = np.flatnonzero(whole)
        if len(places):
            part, count = batch.take(pa.array(places)), len(places)
            keys = nullable_keys(table.key, [_plain(column) for column in part.columns]).cast(pa.binary())
            sequence = pa.repeat(pa.scalar(file.sequence_number, pa.int64()), count)
            numbers = pa.repeat(pa.scalar(number, pa.int32()), count)
            yield pa.RecordBatch.from_arrays([keys, sequence, numbers, pa.array(positions[places])], list("knfp"))


def _digests(table: RewrittenTable, file: LiveFile, positions: NDArray[np.int64]) -> pa.Array:
    """Of all columns, with moments as plain numbers: Python's calendar ends too early."""
    digests: list[bytes] = []
    for rows in _rows_at(table, file, positions):
        plain = pa.RecordBatch.from_arrays([_numbered(column) for column in rows.columns], names=rows.schema.names)
        digests += [hashlib.sha256(repr(tuple(row.values())).encode()).digest() for row in plain.to_pylist()]
    return pa.array(digests, pa.binary())


def _rows_at(table: RewrittenTable, file: LiveFile, positions: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    """The rows at ascending positions, as readers see them."""
    plain = replace(table, format_version=_NO_LINEAGE)
    for batch, places in live_rows(plain, file, BitMap64(), arrow_schema(_optional(table.schema.fields))):
        start = int(places[0]) if len(places) else 0
        first, last = np.searchsorted(positions, (start, start + batch.num_rows))
        if first < last:
            yield batch.take(pa.array(positions[first:last] - start))


def _numbered(column: pa.Array) -> pa.Array:
    column = _plain(column)
    if pa.types.is_timestamp(column.type) or pa.types.is_time64(column.type):
        return column.view(pa.int64())
    return column.view(pa.int32()) if pa.types.is_date32(column.type) else column


def _plain(column: pa.Array) -> pa.Array:
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def _optional(fields: Sequence[Any]) -> list[Any]:
    """What must not be NULL and is, is for a look at the file to tell."""
    return [replace(field, required=False) for field in fields]


def _by_file(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows come sorted by file; those of one may come in several batches."""
    for batch in batches:
        numbers = batch.column("f").to_numpy()
        for number, places in groupby(range(len(numbers)), key=lambda at: int(numbers[at])):
            at = list(places)
            yield number, batch.slice(at[0], len(at))


# Spark


def _several(rows: DataFrame) -> DataFrame:
    return rows.groupBy("k").agg(F.count("*").alias("c")).where("c > 1")


def _judged(digested: DataFrame) -> DataFrame:
    """Of each key whether all its rows are equal, and its oldest and its newest row: never all of them, which may be
    many."""
    row = F.struct("n", "f", "p")
    return digested.groupBy("k").agg(
        (F.min("d") == F.max("d")).alias("equal"), F.min(row).alias("first"), F.max(row).alias("last")
    )


def _ordered(files: Sequence[LiveFile], deletes: Search | None) -> list[LiveFile]:
    by_position = [file.by_position() for file in files]
    if deletes is None:
        return by_position
    known = {file.path: file for file in by_position}
    first = [known.pop(searched.file.path) for searched in deletes.files]
    return [*first, *known.values()]


def _search(table: ExaminedTable, files: Sequence[LiveFile], folder: Folder) -> Search:
    """A search whose answer is known: what writing needs to know."""
    return Search(
        table=table.table.name,
        number=folder.run,
        folder=folder.path,
        schema_id=table.table.schema.schema_id,
        format_version=table.table.format_version,
        key_sets=((),),
        places=(0,),
        deletes=(),
        files=tuple(SearchedFile(replace(file, bounds={}), (0,)) for file in files),
        parquet=folder.parquet,
        storage=table.table.storage,
        name_mapping=table.table.name_mapping,
    )
