"""Files that appear under the stem of a resolved position after it was consumed.

`ALTER CHANGEFEED j ADD u WITH initial_scan` resumes at the high-water H, and until its first flush names files `H-...`,
which sort before `H.RESOLVED` (cockroach#84102).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cockroach_feed import Feed, Pipeline, at, delete, source_schema, upsert

from frazil.errors import SourceLost
from frazil.model.frontier import Frontier, Window
from frazil.sources.cockroachdb.decode.envelope import EnvelopeOptions
from frazil.sources.cockroachdb.feed.location import FeedLocation
from frazil.sources.cockroachdb.position import Hlc
from frazil.sources.cockroachdb.resume_state import Notes
from frazil.sources.cockroachdb.source import CloudFeed, TableSettings

H = at(10)
NEW_SESSION = "b" * 16


@pytest.fixture(params=["flat", "daily", "hourly"])
def feed(request: pytest.FixtureRequest, tmp_path: Path) -> Feed:
    return Feed(tmp_path, request.param)


@pytest.fixture(params=["running", "restarted", "restarted twice"])
def ways(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def consumed(feed: Feed, **tables: object) -> Pipeline:
    """A table t with one row, published up to H, by a file that is named H as well."""
    feed.data(at(0), [upsert([1], at(0), a=1, b="old"), upsert([2], at(0), a=2)])
    feed.data(H, [upsert([3], H, a=3)])
    feed.resolved(H)
    run = Pipeline(feed, tables or {"t": source_schema()})  # type: ignore[arg-type]
    assert run.drain() == [H]
    return run


def altered(feed: Feed) -> None:
    """The feed goes on with a scan of u, and with changes of t beyond H in a file that is named H."""
    feed.data(H, [upsert([7], H, a=7), upsert([8], H, a=8)], topic="u", session=NEW_SESSION)
    feed.data(H, [upsert([1], at(12), a=1, b="new"), delete([2], at(13))], session=NEW_SESSION, number=1)


def go_on(run: Pipeline, ways: str) -> Pipeline:
    if ways == "running":
        return run
    run.restart()
    if ways == "restarted twice":
        run.drain()
        run.restart()
    return run


def test_what_an_altered_feed_names_after_its_high_water_is_read(feed: Feed, ways: str) -> None:
    run = consumed(feed)
    altered(feed)
    run = go_on(run, ways)
    feed.data(at(14), [upsert([9], at(15), a=9)], topic="u", session=NEW_SESSION, number=2)
    feed.resolved(at(20))
    run.drain()
    assert run.rows() == [{"a": 1, "b": "new"}, {"a": 3, "b": None}]
    added = Pipeline(feed, {"t": source_schema(), "u": source_schema()}, frontiers={"t": run.frontiers["t"]})
    added.drain()
    assert [row["a"] for row in added.rows("u")] == [7, 8, 9]


def test_a_running_feed_meets_the_table_that_was_added(feed: Feed) -> None:
    run = consumed(feed)
    altered(feed)
    feed.resolved(at(20))
    run.source.latest()
    assert [table.name for table in run.source.tables()] == ["t", "u"]
    partitions = run.source.partitions(Window((at(20),)), {"t": run.frontiers["t"], "u": None}, {"t": 0, "u": 1})
    assert feed.files[3] in [partition.name for partition in partitions if partition.table == 1]


@pytest.mark.parametrize("resolved_before", [True, False])
@pytest.mark.parametrize("rows_before", [True, False])
def test_a_scan_that_is_under_way_when_its_stem_is_settled_is_read_whole(
    feed: Feed, ways: str, rows_before: bool, resolved_before: bool
) -> None:
    """Whoever reads after the feed was altered meets H.RESOLVED and the first files of the scan together."""
    run = Pipeline(feed, {"t": source_schema(), "u": source_schema()})
    if rows_before:
        written_at(feed, feed.data(H if not resolved_before else at(0), [upsert([1], at(0), a=1)]), 90)
    if resolved_before:
        feed.resolved(at(0))
        run.drain()
    written_at(feed, feed.resolved(H), 100)
    written_at(feed, feed.data(H, [upsert([7], H, a=7)], topic="u", session=NEW_SESSION), 160)
    run.drain()
    run = go_on(run, ways)
    written_at(feed, feed.data(H, [upsert([8], H, a=8)], topic="u", session=NEW_SESSION, number=1), 170)
    feed.resolved(at(20))
    run.drain()
    assert [row["a"] for row in run.rows("u")] == [7, 8]


def test_a_scan_that_its_own_resolved_file_covers_waits_for_no_other(feed: Feed) -> None:
    run = consumed(feed, t=source_schema(), u=source_schema())
    written_at(feed, feed.data(at(20), [upsert([7], at(20), a=7)], topic="u", session=NEW_SESSION), 99)
    written_at(feed, feed.resolved(at(20)), 100)
    run.drain()
    assert [row["a"] for row in run.rows("u")] == [7]


@pytest.mark.parametrize("session", ["a" * 16, NEW_SESSION])
def test_a_table_that_began_before_its_stem_is_not_held_back_by_the_times_of_copies(
    feed: Feed, ways: str, session: str
) -> None:
    """H14: a backfill lies at the very position that is resolved next. A copy may write its files in any order."""
    feed.data(at(0), [upsert([n], at(0), a=n) for n in (1, 2)])
    feed.resolved(at(0))
    feed.resolved(H.previous())
    run = Pipeline(feed, {"t": source_schema()})
    written_at(feed, feed.resolved(H), 100)
    backfill = [upsert([n], H, a=n, b="filled") for n in (1, 2)]
    written_at(feed, feed.data(H, backfill, session=session, schema="7", number=1), 160)
    run.drain(one_window=ways == "running")
    run = go_on(run, ways)
    feed.resolved(at(20))
    run.drain()
    assert [row["b"] for row in run.rows()] == ["filled", "filled"]


@pytest.mark.parametrize("second", [99, 100, 101])
def test_a_scan_that_goes_on_under_an_older_stem_is_read_whole_or_stops(feed: Feed, second: int, ways: str) -> None:
    """Object stores tell seconds, and of copies times may say anything."""
    run = consumed(feed, t=source_schema(), u=source_schema())
    for path in feed.files:
        written_at(feed, path, 100)
    written_at(feed, feed.data(H, [upsert([7], H, a=7)], topic="u", session=NEW_SESSION), second)
    run.restart()
    run.drain()
    run = go_on(run, ways)
    feed.data(H, [upsert([8], H, a=8)], topic="u", session=NEW_SESSION, number=1)
    feed.resolved(at(20))
    if second < 100:
        with pytest.raises(SourceLost, match="u: its scan went on"):
            run.drain()
        return
    run.drain()
    assert [row["a"] for row in run.rows("u")] == [7, 8]


def written_at(feed: Feed, path: str, second: int) -> None:
    os.utime(feed.root / path, (second, second))


def test_a_late_file_is_carried_over_further_positions(feed: Feed, ways: str) -> None:
    run = consumed(feed)
    feed.data(H, [upsert([4], at(11), a=4), upsert([5], at(35), a=5)], session=NEW_SESSION)
    for second in (20, 30, 40):
        run = go_on(run, ways)
        feed.resolved(at(second))
        run.drain()
    assert [row["a"] for row in run.rows()] == [1, 2, 3, 4, 5]
    assert run.carried() == []


@pytest.mark.parametrize("beyond", [at(35), at(20, 5)])
@pytest.mark.parametrize("is_regular", [True, False])
def test_the_newest_row_of_a_file_counts_wherever_it_stands(feed: Feed, beyond: Hlc, is_regular: bool) -> None:
    """Lines that look different from the first come in a batch of their own, behind the others."""
    run = consumed(feed)
    last = upsert([5], at(20, 1), a=5)
    feed.data(at(11), [upsert([4], beyond, a=4), last if is_regular else last.replace('": ', '":')])
    for resolved in (at(20, 3), at(40)):
        feed.resolved(resolved)
        run.drain()
    assert [row["a"] for row in run.rows()] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("one_window", [True, False])
def test_a_late_file_is_cut_into_the_epochs_of_its_window(feed: Feed, one_window: bool) -> None:
    run = consumed(feed)
    feed.data(H, [upsert([4], at(11), a=4), upsert([4], at(25), a=4, b="later")], session=NEW_SESSION)
    feed.resolved(at(20))
    feed.resolved(at(30))
    run.drain(one_window)
    assert run.rows()[-1] == {"a": 4, "b": "later"}


def test_a_late_file_is_read_once(feed: Feed, ways: str) -> None:
    """Its first window makes a frontier beyond it; files that were seen under the stem are not read with it again."""
    run = consumed(feed)
    late = feed.data(H, [upsert([4], at(11), a=4)], session=NEW_SESSION)
    feed.resolved(at(20))
    run = go_on(run, ways)
    run.drain()
    run = go_on(run, ways)
    feed.resolved(at(30))
    run.drain()
    assert run.read.count(late) == 1


def test_a_scan_is_not_read_again_for_a_table_that_rests(feed: Feed, ways: str) -> None:
    """All its files lie under the stem of its frontier, and there may be many."""
    feed.data(H, [upsert([1], H, a=1)])
    feed.resolved(H)
    run = Pipeline(feed, {"t": source_schema()})
    run.drain()
    resting = dict(run.frontiers)
    for second in (20, 30):
        feed.data(at(second - 5), [upsert([9], at(second - 5), a=9)], topic="other")
        feed.resolved(at(second))
        run.frontiers = dict(resting)
        run = go_on(run, ways)
        run.drain()
    assert len(run.read) == 1


def test_a_zombies_file_under_the_stem_changes_nothing(feed: Feed, ways: str) -> None:
    """H13."""
    run = consumed(feed)
    feed.data(H, [upsert([1], at(0), a=1, b="stale"), upsert([3], H, a=3)], session="c" * 16)
    run = go_on(run, ways)
    feed.resolved(at(20))
    run.drain()
    assert run.rows() == [{"a": 1, "b": "old"}, {"a": 2, "b": None}, {"a": 3, "b": None}]


def test_tables_at_different_frontiers_each_get_their_late_files(feed: Feed) -> None:
    feed.data(at(0), [upsert([1], at(0), a=1)])
    feed.data(at(0), [upsert([1], at(0), a=1)], topic="u")
    feed.resolved(at(5))
    seen = feed.data(H, [upsert([2], H, a=2)])
    feed.resolved(H)
    source = CloudFeed(FeedLocation(str(feed.root)))
    known = Pipeline(feed, {"t": source_schema()})
    known.drain()
    frontiers = {"t": known.frontiers["t"], "u": Frontier(at(5))}
    source.initial(frontiers)
    assert source.latest() == (H,)
    assert source.partitions(Window((H,)), frontiers, {"t": 0, "u": 1}) == []
    late = [feed.data(H, [upsert([n], at(11), a=n)], topic=t, session=NEW_SESSION) for n, t in ((3, "t"), (4, "u"))]
    feed.resolved(at(20))
    assert source.latest() == (at(20),)
    partitions = source.partitions(Window((at(20),)), frontiers, {"t": 0, "u": 1})
    # Which of t's names is new cannot be told: what was seen is read again and dropped.
    assert {(partition.table, partition.name) for partition in partitions} == {(0, seen), (0, late[0]), (1, late[1])}


def test_a_cursor_of_a_tables_own_reads_late_files_too(feed: Feed) -> None:
    run = consumed(feed)
    altered(feed)
    feed.resolved(at(20))
    run.source = run.source.for_tables(["t"])
    run.source.initial(run.frontiers)
    run.drain()
    assert run.rows() == [{"a": 1, "b": "new"}, {"a": 3, "b": None}]


def test_what_was_deleted_behind_the_frontier_is_not_asked_for(feed: Feed, ways: str) -> None:
    """Files that were seen under the stem may go like all others behind the frontier, late ones may come then."""
    run = consumed(feed)
    (feed.root / feed.files[1]).unlink()
    feed.data(H, [upsert([4], at(11), a=4)], session=NEW_SESSION)
    run = go_on(run, ways)
    feed.resolved(at(20))
    run.drain()
    assert [row["a"] for row in run.rows()] == [1, 2, 3, 4]


def test_entries_of_earlier_versions_are_understood(feed: Feed) -> None:
    assert Notes.parse("") == Notes()
    assert Notes.parse('["a", "b"]') == Notes(("a", "b"))
    for notes in (Notes(), Notes(("a",)), Notes(("a",), "digest"), Notes((), "digest", "2023")):
        assert Notes.parse(notes.text) == notes
    run = consumed(feed)
    feed.data(H, [upsert([4], at(11), a=4)], session=NEW_SESSION)
    run.frontiers = {"t": Frontier(H)}
    run.restart()
    feed.resolved(at(20))
    run.drain()
    assert [row["a"] for row in run.rows()] == [1, 2, 3, 4]


@pytest.mark.parametrize("times", [1, 2])
def test_a_line_that_is_no_change_is_put_away_from_a_late_file_too(feed: Feed, ways: str, times: int) -> None:
    """It has no commit time but that of its file, which is the frontier's own. It is put away once."""
    run = consumed(feed)
    run.settings = {"t": TableSettings(options=EnvelopeOptions(quarantine=True))}
    run.restart()
    feed.data(H, ["torn", *(upsert([n], at(10 * n + 1), a=n) for n in range(1, 4))], session=NEW_SESSION)
    before = len(run.reports)
    for second in (20, 30, 40)[: 3 if times == 2 else 1]:
        run = go_on(run, ways)
        feed.resolved(at(second))
        run.drain()
    assert sum(report.rows for report in run.reports[before:]) == (2 if times == 1 else 4)
