"""Iceberg types to Arrow types, with the field ids that make a Parquet file an Iceberg file.

    Field(1, "id", long, required)          ->  int64 not null           PARQUET:field_id=1
    Field(2, "tags", list<string>, id 3)    ->  list<element: string>    PARQUET:field_id=2, element 3
    Field(4, "at", struct<5 x: double>)     ->  struct<x: double>        PARQUET:field_id=4, x 5

Readers find a column by its id, never by name or order (H30), so whatever is nested carries one too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from frazil.errors import ConfigError
from frazil.model.arrow import value_type
from frazil.model.schema import UUID, VARIANT, Field, ListOf, MapOf, StructOf, Type

_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class Leaf:
    """One Parquet column: what Parquet calls it, the id and type of its values, and whether a row may have several of
    them or none, because it lies in a list or a map."""

    path: str
    id: int
    type: Type
    repeated: bool = False


def arrow_type(type_: Type) -> pa.DataType:
    """The Arrow type whose Parquet form is the one Iceberg's specification gives for `type_`."""
    match type_:
        case ListOf(element, element_id, required):
            return pa.list_(_field("element", element, element_id, required))
        case MapOf(key, value, key_id, value_id, required):
            return pa.map_(_field("key", key, key_id, True), _field("value", value, value_id, required))
        case StructOf(fields):
            return pa.struct([arrow_field(field) for field in fields])
        case _ if type_ == UUID:
            # The extension type is what makes Arrow write Parquet's UUID annotation; plain fixed_size_binary(16)
            # would be read back as fixed[16].
            return pa.uuid()
        case _ if type_ == VARIANT:
            raise ConfigError(
                "a variant column cannot be written to Parquet here",
                hint="Leave `json_as` of the table at string.",
                type=str(type_),
            )
        case _:
            return value_type(type_)


def arrow_field(field: Field) -> pa.Field:
    return _field(field.name, field.type, field.id, field.required)


def arrow_schema(fields: Sequence[Field]) -> pa.Schema:
    return pa.schema([arrow_field(field) for field in fields])


def leaves(field: Field) -> Iterator[Leaf]:
    """The Parquet columns that hold the field's values, in the order of the file."""
    yield from _leaves(field.name, field.id, field.type, repeated=False)


def _leaves(path: str, field_id: int, type_: Type, repeated: bool) -> Iterator[Leaf]:
    match type_:
        case ListOf():
            yield from _leaves(f"{path}.list.element", type_.element_id, type_.element, True)
        case MapOf():
            yield from _leaves(f"{path}.key_value.key", type_.key_id, type_.key, True)
            yield from _leaves(f"{path}.key_value.value", type_.value_id, type_.value, True)
        case StructOf(fields):
            for field in fields:
                yield from _leaves(f"{path}.{field.name}", field.id, field.type, repeated)
        case _:
            yield Leaf(path, field_id, type_, repeated)


def _field(name: str, type_: Type, field_id: int, required: bool) -> pa.Field:
    if field_id <= 0:
        raise ValueError(f"column {name!r} has no field id yet; the table's schema comes from its catalog")
    return pa.field(name, arrow_type(type_), not required, metadata={_FIELD_ID: str(field_id).encode()})
