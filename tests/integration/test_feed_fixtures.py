"""What CockroachDB's changefeeds are known to do, end to end: feed files in, Iceberg tables out, read by Spark SQL.

Each test is one line of the fixture recipe for changefeed readers: an initial scan, rows beyond a resolved
timestamp, duplicates after a restart, and so on.
"""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from feed_builders import Lab, at, column_types, delete, table, upsert
from pyspark.sql import SparkSession

from frazil.ingest.write import window_writer as windows
from frazil.model.results import RunProgress
from frazil.sources.cockroachdb.position import LOGICAL_MAX, Hlc

pytestmark = pytest.mark.spark


@pytest.fixture
def lab(spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path) -> Lab:
    return Lab(spark, warehouse, namespace, tmp_path)


def row(a: int, updated: Hlc, b: str | None = "x", **more: Any) -> str:
    return upsert([a], updated, a=a, b=b, **more)


def ab(*pairs: tuple[int, str | None]) -> list[dict[str, Any]]:
    return [{"a": a, "b": b} for a, b in pairs]


def test_an_initial_scan_is_one_snapshot_at_the_scans_timestamp(lab: Lab) -> None:
    lab.feed.data(at(1), [row(n, at(1), f"v{n}") for n in range(50)])
    lab.feed.data(at(1), [row(n, at(1), f"v{n}") for n in range(50, 80)], number=1)
    lab.feed.resolved(at(1))
    assert lab.run().rows == 80
    assert lab.resolved() == [at(1).text]
    assert lab.rows() == ab(*((n, f"v{n}") for n in range(80)))


@pytest.mark.parametrize("runs", [1, 2])
def test_a_row_beyond_the_resolved_timestamp_appears_only_in_the_next_snapshot(lab: Lab, runs: int) -> None:
    """In two runs the carried file is remembered by the table's ledger alone."""
    lab.feed.data(at(11), [row(1, at(19)), row(2, at(20)), row(3, at(25)), row(1, at(26), "late")])
    lab.feed.resolved(at(20))
    if runs == 2:
        lab.run()
        assert lab.rows() == ab((1, "x"), (2, "x"))
    lab.feed.resolved(at(30))
    lab.run()
    assert lab.rows(resolved=at(20)) == ab((1, "x"), (2, "x"))
    assert lab.rows(resolved=at(30)) == ab((1, "late"), (2, "x"), (3, "x"))
    assert lab.resolved() == [at(20).text, at(30).text]


def test_an_empty_window_moves_on_without_a_snapshot(lab: Lab) -> None:
    lab.feed.data(at(1), [row(1, at(1))])
    for second in (2, 3, 4):
        lab.feed.resolved(at(second))
    summary = lab.run()
    assert (summary.epochs, summary.resolved) == (1, at(4).text)
    assert lab.resolved() == [at(2).text]
    assert lab.rows(resolved=at(4)) == ab((1, "x"))


def test_duplicates_after_a_restart_change_nothing(lab: Lab) -> None:
    """The second session repeats some versions in another order, within the window and behind its end."""
    lab.feed.data(at(1), [row(1, at(2), "one"), row(1, at(3), "two"), row(2, at(4)), delete([2], at(5))])
    lab.feed.data(at(1), [row(1, at(3), "two"), row(2, at(4))], session="b" * 16)
    lab.feed.resolved(at(10))
    lab.run()
    assert lab.rows() == ab((1, "two"))
    lab.feed.data(at(10, 1), [row(1, at(2), "one"), row(2, at(4)), row(3, at(11))], session="c" * 16)
    lab.feed.resolved(at(20))
    assert lab.run().dropped == 2
    assert lab.rows() == ab((1, "two"), (3, "x"))
    assert lab.rows(resolved=at(10)) == ab((1, "two"))


@pytest.mark.parametrize("task_bytes", [windows.TASK_BYTES, 10])
def test_a_duplicate_is_counted_once_however_often_its_file_is_read(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, task_bytes: int
) -> None:
    """Where what is behind is divided, too, and where an epoch of nothing but duplicates leaves its files to others."""
    monkeypatch.setattr(windows, "TASK_BYTES", task_bytes)
    lab.feed.data(at(1), [row(1, at(2)), row(2, at(4))])
    lab.feed.resolved(at(10))
    lab.run()
    for second in (11, 21, 31, 41):
        lab.feed.data(at(second), [row(1, at(2)), row(2, at(4)), *([row(3, at(32))] if second == 31 else [])])
        lab.feed.resolved(at(second + 5))
    assert lab.run().dropped == 8
    assert lab.resolved() == [at(10).text, at(36).text]
    assert lab.rows() == ab((1, "x"), (2, "x"), (3, "x"))


def test_the_newest_version_wins_whatever_the_order_of_files(lab: Lab) -> None:
    lab.feed.data(at(100), [row(1, at(120), "newer")])
    lab.feed.data(at(101), [row(1, at(105), "older")])
    lab.feed.resolved(at(130))
    lab.run()
    assert lab.rows() == ab((1, "newer"))


def test_a_file_of_a_dead_session_behind_the_frontier_is_ignored(lab: Lab) -> None:
    lab.feed.data(at(1), [row(1, at(2), "old"), row(1, at(3), "new")])
    lab.feed.resolved(at(10))
    lab.run()
    lab.feed.data(at(5), [row(1, at(2), "old")], session="d" * 16)
    lab.feed.data(at(11), [row(2, at(12))])
    lab.feed.resolved(at(20))
    lab.run()
    assert lab.rows() == ab((1, "new"), (2, "x"))


@pytest.mark.parametrize("stops", [True, False])
@pytest.mark.parametrize("snapshot", ["every-resolved", "latest"])
def test_a_table_that_is_added_with_a_scan_is_read_whole(lab: Lab, snapshot: str, stops: bool) -> None:
    """ALTER CHANGEFEED ADD u WITH initial_scan: until the first flush all files have the name of the high-water, and
    sort before its resolved file, which was consumed (cockroach#84102)."""
    lab.settings = {"snapshot": snapshot}
    lab.tables = [table("t"), table("u")]
    lab.feed.data(at(1), [row(1, at(1)), row(2, at(1))])
    lab.feed.data(at(10), [row(3, at(10))])
    lab.feed.resolved(at(10))

    def alter() -> None:
        lab.feed.data(at(10), [row(7, at(10)), row(8, at(10))], topic="u", session="b" * 16)
        lab.feed.data(at(10), [row(1, at(12), "new"), delete([2], at(13)), row(4, at(25))], session="b" * 16, number=1)
        lab.feed.data(at(14), [row(9, at(15))], topic="u", session="b" * 16, number=2)
        lab.feed.resolved(at(20))

    if stops:
        lab.run()
        alter()
        lab.run()
    else:
        stop, altered = Event(), False

        def listen(progress: RunProgress) -> None:
            nonlocal altered
            resolved = progress.resolved
            if not altered and resolved == at(10).text:
                alter()
                altered = True
            elif resolved == at(20).text:
                stop.set()

        with lab.open() as pipeline:
            pipeline.run(on_progress=listen, stop=stop)
    assert lab.rows("u") == ab((7, "x"), (8, "x"), (9, "x"))
    assert lab.rows() == ab((1, "new"), (3, "x"))
    lab.feed.resolved(at(30))
    lab.run()
    assert lab.rows() == ab((1, "new"), (3, "x"), (4, "x"))


def test_deleted_rows_are_gone_and_an_unknown_key_is_no_error(lab: Lab) -> None:
    lab.feed.data(at(1), [row(n, at(1)) for n in (1, 2, 5)])
    lab.feed.resolved(at(2))
    lab.feed.data(at(3), [delete([5], at(3)), delete([77], at(3)), delete([2], at(4)), row(2, at(5), "back")])
    lab.feed.resolved(at(6))
    lab.run()
    assert lab.rows(resolved=at(2)) == ab((1, "x"), (2, "x"), (5, "x"))
    assert lab.rows() == ab((1, "x"), (2, "back"))


@pytest.mark.parametrize("delete_first", [True, False])
def test_a_primary_key_update_leaves_one_row(lab: Lab, delete_first: bool) -> None:
    lab.feed.data(at(1), [row(1, at(1))])
    lab.feed.resolved(at(2))
    change = [delete([1], at(3)), row(2, at(3))]
    lab.feed.data(at(3), change if delete_first else change[::-1])
    lab.feed.resolved(at(4))
    lab.run()
    assert lab.rows() == ab((2, "x"))


def test_the_logical_clock_decides_within_one_nanosecond(lab: Lab) -> None:
    lab.feed.data(at(1), [row(1, at(5, logical=1)), row(2, at(5, logical=2))])
    lab.feed.resolved(at(5, logical=1))
    lab.feed.resolved(at(9))
    lab.run()
    assert lab.rows(resolved=at(5, logical=1)) == ab((1, "x"))
    assert lab.rows(resolved=at(5, logical=2)) == ab((1, "x"))
    assert lab.rows() == ab((1, "x"), (2, "x"))


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("runs", [1, 2])
def test_a_schema_boundary_adds_the_column_and_doubles_nothing(lab: Lab, pinned: bool, runs: int) -> None:
    """ADD COLUMN ... DEFAULT: the whole table is written again under a new schema version."""
    if not pinned:
        lab.tables = [table(key=(), columns={})]
    boundary = at(50)
    before = Hlc(boundary.wall - 1, LOGICAL_MAX)
    lab.feed.data(at(1), [row(1, at(1), "one"), row(2, at(2), "two"), row(3, at(2), "three"), delete([3], at(3))])
    lab.feed.resolved(before)
    if runs == 2:
        lab.run()
        assert lab.rows() == ab((1, "one"), (2, "two"))
    lab.feed.data(boundary, [row(1, boundary, "one", c=7), row(2, boundary, "two", c=7)], schema="7")
    lab.feed.resolved(at(60))
    lab.run()
    assert [{"a": r["a"], "b": r["b"]} for r in lab.rows(resolved=before)] == ab((1, "one"), (2, "two"))
    assert lab.rows() == [{"a": 1, "b": "one", "c": 7}, {"a": 2, "b": "two", "c": 7}]


def test_a_renamed_column_appears_as_a_new_one(lab: Lab) -> None:
    """The feed does not tell a rename from a drop and an add; rows that are not written again keep the old column."""
    lab.feed.data(at(1), [row(1, at(1), "one"), row(2, at(1), "two")])
    lab.feed.resolved(at(2))
    lab.feed.data(at(3), [upsert([2], at(3), a=2, c="TWO")], schema="2")
    lab.feed.resolved(at(4))
    lab.run()
    assert lab.rows() == [{"a": 1, "b": "one", "c": None}, {"a": 2, "b": None, "c": "TWO"}]


def test_a_table_that_becomes_regional_keeps_its_rows_under_one_key(lab: Lab) -> None:
    """The key gains a region in front: the same row, not a second one."""
    lab.feed.data(at(1), [upsert([0], at(1), a=0, b="x"), upsert([1], at(1), a=1, b="x")])
    lab.feed.resolved(at(2))
    lab.feed.data(at(3), [upsert(["us-east-1", 0], at(3), a=0, b="y"), delete(["us-east-1", 1], at(4))], schema="2")
    lab.feed.resolved(at(5))
    lab.run()
    assert lab.rows() == ab((0, "y"))


def test_a_hash_sharded_key_is_merged_on_the_visible_columns(lab: Lab) -> None:
    lab.tables = [table(key=(), columns={})]
    lab.feed.data(at(1), [upsert([2, 0], at(1), a=0, b="x"), upsert([5, 10], at(1), a=10, b="x")])
    lab.feed.resolved(at(2))
    lab.feed.data(at(3), [upsert([2, 0], at(3), a=0, b="y"), delete([5, 10], at(3)), upsert([7, 3], at(3), a=3, b="z")])
    lab.feed.resolved(at(4))
    lab.run()
    assert lab.rows() == ab((0, "y"), (3, "z"))


def test_topics_with_dashes_and_dots_are_told_apart(lab: Lab) -> None:
    lab.tables = [table("d.public.my-table"), table("d.public.my-table-2"), table("d.other.my-table", target="")]
    lab.tables[2]["target"] = f"{lab.namespace}.other"
    for number, topic in enumerate(["d.public.my-table", "d.public.my-table-2", "d.other.my-table"]):
        lab.feed.data(at(1), [row(number, at(1), topic)], topic=topic)
    lab.feed.resolved(at(2))
    lab.run()
    assert lab.rows("my-table") == ab((0, "d.public.my-table"))
    assert lab.rows("my-table-2") == ab((1, "d.public.my-table-2"))
    assert lab.rows("other") == ab((2, "d.other.my-table"))


@pytest.mark.parametrize("pinned", [True, False])
def test_each_column_family_is_a_table_of_its_own(lab: Lab, pinned: bool) -> None:
    """Key columns are in `after` only of the family that owns them; a delete comes once for each family."""
    keys = {} if pinned else {"columns": {}}
    lab.tables = [
        table("t+f1", **({"columns": {"a": "INT8", "b": "STRING"}} if pinned else keys), target=f"{lab.namespace}.f1"),
        table("t+f2", **({"columns": {"a": "INT8", "c": "INT8"}} if pinned else {"columns": {"a": "INT8"}}),
              target=f"{lab.namespace}.f2"),
    ]  # fmt: skip
    lab.feed.data(at(1), [row(n, at(1)) for n in (1, 2)], topic="t+f1")
    lab.feed.data(at(1), [upsert([n], at(1), c=n * 10) for n in (1, 2)], topic="t+f2")
    lab.feed.resolved(at(2))
    lab.feed.data(at(3), [delete([1], at(3))], topic="t+f1")
    lab.feed.data(at(3), [delete([1], at(3)), upsert([2], at(3), c=21)], topic="t+f2")
    lab.feed.resolved(at(4))
    lab.run()
    assert lab.rows("f1") == ab((2, "x"))
    assert lab.rows("f2") == [{"a": 2, "c": 21}]


def test_numbers_are_exact(lab: Lab) -> None:
    lab.tables = [table(columns={"a": "INT8", "d": "DECIMAL(12,2)", "f": "FLOAT8", "free": "DECIMAL"})]
    lines = [
        f'{{"after": {{"a": 9223372036854775807, "d": 22.30, "f": 1E+1, "free": 1.10}}, "key": [9223372036854775807], '
        f'"updated": "{at(1)}"}}',
        f'{{"after": {{"a": -9223372036854775808, "d": -0.01, "f": "NaN", "free": 1E+1}}, '
        f'"key": [-9223372036854775808], "updated": "{at(1)}"}}',
        f'{{"after": {{"a": 9007199254740993, "d": 1E+2, "f": "-Infinity", "free": "NaN"}}, "key": [9007199254740993], '
        f'"updated": "{at(1)}"}}',
    ]
    lab.feed.data(at(1), lines)
    lab.feed.resolved(at(2))
    lab.run()
    least, middle, most = lab.rows()
    assert most == {"a": 9223372036854775807, "d": Decimal("22.30"), "f": 10.0, "free": "1.10"}
    assert (middle["a"], middle["d"], middle["f"], middle["free"]) == (2**53 + 1, Decimal("100.00"), -math.inf, "NaN")
    assert (least["a"], least["d"], least["free"]) == (-(2**63), Decimal("-0.01"), "1E+1")
    assert math.isnan(least["f"])
    assert column_types(lab.spark, lab.sql_name("t")) == {
        "a": "bigint", "d": "decimal(12,2)", "f": "double", "free": "string",
    }  # fmt: skip


def test_compressed_files_are_read(lab: Lab) -> None:
    for number, extension in enumerate(["ndjson.gz", "ndjson.zst", "ndjson"]):
        lines = [row(100 * number + n, at(1), extension) for n in range(3)]
        lab.feed.data(at(1), lines, extension=extension, number=number)
    lab.feed.resolved(at(2))
    lab.run()
    expected = [
        (100 * number + n, ext) for number, ext in enumerate(["ndjson.gz", "ndjson.zst", "ndjson"]) for n in range(3)
    ]
    assert lab.rows() == ab(*expected)


def test_what_no_resolved_timestamp_covers_is_not_published(lab: Lab) -> None:
    lab.feed.data(at(1), [row(1, at(1))])
    summary = lab.run()
    assert (summary.epochs, summary.resolved) == (0, None)
    assert not lab.exists()
    lab.feed.resolved(at(2))
    lab.feed.data(at(3), [row(2, at(3))])
    lab.run()
    assert lab.rows() == ab((1, "x"))
