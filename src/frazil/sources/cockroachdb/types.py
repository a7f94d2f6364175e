"""CockroachDB's type names, with PostgreSQL's aliases, to Iceberg types.

    "DECIMAL(12,2)" --parse_source_type--> SourceType(DECIMAL, decimal(12, 2)) --column--> Column

| source                                             | Iceberg                                                     |
|----------------------------------------------------|-------------------------------------------------------------|
| INT8, INT, BIGINT / INT4, INT2                     | long / int                                                  |
| DECIMAL(p,s), p <= 38                              | decimal(p, s)                                               |
| DECIMAL without precision, or beyond 38 digits     | string: the digits as written, never rounded                |
| FLOAT8 / FLOAT4, BOOL, BYTES, UUID, DATE           | double / float, boolean, binary, uuid, date                 |
| TIMESTAMP / TIMESTAMPTZ                            | timestamp / timestamptz, microseconds                       |
| TIME                                               | long: microseconds since midnight (Spark refuses `time`)    |
| JSONB, tuples; GEOMETRY, GEOGRAPHY                 | string: JSON text; GeoJSON text                             |
| STRING, VARCHAR(n), ENUM, INET, INTERVAL, BIT, ... | string                                                      |
| T[]                                                | list of T                                                   |
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from enum import StrEnum

from frazil.errors import ConfigError
from frazil.model import columns as iceberg
from frazil.model.columns import Column, Type


class Family(StrEnum):
    """How a value of the type is written by the source."""

    INT = "int"
    FLOAT = "float"
    DECIMAL = "decimal"
    BOOL = "bool"
    TEXT = "text"
    COLLATED = "collated"
    BYTES = "bytes"
    UUID = "uuid"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    TIME = "time"
    JSON = "json"
    GEO = "geo"
    OID = "oid"
    LSN = "lsn"
    BIT = "bit"
    ARRAY = "array"


@dataclass(frozen=True, slots=True)
class SourceType:
    """`text` is the type as it was named; `element` is there for arrays only."""

    text: str
    family: Family
    type: Type
    element: SourceType | None = None

    def __post_init__(self) -> None:
        if (self.family is Family.ARRAY) != (self.element is not None):
            raise ValueError(f"{self.text}: arrays, and only arrays, have elements")


_SIMPLE: dict[str, tuple[Family, Type]] = {
    **dict.fromkeys(
        ["INT8", "INT", "INTEGER", "INT64", "BIGINT", "SERIAL", "SERIAL8", "BIGSERIAL"], (Family.INT, iceberg.LONG)
    ),
    **dict.fromkeys(["INT4", "INT2", "SMALLINT", "SERIAL4", "SERIAL2", "SMALLSERIAL"], (Family.INT, iceberg.INT)),
    **dict.fromkeys(["FLOAT8", "FLOAT", "DOUBLE PRECISION"], (Family.FLOAT, iceberg.DOUBLE)),
    **dict.fromkeys(["FLOAT4", "REAL"], (Family.FLOAT, iceberg.FLOAT)),
    **dict.fromkeys(["BOOL", "BOOLEAN"], (Family.BOOL, iceberg.BOOLEAN)),
    **dict.fromkeys(["BYTES", "BYTEA", "BLOB"], (Family.BYTES, iceberg.BINARY)),
    "UUID": (Family.UUID, iceberg.UUID),
    "DATE": (Family.DATE, iceberg.DATE),
    **dict.fromkeys(["TIMESTAMP", "TIMESTAMP WITHOUT TIME ZONE"], (Family.TIMESTAMP, iceberg.TIMESTAMP)),
    **dict.fromkeys(["TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE"], (Family.TIMESTAMPTZ, iceberg.TIMESTAMPTZ)),
    **dict.fromkeys(["TIME", "TIME WITHOUT TIME ZONE"], (Family.TIME, iceberg.LONG)),
    **dict.fromkeys(["JSONB", "JSON", "TUPLE", "RECORD"], (Family.JSON, iceberg.STRING)),
    **dict.fromkeys(["GEOMETRY", "GEOGRAPHY"], (Family.GEO, iceberg.STRING)),
    **dict.fromkeys(["BIT", "VARBIT", "BIT VARYING"], (Family.BIT, iceberg.STRING)),
    **dict.fromkeys(
        ["OID", "REGCLASS", "REGPROC", "REGPROCEDURE", "REGTYPE", "REGNAMESPACE", "REGROLE"],
        (Family.OID, iceberg.STRING),
    ),
    "PG_LSN": (Family.LSN, iceberg.STRING),
    **dict.fromkeys(
        [
            "STRING",
            "TEXT",
            "VARCHAR",
            "CHARACTER VARYING",
            "CHAR",
            "CHARACTER",
            "BPCHAR",
            "NAME",
            "CITEXT",
            "ENUM",
            "INET",
            "INTERVAL",
            "TIMETZ",
            "TIME WITH TIME ZONE",
            "BOX2D",
            "VECTOR",
            "TSVECTOR",
            "TSQUERY",
            "LTREE",
            "JSONPATH",
            "REFCURSOR",
        ],
        (Family.TEXT, iceberg.STRING),
    ),
}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_KNOWN = (*_SIMPLE, *_DECIMALS)
_FORM = re.compile(r'([A-Z_"][A-Z0-9_" ]*?)\s*(?:\(\s*([^()]*)\s*\))?\s*(WITH(?:OUT)? TIME ZONE)?')
_COLLATE = re.compile(r"(.*?)\s+COLLATE\s+\S+", re.IGNORECASE)
_INTERVAL_FIELDS = re.compile(r"INTERVAL( (YEAR|MONTH|DAY|HOUR|MINUTE|SECOND)( TO (MONTH|HOUR|MINUTE|SECOND))?)?")


def parse_source_type(text: str) -> SourceType:
    """Raises ConfigError naming the nearest known type."""
    given = text.strip()
    if given.endswith("[]"):
        element = parse_source_type(given[:-2])
        if element.family is Family.ARRAY:
            raise ConfigError(f"type {text!r}: arrays of arrays do not exist in CockroachDB", type=text)
        return SourceType(given, Family.ARRAY, iceberg.ListOf(element.type), element)
    if match := _COLLATE.fullmatch(given):
        inner = parse_source_type(match[1])
        if inner.family is not Family.TEXT:
            raise ConfigError(f"type {text!r}: only strings are collated", type=text)
        return SourceType(given, Family.COLLATED, iceberg.STRING)
    spaced = " ".join(given.upper().split())
    match = _FORM.fullmatch(spaced)
    name = " ".join(part for part in (match[1], match[3]) if part) if match else spaced
    if _INTERVAL_FIELDS.fullmatch(name):
        name = "INTERVAL"
    if name == '"CHAR"':
        name = "CHAR"
    if match and name in _DECIMALS:
        return SourceType(given, Family.DECIMAL, _decimal(text, match[2]))
    if match and name in _SIMPLE:
        return SourceType(given, *_SIMPLE[name])
    nearest = difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.0)[0]
    raise ConfigError(
        f"unknown column type {text!r}",
        hint=f"The nearest known type is {nearest}. Write ENUM for an enum and TUPLE for a composite type.",
        type=text,
        nearest=nearest,
    )


def column(name: str, source_type: str, origin: str, *, required: bool = False) -> Column:
    """A column of a source type, as Iceberg will hold it. Raises ConfigError."""
    return Column(name, parse_source_type(source_type).type, source_type, origin, required)


def _decimal(text: str, arguments: str | None) -> Type:
    if arguments is None:
        return iceberg.STRING
    parts = [part.strip() for part in arguments.split(",")]
    if len(parts) > 2 or not all(part.isdigit() for part in parts):
        raise ConfigError(f"type {text!r}: write DECIMAL(precision, scale)", type=text)
    precision, scale = int(parts[0]), int(parts[1]) if len(parts) == 2 else 0
    if precision == 0 or scale > precision:
        raise ConfigError(f"type {text!r}: the scale is between 0 and the precision", type=text)
    return iceberg.Decimal(precision, scale) if precision <= iceberg.DECIMAL_PRECISION_MAX else iceberg.STRING
