"""CockroachDB's type names, with PostgreSQL's aliases, to Iceberg types.

    "DECIMAL(12,2)" --parse_source_type--> SourceType(DECIMAL, decimal(12, 2)) --column--> Column

| source                                             | Iceberg                                                     |
|----------------------------------------------------|-------------------------------------------------------------|
| INT8, INT, BIGINT / INT4, INT2                     | long / int                                                  |
| DECIMAL(p,s), p <= 38                              | decimal(p, s); NaN and infinity do not fit                  |
| DECIMAL without precision, or beyond 38 digits     | string: the digits as written, never rounded; in a key one  |
|                                                    | spelling of each number                                     |
| FLOAT8                                             | double, with NaN and infinity                               |
| FLOAT4                                             | float: numbers that a float spells back, others do not fit  |
| BOOL, BYTES, UUID                                  | boolean, binary, uuid                                       |
| DATE; TIMESTAMP / TIMESTAMPTZ                      | date; timestamp / timestamptz, microseconds; the years 1 to |
|                                                    | 9999, beyond which Spark reads something else               |
| TIME                                               | long: microseconds since midnight (Spark refuses `time`);   |
|                                                    | `time` if the rules say so, then 24:00:00 does not fit      |
| VECTOR                                             | list of float, by the rule of FLOAT4                        |
| JSONB, tuples; GEOMETRY, GEOGRAPHY                 | string: JSON text; GeoJSON text                             |
| STRING, COLLATE, VARCHAR(n), ENUM, INET, INTERVAL, | string, as the source prints it                             |
| TIMETZ, BIT, BOX2D, OID, PG_LSN, TSVECTOR, LTREE.. |                                                             |
| T[]                                                | list of T, with null elements                               |

A type that the table cannot hold all values of is pinned to a wider one: `day: STRING` keeps `infinity`.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Literal

from frazil.errors import ConfigError
from frazil.model import schema as iceberg
from frazil.model.schema import Column, SourceSchema, Type


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
    VECTOR = "vector"
    ARRAY = "array"


@dataclass(frozen=True, slots=True)
class TypeRules:
    """Where a source type has several Iceberg types, which of them a pipeline wants. Raises ConfigError for what the
    writer cannot give: PyArrow has no variant type, and a struct of two binaries without Parquet's VARIANT annotation
    is no Iceberg variant, although Spark happens to read it as one."""

    time_as: Literal["long", "time"] = "long"
    json_as: Literal["string", "variant"] = "string"

    def __post_init__(self) -> None:
        if self.json_as == "variant":
            raise ConfigError(
                "`json_as: variant` cannot be written: PyArrow has no variant type for Parquet's VARIANT columns",
                hint="Set `json_as: string`: the column holds the JSON text, and parse_json(column) in Spark makes a "
                "variant of it.",
                option="json_as",
            )


DEFAULT_RULES = TypeRules()


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
    "VECTOR": (Family.VECTOR, iceberg.ListOf(iceberg.FLOAT)),
    "CITEXT": (Family.COLLATED, iceberg.STRING),
    **dict.fromkeys(["FLOAT8", "FLOAT", "FLOAT64", "DOUBLE PRECISION"], (Family.FLOAT, iceberg.DOUBLE)),
    **dict.fromkeys(["FLOAT4", "FLOAT32", "REAL"], (Family.FLOAT, iceberg.FLOAT)),
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
            *("STRING", "TEXT", "VARCHAR", "CHARACTER VARYING", "CHAR", "CHARACTER", "BPCHAR", "NAME", "ENUM", "INET"),
            *("INTERVAL", "TIMETZ", "TIME WITH TIME ZONE", "BOX2D", "TSVECTOR", "TSQUERY", "LTREE", "JSONPATH"),
            "REFCURSOR",
        ],
        (Family.TEXT, iceberg.STRING),
    ),
}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_WITH_A_NUMBER = frozenset(
    (
        *("STRING", "TEXT", "VARCHAR", "CHARACTER VARYING", "CHAR", "CHARACTER", "BPCHAR", "BIT", "VARBIT"),
        *("BIT VARYING", "TIMESTAMP", "TIMESTAMPTZ", "TIME", "TIMETZ", "INTERVAL", "FLOAT", "VECTOR"),
        *(f"{name} WITH{out} TIME ZONE" for name in ("TIMESTAMP", "TIME") for out in ("", "OUT")),
    )
)
_WITH_ANYTHING = frozenset(("GEOMETRY", "GEOGRAPHY", "ENUM", "TUPLE", "RECORD"))
_KNOWN = (*_SIMPLE, *_DECIMALS)
_FORM = re.compile(r'([A-Z_"][A-Z0-9_" ]*?)\s*(?:\(\s*([^()]*)\s*\))?\s*(WITH(?:OUT)? TIME ZONE)?')
_COLLATE = re.compile(r"(.*?)\s+COLLATE\s+(\S+)", re.IGNORECASE)
_CITEXT_LOCALE = "und-u-ks-level2"
_FLOAT4_BITS = 24
_INTERVAL_FIELDS = re.compile(r"INTERVAL( (YEAR|MONTH|DAY|HOUR|MINUTE|SECOND)( TO (MONTH|HOUR|MINUTE|SECOND))?)?")


@lru_cache(maxsize=4096)
def parse_source_type(text: str, rules: TypeRules = DEFAULT_RULES) -> SourceType:
    """Raises ConfigError naming the nearest known type."""
    given = text.strip()
    if given.endswith("[]"):
        element = parse_source_type(given[:-2], rules)
        if element.family in (Family.ARRAY, Family.VECTOR):
            raise ConfigError(f"type {text!r}: arrays of arrays do not exist in CockroachDB", type=text)
        return SourceType(given, Family.ARRAY, iceberg.ListOf(element.type), element)
    if match := _COLLATE.fullmatch(given):
        return _collated(given, match[1], match[2], rules)
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
        _check_arguments(text, name, match[2])
        if name == "FLOAT" and match[2] and int(match[2]) <= _FLOAT4_BITS:
            name = "FLOAT4"
        family, to = _SIMPLE[name]
        return SourceType(given, family, _ruled(family, to, rules))
    nearest = difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.0)[0]
    raise ConfigError(
        f"unknown column type {text!r}",
        hint=f"The nearest known type is {nearest}. Write ENUM for an enum and TUPLE for a composite type.",
        type=text,
        nearest=nearest,
    )


def column(
    name: str, source_type: str, origin: str, *, required: bool = False, rules: TypeRules = DEFAULT_RULES
) -> Column:
    """A column of a source type, as Iceberg will hold it. Raises ConfigError."""
    return Column(name, parse_source_type(source_type, rules).type, source_type, origin, required)


def carrier(source_schema: SourceSchema, name: str) -> Column | None:
    """The column whose values rows carry under this name."""
    return next((known for known in source_schema.columns if name in known.carried_as), None)


def collation(source_type: str) -> str:
    """The locale by which strings of a collated type compare; that of CITEXT ignores case."""
    match = _COLLATE.fullmatch(source_type.strip())
    return match[2] if match else _CITEXT_LOCALE


def _ruled(family: Family, to: Type, rules: TypeRules) -> Type:
    return iceberg.TIME if family is Family.TIME and rules.time_as == "time" else to


def _collated(given: str, inner_text: str, locale: str, rules: TypeRules) -> SourceType:
    """CockroachDB prints the collation of an array's elements behind the brackets."""
    if inner_text.endswith("[]"):
        return parse_source_type(f"{inner_text[:-2]} COLLATE {locale}[]", rules)
    inner = parse_source_type(inner_text, rules)
    if inner.family is not Family.TEXT:
        raise ConfigError(f"type {given!r}: only strings are collated", type=given)
    return SourceType(given, Family.COLLATED, iceberg.STRING)


def _check_arguments(text: str, name: str, arguments: str | None) -> None:
    if arguments is None or name in _WITH_ANYTHING:
        return
    if name not in _WITH_A_NUMBER:
        raise ConfigError(f"type {text!r}: {name} takes nothing in parentheses", type=text)
    if not arguments.strip().isdigit():
        raise ConfigError(f"type {text!r}: {name} takes a number in parentheses", type=text)


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
