"""The driver dies at the worst moments. The next one has the tables and the feed, and nothing else."""

from __future__ import annotations

import random
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from campaigns import campaign
from failure_stage import Stage, assert_changelogs_whole, assert_one_chain, assert_whole, expected_epochs
from pyspark.sql import SparkSession

from frazil.clock import SystemClock

pytestmark = pytest.mark.spark

SCRIPT = str(Path(__file__).with_name("deadly_driver.py"))
SEED = 11


def test_a_driver_killed_around_its_commits_leaves_every_epoch_published_once(
    stage: Stage, spark: SparkSession
) -> None:
    """H6, H19: before the commit, after it and before anybody knew, after the source was told; each time with all
    local state gone (scratch folders, caches), so that the next run goes on from the table alone."""
    stage.write_config(limits={"epochs_per_job": 2})
    stage.trade(3)

    killed(stage, "before-commit", 1)
    if stage.warehouse_has(spark, stage.tables[0]):
        assert epochs_published(stage, spark) == 0, "it died before its first commit was sent"

    killed(stage, "after-commit", 1)
    assert epochs_published(stage, spark) >= 1, "the commit had landed, though nobody was told"
    stage.trade(2)

    killed(stage, "after-acknowledge", 1)
    assert_chains(stage, spark)

    stage.drain(spark)
    assert_whole(stage, spark, moments=3)
    leftovers = [path for table in stage.tables for path in stage.on_disk(table) - set(stage.referenced(spark, table))]
    assert leftovers, "the first driver had written files and died before their commit"


@campaign("points", short=("after-commit",), long=("after-commit", "before-commit", "after-commit"))
def test_a_driver_killed_between_a_table_and_its_companions_leaves_all_of_them_in_step(
    stage: Stage, spark: SparkSession, points: Sequence[str]
) -> None:
    """A changelog and a quarantine are committed before their main table: each of these commits is a place to die."""
    stage.changelogs = ("orders", "products")
    stage.write_config(limits={"epochs_per_job": 2}, on_error="quarantine")
    for number, point in enumerate(points, start=1):
        stage.trade(2)
        killed(stage, point, number)
    stage.drain(spark)
    assert_whole(stage, spark, moments=3)
    assert_changelogs_whole(stage, spark)


@campaign("kills", short=1, long=8)
def test_a_driver_killed_at_any_moment_while_the_feed_goes_on_loses_and_doubles_nothing(
    stage: Stage, spark: SparkSession, kills: int
) -> None:
    chance, clock = random.Random(SEED), SystemClock()
    stage.write_config(limits={"epochs_per_job": 1})
    for _ in range(kills):
        process = stage.start(SCRIPT, str(stage.config), "after-seconds", f"{chance.uniform(0.5, 6):.2f}")
        while process.poll() is None:
            stage.trade(1, transactions=8)
            clock.wait(0.7)
        assert stage.finished(process) in (0, -signal.SIGKILL), stage.said(process)
        assert_chains(stage, spark)
    stage.drain(spark)
    assert_whole(stage, spark, moments=4)


def killed(stage: Stage, point: str, number: int) -> None:
    process = stage.start(SCRIPT, str(stage.config), point, str(number))
    assert stage.finished(process) == -signal.SIGKILL, stage.said(process)


def assert_chains(stage: Stage, spark: SparkSession) -> None:
    """What is published so far is a beginning of what the source had."""
    for table in stage.tables:
        if stage.warehouse_has(spark, table) and (entries := stage.entries(spark, table)):
            assert_one_chain(table, entries)
            assert [entry.resolved for entry in entries] == expected_epochs(stage.shop, table.name)[: len(entries)]


def epochs_published(stage: Stage, spark: SparkSession) -> int:
    return sum(len(stage.entries(spark, t)) for t in stage.tables if stage.warehouse_has(spark, t))
