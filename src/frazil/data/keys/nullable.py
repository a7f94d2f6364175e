"""Keys as equality deletes have them: of any column, NULL and floating point numbers among them.

    one row, columns a, b  -->  is a NULL? (1 byte) | is b NULL? | bytes of a | bytes of b | place (4 bytes)

A NULL equals a NULL, as Iceberg's specification has it, and all NaN are one; 0.0 and -0.0 are two, as iceberg-java has
it. The bytes of values are those of `keys`: the same whatever type a file had before the column was widened. The place
says which deletes the key belongs to, so that keys of different columns or partitions never meet. It comes last:
sorting looks at the first bytes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.data.keys.codec import join_parts, key_part
from frazil.model.schema import DOUBLE, FLOAT, Field

_NO_DELIMITER = pa.scalar(b"", pa.large_binary())
_PLACE_BYTES = 4


def nullable_keys(fields: Sequence[Field], columns: Sequence[pa.Array]) -> pa.Array:
    """The bytes of every row's key, without a place. Raises BadInput for values that are not of the column's type."""
    nulls = [column.is_null().to_numpy(zero_copy_only=False) for column in columns]
    flags = np.ascontiguousarray(np.stack(nulls, axis=1).astype(np.uint8))
    parts = [_part(field, column, null) for field, column, null in zip(fields, columns, nulls, strict=True)]
    # Where parts lie one after the other, those of variable width say where they end.
    return join_parts([flags, *parts])


def at_place(keys: pa.Array, place: int) -> pa.Array:
    """The keys of these deletes or for these deletes."""
    suffix = pa.scalar(place.to_bytes(_PLACE_BYTES, "little"), pa.large_binary())
    return pc.binary_join_element_wise(keys, suffix, _NO_DELIMITER).cast(pa.binary())


def _part(field: Field, column: pa.Array, null: NDArray[np.bool_]) -> Any:
    """What is below a NULL must not tell two NULLs apart."""
    valid = column.drop_null() if column.null_count else column
    part = _number_bits(valid) if field.type in (FLOAT, DOUBLE) else key_part(field, valid)
    if not column.null_count:
        return part
    if isinstance(part, np.ndarray):
        rows = np.zeros((len(column), part.shape[1]), np.uint8)
        rows[~null] = part
        return rows
    places = np.full(len(column), -1, np.int64)
    places[~null] = np.arange(len(part))
    return part.take(pa.array(places, mask=null)).fill_null(b"")


def _number_bits(numbers: pa.Array) -> NDArray[np.uint8]:
    values = numbers.cast(pa.float64()).to_numpy(zero_copy_only=False).copy()
    values[np.isnan(values)] = np.nan
    little: NDArray[Any] = np.ascontiguousarray(values, np.dtype("<f8"))
    return little.view(np.uint8).reshape(len(values), 8)
