"""Iceberg types to Arrow types, with the field ids that make a Parquet file an Iceberg file.

    Field(1, "id", long, required)          ->  int64 not null          PARQUET:field_id=1
    Field(2, "tags", list<string>, id 3)    ->  list<element: string>   PARQUET:field_id=2, element 3

Readers find a column by its id, never by name or order (H30), so a list's element carries one too.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from frazil.model.arrow import value_type
from frazil.model.columns import UUID, Field, ListOf, Type

_FIELD_ID = b"PARQUET:field_id"


def arrow_type(type_: Type) -> pa.DataType:
    """The Arrow type whose Parquet form is the one Iceberg's specification gives for `type_`."""
    match type_:
        case ListOf(element, element_id, required):
            return pa.list_(_field("element", element, element_id, required))
        case _ if type_ == UUID:
            # The extension type is what makes Arrow write Parquet's UUID annotation; plain fixed_size_binary(16)
            # would be read back as fixed[16].
            return pa.uuid()
        case _:
            return value_type(type_)


def arrow_field(field: Field) -> pa.Field:
    return _field(field.name, field.type, field.id, field.required)


def arrow_schema(fields: Sequence[Field]) -> pa.Schema:
    return pa.schema([arrow_field(field) for field in fields])


def leaf(field: Field) -> tuple[int, Type]:
    """Id and type of the one Parquet column that holds the field's values."""
    field_id, type_ = field.id, field.type
    while isinstance(type_, ListOf):
        field_id, type_ = type_.element_id, type_.element
    return field_id, type_


def leaf_path(field: Field) -> str:
    """What Parquet calls that column."""
    type_, path = field.type, field.name
    while isinstance(type_, ListOf):
        type_, path = type_.element, f"{path}.list.element"
    return path


def _field(name: str, type_: Type, field_id: int, required: bool) -> pa.Field:
    if field_id <= 0:
        raise ValueError(f"column {name!r} has no field id yet; the table's schema comes from its catalog")
    return pa.field(name, arrow_type(type_), not required, metadata={_FIELD_ID: str(field_id).encode()})
