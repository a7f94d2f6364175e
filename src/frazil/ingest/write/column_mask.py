"""Rows of which only some columns are known, as they lie in a file until older rows fill them.

    id  name  note   _frazil_known   _frazil_inserts
    1   a     -      id, name        true               note is what the older row has; NULL if there is none
    2   -     NULL   id, note        false              name is what the older row has; nothing if there is none

What is known is a bit for each column of the file, any subset of them for each row, whoever made it: a column family, a
value that a source left out because it did not change, a document of which only some fields were sent.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil.model.schema import BINARY, BOOLEAN, Field

# Beyond the ids that a table gives its columns, below those that Iceberg keeps for itself.
KNOWN = Field(2_147_400_001, "_frazil_known", BINARY, required=True)
INSERTS = Field(2_147_400_002, "_frazil_inserts", BOOLEAN, required=True)
Bits = NDArray[np.bool_]


def to_masks(known: Bits) -> pa.Array:
    """One mask for each row of bits."""
    packed = np.packbits(known, axis=1, bitorder="little")
    count, width = packed.shape
    fixed = pa.Array.from_buffers(pa.binary(width), count, [None, pa.py_buffer(np.ascontiguousarray(packed))])
    return fixed.cast(pa.binary())


def from_masks(masks: pa.Array, columns: int) -> Bits:
    """The bits of `columns` columns in each row. Raises ValueError for masks of another width."""
    width = -(-columns // 8)
    if not len(masks):
        return np.zeros((0, columns), np.bool_)
    fixed = masks.cast(pa.binary()).cast(pa.binary(width))
    data: NDArray[Any] = np.frombuffer(fixed.buffers()[1], np.uint8, len(fixed) * width, fixed.offset * width)
    bits = np.unpackbits(data.reshape(len(fixed), width), axis=1, bitorder="little")
    return bits[:, :columns].astype(np.bool_)
