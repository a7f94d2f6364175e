"""What crosses between stages as Arrow: change rows, and the values of columns.

Types are values, so this belongs to the model although they are pyarrow's; nothing here computes.
"""

from __future__ import annotations

import pyarrow as pa

from frazil.model.change import CHANGE_COLUMNS
from frazil.model.schema import Decimal, ListOf, MapOf, Primitive, StructOf, Type

_CHANGE_TYPES = (
    *(pa.int32(), pa.int32(), pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.int32()),
    *(pa.binary(), pa.binary(), pa.int64(), pa.int64()),
)
CHANGE_SCHEMA = pa.schema(list(zip(CHANGE_COLUMNS, _CHANGE_TYPES, strict=True)))
"""One row is one change or one report, see `model.change`."""

_PRIMITIVES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "string": pa.string(),
    "uuid": pa.binary(16),
    "binary": pa.binary(),
}


def value_type(type_: Type) -> pa.DataType:
    """The Arrow type in which values of an Iceberg type are handed on."""
    match type_:
        case Decimal(precision, scale):
            return pa.decimal128(precision, scale)
        case ListOf(element):
            return pa.list_(value_type(element))
        case MapOf(key, value):
            return pa.map_(value_type(key), value_type(value))
        case StructOf(fields):
            return pa.struct([pa.field(field.name, value_type(field.type)) for field in fields])
        case Primitive(name) if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        case Primitive(name):
            return pa.binary(int(name.removeprefix("fixed[").removesuffix("]")))
