"""Keys of any type, canonical and exact, many at a time.

    one column of int, long, date, time, timestamp(tz)    hash = value with its sign bit flipped; it is the key itself
    anything else      exact = bytes of the parts, in key order     hash = key_hash(exact)

    part            bytes                                   the same whether the file was written as
    integers, times 8, little-endian                        int or long; date where the table now has timestamp
    decimal         16, the unscaled value                  decimal(8,2) or decimal(12,2)
    uuid, fixed     as they are                             uuid or fixed binary
    boolean         1
    string, binary  as they are; in a composite key         string, large_string, string_view, dictionary
                    with their length in 4 bytes before

The bytes of two keys are equal exactly if the keys are: parts of fixed width cannot shift, and those of variable
width say where they end. Where `exact` exists, no answer rests on the hash alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.data.keys import hash as key_hash
from frazil.data.keys.hash import Hashes
from frazil.errors import BadInput, ConfigError
from frazil.model.schema import Decimal, Field, Primitive, Type

_SIGN = np.uint64(1 << 63)
_DECIMAL_BYTES = 16
_DECIMAL_DIGITS = 38
_PART_BYTES_MAX = (1 << 32) - 1
_NO_DELIMITER = pa.scalar(b"", pa.large_binary())


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """Many keys. `exact` is None if the hash is the key; else fixed-size or large binary, in the same order."""

    hashes: Hashes
    exact: pa.Array | None

    def __post_init__(self) -> None:
        if self.exact is not None and len(self.exact) != len(self.hashes):
            raise ValueError(f"{len(self.hashes)} hashes for {len(self.exact)} keys")

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def nbytes(self) -> int:
        return int(self.hashes.nbytes) + (0 if self.exact is None else int(self.exact.nbytes))

    @property
    def is_sorted(self) -> bool:
        return bool((self.hashes[:-1] <= self.hashes[1:]).all())

    def order(self) -> NDArray[np.int64]:
        """What `take` needs to sort by hash. Keys that lie in order already, as serial ones do, cost one look."""
        if self.is_sorted:
            return np.arange(len(self), dtype=np.int64)
        return np.argsort(self.hashes).astype(np.int64, copy=False)

    def sorted(self) -> Keys:
        """By hash. Sort once what is searched in many indexes: they look whether it is."""
        return self if self.is_sorted else self.take(self.order())

    def take(self, numbers: NDArray[Any]) -> Keys:
        return Keys(self.hashes[numbers], None if self.exact is None else self.exact.take(pa.array(numbers)))

    def same(self, mine: NDArray[np.int64], other: Keys, theirs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """For keys whose hashes were found equal, pair by pair: are the keys themselves?"""
        if (self.exact is None) != (other.exact is None):
            raise AssertionError("keys of two codecs cannot be compared")
        if self.exact is None or other.exact is None:
            return np.ones(len(mine), np.bool_)
        equal = pc.equal(self.exact.take(pa.array(mine)), other.exact.take(pa.array(theirs)))
        answer: NDArray[np.bool_] = equal.to_numpy(zero_copy_only=False)
        return answer

    @staticmethod
    def concat(parts: Sequence[Keys]) -> Keys:
        """In this order. There must be one at least: an empty one of the right kind comes from its codec."""
        if len(parts) == 1:
            return parts[0]
        exact = [part.exact for part in parts]
        if any(one is None for one in exact):
            if any(one is not None for one in exact):
                raise AssertionError("keys of two codecs cannot be put together")
            return Keys(np.concatenate([part.hashes for part in parts]), None)
        return Keys(np.concatenate([part.hashes for part in parts]), pa.concat_arrays(exact))


class KeyCodec:
    """Makes keys of the key columns of one table. `fields` are its key fields in key order, with the types of the
    table's current schema. `signature` names what the keys depend on: equal signatures give comparable keys.

    Raises ConfigError for types that cannot be keys (H21).
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        if not fields:
            raise ConfigError("a key needs a column", hint="Name the key columns: `key: [id]` in the table's entry.")
        self.fields = tuple(fields)
        kinds = [_kind(field) for field in fields]
        self.signature = ",".join(f"{field.id}:{kind}" for field, kind in zip(fields, kinds, strict=True))
        self._hash_is_key = kinds in (["integer"], ["date"], ["time"], ["timestamp"])
        self._single = len(kinds) == 1

    def encode(self, columns: pa.RecordBatch | Sequence[pa.Array]) -> Keys:
        """Of a batch, the columns that have the fields' names; of a sequence, its arrays in key order.

        Raises BadInput for a NULL (H20), or for values that are not of the column's type.
        """
        if isinstance(columns, pa.RecordBatch):
            columns = [columns.column(field.name) for field in self.fields]
        for field, column in zip(self.fields, columns, strict=True):
            if column.null_count:
                raise BadInput(
                    f"key column {field.name!r} is NULL in {column.null_count} of {len(column)} rows",
                    hint="A key cannot be null: choose other key columns for the table, or mend the rows.",
                    column=field.name,
                )
        parts = [key_part(field, column) for field, column in zip(self.fields, columns, strict=True)]
        if self._hash_is_key:
            return Keys(parts[0].view(np.uint64).reshape(-1) ^ _SIGN, None)
        fixed = [part for part in parts if isinstance(part, np.ndarray)]
        if len(fixed) == len(parts):
            rows = np.ascontiguousarray(fixed[0] if self._single else np.concatenate(fixed, axis=1))
            return Keys(key_hash.hash_rows(rows), _fixed_array(rows))
        exact = parts[0] if self._single else join_parts(parts)
        return Keys(key_hash.hash_spans(*_spans(exact)), exact)


def _kind(field: Field) -> str:
    """The name of the part's form in a signature. Types that a column may be promoted between share it if their
    bytes are the same."""
    match field.type:
        case Decimal(_, scale):
            return f"decimal({scale})"
        case Primitive("int" | "long"):
            return "integer"
        case Primitive("timestamp" | "timestamptz"):
            return "timestamp"
        case Primitive("float" | "double"):
            raise ConfigError(
                f"key column {field.name!r} is a {field.type}: floating point numbers cannot be keys",
                hint="Choose other key columns, or a decimal or integer column made from this one at the source.",
                column=field.name,
                type=str(field.type),
            )
        case Primitive(name) if name != "variant":
            return name
        case _:
            raise ConfigError(
                f"key column {field.name!r} is a {field.type}: nested and variant columns cannot be keys",
                hint="Choose key columns of plain types.",
                column=field.name,
                type=str(field.type),
            )


def key_part(field: Field, column: pa.Array) -> Any:
    """The bytes of a column without NULL: rows of bytes for a type of fixed width, a large binary array for another.
    Raises BadInput for values that are not of the column's type."""
    try:
        return _convert(field.type, _bare(column))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:  # a value that does not fit; no such cast at all
        raise BadInput(
            f"key column {field.name!r} holds {column.type} where the table has {field.type}: {error}",
            hint="The values do not fit the column's type in the table; see who wrote them.",
            column=field.name,
        ) from error


def _bare(column: pa.Array) -> pa.Array:
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column


def _convert(type_: Type, column: pa.Array) -> Any:
    given = column.type
    match type_:
        case Primitive("int" | "long") if pa.types.is_integer(given):
            return _number_rows(column.cast(pa.int64()))
        case Primitive("date") if pa.types.is_date(given):
            return _number_rows(column.cast(pa.date32()).view(pa.int32()).cast(pa.int64()))
        case Primitive("time") if pa.types.is_time(given):
            return _number_rows(column.cast(pa.time64("us")).view(pa.int64()))
        case Primitive("timestamp") if pa.types.is_date(given):
            return _number_rows(column.cast(pa.timestamp("us")).view(pa.int64()))
        case Primitive("timestamp" | "timestamptz") if pa.types.is_timestamp(given):
            return _number_rows(column.cast(pa.timestamp("us", tz=given.tz)).view(pa.int64()))
        case Decimal(_, scale) if pa.types.is_decimal(given):
            if not (pa.types.is_decimal128(given) and given.scale == scale):
                column = column.cast(pa.decimal128(_DECIMAL_DIGITS, scale))
            return _buffer_rows(column, _DECIMAL_BYTES)
        case Primitive("boolean") if pa.types.is_boolean(given):
            return _buffer_rows(column.cast(pa.uint8()), 1)
        case Primitive("string" | "binary") if _is_bytes(given):
            return column.cast(pa.large_binary())
        case Primitive(name) if (name == "uuid" or name.startswith("fixed")) and _is_bytes(given):
            width = 16 if name == "uuid" else int(name.removeprefix("fixed[").removesuffix("]"))
            return _buffer_rows(column.cast(pa.binary(width)), width)
        case _:
            raise pa.ArrowInvalid("no such values can be in such a column")


def _is_bytes(type_: pa.DataType) -> bool:
    return any(
        test(type_)
        for test in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_string_view,
            pa.types.is_binary,
            pa.types.is_large_binary,
            pa.types.is_binary_view,
            pa.types.is_fixed_size_binary,
        )
    )


def _number_rows(numbers: pa.Array) -> NDArray[np.uint8]:
    values: NDArray[np.int64] = numbers.to_numpy(zero_copy_only=True)
    little: NDArray[Any] = np.ascontiguousarray(values, np.dtype("<i8"))
    return little.view(np.uint8).reshape(len(values), 8)


def _buffer_rows(column: pa.Array, width: int) -> NDArray[np.uint8]:
    """The values' own bytes, without a copy."""
    if not len(column):
        return np.empty((0, width), np.uint8)
    count, start = len(column) * width, column.offset * width
    return np.frombuffer(column.buffers()[1], np.uint8, count, start).reshape(len(column), width)


def _fixed_array(rows: NDArray[np.uint8]) -> pa.Array:
    """`rows` as an Arrow array over the same memory."""
    count, width = rows.shape
    return pa.Array.from_buffers(pa.binary(width), count, [None, pa.py_buffer(rows.reshape(-1))])


def join_parts(parts: Sequence[Any]) -> pa.Array:
    """The bytes of all parts of each key, one after the other; before those of variable width, their length."""
    joined: list[pa.Array] = []
    for part in parts:
        if isinstance(part, np.ndarray):
            joined.append(_fixed_array(np.ascontiguousarray(part)).cast(pa.large_binary()))
            continue
        lengths = pc.binary_length(part).to_numpy()
        if len(lengths) and int(lengths.max()) > _PART_BYTES_MAX:
            raise BadInput("a key of 4 GiB or more", hint="Choose shorter key columns.")
        rows = lengths.astype(np.dtype("<u4")).view(np.uint8).reshape(len(lengths), 4)
        joined += [_fixed_array(rows).cast(pa.large_binary()), part]
    return pc.binary_join_element_wise(*joined, _NO_DELIMITER)


def _spans(array: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Bytes and offsets of a large binary array, without a copy."""
    if not len(array):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    _, offsets, data = array.buffers()
    bytes_ = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return bytes_, np.frombuffer(offsets, np.int64, len(array) + 1, array.offset * 8)
