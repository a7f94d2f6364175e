"""`frazil drop`: only what the pipeline does not make again, and files only after the grace period."""

from __future__ import annotations

from pathlib import Path

import pytest
from feed_builders import Lab, at, table, upsert
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def lab(spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path) -> Lab:
    lab = Lab(spark, warehouse, namespace, tmp_path, tables=[table("t")])
    lab.feed.data(at(1), [upsert([1], at(1), a=1, b="one")])
    lab.feed.resolved(at(2))
    lab.run()
    lab.spark.sql(f"CREATE TABLE {lab.sql_name('old')} (a int) USING iceberg")
    lab.spark.sql(f"INSERT INTO {lab.sql_name('old')} VALUES (1)")
    return lab


def test_a_table_that_the_configuration_does_not_list_goes_and_its_files_after_the_grace_period(lab: Lab) -> None:
    folder = lab.warehouse / lab.namespace / "old" / "data"
    dropped = lab.cli("drop", f"{lab.namespace}.old", "--yes")
    assert dropped.exit_code == 0, dropped.output
    assert "1d" in dropped.stdout
    assert not lab.spark.catalog.tableExists(lab.sql_name("old"))
    assert list(folder.iterdir())
    for _ in range(2):
        assert lab.cli("maintain", "--set", "maintenance.queue.grace=0s").exit_code == 0
    assert not list(folder.iterdir())
    assert lab.rows() == [{"a": 1, "b": "one"}]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["old"], "--yes"),
        (["nothing", "--yes"], "there is no table"),
        (["old", "--yes", "--catalog", "other"], "other"),
        (["t", "--yes"], "--force"),
        (["t__changelog", "--yes"], "--force"),
    ],
)
def test_what_must_not_be_dropped_is_refused_and_says_why(lab: Lab, arguments: list[str], told: str) -> None:
    name, *options = arguments
    refused = lab.cli("drop", f"{lab.namespace}.{name}", *options)
    assert refused.exit_code == 2, refused.output
    assert told in refused.stderr
    assert lab.spark.catalog.tableExists(lab.sql_name("old"))
    assert lab.spark.catalog.tableExists(lab.sql_name("t"))


def test_own_tables_are_not_dropped_and_listed_ones_only_by_force(lab: Lab) -> None:
    own = lab.cli("drop", "_frazil.pipelines", "--yes", "--force")
    assert own.exit_code == 2
    assert "own tables" in own.stderr
    assert lab.cli("drop", f"{lab.namespace}.t", "--yes", "--force").exit_code == 0
    assert not lab.spark.catalog.tableExists(lab.sql_name("t"))


def test_the_files_of_the_last_table_of_a_pipeline_go_too(lab: Lab) -> None:
    """No table is left to maintain, and its queue is worked off all the same."""
    folder = lab.warehouse / lab.namespace / "t"
    assert list(folder.rglob("*.parquet"))
    assert lab.cli("drop", f"{lab.namespace}.t", "--yes", "--force").exit_code == 0
    for _ in range(2):
        assert lab.cli("maintain", "--set", "maintenance.queue.grace=0s").exit_code == 0
    assert not [path for path in folder.rglob("*") if path.is_file()]
