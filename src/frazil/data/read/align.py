"""Brings a column as a file has it to the type the table has now, whatever happened to the schema since.

    file: int              table: long                     cast
    file: struct<1: a>     table: struct<2: b, 1: c>       struct<b: null, c: the file's a>
    file: nothing          table: string                   null, or the default of the field

Members of structs are found by field id; by name only in a file whose writer gave no ids.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from frazil.model.arrow import value_type
from frazil.model.schema import Field, ListOf, MapOf, StructOf, Type

_FIELD_ID = b"PARQUET:field_id"
_NOTHING: Mapping[int, pa.Scalar] = {}


def field_id(column: pa.Field) -> int | None:
    """The id that the writer gave the column, if it did."""
    text = (column.metadata or {}).get(_FIELD_ID)
    return None if text is None else int(text)


def aligned(
    column: pa.ChunkedArray | None,
    file_field: pa.Field | None,
    type_: Type,
    count: int,
    *,
    by_id: bool,
    missing: Mapping[int, pa.Scalar] = _NOTHING,
) -> pa.Array:
    """`count` values as `type_` has them. Members of structs that the file does not have are what `missing` tells by
    field id, else NULL. Raises ArrowInvalid for a value that does not fit."""
    if column is None or file_field is None:
        return pa.nulls(count, value_type(type_))
    return _align(column.combine_chunks(), file_field, type_, by_id, missing)


def _align(
    values: pa.Array, file_field: pa.Field, type_: Type, by_id: bool, missing: Mapping[int, pa.Scalar]
) -> pa.Array:
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    given = values.type
    match type_:
        case ListOf(element) if pa.types.is_list(given) or pa.types.is_large_list(given):
            items = _align(values.values, given.value_field, element, by_id, missing)
            return pa.ListArray.from_arrays(_offsets(values), items, mask=_mask(values))
        case MapOf(key, value) if pa.types.is_map(given):
            keys = _align(values.keys, given.key_field, key, by_id, missing)
            items = _align(values.items, given.item_field, value, by_id, missing)
            return pa.MapArray.from_arrays(_offsets(values), keys, items, mask=_mask(values))
        case StructOf(fields) if pa.types.is_struct(given):
            members = [_member(values, field, by_id, missing) for field in fields]
            names = [pa.field(field.name, array.type) for field, array in zip(fields, members, strict=True)]
            return pa.StructArray.from_arrays(members, fields=names, mask=_mask(values))
        case ListOf() | MapOf() | StructOf():
            raise pa.ArrowInvalid(f"column {file_field.name!r} is {given} in the file and {type_} in the table")
        case _:
            return values.cast(value_type(type_))


def _member(values: pa.StructArray, field: Field, by_id: bool, missing: Mapping[int, pa.Scalar]) -> pa.Array:
    children = [values.type.field(i) for i in range(values.type.num_fields)]
    for number, child in enumerate(children):
        if field_id(child) == field.id if by_id else child.name == field.name:
            return _align(values.field(number), child, field.type, by_id, missing)
    if field.id in missing:
        return pa.repeat(missing[field.id], len(values))
    return pa.nulls(len(values), value_type(field.type))


def _mask(values: pa.Array) -> pa.Array | None:
    return values.is_null() if values.null_count else None


def _offsets(values: pa.Array) -> pa.Array:
    return values.offsets.cast(pa.int32())
