"""What an at-least-once feed does on a bad day, and what must not show in the tables."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from failure_stage import BEHIND, Stage, assert_whole
from pyspark.sql import SparkSession

from frazil.demo.changefeed import json_text
from frazil.demo.shop import Shop
from frazil.sources.cockroachdb.position import Hlc

pytestmark = pytest.mark.spark

ZOMBIE_SESSION = "f" * 16


def test_files_that_a_restarted_feed_writes_again_change_nothing(stage: Stage, spark: SparkSession) -> None:
    """H8, H13: a node is lost twice within one epoch, once with rows beyond the last resolved timestamp."""
    stage.shop.work(10)
    stage.shop.resolve(behind=BEHIND)
    stage.shop.feed.restart()
    stage.shop.work(10)
    stage.drain(spark)
    stage.shop.feed.restart()
    stage.shop.feed.restart()
    stage.shop.resolve()
    stage.trade(2)
    stage.drain(spark)
    assert_whole(stage, spark, moments=4)


def test_files_of_a_dead_session_behind_the_frontier_are_never_read(stage: Stage, spark: SparkSession) -> None:
    """A zombie writes under the name of a moment that is long published; a restart must not find it either."""
    stage.trade(2)
    stage.drain(spark)
    poison = stale_order(stage.shop, stage.shop.resolved[0])
    put_file(stage, stage.shop.resolved[0].next(), "orders", [poison])
    stage.trade(1)
    summary = stage.drain(spark)
    assert summary is not None
    assert summary.dropped == 0, "it was not even read"
    assert_whole(stage, spark)


def test_old_changes_in_new_files_are_dropped_and_counted(stage: Stage, spark: SparkSession) -> None:
    """H13, H38: rows at or below the frontier, under a name beyond it."""
    stage.trade(2)
    stage.drain(spark)
    frontier = stage.shop.resolved[-1]
    poison = [stale_order(stage.shop, moment) for moment in stage.shop.resolved]
    put_file(stage, frontier.next(), "orders", poison)
    stage.trade(1)
    summary = stage.drain(spark)
    assert summary is not None
    assert summary.dropped == len(poison)
    assert_whole(stage, spark)


def test_rows_beyond_a_resolved_timestamp_wait_for_theirs_across_restarts(stage: Stage, spark: SparkSession) -> None:
    """Every resolved timestamp lags, and the pipeline starts anew for each: the ledger alone remembers the files."""
    for _ in range(3):
        stage.shop.work(12)
        stage.shop.resolve(behind=BEHIND)
        stage.drain(spark)
        carried = [stage.entries(spark, table)[-1].notes for table in stage.tables]
        assert any(carried), "no file holds rows beyond: this test tests nothing"
    stage.shop.resolve()
    stage.drain(spark)
    assert_whole(stage, spark, moments=5)


def test_a_schema_change_in_the_middle_of_an_epoch_is_one_epoch(stage: Stage, spark: SparkSession) -> None:
    """H14: rows of both schema versions lie between two resolved timestamps; no boundary is announced."""
    stage.drain(spark)
    stage.shop.work(10)
    add_discount_without_a_boundary(stage.shop)
    stage.shop.work(10)
    stage.shop.resolve()
    stage.trade(1)
    stage.drain(spark)
    assert stage.shop.has_discount
    assert_whole(stage, spark, moments=3)
    priced = spark.sql(f"SELECT count(discount) AS n FROM {stage.sql(stage.tables[1])}").collect()[0].n
    assert priced > 0, "the new column arrived"


def add_discount_without_a_boundary(shop: Shop) -> None:
    """A column with a default and a backfill, as a source that promises nothing in between would send it."""
    shop._versions["products"] += 1
    at = shop._tick()
    for row in list(shop.tables["products"].values()):
        shop._put("products", {**row, "discount": Decimal("0.00")}, at)


def stale_order(shop: Shop, at: Hlc) -> str:
    """A change of a published moment that was never made: if it shows up anywhere, it was read."""
    known = next(change for change in shop.log if change.topic == "orders" and change.after is not None)
    after: dict[str, Any] = {**(known.after or {}), "status": "poison"}
    return json_text({"after": after, "key": list(known.key), "updated": at.text})


def put_file(stage: Stage, stamp: Hlc, topic: str, lines: list[str]) -> Path:
    moment = stamp.source_time
    assert moment is not None
    assert all(json.loads(line) for line in lines)
    name = f"{stamp.file_stamp}-{ZOMBIE_SESSION}-9-9-00000000-{topic}-1.ndjson"
    path = stage.directory / "feed" / f"{moment:%Y-%m-%d}" / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path
