"""Partitioned tables on real Spark: our files are where readers look for them, and readers skip all others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal as D
from pathlib import Path
from typing import Any
from uuid import UUID as Uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from partition_builders import Publisher, options, planned, source_schema, without_metrics
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from frazil.data.partition_values import json_values
from frazil.errors import ConfigError
from frazil.iceberg.catalogs.open_catalog import Catalog, CatalogSettings
from frazil.iceberg.tables.tables import LoadedTable
from frazil.model import schema as c
from frazil.model.arrow import value_type
from frazil.model.files import FileClosed, FileKind
from frazil.model.ids import TableName
from frazil.model.partition import Transform, result_type, takes
from frazil.model.schema import Decimal, Field, Primitive, StructOf, Type
from frazil.model.sort import SortField
from frazil.model.write import DeleteMode

pytestmark = pytest.mark.spark

# Three values of each type: the first two share most coarse partitions, the third lies apart.
VALUES: dict[str, tuple[Type, list[Any]]] = {
    "bool": (c.BOOLEAN, [True, False, False]),
    "int": (c.INT, [34, 35, -7]),
    "long": (c.LONG, [34, 1 << 40, -(1 << 40)]),
    "float": (c.FLOAT, [0.5, 1.5, -2.25]),
    "double": (c.DOUBLE, [0.1, 1e300, -2.5]),
    "date": (c.DATE, [date(2017, 11, 16), date(2017, 11, 17), date(1969, 12, 31)]),
    "ts": (
        c.TIMESTAMP,
        [
            datetime.fromisoformat(t)
            for t in ("2017-11-16T22:31:08.000001", "2017-11-16T22:59:00", "1969-12-31T23:59:59")
        ],
    ),
    "tstz": (
        c.TIMESTAMPTZ,
        [
            datetime.fromisoformat(t)
            for t in ("2017-11-16T22:31:08+00:00", "2017-12-01T00:00:00+00:00", "1960-02-29T12:00:00+00:00")
        ],
    ),
    "text": (c.STRING, ["iceberg", "ice cream", "é\U0001f600xyz"]),
    "uuid": (c.UUID, [Uuid("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes, Uuid(int=3).bytes, Uuid(int=1 << 127).bytes]),
    "fixed": (Primitive("fixed[4]"), [b"\x00\x01\x02\x03", b"\x00\x01\x02\x04", b"\xff" * 4]),
    "bin": (c.BINARY, [b"\x00\x01\x02\x03", b"\x00\x01\x02\xff\xff", b"\xfe"]),
    "dec9": (Decimal(9, 2), [D("14.20"), D("14.29"), D("-0.01")]),
    "dec38": (Decimal(38, 10), [D("1234567890123456789012345678.0123456789"), D("0E-10"), D("-1.5")]),
}
TRANSFORMS = ("identity", "bucket[8]", "truncate[3]", "year", "month", "day", "hour", "void")


@pytest.fixture
def shop(catalog: Catalog) -> Publisher:
    return Publisher(catalog)


def literal(catalog: Catalog, type_: Type, value: Any) -> Any:
    """A value as iceberg-java's expressions take it."""
    if type_ == c.BINARY or str(type_).startswith("fixed"):
        return catalog.spark._jvm.java.nio.ByteBuffer.wrap(value)
    return json_values(type_, pa.array([value], value_type(type_)))[0]


def equals(catalog: Catalog, column: str, type_: Type, value: Any) -> Any:
    expressions = catalog.iceberg.expressions.Expressions
    if value is None:
        return expressions.isNull(column)
    return expressions.equal(column, literal(catalog, type_, value))


def read(spark: SparkSession, table: LoadedTable, where: str = "true", columns: str = "*") -> list[dict[str, Any]]:
    rows = spark.sql(f"SELECT {columns} FROM frazil.{table.name.sql} WHERE {where}").collect()
    return sorted((row.asDict(recursive=True) for row in rows), key=str)


def data(files: Sequence[FileClosed]) -> list[FileClosed]:
    return [file for file in files if file.kind is FileKind.DATA]


def spelled(transform: str, column: str) -> str:
    parsed = Transform.parse(transform)
    if parsed.name == "identity":
        return column
    return f"{parsed.name}({column})" if parsed.width is None else f"{parsed.name}({parsed.width}, {column})"


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_filter_on_a_column_reads_the_files_of_its_partitions_alone(
    catalog: Catalog, spark: SparkSession, namespace: str, shop: Publisher, transform: str
) -> None:
    """Hidden partitioning: iceberg-java, told nothing but the partitions, plans exactly the files that share the
    value's partition, among them the one with the row."""
    names = [name for name, (type_, _) in VALUES.items() if takes(Transform.parse(transform), type_)]
    columns = {"id": c.LONG, **{name: VALUES[name][0] for name in names}}
    table = shop.tables.ensure(
        TableName((namespace,), "t"), source_schema(columns), options(*(spelled(transform, name) for name in names))
    )
    assert len(table.spec.fields) == len(names)
    rows: list[dict[str, Any]] = [{"id": n, **{name: VALUES[name][1][n] for name in names}} for n in range(3)]
    rows.append({"id": 3})
    files = shop.write(table, rows, mode=DeleteMode.VECTORS)
    shop.commit(table, without_metrics(files))
    of_id = {i: f for f in files for i in pq.ParquetFile(f.path).read(["id"])["id"].to_pylist()}
    for place, name in enumerate(names):
        for row in rows:
            mine = of_id[row["id"]].partition[place]
            expected = {f.path for f in files if transform == "void" or same(f.partition[place], mine)}
            got = planned(catalog, table.name, equals(catalog, name, VALUES[name][0], row.get(name)))
            assert got == expected, (name, row.get(name))
            assert transform == "void" or name == "bool" or len(got) < len(files) or len(files) < 4

    written = {row["id"]: row for row in read(spark, table)}
    assert written.keys() == {0, 1, 2, 3}
    for row in rows:
        for name in names:
            assert written[row["id"]][name] == as_spark(columns[name], row.get(name)), name


def same(left: Any, right: Any) -> bool:
    return left == right and type(left) is type(right)


def as_spark(type_: Type, value: Any) -> Any:
    if value is not None and type_ == c.UUID:
        return str(Uuid(bytes=value))
    if value is not None and type_ == c.TIMESTAMPTZ:
        return value.astimezone(UTC).replace(tzinfo=None)
    return bytearray(value) if isinstance(value, bytes) else value


@pytest.mark.parametrize("transform", ["identity", "bucket[8]"])
def test_times_of_day_partition_tables_for_readers_that_know_them(
    catalog: Catalog, catalog_settings: CatalogSettings, namespace: str, shop: Publisher, transform: str
) -> None:
    table = shop.tables.ensure(
        TableName((namespace,), "t"), source_schema({"id": c.LONG, "at": c.TIME}), options(spelled(transform, "at"))
    )
    times = [time(22, 31, 8), time(0, 0, 0, 1), time(23, 59, 59, 999999), None]
    files = shop.write(table, [{"id": n, "at": at} for n, at in enumerate(times)], mode=DeleteMode.VECTORS)
    shop.commit(table, without_metrics(files))
    for file in files:
        for at in pq.ParquetFile(file.path).read(["at"])["at"].to_pylist():
            assert file.path in planned(catalog, table.name, equals(catalog, "at", c.TIME, at))
            assert len(planned(catalog, table.name, equals(catalog, "at", c.TIME, at))) < len(files)
    found = pyiceberg_table(catalog_settings, table).scan().to_arrow().sort_by("id").to_pylist()
    assert found == [{"id": n, "at": at} for n, at in enumerate(times)]


def pyiceberg_table(settings: CatalogSettings, table: LoadedTable) -> Any:
    reader = SqlCatalog("frazil", uri=f"sqlite:///{settings.database}", warehouse=str(settings.warehouse))
    return reader.load_table(table.name.text)


ORDERS = {"id": c.LONG, "region": c.STRING, "at": c.TIMESTAMPTZ, "amount": Decimal(12, 2)}


def order(number: int, region: str | None = "eu", day: int = 1, amount: str = "1.00") -> dict[str, Any]:
    return {"id": number, "region": region, "at": datetime(2024, 1, day, tzinfo=UTC), "amount": D(amount)}


def test_several_fields_and_null_values_cut_the_rows_together(
    catalog: Catalog, spark: SparkSession, catalog_settings: CatalogSettings, namespace: str, shop: Publisher
) -> None:
    table = shop.tables.ensure(TableName((namespace,), "t"), source_schema(ORDERS), options("day(at)", "region"))
    rows = [order(1), order(2, "us"), order(3, None), order(4, None, 2), order(5, "eu", 2), order(6, "eu", 2)]
    rows.append({**order(7), "at": None})
    files = shop.publish(table, rows, mode=DeleteMode.VECTORS)
    assert {file.partition: file.records for file in files} == {
        ("2024-01-01", "eu"): 1,
        ("2024-01-01", "us"): 1,
        ("2024-01-01", None): 1,
        ("2024-01-02", None): 1,
        ("2024-01-02", "eu"): 2,
        (None, "eu"): 1,
    }
    shown = spark.sql(f"SELECT partition.*, record_count FROM frazil.{table.name.sql}.partitions").collect()
    assert {(r.at_day, r.region): r.record_count for r in shown} == {
        tuple(date.fromisoformat(v) if v and v[0] == "2" else v for v in f.partition): f.records for f in files
    }
    day = "at >= timestamp'2024-01-02' AND at < timestamp'2024-01-03'"
    assert [row["id"] for row in read(spark, table, day)] == [4, 5, 6]
    expressions = catalog.iceberg.expressions.Expressions
    both = getattr(expressions, "and")
    since = expressions.greaterThanOrEqual("at", "2024-01-02T00:00:00+00:00")
    got = planned(catalog, table.name, both(since, expressions.equal("region", "eu")))
    assert got == {f.path for f in files if f.partition == ("2024-01-02", "eu")}
    assert read(spark, table, "region IS NULL", "id") == [{"id": 3}, {"id": 4}]
    reader = pyiceberg_table(catalog_settings, table)
    assert sorted(reader.scan(row_filter="region = 'eu'").to_arrow()["id"].to_pylist()) == [1, 5, 6, 7]
    assert len(list(reader.scan(row_filter="region = 'us'").plan_files())) == 1


def test_floats_that_are_no_numbers_have_partitions_of_their_own(
    spark: SparkSession, namespace: str, shop: Publisher
) -> None:
    table = shop.tables.ensure(TableName((namespace,), "t"), source_schema({"id": c.LONG, "x": c.DOUBLE}), options("x"))
    values = [math.nan, math.inf, -math.inf, 0.0, -0.0, None, math.nan]
    files = shop.publish(table, [{"id": n, "x": x} for n, x in enumerate(values)], mode=DeleteMode.VECTORS)
    assert len(files) == 6
    got = {row["id"]: row["x"] for row in read(spark, table)}
    assert [repr(got[n]) for n in range(7)] == [repr(x) for x in values]
    assert read(spark, table, "isnan(x)", "id") == [{"id": 0}, {"id": 6}]


def test_the_files_of_very_many_partitions_are_handed_over_with_their_values(
    spark: SparkSession, namespace: str, shop: Publisher
) -> None:
    table = shop.tables.ensure(TableName((namespace,), "t"), source_schema(ORDERS), options("region", "bucket(4, id)"))
    files = shop.publish(table, [order(n, f"r{n % 50}") for n in range(600)], mode=DeleteMode.VECTORS)
    assert len(files) == len({file.partition for file in files}) > 100
    assert [row["id"] for row in read(spark, table, "region = 'r7' AND id < 60")] == [57, 7]
    assert spark.table(f"frazil.{table.name.text}").count() == 600


def test_partitioning_evolves_in_the_middle_and_both_kinds_of_files_are_read(
    catalog: Catalog, spark: SparkSession, namespace: str, shop: Publisher
) -> None:
    name = TableName((namespace,), "t")
    first = shop.tables.ensure(name, source_schema(ORDERS), options("day(at)"))
    old = data(shop.publish(first, [order(1, "eu", 1), order(2, "us", 2)]))
    same_again = shop.tables.ensure(name, source_schema(ORDERS), options("day(at)"))
    assert same_again.spec == first.spec
    assert shop.tables.ensure(name, source_schema(ORDERS), options()).spec == first.spec, "not configured: left alone"
    second = shop.tables.ensure(name, source_schema(ORDERS), options("region", "bucket(4, id)"))
    assert [f.name for f in second.spec.fields] == ["region", "id_bucket_4"]
    assert second.delete_spec.spec_id == 0
    new = data(shop.publish(second, [order(1, "us", 1, "9.00"), order(3, "eu", 2)]))
    assert {f.spec_id for f in old} == {first.spec.spec_id}
    assert {f.spec_id for f in new} == {second.spec.spec_id}
    assert [row["id"] for row in read(spark, second)] == [1, 2, 3]
    assert read(spark, second, "id = 1", "region, amount") == [{"region": "us", "amount": D("9.00")}]
    shown = spark.sql(f"SELECT spec_id FROM frazil.{name.sql}.data_files").collect()
    assert {row.spec_id for row in shown} == {first.spec.spec_id, second.spec.spec_id}
    got = planned(catalog, name, catalog.iceberg.expressions.Expressions.equal("region", "eu"))
    assert got == {f.path for f in new if f.partition[0] == "eu"} | {f.path for f in old if b"eu" in bounds(f, 2)}
    back = shop.tables.ensure(name, source_schema(ORDERS), options("day(at)"))
    assert back.spec.fields == first.spec.fields
    shop.publish(back, [order(4, "eu", 3)])
    assert [row["id"] for row in read(spark, back)] == [1, 2, 3, 4]


def bounds(file: FileClosed, field_id: int) -> tuple[bytes | None, bytes | None]:
    return next((m.lower, m.upper) for m in file.metrics if m.field_id == field_id)


def test_a_row_that_moves_to_another_partition_leaves_none_behind(
    spark: SparkSession, namespace: str, shop: Publisher
) -> None:
    """H1."""
    table = shop.tables.ensure(TableName((namespace,), "t"), source_schema(ORDERS), options("region"))
    shop.publish(table, [order(1, "eu"), order(2, "eu"), order(3, None)])
    shop.publish(table, [order(1, "us"), order(3, "eu")], [{"id": 2}])
    assert [(row["id"], row["region"]) for row in read(spark, table)] == [(1, "us"), (3, "eu")]


def test_a_table_of_somebody_else_gets_an_unpartitioned_spec_beside_its_own(
    spark: SparkSession, namespace: str, shop: Publisher
) -> None:
    """H1, on a table that never had one."""
    name = TableName((namespace,), "t")
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS frazil.{namespace}")
    spark.sql(
        f"CREATE TABLE frazil.{name.sql} (id bigint NOT NULL, region string, at timestamp, amount decimal(12, 2)) "
        "USING iceberg PARTITIONED BY (region) TBLPROPERTIES ('format-version' = '2')"
    )
    spark.sql(f"INSERT INTO frazil.{name.sql} VALUES (1, 'eu', timestamp'2024-01-01', 1.00), (2, 'us', null, null)")
    table = shop.tables.ensure(name, source_schema(ORDERS), options())
    assert [field.name for field in table.spec.fields] == ["region"]
    assert table.delete_spec != table.spec
    assert not table.delete_spec.partitions
    shop.publish(table, [order(1, "us"), order(2, "eu")])
    assert [(row["id"], row["region"]) for row in read(spark, table)] == [(1, "us"), (2, "eu")]


def test_a_table_that_identifies_its_rows_otherwise_is_refused(
    spark: SparkSession, namespace: str, shop: Publisher
) -> None:
    name = TableName((namespace,), "t")
    made = shop.tables.ensure(name, source_schema(ORDERS), options())
    shop.publish(made, [order(1, "r1")], mode=DeleteMode.VECTORS)
    with pytest.raises(ConfigError, match=r"identifies its rows by id, but the key is region"):
        shop.tables.ensure(name, source_schema(ORDERS, key=("region",)), options())


@pytest.mark.parametrize(
    ("partition", "words"),
    [
        ("day(region)", ("day", "'region'", "string")),
        ("hour(missing)", ("'missing'",)),
        ("truncate(2, at)", ("truncate[2]", "'at'", "timestamptz")),
        ("region.inner", ("'region.inner'",)),
    ],
)
def test_a_partition_that_cannot_be_is_named_before_anything_is_made(
    namespace: str, shop: Publisher, partition: str, words: tuple[str, ...]
) -> None:
    name = TableName((namespace,), "t")
    with pytest.raises(ConfigError) as caught:
        shop.tables.ensure(name, source_schema(ORDERS), options(partition))
    assert all(word in caught.value.message for word in words)
    assert caught.value.hint
    assert not shop.tables.exists(name)
    made = shop.tables.ensure(name, source_schema(ORDERS), options("region"))
    with pytest.raises(ConfigError):
        shop.tables.ensure(name, source_schema(ORDERS), options(partition))
    assert shop.tables.load(name).spec == made.spec


class WithoutStaging:
    """A catalog, or its table builder, that refuses to stage the creation of a table."""

    def __init__(self, java: Any, spark: SparkSession) -> None:
        self._java, self._spark = java, spark

    def __getattr__(self, name: str) -> Any:
        if name == "createTransaction":
            return lambda: self._spark._jvm.java.util.Collections.emptyList().add("refused")
        method = getattr(self._java, name)
        if name == "buildTable" or name.startswith("with"):
            return lambda *given: WithoutStaging(method(*given), self._spark)
        return method


def test_a_catalog_that_stages_no_creation_gets_the_partitioning_in_a_second_commit(
    catalog: Catalog, spark: SparkSession, namespace: str
) -> None:
    tables = Publisher(replace(catalog, java=WithoutStaging(catalog.java, spark))).tables
    made = tables.create(TableName((namespace,), "t"), source_schema(ORDERS), options("region", sort=["id"]))
    assert [(spec.spec_id, len(spec.fields)) for spec in made.specs] == [(0, 0), (1, 1)]
    assert made.spec.spec_id == 1
    assert made.sort == (SortField("id"),)


def test_a_field_whose_name_is_a_column_gets_another_one(spark: SparkSession, namespace: str, shop: Publisher) -> None:
    table = shop.tables.ensure(
        TableName((namespace,), "t"),
        source_schema({**ORDERS, "at_day": c.INT, "id_bucket_4": c.STRING}),
        options("day(at)"),
    )
    assert [field.name for field in table.spec.fields] == ["at_day_2"]
    table = shop.tables.ensure(table.name, source_schema(ORDERS), options("day(at)", "bucket(4, id)"))
    assert [field.name for field in table.spec.fields] == ["at_day_2", "id_bucket_4_2"]
    shop.publish(table, [{**order(1), "at_day": 5, "id_bucket_4": "x"}])
    assert [row["at_day"] for row in read(spark, table)] == [5]


def test_a_column_inside_a_struct_can_be_a_partition(
    catalog: Catalog, spark: SparkSession, namespace: str, shop: Publisher
) -> None:
    inner = StructOf((Field(0, "code", c.STRING), Field(0, "at", c.DATE)))
    table = shop.tables.ensure(
        TableName((namespace,), "t"), source_schema({"id": c.LONG, "s": inner}), options("s.code", "month(s.at)")
    )
    rows = [{"id": 1, "s": {"code": "a", "at": date(2024, 1, 31)}}, {"id": 2, "s": {"code": "b", "at": None}}]
    files = data(shop.publish(table, [*rows, {"id": 3, "s": None}]))
    assert {f.partition for f in files} == {("a", 648), ("b", None), (None, None)}
    got = planned(catalog, table.name, catalog.iceberg.expressions.Expressions.equal("s.code", "a"))
    assert got == {f.path for f in files if f.partition[0] == "a"}
    assert read(spark, table) == sorted([*rows, {"id": 3, "s": None}], key=str)


def test_location_data_path_and_sort_order_are_those_configured(
    catalog: Catalog, spark: SparkSession, namespace: str, shop: Publisher, tmp_path: Path
) -> None:
    name = TableName((namespace,), "t")
    table = shop.tables.ensure(
        name,
        source_schema(ORDERS),
        options(
            "region",
            sort=["amount desc"],
            location=f"{tmp_path}/here",
            properties={"write.data.path": f"{tmp_path}/there"},
        ),
    )
    assert (table.location, table.data_location) == (f"{tmp_path}/here", f"{tmp_path}/there")
    assert table.sort == (SortField("amount", descending=True, nulls_first=False),)
    files = data(shop.publish(table, [order(n, "eu", amount=f"{n}.00") for n in (2, 3, 1)]))
    assert all(file.path.startswith(f"{tmp_path}/there/frazil_job=shop/") for file in files)
    assert pq.ParquetFile(files[0].path).read(["id"])["id"].to_pylist() == [3, 2, 1]
    shown = spark.sql(f"SELECT sort_order_id FROM frazil.{name.sql}.data_files").collect()
    assert [row.sort_order_id for row in shown] == [table.sort_order_id]
    later = shop.tables.ensure(name, source_schema(ORDERS), options("region", sort=["at", "id desc nulls first"]))
    assert later.sort == (SortField("at"), SortField("id", descending=True))
    assert later.sort_order_id != table.sort_order_id
    assert shop.tables.ensure(name, source_schema(ORDERS), options("region")) == later


def test_a_filter_on_any_column_reads_only_the_files_whose_bounds_allow_for_it(
    catalog: Catalog, spark: SparkSession, namespace: str, shop: Publisher
) -> None:
    table = shop.tables.ensure(TableName((namespace,), "t"), source_schema(ORDERS), options("region"))
    files = data(shop.publish(table, [order(n, f"r{n // 10}", amount=f"{n}.50") for n in range(60)]))
    assert len(files) == 6
    expressions = catalog.iceberg.expressions.Expressions
    got = planned(catalog, table.name, expressions.greaterThan("amount", "48.00"))
    assert got == {f.path for f in files if f.partition in (("r4",), ("r5",))}
    assert planned(catalog, table.name, expressions.equal("id", 33)) == {
        f.path for f in files if f.partition == ("r3",)
    }
    assert planned(catalog, table.name, expressions.equal("id", 99)) == set()
    for file in files:
        iceberg = catalog.iceberg
        theirs = iceberg.parquet.ParquetUtil.fileMetrics(
            iceberg.Files.localInput(file.path), iceberg.MetricsConfig.getDefault()
        )
        to_bytes = iceberg.util.ByteBuffers.toByteArray
        for metrics in file.metrics:
            assert metrics.values == theirs.valueCounts().get(metrics.field_id)
            assert metrics.nulls == theirs.nullValueCounts().get(metrics.field_id)
            assert metrics.lower == bytes(to_bytes(theirs.lowerBounds().get(metrics.field_id)))
            assert metrics.upper == bytes(to_bytes(theirs.upperBounds().get(metrics.field_id)))


KEYS: Mapping[str, str] = {
    "int": "34",
    "long": "34",
    "date": "date'2017-11-16'",
    "tstz": "timestamp'2017-11-16 22:31:08'",
    "text": "'iceberg'",
    "uuid": "'f79c3e09-677c-4bbd-a479-3f349cb785e7'",
    "bin": "X'00010203'",
    "dec9": "14.20",
    "dec38": "1234567890123456789012345678.0123456789",
}


@pytest.mark.parametrize("name", KEYS)
def test_a_bloom_filter_of_a_key_hides_no_row(spark: SparkSession, namespace: str, shop: Publisher, name: str) -> None:
    type_, values = VALUES[name]
    table = shop.tables.ensure(TableName((namespace,), "t"), source_schema({"k": type_}, key=("k",)), options())
    files = shop.publish(table, [{"k": v} for v in values], key=("k",), mode=DeleteMode.VECTORS, bloom_filter=True)
    assert all(pq.ParquetFile(f.path).metadata.row_group(0).column(0).bloom_filter_length for f in files)
    assert [row["k"] for row in read(spark, table, f"k = {KEYS[name]}")] == [as_spark(type_, values[0])]


def test_result_types_are_those_of_iceberg(catalog: Catalog) -> None:
    types = catalog.iceberg.types.Types
    transforms = catalog.iceberg.transforms.Transforms
    for text in TRANSFORMS:
        transform = transforms.fromString(text)
        for type_, _ in VALUES.values():
            if takes(Transform.parse(text), type_):
                theirs = transform.getResultType(types.fromPrimitiveString(str(type_)))
                assert theirs.toString() == str(result_type(Transform.parse(text), type_)), (text, type_)
