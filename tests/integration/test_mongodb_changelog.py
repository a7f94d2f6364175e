"""Changelogs of collections: every change with the document as it was before, beside a main table or alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mongo_builders import Documents, config_of, run_once
from pyspark.sql import SparkSession
from servers.mongod import Mongod

from frazil.errors import ConfigError
from frazil.sources.mongodb.position import ClusterTime

pytestmark = [pytest.mark.spark, pytest.mark.servers]


@pytest.fixture(autouse=True)
def _spool_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frazil.sources.mongodb.opening.cache_home", lambda: tmp_path / "home")


def logged(spark: SparkSession, table: str) -> list[tuple[str, Any, Any]]:
    """What happened in order: operation, value now, value before."""
    rows = spark.sql(f"SELECT _op, _position, v, _before.v AS was FROM {table}").collect()
    ordered = sorted(rows, key=lambda row: ClusterTime.parse(row["_position"]))
    return [(row["_op"], row["v"], row["was"]) for row in ordered]


@pytest.mark.parametrize(
    "entry", [{"deletes": "append-only"}, {"deletes": "mirror+changelog"}], ids=["alone", "beside"]
)
def test_a_changelog_keeps_every_change_and_what_was_before(
    spark: SparkSession, warehouse: Path, namespace: str, mongodb: Mongod, database: Documents, entry: dict[str, Any]
) -> None:
    database.create_collection("orders", changeStreamPreAndPostImages={"enabled": True})
    orders = database["orders"]
    orders.insert_one({"_id": 1, "v": 0})
    config = config_of(mongodb.uri, database, warehouse, namespace, {"source": "orders", **entry})
    run_once(config, spark)
    orders.update_one({"_id": 1}, {"$set": {"v": 1}})
    orders.replace_one({"_id": 1}, {"v": 2})
    orders.insert_one({"_id": 2, "v": 5})
    orders.delete_one({"_id": 1})
    run_once(config, spark)
    beside = entry["deletes"] != "append-only"
    found = logged(spark, f"frazil.{namespace}.orders{'__changelog' if beside else ''}")
    assert found[0][0] == "upsert"
    assert found[1:] == [("update", 1, 0), ("update", 2, 1), ("insert", 5, None), ("delete", None, 2)]
    if beside:
        assert [tuple(row) for row in spark.table(f"frazil.{namespace}.orders").collect()] == [(2, 5)]


def test_a_changelog_needs_pre_images(
    spark: SparkSession, warehouse: Path, namespace: str, mongodb: Mongod, database: Documents
) -> None:
    database["orders"].insert_one({"_id": 1, "v": 0})
    entry = {"source": "orders", "deletes": "append-only"}
    with pytest.raises(ConfigError, match="no pre-images"):
        run_once(config_of(mongodb.uri, database, warehouse, namespace, entry), spark)
