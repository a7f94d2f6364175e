"""Avro's JSON form, with its union tags, to the form a JSON feed has.

    {"after":{"foo":{"a":{"long":1},"d":{"bytes.decimal":"\\f"}}},"updated":{"string":"1.0000000002"}}
      ->  {"after": {"a": 1, "d": 1.2}, "updated": "1.0000000002"}        (DECIMAL(4,1))

No road reads Avro files: the cloud storage sink refuses the format. It is here for feeds that carry Avro elsewhere,
so that their values meet the same envelope and the same decoder.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from decimal import Decimal

from frazil.sources.cockroachdb.exact import Json, Number
from frazil.sources.cockroachdb.types import Family, SourceType
from frazil.sources.cockroachdb.values import time_text, timestamp_text

_ROWS = ("after", "before", "record")
_PLAIN = ("string", "long", "int", "double", "float", "boolean")


def unwrap_message(message: Mapping[str, Json], types: Mapping[str, SourceType] | None = None) -> dict[str, Json]:
    """One Avro message as the JSON feed would have it; `record` of a bare message becomes its columns. `types` tell
    a decimal's scale and a timestamp's zone."""
    types = types or {}
    out: dict[str, Json] = {}
    for name, value in message.items():
        if name not in _ROWS or value is None:
            out[name] = unwrap_value(value)
            continue
        (row,) = value.values()  # one record, under its table's name
        columns = {column: unwrap_value(item, types.get(column)) for column, item in row.items()}
        if name == "record":
            out.update(columns)
        else:
            out[name] = columns
    return out


def unwrap_value(value: Json, source: SourceType | None = None) -> Json:
    """One value without its union tag, in the spelling of a JSON feed."""
    if not (isinstance(value, dict) and len(value) == 1):
        return value
    ((tag, inner),) = value.items()
    match tag:
        case "string" if source is not None and source.family is Family.JSON:
            return value["string"]
        case "bytes":
            return "\\x" + inner.encode("latin-1").hex()
        case "bytes.decimal":
            return _decimal(inner, source)
        case "int.date":
            return (date(1970, 1, 1) + timedelta(days=int(inner))).isoformat()
        case "long.time-micros":
            return time_text(int(inner))
        case "long.timestamp-micros":
            zone = "Z" if source is not None and source.family is Family.TIMESTAMPTZ else ""
            return timestamp_text(int(inner)) + zone
        case "array" if source is not None and source.family is Family.BIT:
            return _bits([int(word) for word in inner])
        case "array":
            return [unwrap_value(item, source.element if source else None) for item in inner]
        case _ if tag in _PLAIN:
            return inner
    return value


def _decimal(text: str, source: SourceType | None) -> Json:
    scale = getattr(source.type, "scale", 0) if source else 0
    unscaled = int.from_bytes(text.encode("latin-1"), "big", signed=True)
    return Number(f"{Decimal(unscaled).scaleb(-scale):f}")


def _bits(words: list[int]) -> str:
    """[bits used in the last word, words...]"""
    used, *rest = words
    bits = "".join(f"{word & (1 << 64) - 1:064b}" for word in rest)
    return bits[: len(bits) - 64 + used] if rest else ""
