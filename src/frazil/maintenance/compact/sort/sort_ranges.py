"""Where sorted rows are cut: into ranges, one for each file to be written, and these into buckets that fit into memory.

    sample of a group: forms, input, position --keys, sorted--> every so many of them is a bound

    bound        k1     k2     k3     k4     k5           a bucket is sorted in memory, a range written by one task
    bucket    0  |  1   |  2   |  3   |  4   |  5
    range     0         |  1          |  2

A key ends with the row's input and position. So no two rows have the same key, rows with equal values can be cut apart
wherever it is needed, and whoever sorts them gets the same order every time (H42).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.maintenance.compact.sort.sort_keys import binaries, joined, sort_indices
from frazil.maintenance.compact.sort.zorder import Cuts, cuts_of, zvalues
from frazil.model.sort import Order

# Longer ones are cut: a bound need not be the key of a row.
BOUND_BYTES_MAX = 1024


@dataclass(frozen=True, slots=True)
class SortKeys:
    """Makes the keys of a group's rows. `cuts` are what the ranks of an interleaved order are counted by."""

    order: Order
    cuts: tuple[Cuts, ...] = ()

    @classmethod
    def seen(cls, order: Order, forms: Sequence[pa.Array]) -> SortKeys:
        """From the forms of a sample, or of all rows."""
        return cls(order, tuple(map(cuts_of, forms)) if order.interleaved else ())

    def of(self, forms: Sequence[pa.Array], inputs: NDArray[Any], positions: NDArray[Any]) -> pa.Array:
        values = zvalues(forms, self.cuts) if self.order.interleaved else joined(list(forms))
        tail = np.empty((len(values), 12), np.uint8)
        tail[:, :4] = np.ascontiguousarray(inputs.astype(">u4")).view(np.uint8).reshape(-1, 4)
        tail[:, 4:] = np.ascontiguousarray(positions.astype(">u8")).view(np.uint8).reshape(-1, 8)
        return pc.binary_join_element_wise(values, binaries(tail), pa.scalar(b"", pa.binary()))


@dataclass(frozen=True, slots=True)
class Ranges:
    """Of one group. Between two neighbours of `bounds`, ascending, lies a bucket; `starts` are the first buckets of all
    ranges but the first. Picklable."""

    keys: SortKeys
    bounds: tuple[bytes, ...] = ()
    starts: tuple[int, ...] = ()

    @classmethod
    def of(cls, keys: SortKeys, sample: pa.Array, ranges: int, buckets: int) -> Ranges:
        """As many ranges, and at least as many buckets, as wanted; fewer if the sample has no more keys. `sample` are
        keys of rows that were chosen at random."""
        whole = max(ranges, buckets)
        each = -(-whole // ranges)
        ordered = sample.take(sort_indices(sample))
        places = [len(ordered) * number // (ranges * each) for number in range(1, ranges * each)]
        bounds, starts = list[bytes](), list[int]()
        for number, place in enumerate(places, 1):
            if place >= len(ordered):
                continue
            bound = ordered[place].as_py()[:BOUND_BYTES_MAX]
            if not bounds or bound > bounds[-1]:
                bounds.append(bound)
            if number % each == 0 and (not starts or len(bounds) > starts[-1]):
                starts.append(len(bounds))
        return cls(keys, tuple(bounds), tuple(starts))

    @property
    def count(self) -> int:
        return len(self.starts) + 1

    def range_of(self, bucket: int) -> int:
        return sum(start <= bucket for start in self.starts)

    def cut(self, ordered: pa.Array) -> Iterator[tuple[int, int, int]]:
        """Of keys in order: bucket, first row, end. Buckets without rows are left out."""
        start = 0
        for bucket, bound in enumerate((*self.bounds, None)):
            end = len(ordered) if bound is None else bisect_left(ordered, bound, lo=start, key=_bytes)
            if end > start:
                yield bucket, start, end
            start = end


def _bytes(key: pa.Scalar) -> bytes:
    value: bytes = key.as_py()
    return value
