"""MongoDB through the whole pipeline: a real replica set, real Spark, real tables, compared document by document."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import bson
import pytest
from bson import Decimal128, Int64, MaxKey, MinKey, ObjectId, Timestamp
from bson.raw_bson import RawBSONDocument
from mongo_builders import Documents, config_of, mixed_key, plain, rows, run_once, run_while
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from servers.mongod import Mongod

from frazil.app.pipeline import Pipeline
from frazil.errors import BadInput, ConfigError, DoesNotFit
from frazil.sources.mongodb.load import ranges
from frazil.sources.mongodb.position import ClusterTime
from frazil.sources.mongodb.source import MongoDatabase

pytestmark = [pytest.mark.spark, pytest.mark.servers]


class Killed(BaseException):
    """What no part of the pipeline expects."""


@pytest.fixture(autouse=True)
def _spool_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frazil.sources.mongodb.opening.cache_home", lambda: tmp_path / "home")


class Stage:
    """One test's database, warehouse and namespace."""

    def __init__(self, spark: SparkSession, warehouse: Path, namespace: str, uri: str, database: Documents) -> None:
        self.spark, self.namespace, self.uri, self.database = spark, namespace, uri, database
        self._warehouse = warehouse

    def config(self, *collections: Any, **more: Any) -> Any:
        return config_of(self.uri, self.database, self._warehouse, self.namespace, *collections, **more)

    def once(self, config: Any) -> None:
        run_once(config, self.spark)

    def table(self, name: str = "orders") -> dict[Any, dict[str, Any]]:
        return {key: plain(row) for key, row in rows(self.spark, self.namespace, name).items()}

    def documents(self, name: str = "orders") -> dict[Any, dict[str, Any]]:
        return {document["_id"]: document for document in self.database[name].find()}

    def types(self, name: str = "orders") -> dict[str, str]:
        return dict(self.spark.table(f"frazil.{self.namespace}.{name}").dtypes)


@pytest.fixture
def stage(spark: SparkSession, warehouse: Path, namespace: str, mongodb: Mongod, database: Documents) -> Stage:
    return Stage(spark, warehouse, namespace, mongodb.uri, database)


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight ranges for any collection, each a step of its own."""
    monkeypatch.setattr(ranges, "RANGE_DOCUMENTS_MIN", 1)
    monkeypatch.setattr(ranges, "RANGES_MIN", 8)
    monkeypatch.setattr(ranges, "RANGES_PER_STEP", 1)


def test_a_collection_is_loaded_and_then_followed(stage: Stage) -> None:
    orders = stage.database["orders"]
    orders.insert_many([{"_id": n, "name": f"n{n}", "total": Int64(n)} for n in range(100)])
    config = stage.config("orders")
    stage.once(config)
    assert stage.table() == stage.documents()

    orders.update_one({"_id": 1}, {"$set": {"name": "changed", "address": {"city": "Oslo"}}})
    orders.delete_one({"_id": 2})
    orders.replace_one({"_id": 3}, {"total": Int64(5)})
    orders.insert_one({"_id": 100, "name": "new"})
    stage.once(config)
    assert stage.table() == stage.documents()
    assert len(stage.table()) == 100


def test_ids_of_all_types_live_in_one_table(stage: Stage) -> None:
    """H33: and each is updated and deleted by its own key, whatever it looks like."""
    oid = ObjectId()
    ids: list[Any] = [
        *(MinKey(), None, 1, Int64(2**40), 1.5, Decimal128("2.50"), "1", str(oid), "a", {"a": 1}, {"a": "1"}, b"x"),
        *(UUID(int=3), oid, False, datetime(2020, 1, 1, tzinfo=UTC), Timestamp(5, 6), MaxKey()),
    ]
    orders = stage.database["orders"]
    orders.insert_many([{"_id": value, "n": n} for n, value in enumerate(ids)])
    config = stage.config("orders")
    stage.once(config)
    expected = {mixed_key(value): n for n, value in enumerate(ids)}
    assert {key: row["n"] for key, row in stage.table().items()} == expected

    for n, value in enumerate(ids):
        if n % 3 == 0:
            orders.delete_one({"_id": value})
            del expected[mixed_key(value)]
        elif n % 3 == 1:
            orders.update_one({"_id": value}, {"$set": {"n": n + 100}})
            expected[mixed_key(value)] = n + 100
    stage.once(config)
    assert {key: row["n"] for key, row in stage.table().items()} == expected


@pytest.mark.parametrize("mapping", [{}, {"mode": "explicit", "fields": [{"source": "_id", "type": "string"}]}])
def test_strings_that_look_like_other_types_are_joined_by_what_they_are(stage: Stage, mapping: dict[str, Any]) -> None:
    ids = [str(ObjectId()), "true", "null", '{"a": 1}', "[1]", '"quoted"', "plain"]
    orders = stage.database["orders"]
    orders.insert_many([{"_id": value} for value in ids])
    config = stage.config({"source": "orders", **({"mapping": mapping} if mapping else {})})
    stage.once(config)
    assert set(stage.table()) == set(ids)

    orders.update_many({}, {"$set": {"n": 1}})
    orders.delete_one({"_id": "true"})
    orders.insert_one({"_id": "false"})
    stage.once(config)
    assert set(stage.table()) == {*ids, "false"} - {"true"}

    orders.insert_one({"_id": ObjectId(ids[0])})
    with pytest.raises(DoesNotFit, match=ids[0]):
        stage.once(config)
    assert set(stage.table()) == {*ids, "false"} - {"true"}


def test_deep_documents_and_every_type_come_through_load_and_stream_alike(stage: Stage) -> None:
    """H29: one decoder for both."""
    orders = stage.database["orders"]
    value = {
        "price": Decimal128("12.345"),
        "at": datetime(2024, 2, 29, 12, 30, 0, 123000, tzinfo=UTC),
        "who": UUID(int=5),
        "bytes": b"\x00\xff",
        "deep": {"a": {"b": {"c": {"d": [{"e": [1, 2]}, {"e": []}]}}}},
        "tags": ["x", None, "y"],
        "ref": ObjectId(),
        "big": Int64(2**60),
        "none": None,
    }
    orders.insert_one({"_id": 1, **value})
    config = stage.config("orders")
    stage.once(config)
    orders.insert_one({"_id": 2, **value})
    stage.once(config)
    found = stage.table()
    assert {**found[1], "_id": 0} == {**found[2], "_id": 0}
    row = found[1]
    assert row["price"] == Decimal("12.345")
    assert row["deep"] == value["deep"]
    assert row["tags"] == ["x", None, "y"]
    assert row["ref"] == str(value["ref"])
    assert row["big"] == 2**60
    assert row["bytes"] == b"\x00\xff"
    assert row["who"] == str(UUID(int=5))
    assert "none" not in row
    moment = stage.spark.table(f"frazil.{stage.namespace}.orders").selectExpr("unix_micros(at)").first()
    assert moment is not None
    assert moment[0] == 1_709_209_800_123_000


def test_new_fields_add_columns_also_inside_documents_and_arrays(stage: Stage) -> None:
    orders = stage.database["orders"]
    orders.insert_one({"_id": 1, "a": {"b": 1}, "l": [{"x": 1}], "n": 5})
    config = stage.config("orders")
    stage.once(config)
    orders.insert_one(
        {"_id": 2, "a": {"b": 2, "c": {"d": "new"}}, "l": [{"x": 1, "y": 2}], "n": Int64(2**40), "z": True}
    )
    stage.once(config)
    assert stage.table() == stage.documents()
    assert stage.types()["n"] == "bigint"


def test_fields_that_the_sample_did_not_show_are_found_while_loading(stage: Stage) -> None:
    orders = stage.database["orders"]
    orders.insert_many([{"_id": n, "a": 1, **({"rare": {"x": n}} if n == 2999 else {})} for n in range(3000)])
    stage.once(stage.config("orders", source={"sample": 5}))
    assert stage.table() == stage.documents()


def test_a_field_that_changes_its_type_goes_on_in_a_column_beside_the_old_one(stage: Stage) -> None:
    orders = stage.database["orders"]
    orders.insert_many([{"_id": 1, "v": 5}, {"_id": 2, "v": 6}])
    config = stage.config("orders")
    stage.once(config)
    orders.update_one({"_id": 2}, {"$set": {"v": "six"}})
    orders.insert_one({"_id": 3, "v": {"x": 1}})
    stage.once(config)
    assert stage.table() == {1: {"_id": 1, "v": 5}, 2: {"_id": 2, "v_v2": '"six"'}, 3: {"_id": 3, "v_v2": '{"x":1}'}}
    orders.insert_one({"_id": 4, "v": 7})
    stage.once(config)
    assert stage.table()[4] == {"_id": 4, "v_v2": "7"}


@pytest.mark.usefixtures("small_steps")
def test_a_load_that_is_killed_goes_on_where_it_was(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """H48: what is published is not read again, and what changes meanwhile comes from the stream (H26)."""
    orders = stage.database["orders"]
    orders.insert_many([{"_id": n, "v": 0} for n in range(400)])
    config = stage.config("orders", limits={"epochs_per_job": 1, "epochs_in_flight": 1})
    partitions: list[str] = []
    original = MongoDatabase.partitions

    def dying(self: MongoDatabase, *asked: Any) -> Any:
        found = original(self, *asked)
        partitions.extend(partition.facts for partition in found if "ranged" in partition.facts)
        if len(partitions) == 4:
            raise Killed
        return found

    monkeypatch.setattr(MongoDatabase, "partitions", dying)
    with pytest.raises(Killed):
        stage.once(config)
    assert 0 < len(stage.table()) < 400
    orders.update_many({"_id": {"$lt": 10}}, {"$set": {"v": 1}})
    orders.delete_many({"_id": {"$gte": 390}})
    orders.insert_one({"_id": 1000, "v": 2})
    published = {json.loads(facts)["lower"] for facts in partitions[:3]}
    stage.once(config)
    read_again = {json.loads(facts)["lower"] for facts in partitions[4:]}
    assert read_again
    assert published.isdisjoint(read_again)
    assert stage.table() == stage.documents()


def test_a_stream_that_is_killed_goes_on_where_it_was(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = stage.database["orders"]
    orders.insert_many([{"_id": n, "v": 0} for n in range(50)])
    config = stage.config("orders", source={"max_records": 5})
    stage.once(config)
    for n in range(50):
        orders.update_one({"_id": n}, {"$set": {"v": n}})
    orders.delete_many({"_id": {"$gt": 45}})

    original = MongoDatabase.commit
    calls = []

    def dying(self: MongoDatabase, published: Any) -> None:
        calls.append(published)
        if len(calls) == 2:
            raise Killed
        original(self, published)

    with monkeypatch.context() as patched:
        patched.setattr(MongoDatabase, "commit", dying)
        with pytest.raises(Killed):
            stage.once(config)
    stage.once(config)
    assert stage.table() == stage.documents()


def test_a_transaction_lands_in_one_epoch(stage: Stage) -> None:
    orders = stage.database["orders"]
    orders.insert_one({"_id": "a", "v": 100})
    orders.insert_one({"_id": "b", "v": 0})
    config = stage.config("orders", source={"max_records": 1})
    stage.once(config)
    for _ in range(5):
        with stage.database.client.start_session() as session, session.start_transaction():
            orders.update_one({"_id": "a"}, {"$inc": {"v": -7}}, session=session)
            orders.update_one({"_id": "b"}, {"$inc": {"v": 7}}, session=session)
    stage.once(config)
    snapshots = stage.spark.table(f"frazil.{stage.namespace}.orders.snapshots").select("snapshot_id").collect()
    assert len(snapshots) >= 3
    for (snapshot,) in snapshots:
        query = f"SELECT sum(v) FROM frazil.{stage.namespace}.orders VERSION AS OF {snapshot}"
        assert stage.spark.sql(query).first()[0] == 100  # type: ignore[index]


def test_several_collections_share_one_stream_and_a_new_one_is_loaded_beside_them(stage: Stage) -> None:
    for name in ("a", "b"):
        stage.database[name].insert_many([{"_id": n, "in": name} for n in range(10)])
    stage.once(stage.config("a", "b"))
    stage.database["a"].insert_one({"_id": 10, "in": "a"})
    stage.database["c"].insert_many([{"_id": n, "in": "c"} for n in range(5)])
    config = stage.config("a", "b", "c")
    stage.once(config)
    stage.database["b"].delete_one({"_id": 3})
    stage.database["c"].insert_one({"_id": 99, "in": "c"})
    stage.once(config)
    for name in ("a", "b", "c"):
        assert stage.table(name) == stage.documents(name)


def test_random_work_beside_a_running_pipeline_ends_in_the_same_documents(stage: Stage) -> None:
    chance = random.Random(7)
    orders = stage.database["orders"]
    orders.insert_many([{"_id": n, "v": n, "s": {"x": n}} for n in range(500)])

    def work() -> None:
        for n in range(1500):
            key = chance.randrange(700)
            match chance.randrange(4):
                case 0:
                    orders.delete_one({"_id": key})
                case 1:
                    orders.replace_one({"_id": key}, {"v": n}, upsert=True)
                case 2:
                    orders.update_one({"_id": key}, {"$set": {"s.x": n, f"f{n % 5}": n}})
                case 3:
                    orders.update_one({"_id": key}, {"$inc": {"v": 1}}, upsert=True)
        orders.insert_one({"_id": 10_000, "v": 0})

    def is_done() -> bool:
        try:
            return 10_000 in stage.table()
        except AnalysisException:  # the table is not there yet
            return False

    config = stage.config("orders")
    run_while(config, stage.spark, work, is_done)
    stage.once(config)
    assert stage.table() == stage.documents()


def test_an_explicit_mapping_renames_projects_and_casts(stage: Stage) -> None:
    fields = [
        {"source": "_id", "target": "id", "type": "string"},
        {"source": "customer.name", "target": "customer_name", "type": "string"},
        {"source": "total", "type": "decimal(12, 2)"},
        {"source": "items"},
    ]
    orders = stage.database["orders"]
    orders.insert_one({"_id": "x", "customer": {"name": "Ada"}, "total": "12.5", "items": [{"n": 1}], "other": 1})
    config = stage.config({"source": "orders", "mapping": {"mode": "explicit", "fields": fields}})
    stage.once(config)
    orders.insert_one({"_id": "y", "customer": {"name": "Bob"}, "total": 3, "unmapped": True})
    stage.once(config)
    table = stage.spark.table(f"frazil.{stage.namespace}.orders")
    assert {row["id"]: plain(row) for row in table.collect()} == {
        "x": {"id": "x", "customer_name": "Ada", "total": Decimal("12.50"), "items": [{"n": 1}]},
        "y": {"id": "y", "customer_name": "Bob", "total": Decimal("3.00")},
    }


# bad input


def test_an_impossible_cast_stops_with_document_and_column(stage: Stage) -> None:
    stage.database["orders"].insert_one({"_id": 7, "total": "twelve"})
    mapping = {"mode": "explicit", "fields": [{"source": "total", "type": "int"}]}
    with pytest.raises(DoesNotFit, match="twelve") as refused:
        stage.once(stage.config({"source": "orders", "mapping": mapping}))
    assert refused.value.facts["column"] == "total"


def test_a_mapping_to_a_path_that_is_not_there_is_refused(stage: Stage) -> None:
    stage.database["orders"].insert_one({"_id": 7, "total": 1})
    mapping = {"mode": "explicit", "fields": [{"source": "totl"}]}
    with pytest.raises(ConfigError, match="totl"):
        stage.once(stage.config({"source": "orders", "mapping": mapping}))


def test_a_document_with_damaged_text_stops_or_goes_to_quarantine(stage: Stage) -> None:
    orders = stage.database["orders"]
    orders.insert_one({"_id": 1, "name": "good"})
    damaged = bson.encode({"_id": 2, "name": "xyz"}).replace(b"xyz", b"x\xffz")
    stage.database.command("insert", "orders", documents=[RawBSONDocument(damaged)])
    with pytest.raises(BadInput, match="cannot be decoded"):
        stage.once(stage.config("orders"))
    config = stage.config("orders", on_error="quarantine", pipeline=f"q_{stage.namespace}")
    stage.once(config)
    assert stage.table() == {1: {"_id": 1, "name": "good"}}
    quarantined = stage.spark.table(f"frazil.{stage.namespace}.orders__quarantine").collect()
    assert len(quarantined) == 1
    assert "cannot be decoded" in quarantined[0]["_reason"]


def test_check_tells_types_and_how_exact_epochs_are(stage: Stage) -> None:
    stage.database["orders"].insert_one({"_id": 1, "total": Decimal128("1.5")})
    with Pipeline(stage.config("orders", "missing"), spark=stage.spark) as pipeline:
        report = pipeline.check()
    by_source = {table.source.partition(".")[2]: table for table in report.tables}
    assert {c.name: c.type for c in by_source["orders"].columns} == {"_id": "long", "total": "decimal(38, 10)"}
    assert "updateLookup" in " ".join(by_source["orders"].notes)
    assert "no such collection" in " ".join(by_source["missing"].notes)


def test_with_post_images_every_epoch_shows_the_collection_as_it_was_then(stage: Stage) -> None:
    """Also of keys that change again at once: no epoch mixes two moments."""
    stage.database.create_collection("orders", changeStreamPreAndPostImages={"enabled": True})
    orders, chance = stage.database["orders"], random.Random(3)
    orders.insert_many([{"_id": n, "v": 0} for n in range(4)])
    config = stage.config("orders", source={"max_records": 3})
    stage.once(config)
    moments: list[tuple[ClusterTime, dict[int, int]]] = []
    state = dict.fromkeys(range(4), 0)
    with stage.database.client.start_session() as session:
        for n in range(1, 30):
            key = chance.randrange(4)
            if chance.random() < 0.2:
                orders.delete_one({"_id": key}, session=session)
                state.pop(key, None)
            else:
                orders.update_one({"_id": key}, {"$set": {"v": n}}, upsert=True, session=session)
                state[key] = n
            time = session.operation_time
            assert time is not None
            moments.append((ClusterTime.of(time.time, time.inc), dict(state)))
    with Pipeline(config, spark=stage.spark) as pipeline:
        pipeline.run(once=True)
        epochs = pipeline.epochs(f"{stage.namespace}.orders")
    assert len(epochs) > 5
    for epoch in epochs[:-1]:
        at = ClusterTime.parse(epoch.resolved)
        expected = [known for moment, known in moments if moment <= at][-1]
        query = f"SELECT _id, v FROM frazil.{stage.namespace}.orders VERSION AS OF {epoch.snapshot_id}"
        assert dict(tuple(row) for row in stage.spark.sql(query).collect()) == expected, epoch.resolved
