"""Puts the parts of rows together again: net changes by (key, part) to net changes by key.

    sorted by key, part        primary UPSERT f1, UPSERT f2       a row, all of it known
                               primary UPSERT f1                  a row, f2's columns not known
                               UPSERT f2                          f2's columns known, the others not
                               DELETE f2                          f2's columns known to be NULL, the others not
                               primary DELETE                     a delete, whatever else there is

A part's upsert holds all of its columns. A part that is not there says nothing about its columns: they are what the
table's older row has, and NULL if there is none. A change that has nothing but deletes of parts other than the primary
one makes no new row: if the table has no row of that key, there was none to change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.errors import UnknownColumn
from frazil.ingest.write.column_mask import Bits
from frazil.ingest.write.fold import differ
from frazil.model.schema import PRIMARY
from frazil.model.write import TableTask

Places = NDArray[np.int64]
NOWHERE = -1


@dataclass(frozen=True, slots=True, eq=False)
class Assembled:
    """`rows` have every column of the decoder's, NULL where not `known` (a bit for each row and column). Those that do
    not `insert` change a row or nothing. `deleted` are the keys of rows that are gone."""

    rows: pa.RecordBatch
    known: Bits
    inserts: Bits
    deleted: pa.RecordBatch | None

    @property
    def whole(self) -> Bits:
        """Rows that need no older one."""
        found: Bits = self.known.all(axis=1) & self.inserts
        return found


class WholeKeys:
    """Hands change rows on such that all parts of a key come together. Holds the rows of one key."""

    def __init__(self) -> None:
        self._held: pa.RecordBatch | None = None

    def take(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        rows = rows if self._held is None else pa.concat_batches([self._held, rows])
        ends = np.flatnonzero(differ(rows, ("key",)))
        cut = int(ends[-1]) + 1 if len(ends) else 0
        self._held = rows.slice(cut)
        return rows.slice(0, cut)

    def rest(self) -> pa.RecordBatch | None:
        held, self._held = self._held, None
        return held


def assemble(
    task: TableTask,
    rows: pa.RecordBatch,
    is_upsert: Bits,
    decoded: pa.RecordBatch,
    keys: pa.RecordBatch | None,
    sent: Bits | None = None,
) -> Assembled:
    """Of change rows sorted by key and part, one for each key: each cell is what the newest change says that tells it.
    `decoded` has a row for each upsert, `sent` which cells came with it, and `keys` one for each delete, in their
    order; without `keys` nobody asks for what is deleted.

    Raises UnknownColumn for a value in a column that is not known to belong to the value's part.
    """
    if not rows.num_rows:
        return Assembled(decoded.slice(0, 0), np.zeros((0, decoded.num_columns), np.bool_), np.zeros(0, np.bool_), None)
    # Below zero lie the changes of the primary family that came without some of its cells.
    part = np.maximum(rows.column("part").to_numpy(zero_copy_only=False), PRIMARY)
    _refuse_strangers(task, part[is_upsert], decoded)
    groups = _Groups(rows)
    at = np.where(is_upsert, np.cumsum(is_upsert), np.cumsum(~is_upsert)) - 1
    primary = groups.newest(part == PRIMARY)
    gone = (primary != NOWHERE) & ~is_upsert[primary]
    inserts = groups.newest(is_upsert) != NOWHERE
    told = groups.newest(np.isin(part, [one.number for one in task.parts])) != NOWHERE
    kept = np.flatnonzero(~gone & told & (inserts | (keys is not None)))
    owner = {name: one.number for one in task.parts for name in one.columns}
    arrays, known = [], np.zeros((len(kept), decoded.num_columns), np.bool_)
    for number, name in enumerate(decoded.schema.names):
        values = decoded.column(number)
        if name in task.key:
            upsert, delete = groups.newest(is_upsert)[kept], groups.newest(~is_upsert)[kept]
            arrays.append(_key_values(values, None if keys is None else keys.column(name), upsert, delete, at))
            known[:, number] = True
        elif name in owner:
            tells = part == owner[name]
            if sent is not None:
                tells[is_upsert] &= sent[:, number]
            found = groups.newest(tells)[kept]
            is_there = found != NOWHERE
            is_value = is_there & is_upsert[found]
            arrays.append(values.take(pa.array(np.where(is_value, at[found], 0), mask=~is_value)))
            known[:, number] = is_there
        else:
            arrays.append(pa.nulls(len(kept), values.type))
    deleted = None if keys is None or not gone.any() else keys.take(pa.array(at[primary[gone]]))
    return Assembled(pa.RecordBatch.from_arrays(arrays, schema=decoded.schema), known, inserts[kept], deleted)


class _Groups:
    """The changes of each key, by their age."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        begins = np.concatenate([[False], differ(rows, ("key",))])
        self._of = np.cumsum(begins)
        self._count = int(self._of[-1]) + 1
        order = (rows.column(name).to_numpy(zero_copy_only=False) for name in ("op", "minor", "major"))
        self._oldest_first = np.lexsort((*order, self._of))

    def newest(self, chosen: Bits) -> Places:
        """For each group the newest of its chosen rows."""
        found = np.full(self._count, NOWHERE, np.int64)
        places = self._oldest_first[chosen[self._oldest_first]]
        found[self._of[places]] = places
        return found


def _key_values(
    of_upserts: pa.Array, of_deletes: pa.Array | None, upsert: Places, delete: Places, at: Places
) -> pa.Array:
    """Of an upsert of the group if it has one: both spell the key alike."""
    places = np.where(upsert != NOWHERE, at[upsert], len(of_upserts) + at[delete])
    both = of_upserts if of_deletes is None else pa.concat_arrays([of_upserts, of_deletes])
    return both.take(pa.array(places))


def _refuse_strangers(task: TableTask, part: NDArray[Any], decoded: pa.RecordBatch) -> None:
    owner = {name: one.number for one in task.parts for name in one.columns}
    strangers = []
    for name, values in zip(decoded.schema.names, decoded.columns, strict=True):
        if name in task.key or values.null_count == len(values):
            continue
        elsewhere = part != owner.get(name, NOWHERE)
        if elsewhere.any() and pc.is_valid(values).to_numpy(zero_copy_only=False)[elsewhere].any():
            strangers.append(name)
    if strangers:
        raise UnknownColumn(
            f"{task.name}: the column {strangers[0]!r} came with another column family than it is known to belong to",
            hint="The table's columns are looked at again. If it repeats, the same column name is in two families.",
            table=task.name.text,
            columns=strangers,
        )
