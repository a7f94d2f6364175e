"""Makes tests/fixtures/ledger_v*: metadata of tables that this version publishes, to be read by every later one.

    FRAZIL_GOLDEN=<folder> pytest tests/integration/iceberg/golden_ledgers.py

No part of the test run. To be run once for each format of the ledger, before anything changes it; what is there stays.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from branch_builders import Place, me
from feed_builders import Lab, at, delete, upsert
from mongo_builders import Documents, config_of, run_once
from pyspark.sql import SparkSession
from servers.mongod import Mongod
from upsert_builders import World

from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.tables.tables import Tables
from frazil.model.ids import TableName

pytestmark = [pytest.mark.spark, pytest.mark.servers]


def keep(committer: IcebergCommitter, table: TableName, name: str, **neutral: str) -> None:
    """`neutral` are texts of this machine, by what stands in for them."""
    base: Any = committer.head(table).base
    text = Path(base.metadata.metadataFileLocation().removeprefix("file:")).read_text(encoding="utf-8")
    for to, what in neutral.items():
        text = text.replace(what, f"/{to}")
    path = Path(os.environ["FRAZIL_GOLDEN"]) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(json.loads(text), indent=1) + "\n", encoding="utf-8")


def test_cockroachdb(spark: SparkSession, warehouse: Path, committer: IcebergCommitter, tmp_path: Path) -> None:
    lab = Lab(spark, warehouse, "shop", tmp_path)
    first = [upsert([1], at(0), a=1, b="x"), upsert([2], at(0), a=2, b="z")]
    for second, rows in ((1, first), (3, [upsert([1], at(2), a=1, b="y"), delete([2], at(2))])):
        lab.feed.data(at(second - 1), rows)
        lab.feed.resolved(at(second))
        lab.run()
    keep(committer, TableName(("shop",), "t"), "cockroachdb", warehouse=str(warehouse), feed=str(lab.feed.root))


def test_mongodb(
    spark: SparkSession,
    warehouse: Path,
    committer: IcebergCommitter,
    mongodb: Mongod,
    database: Documents,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("frazil.sources.mongodb.opening.cache_home", lambda: tmp_path / "home")
    config = config_of(mongodb.uri, database, warehouse, "shop", "orders")
    database["orders"].insert_one({"_id": 1, "v": 0})
    run_once(config, spark)
    database["orders"].update_one({"_id": 1}, {"$set": {"v": 1}})
    run_once(config, spark)
    keep(committer, TableName(("shop",), "orders"), "mongodb", warehouse=str(warehouse))


def test_resync(catalog: Catalog, committer: IcebergCommitter, warehouse: Path) -> None:
    place = Place(catalog, TableName(("shop",), "people"))
    place.publish(10, {1: "Ann", 2: "Bob"})
    place.begin()
    place.load(30, {2: "Bo"})
    keep(committer, place.name, "resync_branch", warehouse=str(warehouse))
    place.adopt(me(2))
    keep(committer, place.name, "resync_adopted", warehouse=str(warehouse))


def test_upsert_stream(spark: SparkSession, warehouse: Path, committer: IcebergCommitter, tables: Tables) -> None:
    world = World(spark, warehouse, TableName(("shop",), "items"), committer, tables)
    world.publish(0, [(1, 1, "a", "c")])
    world.publish(1, [(1, 2, "b", "u")])
    keep(committer, world.table, "upsert_stream", warehouse=str(warehouse))
