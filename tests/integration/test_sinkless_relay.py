"""The relay against a recorded server: real libpq, real sockets, real files. Not a real CockroachDB cluster."""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from servers.pgwire import Drop, End, Fail, Feed, Gate, RecordedServer, Row, Step, resolved

from frazil.errors import BadInput, ConfigError, SourceLost, SourceUnavailable, StorageUnavailable
from frazil.model.frontier import Frontier
from frazil.sources.cockroachdb.feed.listing import DirectoryLister, FeedListing
from frazil.sources.cockroachdb.position import Hlc
from frazil.sources.cockroachdb.sinkless.relay import Relay
from frazil.sources.cockroachdb.sinkless.sql import FeedOptions, FeedStart, start_of

pytestmark = pytest.mark.servers

ORDERS = "shop.public.orders"
_sessions = itertools.count(1)


def at(second: int, logical: int = 0) -> Hlc:
    return Hlc(1_700_000_000_000_000_000 + second * 1_000_000_000, logical)


def row(key: int, when: Hlc, name: str | None = "n", table: str = ORDERS) -> Row:
    after = "null" if name is None else json.dumps({"id": key, "name": name})
    return Row(table, f"[{key}]".encode(), f'{{"after": {after}, "key": [{key}], "updated": "{when.text}"}}'.encode())


def steps(*played: Step) -> Feed:
    return lambda statement: played


def a_relay(server: RecordedServer, spool: Path, start: FeedStart | None = None, **more: Any) -> Relay:
    url = more.pop("url", None) or server.url()
    return Relay(url, [ORDERS], spool, session=f"{next(_sessions):016x}", start=start, **more)


def eventually(holds: Callable[[], object]) -> None:
    """Waits for another thread. The deadline only keeps a broken run from hanging."""
    pause = threading.Event()
    for _ in range(1500):
        if holds():
            return
        pause.wait(0.02)
    raise AssertionError("did not happen within 30 seconds")


def failure_of(relay: Relay) -> None:
    """Raises what ended the relay."""
    eventually(lambda: not relay.running)
    relay.check()


def until_resolved(relay: Relay, position: Hlc) -> None:
    def there() -> bool:
        relay.check()
        return relay.resolved is not None and relay.resolved >= position

    eventually(there)


def walk(feed: Path) -> Iterator[tuple[Hlc, list[dict[str, Any]]]]:
    """Each promise with all rows of the files that sort before it."""
    seen: list[dict[str, Any]] = []
    for path in sorted(feed.iterdir()):
        if path.name.endswith(".RESOLVED"):
            yield Hlc.from_file_stamp(path.name[:33]), list(seen)
        else:
            seen += [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def apply(table: dict[int, tuple[Hlc, str | None]], feed: Path, lower: Hlc | None) -> Hlc | None:
    """What a pipeline does with a spool: publishes up to its last promise, and no further."""
    frontier = lower
    for promised, rows in walk(feed):
        for document in rows:
            when = Hlc.parse(document["updated"])
            key = document["key"][0]
            if when <= promised and (lower is None or when > lower) and (key not in table or table[key][0] <= when):
                table[key] = when, document["after"] and document["after"]["name"]
        frontier = promised
    return frontier


@pytest.mark.parametrize("text_only", [False, True], ids=["binary", "hex text"])
def test_rows_and_promises_become_files(tmp_path: Path, text_only: bool) -> None:
    feed = steps(row(1, at(1), "größe"), row(2, at(1)), resolved(at(1).text), row(1, at(3), None), resolved(at(4).text))
    with RecordedServer(feed, text_only=text_only) as server, a_relay(server, tmp_path) as relay:
        until_resolved(relay, at(4))
        promises = list(walk(relay.feed))
    assert [promised for promised, _ in promises] == [at(1), at(4)]
    assert [document["after"] for document in promises[-1][1]] == [
        {"id": 1, "name": "größe"},
        {"id": 2, "name": "n"},
        None,
    ]


def test_the_cloud_storage_listing_settles_a_spool_like_any_feed(tmp_path: Path) -> None:
    feed = steps(row(1, at(6)), row(2, at(9)), resolved(at(7).text), row(3, at(10)), resolved(at(12).text))
    with RecordedServer(feed) as server, a_relay(server, tmp_path, FeedStart(at(5), scan=False)) as relay:
        until_resolved(relay, at(12))
        listing = FeedListing(DirectoryLister(relay.feed))
        listing.begin("")
        assert listing.advance() == (at(5), at(7), at(12))
        assert listing.topics == {ORDERS}
        first, second, third = (listing.path_of(position) or "" for position in (at(5), at(7), at(12)))
        assert [len(listing.between(ORDERS, *pair)) for pair in ((first, second), (second, third))] == [1, 1]
        assert listing.counters.foreign == 0


def test_a_promise_is_on_disk_while_the_feed_goes_on(tmp_path: Path) -> None:
    """The result never ends, so nothing may wait for its end, nor for a buffer to fill."""
    gate = threading.Event()
    feed = steps(row(1, at(1)), resolved(at(1).text), Gate(gate), row(2, at(2)), resolved(at(2).text))
    with RecordedServer(feed) as server, a_relay(server, tmp_path) as relay:
        until_resolved(relay, at(1))
        assert [len(rows) for _, rows in walk(relay.feed)] == [1]
        gate.set()
        until_resolved(relay, at(2))
        assert [len(rows) for _, rows in walk(relay.feed)] == [1, 2]


def test_the_statement_resumes_at_the_cursor_and_asks_for_what_files_need(tmp_path: Path) -> None:
    with (
        RecordedServer(steps(resolved(at(9).text))) as server,
        a_relay(server, tmp_path, FeedStart(at(5), scan=False), options=FeedOptions(diff=True)) as relay,
    ):
        until_resolved(relay, at(9))
        timeout, time, statement = server.statements
    assert timeout == "SET statement_timeout = 0"
    assert time == "SELECT cluster_logical_timestamp()::STRING"
    assert statement == (
        'CREATE CHANGEFEED FOR TABLE "shop"."public"."orders" WITH updated, resolved = \'1s\', '
        "min_checkpoint_frequency = '1s', key_in_value, full_table_name, diff, "
        "cursor = '1700000005000000000.0000000000'"
    )
    assert [promised for promised, _ in walk(relay.feed)] == [at(5), at(9)]


@pytest.mark.parametrize("halfway", [False, True], ids=["between rows", "inside a row"])
def test_a_lost_connection_is_told_and_a_new_relay_from_the_frontier_loses_nothing(
    tmp_path: Path, halfway: bool
) -> None:
    """H26: the rows beyond the promise, rolled to disk or not, come again and are taken once."""
    history = [row(key, at(second), f"v{second}") for second in range(1, 40) for key in (second % 7, 100 + second)]

    def feed(statement: str) -> Iterator[Step]:
        match = re.search(r"cursor = '([\d.]+)'", statement)
        cursor = at(0) if match is None else Hlc.parse(match[1])
        sent = 0
        for change in history:
            when = Hlc.parse(json.loads(change.value)["updated"])
            if when <= cursor:
                continue
            yield change
            sent += 1
            if sent % 10 == 0:
                yield resolved(Hlc(when.wall - 1).text)  # rows of `when` lie beyond the promise
            if sent == 27 and when < at(39):
                yield Drop(halfway)
        yield resolved(at(39).text)

    table: dict[int, tuple[Hlc, str | None]] = {}
    frontier: Hlc | None = None
    losses = 0
    with RecordedServer(feed) as server:
        while frontier != at(39):
            start = start_of([None if frontier is None else Frontier(frontier)])
            with a_relay(server, tmp_path, start, roll_bytes=300) as relay:
                try:
                    until_resolved(relay, at(39))
                except SourceUnavailable:
                    losses += 1
            before, frontier = frontier, apply(table, relay.feed, frontier)
            assert frontier is not None
            assert before is None or frontier > before
    assert losses >= 2
    expected = {json.loads(c.value)["key"][0]: json.loads(c.value)["after"]["name"] for c in history}
    assert {key: name for key, (_, name) in table.items()} == expected


def test_stopping_is_prompt_while_the_server_is_silent(tmp_path: Path) -> None:
    with RecordedServer(steps(row(1, at(1)), resolved(at(1).text), row(2, at(2)))) as server:
        relay = a_relay(server, tmp_path)
        relay.begin()
        until_resolved(relay, at(1))
        relay.stop()
        assert not relay.running
        relay.check()
        assert server.cancels >= 1
        eventually(server.ended.is_set)
        assert [len(rows) for _, rows in walk(relay.feed)] == [1], "what was not promised stays hidden"


def test_stopping_ends_the_feed_even_if_the_cancel_is_not_heard(tmp_path: Path) -> None:
    with RecordedServer(steps(resolved(at(1).text)), deaf=True) as server:
        relay = a_relay(server, tmp_path)
        relay.begin()
        until_resolved(relay, at(1))
        relay.stop()
        assert not relay.running
        eventually(server.ended.is_set)


def test_stopping_ends_a_feed_that_never_pauses(tmp_path: Path) -> None:
    def endless(statement: str) -> Iterator[Step]:
        for second in itertools.count(1):
            yield row(second, at(second))
            yield resolved(at(second).text)

    with RecordedServer(endless, deaf=True) as server:
        relay = a_relay(server, tmp_path)
        relay.begin()
        until_resolved(relay, at(3))
        relay.stop()
        assert not relay.running
        relay.check()


def test_a_relay_that_was_never_begun_can_be_stopped(tmp_path: Path) -> None:
    with RecordedServer(steps()) as server:
        a_relay(server, tmp_path).stop()


def test_a_cursor_behind_garbage_collection_is_a_lost_source_with_the_way_out(tmp_path: Path) -> None:
    refusal = Fail(
        "could not create changefeed: cursor 1700000005000000000.0000000000 is older than the GC threshold "
        "1700009005000000000",
        hint="use a more recent cursor",
    )
    with (
        RecordedServer(steps(refusal)) as server,
        a_relay(server, tmp_path, FeedStart(at(5), scan=False)) as relay,
        pytest.raises(SourceLost) as lost,
    ):
        failure_of(relay)
    assert "use a more recent cursor" in lost.value.message
    assert "gc.ttlseconds" in lost.value.hint
    assert "Drop or rename the target tables" in lost.value.hint


def test_a_table_dropped_in_the_midst_keeps_what_was_promised(tmp_path: Path) -> None:
    feed = steps(row(1, at(1)), resolved(at(1).text), row(2, at(2)), Fail('"orders" was dropped'))
    with RecordedServer(feed) as server, a_relay(server, tmp_path) as relay:
        with pytest.raises(SourceLost):
            failure_of(relay)
        assert [len(rows) for _, rows in walk(relay.feed)] == [1]
        with pytest.raises(SourceLost):
            relay.check()


def test_a_feed_that_ends_by_itself_is_not_taken_for_a_silent_one(tmp_path: Path) -> None:
    with (
        RecordedServer(steps(resolved(at(1).text), End())) as server,
        a_relay(server, tmp_path) as relay,
        pytest.raises(SourceUnavailable, match="ended the changefeed"),
    ):
        failure_of(relay)


def test_a_row_that_cannot_be_read_stops_the_relay_and_ends_the_feed(tmp_path: Path) -> None:
    with (
        RecordedServer(steps(Row(ORDERS, b"[1]", b"\0avro")), deaf=True) as server,
        a_relay(server, tmp_path) as relay,
    ):
        with pytest.raises(BadInput, match=ORDERS):
            failure_of(relay)
        eventually(server.ended.is_set)


def test_the_password_is_sent_and_never_shown(tmp_path: Path) -> None:
    with RecordedServer(steps(resolved(at(1).text)), password="hunter22") as server:
        with a_relay(server, tmp_path, url=server.url(password="hunter22")) as relay:
            until_resolved(relay, at(1))
        with (
            a_relay(server, tmp_path, url=server.url(password="wrong-one")) as relay,
            pytest.raises(ConfigError) as refused,
        ):
            failure_of(relay)
    assert "wrong-one" not in f"{refused.value} {refused.value.hint} {refused.value.facts}"


def test_a_url_that_cannot_be_read_is_a_configuration_error_without_the_password(tmp_path: Path) -> None:
    with (
        RecordedServer(steps()) as server,
        a_relay(server, tmp_path, url="postgresql://u:hunter22@x:port/db?nonsense=1") as relay,
        pytest.raises(ConfigError) as refused,
    ):
        failure_of(relay)
    assert "hunter22" not in f"{refused.value} {refused.value.hint} {refused.value.facts}"


def test_a_server_that_is_not_there_may_come_back(tmp_path: Path) -> None:
    with RecordedServer(steps()) as server:
        relay = a_relay(server, tmp_path)
    with relay, pytest.raises(SourceUnavailable):
        failure_of(relay)


def test_an_older_relay_whose_spool_was_taken_over_stops(tmp_path: Path) -> None:
    gate = threading.Event()
    feed = steps(resolved(at(1).text), Gate(gate), row(1, at(2)), resolved(at(2).text))
    with (
        RecordedServer(feed) as first,
        RecordedServer(steps(resolved(at(1).text))) as second,
        a_relay(first, tmp_path) as zombie,
    ):
        until_resolved(zombie, at(1))
        with a_relay(second, tmp_path) as newer:
            gate.set()
            with pytest.raises(StorageUnavailable) as refused:
                failure_of(zombie)
            assert "share a spool" in refused.value.hint
            until_resolved(newer, at(1))


def test_all_is_told_when_a_promise_covers_the_clusters_time_at_the_start(tmp_path: Path) -> None:
    """Neither silence nor an older promise says that there is nothing more."""
    gate = threading.Event()
    feed = steps(resolved(at(6).text), Gate(gate), row(1, at(7)), resolved(at(8).text))
    with (
        RecordedServer(feed, now=at(7, 3).text) as server,
        a_relay(server, tmp_path, FeedStart(at(5), scan=False)) as relay,
    ):
        assert not relay.has_told_all(at(5))
        until_resolved(relay, at(6))
        assert not relay.has_told_all(at(6))
        assert not relay.has_told_all(at(7, 2))
        gate.set()
        until_resolved(relay, at(8))
        assert relay.has_told_all(at(8))


@pytest.mark.parametrize(
    "start", [FeedStart(), FeedStart(at(5), scan=False), FeedStart(at(5))], ids=["scan", "cursor", "both"]
)
def test_where_the_cluster_does_not_tell_its_time_the_next_promise_covers_it(tmp_path: Path, start: FeedStart) -> None:
    with RecordedServer(steps(resolved(at(6).text))) as server, a_relay(server, tmp_path, start) as relay:
        until_resolved(relay, at(6))
        assert not relay.has_told_all(None)
        assert not relay.has_told_all(start.cursor)
        assert relay.has_told_all(at(6))


def test_published_files_are_forgotten_while_the_feed_goes_on(tmp_path: Path) -> None:
    feed = steps(*(step for s in (1, 2, 3) for step in (row(s, at(s)), resolved(at(s).text))))
    with RecordedServer(feed) as server, a_relay(server, tmp_path) as relay:
        until_resolved(relay, at(3))
        relay.forget(at(2))
        assert [(promised, len(rows)) for promised, rows in walk(relay.feed)] == [(at(2), 0), (at(3), 1)]
