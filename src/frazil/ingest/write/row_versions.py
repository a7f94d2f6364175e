"""Folds sorted rows of a DataFrame, and refuses those that nothing puts in order.

    sorted rows     key  order  row                kept
                    a    1      x, y               (older than what follows: nobody needs to know which came first)
                    a    2      z, z           ->  a 2 z           the same row, delivered twice
                    b    1      delete, x      ->  b 1 x           at one order an upsert outranks a delete
                    c    1      x, y           ->  BadInput        either of them could be the newest

Spark sorts rows of equal key and order as they come, so a winner among them would be another one in every try.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.errors import BadInput
from frazil.ingest.write.fold import Marks, differ, keep_last
from frazil.model.write import DeleteMode, TableTask

_SHOWN = 200
Places = np.ndarray[Any, np.dtype[np.intp]]


@dataclass(frozen=True, slots=True)
class ColumnChanges:
    """How a DataFrame of typed columns tells its changes: which columns order the versions of a key, which one
    tells the operation, and which of its values (as text) mean a delete. Anything else is an upsert."""

    order: tuple[str, ...] = ()
    op: str | None = None
    delete_values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.op) != bool(self.delete_values):
            raise ValueError("an op column and the values that mean a delete belong together")

    def renamed(self, names: Mapping[str, str]) -> ColumnChanges:
        """The same, under what a table calls the columns."""
        order = tuple(names.get(name, name) for name in self.order)
        return ColumnChanges(order, None if self.op is None else names.get(self.op, self.op), self.delete_values)

    @property
    def serving(self) -> frozenset[str]:
        """Columns that serve the fold; a table need not have them."""
        return frozenset(self.order) | ({self.op} if self.op else frozenset())

    def is_upsert(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        if self.op is None:
            return pa.repeat(True, rows.num_rows)
        values = pa.array(self.delete_values, pa.string())
        return pc.invert(pc.is_in(rows.column(self.op).cast(pa.string()), value_set=values))


def fold_versions(
    batches: Iterable[pa.RecordBatch], task: TableTask, changes: ColumnChanges
) -> Iterator[pa.RecordBatch]:
    """The last row of each key, of each key and order for a changelog; every row of one that has no order.

    Rows come sorted by the key, then `changes.order`, then deletes before upserts. Raises BadInput if different upserts
    have the same key and order and one of them would be kept.
    """
    changelog = task.mode is DeleteMode.APPEND_ONLY
    if changelog and not changes.order:
        yield from batches
        return
    ties = _Ties(task, changes)
    yield from keep_last(batches, ties.folds_each_version if changelog else ties.folds_each_key)
    ties.end()


class _Ties:
    """Looks at rows as they are folded. `_tied` tells of rows of the newest version so far."""

    def __init__(self, task: TableTask, changes: ColumnChanges) -> None:
        self._task, self._changes = task, changes
        self._version = (*task.key, *changes.order)
        self._stored = frozenset(field.name for field in task.schema) - set(self._version)
        self._tied: BadInput | None = None

    def folds_each_version(self, rows: pa.RecordBatch) -> Marks:
        new_version = differ(rows, self._version)
        tied = self._between(rows, new_version)
        if len(tied):
            raise self._error(rows, int(tied[0]))
        return new_version

    def folds_each_key(self, rows: pa.RecordBatch) -> Marks:
        new_key, new_version = differ(rows, self._task.key), differ(rows, self._version)
        ends = np.flatnonzero(new_version)
        if self._tied is not None and len(ends):
            if new_key[ends[0]]:
                raise self._tied
            self._tied = None
        tied = self._between(rows, new_version)
        if len(tied):
            end_of = np.searchsorted(ends, tied)
            ended = end_of < len(ends)
            newest = tied[ended][new_key[ends[end_of[ended]]]]
            if len(newest):
                raise self._error(rows, int(newest[0]))
            if not ended.all():
                self._tied = self._error(rows, int(tied[-1]))
        return new_key

    def end(self) -> None:
        """Nothing follows the last row."""
        if self._tied is not None:
            raise self._tied

    def _between(self, rows: pa.RecordBatch, new_version: Marks) -> Places:
        """Places of upserts that are followed by another one of the same version."""
        places = np.flatnonzero(~new_version)
        if not len(places):
            return places
        pairs = rows.take(pa.array(np.stack([places, places + 1], axis=1).ravel()))
        upserts = self._changes.is_upsert(pairs).to_numpy(zero_copy_only=False)
        other = differ(_exact(pairs), [name for name in pairs.schema.names if name in self._stored])
        tied: Places = places[other[::2] & upserts[::2] & upserts[1::2]]
        return tied

    def _error(self, rows: pa.RecordBatch, place: int) -> BadInput:
        one, other = rows.slice(place, 2).to_pylist()
        key, order = ({name: one[name] for name in names} for names in (self._task.key, self._changes.order))
        columns = [name for name in one if name in self._stored and repr(one[name]) != repr(other[name])]
        return BadInput(
            f"{self._task.name}: two rows of key {_shown(key)} have the same order, {_shown(order)}, and differ in "
            f"{', '.join(columns)}: nothing says which one is the newest",
            hint="Add a column to order_by that tells them apart (a message's offset, a sequence number), or keep one "
            "of them before upsert_stream. Nothing of the batch was published.",
            table=self._task.name.text,
            key=_shown(key),
            columns=columns,
        )


def _exact(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Numbers as their bits: rows that are the same have the same bits, in NaN and in zero too."""
    widths = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}
    arrays = [column.view(widths[column.type]) if column.type in widths else column for column in rows.columns]
    return pa.RecordBatch.from_arrays(arrays, names=rows.schema.names)


def _shown(values: dict[str, object]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())[:_SHOWN]
