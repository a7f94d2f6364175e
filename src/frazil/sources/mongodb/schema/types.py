"""The type names that a configuration gives fields of documents. Pure, and without MongoDB's library.

"decimal(12, 2)" --named_type--> decimal(12, 2)        "list", "struct", "decimal" --> None: documents tell it
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from frazil.errors import ConfigError
from frazil.model import schema as iceberg
from frazil.model.schema import BadType, Decimal, Type, type_from_json

JSON = "json"
TEXT = "text"
_NAMES: Mapping[str, tuple[Type, str]] = {
    "string": (iceberg.STRING, "string"),
    TEXT: (iceberg.STRING, TEXT),
    "objectid": (iceberg.STRING, "objectId"),
    JSON: (iceberg.STRING, JSON),
    "boolean": (iceberg.BOOLEAN, "bool"),
    "bool": (iceberg.BOOLEAN, "bool"),
    "int": (iceberg.INT, "int"),
    "long": (iceberg.LONG, "long"),
    "double": (iceberg.DOUBLE, "double"),
    "timestamp": (iceberg.TIMESTAMPTZ, "date"),
    "timestamptz": (iceberg.TIMESTAMPTZ, "date"),
    "date": (iceberg.DATE, "day"),
    "binary": (iceberg.BINARY, "binary"),
    "uuid": (iceberg.UUID, "uuid"),
}
INFERRED_NAMES = ("list", "struct", "object", "array", "decimal")


def named_type(name: str) -> tuple[Type, str] | None:
    """The type that a configuration names, and the text that tells what a string in it is; None if documents are to
    tell it. Raises ConfigError naming the nearest known one."""
    text = name.strip().lower()
    if text in INFERRED_NAMES or text.startswith("array<"):
        return None
    if text in _NAMES:
        return _NAMES[text]
    try:
        found = type_from_json(text)
    except BadType:
        found = None
    if isinstance(found, Decimal):
        return found, "decimal"
    nearest = next(iter(get_close_matches(text, (*_NAMES, *INFERRED_NAMES), n=1)), None)
    raise ConfigError(
        f"{name!r} is no type that a field can have",
        hint=f"Known are {', '.join(_NAMES)}, decimal(p, s), and {', '.join(INFERRED_NAMES)} (inferred).",
        type=name,
        nearest=nearest,
    )


def name_of(type_: Type, doc: str) -> str | None:
    """The name that `named_type` reads as this; None if there is none."""
    if isinstance(type_, Decimal) and doc == "decimal":
        return str(type_)
    return next((name for name, known in _NAMES.items() if known == (type_, doc)), None)
