"""Finds the rows of a batch that cannot be taken, by halving.

    1000 rows, taken at once          the usual case costs nothing more
    an error?  500 + 500              the good half is taken at once, the other is halved again
               ... 1                  the row, and what is wrong with it

One bad row among n costs about 2 log n tries, and good rows keep the fast road of whole columns.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from frazil.errors import BadInput, UnknownColumn


def bad_rows(rows: pa.RecordBatch, take: Callable[[pa.RecordBatch], object]) -> list[tuple[int, BadInput]]:
    """The places of rows that `take` refuses, ascending, each with its error.

    `take` must refuse a batch if and only if it refuses one of its rows, and leave no trace of either. An
    UnknownColumn is no property of a row: the schema may learn it, and so it is raised, like everything that is not
    BadInput.
    """
    found: list[tuple[int, BadInput]] = []
    waiting = [(0, rows.num_rows)]
    while waiting:
        start, end = waiting.pop()
        try:
            if end > start:
                take(rows.slice(start, end - start))
        except UnknownColumn:
            raise
        except BadInput as error:
            if end - start == 1:
                found.append((start, error))
            else:
                middle = (start + end) // 2
                waiting += [(middle, end), (start, middle)]
    return found
