"""Z-order: rows that are near each other in several columns at once lie near each other in the file.

    forms of column a --in which of so many equal parts of all rows?--> 0110
    forms of column b ------------------------------------------------> 1001    bits in turn: 01101001

Of each column the bits of a rank are taken, not those of the value: numbers that are all small, texts that all begin
alike and columns with few values then count as much as any other column does. What the ranks are is seen from a
sample of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil.maintenance.compact.sort.sort_keys import binaries, sort_indices

RANK_BITS = 12
Ranks = NDArray[np.uint32]
Cuts = tuple[bytes, ...]


def cuts_of(sample: pa.Array) -> Cuts:
    """Forms, ascending, that cut the rows of a column into parts of about the same size: 2**RANK_BITS at most."""
    count = len(sample)
    if not count:
        return ()
    ordered = sample.take(sort_indices(sample))
    places = np.unique(np.arange(1, 1 << RANK_BITS) * count // (1 << RANK_BITS))
    cuts = dict.fromkeys(ordered.take(pa.array(places)).to_pylist())
    # Nothing lies below the smallest one.
    cuts.pop(ordered[0].as_py(), None)
    return tuple(cuts)


def ranks(forms: pa.Array, cuts: Cuts) -> Ranks:
    """How many cuts are not beyond each form, spread over all bits that a rank has."""
    known = pa.array(cuts, pa.binary())
    # Cuts come before forms that equal them: the sort keeps the order of equal ones.
    order = sort_indices(pa.concat_arrays([known, forms])).to_numpy().astype(np.int64)
    passed = np.cumsum(order < len(cuts))
    found = np.empty(len(order), np.int64)
    found[order] = passed
    return (found[len(cuts) :] * (1 << RANK_BITS) // (len(cuts) + 1)).astype(np.uint32)


def interleave(columns: Sequence[Ranks], bits: int = RANK_BITS) -> pa.Array:
    """The highest bit of each column, then the next ones, as binaries."""
    width = -(-bits * len(columns) // 8)
    if width > 8:
        planes = [(column[:, None] >> np.arange(bits - 1, -1, -1, dtype=np.uint32)) & 1 for column in columns]
        whole = np.stack(planes, axis=2).astype(np.uint8).reshape(len(columns[0]), bits * len(columns))
        return binaries(np.packbits(whole, axis=1))
    # Few enough for one number: every rank's bits are spread once, and looked up from then on.
    ranks_, spread = np.arange(1 << bits, dtype=np.uint64), np.zeros(1 << bits, np.uint64)
    for bit in range(bits):
        spread |= (ranks_ >> np.uint64(bit) & np.uint64(1)) << np.uint64(bit * len(columns))
    found = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        found = (found << np.uint64(1)) | spread[column]
    found <<= np.uint64(64 - bits * len(columns))
    return binaries(found.astype(">u8").view(np.uint8).reshape(-1, 8)[:, :width])


def zvalues(forms: Sequence[pa.Array], cuts: Sequence[Cuts]) -> pa.Array:
    """One key for the forms of each row."""
    return interleave([ranks(column, own) for column, own in zip(forms, cuts, strict=True)])
