"""Common types stay exact on the whole way: changefeed text to Parquet, read back by Spark and by PyIceberg."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from feed_builders import Lab, at, column_types, table, upsert
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLUMNS = {
    "a": "INT8",
    "i2": "INT2",
    "i4": "INT4",
    "i8": "INT8",
    "d38": "DECIMAL(38,10)",
    "d2": "DECIMAL(12,2)",
    "whole": "DECIMAL(20)",
    "s": "STRING",
    "v": "VARCHAR(10)",
    "t": "BOOL",
    "by": "BYTES",
    "u": "UUID",
    "day": "DATE",
    "ts": "TIMESTAMP",
    "tz": "TIMESTAMPTZ",
    "j": "JSONB",
    "ints": "INT8[]",
    "texts": "STRING[]",
    "decimals": "DECIMAL(6,2)[]",
    "f8": "FLOAT8",
    "f4": "FLOAT4",
    "clock": "TIME",
}
SPARK = {
    "a": "bigint", "i2": "int", "i4": "int", "i8": "bigint", "d38": "decimal(38,10)", "d2": "decimal(12,2)",
    "whole": "decimal(20,0)", "s": "string", "v": "string", "t": "boolean", "by": "binary", "u": "string",
    "day": "date", "ts": "timestamp_ntz", "tz": "timestamp", "j": "string", "ints": "array<bigint>",
    "texts": "array<string>", "decimals": "array<decimal(6,2)>", "f8": "double", "f4": "float", "clock": "bigint",
}  # fmt: skip
TEXT = 'Zoë 😀 "quoted" \\ tab\t \u0001 \u2028 漢字'
# Each line: the values as CockroachDB prints them, and as they must come back.
LEAST = {
    "a": ("1", 1),
    "i2": ("-32768", -32768),
    "i4": ("-2147483648", -(2**31)),
    "i8": ("-9223372036854775808", -(2**63)),
    "d38": ("-9999999999999999999999999999.9999999999", Decimal("-9999999999999999999999999999.9999999999")),
    "d2": ("-0.01", Decimal("-0.01")),
    "whole": ("-99999999999999999999", Decimal("-99999999999999999999")),
    "s": ('""', ""),
    "v": ('"NULL"', "NULL"),
    "t": ("false", False),
    "by": ('"\\\\x"', b""),
    "u": ('"00000000-0000-0000-0000-000000000000"', UUID(int=0)),
    "day": ('"0001-01-01"', date(1, 1, 1)),
    "ts": ('"0001-01-01T00:00:00"', datetime(1, 1, 1)),  # noqa: DTZ001
    "tz": ('"0001-01-01T00:00:00Z"', datetime(1, 1, 1, tzinfo=UTC)),
    "j": ('{"a": [1.50, null, "x"], "b": {}}', '{"a": [1.50, null, "x"], "b": {}}'),
    "ints": ("[]", []),
    "texts": ("[]", []),
    "decimals": ("[null]", [None]),
    "f8": ("-1.7976931348623157E+308", -1.7976931348623157e308),
    "f4": ("-0.5", -0.5),
    "clock": ('"00:00:00"', 0),
}
MOST = {
    "a": ("2", 2),
    "i2": ("32767", 32767),
    "i4": ("2147483647", 2**31 - 1),
    "i8": ("9223372036854775807", 2**63 - 1),
    "d38": ("9999999999999999999999999999.9999999999", Decimal("9999999999999999999999999999.9999999999")),
    "d2": ("9999999999.99", Decimal("9999999999.99")),
    "whole": ("99999999999999999999", Decimal("99999999999999999999")),
    "s": (json.dumps(TEXT, ensure_ascii=False), TEXT),
    "v": (json.dumps(TEXT), TEXT),  # the same with surrogate pairs and \u escapes
    "t": ("true", True),
    "by": ('"\\\\x00ff5c6e"', b"\x00\xff\\n"),
    "u": ('"ffffffff-ffff-ffff-ffff-ffffffffffff"', UUID(int=2**128 - 1)),
    "day": ('"9999-12-31"', date(9999, 12, 31)),
    "ts": ('"9999-12-31T23:59:59.999999"', datetime(9999, 12, 31, 23, 59, 59, 999999)),  # noqa: DTZ001
    "tz": ('"9999-12-31T23:59:59.999999Z"', datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    "j": ("12345678901234567890.10", "12345678901234567890.10"),
    "ints": ("[9223372036854775807, null, -1]", [2**63 - 1, None, -1]),
    "texts": ('["", null, "null", "😀"]', ["", None, "null", "😀"]),
    "decimals": ("[1.50, 0, -9999.99]", [Decimal("1.50"), Decimal("0.00"), Decimal("-9999.99")]),
    "f8": ("4.9E-324", 5e-324),
    "f4": ("1E+1", 10.0),
    "clock": ('"23:59:59.999999"', 86_399_999_999),
}
ZERO = {
    **dict.fromkeys(COLUMNS, ("null", None)),
    "a": ("3", 3),
    "d38": ("0", Decimal("0E-10")),
    "d2": ("0.00", Decimal("0.00")),
    "whole": ("0", Decimal(0)),
    "ts": ('"1969-12-31T23:59:59.999999"', datetime(1969, 12, 31, 23, 59, 59, 999999)),  # noqa: DTZ001
    "tz": ('"1969-12-31T23:59:59.000001Z"', datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC)),
    "day": ('"1969-12-31"', date(1969, 12, 31)),
    "f8": ("0.1", 0.1),
}
ROWS = (LEAST, MOST, ZERO)


@pytest.fixture
def lab(spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path) -> Lab:
    lab = Lab(spark, warehouse, namespace, tmp_path, tables=[table(columns=COLUMNS)])
    lines = []
    for row in ROWS:
        after = ", ".join(f'"{name}": {row[name][0]}' for name in sorted(row))
        lines.append(f'{{"after": {{{after}}}, "key": [{row["a"][0]}], "updated": "{at(1)}"}}')
    lab.feed.data(at(1), lines)
    lab.feed.resolved(at(2))
    return lab


def as_spark(value: Any) -> Any:
    match value:
        case UUID():
            return str(value)
        case datetime(tzinfo=zone) if zone is not None:
            return value.replace(tzinfo=None)
        case bytes():
            return bytearray(value)
    return value


def test_spark_reads_back_exactly_what_the_source_wrote(lab: Lab) -> None:
    lab.run()
    assert column_types(lab.spark, lab.sql_name("t")) == SPARK
    found = lab.rows(order="a")
    for expected, row in zip(ROWS, found, strict=True):
        wanted = {name: as_spark(value) for name, (_, value) in expected.items()}
        assert {name: row[name] for name in wanted} == wanted
    exact = lab.spark.sql(f"SELECT string(d38), string(ts), string(tz) FROM {lab.sql_name('t')} WHERE a = 2").first()
    assert tuple(exact) == (
        "9999999999999999999999999999.9999999999", "9999-12-31 23:59:59.999999", "9999-12-31 23:59:59.999999",
    )  # fmt: skip


def test_pyiceberg_reads_back_the_same(lab: Lab) -> None:
    """A table that never had a delete; equality deletes PyIceberg refuses."""
    lab.run()
    catalog = SqlCatalog("frazil", uri=f"sqlite:///{lab.warehouse}/catalog.db", warehouse=str(lab.warehouse))
    found = sorted(catalog.load_table(f"{lab.namespace}.t").scan().to_arrow().to_pylist(), key=lambda row: row["a"])
    for expected, row in zip(ROWS, found, strict=True):
        wanted = {name: value for name, (_, value) in expected.items()}
        row = {n: UUID(bytes=v) if n == "u" and isinstance(v, bytes) else v for n, v in row.items()}
        assert {name: row[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("readers", "iceberg", "before", "after"),
    [
        (None, "long", 11_045_500_000, 86_399_999_999),
        (["pyiceberg"], "time", time(3, 4, 5, 500_000), time(23, 59, 59, 999_999)),
    ],
)
def test_a_time_is_a_number_only_for_readers_that_refuse_the_type(
    spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path,
    readers: list[str] | None, iceberg: str, before: Any, after: Any,
) -> None:  # fmt: skip
    """Spark refuses a whole table that has a `time` column; PyIceberg reads it. A restart finds the type again."""
    lab = Lab(spark, warehouse, namespace, tmp_path, tables=[table(columns={"a": "INT8", "clock": "TIME"})])
    lab.settings = {} if readers is None else {"readers": readers}

    def publish(second: int, text: str) -> None:
        rows = [upsert([1], at(second), a=1, clock=text), upsert([second], at(second), a=second, clock=None)]
        lab.feed.data(at(second), rows)
        lab.feed.resolved(at(second + 1))
        lab.run()

    def found() -> tuple[str, dict[int, Any]]:
        catalog = SqlCatalog("frazil", uri=f"sqlite:///{lab.warehouse}/catalog.db", warehouse=str(lab.warehouse))
        loaded = catalog.load_table(f"{lab.namespace}.t")
        rows = loaded.scan().to_arrow().to_pylist()
        return str(loaded.schema().find_field("clock").field_type), {row["a"]: row["clock"] for row in rows}

    publish(3, "03:04:05.5")
    assert found() == (iceberg, {1: before, 3: None})
    lab.tables = [table(columns={})]
    publish(5, "23:59:59.999999")
    assert found() == (iceberg, {1: after, 3: None, 5: None})


KEYED = {
    "u": ("UUID", '"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"', '"A0EEBC99-9c0b-4ef8-bb6d-6bb9bd380a11"'),
    "d": ("DECIMAL(10,3)", "1.5", "1.500"),
    "free": ("DECIMAL", "1.5", "1.50"),
    "by": ("BYTES", '"\\\\x00ff"', '"\\\\x00FF"'),
    "day": ("DATE", '"2024-02-29"', '"2024-02-29"'),
    "ts": ("TIMESTAMP", '"2024-02-29T01:02:03.5"', '"2024-02-29T01:02:03.500000"'),
    "tz": ("TIMESTAMPTZ", '"2024-02-29T01:02:03Z"', '"2024-02-29T01:02:03.000Z"'),
    "s": ("STRING", '"Zoë 😀"', '"Zo\\u00eb \\ud83d\\ude00"'),
    "t": ("BOOL", "true", "true"),
    "i2": ("INT2", "-7", "-7"),
}


def test_rows_of_every_key_type_are_replaced_and_deleted(
    spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path
) -> None:
    """H51: one key in two spellings is one row. Each type is a table of the same feed; another row must stay."""
    lab = Lab(spark, warehouse, namespace, tmp_path)
    lab.tables = [table(name, key=["k"], columns={"k": kind, "v": "INT8"}) for name, (kind, _, _) in KEYED.items()]
    others = {"BOOL": "false", "INT2": "8", "DATE": '"1999-01-01"', "STRING": '"other"', "UUID": f'"{UUID(int=5)}"'}
    others |= {"BYTES": '"\\\\x00"', "TIMESTAMP": '"1999-01-01T00:00:00"', "TIMESTAMPTZ": '"1999-01-01T00:00:00Z"'}
    for name, (kind, spelling, again) in KEYED.items():

        def change(key: str, value: str, second: int) -> str:
            after = value if value == "null" else f'{{"k": {key}, "v": {value}}}'
            return f'{{"after": {after}, "key": [{key}], "updated": "{at(second)}"}}'

        other = others.get(kind, "77")
        lab.feed.data(at(1), [change(spelling, "1", 1), change(other, "10", 1)], topic=name)
        lab.feed.data(at(3), [change(again, "2", 3)], topic=name)
        lab.feed.data(at(5), [change(spelling, "null", 5)], topic=name)
    for second in (2, 4, 6):
        lab.feed.resolved(at(second))
    lab.run()
    for name in KEYED:
        assert sorted(row["v"] for row in lab.rows(name, at(2))) == [1, 10], name
        assert sorted(row["v"] for row in lab.rows(name, at(4))) == [2, 10], name
        assert [row["v"] for row in lab.rows(name)] == [10], name
