"""Sorts the groups of a rewrite: small ones in one task each, large ones through a shuffle that spills.

    tasks, by file    columns of the order alone --> a sample --driver--> bounds of ranges and buckets
    tasks, by file    rows --keys, sorted, cut at the bounds--> range, bucket, body
                        |  Spark: to the range's task, sorted by bucket
    tasks, by range   bodies of one bucket --sorted--> files and a row map, bucket after bucket

Rows cross the shuffle as Arrow, some thousand in one body, so that no type has to be one of Spark's. A task holds what
it packs together, or one bucket, and what waits for a row group, however large a group is. A file that cannot be read
ends its own group alone. Why not by Spark's own sort: decision 16.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from frazil.data.arrow_types import arrow_schema
from frazil.data.deletes.deleted_rows import DeletedRows
from frazil.data.read.live_rows import live_rows, written_fields
from frazil.errors import BadInput, Transient
from frazil.ingest.write.write_job import run_on_executors, running_task
from frazil.maintenance.compact.sort.in_memory import (
    KEY,
    Held,
    Numbers,
    SortLimits,
    Written,
    order_of,
    result_of,
    sort_in_memory,
    write_range,
)
from frazil.maintenance.compact.sort.sort_keys import OrderForms, sort_indices
from frazil.maintenance.compact.sort.sort_ranges import BOUND_BYTES_MAX, Ranges, SortKeys
from frazil.model.compaction import Group, Rewrite, RewriteResult, RewrittenTable
from frazil.model.files import LiveFile
from frazil.model.schema import Field, Schema, StructOf
from frazil.model.sort import Order
from frazil.spark.bins import Piece, binned, in_bins, members, pieces
from frazil.spark.errors import collected, guarded

_BODY_DDL, _BODY = "range int, bucket int, body binary", ("range", "bucket", "body")
_FAILED = -1


def sort_groups(
    spark: SparkSession, rewrite: Rewrite, limits: SortLimits, tasks: int | None = None
) -> tuple[RewriteResult, ...]:
    """One result for each group of a rewrite with an order, in order; by so many `tasks` at once at most. Raises
    TableChanged for a file that is gone, StorageUnavailable."""

    bare = replace(rewrite, groups=())

    def in_memory(piece: Piece[Group]) -> tuple[int, RewriteResult | None]:
        try:
            return piece.number, sort_in_memory(bare, piece.number, piece.what, running_task()[1], limits)
        except BadInput as error:
            return piece.number, RewriteResult(piece.number, failure=error.message)

    groups = pieces(rewrite.groups, lambda group: group.size)
    small = [group for group in groups if group.size <= limits.one_task]
    answers = run_on_executors(spark, in_memory, small, tasks) if small else []
    found = {number: result for number, result in answers if result is not None}
    large = [number for number in range(len(rewrite.groups)) if number not in found]
    if large:
        found |= _Shuffle(spark, rewrite, limits, tasks).run(large)
    return tuple(found[number] for number in range(len(rewrite.groups)))


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the first look at a file tells: forms and positions of some rows, Arrow bytes of a row where measured."""

    group: int
    place: int
    left_out: bytes = b""
    forms: tuple[pa.Array, ...] = ()
    positions: Numbers = field(default_factory=lambda: np.empty(0, np.int64))
    row_bytes: float | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class _Input:
    """A file of a group, by its place there; `share` of its rows is looked at, and of one that `is_measured` how many
    bytes they take."""

    group: int
    place: int
    file: LiveFile
    share: float = 1.0
    is_measured: bool = False

    @property
    def size(self) -> int:
        return self.file.size


class _Shuffle:
    """The large groups of one rewrite."""

    def __init__(self, spark: SparkSession, rewrite: Rewrite, limits: SortLimits, tasks: int | None) -> None:
        self._spark = spark
        self._rewrite = rewrite
        self._limits = limits
        self._tasks = tasks

    def run(self, groups: Sequence[int]) -> dict[int, RewriteResult]:
        seen: dict[int, list[_Seen]] = {number: [] for number in groups}
        for one in self._look(groups):
            seen[one.group].append(one)
        found: dict[int, RewriteResult] = {}
        ranges: dict[int, Ranges] = {}
        left_out: dict[int, list[bytes]] = {}
        for number, looks in seen.items():
            looks.sort(key=lambda one: one.place)
            left_out[number] = [one.left_out for one in looks]
            failure = next((one.failure for one in looks if one.failure is not None), None)
            if failure is not None:
                found[number] = RewriteResult(number, failure=failure)
            elif not alive_rows(self._rewrite, number, left_out[number]):
                found[number] = result_of(number, left_out[number], ())
            else:
                ranges[number] = self._ranges(number, looks)
        written: dict[int, list[Written]] = {number: [] for number in ranges}
        for part in self._sorted(ranges) if ranges else ():
            written[part.group].append(part)
        for number, parts in written.items():
            found[number] = whole(self._rewrite, result_of(number, left_out[number], parts))
        return found

    def _look(self, groups: Sequence[int]) -> list[_Seen]:
        bare = replace(self._rewrite, groups=())

        def look(one: _Input) -> _Seen:
            try:
                return _look_at(bare, one)
            except BadInput as error:
                return _Seen(one.group, one.place, failure=error.message)

        inputs = [one for number in groups for one in _inputs(number, self._rewrite.groups[number], self._limits)]
        return run_on_executors(self._spark, look, inputs, self._tasks)

    def _ranges(self, number: int, looks: Sequence[_Seen]) -> Ranges:
        group = self._rewrite.groups[number]
        rows = alive_rows(self._rewrite, number, [one.left_out for one in looks])
        row_bytes = max((one.row_bytes for one in looks if one.row_bytes is not None), default=1.0)
        forms = [pa.concat_arrays(columns) for columns in zip(*(one.forms for one in looks), strict=True)]
        inputs = np.concatenate([np.full(len(one.positions), one.place, np.int32) for one in looks])
        positions = np.concatenate([one.positions for one in looks])
        keys = SortKeys.seen(order_of(self._rewrite), forms)
        buckets = int(rows * row_bytes / self._limits.bucket) + 1
        return Ranges.of(keys, keys.of(forms, inputs, positions), group.outputs, buckets)

    def _sorted(self, ranges: Mapping[int, Ranges]) -> list[Written]:
        rewrite, limits, bare = self._rewrite, self._limits, replace(self._rewrite, groups=())
        # What is written is told of after the first file of its group.
        heads = {number: replace(rewrite.groups[number], files=rewrite.groups[number].files[:1]) for number in ranges}
        firsts, total = dict[int, int](), 0
        for number, own in ranges.items():
            firsts[number] = total
            total += own.count
        group_of = [(number, range_) for number, own in ranges.items() for range_ in range(own.count)]
        inputs = [one for number in ranges for one in _inputs(number, rewrite.groups[number], limits)]
        bins = in_bins(self._spark, inputs, self._tasks)

        def scatter(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            mine: list[_Input] = sorted(members(batches), key=lambda one: (one.group, one.place))
            for number, own in groupby(mine, key=lambda one: one.group):
                yield from _scattered(bare, list(own), ranges[number], firsts[number], limits)

        def gather(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for range_, bodies in groupby(_bodies(batches), key=lambda body: body[0]):
                number, place = group_of[range_]
                part = _gathered(bare, number, heads[number], place, running_task()[1], bodies)
                yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(part)], pa.binary())], ["m"])

        scattered = binned(self._spark, bins).mapInArrow(guarded(scatter), _BODY_DDL)
        parts = total if self._tasks is None else min(total, self._tasks)
        placed = scattered.repartitionById(parts, F.col("range")).sortWithinPartitions("range", "bucket")
        rows = collected(placed.mapInArrow(guarded(gather), "m binary").collect)
        return [pickle.loads(bytes(row.m)) for row in rows]


def alive_rows(rewrite: Rewrite, number: int, left_out: Iterable[bytes]) -> int:
    """How many rows of a group were not deleted when it was read."""
    files = rewrite.groups[number].files
    return sum(f.records - len(BitMap64.deserialize(gone)) for f, gone in zip(files, left_out, strict=True))


def whole(rewrite: Rewrite, result: RewriteResult) -> RewriteResult:
    """The result, if every row arrived. A row that got lost on its way must never be published as deleted: raises
    Transient."""
    if result.failure is not None:
        return result
    alive, written = alive_rows(rewrite, result.group, result.left_out), sum(file.records for file in result.files)
    if alive != written:
        raise Transient(
            f"{rewrite.table.name}: {alive} rows were to be sorted, and {written} arrived",
            hint="Nothing was published. Run it again; if it repeats, look for executors that were lost.",
            table=rewrite.table.name.text,
        )
    return result


def _inputs(number: int, group: Group, limits: SortLimits) -> list[_Input]:
    wanted = max(limits.sample, limits.sample_of_bucket * (8 * group.size // limits.bucket + group.outputs))
    share = min(1.0, wanted / max(1, sum(one.records for one in group.files)))
    measured = _measured(group.files, limits)
    return [_Input(number, place, file, share, place in measured) for place, file in enumerate(group.files)]


def _look_at(rewrite: Rewrite, one: _Input) -> _Seen:
    table, file, order = rewrite.table, one.file, order_of(rewrite)
    gone = DeletedRows().of(file, table.storage)
    narrow = _narrowed(table, order)
    forms_of, target = OrderForms(table.name, narrow.schema, order), arrow_schema(narrow.schema.fields)
    # The same rows every time, for the same file: a task that is repeated must not move the bounds.
    chance = np.random.default_rng(one.place)
    forms: list[list[pa.Array]] = []
    positions: list[Numbers] = []
    for rows, at in live_rows(narrow, file, gone, target):
        chosen = np.flatnonzero(chance.random(rows.num_rows) < one.share)
        found = forms_of.of(rows.take(pa.array(chosen)))
        forms.append([pc.binary_slice(form, 0, BOUND_BYTES_MAX) for form in found])
        positions.append(at[chosen])
    whole = tuple(pa.concat_arrays(columns) for columns in zip(*forms, strict=True))
    return _Seen(
        one.group,
        one.place,
        gone.serialize(),
        whole or tuple(pa.array([], pa.binary()) for _ in order.fields),
        np.concatenate([np.empty(0, np.int64), *positions]),
        _row_bytes(table, file) if one.is_measured else None,
    )


def _measured(files: Sequence[LiveFile], limits: SortLimits) -> Collection[int]:
    """The largest ones: rows of the same table are about as wide everywhere."""
    return sorted(range(len(files)), key=lambda place: -files[place].size)[: limits.measured_files]


def _row_bytes(table: RewrittenTable, file: LiveFile) -> float | None:
    target = arrow_schema(written_fields(table))
    rows, _ = next(live_rows(table, file, BitMap64(), target), (None, None))
    return None if rows is None or not rows.num_rows else rows.nbytes / rows.num_rows


def _scattered(
    rewrite: Rewrite, inputs: Sequence[_Input], ranges: Ranges, first: int, limits: SortLimits
) -> Iterator[pa.RecordBatch]:
    """Bodies of the rows of some files of a group, or of the failure that ends the whole group."""
    held, deleted = Held(rewrite), DeletedRows()
    try:
        for one in inputs:
            gone = deleted.of(one.file, rewrite.table.storage)
            for rows, positions in live_rows(rewrite.table, one.file, gone, held.schema):
                held.add(rows, one.place, positions)
                if held.size >= limits.packed:
                    yield from _packed(held, ranges, first)
        yield from _packed(held, ranges, first)
    except BadInput as error:
        yield _body(first, _FAILED, pa.py_buffer(error.message.encode()))


def _packed(held: Held, ranges: Ranges, first: int) -> Iterator[pa.RecordBatch]:
    rows = held.take(ranges.keys)
    if rows is None:
        return
    for bucket, start, end in ranges.cut(rows.columns[KEY]):
        sink = pa.BufferOutputStream()
        # Spark compresses what it shuffles, and spills.
        with pa.ipc.new_stream(sink, rows.schema) as out:
            out.write_batch(rows.slice(start, end - start))
        yield _body(first + ranges.range_of(bucket), bucket, sink.getvalue())


def _body(range_: int, bucket: int, body: Any) -> pa.RecordBatch:
    ends = pa.py_buffer(np.array([0, body.size], np.int32).tobytes())
    binary = pa.BinaryArray.from_buffers(pa.binary(), 1, [None, ends, body])
    return pa.RecordBatch.from_arrays(
        [pa.array([range_], pa.int32()), pa.array([bucket], pa.int32()), binary], list(_BODY)
    )


def _bodies(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int, Any]]:
    for batch in batches:
        numbers = (batch.column(name).to_pylist() for name in _BODY[:2])
        for range_, bucket, body in zip(*numbers, batch.column("body"), strict=True):
            yield range_, bucket, body.as_buffer()


def _gathered(
    rewrite: Rewrite, number: int, group: Group, range_: int, attempt: str, bodies: Iterator[tuple[int, int, Any]]
) -> Written:
    """One range, of bodies sorted by bucket; a failure comes before all of them."""
    first = next(bodies)
    if first[1] == _FAILED:
        for _ in bodies:
            pass
        return Written(number, range_, failure=bytes(first[2]).decode())

    def parts() -> Iterator[pa.RecordBatch]:
        for _, bucket in groupby(_again(first, bodies), key=lambda body: body[1]):
            rows = pa.concat_batches([batch for _, _, body in bucket for batch in pa.ipc.open_stream(body)])
            yield rows.take(sort_indices(rows.columns[KEY]))

    return write_range(rewrite, number, group, range_, attempt, parts())


def _again(first: tuple[int, int, Any], rest: Iterator[tuple[int, int, Any]]) -> Iterator[tuple[int, int, Any]]:
    yield first
    yield from rest


def _narrowed(table: RewrittenTable, order: Order) -> RewrittenTable:
    """The table as if it had the columns of the order alone."""
    wanted = {field.source_id for field in order.fields}
    fields = tuple(field for field in table.schema if wanted & _ids(field))
    # Without row ids, which nobody sorts by.
    return replace(table, schema=Schema(table.schema.schema_id, fields), format_version=2)


def _ids(field: Field) -> set[int]:
    inner = field.type.fields if isinstance(field.type, StructOf) else ()
    return {field.id}.union(*map(_ids, inner))
