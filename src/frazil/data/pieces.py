"""The bytes of string and binary arrays, without a Python object for a value.

array --contents--> its bytes, and where in them each value begins and the last one ends
bytes --pieces----> the values that lie between places in them, as an array
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]


def contents(array: Any) -> tuple[Bytes, Places]:
    """Of an array with 32-bit offsets. A null is as long as what lies under it, usually nothing."""
    _, offset_buffer, data_buffer = array.buffers()
    if not len(array):
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    offsets = np.frombuffer(offset_buffer, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    data = np.frombuffer(data_buffer or b"", np.uint8)[offsets[0] : offsets[-1]]
    return data, offsets - offsets[0]


def pieces(data: Any, starts: Places, ends: Places, kind: Any = None, *, nulls: Any = None) -> Any:
    """Of a buffer of less than 2 GiB. `kind` is binary, or string for what is known to be UTF-8. `nulls` is a mask."""
    borders = np.empty(2 * len(starts), np.int32)
    borders[0::2], borders[1::2] = starts, ends
    # What lies between two of them is an element too, which nobody takes.
    buffers = [None, pa.py_buffer(borders), data if isinstance(data, pa.Buffer) else pa.py_buffer(data)]
    kind = kind or pa.binary()
    if not len(starts):
        return pa.array([], kind)
    whole = pa.Array.from_buffers(kind, len(borders) - 1, buffers)
    return whole.take(pa.array(np.arange(0, len(borders), 2), mask=nulls))
