"""Every column a table ever had, out of the schemas in its metadata. Pure.

    schema 0: 1 id int, 2 name string     schema 1: 1 id long, 3 age int  -->  1 id long, 2 name string, 3 age int

A column's type only ever widens, so the newest schema that has it tells a type that fits all files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from frazil.lake.tables import LoadedTable
from frazil.model.columns import BadType, Field
from frazil.model.compaction import RewrittenTable
from frazil.model.conversion import ConvertedTable, KeyColumn

_NAME_MAPPING = "schema.name-mapping.default"


def converted_table(loaded: LoadedTable, metadata: Mapping[str, Any]) -> ConvertedTable:
    """A table as a conversion of its deletes knows it; `metadata` is that of the same moment."""
    return ConvertedTable(
        name=loaded.name,
        schema_id=loaded.schema.schema_id,
        format_version=loaded.format_version,
        data_location=loaded.data_location,
        columns=columns_ever(metadata),
        specs=loaded.specs,
        storage=loaded.storage,
        name_mapping=loaded.properties.get(_NAME_MAPPING),
    )


def rewritten_table(loaded: LoadedTable, metadata: Mapping[str, Any], sequence_number: int) -> RewrittenTable:
    """A table as a compaction knows it; `metadata` and the head's sequence number are those of the same moment."""
    current = next(s for s in metadata["schemas"] if s["schema-id"] == loaded.schema.schema_id)
    return RewrittenTable(
        name=loaded.name,
        schema=loaded.schema,
        format_version=loaded.format_version,
        sequence_number=sequence_number,
        data_location=loaded.data_location,
        defaults=dict(_initial_defaults(current)),
        specs=loaded.specs,
        storage=loaded.storage,
        name_mapping=loaded.properties.get(_NAME_MAPPING),
    )


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
