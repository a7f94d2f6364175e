"""A wrong pin is told before a table is made for it; corrected, nothing stands in the way; hints name what works."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from feed_builders import Lab, at, column_types, table, upsert
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

WRONG, RIGHT = {"a": "INT8", "customer_id": "BOOL"}, {"a": "INT8", "customer_id": "INT8"}


@pytest.fixture
def lab(spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path) -> Lab:
    lab = Lab(spark, warehouse, namespace, tmp_path, tables=[table(columns=WRONG)])
    lab.feed.data(at(1), [upsert([n], at(1), a=n, customer_id=n) for n in (1, 2)])
    lab.feed.resolved(at(2))
    return lab


def notes(lab: Lab, exit_code: int = 0) -> str:
    result = lab.cli("check", "--json")
    assert result.exit_code == exit_code, result.stderr
    (checked,) = json.loads(result.stdout)
    assert checked["exit_code"] == exit_code
    return " ".join(checked["notes"])


@pytest.mark.parametrize("corrected", [RIGHT, {}], ids=["pinned anew", "not pinned any more"])
def test_a_wrong_pin_is_told_by_check_and_leaves_nothing_in_the_way(lab: Lab, corrected: dict[str, str]) -> None:
    told = notes(lab, exit_code=3)
    assert "problem: " in told
    assert "customer_id" in told
    assert f"{lab.feed.files[0]}:1" in told
    result = lab.cli("run", "--once")
    assert result.exit_code == 3, result.stderr
    assert "resync" not in result.stderr

    lab.tables = [table(columns=corrected)]
    assert notes(lab) == ""
    result = lab.cli("run", "--once")
    assert result.exit_code == 0, result.stderr
    assert column_types(lab.spark, lab.sql_name("t"))["customer_id"] == "bigint"
    assert [(row["a"], row["customer_id"]) for row in lab.rows()] == [(1, 1), (2, 2)]


def test_a_wrong_key_leaves_nothing_in_the_way(lab: Lab) -> None:
    lab.tables = [table(key=["customer_id"], columns={"a": "INT8", "customer_id": "STRING"})]
    assert lab.cli("run", "--once").exit_code == 3
    lab.tables = [table(columns=RIGHT)]
    assert lab.cli("run", "--once").exit_code == 0
    assert [row["a"] for row in lab.rows()] == [1, 2]


def test_a_published_table_or_one_of_somebody_else_is_never_replaced(lab: Lab) -> None:
    lab.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS frazil.{lab.namespace}")
    lab.spark.sql(f"CREATE TABLE {lab.sql_name('t')} (a BIGINT, customer_id BOOLEAN) USING iceberg")
    lab.tables = [table(columns=RIGHT)]
    result = lab.cli("run", "--once")
    assert result.exit_code == 2, result.stderr
    assert "customer_id" in result.stderr
    assert "resync" not in result.stderr
    assert column_types(lab.spark, lab.sql_name("t"))["customer_id"] == "boolean"

    lab.spark.sql(f"DROP TABLE {lab.sql_name('t')}")
    assert lab.cli("run", "--once").exit_code == 0
    lab.tables = [table(columns=WRONG)]
    lab.feed.data(at(3), [upsert([3], at(3), a=3, customer_id=3)])
    lab.feed.resolved(at(4))
    assert lab.cli("run", "--once").exit_code in (2, 3)
    assert [row["a"] for row in lab.rows()] == [1, 2]


def test_the_doctor_says_how_a_feed_rebuilds_a_table_and_that_is_so(lab: Lab) -> None:
    lab.tables = [table(columns=RIGHT)]
    lab.run()
    data = next((lab.warehouse).rglob(f"*{lab.namespace}*/**/data-*.parquet"))
    data.unlink()
    result = lab.cli("doctor", f"{lab.namespace}.t", "--json")
    (finding,) = [one for one in json.loads(result.stdout)[0]["findings"] if one["trouble"] == "missing files"]
    assert "frazil drop CONFIG TABLE --force" in finding["next"]
    assert "resync" not in finding["next"]
    assert lab.cli("drop", f"{lab.namespace}.t", "--force", "--yes").exit_code == 0
    assert lab.cli("run", "--once").exit_code == 0
    assert [row["a"] for row in lab.rows()] == [1, 2]
