"""Two changefeeds in one prefix are noticed by files that keep coming behind what is resolved; one alone never is."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cockroach_feed import Feed, Pipeline, at, source_schema, upsert

from frazil.clock import SystemClock
from frazil.errors import SourceLost
from frazil.sources.cockroachdb.feed.file_names import resolved_paths
from frazil.sources.cockroachdb.feed.listing import DirectoryLister, FeedListing
from frazil.sources.cockroachdb.latecomers import Latecomers
from frazil.sources.cockroachdb.position import Hlc

MINUTE = 60
HOURS = range(0, 2 * 3600, MINUTE)
A, B, C, D = (letter * 16 for letter in "abcd")


class HandClock(SystemClock):
    seconds = 0.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)


@dataclass
class Run:
    """One run of a changefeed: a session for each node. `lag` is how far behind the clock it resolves."""

    feed: Feed
    sessions: tuple[str, ...]
    begins: int = 0
    lag: int = 3
    writer: str = "{node}-1"
    numbers: dict[str, int] = field(default_factory=dict)
    frontier: Hlc | None = None

    def flush(self, now: int, resolves: bool = True, topic: str = "t") -> None:
        """Each node writes what has changed since, in a file that is named after its last flush."""
        stamp = at(self.begins) if self.frontier is None else self.frontier.next()
        for node, session in enumerate(self.sessions, 1):
            number = self.numbers.get(session, 0)
            row = upsert([now * 10 + node], at(now - self.lag), a=now * 10 + node)
            writer = self.writer.format(node=node)
            self.feed.data(stamp, [row], session=session, number=number, writer=writer, topic=topic)
            self.numbers[session] = number + 1
        self.frontier = at(now - self.lag)
        if resolves:
            self.feed.resolved(self.frontier)


class Watched:
    """A listing that follows a feed, and the time it does so at."""

    def __init__(self, feed: Feed) -> None:
        self.clock = HandClock()
        self.listing = FeedListing(DirectoryLister(feed.root), Latecomers(self.clock))

    def at(self, now: float) -> None:
        self.clock.seconds = now
        self.listing.advance()


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path, "hourly")


@pytest.fixture
def watched(feed: Feed) -> Watched:
    return Watched(feed)


# two feeds


def told(watched: Watched, runs: Sequence[Run], every: Callable[[int], None] = lambda _: None) -> SourceLost:
    """What is said of feeds that flush in turn. It is looked each time."""
    for minute in HOURS:
        every(minute)
        for number, run in enumerate(runs):
            now = 10 + minute + number * MINUTE // len(runs)
            run.flush(now)
            try:
                watched.at(now)
            except SourceLost as error:
                return error
    pytest.fail("nothing was said")


@pytest.mark.parametrize("sinks", [("1-1", "1-2"), ("1-1", "2-1")])
def test_two_feeds_in_one_prefix_stop(feed: Feed, watched: Watched, sinks: tuple[str, str]) -> None:
    """On one node, or on two."""
    error = told(watched, [Run(feed, (A,), writer=sinks[0]), Run(feed, (B,), writer=sinks[1])])
    assert watched.clock.seconds < 40 * MINUTE
    error = pickle.loads(pickle.dumps(error))
    assert set(error.facts["sessions"]) == {A, B}
    assert all(word in str(error) for word in ("two changefeeds", A, B, error.facts["file"]))
    assert "prefix of its own" in error.hint
    assert "late_files: ignore" in error.hint


def test_two_feeds_of_many_nodes_stop(feed: Feed, watched: Watched) -> None:
    told(watched, [Run(feed, (A, B)), Run(feed, (C, D))])
    assert watched.clock.seconds < 40 * MINUTE


def test_a_feed_that_lags_behind_the_other_stops(feed: Feed, watched: Watched) -> None:
    error = told(watched, [Run(feed, (A,)), Run(feed, (B,), lag=200, frontier=at(-250))])
    assert error.facts["sessions"] == [B, A]


def test_rows_of_two_feeds_are_lost_if_nobody_looks(feed: Feed, watched: Watched) -> None:
    blind = Pipeline(feed, {"t": source_schema()})
    told(watched, [Run(feed, (A,)), Run(feed, (B,))], lambda _: blind.drain() and None)
    written = sum(not path.endswith(".RESOLVED") for path in feed.files)
    assert len(blind.rows()) < written - 10


def test_the_source_looks(feed: Feed, watched: Watched) -> None:
    seeing = Pipeline(feed, {"t": source_schema()}, latecomers=Latecomers(watched.clock))
    watched.listing = seeing.source.listing
    assert told(watched, [Run(feed, (A,)), Run(feed, (B,))])


def test_one_that_seldom_writes_is_told_in_the_end(feed: Feed, watched: Watched) -> None:
    seldom = Run(feed, (B,))

    def write(minute: int) -> None:
        seldom.frontier = at(minute - 2 * MINUTE)
        if minute % (25 * MINUTE) == 0:
            seldom.flush(minute, resolves=False)

    error = told(watched, [Run(feed, (A,))], write)
    assert error.facts["sessions"] == [B, A]
    assert watched.clock.seconds > 75 * MINUTE


def test_who_came_late_is_remembered_when_the_feed_is_opened_again(feed: Feed, watched: Watched) -> None:
    def reopen(minute: int) -> None:
        if minute % (25 * MINUTE) == 0:
            watched.listing.begin(max((path for path in feed.files if path.endswith(".RESOLVED")), default=""))

    told(watched, [Run(feed, (A,)), Run(feed, (B,))], reopen)


@pytest.mark.parametrize("minutes", [1, 5, 15])
def test_runs_that_only_drain_notice_it_together(feed: Feed, watched: Watched, tmp_path: Path, minutes: int) -> None:
    """`run --once` now and then: each run ends long before its second look."""
    memory = tmp_path / "home" / "feed.json"

    def next_run(minute: int) -> None:
        if minute % (minutes * MINUTE) == 0:
            newest = max((path for path in feed.files if path.endswith(".RESOLVED")), default="")
            watched.listing = FeedListing(DirectoryLister(feed.root), Latecomers(watched.clock, memory))
            watched.listing.begin(newest)

    error = told(watched, [Run(feed, (A,)), Run(feed, (B,))], next_run)
    assert set(error.facts["sessions"]) == {A, B}
    assert watched.clock.seconds < 90 * MINUTE


def test_a_feed_that_is_opened_again_and_again_notices_it(feed: Feed, watched: Watched) -> None:
    """As a table comes and goes."""

    def reopen(minute: int) -> None:
        watched.listing.begin(max((path for path in feed.files if path.endswith(".RESOLVED")), default=""))

    told(watched, [Run(feed, (A,)), Run(feed, (B,))], reopen)
    assert watched.clock.seconds < 40 * MINUTE


@pytest.mark.parametrize("kept", ["", "[]", '{"settled": 1', '{"unknown": 1}'])
def test_a_memory_that_cannot_be_read_is_none(feed: Feed, watched: Watched, tmp_path: Path, kept: str) -> None:
    memory = tmp_path / "feed.json"
    memory.write_text(kept, encoding="utf-8")
    watched.listing = FeedListing(DirectoryLister(feed.root), Latecomers(watched.clock, memory))
    told(watched, [Run(feed, (A,)), Run(feed, (B,))])


# one feed


@pytest.mark.parametrize("elsewhere", [True, False])
@pytest.mark.parametrize("minutes", [1, 5, 15, 25])
def test_runs_that_only_drain_go_on_with_one_feed(
    feed: Feed, watched: Watched, tmp_path: Path, minutes: int, elsewhere: bool
) -> None:
    """Also where they take turns on two machines, each of which knows what it has settled itself."""
    run, runs = Run(feed, ("0" * 16, "1" * 16)), 0
    for minute in HOURS:
        if minute and minute % (45 * MINUTE) == 0:
            run = Run(feed, (f"{minute:016x}", f"{minute + 1:016x}"), frontier=run.frontier)
        run.flush(10 + minute)
        if minute % (minutes * MINUTE) == 0:
            runs += 1
            memory = tmp_path / f"{runs % 2 if elsewhere else 0}.json"
            settled = max(watched.listing.resolved, default=None)
            watched.listing = FeedListing(DirectoryLister(feed.root), Latecomers(watched.clock, memory))
            watched.listing.begin("" if settled is None else resolved_paths(settled)[2])
        watched.at(10 + minute)


def test_a_feed_of_many_nodes_goes_on(feed: Feed, watched: Watched) -> None:
    run = Run(feed, (A, B, C))
    for minute in HOURS:
        run.flush(10 + minute)
        watched.at(10 + minute)


@pytest.mark.parametrize("zombie_minutes", [0, 9])
@pytest.mark.parametrize("restarts_every", [3, 10, 45])
def test_a_feed_that_restarts_goes_on(feed: Feed, watched: Watched, zombie_minutes: int, restarts_every: int) -> None:
    """Again and again; the sessions of the run before write on for a while, with stamps as new as their successors'."""
    run, before = Run(feed, ("0" * 16, "1" * 16)), list[tuple[int, Run]]()
    for minute in HOURS:
        now = 10 + minute
        if minute and minute % (restarts_every * MINUTE) == 0:
            before.append((minute, run))
            sessions = tuple(f"{minute:012x}{node:04x}" for node in (1, 2))
            run = Run(feed, sessions, frontier=run.frontier)
        run.flush(now)
        watched.at(now)
        for since, zombie in before:
            if minute - since < zombie_minutes * MINUTE:
                zombie.flush(now + 20, resolves=False)
        watched.at(now + 30)


def test_a_restart_that_goes_back_for_hours_is_no_second_feed(feed: Feed, watched: Watched) -> None:
    """One node had gone ahead, while another held the feed back: what they leave lies among its successor's files."""
    ahead = Run(feed, (A,))
    feed.resolved(at(0))
    for minute in HOURS:
        ahead.flush(10 + minute, resolves=False)
        watched.at(minute)
    after = Run(feed, (B, C), frontier=at(0))
    for minute in HOURS:
        after.flush(10 + minute)
        watched.at(2 * 3600 + minute)
    assert watched.listing.topics == {"t"}


def test_a_long_history_of_two_feeds_tells_nothing_and_costs_nothing(feed: Feed, watched: Watched) -> None:
    """The order in which files came is not in their names."""
    for session in (A, B):
        run = Run(feed, (session,))
        for minute in HOURS:
            run.flush(10 + minute)
    for now in range(0, 3600, 300):
        watched.at(now)
    assert watched.listing.counters.names == 2 * len(set(feed.files))


def test_a_table_that_is_added_with_a_scan_goes_on(feed: Feed, watched: Watched) -> None:
    """For half an hour, all its files are named after the high-water, and sort before its resolved file."""
    run = Run(feed, (A,))
    for minute in range(0, 3600, MINUTE):
        run.flush(10 + minute)
        watched.at(10 + minute)
    assert run.frontier is not None
    scan = Run(feed, (B,))
    for minute in range(3600, 5400, MINUTE):
        scan.frontier = run.frontier.previous()
        scan.flush(10 + minute, resolves=False, topic="u")
        watched.at(10 + minute)
    assert all(Path(path).name.startswith(run.frontier.file_stamp) for path in feed.files if "-u-" in path)
    scan.frontier = at(5400)
    for minute in range(5400, 9000, MINUTE):
        scan.flush(10 + minute)
        watched.at(10 + minute)


# what it costs


def test_each_name_is_listed_twice_more(feed: Feed, watched: Watched) -> None:
    run, blind = Run(feed, (A,)), FeedListing(DirectoryLister(feed.root))
    for minute in HOURS:
        run.flush(10 + minute)
        watched.at(10 + minute)
        blind.advance()
    more = watched.listing.counters.names - blind.counters.names
    assert 0 < more <= 2 * len(feed.files)
