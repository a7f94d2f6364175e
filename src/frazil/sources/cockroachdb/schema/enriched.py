"""The schema that stands beside enriched messages, in Kafka Connect's form.

    {"fields": [{"field": "after", "fields": [{"field": "n", "type": "int64", "optional": true}]},
                {"field": "key", "fields": [{"field": "id", ...}]}]}
      -> columns n INT8; key id

Every message carries it, so it is looked at once for each text that it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from frazil.errors import BadInput, ConfigError
from frazil.model.schema import Column
from frazil.sources.cockroachdb.decode.exact_json import Json, loads
from frazil.sources.cockroachdb.schema.types import column
from frazil.sources.net import netted

ENRICHED = "enriched"
_BASE = {
    "int64": "INT8",
    "int32": "INT4",
    "int16": "INT2",
    "float64": "FLOAT8",
    "double": "FLOAT8",
    "float32": "FLOAT4",
    "float": "FLOAT4",
    "boolean": "BOOL",
    "bytes": "BYTES",
    "struct": "TUPLE",
    "string": "STRING",
}
_NAMED = {
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMPTZ",
    "date": "DATE",
    "time": "TIME",
    "uuid": "UUID",
    "json": "JSONB",
    "jsonb": "JSONB",
    "geometry": "GEOMETRY",
    "geography": "GEOGRAPHY",
    "bytes": "BYTES",
}


@dataclass(frozen=True, slots=True)
class Described:
    columns: tuple[Column, ...] = ()
    key: tuple[str, ...] = ()


@lru_cache(maxsize=64)
def described(text: str) -> Described | None:
    """What the schema tells, None if it is null. Raises BadInput for what is no schema."""
    with netted("the `schema` beside the message is none"):
        schema = loads(text)
        if schema is None:
            return None
        parts = {part.get("field"): part for part in schema.get("fields", ())}
        row = parts.get("after") or parts.get("before") or {}
        try:
            columns = tuple(_column(part) for part in row.get("fields", ()))
        except ConfigError as error:
            raise BadInput(f"the `schema` beside the message is none: {error}", hint=error.hint) from error
        key = tuple(_name(part) for part in parts.get("key", {}).get("fields", ()))
        if len({known.name for known in columns}) != len(columns) or len(set(key)) != len(key):
            raise BadInput("the `schema` beside the message names a column twice")
        return Described(columns, key)


def _column(part: Mapping[str, Json]) -> Column:
    return column(_name(part), _type(part), ENRICHED, required=not part.get("optional", True))


def _name(part: Mapping[str, Json]) -> str:
    if not isinstance(part["field"], str):
        raise TypeError("a field's name is no string")
    return part["field"]


def _type(part: Mapping[str, Json]) -> str:
    base = str(part.get("type"))
    name = str(part.get("name") or "").lower().rpartition(".")[2]
    if base == "array":
        return _type(part.get("items") or {"type": "string"}) + "[]"
    if name == "decimal":
        parameters = part.get("parameters") or {}
        if "precision" in parameters:
            return f"DECIMAL({parameters['precision']},{parameters.get('scale', 0)})"
        return "DECIMAL"
    return _NAMED.get(name) or _BASE.get(base, "STRING")
