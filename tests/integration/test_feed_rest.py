"""The whole road against a REST catalog: Iceberg's own reference server."""

from __future__ import annotations

from pathlib import Path

import pytest
from feed_builders import Lab, at, delete, table, upsert
from pyspark.sql import SparkSession
from servers.faulty_proxy import Fault, faulty_proxy

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


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.REFUSE])
@pytest.mark.parametrize("atomic", ["table", "pipeline"])
def test_whatever_happens_to_a_commit_on_its_way_nothing_is_lost_and_nothing_doubled(
    spark: SparkSession,
    warehouse: Path,
    namespace: str,
    tmp_path: Path,
    rest_uri: str,
    fault: Fault,
    atomic: str,
) -> None:
    """H6, H43: every commit of an epoch takes effect, and none of them is answered as it should be."""
    lab = Lab(spark, warehouse, namespace, tmp_path, tables=[table("t"), table("u")])
    with faulty_proxy(rest_uri) as proxy:
        lab.catalog = {"type": "rest", "name": f"faulty_{namespace}", "uri": proxy.uri}
        lab.settings = {"atomic": atomic}
        for second, value in ((1, "x"), (3, "y"), (5, "z")):
            for name in ("t", "u"):
                lab.feed.data(at(second), [upsert([n], at(second), a=n, b=value) for n in range(3)], topic=name)
            lab.feed.resolved(at(second + 1))
            proxy.only = "/transactions/commit" if atomic == "pipeline" else "/tables/u"
            if second > 1:
                proxy.fail_next(fault)
            lab.run()
        expected = [at(second).text for second in (2, 4, 6)]
        assert [lab.resolved(name) for name in ("t", "u")] == [expected, expected]
        for second, value in ((2, "x"), (4, "y"), (6, "z")):
            assert [[row["b"] for row in lab.rows(name, at(second))] for name in ("t", "u")] == [[value] * 3] * 2
