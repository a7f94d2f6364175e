"""Sorts the live rows of several data files into new ones that do not reach into each other, in one task.

    files of a group --live rows, with input and position--> Held --keys, sorted in Arrow--> ranges of about equal size
        each range --write_range--> files, and a row map that tells where each of their rows came from

What is too much for one task goes the way of `spark_sort`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil.data.arrow_types import arrow_schema
from frazil.data.deletes.deleted_rows import DeletedRows
from frazil.data.read.live_rows import live_rows, written_fields
from frazil.maintenance.compact.rewritten_files import data_file, open_writer
from frazil.maintenance.compact.sort.row_map import RowMapWriter
from frazil.maintenance.compact.sort.sort_keys import OrderForms, sort_indices
from frazil.maintenance.compact.sort.sort_ranges import SortKeys
from frazil.model.compaction import Group, Rewrite, RewriteResult, RowMap
from frazil.model.files import WrittenFile
from frazil.model.sort import Order, run_folder

KEY, INPUT, POSITION = -3, -2, -1
"""Where these columns lie behind those of the table."""
_PLACED = (pa.field("key", pa.binary()), pa.field("input", pa.int32()), pa.field("position", pa.int64()))
_SLICE = 1 << 14
Numbers = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SortLimits:
    """Bytes of files up to which a group is sorted by one task; Arrow bytes that such a task may hold, that are packed
    together for the shuffle, and that a bucket is to have; rows that a sample has, at least, and for each bucket."""

    one_task: int = 16 << 20
    held: int = 128 << 20
    packed: int = 16 << 20
    bucket: int = 16 << 20
    sample: int = 1 << 14
    sample_of_bucket: int = 64
    measured_files: int = 3


def sort_in_memory(
    rewrite: Rewrite, number: int, group: Group, attempt: str, limits: SortLimits
) -> RewriteResult | None:
    """Sorts one group; None if its rows are too many for one task. `attempt` is never used twice."""
    held, deleted, left_out = Held(rewrite), DeletedRows(), list[bytes]()
    for place, file in enumerate(group.files):
        gone = deleted.of(file, rewrite.table.storage)
        left_out.append(gone.serialize())
        for rows, positions in live_rows(rewrite.table, file, gone, held.schema):
            held.add(rows, place, positions)
            if held.size > limits.held:
                return None
    rows = held.take(SortKeys.seen(order_of(rewrite), held.forms()))
    count = 0 if rows is None else rows.num_rows
    ranges = min(group.outputs, count)
    written = []
    for range_ in range(ranges):
        start, end = count * range_ // ranges, count * (range_ + 1) // ranges
        assert rows is not None
        written.append(write_range(rewrite, number, group, range_, attempt, iter([rows.slice(start, end - start)])))
    return result_of(number, left_out, written)


class Held:
    """Rows that are sorted together."""

    def __init__(self, rewrite: Rewrite) -> None:
        table = rewrite.table
        self.schema = arrow_schema(written_fields(table))
        self.size = 0
        self._forms_of = OrderForms(table.name, table.schema, order_of(rewrite))
        self._rows: list[pa.RecordBatch] = []
        self._forms: list[list[pa.Array]] = []
        self._inputs: list[Numbers] = []
        self._positions: list[Numbers] = []

    def add(self, rows: pa.RecordBatch, place: int, positions: Numbers) -> None:
        forms = self._forms_of.of(rows)
        self._rows.append(rows)
        self._forms.append(forms)
        self._inputs.append(np.full(rows.num_rows, place, np.int32))
        self._positions.append(positions)
        self.size += rows.nbytes + sum(one.nbytes for one in forms)

    def forms(self) -> list[pa.Array]:
        """Of all rows, for each field of the order."""
        return [pa.concat_arrays(columns) for columns in zip(*self._forms, strict=True)]

    def take(self, keys: SortKeys) -> pa.RecordBatch | None:
        """All rows in order, with key, input and position; nothing is held then."""
        if not self.size:
            return None
        inputs, positions = np.concatenate(self._inputs), np.concatenate(self._positions)
        key = keys.of(self.forms(), inputs, positions)
        rows = pa.concat_batches(self._rows)
        placed = pa.RecordBatch.from_arrays(
            [*rows.columns, key, pa.array(inputs), pa.array(positions)], schema=_placed(self.schema)
        )
        self._rows, self._forms, self._inputs, self._positions, self.size = [], [], [], [], 0
        return placed.take(sort_indices(key))


@dataclass(frozen=True, slots=True)
class Written:
    """What came of one range of a group."""

    group: int
    range: int
    files: tuple[WrittenFile, ...] = ()
    row_map: RowMap | None = None
    failure: str | None = None


def write_range(
    rewrite: Rewrite, number: int, group: Group, range_: int, attempt: str, parts: Iterator[pa.RecordBatch]
) -> Written:
    """Rows of one range, in order, with key, input and position."""
    folder = run_folder(rewrite.folder, order_of(rewrite), number, group.outputs)
    writer = open_writer(rewrite, group, lambda place: f"{folder}/data-{attempt}-{range_}-{place}.parquet")
    row_map = RowMapWriter(f"{folder}/trail-{attempt}-{range_}.parquet", rewrite.parquet, rewrite.table.storage)
    try:
        for rows in parts:
            bare = pa.RecordBatch.from_arrays(rows.columns[:KEY], schema=writer.schema)
            for start in range(0, bare.num_rows, _SLICE):
                writer.write(bare.slice(start, _SLICE))
            row_map.add(rows.columns[INPUT].to_numpy(), rows.columns[POSITION].to_numpy())
        order_id, place = order_of(rewrite).order_id, group.files[0].place
        files = tuple(data_file(place, closed, order_id) for closed in writer.close())
        return Written(number, range_, files, row_map.close(len(files)))
    except BaseException:
        writer.abandon()
        row_map.abandon()
        raise


def result_of(number: int, left_out: Sequence[bytes], written: Iterable[Written]) -> RewriteResult:
    ranges = sorted(written, key=lambda one: one.range)
    failure = next((one.failure for one in ranges if one.failure is not None), None)
    if failure is not None:
        return RewriteResult(number, failure=failure)
    files = tuple(file for one in ranges for file in one.files)
    row_maps = tuple(one.row_map for one in ranges if one.row_map is not None)
    return RewriteResult(number, files, tuple(left_out), row_maps=row_maps)


def _placed(schema: pa.Schema) -> pa.Schema:
    return pa.schema([*schema, *_PLACED])


def order_of(rewrite: Rewrite) -> Order:
    """What rows are sorted by."""
    if rewrite.order is None:
        raise AssertionError("rows without an order are put together, not sorted")
    return rewrite.order
