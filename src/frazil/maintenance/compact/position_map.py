"""Where a row went when files were put together: arithmetic, and nothing but that.

    inputs    a: 4 rows, {1} left out    b: 3 rows, none left out        outputs    x: 5 rows    y: 1 row
    (b, 1) --alive before b: 3--> 3 + 1, less what was left out of b before 1: 0 = row 4 of all --> (x, 4)

Rows are written in the order of files and positions, so counts alone tell the place.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from frazil.data.deletes.vectors import to_bitmap, to_positions

Numbers = NDArray[np.int64]


class PositionMap:
    """The rows of one group. `records` and `left_out` are by input, `written` are the rows of each output."""

    def __init__(self, records: Sequence[int], left_out: Sequence[BitMap64], written: Sequence[int]) -> None:
        alive = [count - len(gone) for count, gone in zip(records, left_out, strict=True)]
        if sum(alive) != sum(written):
            raise ValueError(f"{sum(alive)} rows were alive and {sum(written)} were written")
        self._records = tuple(records)
        self._left_out = tuple(left_out)
        self._input_starts = np.concatenate([[0], np.cumsum(alive, dtype=np.int64)])
        self._output_starts = np.concatenate([[0], np.cumsum(written, dtype=np.int64)])

    def follow(self, deleted: Sequence[BitMap64]) -> dict[int, BitMap64]:
        """The rows of each output, by its number, that these rows of the inputs became. Rows that were left out are
        nowhere. Raises ValueError for a position beyond its file."""
        found = [self._rows_of_all(number, bitmap) for number, bitmap in enumerate(deleted)]
        rows = np.concatenate(found) if found else np.empty(0, np.int64)
        outputs = np.searchsorted(self._output_starts, rows, side="right") - 1
        return {
            int(number): to_bitmap(rows[outputs == number] - self._output_starts[number])
            for number in np.unique(outputs)
        }

    def _rows_of_all(self, number: int, deleted: BitMap64) -> Numbers:
        gone = self._left_out[number]
        positions, left_out = to_positions(deleted - gone), to_positions(gone)
        if len(positions) and positions[-1] >= self._records[number]:
            raise ValueError(f"input {number} has {self._records[number]} rows, and none at {positions[-1]}")
        rows: Numbers = self._input_starts[number] + positions - np.searchsorted(left_out, positions)
        return rows
