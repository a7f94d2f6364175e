"""The order of change rows, found with numbers instead of texts where keys are short.

    key      [2365943]   [71]
    as       0x5b32333635393433, 0x5d00...    its first eight bytes, and the next eight: they order as the text does

Most keys differ in their first bytes, so those alone are sorted, and only rows that tie are looked at more closely.
Arrow compares texts instead, which takes five times as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.data.pieces import contents
from frazil.model.change import ROW_COLUMNS, SORT_COLUMNS

_WORD = 8
_KEY_BYTES_MAX = 2 * _WORD
_ALL_BITS = np.uint64(0xFFFF_FFFF_FFFF_FFFF)

Numbers = npt.NDArray[Any]


def change_order(rows: pa.RecordBatch, *, newest: bool = False) -> pa.Array:
    """Where each row of a sorted batch is now: by SORT_COLUMNS, texts by their UTF-8 bytes, nulls last. With `newest`
    rows that another one outranks, the next of the same table, epoch, key and part, may be left out."""
    columns = {name: rows.column(name) for name in SORT_COLUMNS}
    words = None if any(column.null_count for column in columns.values()) else _key_words(columns["key"])
    if words is None:
        return pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in SORT_COLUMNS])
    numbers = {name: words if name == "key" else [column.to_numpy()] for name, column in columns.items()}
    varying = {name: [one for one in some if _varies(one)] for name, some in numbers.items()}
    order = _order([one for some in varying.values() for one in some], rows.num_rows)
    if newest:
        order = order[_last_of_run([one for name in ROW_COLUMNS for one in varying[name]], order)]
    return pa.array(order)


def _varies(values: Numbers) -> bool:
    return bool(len(values) and (values != values[0]).any())


def _last_of_run(columns: list[Numbers], order: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether the next row in order has other values."""
    last = np.ones(len(order), np.bool_)
    alike = np.arange(len(order) - 1)
    for column in columns:
        alike = alike[column[order[alike]] == column[order[alike + 1]]]
    last[alike] = False
    return last


def _order(columns: list[Numbers], count: int) -> npt.NDArray[np.int64]:
    """Rows by the first column, those that tie by the others, and at last by where they are."""
    if not columns:
        return np.arange(count)
    order = np.argsort(columns[0])
    first = columns[0][order]
    same = first[1:] == first[:-1]
    if not same.any():
        return order
    ties = np.zeros(count, np.bool_)
    ties[1:] |= same
    ties[:-1] |= same
    tied = order[ties]
    order[ties] = tied[np.lexsort([tied, *(column[tied] for column in reversed(columns))])]
    return order


def _key_words(keys: pa.StringArray) -> list[Numbers] | None:
    """Numbers that order as the keys do; None if there are longer ones, or one with a zero byte."""
    data, offsets = contents(keys)
    lengths = np.diff(offsets)
    longest = int(lengths.max(initial=0))
    if longest > _KEY_BYTES_MAX or not data.all():
        return None
    padded = np.concatenate([data, np.zeros(_KEY_BYTES_MAX, np.uint8)])
    # A word may start at any byte, which the stride of one byte allows for.
    words: Any = np.ndarray((len(padded) - _WORD + 1,), ">u8", buffer=padded.data, strides=(1,))
    return [_cut(words[offsets[:-1] + at], lengths - at) for at in range(0, max(longest, 1), _WORD)]


def _cut(words: Numbers, lengths: Numbers) -> Numbers:
    """The first bytes of each word, and zeros behind them."""
    missing = 8 * (_WORD - np.clip(lengths, 0, _WORD))
    mask = np.where(missing == 64, np.uint64(0), _ALL_BITS << np.minimum(missing, 63).astype(np.uint64))
    return np.asarray(words.astype(np.uint64) & mask)
