"""Looks at the files of a table, one by one, in tasks: are they there, and do their rows lie where they belong?

    data file    size, number of rows --its spec has partitions?--> source columns of the live rows --transforms-->
                 partition of each row, beside that of the file
    delete file  size, and whether it can be read at all; of position deletes of several files, which those are

A file that is gone, was replaced or damaged, or cannot be read here is an answer like any other. Storage that does not
answer is not: then nobody knows, and the look fails. Duplicate keys are searched in `duplicates`; a task of this room
also writes the rows of a file into the partitions where they belong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from frazil.clock import Clock
from frazil.data.arrow_types import arrow_schema
from frazil.data.deletes.deleted_rows import DeletedRows
from frazil.data.deletes.positions import read_positions
from frazil.data.deletes.vectors import DamagedVector, read_vector
from frazil.data.parquet_writer import RollingWriter
from frazil.data.partition_values import json_scalar, json_values
from frazil.data.partitioned_writer import PartitionedWriter
from frazil.data.read.live_rows import live_rows, written_fields
from frazil.data.read.parquet import DamagedFile, bound_name, open_parquet
from frazil.data.transforms import BoundField, bind_spec
from frazil.doctor.duplicates import KeySearch
from frazil.doctor.examination import (
    SAMPLES,
    DuplicateKeys,
    ExaminedTable,
    FileLook,
    Folder,
    Misplaced,
    Placed,
    Surplus,
)
from frazil.errors import BadInput, ConfigError, TableChanged
from frazil.ingest.write.write_job import run_on_executors, running_task
from frazil.maintenance.compact.rewritten_files import data_file
from frazil.model.compaction import RewrittenTable
from frazil.model.conversion import Search
from frazil.model.files import FileKind, LiveDelete, LiveFile
from frazil.model.partition import PartitionSpec
from frazil.model.schema import Field, Schema, StructOf
from frazil.spark.bins import Piece, pieces
from frazil.storage.files.open_file import open_input

FILES_A_JOB = 2_048
"""So often somebody is told how far it is."""
_PARQUET = "parquet"
_NO_LINEAGE = 2


class SparkExamining:
    """Of one session."""

    def __init__(self, spark: SparkSession, clock: Clock) -> None:
        self._spark = spark
        self._keys = KeySearch(spark, clock)

    def look(
        self,
        table: ExaminedTable,
        data: Sequence[LiveFile],
        deletes: Sequence[LiveDelete],
        on_done: Callable[[int], None] = lambda files: None,
    ) -> tuple[FileLook, ...]:
        """One look at each data file, in order, and then at each delete file. Raises StorageUnavailable and
        CatalogRefused, never for a file that is gone or damaged."""
        files: list[LiveFile | LiveDelete] = [file.light() for file in data]
        files += [replace(one, entry={}) for one in deletes]
        found: list[FileLook] = []
        for start in range(0, len(files), FILES_A_JOB):
            found += self._look(table, files[start : start + FILES_A_JOB])
            on_done(len(found))
        return tuple(found)

    def _look(self, table: ExaminedTable, files: Sequence[LiveFile | LiveDelete]) -> list[FileLook]:
        def task(piece: Piece[LiveFile | LiveDelete]) -> tuple[int, FileLook]:
            if isinstance(piece.what, LiveDelete):
                return piece.number, look_at_delete(table.table, piece.what)
            return piece.number, look_at_data(table, piece.what)

        looks = run_on_executors(self._spark, task, pieces(files, lambda file: file.size))
        return [look for _, look in sorted(looks, key=lambda one: one[0])]

    def duplicates(self, table: ExaminedTable, files: Sequence[LiveFile], deletes: Search | None) -> DuplicateKeys:
        """Of the key, over the live rows of these files; `deletes` are the equality deletes that reach some of them.
        Raises UnreadableFile, TableChanged for a file that is gone, StorageUnavailable."""
        return self._keys.find(table, files, deletes)

    def surplus(
        self, table: ExaminedTable, files: Sequence[LiveFile], deletes: Search | None, folder: Folder
    ) -> Surplus:
        """Deletes, by position, of all but the oldest row of each key whose rows are equal in every column."""
        return self._keys.mark_surplus(table, files, deletes, folder)

    def place(self, table: ExaminedTable, files: Sequence[LiveFile], folder: Folder) -> tuple[Placed, ...]:
        """The live rows of each file, in files of the right partitions of its own spec. No equality delete may reach
        them. Raises TableChanged for a file that is gone, StorageUnavailable."""

        def task(piece: Piece[LiveFile]) -> tuple[int, Placed]:
            try:
                attempt = f"{running_task()[1]}-{piece.number}"
                return piece.number, place_rows(table.table, piece.what, folder, attempt)
            except (BadInput, ConfigError) as error:
                return piece.number, Placed(piece.what.path, failure=error.message)

        placed = run_on_executors(self._spark, task, pieces((file.light() for file in files), lambda file: file.size))
        return tuple(one for _, one in sorted(placed, key=lambda one: one[0]))


# tasks


def look_at_data(table: ExaminedTable, file: LiveFile) -> FileLook:
    """Raises StorageUnavailable, CatalogRefused."""
    size = _size_of(file.path, table.table.storage)
    if size is None or size != file.size:
        return FileLook(path=file.path, size=size)
    if file.format != _PARQUET:
        return FileLook(path=file.path, size=size, trouble=f"it is {file.format}")
    try:
        with open_parquet(file.path, table.table.storage) as source:
            records, own = source.metadata.num_rows, source.schema_arrow
        look = FileLook(path=file.path, size=size, records=records, told=_told(table, file, own))
        if records != file.records:
            return look
        return _with_misplaced(table, file, look)
    except TableChanged:  # deleted between the two looks
        return FileLook(path=file.path, size=None)
    except (BadInput, ConfigError, ValueError) as error:
        # What is damaged may be a delete file, which is looked at by itself.
        if isinstance(error, DamagedFile) and error.facts["path"] == file.path:
            return FileLook(path=file.path, size=size, damage=error.message)
        return FileLook(path=file.path, size=size, trouble=str(error))


def look_at_delete(table: RewrittenTable, delete: LiveDelete) -> FileLook:
    """Raises StorageUnavailable, CatalogRefused."""
    size = _size_of(delete.path, table.storage)
    if size is None or size != delete.size:
        return FileLook(path=delete.path, size=size)
    if not delete.is_vector and delete.format != _PARQUET:
        return FileLook(path=delete.path, size=size, trouble=f"it is {delete.format}")
    try:
        return FileLook(path=delete.path, size=size, names=_read_delete(table, delete))
    except TableChanged:  # deleted between the two looks
        return FileLook(path=delete.path, size=None)
    except (DamagedFile, DamagedVector) as error:
        return FileLook(path=delete.path, size=size, damage=error.message)
    except BadInput as error:
        return FileLook(path=delete.path, size=size, trouble=error.message)


def _read_delete(table: RewrittenTable, delete: LiveDelete) -> frozenset[str] | None:
    """All of it. The data files that it names, where the manifest names none."""
    if delete.offset is not None and delete.length is not None:
        read_vector(delete.path, delete.offset, delete.length, table.storage)
        return None
    if delete.kind is FileKind.POSITION_DELETE:
        names = frozenset(read_positions(delete.path, table.storage, delete.data_file))
        return names if delete.data_file is None else None
    with open_parquet(delete.path, table.storage) as source:
        for _ in source.iter_batches():
            pass
    return None


def place_rows(table: RewrittenTable, file: LiveFile, folder: Folder, attempt: str) -> Placed:
    """Writes the live rows of a file into the partitions of its own spec that their columns give them. Row ids stay.
    Raises BadInput, ConfigError for a partition that cannot be computed any more, and what storage raises."""
    spec = spec_of(table, file)
    fields = written_fields(table)
    numbers = count()

    def new_writer() -> RollingWriter:
        return RollingWriter(
            fields,
            lambda _: f"{folder.path}/data-{attempt}-{next(numbers)}.parquet",
            folder.parquet,
            table.storage,
            metrics=table.metrics,
        )

    writer = PartitionedWriter(bind_spec(table.name, table.schema, spec), new_writer)
    gone = DeletedRows().of(file, table.storage)
    try:
        for batch, _ in live_rows(table, file, gone, arrow_schema(fields)):
            writer.write(batch)
        closed = writer.close()
    except BaseException:
        writer.abandon()
        raise
    return Placed(file.path, tuple(data_file((file.spec_id, one.partition), one.file) for one in closed))


# rows and their partitions


def _with_misplaced(table: ExaminedTable, file: LiveFile, look: FileLook) -> FileLook:
    spec = spec_of(table.table, file)
    kept = [(place, field) for place, field in enumerate(spec.fields) if field.transform.name != "void"]
    if not kept:
        return look
    roots = [root for root in table.columns if any(_holds(root, field.source_id) for _, field in kept)]
    schema = Schema(0, tuple(roots))
    bound = bind_spec(table.table.name, schema, PartitionSpec(spec.spec_id, tuple(field for _, field in kept)))
    expected = [json_scalar(field.type, file.partition[place]) for (place, _), field in zip(kept, bound, strict=True)]
    gone = DeletedRows().of(file, table.table.storage)
    rows, samples = 0, list[Misplaced]()
    plain = replace(table.table, schema=schema, format_version=_NO_LINEAGE)
    for batch, positions in live_rows(plain, file, gone, arrow_schema(schema.fields)):
        columns = [field.values(batch) for field in bound]
        fits = np.ones(batch.num_rows, np.bool_)
        for column, value in zip(columns, expected, strict=True):
            fits &= _same(column, value)
        wrong = np.flatnonzero(~fits)
        rows += len(wrong)
        shown = wrong[: SAMPLES - len(samples)]
        if len(shown):
            values = _partitions(len(spec.fields), kept, bound, columns, shown)
            samples += [Misplaced(int(positions[at]), told) for at, told in zip(shown, values, strict=True)]
    return replace(look, misplaced=rows, samples=tuple(samples))


def _partitions(
    width: int,
    kept: Sequence[tuple[int, Any]],
    bound: Sequence[BoundField],
    columns: Sequence[pa.Array],
    at: NDArray[np.int64],
) -> Iterator[tuple[Any, ...]]:
    """Partition values in the order of the spec; of a void field NULL."""
    told = [json_values(field.type, column.take(pa.array(at))) for field, column in zip(bound, columns, strict=True)]
    for row in zip(*told, strict=True):
        values: list[Any] = [None] * width
        for (place, _), value in zip(kept, row, strict=True):
            values[place] = value
        yield tuple(values)


def _same(column: pa.Array, value: pa.Scalar) -> NDArray[np.bool_]:
    """NULL is NULL; every NaN is one; of other floating point numbers the bits count."""
    if not value.is_valid:
        found = column.is_null()
    elif pa.types.is_floating(column.type):
        bits = pa.int32() if column.type == pa.float32() else pa.int64()
        alike = pc.equal(column.view(bits), pa.array([value.as_py()], column.type).view(bits)[0])
        both = pc.and_(pc.is_nan(column), pa.scalar(bool(np.isnan(value.as_py()))))
        found = pc.or_(alike, both).fill_null(False)
    else:
        found = pc.equal(column, value.cast(column.type)).fill_null(False)
    answer: NDArray[np.bool_] = found.to_numpy(zero_copy_only=False)
    return answer


def _told(table: ExaminedTable, file: LiveFile, own: pa.Schema) -> frozenset[int]:
    spec = spec_of(table.table, file)
    ids = {field.source_id for field in spec.fields if field.transform.name == "identity"}
    return frozenset(
        column.id
        for column in table.columns
        if column.id in ids and bound_name(own, column, table.table.name_mapping) is None
    )


def _holds(field: Field, id_: int) -> bool:
    if field.id == id_:
        return True
    return isinstance(field.type, StructOf) and any(_holds(inner, id_) for inner in field.type.fields)


def spec_of(table: RewrittenTable, file: LiveFile) -> PartitionSpec:
    return next(spec for spec in table.specs if spec.spec_id == file.spec_id)


def _size_of(path: str, storage: Mapping[str, str]) -> int | None:
    try:
        with open_input(path, storage) as source:
            return int(source.size())
    except TableChanged:
        return None
