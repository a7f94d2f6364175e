"""Users who roll back, expire, compact and append between two runs of a pipeline."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result
from failure_stage import Stage, assert_like_the_oracle, assert_one_chain, assert_whole, expected_epochs
from pyspark.sql import SparkSession

from frazil.app.pipeline import Pipeline
from frazil.cli.main import cli
from frazil.cli.seam import Session
from frazil.model.ids import JobId, TableName

pytestmark = pytest.mark.spark

ORDERS = TableName(("shop",), "orders")
PRODUCTS = TableName(("shop",), "products")
OLDER_THAN_TOMORROW = "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1"


def frazil(stage: Stage, spark: SparkSession, command: str, *more: str) -> Result:
    """The command line as a user types it, on the suite's session."""
    session = Session(open_pipeline=lambda config, reread=None: Pipeline(config, spark=spark))
    return CliRunner().invoke(cli, [command, str(stage.config), *more], obj=session)


def test_a_rolled_back_table_stops_the_run_until_it_is_rewound(stage: Stage, spark: SparkSession) -> None:
    """H4, H44: the property is ahead of main. Publishing on top would leave a gap, so a person must say that it is
    meant; then the epochs that were lost are published again."""
    stage.trade(3)
    stage.drain(spark)
    published = stage.entries(spark, ORDERS)
    back_to = published[-3]
    spark.sql(f"CALL {stage.catalog}.system.rollback_to_snapshot('{ORDERS}', {back_to.snapshot_id})")
    stage.trade(1)

    refused = frazil(stage, spark, "run", "--once")
    assert refused.exit_code == 5, refused.output
    assert f"frazil rewind CONFIG {ORDERS}" in refused.output
    assert [e.batch_id for e in stage.entries(spark, ORDERS)] == [e.batch_id for e in published[:-2]]

    assert frazil(stage, spark, "rewind", ORDERS.text).exit_code == 0
    again = frazil(stage, spark, "run", "--once")
    assert again.exit_code == 0, again.output

    entries = stage.entries(spark, ORDERS)
    (mark,) = [entry for entry in entries if entry.operation == "rewind"]
    assert (mark.batch_id, mark.resolved) == (back_to.batch_id, back_to.resolved)
    epochs = [entry for entry in entries if entry is not mark]
    assert [entry.resolved for entry in epochs] == expected_epochs(stage.shop, "orders")
    assert_one_chain(ORDERS, epochs)
    assert_like_the_oracle(stage, spark, stage.shop.resolved[-3:])


def test_a_table_rolled_back_to_before_its_first_epoch_is_loaded_again(stage: Stage, spark: SparkSession) -> None:
    """H4: nothing of ours is left on main; after the rewind the table starts over from the source's start."""
    spark_sees_the_catalog(stage, spark)
    spark.sql(f"CREATE NAMESPACE {stage.catalog}.shop")
    spark.sql(
        f"CREATE TABLE {stage.sql(PRODUCTS)} (sku string NOT NULL, title string, price decimal(12,2),"
        " tags array<string>) USING iceberg"
    )
    spark.sql(f"INSERT INTO {stage.sql(PRODUCTS)} VALUES ('sku-00001', 'made by hand', 1.00, array())")
    before = stage.head(spark, PRODUCTS).snapshot_id
    stage.trade(1)
    stage.drain(spark)
    spark.sql(f"CALL {stage.catalog}.system.rollback_to_snapshot('{PRODUCTS}', {before})")
    assert frazil(stage, spark, "run", "--once").exit_code == 5
    assert "start of the source" in frazil(stage, spark, "rewind", PRODUCTS.text).output
    assert frazil(stage, spark, "run", "--once").exit_code == 0
    assert_whole(stage, spark)


def test_expired_snapshots_do_not_bring_an_epoch_back(stage: Stage, spark: SparkSession) -> None:
    """H3: a user keeps one snapshot only. The tag keeps our newest epoch, whatever else was committed on top."""
    stage.trade(2)
    stage.drain(spark)
    last = stage.entries(spark, ORDERS)[-1]
    compact(stage, spark, ORDERS)
    spark.sql(f"CALL {stage.catalog}.system.expire_snapshots(table => '{ORDERS}', {OLDER_THAN_TOMORROW})")
    assert [entry.batch_id for entry in stage.entries(spark, ORDERS)] == [last.batch_id], "the tag kept it"
    goes_on_after(stage, spark, ORDERS)


def test_the_property_alone_is_enough_to_go_on(stage: Stage, spark: SparkSession) -> None:
    """H3: the tag is dropped as well, and no snapshot of ours is left in the whole table."""
    stage.trade(2)
    stage.drain(spark)
    compact(stage, spark, ORDERS)
    spark.sql(f"ALTER TABLE {stage.sql(ORDERS)} DROP TAG {JobId('shop').tag}")
    spark.sql(f"CALL {stage.catalog}.system.expire_snapshots(table => '{ORDERS}', {OLDER_THAN_TOMORROW})")
    assert stage.entries(spark, ORDERS) == []
    goes_on_after(stage, spark, ORDERS)


def test_a_foreign_compaction_and_a_foreign_append_are_walked_over(stage: Stage, spark: SparkSession) -> None:
    """H5, H15: somebody compacts and appends a second row of a live key. The next change of that key replaces both
    rows, what compaction removed stays removed, and the chain of epochs goes on."""
    stage.trade(3)
    stage.drain(spark)
    compact(stage, spark, ORDERS)
    compact(stage, spark, PRODUCTS)
    assert_like_the_oracle(stage, spark, stage.shop.resolved[-1:])
    sku = sorted(stage.shop.tables["products"])[0][0]
    spark.sql(
        f"INSERT INTO {stage.sql(PRODUCTS)} "
        f"SELECT sku, 'from another writer', price, tags FROM {stage.sql(PRODUCTS)} WHERE sku = '{sku}'"
    )
    spark.sql(f"INSERT INTO {stage.sql(ORDERS)} SELECT * FROM {stage.sql(ORDERS)} WHERE false")
    row = stage.shop.tables["products"][sku,]
    stage.shop._put("products", {**row, "title": "from the source"}, stage.shop._tick())
    stage.trade(2)
    stage.drain(spark)
    assert_whole(stage, spark)


def goes_on_after(stage: Stage, spark: SparkSession, table: TableName) -> None:
    """The next run publishes what is new, and nothing of what had been published before."""
    published = stage.head(spark, table).in_property(JobId("shop"))
    assert published is not None
    before = {entry.batch_id for entry in stage.entries(spark, table)}
    stage.trade(2)
    stage.drain(spark)
    new = [entry for entry in stage.entries(spark, table) if entry.batch_id not in before]
    wanted = [epoch for epoch in expected_epochs(stage.shop, table.name) if epoch > published.resolved]
    assert [entry.resolved for entry in new] == wanted
    assert [entry.lower for entry in new] == [published.resolved, *wanted[:-1]]
    assert_like_the_oracle(stage, spark, stage.shop.resolved[-2:])


def compact(stage: Stage, spark: SparkSession, table: TableName) -> None:
    before = stage.head(spark, table).snapshot_id
    spark.sql(
        f"CALL {stage.catalog}.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))"
    )
    head = stage.head(spark, table)
    assert head.snapshot_id != before, "nothing was compacted"
    assert head.ancestry[0].summary["operation"] == "replace"


def spark_sees_the_catalog(stage: Stage, spark: SparkSession) -> None:
    with stage.pipeline(spark):
        pass
