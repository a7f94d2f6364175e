"""Folds sorted changes to one net change per key: the last position wins.

    sorted rows     key  position  op           kept
                    a    10        UPSERT
                    a    12        UPSERT   ->  a 12 UPSERT
                    b    11        DELETE
                    b    11        UPSERT   ->  b 11 UPSERT     at one position an upsert outranks a delete
                    b    11        UPSERT       (an at-least-once feed's duplicate vanishes the same way)

In a sorted stream the last row of a key is the one whose successor has another key, so one comparison of the
columns with themselves, shifted by a row, finds all of them. Only the very last row of a chunk has to wait for
the next chunk: memory holds one chunk, however long the stream or the run of one key is.

A changelog keeps each (key, position), so there the position takes part in the comparison. A main table beside it folds
what is left once more, after decoding, see `target_writer`. Rows of a DataFrame are folded by `row_versions`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.errors import BadInput
from frazil.ingest.write.change_rows import as_change_rows
from frazil.ingest.write.row_order import change_order
from frazil.model.arrow import CHANGE_SCHEMA
from frazil.model.change import ROW_COLUMNS

# Spark hands over batches of some ten thousand rows. Decoding and writing like larger ones, and a chunk of wide
# rows must stay small in bytes too.
CHUNK_ROWS = 1 << 16
CHUNK_BYTES = 16 << 20

Marks = np.ndarray[Any, np.dtype[np.bool_]]
Differs = Callable[[pa.RecordBatch], Marks]


def fold_changes(
    batches: Iterable[pa.RecordBatch], changelogs: Collection[int] = ()
) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """(table, epoch, rows) of TRAVEL batches sorted by SORT_COLUMNS, across their boundaries.

    Consecutive results may belong to one (table, epoch); a pair never comes back after another one. Tables in
    `changelogs` keep every (key, position). Raises BadInput for a change without a key (H20).
    """
    logs = pa.array(sorted(changelogs), pa.int32())

    def differs(rows: pa.RecordBatch) -> Marks:
        if rows.column("key").null_count:
            raise BadInput(
                "a change arrived without a key",
                hint="Every change needs a key. See that the source's reader reports rows without one as bad input.",
                table=rows.column("table")[0].as_py(),
            )
        other = differ(rows, ROW_COLUMNS)
        if len(logs):
            in_changelog = pc.is_in(rows.column("table"), value_set=logs).to_numpy(zero_copy_only=False)[:-1]
            if in_changelog.any():
                other |= in_changelog & differ(rows, ("major", "minor"))
        return other

    for rows in keep_last((as_change_rows(batch) for batch in batches), differs):
        yield from _runs(rows)


def keep_last(batches: Iterable[pa.RecordBatch], differs: Differs) -> Iterator[pa.RecordBatch]:
    """Keeps the rows that differ from their successor, and the last one.

    `differs` tells for each row but the last whether the next one is another. Holds one chunk and one row.
    """
    held: pa.RecordBatch | None = None
    for chunk in _chunks(batches):
        rows = chunk if held is None else pa.concat_batches([held, chunk])
        keep = differs(rows)
        last = rows.num_rows - 1
        kept = rows.slice(0, last)
        if not keep.all():
            kept = kept.filter(pa.array(keep))
        held = rows.slice(last)
        if kept.num_rows:
            yield kept
    if held is not None:
        yield held


def sort_changes(rows: pa.Table, *, newest: bool = False) -> pa.RecordBatch:
    """A whole table of change rows in the order of SORT_COLUMNS. With `newest` versions that a fold without changelogs
    would drop may be missing already.

    Strings order by their UTF-8 bytes here as in Spark, so both roads fold alike. Raises BadInput for rows that do not
    fit into one batch: two gigabytes of payloads.
    """
    whole = rows.combine_chunks().to_batches()
    if not whole:
        return pa.RecordBatch.from_pylist([], schema=CHANGE_SCHEMA)
    if len(whole) > 1:
        raise BadInput(
            f"{rows.num_rows:,} changes of {rows.nbytes >> 20:,} MB are too much to be sorted at once",
            hint="They lie in few compressed bytes and look like a small epoch: lower limits.small_epoch_bytes.",
        )
    batch = as_change_rows(whole[0])
    return batch.take(change_order(batch, newest=newest))


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Joins small batches until a chunk is worth its overhead."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= CHUNK_ROWS or size >= CHUNK_BYTES:
            yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)


def differ(rows: pa.RecordBatch, columns: Sequence[str]) -> Marks:
    """For each row but the last, whether the next one has other values in these columns: others to Spark, which sorts
    NaN beside NaN and takes both zeros for one."""
    count = rows.num_rows - 1
    found = np.zeros(count, dtype=bool)
    for name in columns:
        values = _comparable(rows.column(name))
        other = pc.not_equal(values.slice(0, count), values.slice(1))
        if other.null_count:
            absent = values.is_null()
            other = pc.coalesce(other, pc.not_equal(absent.slice(0, count), absent.slice(1)))
        found |= other.to_numpy(zero_copy_only=False)
    return found


def _comparable(values: pa.Array) -> pa.Array:
    if pa.types.is_nested(values.type):
        return pa.array([None if value is None else repr(value) for value in values.to_pylist()], pa.string())
    if pa.types.is_floating(values.type):
        nan = pa.scalar(float("nan"), values.type)
        one_each = pc.if_else(pc.is_nan(values), nan, pc.add(values, pa.scalar(0.0, values.type)))
        return one_each.view(pa.int64() if values.type == pa.float64() else pa.int32())
    return values


def _runs(rows: pa.RecordBatch) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    starts = [0, *(np.flatnonzero(differ(rows, ("table", "epoch"))) + 1).tolist(), rows.num_rows]
    for start, end in pairwise(starts):
        run = rows.slice(start, end - start)
        yield run.column("table")[0].as_py(), run.column("epoch")[0].as_py(), run
