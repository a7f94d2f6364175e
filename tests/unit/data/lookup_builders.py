"""Keys of every type with values to draw, and data files to look them up in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal as D
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from frazil.data.keys.codec import KeyCodec, Keys
from frazil.data.keys.index import KeyIndex
from frazil.model import schema as c
from frazil.model.schema import Field

# A busy machine is slow and not wrong. A folder shared by all examples of a test is overwritten by each.
patient = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

INT32 = st.one_of(st.integers(-3, 3), st.integers(-(2**31), 2**31 - 1))
INT64 = st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1))


@dataclass(frozen=True)
class KeyType:
    """An Iceberg type, an Arrow type its values may come in, and values."""

    type: c.Type
    arrow: pa.DataType
    values: st.SearchStrategy[Any]

    def array(self, values: Sequence[Any]) -> pa.Array:
        if pa.types.is_temporal(self.arrow):
            return pa.array(values, pa.int32() if self.arrow.bit_width == 32 else pa.int64()).view(self.arrow)
        if isinstance(self.arrow, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(self.arrow, pa.array(values, self.arrow.storage_type))
        return pa.array(values, self.arrow)


def unscaled(digits: int, scale: int) -> st.SearchStrategy[D]:
    numbers = st.one_of(st.integers(-3, 3), st.integers(-(10**digits) + 1, 10**digits - 1))
    return numbers.map(lambda number: D((int(number < 0), tuple(map(int, str(abs(number)))), -scale)))


# Few letters, so that prefixes and parts of composites meet; now and then a text of many words.
TEXT = st.one_of(st.text("ab\x00é", max_size=10), st.text("ab", min_size=60, max_size=400))
BYTES = st.one_of(st.binary(max_size=3), st.text("ab\x00", max_size=20).map(str.encode))
TYPES = {
    "int": KeyType(c.INT, pa.int32(), INT32),
    "long": KeyType(c.LONG, pa.int64(), INT64),
    "date": KeyType(c.DATE, pa.date32(), INT32),
    "time": KeyType(c.TIME, pa.time64("us"), st.integers(0, 86_399_999_999)),
    "timestamp": KeyType(c.TIMESTAMP, pa.timestamp("us"), INT64),
    "timestamptz": KeyType(c.TIMESTAMPTZ, pa.timestamp("us", "UTC"), INT64),
    "boolean": KeyType(c.BOOLEAN, pa.bool_(), st.booleans()),
    "decimal(9,2)": KeyType(c.Decimal(9, 2), pa.decimal128(9, 2), unscaled(9, 2)),
    "decimal(38,10)": KeyType(c.Decimal(38, 10), pa.decimal128(38, 10), unscaled(38, 10)),
    "uuid": KeyType(c.UUID, pa.uuid(), st.one_of(st.binary(min_size=16, max_size=16), st.just(bytes(16)))),
    "fixed[3]": KeyType(c.Primitive("fixed[3]"), pa.binary(3), st.binary(min_size=3, max_size=3)),
    "string": KeyType(c.STRING, pa.string(), TEXT),
    "binary": KeyType(c.BINARY, pa.binary(), BYTES),
}


@dataclass(frozen=True)
class KeyColumns:
    """A key of one or more columns, and rows of it as tuples."""

    types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(Field(i + 1, f"k{i}", TYPES[name].type) for i, name in enumerate(self.types))

    @property
    def codec(self) -> KeyCodec:
        return KeyCodec(self.fields)

    def arrays(self, rows: Sequence[tuple[Any, ...]] | None = None) -> list[pa.Array]:
        chosen = self.rows if rows is None else rows
        return [TYPES[name].array([row[i] for row in chosen]) for i, name in enumerate(self.types)]

    def keys(self, rows: Sequence[tuple[Any, ...]] | None = None) -> Keys:
        return self.codec.encode(self.arrays(rows))


@st.composite
def key_columns(draw: st.DrawFn, columns_max: int = 3, rows_max: int = 30) -> KeyColumns:
    """Rows with keys that come more than once."""
    types = tuple(draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=columns_max)))
    pool = draw(st.lists(st.tuples(*(TYPES[name].values for name in types)), min_size=1, max_size=rows_max))
    return KeyColumns(types, tuple(draw(st.lists(st.sampled_from(pool), max_size=rows_max))))


LONG_ID = Field(1, "id", c.LONG, required=True)


def long_keys(*values: int) -> Keys:
    return KeyCodec([LONG_ID]).encode([pa.array(values, pa.int64())])


def long_index(*values: int) -> KeyIndex:
    return KeyIndex.build(KeyCodec([LONG_ID]).signature, long_keys(*values))


def string_index(count: int) -> KeyIndex:
    codec = KeyCodec([Field(1, "id", c.STRING)])
    return KeyIndex.build(codec.signature, codec.encode([pa.array([f"customer {i % 7} {i}" for i in range(count)])]))


def numbered(name: str, type_: pa.DataType, field_id: int | None) -> pa.Field:
    """An Arrow field that a Parquet file keeps with its field id."""
    return pa.field(name, type_, metadata=None if field_id is None else {"PARQUET:field_id": str(field_id)})


def write_parquet(path: Path, columns: Sequence[tuple[pa.Field, Sequence[Any]]], row_group_size: int = 3) -> int:
    """A data file as some writer would leave it. Returns its size."""
    arrays = [pa.array(values, field.type) for field, values in columns]
    table = pa.Table.from_arrays(arrays, schema=pa.schema([field for field, _ in columns]))
    pq.write_table(table, path, row_group_size=row_group_size)
    return path.stat().st_size


def positions_of(rows: Sequence[Any], wanted: Sequence[Any]) -> list[int]:
    """What `find` must answer, the slow way."""
    return [position for position, row in enumerate(rows) if row in wanted]


def constant_rows(rows: Any) -> Any:
    return np.zeros(len(rows), np.uint64)


def constant_spans(_data: Any, offsets: Any) -> Any:
    return np.zeros(len(offsets) - 1, np.uint64)
