"""Files of a feed that are deleted, tables that are added or dropped then, and changefeeds that are created again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from feed_builders import Lab, at, table, upsert
from pyspark.sql import SparkSession

from frazil.errors import SourceLost

pytestmark = pytest.mark.spark


@pytest.fixture
def lab(spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path) -> Lab:
    return Lab(spark, warehouse, namespace, tmp_path)


def keys(lab: Lab, name: str = "t") -> list[Any]:
    return [row["a"] for row in lab.rows(name)]


def change(lab: Lab, second: int, *topics: str) -> None:
    for topic in topics:
        number = len(lab.feed.files)
        lab.feed.data(at(second), [upsert([second], at(second + 1), a=second, b="x")], topic=topic, number=number)
    lab.feed.resolved(at(second + 2))


def delete_data(lab: Lab, before: int) -> None:
    for path in lab.feed.root.rglob("*.ndjson"):
        if path.name[:33] < at(before).file_stamp:
            path.unlink()


def ten(lab: Lab) -> None:
    for second in range(0, 100, 10):
        change(lab, second, "t", "u")


def test_a_table_that_is_added_when_old_files_are_gone_stops_and_the_others_go_on(lab: Lab) -> None:
    ten(lab)
    lab.run()
    delete_data(lab, before=80)
    change(lab, 100, "t", "u")
    lab.tables = [table("t"), table("u")]
    with pytest.raises(SourceLost, match="u: the feed no longer tells it from its beginning"):
        lab.run()
    assert not lab.exists("u") or keys(lab, "u") == []
    assert keys(lab) == [*range(0, 110, 10)]
    lab.tables = [table("t"), table("u", history="partial")]
    lab.run()
    assert keys(lab, "u") == [80, 90, 100]


def test_a_table_that_is_dropped_when_old_files_are_gone_is_not_made_of_what_is_left(lab: Lab) -> None:
    ten(lab)
    lab.run()
    delete_data(lab, before=80)
    lab.spark.sql(f"DROP TABLE {lab.sql_name('t')}")
    with pytest.raises(SourceLost, match="from its beginning"):
        lab.run()
    assert not lab.exists("t") or keys(lab) == []


def test_a_dropped_table_is_known_to_be_cut_off_though_the_feed_was_restarted_and_no_ledger_is_left(lab: Lab) -> None:
    ten(lab)
    lab.run()
    delete_data(lab, before=80)
    left = sorted(lab.feed.root.rglob("*.ndjson"))
    for number, path in enumerate(left):  # each run of a changefeed counts its files from 0
        path.rename(path.with_name(path.name.replace(f"-{_number(path):08x}-", f"-{number:08x}-")))
    lab.spark.sql(f"DROP TABLE {lab.sql_name('t')}")
    with pytest.raises(SourceLost, match="it began with files of"):
        lab.run()
    assert not lab.exists("t") or keys(lab) == []
    lab.tables = [table("t", history="partial")]
    lab.run()
    assert keys(lab) == [80, 90]


def _number(path: Path) -> int:
    return int(path.name.split("-")[4], 16)


def test_a_changefeed_that_is_created_again_in_the_same_prefix_stops_what_it_scans(lab: Lab) -> None:
    """Row 1 was deleted between the two, and no file tells."""
    lab.tables = [table("t"), table("u")]
    for topic in ("t", "u"):
        lab.feed.data(at(1), [upsert([n], at(1), a=n, b="x") for n in (1, 2)], topic=topic)
    lab.feed.resolved(at(1))
    lab.run()
    lab.feed.data(at(10), [upsert([2], at(10), a=2, b="x"), upsert([3], at(10), a=3, b="x")], session="b" * 16)
    lab.feed.resolved(at(10))
    with pytest.raises(SourceLost, match="another changefeed") as caught:
        lab.run()
    assert caught.value.facts["table"] == "t"
    assert keys(lab) == [1, 2]
    lab.tables = [table("t", rescan="merge"), table("u")]
    lab.run()
    assert keys(lab) == [1, 2, 3]
