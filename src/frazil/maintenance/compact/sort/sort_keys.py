"""Bytes that compare as the rows of a table do in a given order: one memory comparison tells which row comes first.

    row --each field of the order: column, transform--> its form --one after the other--> key

    form    null 00, or 02 if nulls come last           value 01, then
            numbers, dates, times, decimals             big-endian, sign turned: fewer first
            floats                                      likewise; -0.0 before 0.0, NaN after every number
            text, binary                                itself, 00 as 00 FF, and 00 00 at the end
            uuid, fixed                                 itself
            descending                                  every bit of the value turned

No form is the beginning of another one of its field, so what follows it is compared only between equal values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.data.pieces import contents
from frazil.data.transforms import bind_spec
from frazil.model.ids import TableName
from frazil.model.partition import PartitionField, PartitionSpec
from frazil.model.schema import Schema
from frazil.model.sort import Order

Bytes = NDArray[np.uint8]
_NULL_FIRST, _VALUE, _NULL_LAST = 0x00, 0x01, 0x02
_WORDS_MAX = 8


class OrderForms:
    """The forms of rows of one schema. Raises ConfigError for a field that the schema does not have."""

    def __init__(self, table: TableName, schema: Schema, order: Order) -> None:
        fields = [
            PartitionField(number, field.source_id, f"order {number}", field.transform)
            for number, field in enumerate(order.fields)
        ]
        self._bound = bind_spec(table, schema, PartitionSpec(0, tuple(fields)))
        self._order = order

    def of(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """A column of forms for each field; `rows` have the Arrow schema of the table's fields."""
        return [
            form(bound.values(rows), descending=field.descending, nulls_first=field.nulls_first)
            for bound, field in zip(self._bound, self._order.fields, strict=True)
        ]


def joined(forms: list[pa.Array]) -> pa.Array:
    """One key for the forms of each row."""
    return forms[0] if len(forms) == 1 else pc.binary_join_element_wise(*forms, pa.scalar(b"", pa.binary()))


def form(values: pa.Array, *, descending: bool = False, nulls_first: bool = True) -> pa.Array:
    """The forms of a column of simple values. Raises TypeError for nested ones."""
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    nulls = values.is_null().to_numpy(zero_copy_only=False)
    null = _NULL_FIRST if nulls_first else _NULL_LAST
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        return _of_variable(values, np.where(nulls, null, _VALUE).astype(np.uint8), descending)
    body = _fixed(values)
    if descending:
        body = ~body
    body[nulls] = 0
    rows = np.empty((len(values), body.shape[1] + 1), np.uint8)
    rows[:, 0] = np.where(nulls, null, _VALUE)
    rows[:, 1:] = body
    return binaries(rows)


def sort_indices(keys: pa.Array) -> pa.Array:
    """Where the keys lie in ascending order; equal ones in the order they have. No key begins another one."""
    words = _words(keys)
    if words is None:
        return pc.sort_indices(keys)
    names = [str(place) for place in range(len(words))]
    return pc.sort_indices(pa.table(words, names), sort_keys=[(name, "ascending") for name in names])


def _words(keys: pa.Array) -> list[pa.Array] | None:
    """Keys as columns of 8 bytes each, which are sorted several times as fast as binaries; None if they are long. What
    short ones are filled up with is never compared, since two keys differ before either of them ends."""
    if not len(keys):
        return None
    taken, offsets = contents(keys)
    lengths = np.diff(offsets)
    width = -(-int(lengths.max()) // 8) * 8
    if width > _WORDS_MAX * 8:
        return None
    rows = np.zeros((len(keys), width), np.uint8)
    if int(lengths.min()) == int(lengths.max()):
        rows[:, : lengths[0]] = taken.reshape(len(keys), lengths[0])
    else:
        rows[np.arange(width) < lengths[:, None]] = taken
    words = rows.view(">u8")
    return [pa.array(words[:, place].astype(np.uint64)) for place in range(words.shape[1])]


def binaries(rows: Bytes) -> pa.Array:
    """Each row of a matrix of bytes as one binary."""
    count, width = rows.shape
    ends = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(rows))]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def _of_variable(values: pa.Array, markers: Bytes, descending: bool) -> pa.Array:
    whole = pc.fill_null(values.cast(pa.binary()), b"")
    whole = pc.replace_substring(whole, pattern=b"\0", replacement=b"\0\xff")
    end = b"\0\0"
    if descending:
        whole, end = _turned(whole), b"\xff\xff"
    marker = binaries(markers.reshape(-1, 1))
    return pc.binary_join_element_wise(marker, whole, pa.scalar(end, pa.binary()), pa.scalar(b"", pa.binary()))


def _turned(values: pa.Array) -> pa.Array:
    _, ends, data = values.buffers()
    turned = ~np.frombuffer(data or b"", np.uint8)
    return pa.Array.from_buffers(pa.binary(), len(values), [None, ends, pa.py_buffer(turned)], offset=values.offset)


def _fixed(values: pa.Array) -> Bytes:
    """Big-endian bytes that compare as the values do, a row each; whatever where a value is null."""
    types, count = pa.types, len(values)
    if types.is_boolean(values.type):
        bits: Bytes = pc.fill_null(values, False).to_numpy(zero_copy_only=False).astype(np.uint8)
        return bits.reshape(count, 1)
    if types.is_floating(values.type):
        return _of_floats(_numbers(values, f"<f{values.type.bit_width // 8}"))
    if types.is_decimal(values.type):
        rows = _numbers(values, np.uint8, values.type.byte_width).reshape(count, values.type.byte_width)[:, ::-1].copy()
        rows[:, 0] ^= 0x80
        return rows
    if types.is_fixed_size_binary(values.type):
        return _numbers(values, np.uint8, values.type.byte_width).reshape(count, values.type.byte_width).copy()
    if types.is_integer(values.type) or types.is_temporal(values.type):
        rows = _big_endian(_numbers(values, f"<i{values.type.bit_width // 8}"))
        rows[:, 0] ^= 0x80
        return rows
    raise TypeError(f"values of {values.type} have no order")


def _of_floats(numbers: NDArray[Any]) -> Bytes:
    numbers = np.where(np.isnan(numbers), numbers.dtype.type(np.nan), numbers)
    # The NaN that numpy writes has no sign, whatever sign the one had that it stands for.
    bits = np.abs(numbers).view(f"<i{numbers.itemsize}")
    rows = _big_endian(bits)
    negative = np.signbit(numbers)
    rows[negative] = ~rows[negative]
    rows[~negative, 0] ^= 0x80
    # Turned, the bits of a negative number begin with the sign bit that its absolute value does not have.
    rows[negative, 0] &= 0x7F
    return rows


def _big_endian(numbers: NDArray[Any]) -> Bytes:
    swapped = np.ascontiguousarray(numbers.astype(numbers.dtype.newbyteorder(">")))
    return swapped.view(np.uint8).reshape(len(numbers), numbers.itemsize)


def _numbers(values: pa.Array, dtype: Any, width: int = 1) -> NDArray[Any]:
    """As they lie in memory."""
    data = values.buffers()[1]
    if data is None or not len(values):
        return np.zeros(len(values) * width, dtype)
    return np.frombuffer(data, dtype, count=(values.offset + len(values)) * width)[values.offset * width :]
