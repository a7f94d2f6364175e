"""`frazil doctor` on the tables of a pipeline: what it examines, what it prints, with which code it exits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from feed_builders import Lab, at, delete, table, upsert
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def lab(spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path) -> Lab:
    lab = Lab(
        spark,
        warehouse,
        namespace,
        tmp_path,
        tables=[table("t", changelog=True), table("u", deletes="equality")],
        settings={"on_error": "quarantine"},
    )
    for name in ("t", "u"):
        lab.feed.data(at(1), [upsert([key], at(1), a=key, b=f"{key}") for key in range(5)], topic=name)
        lab.feed.data(at(3), [upsert([1], at(3), a=1, b="one"), delete([2], at(3))], topic=name)
    lab.feed.resolved(at(2))
    lab.feed.resolved(at(4))
    lab.run()
    return lab


def test_all_tables_of_a_pipeline_are_examined_with_their_companions(lab: Lab) -> None:
    result = lab.cli("doctor")
    assert result.exit_code == 0, result.output
    for name in ("t", "t__changelog", "u"):
        assert f"{lab.namespace}.{name}: healthy" in result.stdout
    (told,) = json.loads(lab.cli("doctor", f"{lab.namespace}.t", "--json").stdout)
    assert (told["table"], told["findings"], told["keys_examined"]) == (f"{lab.namespace}.t", [], True)


def test_damage_is_told_repaired_and_told_no_more(lab: Lab) -> None:
    rows = lab.rows("t")
    lab.spark.sql(f"INSERT INTO {lab.sql_name('t')} SELECT * FROM {lab.sql_name('t')}")
    found = lab.cli("doctor")
    assert found.exit_code == 5
    assert "4 keys (a) have more than one row" in found.stdout
    assert "hint: Run it again with --fix" in found.stderr
    assert lab.rows("t") != rows, "only looked at"

    fixed = lab.cli("doctor", "--fix", "--json")
    assert fixed.exit_code == 0, fixed.output
    findings = [finding for told in json.loads(fixed.stdout) for finding in told["findings"]]
    assert [(finding["trouble"], finding["fixed"]) for finding in findings] == [("duplicate keys", True)]
    assert lab.rows("t") == rows

    lab.feed.data(at(5), [upsert([3], at(5), a=3, b="three")], topic="t")
    lab.feed.resolved(at(6))
    lab.run()
    expected = [row | {"b": "three"} if row["a"] == 3 else row for row in rows]
    assert lab.rows("t") == expected, "the pipeline goes on where it was"
    assert lab.cli("doctor").exit_code == 0


def test_a_table_of_somebody_else_in_the_same_catalog_may_be_examined(lab: Lab) -> None:
    lab.spark.sql(f"CREATE TABLE {lab.sql_name('mine')} (id bigint) USING iceberg")
    lab.spark.sql(f"INSERT INTO {lab.sql_name('mine')} VALUES (1), (1)")
    result = lab.cli("doctor", f"{lab.namespace}.mine")
    assert result.exit_code == 0, result.output
    assert "every key" not in result.stdout, "it has none"


def test_a_table_that_does_not_exist_is_answered_with_those_that_are_called_alike(lab: Lab) -> None:
    wrong = lab.cli("doctor", f"{lab.namespace}.t_changelog")
    assert wrong.exit_code == 2
    assert f"there is no table {lab.namespace}.t_changelog in frazil" in wrong.stderr
    assert f"{lab.namespace}.t__changelog" in wrong.stderr
    nameless = lab.cli("doctor", "t")
    assert nameless.exit_code == 2
    assert "namespace.table" in nameless.stderr


def test_a_table_that_cannot_be_examined_keeps_nobody_from_the_others(lab: Lab) -> None:
    lab.spark.sql(f"CREATE TABLE {lab.sql_name('odd')} (id bigint, at timestamp) USING iceberg PARTITIONED BY (id)")
    names = [f"{lab.namespace}.odd", f"{lab.namespace}.t"]
    lab.spark.sql(f"INSERT INTO {lab.sql_name('odd')} VALUES (1, now())")
    metadata = next((lab.warehouse / lab.namespace / "odd" / "metadata").glob("snap-*.avro"))
    metadata.unlink()
    result = lab.cli("doctor", *names)
    assert result.exit_code == 5
    assert f"{lab.namespace}.odd" in result.stderr
    assert f"{lab.namespace}.t: healthy" in result.stdout
