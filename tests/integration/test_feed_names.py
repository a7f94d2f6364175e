"""Columns whose names readers keep to themselves, or cannot tell apart: the tables are read by Spark and PyIceberg."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from feed_builders import Lab, at, delete, table, upsert
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession
from upsert_builders import PUBLISHED

from frazil.iceberg.tables.column_match import RESERVED
from frazil.ingest.upsert_stream.api import Upserts
from frazil.ingest.upsert_stream.request import UpsertOptions

pytestmark = pytest.mark.spark

NAMES = sorted(RESERVED)


def by_pyiceberg(warehouse: Path, name: str) -> list[dict[str, Any]]:
    catalog = SqlCatalog("frazil", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=str(warehouse))
    return catalog.load_table(name).scan(case_sensitive=False).to_arrow().to_pylist()


def row(number: int, second: int, **more: Any) -> str:
    values = {"_file": f"f{number}", "b": number, **{name: number for name in NAMES if name != "_file"}, **more}
    return upsert([f"f{number}"], at(second), **values)


@pytest.mark.parametrize("deletes", ["vectors", "equality", "append-only"])
@pytest.mark.parametrize("pinned", [True, False])
def test_such_columns_are_renamed_and_read_by_everybody(
    spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path, deletes: str, pinned: bool
) -> None:
    """From the first row on, and when one comes later; as key, in partitions and in sort orders."""
    columns = {"_file": "STRING", "b": "INT8", **{name: "INT8" for name in NAMES if name != "_file"}} if pinned else {}
    entry = table(key=["_file"], columns=columns, deletes=deletes, partition=["bucket(2, _file)", "_pos"], sort=["b"])
    lab = Lab(spark, warehouse, namespace, tmp_path, tables=[entry])
    lab.feed.data(at(1), [row(1, 1), row(2, 1), row(3, 1)])
    lab.feed.resolved(at(2))
    (checked,) = json.loads(lab.cli("check", "--json").stdout)
    assert any(note.startswith("column _file is called _file_2 in the table") for note in checked["notes"])
    assert lab.run().rows == 3
    lab.feed.data(at(3), [row(2, 3, B="big"), delete(["f3"], at(3))])
    lab.feed.resolved(at(4))
    lab.run()
    lab.feed.data(at(5), [row(4, 5, B="more")])
    lab.feed.resolved(at(6))
    lab.run()

    expected = {"f1": None, "f2": "big", "f4": "more"}
    name, where = lab.sql_name("t"), "_op != 'delete' AND b > 0" if deletes == "append-only" else "b > 0"
    found = spark.sql(f"SELECT _file_2, b, B_2, _pos_2 FROM {name} WHERE {where} ORDER BY _file_2, B_2").collect()
    if deletes == "append-only":
        assert {one["_file_2"] for one in found} == {"f1", "f2", "f3", "f4"}
    else:
        assert {one["_file_2"]: one["B_2"] for one in found} == expected
    assert all(one["b"] == one["_pos_2"] == int(one["_file_2"][1:]) for one in found)
    hidden = spark.sql(f"SELECT _file, _pos, _spec_id, _partition FROM {name}").collect()
    assert all(one["_file"].endswith(".parquet") for one in hidden), "what the reader knows of a row"
    if deletes != "equality":
        read = by_pyiceberg(warehouse, f"{namespace}.t")
        assert {one["_file_2"] for one in read} == {one["_file_2"] for one in found}
        assert {one["B_2"] for one in read} == {None, "big", "more"}


def test_a_column_that_differs_in_case_is_told_apart(
    spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path
) -> None:
    lab = Lab(spark, warehouse, namespace, tmp_path, tables=[table(key=["id"], columns={})])
    lab.feed.data(at(1), [upsert([1], at(1), id=1, B="upper", b="lower")])
    lab.feed.resolved(at(2))
    lab.run()
    assert lab.rows() == [{"B": "upper", "b_2": "lower", "id": 1}]
    assert by_pyiceberg(warehouse, f"{namespace}.t") == [{"B": "upper", "b_2": "lower", "id": 1}]
    pins = lab.cli("check").stdout
    assert "      b: STRING" in pins, "a pin names the source's column"


@pytest.mark.parametrize("name", ["_op", "_Position", "_before.b"])
@pytest.mark.parametrize("entry", [{"changelog": True}, {"deletes": "append-only"}])
def test_a_column_that_a_changelog_needs_is_told_by_check(
    spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path, name: str, entry: dict[str, Any]
) -> None:
    lab = Lab(spark, warehouse, namespace, tmp_path, tables=[table(columns={}, **entry)])
    lab.feed.data(at(1), [upsert([1], at(1), a=1, b="x", **{name: "y"})])
    lab.feed.resolved(at(2))
    checked = lab.cli("check")
    assert checked.exit_code == 2, checked.output
    assert f"the source has a column {name!r}, which a changelog needs for itself" in checked.stdout
    assert "leave out `changelog: true`" in checked.stdout


def test_a_dataframe_may_have_such_columns(spark: SparkSession, warehouse: Path, namespace: str) -> None:
    options = {"pipeline": namespace, "target": f"{namespace}.s", "warehouse": warehouse, "key": "_file"}
    process = Upserts()
    frame = spark.createDataFrame([("a", 1), ("b", 2)], "_file string, b int")
    assert process.publish(frame, 0, UpsertOptions(**options, order_by="b"), "q").result is PUBLISHED
    later = spark.createDataFrame([("b", "x")], "_file string, B string")
    assert process.publish(later, 1, UpsertOptions(**options), "q").result is PUBLISHED
    read = sorted(by_pyiceberg(warehouse, f"{namespace}.s"), key=lambda one: one["_file_2"])
    assert [(one["_file_2"], one["b"], one["B_2"]) for one in read] == [("a", 1, None), ("b", None, "x")]
