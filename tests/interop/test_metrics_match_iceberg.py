"""Metrics taken while writing equal those that iceberg-java computes, of the same file and of the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal as D
from pathlib import Path
from typing import Any
from uuid import UUID as Uuid

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from frazil.data.arrow_types import arrow_schema
from frazil.data.bind import Binding
from frazil.data.parquet_writer import ClosedFile, RollingWriter
from frazil.model import schema as c
from frazil.model.files import ColumnMetrics
from frazil.model.ids import TableName
from frazil.model.schema import Field, ListOf, MapOf, StructOf
from frazil.model.write import ParquetSettings

pytestmark = pytest.mark.spark

NAN = float("nan")
UUID_ID = 11
TABLE = TableName.parse("interop.types")
FIELDS = (
    Field(1, "boolean", c.BOOLEAN),
    Field(2, "int", c.INT),
    Field(3, "long", c.LONG, required=True),
    Field(4, "float", c.FLOAT),
    Field(5, "double", c.DOUBLE),
    Field(6, "date", c.DATE),
    Field(7, "time", c.TIME),
    Field(8, "timestamp", c.TIMESTAMP),
    Field(9, "timestamptz", c.TIMESTAMPTZ),
    Field(10, "string", c.STRING),
    Field(11, "uuid", c.UUID),
    Field(12, "binary", c.BINARY),
    Field(13, "fixed", c.Primitive("fixed[20]")),
    Field(14, "decimal5", c.Decimal(5, 2)),
    Field(15, "decimal12", c.Decimal(12, 2)),
    Field(16, "decimal38", c.Decimal(38, 10)),
    Field(17, "strings", ListOf(c.STRING, 18)),
    Field(19, "matrix", ListOf(ListOf(c.DOUBLE, 21), 20)),
)
MOMENT = datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)
FULL = {
    "boolean": True,
    "int": -7,
    "long": 1 << 50,
    "float": 1.25,
    "double": -2.5e300,
    "date": date(1969, 12, 25),
    "time": time(23, 59, 59, 999999),
    "timestamp": MOMENT.replace(tzinfo=None),
    "timestamptz": MOMENT,
    "string": "a text",
    "uuid": Uuid("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes,
    "binary": b"\x00\xff",
    "fixed": bytes(range(20)),
    "decimal5": D("-1.28"),
    "decimal12": D("12345678.90"),
    "decimal38": D("-9999999999999999999999999999.0123456789"),
    "strings": ["x", None, "y"],
    "matrix": [[1.0, NAN], None, []],
}
OTHER = {
    "boolean": False,
    "int": 9,
    "long": -1,
    "float": -0.5,
    "double": 3.0,
    "date": date(2200, 1, 1),
    "time": time(0, 0),
    "timestamp": datetime.fromisoformat("1900-01-01T00:00:00.000001"),
    "timestamptz": datetime(1960, 5, 5, tzinfo=UTC),
    "string": "é",
    "uuid": Uuid(int=3).bytes,
    "binary": b"",
    "fixed": bytes([255] * 20),
    "decimal5": D("999.99"),
    "decimal12": D("-0.01"),
    "decimal38": D("0"),
    "strings": [],
    "matrix": None,
}
NULLS = {"long": 0}
FAMILIES: dict[str, list[Mapping[str, Any]]] = {
    "one row": [FULL],
    "many rows with nulls": [FULL, OTHER, NULLS, NULLS, FULL],
    "only nulls": [NULLS, NULLS],
    "empty values": [{"long": 1, "string": "", "binary": b"", "strings": [], "matrix": []}],
    "exactly sixteen": [{"long": 1, "string": "s" * 16, "binary": b"b" * 16}],
    "long values": [{"long": 1, "string": "abc" * 20, "binary": b"\x01\xff" * 20}],
    "raised past a high byte": [{"long": 1, "string": "a" * 15 + "\u00ff" + "z", "binary": b"\x01" + b"\xff" * 30}],
    "beyond the basic plane": [{"long": 1, "string": "\U0001f600" * 17}],
    "no greater string": [{"long": 1, "string": "\U0010ffff" * 17, "binary": b"\xff" * 17}],
    "before the surrogates": [{"long": 1, "string": "a" * 15 + "\ud7ff" + "b"}],
}


def write(folder: Path, rows: list[Mapping[str, Any]], **settings: Any) -> ClosedFile:
    writer = RollingWriter(FIELDS, lambda n: f"{folder}/f{n}.parquet", ParquetSettings(**settings), {})
    plain = pa.schema([f if f.name != "uuid" else pa.field("uuid", pa.binary(16)) for f in arrow_schema(FIELDS)])
    batch = pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=plain)
    writer.write(Binding(TABLE, FIELDS).bind(batch))
    (file,) = writer.close()
    return file


def of_iceberg(spark: SparkSession, path: str, config: Any = None) -> tuple[int, dict[int, ColumnMetrics]]:
    """What iceberg-java reads from the footer of a file."""
    iceberg = spark._jvm.org.apache.iceberg
    metrics = iceberg.parquet.ParquetUtil.fileMetrics(
        iceberg.Files.localInput(path), config or iceberg.MetricsConfig.getDefault()
    )
    to_bytes = iceberg.util.ByteBuffers.toByteArray

    def taken(found: Any) -> dict[int, Any]:
        return {} if found is None else dict(found)

    def bounds(found: Any) -> dict[int, bytes]:
        return {key: bytes(to_bytes(value)) for key, value in taken(found).items() if value is not None}

    sizes, values, nulls = (
        taken(metrics.columnSizes()),
        taken(metrics.valueCounts()),
        taken(metrics.nullValueCounts()),
    )
    lowers, uppers = bounds(metrics.lowerBounds()), bounds(metrics.upperBounds())
    return metrics.recordCount(), {
        key: ColumnMetrics(
            field_id=key,
            size=sizes.get(key),
            values=values.get(key),
            nulls=nulls.get(key),
            lower=lowers.get(key),
            upper=uppers.get(key),
        )
        for key in {*sizes, *values, *nulls, *lowers, *uppers}
    }


def in_footer(metrics: tuple[ColumnMetrics, ...]) -> dict[int, ColumnMetrics]:
    """A footer has no count of NaN, and of a uuid, which must not be skipped by, the size alone."""
    return {
        m.field_id: ColumnMetrics(field_id=m.field_id, size=m.size)
        if m.field_id == UUID_ID
        else ColumnMetrics(
            field_id=m.field_id, size=m.size, values=m.values, nulls=m.nulls, lower=m.lower, upper=m.upper
        )
        for m in metrics
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_metrics_are_those_iceberg_reads_from_our_footer(spark: SparkSession, tmp_path: Path, family: str) -> None:
    file = write(tmp_path, FAMILIES[family])
    records, expected = of_iceberg(spark, file.path)
    assert file.records == records
    assert in_footer(file.metrics) == expected


def test_metrics_over_several_row_groups_are_those_iceberg_reads(spark: SparkSession, tmp_path: Path) -> None:
    file = write(tmp_path, [NULLS, OTHER, NULLS, FULL, FULL, NULLS], row_group_rows=2)
    assert len(file.split_offsets) == 3
    assert in_footer(file.metrics) == of_iceberg(spark, file.path)[1]


def test_split_offsets_are_those_iceberg_reads(spark: SparkSession, tmp_path: Path) -> None:
    file = write(tmp_path, [FULL, OTHER, NULLS, NULLS, FULL], row_group_rows=2)
    jvm = spark._jvm
    shaded = jvm.org.apache.iceberg.shaded.org.apache.parquet.hadoop.ParquetFileReader
    footer = shaded.readFooter(spark._jsc.hadoopConfiguration(), jvm.org.apache.hadoop.fs.Path(file.path))
    assert tuple(jvm.org.apache.iceberg.parquet.ParquetUtil.getSplitOffsets(footer)) == file.split_offsets


PLACE = StructOf(
    (Field(3, "city", c.STRING), Field(4, "at", StructOf((Field(5, "lat", c.DOUBLE), Field(6, "n", c.Decimal(9, 2))))))
)
NESTED_FIELDS = (
    Field(1, "id", c.LONG, required=True),
    Field(2, "place", PLACE),
    Field(7, "stops", ListOf(StructOf((Field(9, "day", c.DATE), Field(10, "note", c.STRING))), 8)),
    Field(11, "names", MapOf(c.STRING, StructOf((Field(14, "n", c.INT),)), 12, 13)),
)
NESTED_FULL = {
    "id": 1,
    "place": {"city": "Zürich" * 5, "at": {"lat": -47.5, "n": D("-1.28")}},
    "stops": [{"day": date(2024, 1, 1), "note": "a"}, None, {"day": None, "note": "b"}],
    "names": [("x", {"n": 1}), ("y", None)],
}
NESTED_FAMILIES: dict[str, list[Mapping[str, Any]]] = {
    "full": [NESTED_FULL],
    "missing at each level": [
        NESTED_FULL,
        {"id": 2, "place": None, "stops": [], "names": []},
        {"id": 3, "place": {"city": None, "at": None}},
        {"id": 4, "place": {"city": "", "at": {"lat": 3.0, "n": None}}},
    ],
    "only nulls": [{"id": 1}, {"id": 2}],
}


@pytest.mark.parametrize("family", NESTED_FAMILIES)
@pytest.mark.parametrize("row_group_rows", [1, 100])
def test_metrics_of_nested_columns_are_those_iceberg_reads(
    spark: SparkSession, tmp_path: Path, family: str, row_group_rows: int
) -> None:
    settings = ParquetSettings(row_group_rows=row_group_rows)
    writer = RollingWriter(NESTED_FIELDS, lambda n: f"{tmp_path}/f{n}.parquet", settings, {})
    rows = [dict(row) for row in NESTED_FAMILIES[family]]
    writer.write(pa.RecordBatch.from_pylist(rows, schema=writer.schema))
    (file,) = writer.close()
    records, expected = of_iceberg(spark, file.path)
    assert file.records == records
    assert in_footer(file.metrics) == expected
    assert {m.field_id for m in file.metrics} == {1, 3, 5, 6, 9, 10, 12, 14}


SPARK_FIELDS = (
    Field(1, "id", c.LONG),
    Field(2, "f", c.FLOAT),
    Field(3, "d", c.DOUBLE),
    Field(4, "s", c.STRING),
    Field(5, "b", c.BINARY),
    Field(6, "n", c.Decimal(20, 4)),
    Field(7, "t", c.TIMESTAMPTZ),
    Field(8, "l", ListOf(c.DOUBLE, 9)),
)
SPARK_FAMILIES: dict[str, list[tuple[Any, ...]]] = {
    "nan among numbers": [
        (1, NAN, 1.0, "x", b"y", D("1.5"), MOMENT, [NAN, 1.0]),
        (2, -3.5, NAN, "long" * 9, b"\xff" * 20, None, None, None),
        (3, None, None, None, None, D("-2"), MOMENT, []),
    ],
    "only nan": [(1, NAN, NAN, None, None, None, None, [NAN])],
    "zeros of both signs": [(1, 0.0, -0.0, *[None] * 5), (2, -0.0, 0.0, *[None] * 5)],
    "minus zero alone": [(1, -0.0, -0.0, *[None] * 5)],
    "zero alone": [(1, 0.0, 0.0, *[None] * 5)],
    "infinities": [(1, float("inf"), float("-inf"), *[None] * 5), (2, 1.0, 1.0, *[None] * 5)],
}


@pytest.mark.parametrize("family", SPARK_FAMILIES)
def test_metrics_are_those_iceberg_takes_when_it_writes_the_same_rows(
    spark: SparkSession, tmp_path: Path, namespace: str, family: str
) -> None:
    rows = SPARK_FAMILIES[family]
    table = f"frazil.{namespace}.types"
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS frazil.{namespace}")
    spark.sql(
        f"CREATE TABLE {table} (id bigint, f float, d double, s string, b binary, n decimal(20, 4), t timestamp, "
        "l array<double>) USING iceberg"
    )
    spark.createDataFrame(rows, spark.table(table).schema).coalesce(1).writeTo(table).append()
    (entry,) = spark.sql(
        "SELECT record_count, value_counts, null_value_counts, nan_value_counts, lower_bounds, upper_bounds "
        f"FROM {table}.files"
    ).collect()

    writer = RollingWriter(SPARK_FIELDS, lambda n: f"{tmp_path}/f{n}.parquet", ParquetSettings(), {})
    names = [field.name for field in SPARK_FIELDS]
    plain = [dict(zip(names, row, strict=True)) for row in rows]
    writer.write(pa.RecordBatch.from_pylist(plain, schema=writer.schema))
    (file,) = writer.close()

    def ours(name: str) -> dict[int, Any]:
        return {m.field_id: getattr(m, name) for m in file.metrics if getattr(m, name) is not None}

    def theirs(name: str) -> dict[int, Any]:
        return {key: bytes(v) if isinstance(v, bytearray) else v for key, v in (entry[name] or {}).items()}

    assert file.records == entry.record_count
    assert ours("values") == theirs("value_counts")
    assert ours("nulls") == theirs("null_value_counts")
    assert ours("nans") == theirs("nan_value_counts")
    assert ours("lower") == theirs("lower_bounds")
    assert ours("upper") == theirs("upper_bounds")
