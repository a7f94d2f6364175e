"""The golden matrix: every source type, its values as each format of a changefeed writes them, and what they must be.

CELLS[column] = Cell(source type, Iceberg type, [(JSON text, value), ...])   `value` as PyIceberg returns it
csv_text(...), parquet_column(...)   the same values as the other formats write them; None where a format cannot
REFUSED = (source type, JSON text, reason)   values that must stop the table at its last epoch
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal as D
from typing import Any
from uuid import UUID

import pyarrow as pa
from unit.sources.cockroach_parquet import ENUM_TYPE, JSON_TYPE, STRING_TYPE, TIME_TYPE, UUID_TYPE, decimal

NAN, INF = float("nan"), float("inf")
TEXT = 'Zoë 😀 "quoted" \\ tab\t line\n \u0001 \u2028 漢字 \U0010ffff'
DIGITS = "1234567890123456789012345678"


@dataclass(frozen=True)
class Cell:
    source: str
    iceberg: str
    cases: tuple[tuple[str, Any], ...]
    csv: bool = True
    parquet: tuple[Any, Any] | None = None
    """The physical type and the annotation; None if such a column fails the feed."""


def moment(*parts: int) -> datetime:
    return datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def as_written(*texts: str) -> tuple[tuple[str, str], ...]:
    return tuple((text, text) for text in texts)


def as_text(source: str, *values: str, parquet: Any = STRING_TYPE) -> Cell:
    """A type whose values are kept as the source prints them."""
    return Cell(source, "string", tuple((quoted(value), value) for value in values), parquet=(pa.binary(), parquet))


def whole(source: str, iceberg: str, bits: int, kind: Any) -> Cell:
    top = (1 << bits - 1) - 1
    values = (-top - 1, top, 0, -1)
    return Cell(source, iceberg, tuple((str(value), value) for value in values), parquet=(kind, None))


def fixed_point(source: str, precision: int, scale: int, *texts: str) -> Cell:
    cases = tuple((text, D(text)) for text in texts)
    return Cell(source, f"decimal({precision}, {scale})", cases, parquet=(pa.binary(), decimal(precision, scale)))


CELLS = {
    "i2": whole("INT2", "int", 16, pa.int32()),
    "i4": whole("INT4", "int", 32, pa.int32()),
    "i8": whole("INT8", "long", 64, pa.int64()),
    "d38": fixed_point("DECIMAL(38,10)", 38, 10, f"-{DIGITS}.0123456789", f"{DIGITS}.0123456789", "0E-10", "1E-10"),
    "d380": fixed_point("DECIMAL(38)", 38, 0, "9" * 38, "-" + "9" * 38, "0"),
    "d3838": fixed_point("DECIMAL(38,38)", 38, 38, "0." + "9" * 38, "-0." + "0" * 37 + "1", "0E-38"),
    "d2": fixed_point("DECIMAL(12,2)", 12, 2, "9999999999.99", "-0.01", "22.30", "0.00"),
    "free": Cell(
        "DECIMAL",
        "string",
        (*as_written("22.30", "1E+50", "-0.000", "7" * 60 + ".5"), ('"NaN"', "NaN")),
        parquet=(pa.binary(), decimal(2147483647, 0)),
    ),
    "d40": Cell(
        "DECIMAL(40,2)", "string", (("9" * 38 + ".99", "9" * 38 + ".99"),), parquet=(pa.binary(), decimal(40, 2))
    ),
    "f8": Cell(
        "FLOAT8",
        "double",
        (
            ("1.7976931348623157E+308", 1.7976931348623157e308),
            ("-4.9E-324", -5e-324),
            ("0.1", 0.1),
            ('"NaN"', NAN),
            ('"Infinity"', INF),
            ('"-Infinity"', -INF),
            ("1E+1", 10.0),
            ("0", 0.0),
            ("-0", -0.0),
        ),
        parquet=(pa.float64(), None),
    ),
    "f4": Cell(
        "FLOAT4",
        "float",
        (
            ("3.4028235E+38", 3.4028234663852886e38),
            ("-1E-45", -1.401298464324817e-45),
            ("0.10000000149011612", 0.10000000149011612),
            ("0.1", 0.10000000149011612),
            ('"NaN"', NAN),
            ('"-Infinity"', -INF),
            ("0", 0.0),
            ("-0", -0.0),
        ),
        parquet=(pa.float32(), None),
    ),
    "t": Cell("BOOL", "boolean", (("true", True), ("false", False)), parquet=(pa.bool_(), None)),
    "s": as_text("STRING", "", TEXT, "NaN", "a\x00b", "null"),
    "v": as_text("VARCHAR(10)", "x" * 10, "Å"),
    "co": as_text("STRING COLLATE en_US", "Straße", ""),
    "en": as_text("ENUM", "open", "in progress", parquet=ENUM_TYPE),
    "by": Cell(
        "BYTES",
        "binary",
        (('"\\\\x"', b""), ('"\\\\x00ff5c6e"', b"\x00\xff\\n"), ('"\\\\x4e554c4c"', b"NULL")),
        parquet=(pa.binary(), None),
    ),
    "u": Cell(
        "UUID",
        "uuid",
        tuple((quoted(str(u)), u) for u in (UUID(int=0), UUID(int=2**128 - 1), UUID(int=1 << 127))),
        parquet=(pa.binary(16), UUID_TYPE),
    ),
    "day": Cell(
        "DATE",
        "date",
        tuple((quoted(d.isoformat()), d) for d in (date(1, 1, 1), date(9999, 12, 31), date(1969, 12, 31))),
        parquet=(pa.binary(), STRING_TYPE),
    ),
    "clock": Cell(
        "TIME",
        "long",
        (
            ('"00:00:00"', 0),
            ('"23:59:59.999999"', 86_399_999_999),
            ('"24:00:00"', 86_400_000_000),
            ('"03:04:05.5"', 11_045_500_000),
        ),
        parquet=(pa.int64(), TIME_TYPE),
    ),
    "clocktz": as_text("TIMETZ", "14:36:34.873+00", "24:00:00-15:59"),
    "ts": Cell(
        "TIMESTAMP",
        "timestamp",
        (
            ('"0001-01-01T00:00:00"', moment(1, 1, 1)),
            ('"9999-12-31T23:59:59.999999"', moment(9999, 12, 31, 23, 59, 59, 999999)),
            ('"1969-12-31T23:59:59.999999"', moment(1969, 12, 31, 23, 59, 59, 999999)),
            ('"2024-02-29T01:02:03.5"', moment(2024, 2, 29, 1, 2, 3, 500000)),
        ),
        parquet=(pa.binary(), STRING_TYPE),
    ),
    "tz": Cell(
        "TIMESTAMPTZ",
        "timestamptz",
        (
            ('"0001-01-01T00:00:00Z"', moment(1, 1, 1).replace(tzinfo=UTC)),
            ('"9999-12-31T23:59:59.999999Z"', moment(9999, 12, 31, 23, 59, 59, 999999).replace(tzinfo=UTC)),
            ('"1969-12-31T23:59:59.000001Z"', moment(1969, 12, 31, 23, 59, 59, 1).replace(tzinfo=UTC)),
        ),
        parquet=(pa.binary(), STRING_TYPE),
    ),
    "iv": as_text("INTERVAL", "-178000000 years", "1 year 2 mons 3 days 04:05:06.000001", "00:00:00"),
    "ip": as_text("INET", "10.1.0.0/16", "::1", "2001:db8::ff00:42:8329/64"),
    "j": Cell(
        "JSONB",
        "string",
        (
            *as_written(
                '{"a": [1.50, null, "x"], "b": {}}',
                "12345678901234567890.10",
                quoted(TEXT).replace("\x01", "\\u0001"),
                "[]",
                '""',
                "false",
                "1E+2",
            ),
            ('{"__crdb_json_null__": true}', "null"),
        ),
        parquet=(pa.binary(), JSON_TYPE),
    ),
    "geo": Cell(
        "GEOMETRY(POINT,4326)",
        "string",
        ((text := '{"coordinates": [-1.5, 2E+1], "type": "Point"}', text),),
        csv=False,
    ),
    "box": as_text("BOX2D", "BOX(1 2,3 4)", "BOX(-0.5 -1e+300,3 4)"),
    "bits": as_text("VARBIT", "", "0", "1" * 70, parquet=None),
    "oid": Cell("OID", "string", (('"0"', "0"), ('"4294967295"', "4294967295")), parquet=(pa.int32(), None)),
    "lsn": Cell(
        "PG_LSN", "string", (('"0/0"', "0/0"), ('"FFFFFFFF/FFFFFFFF"', "FFFFFFFF/FFFFFFFF")), parquet=(pa.int64(), None)
    ),
    "words": Cell("TSVECTOR", "string", ((quoted("'a':1A 'fat':2B,4C"), "'a':1A 'fat':2B,4C"),)),
    "tree": as_text("LTREE", "Top.Science", "", parquet=None),
    "vec": Cell(
        "VECTOR(3)",
        "list<float>",
        (
            ('"[1,2,3]"', [1.0, 2.0, 3.0]),
            ('"[0.1,-3.4028235e+38,1e-45]"', [0.10000000149011612, -3.4028234663852886e38, 1.401298464324817e-45]),
        ),
    ),
    "ints": Cell(
        "INT8[]",
        "list<long>",
        (
            ("[]", []),
            ("[9223372036854775807, null, -9223372036854775808]", [2**63 - 1, None, -(2**63)]),
            ("[null]", [None]),
        ),
        parquet=(pa.list_(pa.int64()), None),
    ),
    "texts": Cell(
        "STRING[]",
        "list<string>",
        (('["", null, "NULL", "it\'s, \\"so\\"", "😀"]', ["", None, "NULL", 'it\'s, "so"', "😀"]), ("[]", [])),
        parquet=(pa.list_(pa.binary()), STRING_TYPE),
    ),
    "bools": Cell(
        "BOOL[]", "list<boolean>", (("[true, null, false]", [True, None, False]),), parquet=(pa.list_(pa.bool_()), None)
    ),
    "moneys": Cell(
        "DECIMAL(6,2)[]",
        "list<decimal(6, 2)>",
        (("[1.50, null, -9999.99]", [D("1.50"), None, D("-9999.99")]),),
        parquet=(pa.list_(pa.binary()), decimal(6, 2)),
    ),
    "stamps": Cell(
        "TIMESTAMP[]",
        "list<timestamp>",
        (('["0001-01-01T00:00:00", null]', [moment(1, 1, 1), None]),),
        parquet=(pa.list_(pa.binary()), STRING_TYPE),
    ),
    "days": Cell(
        "DATE[]",
        "list<date>",
        (('["9999-12-31"]', [date(9999, 12, 31)]),),
        parquet=(pa.list_(pa.binary()), STRING_TYPE),
    ),
    "ids": Cell(
        "UUID[]",
        "list<uuid>",
        ((f'["{UUID(int=7)}", null]', [UUID(int=7), None]),),
        parquet=(pa.list_(pa.binary(16)), UUID_TYPE),
    ),
}
ROWS = max(len(cell.cases) for cell in CELLS.values()) + 1  # the last row is all NULL


def case(name: str, row: int) -> tuple[str, Any]:
    cases = CELLS[name].cases
    return cases[row] if row < len(cases) else ("null", None)


def csv_text(name: str, text: str) -> str:
    """The field of a CSV file for a value that a JSON feed writes as `text`."""
    cell = CELLS[name]
    if text == "null":
        return "NULL"
    if cell.source == "JSONB":
        return text.replace('{"__crdb_json_null__": true}', "null")
    value = json.loads(text, parse_int=str, parse_float=str)
    return _sql(value, text, cell.source)


def _sql(value: Any, text: str, source: str) -> str:
    if source.endswith("[]"):
        items = ("NULL" if item is None else _item(item, source[:-2]) for item in value)
        return f"ARRAY[{','.join(items)}]"
    if isinstance(value, bool):
        return str(value).lower()
    if source.startswith("FLOAT"):
        return {"Infinity": "+Inf", "-Infinity": "-Inf"}.get(value, value)
    if source.startswith("TIMESTAMP"):
        value = value.replace("T", " ").replace("Z", "+00")
    return str(value)


def _item(value: Any, source: str) -> str:
    plain = _sql(value, "", source)
    bare = source.startswith(("INT", "DECIMAL", "BOOL"))
    return plain if bare else "'" + plain.replace("'", "''") + "'"


def parquet_value(name: str, text: str) -> Any:
    """What a Parquet file physically holds for a value that a JSON feed writes as `text`."""
    cell = CELLS[name]
    assert cell.parquet is not None
    if text == "null":
        return None
    if cell.source == "JSONB":
        return csv_text(name, text).encode()
    value = json.loads(text, parse_int=str, parse_float=str)
    if isinstance(value, list):
        return [
            None if item is None else _physical(item, cell.source[:-2], cell.parquet[0].value_type) for item in value
        ]
    return _physical(value, cell.source, cell.parquet[0])


def _physical(value: Any, source: str, kind: Any) -> Any:
    if pa.types.is_boolean(kind):
        return value
    if pa.types.is_fixed_size_binary(kind):
        return UUID(value).bytes
    if source == "BYTES":
        return bytes.fromhex(value[2:])
    if source == "TIME":
        hours, minutes, seconds = value.split(":")
        return int((D(hours) * 3600 + D(minutes) * 60 + D(seconds)) * 1_000_000)
    if source == "OID":
        return int(value) - (1 << 32 if int(value) >= 1 << 31 else 0)
    if source == "PG_LSN":
        high, low = (int(part, 16) for part in value.split("/"))
        return (high << 32 | low) - (1 << 64 if high >= 1 << 31 else 0)
    if pa.types.is_integer(kind):
        return int(value)
    if pa.types.is_floating(kind):
        return float(value)
    return _sql(value, "", source).encode()


REFUSED = (
    ("INT2", "2147483648", "32 bits"),
    ("INT4", "-2147483649", "32 bits"),
    ("INT8", "9223372036854775808", "64 bits"),
    ("INT8", "1.5", "whole number"),
    ("DECIMAL(12,2)", "1.234", "after the point"),
    ("DECIMAL(12,2)", "10000000000.00", "before the point"),
    ("DECIMAL(38,10)", f"9{DIGITS}.0123456789", "before the point"),
    ("DECIMAL(12,2)", '"NaN"', "finite"),
    ("DECIMAL(6,2)[]", "[1.50, 1.505]", "after the point"),
    ("FLOAT8", "1E+400", "range"),
    ("FLOAT4", "0.123456789", "FLOAT4"),
    ("FLOAT4", "3.5E+38", "range"),
    ("VECTOR(2)", '"[0.123456789,1]"', "FLOAT4"),
    ("VECTOR(2)", '"[1,x]"', "vector"),
    ("DATE", '"infinity"', "years 0001 to 9999"),
    ("DATE", '"-infinity"', "years 0001 to 9999"),
    ("DATE", '"10000-01-01"', "years 0001 to 9999"),
    ("DATE", '"0044-03-15 BC"', "years 0001 to 9999"),
    ("TIMESTAMP", '"294276-12-31T23:59:59.999999"', "years 0001 to 9999"),
    ("TIMESTAMP", '"-4713-11-24T00:00:00"', "years 0001 to 9999"),
    ("TIMESTAMPTZ", '"2024-02-29T01:02:03"', "time zone"),
    ("TIME", '"25:00:00"', "time of day"),
    ("UUID", '"a0eebc99"', "UUID"),
    ("BYTES", '"abc"', "hex digits"),
    ("BOOL", '"true"', "true or false"),
    ("STRING", "1", "string"),
    ("INT8[]", '["x"]', "whole number"),
)
