"""A table needs its beginning, and one beginning only."""

from __future__ import annotations

from pathlib import Path

import pytest
from cockroach_feed import Feed, Pipeline, Register, at, delete, source_schema, upsert

from frazil.errors import SourceLost
from frazil.model.frontier import Frontier
from frazil.sources.cockroachdb.beginning import FeedMemory
from frazil.sources.cockroachdb.decode.envelope import EnvelopeOptions
from frazil.sources.cockroachdb.position import Hlc
from frazil.sources.cockroachdb.resume_state import Notes
from frazil.sources.cockroachdb.source import TableSettings

A, B, C = "a" * 16, "b" * 16, "c" * 16


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path)


def changes(feed: Feed, *seconds: int, topics: tuple[str, ...] = ("t",), session: str = A, number: int = 0) -> None:
    """One row and one resolved position for each second; nothing is scanned."""
    for second in seconds:
        for topic in topics:
            feed.data(
                at(second), [upsert([second], at(second + 1), a=second)], topic=topic, session=session, number=number
            )
            number += 1
        feed.resolved(at(second + 2))


def delete_files(feed: Feed, before: int, resolved: bool = False) -> None:
    for path in list(feed.files):
        stamp = Path(path).name[:33]
        if stamp < at(before).file_stamp and (resolved or not path.endswith(".RESOLVED")):
            (feed.root / path).unlink()
            feed.files.remove(path)


def read(feed: Feed, *tables: str, **given: object) -> Pipeline:
    run = Pipeline(feed, {table: source_schema() for table in tables or ("t",)}, **given)  # type: ignore[arg-type]
    run.drain()
    return run


def keys(run: Pipeline, table: str = "t") -> list[int]:
    return sorted(row["a"] for row in run.rows(table))


# what was deleted


@pytest.mark.parametrize("resolved", [True, False])
def test_a_table_that_is_dropped_when_its_old_files_are_gone_is_not_made_of_what_is_left(
    feed: Feed, resolved: bool
) -> None:
    """A sink counts its files from 0."""
    changes(feed, *range(0, 100, 10))
    assert len(keys(read(feed))) == 10
    delete_files(feed, before=80, resolved=resolved)
    with pytest.raises(SourceLost, match="a sink's number 8") as caught:
        read(feed)
    assert caught.value.facts["table"] == "t"
    assert "history: partial" in caught.value.hint


def test_a_table_that_is_added_when_old_files_are_gone_is_not_made_of_what_is_left(feed: Feed) -> None:
    """Nothing in the names tells, for the feed was restarted in between; but another table's ledger does."""
    changes(feed, *range(0, 80, 10), topics=("t", "u"))
    changes(feed, 80, 90, topics=("t", "u"), session=B)
    run = read(feed)
    delete_files(feed, before=80)
    with pytest.raises(SourceLost, match=r"u: .* began with files of .* once") as caught:
        read(feed, "t", "u", frontiers=dict(run.frontiers))
    assert caught.value.facts["table"] == "u"


def restarted(feed: Feed, register: Register) -> FeedMemory:
    """A pipeline has read ten seconds of t and u; then the files of the feed's first run are deleted, all of them."""
    memory = FeedMemory(register, "here")
    changes(feed, *range(0, 80, 10), topics=("t", "u"))
    changes(feed, 80, 90, topics=("t", "u"), session=B)
    assert len(keys(read(feed, "t", "u", memory=memory))) == 10
    delete_files(feed, before=80)
    return memory


def test_the_register_remembers_the_feed_when_all_targets_are_dropped(feed: Feed) -> None:
    """Nothing in the names tells, for the feed was restarted in between, and no ledger is left."""
    register = Register()
    memory = restarted(feed, register)
    assert len(register.kept) == 1, "once, not for each table"
    with pytest.raises(SourceLost, match=r"t: .* began with files of .* once"):
        read(feed, "t", "u", memory=memory)
    partial = read(feed, memory=memory, settings={"t": TableSettings(takes_part=True)})
    assert keys(partial) == [80, 90]
    with pytest.raises(SourceLost, match=r"u: .* began with files of .* once"):
        read(feed, "u", memory=memory)


@pytest.mark.parametrize("text", ["", "torn{", "[]", '{"feed": "there", "since": "2"}', '{"feed": "here"}'])
def test_what_the_register_holds_of_another_feed_says_nothing(feed: Feed, text: str) -> None:
    restarted(feed, Register())
    assert keys(read(feed, memory=FeedMemory(Register(text), "here"))) == [80, 90]


def test_a_feed_that_begins_with_a_scan_in_the_place_of_another_is_whole(feed: Feed) -> None:
    """Also for a table that had no rows at the scan."""
    register = Register()
    memory = restarted(feed, register)
    delete_files(feed, before=1000, resolved=True)
    feed.data(at(200), [upsert([n], at(200), a=n) for n in (1, 2)], session=C)
    feed.resolved(at(201))
    changes(feed, 210, topics=("u",), session=C, number=1)
    run = read(feed, "t", "u", memory=memory)
    assert (keys(run), keys(run, "u")) == ([1, 2], [210])
    delete_files(feed, before=205)
    changes(feed, 220, topics=("u",), session=B)
    with pytest.raises(SourceLost, match=r"u: the feed no longer"):
        read(feed, "u", memory=memory)


def test_what_is_remembered_of_a_feed_is_passed_on_from_entry_to_entry(feed: Feed) -> None:
    changes(feed, 0, 10)
    run = read(feed)
    for second in (20, 30):
        changes(feed, second, number=second // 10)
        run.restart()
        run.drain()
    delete_files(feed, before=30)
    run.restart()
    changes(feed, 40, topics=("t", "u"), number=4)
    run.drain()
    assert Notes.parse(run.frontiers["t"].notes).since == at(0).file_stamp  # type: ignore[union-attr]
    with pytest.raises(SourceLost, match="u: "):
        read(feed, "t", "u", frontiers=dict(run.frontiers))


def test_a_scan_after_that_does_not_make_the_feed_whole(feed: Feed) -> None:
    """What is remembered outlives a table that begins later, with a scan of its own."""
    changes(feed, 0, 10)
    run = read(feed)
    delete_files(feed, before=10)
    feed.data(at(20), [upsert([7], at(20), a=7)], topic="u", session=B)
    feed.resolved(at(25))
    run = read(feed, "t", "u", frontiers=dict(run.frontiers))
    assert keys(run, "u") == [7]
    assert {Notes.parse(one.notes).since for one in run.frontiers.values() if one} == {at(0).file_stamp}


def test_a_table_that_has_a_frontier_goes_on_when_its_old_files_are_gone(feed: Feed) -> None:
    changes(feed, *range(0, 100, 10))
    run = read(feed)
    delete_files(feed, before=80)
    changes(feed, 100, number=10)
    run.restart()
    run.drain()
    assert len(keys(run)) == 11


def test_what_is_left_can_be_asked_for(feed: Feed) -> None:
    changes(feed, *range(0, 100, 10))
    delete_files(feed, before=80)
    assert keys(read(feed, settings={"t": TableSettings(takes_part=True)})) == [80, 90]


# what is a beginning


def test_a_scan_is_a_beginning_whatever_was_deleted(feed: Feed) -> None:
    changes(feed, *range(0, 100, 10))
    delete_files(feed, before=80)
    feed.data(at(92), [upsert([7], at(92), a=7), upsert([8], at(92), a=8)], topic="u", session=B)
    feed.resolved(at(95))
    run = read(feed, "u")
    assert keys(run, "u") == [7, 8]


def test_half_a_scan_is_none(feed: Feed) -> None:
    for number in range(4):
        feed.data(at(0), [upsert([number], at(0), a=number)], number=number)
    feed.resolved(at(0))
    for path in feed.files[:2]:
        (feed.root / path).unlink()
    with pytest.raises(SourceLost, match="a sink's number 2"):
        read(feed)


def test_a_table_that_was_empty_begins_with_its_first_change(feed: Feed) -> None:
    """A scan of an empty table writes no file."""
    feed.data(at(0), [upsert([1], at(0), a=1)])
    feed.resolved(at(0))
    changes(feed, 10, topics=("u",), number=1)
    assert keys(read(feed, "t", "u"), "u") == [10]


def test_a_feed_that_begins_with_a_resolved_position_is_whole(feed: Feed) -> None:
    """All its tables were empty, or it has a cursor."""
    feed.resolved(at(0))
    changes(feed, 10)
    assert keys(read(feed)) == [10]


def test_every_node_counts_its_own_files(feed: Feed) -> None:
    feed.data(at(0), [upsert([1], at(0), a=1)], session=A)
    feed.data(at(0), [upsert([2], at(0), a=2)], session=B)
    feed.data(at(0), [upsert([3], at(0), a=3)], session=B, number=1)
    feed.resolved(at(5))
    changes(feed, 10, topics=("u",), session=A, number=1)
    run = read(feed, "t", "u")
    assert (keys(run), keys(run, "u")) == ([1, 2, 3], [10])


# a second beginning


def scanned(feed: Feed) -> Pipeline:
    feed.data(at(0), [upsert([n], at(0), a=n) for n in (1, 2, 3)])
    feed.resolved(at(0))
    changes(feed, 10, number=1)
    return read(feed)


@pytest.mark.parametrize("restarts", [True, False])
def test_a_changefeed_that_is_created_again_stops_the_tables_it_scans(feed: Feed, restarts: bool) -> None:
    """What was deleted at the source in between is in no file."""
    run = scanned(feed)
    feed.data(at(20), [upsert([2], at(20), a=2)], session=B)
    feed.resolved(at(20))
    if restarts:
        run.restart()
    with pytest.raises(SourceLost, match="another changefeed") as caught:
        run.drain()
    assert caught.value.facts["table"] == "t"
    assert "rescan: merge" in caught.value.hint
    with pytest.raises(SourceLost, match="another changefeed"):
        read(feed)


def test_what_the_hint_says_of_a_second_scan_leads_on(feed: Feed) -> None:
    scanned(feed)
    feed.data(at(20), [upsert([2], at(20), a=2)], session=B)
    feed.resolved(at(20))
    delete_files(feed, before=20)
    assert keys(read(feed)) == [2]


def test_a_second_scan_can_be_taken_for_changes(feed: Feed) -> None:
    run = scanned(feed)
    feed.data(at(20), [upsert([2], at(20), a=2), upsert([9], at(20), a=9)], session=B)
    feed.resolved(at(20))
    run.settings = {"t": TableSettings(merges_scans=True)}
    run.restart()
    run.drain()
    assert keys(run) == [1, 2, 3, 9, 10]


def test_a_scan_of_one_table_stops_no_other(feed: Feed) -> None:
    """ALTER CHANGEFEED ... ADD u WITH initial_scan."""
    run = scanned(feed)
    feed.data(at(20), [upsert([7], at(20), a=7)], topic="u", session=B)
    feed.data(at(20), [upsert([3], at(21), a=3, b="new")], session=B, number=1)
    feed.resolved(at(25))
    run.drain()
    assert {"a": 3, "b": "new"} in run.rows()
    assert keys(read(feed, "t", "u"), "u") == [7]


@pytest.mark.parametrize("merges", [True, False])
@pytest.mark.parametrize("restarts", [True, False])
def test_a_table_that_is_taken_out_of_a_feed_and_added_again_stops(feed: Feed, restarts: bool, merges: bool) -> None:
    """The scan is named after the frontier, its rows lie at it and would be dropped: what changed meanwhile is lost."""
    run = scanned(feed)
    feed.data(at(12), [upsert([2], at(12), a=2, b="new")], session=B)
    feed.resolved(at(20))
    run.settings = {"t": TableSettings(merges_scans=merges)}
    if restarts or merges:
        run.restart()
    with pytest.raises(SourceLost, match="added again") as caught:
        run.drain()
    assert "rescan: merge" not in caught.value.hint
    delete_files(feed, before=12)
    assert keys(read(feed)) == [2]


def test_a_scan_is_no_second_one_if_a_session_of_its_own_run_comes_late(feed: Feed) -> None:
    feed.data(at(0), [upsert([1], at(0), a=1)])
    feed.resolved(at(0))
    run = read(feed)
    feed.data(at(0), [upsert([1], at(0), a=1)], session=B)
    feed.resolved(at(10))
    run.drain()
    assert keys(run) == [1]


@pytest.mark.parametrize("session", [A, B])
@pytest.mark.parametrize("restarts", [True, False])
def test_a_backfill_is_no_second_scan(feed: Feed, session: str, restarts: bool) -> None:
    """H14: it begins right behind a resolved position."""
    run = scanned(feed)
    feed.resolved(Hlc(at(20).wall - 1, 2147483647))
    feed.data(at(20), [upsert([n], at(20), a=n) for n in (1, 2, 3)], session=session, schema="7", number=2)
    feed.resolved(at(25))
    if restarts:
        run.restart()
    run.drain()
    assert keys(run) == [1, 2, 3, 10]
    assert keys(read(feed)) == [1, 2, 3, 10]


def test_a_scan_that_was_interrupted_goes_on_in_another_session(feed: Feed) -> None:
    feed.data(at(0), [upsert([1], at(0), a=1), upsert([2], at(0), a=2)], session=A)
    feed.data(at(0), [upsert([2], at(0), a=2), upsert([3], at(0), a=3)], session=B)
    feed.resolved(at(0))
    run = read(feed)
    feed.data(at(0).next(), [upsert([4], at(9), a=4)], session=C)
    feed.resolved(at(10))
    run.drain()
    assert keys(run) == [1, 2, 3, 4]


def test_a_change_at_the_very_stamp_of_a_file_is_no_scan_by_a_session_that_is_known(feed: Feed) -> None:
    run = scanned(feed)
    feed.data(at(20), [upsert([4], at(20), a=4)], number=2)
    feed.resolved(at(25))
    run.restart()
    run.drain()
    assert 4 in keys(run)


def test_a_change_at_another_logical_part_of_the_stamp_is_no_scan(feed: Feed) -> None:
    run = scanned(feed)
    feed.data(at(20), [upsert([4], at(20, 5), a=4)], session=B)
    feed.resolved(at(25))
    run.drain()
    assert 4 in keys(run)


def test_a_session_is_known_by_the_ledger_when_its_older_files_are_gone(feed: Feed) -> None:
    run = scanned(feed)
    for path in feed.files[:-1]:
        (feed.root / path).unlink()
    for second in (20, 30):  # the first of them without a change of t
        topic = "u" if second == 20 else "t"
        for path in (path for path in feed.files if not path.endswith(".RESOLVED")):
            (feed.root / path).unlink(missing_ok=True)
        feed.data(at(second), [upsert([second], at(second), a=second)], topic=topic, number=second)
        feed.resolved(at(second + 5))
        run.restart()
        run.drain()
    assert keys(run) == [1, 2, 3, 10, 30]


def test_a_bad_line_is_no_scan(feed: Feed) -> None:
    """One that tells no commit time is given that of its file."""
    quarantine = TableSettings(options=EnvelopeOptions(quarantine=True))
    run = scanned(feed)
    run.settings = {"t": quarantine, "u": quarantine}
    run.restart()
    feed.data(at(20), ["torn", delete([1], at(20)), upsert([4], at(21), a=4)], session=B)
    feed.resolved(at(25))
    run.drain()
    assert run.reports[-1].scanned == 0
    delete_files(feed, before=10)
    feed.data(at(30), ["torn", upsert([4], at(31), a=4)], topic="u", session=B, number=1)
    feed.resolved(at(35))
    with pytest.raises(SourceLost, match=r"u: .* began with files"):
        read(feed, "t", "u", frontiers=dict(run.frontiers), settings=run.settings)


def test_a_frontier_without_notes_is_understood(feed: Feed) -> None:
    changes(feed, 0, 10)
    run = read(feed, frontiers={"t": Frontier(at(2))})
    assert keys(run) == [10]
