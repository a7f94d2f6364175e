"""What the spool makes of a change stream's replies, without a server: the replies are bytes that one would send."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import bson
import pytest
from bson import Int64, Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.clock import SystemClock
from frazil.errors import SourceUnavailable
from frazil.sources.base import InputPartition
from frazil.sources.mongodb.position import ClusterTime
from frazil.sources.mongodb.reader import rows_of
from frazil.sources.mongodb.stream import stream as streams
from frazil.sources.mongodb.stream.replies import read_reply
from frazil.sources.mongodb.stream.stream import ChangeStream, SegmentLimits
from frazil.sources.mongodb.stream.stream_reader import Item, StreamEnded, Told, Watched

ORDERS, TIME = "shop.orders", 1_700_000_000
Event = dict[str, Any]


def replaced(key: int, n: int, inc: int) -> Event:
    """Document `key` is {n: n} from this cluster time on."""
    return {
        "_id": {"_data": f"82{TIME:08X}{inc:08X}"},
        "operationType": "replace",
        "clusterTime": Timestamp(TIME, inc),
        "fullDocument": {"_id": key, "n": n},
        "ns": {"db": "shop", "coll": "orders"},
        "documentKey": {"_id": key},
    }


def told(*events: Event) -> Told:
    """One reply with these events, as it is read."""
    token = events[-1]["_id"]
    cursor = {"nextBatch": list(events), "postBatchResumeToken": token, "id": Int64(7), "ns": "shop.$cmd.aggregate"}
    reply = read_reply(bson.encode({"cursor": cursor, "ok": 1.0}))
    return Told(reply.batch, reply.token)


class Replies:
    """A server that sends these and then nothing any more."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items: Iterator[Item] = iter([*items, StreamEnded(None)])

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def take(self) -> Item:
        return next(self._items)


def spooled(*items: Item) -> list[list[tuple[int, int, int]]]:
    """The segments that the replies become, as short as can be: (increment of the cluster time, number within it, n) of
    each change. The last one is still open when the server goes, so it is not among them."""
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as directory:
        patch.setattr(streams, "Watching", lambda *_: Replies(items))
        stream = ChangeStream(
            "mongodb://127.0.0.1:1",
            Watched(after={ORDERS: ClusterTime.of(TIME, 0).time}),
            stops=(),
            limits=SegmentLimits(max_records=1),
            directory=Path(directory) / "spool",
            clock=SystemClock(),
            is_sharded=False,
        )
        stream.begin()
        with pytest.raises(SourceUnavailable, match="without a reason"):
            _wait_for_the_end(stream)
        found = [_changes(segment.files[ORDERS].path) for segment in stream.segments()]
        stream.stop()
        return found


def _wait_for_the_end(stream: ChangeStream) -> NoReturn:
    while True:
        stream.check()
        stream.wait(1)


def _changes(path: str) -> list[tuple[int, int, int]]:
    partition = InputPartition(0, path, json.dumps({"spooled": ORDERS}), 0)
    rows = [row for batch in rows_of("", partition) for row in batch.to_pylist()]
    return [(row["major"] & 0xFFFFFFFF, row["minor"], bson.decode(row["payload"])["n"]) for row in rows]


def test_a_transaction_that_comes_in_two_replies_keeps_its_order_in_one_segment() -> None:
    """Its changes share one cluster time: only their numbers say that the second is the newer one."""
    one, other, next_one, end = (replaced(1, n, inc) for n, inc in ((10, 1), (20, 1), (30, 2), (40, 3)))
    assert spooled(told(one), told(other, next_one), told(end)) == [[(1, 0, 10), (1, 1, 20)], [(2, 0, 30)]]


@given(st.lists(st.integers(0, 2), min_size=1, max_size=8), st.data())
@settings(max_examples=40, deadline=None)
def test_what_is_spooled_does_not_depend_on_how_replies_are_cut(steps: list[int], data: st.DataObject) -> None:
    times = [*accumulate(steps, initial=1), sum(steps) + 2]
    events = [replaced(n % 3, n, inc) for n, inc in enumerate(times)]
    cuts = sorted(data.draw(st.sets(st.integers(1, len(events) - 1))))
    replies = [told(*events[a:b]) for a, b in pairwise([0, *cuts, len(events)])]
    expected = [[e for e in enumerate(times) if e[1] == inc] for inc in sorted(set(times))[:-1]]
    assert spooled(*replies) == [[(inc, at, n) for at, (n, inc) in enumerate(own)] for own in expected]
