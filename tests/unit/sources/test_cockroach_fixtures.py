"""Every situation a consumer of a changefeed's files meets, from files on disk to rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from cockroach_feed import Feed, Pipeline, at, delete, source_schema, upsert

from frazil.errors import BadInput, SourceLost
from frazil.model.frontier import Window
from frazil.sources.cockroachdb.position import Hlc
from frazil.sources.cockroachdb.resume_state import Notes


@pytest.fixture(params=["flat", "daily", "hourly"])
def feed(request: pytest.FixtureRequest, tmp_path: Path) -> Feed:
    return Feed(tmp_path, request.param)


def pipeline(feed: Feed, **tables: object) -> Pipeline:
    return Pipeline(feed, tables or {"t": source_schema()})  # type: ignore[arg-type]


def test_an_initial_scan_is_one_snapshot(feed: Feed) -> None:
    feed.data(at(0), [upsert([i], at(0), a=i, b="x") for i in range(3)])
    feed.resolved(at(0))
    run = pipeline(feed)
    assert run.drain() == [at(0)]
    assert [row["a"] for row in run.rows()] == [0, 1, 2]


def test_a_row_beyond_r_waits_for_the_next_resolved(feed: Feed) -> None:
    feed.resolved(at(0))
    path = feed.data(at(1), [upsert([1], at(9), a=1), upsert([2], at(10), a=2), upsert([3], at(15), a=3)])
    feed.resolved(at(10))
    run = pipeline(feed)
    run.drain()
    assert [row["a"] for row in run.rows()] == [1, 2]
    assert run.carried() == [path]
    feed.resolved(at(20))
    assert run.drain() == [at(20)]
    assert [row["a"] for row in run.rows()] == [1, 2, 3]
    assert run.carried() == []


def test_carried_rows_survive_a_restart(feed: Feed) -> None:
    feed.data(at(1), [upsert([1], at(9), a=1), upsert([3], at(15), a=3)])
    feed.resolved(at(10))
    run = pipeline(feed)
    run.drain()
    run.restart()
    feed.resolved(at(20))
    run.drain()
    assert [row["a"] for row in run.rows()] == [1, 3]


def test_a_file_is_carried_over_several_resolved_positions(feed: Feed) -> None:
    feed.data(at(1), [upsert([1], at(2), a=1), upsert([3], at(35), a=3)])
    for second in (10, 20, 30, 40):
        feed.resolved(at(second))
    run = pipeline(feed)
    run.drain()
    assert [row["a"] for row in run.rows()] == [1, 3]
    assert len(run.read) == 4


def test_one_window_over_many_resolved_positions_reads_a_file_once(feed: Feed) -> None:
    feed.data(at(1), [upsert([1], at(2), a=1, b="old"), upsert([1], at(35), a=1, b="new")])
    for second in (10, 20, 30, 40):
        feed.resolved(at(second))
    run = pipeline(feed)
    run.drain(one_window=True)
    assert run.rows() == [{"a": 1, "b": "new"}]
    assert len(run.read) == 1


def test_notes_of_an_inner_position_name_only_files_that_reach_beyond_it(feed: Feed) -> None:
    reaching = feed.data(at(1), [upsert([1], at(15), a=1)])
    feed.data(at(2), [upsert([2], at(3), a=2)])
    feed.resolved(at(10))
    feed.data(at(11), [upsert([3], at(12), a=3)])
    feed.resolved(at(20))
    run = pipeline(feed)
    run.drain(one_window=True)
    run.restart()
    run.source.initial({"t": None})
    run.source.partitions(Window(tuple(run.source.latest())), {"t": None}, {"t": 0})
    assert Notes.parse(run.source.resume_state("t", at(10), run.reports)).carried == (reaching,)
    assert Notes.parse(run.source.resume_state("t", at(20), run.reports)).carried == ()


def test_an_empty_window_moves_the_watermark_only(feed: Feed) -> None:
    feed.data(at(0), [upsert([1], at(0), a=1)])
    feed.resolved(at(0))
    feed.resolved(at(5))
    run = pipeline(feed)
    assert run.drain() == [at(0), at(5)]
    assert [row["a"] for row in run.rows()] == [1]


def test_duplicates_of_a_restarted_feed_change_nothing(feed: Feed) -> None:
    """H13."""
    feed.data(at(0), [upsert([1], at(1), a=1, b="1"), upsert([1], at(2), a=1, b="2")])
    feed.resolved(at(5))
    run = pipeline(feed)
    run.drain()
    feed.data(
        at(5, 1),
        [upsert([1], at(2), a=1, b="2"), upsert([1], at(1), a=1, b="1"), upsert([2], at(6), a=2, b="n")],
        session="b" * 16,
    )
    feed.resolved(at(10))
    run.drain()
    assert run.rows() == [{"a": 1, "b": "2"}, {"a": 2, "b": "n"}]
    assert sum(report.dropped for report in run.reports) == 2


def test_the_newer_version_wins_whatever_the_order_of_files(feed: Feed) -> None:
    """H34: after some restarts a later file holds the older version."""
    feed.data(at(100), [upsert([1], at(120), a=1, b="new")])
    feed.data(at(110), [upsert([1], at(105), a=1, b="old")])
    feed.resolved(at(130))
    run = pipeline(feed)
    run.drain()
    assert run.rows() == [{"a": 1, "b": "new"}]


def test_a_file_that_appears_behind_a_consumed_resolved_is_ignored(feed: Feed) -> None:
    feed.data(at(0), [upsert([1], at(1), a=1)])
    feed.resolved(at(5))
    run = pipeline(feed)
    run.drain()
    zombie = feed.data(at(3), [upsert([1], at(1), a=1)], session="c" * 16)
    feed.resolved(at(10))
    run.drain()
    assert zombie not in run.read
    assert [row["a"] for row in run.rows()] == [1]


def test_a_deleted_row_is_gone_and_an_unknown_one_is_no_error(feed: Feed) -> None:
    feed.data(at(0), [upsert([5], at(1), a=5)])
    feed.resolved(at(2))
    feed.data(at(3), [delete([5], at(4)), delete([77], at(4))])
    feed.resolved(at(5))
    run = pipeline(feed)
    run.drain()
    assert run.rows() == []


@pytest.mark.parametrize("order", [1, -1])
def test_a_changed_primary_key_is_one_row(feed: Feed, order: int) -> None:
    feed.data(at(0), [upsert([1], at(0), a=1, b="x")])
    feed.resolved(at(0))
    feed.data(at(1), [delete([1], at(2)), upsert([2], at(2), a=2, b="x")][::order])
    feed.resolved(at(3))
    run = pipeline(feed)
    run.drain()
    assert run.rows() == [{"a": 2, "b": "x"}]


@pytest.mark.parametrize("order", [1, -1])
def test_a_row_deleted_and_inserted_at_one_time_lives(feed: Feed, order: int) -> None:
    feed.data(at(1), [delete(["us", 1], at(2)), upsert(["eu", 1], at(2), a=1, b="x")][::order])
    feed.resolved(at(3))
    run = pipeline(feed)
    run.drain()
    assert run.rows() == [{"a": 1, "b": "x"}]


def test_the_logical_part_of_a_timestamp_decides(feed: Feed) -> None:
    feed.data(at(0), [upsert([1], at(1, 1), a=1), upsert([2], at(1, 2), a=2)])
    feed.resolved(at(1, 1))
    run = pipeline(feed)
    run.drain()
    assert [row["a"] for row in run.rows()] == [1]


@pytest.mark.parametrize("restarts", [True, False])
def test_a_row_beyond_r_by_the_logical_part_alone_is_carried(feed: Feed, restarts: bool) -> None:
    """Nanoseconds alone would not tell that the file holds more."""
    path = feed.data(at(0), [upsert([1], at(1, 1), a=1), upsert([2], at(1, 2), a=2)])
    feed.resolved(at(1, 1))
    run = pipeline(feed)
    run.drain()
    assert run.carried() == [path]
    if restarts:
        run.restart()
    feed.resolved(at(1, 9))
    run.drain()
    assert [row["a"] for row in run.rows()] == [1, 2]
    assert run.carried() == []


def test_a_schema_boundary_adds_a_column_and_no_rows(feed: Feed) -> None:
    """H14."""
    before = Hlc(at(10).wall - 1, 2147483647)
    feed.data(at(0), [upsert([1], at(0), a=1, b="x")])
    feed.resolved(before)
    feed.data(at(10), [upsert([1], at(10), a=1, b="x", c=7)], schema="7")
    feed.resolved(at(11))
    run = pipeline(feed, t=source_schema(a="INT8", b="STRING", c="INT8"))
    assert run.drain() == [before, at(11)]
    assert run.rows() == [{"a": 1, "b": "x", "c": 7}]


def test_a_renamed_column_leaves_the_old_one_null(feed: Feed) -> None:
    feed.data(at(0), [upsert([1], at(0), a=1, b="x")])
    feed.resolved(at(1))
    feed.data(at(2), [upsert([2], at(3), a=2, c="y")], schema="2")
    feed.resolved(at(4))
    run = pipeline(feed, t=source_schema(a="INT8", b="STRING", c="STRING"))
    run.drain()
    assert run.rows() == [{"a": 1, "b": "x", "c": None}, {"a": 2, "b": None, "c": "y"}]


def test_a_table_that_becomes_regional_keeps_its_rows(feed: Feed) -> None:
    feed.data(at(0), [upsert([0], at(0), a=0, b="x")])
    feed.resolved(at(1))
    feed.data(at(2), [upsert(["us-east-1", 0], at(3), a=0, b="x", crdb_region="us-east-1")], schema="2")
    feed.resolved(at(4))
    run = pipeline(feed, t=source_schema(a="INT8", b="STRING", crdb_region="ENUM"))
    run.drain()
    assert run.rows() == [{"a": 0, "b": "x", "crdb_region": "us-east-1"}]


def test_a_hash_sharded_key_is_its_visible_column(feed: Feed) -> None:
    feed.data(at(0), [upsert([2, 0], at(0), a=0, b="x"), upsert([2, 0], at(1), a=0, b="y"), delete([3, 9], at(1))])
    feed.resolved(at(1))
    run = pipeline(feed)
    run.drain()
    assert run.rows() == [{"a": 0, "b": "y"}]


def test_topics_may_hold_dashes_and_dots(feed: Feed) -> None:
    feed.data(at(0), [upsert([1], at(0), a=1)], topic="d.public.my-table")
    feed.data(at(0), [upsert([2], at(0), a=2)], topic="d.public.my-table-1")
    feed.resolved(at(1))
    run = Pipeline(feed, {"d.public.my-table": source_schema(), "d.public.my-table-1": source_schema()})
    run.drain()
    assert [row["a"] for row in run.rows("d.public.my-table")] == [1]
    assert [row["a"] for row in run.rows("d.public.my-table-1")] == [2]
    assert [table.name for table in run.source.tables()] == ["d.public.my-table", "d.public.my-table-1"]


def test_column_families_are_tables_of_their_own(feed: Feed) -> None:
    f1, f2 = source_schema(a="INT8", b="STRING"), source_schema(a="INT8", c="STRING")
    feed.data(at(0), [upsert([1], at(0), a=1, b="x"), upsert([2], at(0), a=2, b="y")], topic="t+f1")
    feed.data(at(0), [upsert([1], at(0), c="z"), upsert([2], at(0), c="w")], topic="t+f2")
    feed.resolved(at(1))
    feed.data(at(2), [delete([1], at(3))], topic="t+f1")
    feed.data(at(2), [delete([1], at(3))], topic="t+f2")
    feed.resolved(at(4))
    run = Pipeline(feed, {"t+f1": f1, "t+f2": f2})
    run.drain()
    assert run.rows("t+f1") == [{"a": 2, "b": "y"}]
    assert run.rows("t+f2") == [{"a": 2, "c": "w"}]


@pytest.mark.parametrize("extension", ["ndjson", "ndjson.gz", "ndjson.zst"])
def test_compressed_files_are_read(feed: Feed, extension: str) -> None:
    feed.data(at(0), [upsert([i], at(0), a=i) for i in range(5)], extension=extension)
    feed.resolved(at(1))
    run = pipeline(feed)
    run.drain()
    assert len(run.rows()) == 5


def test_nothing_of_a_torn_feed_is_published(feed: Feed) -> None:
    feed.data(at(0), [upsert([1], at(0), a=1)])
    run = pipeline(feed)
    assert run.drain() == []
    assert run.rows() == []


def test_a_deleted_carried_file_stops_the_pipeline(feed: Feed) -> None:
    path = feed.data(at(1), [upsert([1], at(9), a=1), upsert([3], at(15), a=3)])
    feed.resolved(at(10))
    run = pipeline(feed)
    run.drain()
    (feed.root / path).unlink()
    with pytest.raises(SourceLost, match="still holds rows beyond"):
        run.restart()


def test_a_deleted_resolved_file_of_the_frontier_stops_the_pipeline(feed: Feed) -> None:
    feed.data(at(1), [upsert([1], at(9), a=1)])
    path = feed.resolved(at(10))
    run = pipeline(feed)
    run.drain()
    (feed.root / path).unlink()
    with pytest.raises(SourceLost, match="overcompacted"):
        run.restart()


def test_a_table_that_joins_later_gets_its_scan(feed: Feed) -> None:
    """H54: its frontier is its own, whatever the others have reached."""
    feed.data(at(0), [upsert([1], at(0), a=1)])
    feed.data(at(0), [upsert([7], at(0), a=7)], topic="u")
    feed.resolved(at(1))
    run = pipeline(feed)
    run.drain()
    both = Pipeline(feed, {"t": source_schema(), "u": source_schema()}, frontiers=dict(run.frontiers))
    both.drain()
    assert [row["a"] for row in both.rows("u")] == [7]
    assert both.rows("t") == []


def test_a_complete_feed_without_commit_times_is_one_epoch(feed: Feed) -> None:
    feed.data(at(0), ['{"after": {"a": 1, "b": null}, "key": [1]}', '{"after": {"a": 2, "b": "x"}, "key": [2]}'])
    feed.data(at(3), ['{"after": {"a": 3, "b": "y"}, "key": [3]}'], number=1)
    run = Pipeline(feed, {"t": source_schema()}, complete=True)
    assert run.drain() == [at(3)]
    assert [row["a"] for row in run.rows()] == [1, 2, 3]
    assert run.drain() == []
    run.restart()
    assert run.drain() == []


def test_a_complete_feed_with_commit_times_keeps_the_newest_version(feed: Feed) -> None:
    feed.data(at(0), [upsert([1], at(9), a=1, b="new"), upsert([1], at(5), a=1, b="old")])
    run = Pipeline(feed, {"t": source_schema()}, complete=True)
    run.drain()
    assert run.rows() == [{"a": 1, "b": "new"}]
    assert [report.newest for report in run.reports] == [at(0)]  # nothing is left for a later epoch


def test_a_complete_feed_that_grows_is_noticed(feed: Feed) -> None:
    feed.data(at(0), ['{"after": {"a": 1}, "key": [1]}'])
    run = Pipeline(feed, {"t": source_schema()}, complete=True)
    run.drain()
    feed.data(at(0), ['{"after": {"a": 2}, "key": [2]}'], number=9)
    with pytest.raises(SourceLost, match="changed since"):
        run.restart()


def test_a_malformed_line_is_named_by_file_and_line(feed: Feed) -> None:
    path = feed.data(at(0), [upsert([1], at(0), a=1), "", upsert([2], at(0), a=2)[:-9], upsert([3], at(0), a=3)])
    feed.resolved(at(1))
    with pytest.raises(BadInput) as caught:
        pipeline(feed).drain()
    assert caught.value.facts["file"] == path
    assert caught.value.facts["line"] == 3
    assert f"{path}:3" in str(caught.value)


def test_a_null_key_is_an_error_that_names_its_place(feed: Feed) -> None:
    """H20."""
    path = feed.data(at(0), [upsert([None], at(0), a=None)])
    feed.resolved(at(1))
    with pytest.raises(BadInput, match="NULL") as caught:
        pipeline(feed).drain()
    assert (caught.value.facts["file"], caught.value.facts["line"]) == (path, 1)
    assert caught.value.facts["table"] == "t"


def test_rows_without_commit_time_ask_for_updated(feed: Feed) -> None:
    feed.data(at(0), ['{"after": {"a": 1}, "key": [1]}'])
    feed.resolved(at(1))
    with pytest.raises(BadInput) as caught:
        pipeline(feed).drain()
    assert "WITH updated" in caught.value.hint


def test_a_wrong_key_column_is_noticed(feed: Feed) -> None:
    feed.data(at(0), [upsert([1], at(0), a=1, b="x")])
    feed.resolved(at(1))
    with pytest.raises(BadInput):
        pipeline(feed, t=source_schema(key=["b"], a="INT8", b="STRING")).drain()


def test_a_number_key_in_the_wrong_column_is_noticed_when_decoded(feed: Feed) -> None:
    feed.data(at(0), [upsert([1], at(0), a=1, b=9)])
    feed.resolved(at(1))
    with pytest.raises(BadInput, match="the key of table t changed"):
        pipeline(feed, t=source_schema(key=["b"], a="INT8", b="INT8")).drain()
