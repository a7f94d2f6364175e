"""A plain restart, with nothing broken: what the first run knew, the second finds in the tables."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from failure_stage import Stage, a_stage, assert_whole
from pyspark.sql import SparkSession

from frazil.model.write import DeleteMode

pytestmark = pytest.mark.spark


def test_a_changelog_goes_on_after_a_restart_and_takes_a_new_column(tmp_path: Path, spark: SparkSession) -> None:
    """The table has columns that the source never had; they must not be taken for the source's."""
    stage = a_stage(tmp_path, {"products": DeleteMode.APPEND_ONLY})
    stage.drain(spark)
    renamed(stage)
    stage.drain(spark)
    stage.shop.add_discount()
    renamed(stage)
    stage.drain(spark)
    assert_whole(stage, spark, moments=3)
    (discount,) = spark.sql(f"SELECT max(discount) FROM {stage.sql(stage.tables[0])}").collect()[0]
    assert discount == Decimal("0.00")


def test_a_restart_with_nothing_new_publishes_nothing(stage: Stage, spark: SparkSession) -> None:
    stage.trade(2)
    stage.drain(spark)
    before = {table: stage.head(spark, table).snapshot_id for table in stage.tables}
    summary = stage.drain(spark)
    assert summary is not None
    assert summary.epochs == 0
    assert {table: stage.head(spark, table).snapshot_id for table in stage.tables} == before
    assert_whole(stage, spark)


def renamed(stage: Stage) -> None:
    """One product gets another key: a delete and an insert at one moment."""
    stage.shop._renumber(stage.shop._tick())
    stage.shop.resolve()
