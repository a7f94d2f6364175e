"""What a client is made with, and how the thread that reads a change stream is left."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any

import pytest
from pymongo import MongoClient

from frazil.clock import SystemClock
from frazil.sources.mongodb.client.connection import let_go, open_client, raw_client
from frazil.sources.mongodb.stream import stream_reader as watching
from frazil.sources.mongodb.stream.stream_reader import StreamEnded, Watched, Watching

NOBODY = "mongodb://127.0.0.1:1/?directConnection=true"


@pytest.mark.parametrize("make", [open_client, raw_client])
@pytest.mark.parametrize(
    ("uri", "seconds", "appname"),
    [
        (NOBODY, 10.0, "frazil"),
        (f"{NOBODY}&serverSelectionTimeoutMS=1234", 1.234, "frazil"),
        (f"{NOBODY}&serverselectiontimeoutms=1234&appName=mirror", 1.234, "mirror"),
    ],
)
def test_what_the_uri_says_outranks_what_we_would_choose(
    make: Callable[[str], MongoClient[Any]], uri: str, seconds: float, appname: str
) -> None:
    client = make(uri)
    try:
        assert client.options.server_selection_timeout == pytest.approx(seconds)
        assert client.options.pool_options.appname == appname
    finally:
        let_go(client)


def test_a_thread_that_waits_for_a_server_is_left_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_LEAVE_SECONDS", 0.0)
    is_asked, goes_on = Event(), Event()

    def has_room() -> bool:
        is_asked.set()
        goes_on.wait(60)
        return False

    watched = Watching(NOBODY, Watched(after={"shop.orders": 1}), has_room, SystemClock())
    watched.begin()
    assert is_asked.wait(60)
    watched.end()
    assert watched.take() == StreamEnded(None), "nobody waits for what it never says"
    goes_on.set()
    assert watched.take() == StreamEnded(None), "that is the thread's own end"
