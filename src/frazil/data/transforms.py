"""Partition transforms on Arrow columns, a whole column at a time.

    column --identity | bucket[N] | truncate[W] | year | month | day | hour | void--> partition values, null for null
                        |
                        murmur3 of Iceberg's byte form of the value, positive, modulo N

A partition value decides which files a reader opens at all, so each one has to be the very value that iceberg-java
would compute: days and years before 1970 round down, a bucket is taken from the specification's bytes of a value (an
int hashes like a long, a decimal as its shortest big-endian number), texts are cut by code points.
Which types a transform takes is said in `model.partition`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.data.murmur3 import murmur3
from frazil.data.pieces import contents
from frazil.errors import ConfigError, DoesNotFit
from frazil.model.ids import TableName
from frazil.model.partition import PartitionField, PartitionSpec, Transform, result_type, takes
from frazil.model.schema import Field, Schema, StructOf, Type

_MICROS_OF_DAY = 86_400_000_000
_MICROS_OF_HOUR = 3_600_000_000
_POSITIVE = np.uint32(0x7FFF_FFFF)
_LIMB = np.uint64(32)
_LOW = np.uint64(0xFFFF_FFFF)

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


class BoundField:
    """One partition field, tied to its column in a schema's batches."""

    def __init__(
        self, table: TableName, field: PartitionField, path: Sequence[int], names: Sequence[str], source: Type
    ) -> None:
        self.field = field
        self.type = result_type(field.transform, source)
        self._table = table
        self._names = ".".join(names)
        self._path = list(path)
        self._source = source

    def values(self, rows: pa.RecordBatch) -> pa.Array:
        """The field's value in each row; `rows` have the Arrow schema of the table's fields. Raises DoesNotFit for a
        partition value that its type cannot hold."""
        column = rows.column(self._path[0])
        if len(self._path) > 1:
            # A struct that is null makes what lies in it null, whatever its child's buffer says.
            column = pc.struct_field(column, self._path[1:])
        try:
            return apply(self.field.transform, self._source, column)
        except OverflowError as error:
            raise DoesNotFit(
                f"{self._table}: column {self._names!r}: {error}",
                hint=f"Give the column more digits, or choose a smaller width than {self.field.transform}.",
                table=self._table.text,
                column=self._names,
            ) from error


def bind_spec(table: TableName, schema: Schema, spec: PartitionSpec) -> tuple[BoundField, ...]:
    """The spec's fields tied to the schema's columns. Raises ConfigError naming column, type and transform if one is
    gone or of a type its transform does not take."""
    bound = []
    for field in spec.fields:
        found = _find(schema.fields, field.source_id)
        if found is None:
            raise ConfigError(
                f"{table} is partitioned by {field.name!r} = {field.transform} of a column (field id "
                f"{field.source_id}) that it does not have as a plain column",
                hint=f"ALTER TABLE {table.sql} DROP PARTITION FIELD `{field.name}`, or bring the column back.",
                table=table.text,
                column=field.name,
                transform=field.transform.text,
            )
        path, names, type_ = found
        if not takes(field.transform, type_):
            raise ConfigError(
                f"{table}: partition field {field.name!r}: {field.transform} does not take {type_}, the type of "
                f"column {'.'.join(names)!r}",
                hint="Choose another transform or another column under `partition:`.",
                table=table.text,
                column=".".join(names),
                type=str(type_),
                transform=field.transform.text,
            )
        bound.append(BoundField(table, field, path, names, type_))
    return tuple(bound)


def apply(transform: Transform, source: Type, column: pa.Array) -> pa.Array:
    """The partition values of a column of the type `source`, in the Arrow type of `result_type`. Raises OverflowError
    for a decimal whose partition value has more digits than the type."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    match transform.name, transform.width:
        case "identity", _:
            return column
        case "void", _:
            return pa.nulls(len(column), column.type)
        case "bucket", int(width):
            return _with_nulls((hashes(column) & _POSITIVE).astype(np.int64) % width, column, pa.int32())
        case "truncate", int(width):
            return _truncate(column, width)
        case "hour", _:
            return _with_nulls(_integers(column) // _MICROS_OF_HOUR, column, pa.int32())
        case "day", _:
            return _with_nulls(_days(column), column, pa.date32())
        case "month" | "year" as unit, _:
            calendar = _days(column).astype("datetime64[D]").astype(f"datetime64[{unit[0].upper()}]")
            return _with_nulls(calendar.astype(np.int64), column, pa.int32())
        case _:
            raise AssertionError(f"{transform} does not take {source}")


def hashes(column: pa.Array) -> npt.NDArray[np.uint32]:
    """Iceberg's 32-bit hash of every value; whatever for a null."""
    types, count = pa.types, len(column)
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if count == 0:
        return np.zeros(0, np.uint32)
    if types.is_decimal(column.type):
        return murmur3(*_shortest(_fixed(column)))
    if types.is_fixed_size_binary(column.type):
        width = column.type.byte_width
        starts = np.arange(count, dtype=np.int64) * width
        return murmur3(_fixed(column).reshape(-1), starts, np.full(count, width, np.int64))
    if types.is_binary(column.type) or types.is_string(column.type):
        return murmur3(*_variable(column))
    starts = np.arange(count, dtype=np.int64) * 8
    return murmur3(_integers(column).astype("<i8").view(np.uint8), starts, np.full(count, 8, np.int64))


def _find(fields: Sequence[Field], field_id: int) -> tuple[list[int], list[str], Type] | None:
    """Where the field lies: places and names from the outside in. Only structs may lie around it."""
    for place, field in enumerate(fields):
        if field.id == field_id:
            return [place], [field.name], field.type
        if isinstance(field.type, StructOf) and (inner := _find(field.type.fields, field_id)):
            return [place, *inner[0]], [field.name, *inner[1]], inner[2]
    return None


def _truncate(column: pa.Array, width: int) -> pa.Array:
    types = pa.types
    if types.is_string(column.type):
        return pc.utf8_slice_codeunits(column, 0, width)
    if types.is_binary(column.type):
        return pc.binary_slice(column, 0, width)
    if types.is_decimal(column.type):
        return _truncate_decimal(column, width)
    integers = _values(column)
    # Below the smallest number of the type the result wraps round, as iceberg-java's does.
    if width > np.iinfo(integers.dtype).max:
        return _with_nulls(np.where(integers < 0, -width, 0).astype(integers.dtype), column, column.type)
    return _with_nulls(integers - integers % integers.dtype.type(width), column, column.type)


def _truncate_decimal(column: pa.Array, width: int) -> pa.Array:
    """v - (v mod W) on the unscaled 128-bit numbers, in halves of 64 bits."""
    if len(column) == 0:
        return column
    halves = _fixed(column).view("<u8").astype(np.uint64)
    low, high = halves[:, 0], halves[:, 1]
    modulus = np.uint64(width)
    rest = np.zeros(len(low), np.uint64)
    for limb in (high >> _LIMB, high & _LOW, low >> _LIMB, low & _LOW):
        rest = ((rest << _LIMB) | limb) % modulus
    negative = high >> np.uint64(63) == 1
    # The bits of a negative number say 2**128 too much.
    excess = np.uint64(pow(2, 128, width))
    rest = np.where(negative, (rest + modulus - excess) % modulus, rest)
    cut = np.empty_like(halves)
    cut[:, 0] = low - rest
    cut[:, 1] = high - (low < rest)
    validity = None if column.null_count == 0 else pc.is_valid(column).buffers()[1]
    result = pa.Array.from_buffers(column.type, len(column), [validity, pa.py_buffer(cut.astype("<u8").tobytes())])
    smallest = pc.min(result).as_py()
    if smallest is not None and len(smallest.as_tuple().digits) > column.type.precision:
        raise OverflowError(f"truncated to a multiple of {width} it becomes {smallest}, too long for {column.type}")
    return result


def _days(column: pa.Array) -> Int64s:
    integers = _integers(column)
    return integers if pa.types.is_date32(column.type) else integers // _MICROS_OF_DAY


def _integers(column: pa.Array) -> Int64s:
    return _values(column).astype(np.int64)


def _values(column: pa.Array) -> npt.NDArray[Any]:
    """The numbers of a column of integers, dates or times as they lie in memory; whatever where a value is null."""
    width = column.type.bit_width
    if len(column) == 0:
        return np.zeros(0, f"i{width // 8}")
    data = np.frombuffer(column.buffers()[1], dtype=f"<i{width // 8}", count=column.offset + len(column))
    return data[column.offset :]


def _fixed(column: pa.Array) -> Bytes:
    """The bytes of a column of decimals or fixed binaries, a row each."""
    width = column.type.byte_width
    buffer = column.buffers()[1]
    data = np.frombuffer(buffer, np.uint8, count=(column.offset + len(column)) * width)
    return data[column.offset * width :].reshape(len(column), width)


def _shortest(numbers: Bytes) -> tuple[Bytes, Int64s, Int64s]:
    """Little-endian two's complement numbers, a row each, as their shortest big-endian form: bytes, starts, lengths."""
    count, width = numbers.shape
    big = numbers[:, ::-1]
    sign = np.where(big[:, :1] & 0x80, 0xFF, 0).astype(np.uint8)
    # A leading byte may go if it repeats the sign and the next byte carries the sign too.
    spare = (big[:, :-1] == sign) & ((big[:, 1:] & 0x80) == (sign & 0x80))
    skipped = np.logical_and.accumulate(spare, axis=1).sum(axis=1).astype(np.int64)
    starts = np.arange(count, dtype=np.int64) * width + skipped
    return np.ascontiguousarray(big).reshape(-1), starts, width - skipped


def _variable(column: pa.Array) -> tuple[Bytes, Int64s, Int64s]:
    data, offsets = contents(column)
    return data, offsets[:-1], np.diff(offsets)


def _with_nulls(values: npt.NDArray[Any], column: pa.Array, type_: pa.DataType) -> pa.Array:
    mask = None if column.null_count == 0 else cast(Any, column.is_null().to_numpy(zero_copy_only=False))
    storage = pa.int32() if type_ in (pa.int32(), pa.date32()) else type_
    numbers = values.astype(np.int32) if storage == pa.int32() else values
    return pa.array(numbers, storage, mask=mask).cast(type_)
