"""Puts the live rows of several data files into new ones, in order, and follows rows that are deleted meanwhile.

    task: group --file by file, batch by batch--> columns by field id, in the types of the head's schema
                                                    a column that the file lacks: partition value, default or NULL
                                                    + _row_id and _last_updated_sequence_number from version 3 on
                    --without deleted positions--> row groups --> new files, and what was left out of each input
    driver: deletes of a later head --Places--> vectors (v3) or position deletes (v2) of the new files

A row keeps its id and the number of its last change: they are written out, since neither follows any more from where
the row lies. A batch of rows, and what waits for one row group, is all that a task holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from frazil.clock import Clock
from frazil.errors import BadInput
from frazil.model.arrow import value_type
from frazil.model.columns import Field, ListOf, MapOf, StructOf, Type
from frazil.model.compaction import (
    LAST_UPDATED,
    ROW_ID,
    Carried,
    Concatenated,
    Group,
    Moved,
    Reprojected,
    Rewrite,
    RewrittenTable,
)
from frazil.model.files import FileClosed, Kind
from frazil.model.live import LiveFile
from frazil.model.names import position_delete_path, vectors_path
from frazil.model.ports import Split
from frazil.model.position import Hlc
from frazil.workers.casting import cast
from frazil.workers.job import run_on_executors, running_task
from frazil.workers.lookup.aligning import aligned
from frazil.workers.lookup.deleted import DeletedRows
from frazil.workers.lookup.nullable_keys import json_scalar
from frazil.workers.lookup.plan import VECTORS_FROM_VERSION
from frazil.workers.lookup.positions import read_positions, write_positions
from frazil.workers.lookup.reading import bound_name, has_ids, open_parquet, unreadable
from frazil.workers.lookup.vectors import to_positions, write_puffin
from frazil.workers.parquet import ClosedFile, RollingWriter
from frazil.workers.reprojecting import Places

READ_ROWS = 1 << 16
_NO_EPOCH = Hlc(0)
_LINEAGE = (ROW_ID, LAST_UPDATED)
_Partition = tuple[int, tuple[Any, ...]]


class SparkRewriting:
    """Implements `frazil.model.compaction.Rewriting` on one session."""

    def __init__(self, spark: SparkSession, clock: Clock) -> None:
        self._spark = spark
        self._clock = clock

    def concatenate(self, rewrite: Rewrite) -> tuple[Concatenated, ...]:
        """See the port."""
        light = replace(rewrite, groups=tuple(map(_light, rewrite.groups)))

        def task(split: Split) -> Concatenated:
            number = int(split.name)
            try:
                return concatenate(light, number, running_task()[1])
            except BadInput as error:
                # One damaged file must not keep all others small for ever.
                return Concatenated(number, failure=error.message)

        splits = [Split(0, str(number), "", group.size) for number, group in enumerate(rewrite.groups)]
        return tuple(sorted(run_on_executors(self._spark, task, splits), key=lambda one: one.group))

    def reproject(self, rewrite: Rewrite, moved: Sequence[Moved], carried: Sequence[Carried]) -> Reprojected:
        """See the port."""
        table, deleted = rewrite.table, DeletedRows()
        found: dict[_Partition, dict[str, BitMap64]] = {}
        fresh_of: dict[str, BitMap64] = {}
        undone: list[int] = []
        for one in moved:
            left_out = [BitMap64.deserialize(data) for data in one.result.left_out]
            now = [deleted.of(file, table.storage) for file in one.files]
            if any(not before.issubset(after) for before, after in zip(left_out, now, strict=True)):
                undone.append(one.result.group)
                continue
            for file, before, after in zip(one.files, left_out, now, strict=True):
                fresh_of[file.path] = after - before
            outputs = one.result.files
            places = Places([file.records for file in one.files], left_out, [file.records for file in outputs])
            rows = found.setdefault((one.files[0].spec_id, one.files[0].partition), {})
            rows.update({outputs[number].path: bitmap for number, bitmap in places.follow(now).items()})
        if undone:
            return Reprojected(undone=tuple(undone))
        count = sum(map(len, fresh_of.values()))
        attempt = self._clock.new_uuid().hex
        if table.format_version >= VECTORS_FROM_VERSION:
            return Reprojected(tuple(_vectors(rewrite, found, attempt)), rows=count)
        replaced = _carry(table, carried, fresh_of, found)
        files = tuple(_positions(rewrite, found, attempt))
        return Reprojected(files, tuple(one.delete for one in replaced), count)


# the task


def concatenate(rewrite: Rewrite, number: int, attempt: str) -> Concatenated:
    """Writes one group; `attempt` is never used twice. Raises what reading and writing raise."""
    table, group = rewrite.table, rewrite.groups[number]
    fields = (*table.schema.fields, *_LINEAGE) if table.has_lineage else table.schema.fields
    writer = RollingWriter(
        fields,
        lambda place: f"{rewrite.folder}/data-{attempt}-{number}-{place}.parquet",
        replace(rewrite.parquet, target_file_bytes=group.file_bytes),
        table.storage,
        bloom=[field.name for field in table.schema.identifiers] if rewrite.parquet.bloom_filter else (),
    )
    deleted = DeletedRows()
    left_out: list[bytes] = []
    try:
        for file in group.files:
            gone = deleted.of(file, table.storage)
            for batch in _live_rows(table, file, gone, writer.schema):
                writer.write(batch)
            left_out.append(gone.serialize())
        closed = writer.close()
    except BaseException:
        writer.abandon()
        raise
    messages = tuple(_data(rewrite, group.files[0], file) for file in closed)
    return Concatenated(number, messages, tuple(left_out))


def _live_rows(table: RewrittenTable, file: LiveFile, gone: BitMap64, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches of exactly the target's schema."""
    deleted = to_positions(gone)
    if len(deleted) and deleted[-1] >= file.records:
        raise unreadable(file.path, f"row {deleted[-1]} is deleted, and the file has {file.records} rows")
    start = 0
    with open_parquet(file.path, table.storage, file.size) as source:
        columns_of, wanted = _columns(table, file, source)
        for batch in source.iter_batches(batch_size=READ_ROWS, columns=wanted):
            count = batch.num_rows
            columns = columns_of(pa.Table.from_batches([batch]), start)
            first, last = np.searchsorted(deleted, (start, start + count))
            if first < last:
                alive = np.ones(count, np.bool_)
                alive[deleted[first:last] - start] = False
                mask = pa.array(alive)
                columns = [column.filter(mask) for column in columns]
            start += count
            yield _exactly(file, columns, target)
    if start != file.records:
        raise unreadable(file.path, f"it has {start} rows, and {file.records} in the table's manifest")


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
    lineage = [_bound(file, own, field, None) if by_id else None for field in _LINEAGE] if table.has_lineage else []

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
        return [pa.nulls(count, pa.int64())] * len(_LINEAGE)
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


def _light(group: Group) -> Group:
    """Without what only a commit needs."""
    return replace(
        group,
        files=tuple(
            replace(file, bounds={}, deletes=tuple(replace(delete, entry={}) for delete in file.deletes))
            for file in group.files
        ),
    )


# deletes that came meanwhile


def _carry(
    table: RewrittenTable,
    carried: Sequence[Carried],
    fresh_of: Mapping[str, BitMap64],
    found: dict[_Partition, dict[str, BitMap64]],
) -> list[Carried]:
    """Those that delete rows of inputs; what they delete elsewhere is added to what is found."""
    replaced = []
    for one in carried:
        rows = read_positions(one.delete.path, table.storage, one.delete.data_file)
        if not any(rows[path].intersect(fresh) for path, fresh in fresh_of.items() if path in rows):
            continue
        replaced.append(one)
        mine = found.setdefault((one.delete.spec_id, one.delete.partition), {})
        for path in one.data_files:
            if path in rows:
                mine[path] = mine.get(path, BitMap64()) | rows[path]
    return replaced


def _vectors(rewrite: Rewrite, found: Mapping[_Partition, Mapping[str, BitMap64]], attempt: str) -> list[FileClosed]:
    places = {path: place for place, rows in found.items() for path in rows}
    if not places:
        return []
    bitmaps = {path: found[place][path] for path, place in places.items()}
    path = vectors_path(rewrite.folder, attempt)
    puffin = write_puffin(path, bitmaps, rewrite.table.storage)
    return [
        _message(
            rewrite,
            places[blob.data_file],
            kind=Kind.POSITION_DELETE,
            path=path,
            records=len(bitmaps[blob.data_file]),
            size=puffin.size,
            digest=puffin.digest,
            vector=blob,
        )
        for blob in puffin.blobs
    ]


def _positions(rewrite: Rewrite, found: Mapping[_Partition, Mapping[str, BitMap64]], attempt: str) -> list[FileClosed]:
    messages = []
    for number, (place, rows) in enumerate(found.items()):
        if rows:
            path = position_delete_path(rewrite.folder, attempt, number)
            closed = write_positions(path, rows, rewrite.parquet, rewrite.table.storage)
            messages.append(_message(rewrite, place, kind=Kind.POSITION_DELETE, **_facts(closed)))
    return messages


def _data(rewrite: Rewrite, like: LiveFile, closed: ClosedFile) -> FileClosed:
    # A reader that pruned by the bounds of a row id would have to know that they are those of this file alone.
    hidden = {field.id for field in _LINEAGE}
    metrics = tuple(column for column in closed.metrics if column.field_id not in hidden)
    facts = {**_facts(closed), "metrics": metrics}
    return _message(rewrite, (like.spec_id, like.partition), kind=Kind.DATA, **facts)


def _facts(closed: ClosedFile) -> dict[str, Any]:
    names = ("path", "records", "size", "digest", "metrics", "split_offsets")
    return {name: getattr(closed, name) for name in names}


def _message(rewrite: Rewrite, place: _Partition, **facts: Any) -> FileClosed:
    """Spec and partition are those of the inputs (H22)."""
    spec_id, partition = place
    return FileClosed(
        table=rewrite.table.name,
        epoch=_NO_EPOCH,
        batch_id=rewrite.number,
        worker=0,
        schema_id=rewrite.table.schema.schema_id,
        spec_id=spec_id,
        partition=partition,
        **facts,
    )
