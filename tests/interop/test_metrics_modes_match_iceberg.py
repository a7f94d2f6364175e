"""`write.metadata.metrics.*`: of every column our files tell as much as iceberg-java's own would."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from test_metrics_match_iceberg import NESTED_FIELDS, NESTED_FULL, in_footer, of_iceberg

from frazil.data.parquet_writer import RollingWriter
from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.tables.tables import Tables
from frazil.model.ids import TableName
from frazil.model.metrics_modes import NONE, MetricsMode, MetricsModes, parse_mode
from frazil.model.schema import DOUBLE, LONG, STRING, Field, ListOf, MapOf, Schema, StructOf, Type
from frazil.model.write import DeleteMode, ParquetSettings, TableTask

pytestmark = pytest.mark.spark

P = "write.metadata.metrics."
MODES = ("none", "counts", "full", "truncate(3)", "Truncate(16)", "rubbish", "truncate(0)")


def config_of(spark: SparkSession, properties: dict[str, str], schema: Schema, sorted_by: list[str]) -> Any:
    iceberg = spark._jvm.org.apache.iceberg
    java = iceberg.SchemaParser.fromJson(json.dumps(schema.to_json()))
    order = iceberg.SortOrder.builderFor(java)
    for name in sorted_by:
        order = order.asc(name)
    held = spark._jvm.java.util.HashMap()
    for key, value in properties.items():
        held.put(key, value)
    return getattr(iceberg.MetricsConfig, "from")(held, java, order.build())


def theirs(config: Any, field_id: int) -> MetricsMode:
    found = parse_mode(config.columnMode(field_id).toString())
    assert found is not None
    return found


def random_schema(chance: random.Random) -> Schema:
    numbers = iter(range(1, 10_000))

    def type_(depth: int) -> Type:
        kind = chance.choice(("plain", "plain", "struct", "list", "map")) if depth else "plain"
        match kind:
            case "struct":
                return StructOf(tuple(Field(next(numbers), f"s{n}", type_(depth - 1)) for n in range(2)))
            case "list":
                own = next(numbers)
                return ListOf(type_(depth - 1), own)
            case "map":
                key, value = next(numbers), next(numbers)
                return MapOf(STRING, type_(depth - 1), key, value)
            case _:
                return chance.choice((LONG, STRING, DOUBLE))

    return Schema(0, tuple(Field(next(numbers), f"c{n}", type_(2)) for n in range(chance.randint(1, 12))))


@pytest.mark.parametrize("seed", range(12))
def test_modes_are_those_of_iceberg(spark: SparkSession, seed: int) -> None:
    chance = random.Random(seed)
    schema = random_schema(chance)
    plain = [field for field in schema if field.type in (LONG, STRING)]
    properties: dict[str, str] = {}
    if chance.random() < 0.4:
        properties[P + "default"] = chance.choice(MODES)
    if chance.random() < 0.7:
        properties[P + "max-inferred-column-defaults"] = str(chance.choice((0, 1, 3, 7, -1)))
    for field in chance.sample(plain, min(2, len(plain))):
        properties[f"{P}column.{field.name}"] = chance.choice(MODES)
    ordered = chance.sample(plain, min(1, len(plain)))
    config = config_of(spark, properties, schema, [field.name for field in ordered])
    ours = MetricsModes.told(properties, schema, [field.id for field in ordered])
    ids = [leaf for field in schema for leaf in leaf_ids(field)]
    assert {n: ours.of(n) for n in ids} == {n: theirs(config, n) for n in ids}


def leaf_ids(field: Field) -> list[int]:
    match field.type:
        case StructOf(fields):
            return [leaf for one in fields for leaf in leaf_ids(one)]
        case ListOf(element, number):
            return leaf_ids(Field(number, "element", element))
        case MapOf(key, value, key_id, value_id):
            return [*leaf_ids(Field(key_id, "key", key)), *leaf_ids(Field(value_id, "value", value))]
        case _:
            return [field.id]


@pytest.mark.parametrize(
    "properties",
    [
        {P + "default": "none", P + "column.id": "counts"},
        {P + "default": "counts", P + "column.place.city": "truncate(4)"},
        {P + "default": "full", P + "column.stops.element.day": "none"},
        {P + "max-inferred-column-defaults": "2"},
    ],
)
def test_metrics_of_each_mode_are_those_iceberg_reads(
    spark: SparkSession, tmp_path: Path, properties: dict[str, str]
) -> None:
    schema = Schema(0, NESTED_FIELDS)
    modes = MetricsModes.told(properties, schema)
    writer = RollingWriter(NESTED_FIELDS, lambda n: f"{tmp_path}/f{n}.parquet", ParquetSettings(), {}, metrics=modes)
    writer.write(pa.RecordBatch.from_pylist([dict(NESTED_FULL)], schema=writer.schema))
    (file,) = writer.close()
    config = config_of(spark, properties, schema, [])
    assert in_footer(file.metrics) == of_iceberg(spark, file.path, config)[1]


def test_a_wide_tables_files_tell_of_its_first_columns_alone(catalog: Catalog, namespace: str) -> None:
    """Every writer of ours gets the modes with the table it writes for."""
    columns = ", ".join(f"c{n} bigint" for n in range(150))
    name = TableName((namespace,), "wide")
    catalog.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog.settings.name}.{namespace}")
    catalog.spark.sql(f"CREATE TABLE {catalog.settings.name}.{name.sql} ({columns}) USING iceberg")
    loaded = Tables(catalog).load(name)
    assert sum(loaded.metrics.of(field.id) != NONE for field in loaded.schema) == 100
    task = TableTask.of(loaded, index=0, key=("c0",), mode=DeleteMode.EQUALITY, epochs=())
    assert task.metrics == loaded.metrics
