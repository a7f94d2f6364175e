"""The whole road against a REST catalog: Iceberg's own reference server."""

from __future__ import annotations

from pathlib import Path

import pytest
from feed_builders import Lab, at, delete, table, upsert
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.servers]


def test_a_feed_becomes_tables_of_a_rest_catalog(
    spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path, rest_uri: str
) -> None:
    lab = Lab(spark, warehouse, namespace, tmp_path, tables=[table("t"), table("u", key=(), columns={})])
    lab.catalog = {"type": "rest", "name": "rest_feed", "uri": rest_uri}
    lab.feed.data(at(1), [upsert([n], at(1), a=n, b="x") for n in range(5)])
    lab.feed.data(at(1), [upsert([n], at(1), id=n, price=n + 0.25) for n in range(5)], topic="u")
    lab.feed.resolved(at(2))
    lab.run()
    lab.feed.data(at(3), [delete([0], at(3)), upsert([1], at(4), a=1, b="y"), upsert([9], at(9), a=9, b="later")])
    lab.feed.data(at(3), [upsert([1], at(3), id=1, price=9, added="new")], topic="u", schema="2")
    lab.feed.resolved(at(5))
    lab.run()
    assert [tuple(row.values()) for row in lab.rows("t", at(2))] == [(n, "x") for n in range(5)]
    assert [tuple(row.values()) for row in lab.rows("t")] == [(1, "y"), (2, "x"), (3, "x"), (4, "x")]
    assert [row["added"] for row in lab.rows("u", order="id")] == [None, "new", None, None, None]
    assert lab.run().epochs == 0
    shown = lab.cli("status")
    assert shown.exit_code == 0
    assert "STEADY_STATE" in shown.stdout
