"""Reads the live rows of a data file as the table's head has them, whatever schema they were written under.

    file --batch by batch--> columns by field id, in the types of the head's schema
                               a column that the file lacks: partition value, default or NULL
                               + _row_id and _last_updated_sequence_number from version 3 on
         --without deleted positions--> rows, and their positions

A row keeps its id and the number of its last change: they are written out, since neither follows any more from where
the row lies. A batch of rows is all that is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyroaring import BitMap64

from frazil.data.cast import cast
from frazil.data.deletes.vectors import to_positions
from frazil.data.partition_values import json_scalar
from frazil.data.read.align import aligned
from frazil.data.read.parquet import bound_name, damaged, has_ids, open_parquet, unreadable
from frazil.model.arrow import value_type
from frazil.model.compaction import LAST_UPDATED, ROW_ID, RewrittenTable
from frazil.model.files import LiveFile
from frazil.model.schema import Field, ListOf, MapOf, StructOf, Type

READ_ROWS = 1 << 16
LINEAGE = (ROW_ID, LAST_UPDATED)
Positions = NDArray[np.int64]


def written_fields(table: RewrittenTable) -> tuple[Field, ...]:
    """What a rewritten file has as columns."""
    return (*table.schema.fields, *LINEAGE) if table.has_lineage else table.schema.fields


def live_rows(
    table: RewrittenTable, file: LiveFile, gone: BitMap64, target: pa.Schema
) -> Iterator[tuple[pa.RecordBatch, Positions]]:
    """Batches of exactly the target's schema, which is that of `written_fields`, and where in the file each row lies.
    Raises UnreadableFile, TableChanged if the file is gone or another one, StorageUnavailable."""
    deleted = to_positions(gone)
    if len(deleted) and deleted[-1] >= file.records:
        raise damaged(file.path, f"row {deleted[-1]} is deleted, and the file has {file.records} rows")
    start = 0
    with open_parquet(file.path, table.storage, file.size) as source:
        columns_of, wanted = _columns(table, file, source)
        for batch in source.iter_batches(batch_size=READ_ROWS, columns=wanted):
            count = batch.num_rows
            columns = columns_of(pa.Table.from_batches([batch]), start)
            positions = np.arange(start, start + count)
            first, last = np.searchsorted(deleted, (start, start + count))
            if first < last:
                alive = np.ones(count, np.bool_)
                alive[deleted[first:last] - start] = False
                mask = pa.array(alive)
                columns = [column.filter(mask) for column in columns]
                positions = positions[alive]
            start += count
            yield _exactly(file, columns, target), positions
    if start != file.records:
        raise damaged(file.path, f"it has {start} rows, and {file.records} in the table's manifest")


def _columns(
    table: RewrittenTable, file: LiveFile, source: pq.ParquetFile
) -> tuple[Callable[[pa.Table, int], list[pa.Array]], list[str] | None]:
    """What makes the table's columns of rows of the file that begin at a position, and the file's columns that it
    needs: None is all, since rows without columns cannot be counted."""
    own = source.schema_arrow
    by_id = has_ids(own)
    if not by_id:
        _must_be_told_apart(table, file)
    names = [_bound(file, own, field, table.name_mapping) for field in table.schema]
    told = _constants(table, file)
    missing = {
        field.id: _default(file, field, told.get(field.id, table.defaults.get(field.id)))
        for field in _all_fields(table.schema.fields)
        if field.id in told or field.id in table.defaults
    }
    lineage = [_bound(file, own, field, None) if by_id else None for field in LINEAGE] if table.has_lineage else []

    def columns(rows: pa.Table, start: int) -> list[pa.Array]:
        count = rows.num_rows
        found = []
        for name, field in zip(names, table.schema, strict=True):
            if name is None and field.id in missing:
                found.append(pa.repeat(missing[field.id], count))
            else:
                column, given = (None, None) if name is None else (rows.column(name), own.field(name))
                found.append(aligned(column, given, field.type, count, by_id=by_id, missing=missing))
        if lineage:
            stored = [None if name is None else rows.column(name).combine_chunks() for name in lineage]
            found += _lineage(file, stored, start, count)
        return found

    return columns, [name for name in (*names, *lineage) if name is not None] or None


def _lineage(file: LiveFile, stored: Sequence[pa.Array | None], start: int, count: int) -> list[pa.Array]:
    """As a reader of the file sees them. Rows of a file without ids get some with the next commit."""
    if file.first_row_id is None:
        return [pa.nulls(count, pa.int64())] * len(LINEAGE)
    first = file.first_row_id + start
    inherited = [
        pa.array(np.arange(first, first + count, dtype=np.int64)),
        pa.repeat(pa.scalar(file.sequence_number, pa.int64()), count),
    ]
    return [
        values if own is None else pc.coalesce(own.cast(pa.int64()), values)
        for own, values in zip(stored, inherited, strict=True)
    ]


def _exactly(file: LiveFile, columns: Sequence[pa.Array], target: pa.Schema) -> pa.RecordBatch:
    arrays = []
    for column, field in zip(columns, target, strict=True):
        try:
            array = cast(column, field.type)
        except ValueError as error:
            raise unreadable(file.path, f"column {field.name!r}: {error}") from error
        if array.null_count and not field.nullable:
            raise unreadable(file.path, f"column {field.name!r} is NULL and must not be")
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def _must_be_told_apart(table: RewrittenTable, file: LiveFile) -> None:
    """What is written here has ids for ever: they must be those that every reader would have taken the columns for."""
    if table.name_mapping is None:
        raise unreadable(file.path, "its columns have no ids, and the table has no name mapping")
    if any(isinstance(field.type, ListOf | MapOf | StructOf) for field in table.schema):
        raise unreadable(file.path, "its columns have no ids, and some of the table's are nested")


def _bound(file: LiveFile, own: pa.Schema, field: Field, name_mapping: str | None) -> str | None:
    try:
        return bound_name(own, field, name_mapping)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise unreadable(file.path, str(error)) from error


def _constants(table: RewrittenTable, file: LiveFile) -> dict[int, Any]:
    """Files that were imported may lack columns that their partition tells."""
    spec = next(spec for spec in table.specs if spec.spec_id == file.spec_id)
    told = zip(spec.fields, file.partition, strict=True)
    return {field.source_id: value for field, value in told if field.transform.name == "identity"}


def _default(file: LiveFile, field: Field, value: Any) -> pa.Scalar:
    if value is None:
        return pa.scalar(None, value_type(field.type))
    if isinstance(field.type, ListOf | MapOf | StructOf):
        raise unreadable(file.path, f"a default of column {field.name!r}, which is a {field.type}, is not known here")
    return json_scalar(field.type, value)


def _all_fields(fields: Sequence[Field]) -> Iterator[Field]:
    for field in fields:
        yield field
        yield from _inner_fields(field.type)


def _inner_fields(type_: Type) -> Iterator[Field]:
    match type_:
        case StructOf(fields):
            yield from _all_fields(fields)
        case ListOf(element):
            yield from _inner_fields(element)
        case MapOf(key, value):
            yield from _inner_fields(key)
            yield from _inner_fields(value)
