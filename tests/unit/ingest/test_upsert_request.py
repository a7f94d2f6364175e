"""What a call of upsert_stream may say, and what it is told when it says something impossible. No Spark session."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import MISSING, fields
from typing import Any

import pytest
from pyspark.sql import types as T

import frazil
from frazil.config.pipeline_config import CatalogConfig
from frazil.errors import BadInput, ConfigError, Fenced, TableChanged
from frazil.iceberg.catalogs.open_catalog import CatalogType
from frazil.ingest.upsert_stream.api import ROWS_PER_SHARD, shards_for, upsert_stream
from frazil.ingest.upsert_stream.errors import for_streams
from frazil.ingest.upsert_stream.request import UpsertOptions, UpsertRequest, iceberg_type, make_request, query_id_of
from frazil.model.position import BatchNumber
from frazil.model.schema import BINARY, DATE, INT, LONG, STRING, TIMESTAMP, TIMESTAMPTZ, BadType, Decimal, ListOf
from frazil.model.write import DeleteMode

ORDERS = T.StructType(
    [
        T.StructField("id", T.LongType()),
        T.StructField("total", T.DecimalType(12, 2)),
        T.StructField("version", T.IntegerType()),
        T.StructField("op", T.StringType()),
    ]
)


def request(schema: T.StructType = ORDERS, batch_id: Any = 7, **given: Any) -> UpsertRequest:
    defaults = {"pipeline": "stream", "target": "analytics.orders", "key": ["id"], "warehouse": "warehouse"}
    if "catalog" in given:
        del defaults["warehouse"]
    return make_request(UpsertOptions(**{**defaults, **given}), schema, batch_id, "query-1")


def with_column(name: str, kind: T.DataType) -> T.StructType:
    return T.StructType([*ORDERS.fields, T.StructField(name, kind)])


def test_the_op_column_serves_and_is_not_stored_and_order_columns_are_stored() -> None:
    made = request(op="op", order_by="version")
    assert [column.name for column in made.source_schema.columns] == ["id", "total", "version"]
    assert made.changes.op == "op"
    assert made.changes.order == ("version",)
    assert "D" in made.changes.delete_values
    assert made.position == BatchNumber(7)
    assert made.mode is DeleteMode.VECTORS


def test_the_call_and_its_options_have_the_same_defaults() -> None:
    called = inspect.signature(upsert_stream).parameters
    for option in fields(UpsertOptions):
        if option.default is not MISSING:
            assert called[option.name].default == option.default, option.name


def test_the_op_column_is_stored_where_the_target_has_a_column_of_its_name() -> None:
    made = request(op="op")
    assert [column.name for column in made.schema_in(["id", "op"]).columns] == ["id", "total", "version", "op"]
    assert made.schema_in(["id"]) == made.source_schema


def test_without_op_a_column_of_that_name_is_data_like_any_other() -> None:
    made = request()
    assert made.source_schema.column("op") is not None
    assert made.changes.delete_values == ()


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (T.ByteType(), INT),
        (T.ShortType(), INT),
        (T.LongType(), LONG),
        (T.DecimalType(38, 9), Decimal(38, 9)),
        (T.DateType(), DATE),
        (T.TimestampType(), TIMESTAMPTZ),
        (T.TimestampNTZType(), TIMESTAMP),
        (T.BinaryType(), BINARY),
        (T.VarcharType(9), STRING),
        (T.ArrayType(T.ArrayType(T.StringType())), ListOf(ListOf(STRING))),
    ],
    ids=str,
)
def test_a_spark_type_has_one_iceberg_type(given: T.DataType, stored: object) -> None:
    assert iceberg_type(given) == stored


@pytest.mark.parametrize(
    "given",
    [
        T.StructType([T.StructField("x", T.NullType())]),
        T.MapType(T.StringType(), T.VariantType()),
        T.NullType(),
        T.DayTimeIntervalType(),
        T.VariantType(),
        T.ArrayType(T.MapType(T.StringType(), T.YearMonthIntervalType())),
    ],
    ids=lambda value: value.simpleString(),
)
def test_a_type_that_cannot_be_stored_is_refused_with_its_column(given: T.DataType) -> None:
    with pytest.raises(BadType):
        iceberg_type(given)
    with pytest.raises(ConfigError) as caught:
        request(with_column("extra", given))
    assert caught.value.facts["column"] == "extra"
    assert given.simpleString() in caught.value.message


@pytest.mark.parametrize("kind", [T.FloatType(), T.DoubleType(), T.ArrayType(T.LongType())])
def test_a_key_that_cannot_be_compared_exactly_is_refused(kind: T.DataType) -> None:
    """H21."""
    with pytest.raises(ConfigError, match="cannot identify a row") as caught:
        request(with_column("k", kind), key=["id", "k"])
    assert caught.value.facts == {"table": "analytics.orders", "column": "k"}
    assert "cast k" in caught.value.hint


def test_a_key_whose_collation_holds_different_texts_equal_is_refused() -> None:
    """H51."""
    with pytest.raises(ConfigError, match="UNICODE_CI"):
        request(with_column("k", T.StringType("UNICODE_CI")), key=["k"])


def test_an_order_whose_collation_holds_different_texts_equal_is_refused() -> None:
    with pytest.raises(ConfigError, match="'o' has the collation UNICODE_CI"):
        request(with_column("o", T.StringType("UNICODE_CI")), order_by=["o"])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"key": ["nope"]}, "key names 'nope'"),
        ({"order_by": ["nope"]}, "order_by names 'nope'"),
        ({"op": "nope"}, "op names 'nope'"),
        ({"key": ["id", "id"]}, "twice"),
        ({"key": []}, "cannot be told from a new row"),
        ({"key": [], "deletes": "append-only", "op": "op"}, "what was deleted"),
        ({"key": [], "deletes": "append-only", "order_by": "version"}, "no versions to order"),
        ({"op": "id"}, "is among key and order_by"),
        ({"op": "total"}, r"is decimal\(12,2\)"),
        ({"op": "op", "delete_values": ()}, "delete_values"),
        ({"deletes": "merge"}, "vectors, equality, append-only"),
        ({"format_version": 1}, "2 or 3"),
        ({"pipeline": "no spaces"}, "pipeline"),
        ({"target": "orders"}, "namespace.table"),
        ({"target": None}, "target"),
        ({"batch_id": -1}, "start at 0"),
        ({"batch_id": True}, "foreachBatch"),
        ({"warehouse": None}, "catalog is not given"),
        ({"catalog": {"type": "rest"}}, "uri"),
        ({"catalog": {"typ": "rest"}}, "did you mean 'type'"),
        ({"catalog": "http://localhost:8181"}, "iceberg://"),
    ],
    ids=str,
)
def test_an_option_that_cannot_be_is_named(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        request(**given)
    assert caught.value.hint


def test_a_warehouse_and_a_catalog_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match="both"):
        make_request(
            UpsertOptions(pipeline="p", target="a.b", key="id", warehouse="w", catalog={"type": "memory"}),
            ORDERS,
            0,
            "query-1",
        )


def test_columns_that_differ_in_case_alone_are_refused() -> None:
    """H30."""
    with pytest.raises(ConfigError, match="upper and lower case"):
        request(with_column("ID", T.LongType()))


@pytest.mark.parametrize("name", ["a.b", "a`b"])
def test_a_column_that_spark_cannot_hand_to_python_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="dot or a backtick") as caught:
        request(with_column(name, T.LongType()))
    assert caught.value.facts["column"] == name


def test_a_changelog_without_deletes_needs_no_key() -> None:
    assert request(key=None, deletes="append-only").source_schema.key == ()


def test_the_catalog_is_a_warehouse_a_mapping_a_config_or_a_sink_url() -> None:
    assert request(warehouse="w").catalog.warehouse == "w"
    assert request(catalog={"type": "rest", "uri": "http://x"}).catalog.type is CatalogType.REST
    assert request(catalog=CatalogConfig(warehouse="w")).catalog.type is CatalogType.BUILTIN
    url = "iceberg://localhost:8181/lake/orders?warehouse=wh&equality_delete_by=id,version"
    made = request(catalog=url, target=None, key=None)
    assert (made.target.text, made.source_schema.key, made.catalog.uri) == (
        "lake.orders",
        ("id", "version"),
        "http://localhost:8181",
    )
    assert request(catalog=url, key="id").target.text == "analytics.orders"


def test_a_secret_in_a_catalog_that_cannot_be_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        request(catalog="iceberg://me:hunter2@localhost:8181/orders?token=tok3n")
    assert "hunter2" not in f"{caught.value} {caught.value.hint}"
    assert "tok3n" not in f"{caught.value} {caught.value.hint}"


def test_the_hash_names_what_decides_the_content_and_nothing_else() -> None:
    same = request(op="op", warehouse="elsewhere", batch_id=8)
    assert request(op="op").config_hash == same.config_hash
    assert request(op="op").config_hash != request(op="op", delete_values=["gone"]).config_hash


def test_the_running_querys_id_is_taken_and_must_not_be_contradicted() -> None:
    """H53."""
    assert query_id_of(None, "q1") == "q1"
    assert query_id_of("q1", "q1") == "q1"
    assert query_id_of("mine", None) == "mine"
    with pytest.raises(ConfigError, match="not the id of the running query"):
        query_id_of("mine", "q1")
    with pytest.raises(ConfigError) as caught:
        query_id_of(None, None)
    assert "foreachBatch" in caught.value.hint


@pytest.mark.parametrize(
    ("rows", "cores", "shards"),
    [(1, 8, 1), (ROWS_PER_SHARD, 8, 1), (ROWS_PER_SHARD + 1, 8, 2), (10**9, 8, 8)],
)
def test_a_small_batch_is_one_file_and_a_large_one_uses_every_core(rows: int, cores: int, shards: int) -> None:
    assert shards_for(rows, cores) == shards


def test_hints_lead_somewhere_without_a_configuration_and_a_rewind() -> None:
    wrong_type = BadInput("m", hint="pin it in tables[]", table="a.b", column="c", existing="int", wanted="string")
    assert for_streams(wrong_type).hint.startswith("Cast c to int")
    rolled_back = TableChanged("m", hint="frazil rewind", table="a.b", what="rolled back", published_snapshot=42)
    assert "forward to snapshot 42" in for_streams(rolled_back).hint
    dropped = TableChanged("m", hint="frazil drop CONFIG", table="a.b", column="total", what="dropped column")
    assert "ADD COLUMN total" in for_streams(dropped).hint
    other = TableChanged("m", hint="Restart the pipeline", table="a.b", what="other columns")
    assert for_streams(other).hint.startswith("Start the query again")
    assert for_streams(rolled_back).facts == rolled_back.facts
    other = Fenced("m", hint="keep one")
    assert for_streams(other) is other


@pytest.mark.slow
def test_importing_frazil_loads_no_spark_until_it_is_asked_for() -> None:
    code = "import sys, frazil; assert 'pyspark' not in sys.modules; assert frazil.upsert_stream and frazil.Pipeline"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert set(frazil.__all__) <= set(dir(frazil))
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = frazil.nope
