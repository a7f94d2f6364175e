"""Every column a table ever had, out of the schemas in its metadata. Pure.

    schema 0: 1 id int, 2 name string     schema 1: 1 id long, 3 age int  -->  1 id long, 2 name string, 3 age int

A column's type only ever widens, so the newest schema that has it tells a type that fits all files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from frazil.iceberg.tables.tables import LoadedTable
from frazil.model.compaction import RewrittenTable
from frazil.model.conversion import ConvertedTable, KeyColumn
from frazil.model.partition import BadPartition, Transform, takes
from frazil.model.schema import DOUBLE, FLOAT, BadType, Field, Primitive, Schema, StructOf, Type
from frazil.model.sort import OrderField

_UNSORTED = 0


def converted_table(loaded: LoadedTable, metadata: Mapping[str, Any]) -> ConvertedTable:
    """A table as a conversion of its deletes knows it; `metadata` is that of the same moment."""
    return ConvertedTable.of(loaded, columns=columns_ever(metadata))


def rewritten_table(loaded: LoadedTable, metadata: Mapping[str, Any], sequence_number: int) -> RewrittenTable:
    """A table as a compaction knows it; `metadata` and the head's sequence number are those of the same moment."""
    current = next(s for s in metadata["schemas"] if s["schema-id"] == loaded.schema.schema_id)
    order, order_id = sort_order(loaded.schema, metadata)
    defaults = dict(_initial_defaults(current))
    return RewrittenTable.of(loaded, sequence_number=sequence_number, defaults=defaults, order=order, order_id=order_id)


def sort_order(schema: Schema, metadata: Mapping[str, Any]) -> tuple[tuple[OrderField, ...], int | None]:
    """The table's own order and its id; none if it is unsorted, or has a field that cannot be computed here: a
    transform of a later specification, a column that is gone or is no plain value."""
    default = metadata.get("default-sort-order-id", _UNSORTED)
    order = next((o for o in metadata.get("sort-orders", ()) if o["order-id"] == default), None)
    if default == _UNSORTED or order is None:
        return (), None
    fields = []
    for json in order["fields"]:
        try:
            transform = Transform.parse(json["transform"])
            type_ = _type_of(schema.fields, json["source-id"])
        except (BadPartition, KeyError):
            return (), None
        if type_ is None or not takes(transform, type_):
            return (), None
        descending, nulls_first = json["direction"] == "desc", json["null-order"] == "nulls-first"
        fields.append(OrderField(json["source-id"], transform, descending, nulls_first))
    return tuple(fields), default


def _type_of(fields: Sequence[Field], field_id: int) -> Type | None:
    """Of a column, or of one inside of structs."""
    for field in fields:
        if field.id == field_id:
            return field.type
        if isinstance(field.type, StructOf) and (inner := _type_of(field.type.fields, field_id)) is not None:
            return inner
    return None


def _initial_defaults(json: Any) -> Iterator[tuple[int, Any]]:
    """Of the fields of a struct, and of structs inside it, wherever they lie."""
    if not isinstance(json, Mapping):
        return
    for field in json.get("fields", ()):
        if "initial-default" in field:
            yield field["id"], field["initial-default"]
        yield from _initial_defaults(field["type"])
    for inner in ("element", "key", "value"):
        yield from _initial_defaults(json.get(inner))


def columns_ever(metadata: Mapping[str, Any]) -> dict[int, KeyColumn]:
    """The top-level columns by field id; without those of types that are not known here."""
    current = metadata.get("current-schema-id")
    # Ids of schemas ascend, but a schema may be made the current one again.
    schemas = sorted(metadata["schemas"], key=lambda schema: (schema["schema-id"] == current, schema["schema-id"]))
    found: dict[int, KeyColumn] = {}
    for schema in schemas:
        for json in schema["fields"]:
            try:
                found[json["id"]] = KeyColumn(Field.from_json(json), json.get("initial-default"))
            except (BadType, KeyError):
                found.pop(json["id"], None)
    return found


def float_places(metadata: Mapping[str, Any]) -> dict[int, dict[int, str]]:
    """By partition spec, at which places its values are floating point numbers, and their format of `struct`."""
    forms: dict[int, str] = {}
    for column in columns_ever(metadata).values():
        forms |= _float_forms(column.field)
    found: dict[int, dict[int, str]] = {}
    for spec in metadata["partition-specs"]:
        places = {
            place: forms[field["source-id"]]
            for place, field in enumerate(spec["fields"])
            if field["transform"] == "identity" and field.get("source-id") in forms
        }
        if places:
            found[spec["spec-id"]] = places
    return found


def _float_forms(field: Field) -> dict[int, str]:
    if isinstance(field.type, StructOf):
        return {id_: form for inner in field.type.fields for id_, form in _float_forms(inner).items()}
    form = {FLOAT: "<f", DOUBLE: "<d"}.get(field.type) if isinstance(field.type, Primitive) else None
    return {} if form is None else {field.id: form}
