"""Finds the rows that few equality deletes delete, without a shuffle.

    task: keys of all delete files --newest sequence of each--> in memory, bounded
          data files, one after the other: key columns --looked up, chunk by chunk--> positions, written

An epoch's deletes are few and the table's rows are many: sending every row through a shuffle to meet them would cost
more than the epoch. A task reads whole files, so what it finds of a file is all there is, and it writes it at once. If
the keys turn out to be too large for that, the task says so, and the join that spills does it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.model.conversion import Search

FILE_BYTES_MAX = 16 << 20
"""Of all delete files of a search, compressed: some millions of keys that are numbers."""
KEY_BYTES_MAX = 256 << 20
_CHUNK_ROWS, _CHUNK_BYTES = 1 << 20, 64 << 20
"""Rows that are looked up at once, of however many files: the keys are put into a hash table for each chunk."""


class TooLarge(Exception):
    """The keys do not fit into memory."""


def is_small(search: Search) -> bool:
    """Whether it is worth a try."""
    return sum(delete.size for delete in search.deletes) <= FILE_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Newest:
    """Each delete key once, with the newest sequence number that deletes it."""

    keys: pa.Array
    sequences: NDArray[np.int64]

    @classmethod
    def of(cls, batches: Iterable[pa.RecordBatch]) -> Newest:
        """Of columns k and s. Raises TooLarge."""
        kept, size = [], 0
        for batch in batches:
            kept.append(batch)
            size += batch.nbytes
            if size > KEY_BYTES_MAX:
                raise TooLarge
        if not kept:
            return cls(pa.array([], pa.binary()), np.empty(0, np.int64))
        newest = pa.Table.from_batches(kept).group_by("k").aggregate([("s", "max")])
        return cls(newest.column("k").combine_chunks(), newest.column("s_max").to_numpy())

    def deleted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Of rows with the columns k, n, f and p: f and p of those that a delete newer than their file names, in the
        order in which they come."""
        for chunk in _chunks(batches):
            places = pc.index_in(chunk.column("k"), value_set=self.keys)
            rows = chunk.select(["n", "f", "p"]).append_column("i", places).filter(pc.is_valid(places))
            is_newer = self.sequences[rows.column("i").to_numpy()] > rows.column("n").to_numpy()
            yield from rows.select(["f", "p"]).filter(pa.array(is_newer)).to_batches()


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _CHUNK_ROWS or size >= _CHUNK_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)
