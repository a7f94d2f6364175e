"""A sinkless feed as a source, against a recorded server: which statements it sends, and what it leaves on disk."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from servers.pgwire import Fail, Gate, RecordedServer, Row, Step, resolved

from frazil.clock import SystemClock
from frazil.errors import SourceLost
from frazil.model.frontier import Frontier
from frazil.model.position import Position
from frazil.sources.cockroachdb.position import Hlc
from frazil.sources.cockroachdb.sinkless.sinkless_source import SinklessFeed
from frazil.sources.cockroachdb.sinkless.sql import FeedOptions
from frazil.sources.cockroachdb.source import CloudFeed

pytestmark = pytest.mark.servers

ORDERS, EMPTY = "shop.public.orders", "shop.public.empty"


def at(second: int) -> Hlc:
    return Hlc(1_700_000_000_000_000_000 + second * 1_000_000_000)


def change(key: int, when: int, table: str = ORDERS) -> Row:
    after = json.dumps({"id": key})
    return Row(table, f"[{key}]".encode(), f'{{"after": {after}, "updated": "{at(when).text}"}}'.encode())


def a_feed(server: RecordedServer, root: Path) -> SinklessFeed:
    return SinklessFeed(server.url(), [ORDERS, EMPTY], FeedOptions(), root / "spool" / "shop", CloudFeed, SystemClock())


def heard(feed: SinklessFeed, until: Hlc) -> tuple[Position, ...]:
    """All that is resolved, once it reaches so far. The bound only keeps a broken run from hanging."""
    for _ in range(1500):
        found = feed.latest()
        if found and not found[-1].order < until.order:
            return found
        threading.Event().wait(0.02)
    raise AssertionError(f"{until} was not resolved within 30 seconds")


@pytest.fixture
def rest() -> Iterator[threading.Event]:
    """Set when the test is over."""
    event = threading.Event()
    yield event
    event.set()


def feeds(server: RecordedServer) -> list[str]:
    return [statement for statement in server.statements if statement.startswith("CREATE CHANGEFEED")]


def asked(server: RecordedServer, number: int) -> str:
    """The statement of the feed of this number, once the server has it."""
    for _ in range(1500):
        if len(feeds(server)) >= number:
            return feeds(server)[number - 1]
        threading.Event().wait(0.02)
    raise AssertionError("no such feed within 30 seconds")


def steady(rest: threading.Event) -> Callable[[str], Iterable[Step]]:
    return lambda statement: (change(1, 1), resolved(at(2).text), Gate(rest))


def test_a_table_that_tells_nothing_is_offered_while_the_feed_runs(tmp_path: Path, rest: threading.Event) -> None:
    """Whoever judges which tables are taken must not come to another verdict with each first row."""
    with RecordedServer(steady(rest)) as server:
        main = a_feed(server, tmp_path)
        before = main.tables()
        main.initial({ORDERS: None, EMPTY: None})
        heard(main, at(2))
        assert main.tables() == before
        main.stop()


def test_a_feed_beside_leaves_nothing_on_disk(tmp_path: Path, rest: threading.Event) -> None:
    with RecordedServer(steady(rest)) as server:
        main = a_feed(server, tmp_path)
        main.initial({ORDERS: None, EMPTY: None})
        heard(main, at(2))
        for _ in range(2):
            beside = main.for_tables([ORDERS])
            beside.initial({ORDERS: None})
            heard(beside, at(2))
            beside.stop()
        kept = list(tmp_path.rglob("*.RESOLVED"))
        main.stop()
    assert len(kept) == 1, "the main feed's own"
    assert [path.name for path in (tmp_path / "spool").iterdir() if any(path.rglob("*"))] == ["shop"]


def test_what_a_killed_run_left_beside_goes_with_the_next_start_and_nothing_that_is_read(
    tmp_path: Path, rest: threading.Event
) -> None:
    left = tmp_path / "spool" / "shop-beside" / "0123456789ab" / "run-00000000000000aa" / "feed"
    left.mkdir(parents=True)
    (left / "x.ndjson").write_text("{}\n", encoding="utf-8")
    with RecordedServer(steady(rest)) as server:
        main = a_feed(server, tmp_path)
        main.tables()
        assert left.exists(), "whoever only looks removes nothing: a daemon may be at work"
        main.initial({EMPTY: None})
        assert not left.exists()
        beside = main.for_tables([ORDERS])
        beside.initial({ORDERS: None})
        heard(beside, at(2))
        main.initial({EMPTY: None})  # as after a lost connection
        assert list((tmp_path / "spool" / "shop-beside").rglob("*.ndjson")), "it is being read"
        beside.stop()
        main.stop()


def test_a_feed_beside_that_is_opened_before_the_main_one_keeps_its_spool(
    tmp_path: Path, rest: threading.Event
) -> None:
    """As when the ledgers of the others cannot be read yet."""
    with RecordedServer(steady(rest)) as server:
        main = a_feed(server, tmp_path)
        beside = main.for_tables([ORDERS])
        beside.initial({ORDERS: None})
        heard(beside, at(2))
        main.initial({EMPTY: None})
        assert list((tmp_path / "spool" / "shop-beside").rglob("*.ndjson")), "it is being read"
        beside.stop()
        main.stop()


def test_a_table_named_without_its_database_is_offered_once(tmp_path: Path, rest: threading.Event) -> None:
    with RecordedServer(steady(rest)) as server:
        feed = SinklessFeed(
            server.url(), ["orders", EMPTY], FeedOptions(), tmp_path / "spool", CloudFeed, SystemClock()
        )
        feed.initial({"orders": None, EMPTY: None})
        heard(feed, at(2))
        assert [table.name for table in feed.tables()] == [EMPTY, ORDERS]
        feed.stop()


def test_an_empty_table_is_scanned_once_and_not_at_each_connection(tmp_path: Path, rest: threading.Event) -> None:
    """A scan is of all tables of the feed. What came of the first one is known: nothing, up to what was promised."""
    with RecordedServer(steady(rest)) as server:
        feed = a_feed(server, tmp_path)
        feed.initial({ORDERS: None, EMPTY: None})
        heard(feed, at(2))
        assert "initial_scan = 'yes'" in asked(server, 1)
        for number in (2, 3):
            feed.initial({ORDERS: Frontier(at(2)), EMPTY: None})
            heard(feed, at(2))
            assert "initial_scan" not in asked(server, number)
            assert f"cursor = '{at(2).text}'" in asked(server, number)
        feed.stop()


def test_a_table_whose_rows_came_and_were_not_published_is_scanned_again(tmp_path: Path, rest: threading.Event) -> None:
    def feed_of(statement: str) -> Iterable[Step]:
        yield from (change(1, 1), change(2, 1, EMPTY), resolved(at(2).text), Gate(rest))

    with RecordedServer(feed_of) as server:
        feed = a_feed(server, tmp_path)
        feed.initial({ORDERS: None, EMPTY: None})
        heard(feed, at(2))
        feed.initial({ORDERS: Frontier(at(2)), EMPTY: None})
        heard(feed, at(2))
        assert "initial_scan = 'yes'" in asked(server, 2)
        feed.stop()


def test_a_scan_that_was_cut_short_says_nothing_of_a_table(tmp_path: Path, rest: threading.Event) -> None:
    with RecordedServer(lambda statement: (change(1, 1), Gate(rest))) as server:
        feed = a_feed(server, tmp_path)
        feed.initial({ORDERS: None, EMPTY: None})
        asked(server, 1)
        assert feed.latest() == ()
        feed.initial({ORDERS: Frontier(at(2)), EMPTY: None})
        assert "initial_scan = 'yes'" in asked(server, 2)
        feed.stop()


def test_an_empty_table_is_not_scanned_by_the_next_process_either(tmp_path: Path, rest: threading.Event) -> None:
    """The cluster is asked whether the table had a row at the cursor."""
    with RecordedServer(steady(rest), empty=['"shop"."public"."empty"']) as server:
        feed = a_feed(server, tmp_path)
        feed.initial({ORDERS: Frontier(at(2)), EMPTY: None})
        assert "initial_scan" not in asked(server, 1)
        feed.stop()
    questions = [statement for statement in server.statements if "AS OF SYSTEM TIME" in statement]
    assert questions == [f'SELECT 1 FROM "shop"."public"."empty" AS OF SYSTEM TIME \'{at(2).text}\' LIMIT 1']
    assert "initial_scan" not in feeds(server)[-1]


def test_a_table_younger_than_the_cursor_of_the_others_is_told_apart_and_scanned(
    tmp_path: Path, rest: threading.Event
) -> None:
    """Tables that were created while nobody read the feed: the others go on without them."""

    def feed_of(statement: str) -> Iterable[Step]:
        if "cursor" in statement and "empty" in statement:
            yield Fail("do the targets exist at the specified cursor time 1700000002.0?")
        yield from (change(2, 1, EMPTY), resolved(at(2).text), Gate(rest))

    with RecordedServer(feed_of) as server:
        feed = a_feed(server, tmp_path)
        feed.initial({ORDERS: Frontier(at(2)), EMPTY: None})
        with pytest.raises(SourceLost, match="younger") as caught:
            heard(feed, at(2))
        assert caught.value.facts["tables"] == (EMPTY,)
        beside = feed.for_tables([EMPTY])
        beside.initial({EMPTY: None})
        assert heard(beside, at(2)) == (at(2),)
        beside.stop()
        feed.stop()


def test_what_was_known_of_a_table_while_it_was_empty_is_forgotten_once_it_is_published(
    tmp_path: Path, rest: threading.Event
) -> None:
    """Its target may be dropped much later, when the cluster holds nothing of that time any more."""
    with RecordedServer(steady(rest)) as server:
        feed = a_feed(server, tmp_path)
        for frontier in (None, Frontier(at(1)), None):
            feed.initial({ORDERS: Frontier(at(1)), EMPTY: frontier})
            heard(feed, at(2))
        assert "initial_scan = 'yes'" in asked(server, 3)
        feed.stop()
