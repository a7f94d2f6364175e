"""A change stream, read ahead by a thread: while the server looks for more, others work on what came.

    aggregate, getMore --> Told(events, token) --> queue --take--> Told, Told, ... Outlived(names) ... StreamEnded
                                                     ^ waits while much is queued, or nobody has room

Watched is a database, or the whole deployment if there are several: a stream on a single collection ends when that is
dropped. If the oplog no longer reaches back to where the stream has to begin, the collections that are not further than
that are told as outlived, and the stream begins where the next one needs it. A connection that is lost is made anew
behind the last event.

Replies are read as they are, see `replies`; where it is not sure that commands meet the same server again, the driver's
own change stream stands in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import Any

from bson.int64 import Int64
from bson.timestamp import Timestamp
from pymongo.errors import ConnectionFailure, CursorNotFound, OperationFailure, PyMongoError

from frazil.clock import Clock
from frazil.errors import FrazilError, SourceUnavailable
from frazil.sources.mongodb.client.connection import (
    HISTORY_LOST,
    TOO_LARGE,
    Client,
    raw_client,
    said,
    translated,
    translation,
)
from frazil.sources.mongodb.load.scan import meets_one_server
from frazil.sources.mongodb.stream.replies import RAW, ReplyBatch, read_reply

_BATCH = 2_000
_BATCH_OF_DRIVER = 500
_LOSSES_MAX = 5
_PAUSE_AFTER_LOSS = 1.0
_LEAVE_SECONDS = 2.0
_QUEUED_BYTES = 32 << 20
_AWAIT_MS = 250
_PAUSE = 0.005
_TOLD = ("insert", "update", "replace", "delete")
ENDS = ("drop", "rename", "dropDatabase", "invalidate")
_DRIVERS_NAMES = {
    "startAtOperationTime": "start_at_operation_time",
    "resumeAfter": "resume_after",
    "fullDocument": "full_document",
    "fullDocumentBeforeChange": "full_document_before_change",
}
_NOT_NEEDED = ("updateDescription", "wallTime", "lsid", "txnNumber", "collectionUUID")


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """`after` are the collections, each with the cluster time behind which its changes count. `exact` are those of
    which the server keeps pre- and post-images, `before` those of which documents as they were are wanted too."""

    after: Mapping[str, int]
    exact: Collection[str] = ()
    before: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """Events in their order; all that happened up to the token's time is told with them. None at all if nothing had
    happened for a while."""

    batch: ReplyBatch
    token: str


@dataclass(frozen=True, slots=True)
class Outlived:
    """The server no longer tells what happened to these collections."""

    names: tuple[str, ...]
    said: str


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """Nothing follows; `error` says why, None if nobody needs more."""

    error: FrazilError | None = None


Item = Told | Outlived | StreamEnded


class Watching:
    """`has_room` is asked before each batch and may block; False ends the reading."""

    def __init__(self, uri: str, watched: Watched, has_room: Callable[[], bool], clock: Clock) -> None:
        self._uri = uri
        self._watched = watched
        self._has_room = has_room
        self._clock = clock
        self._queue: SimpleQueue[Item] = SimpleQueue()
        # Each is written by one thread alone.
        self._put_bytes = self._taken_bytes = 0
        self._told = 0
        self._token = ""
        self._is_bare = False
        self._thread = Thread(target=self._run, name="frazil-change-stream", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """`has_room` says no by now. A thread that waits for a server that is away is left to itself: it tells nobody
        anything any more."""
        if self._thread.ident is not None:
            self._thread.join(_LEAVE_SECONDS)
        self._queue.put(StreamEnded(None))

    def take(self) -> Item:
        """What comes next; waits for it."""
        item = self._queue.get()
        if isinstance(item, Told):
            self._taken_bytes += len(item.batch.data)
        return item

    # in the thread

    def _run(self) -> None:
        error: FrazilError | None = None
        try:
            with translated(self._uri):
                self._read()
        except FrazilError as known:
            error = known
        except PyMongoError as known:
            error = translation(known, self._uri)
        except Exception as unknown:
            error = SourceUnavailable(f"the change stream ended: {type(unknown).__name__}: {unknown}")
        self._queue.put(StreamEnded(error))

    def _read(self) -> None:
        after = dict(self._watched.after)
        with raw_client(self._uri) as client:
            while after:
                try:
                    self._follow(client, after)
                    return
                except OperationFailure as error:
                    if error.code not in HISTORY_LOST:
                        raise
                    reached = max(min(after.values()), token_time(self._token) or 0)
                    names = tuple(name for name, time in after.items() if time <= reached)
                    self._queue.put(Outlived(names, said(error)))
                    after = {name: time for name, time in after.items() if name not in names}
                    self._token = ""

    def _follow(self, client: Client, after: Mapping[str, int]) -> None:
        losses = 0
        while self._has_room():
            told = self._told
            try:
                client.admin.command("ping")
                if meets_one_server(client):
                    is_over = self._follow_by_commands(client, after)
                else:
                    is_over = self._follow_by_cursor(client, after)
                if is_over:
                    return
                self._is_bare = False
            except PyMongoError as error:
                if isinstance(error, OperationFailure) and error.code == TOO_LARGE and not self._is_bare:
                    # With its images an event may be larger than a reply can be: this one comes without.
                    self._is_bare = True
                    continue
                losses = 1 if self._told != told else losses + 1
                if not _can_go_on(error) or losses > _LOSSES_MAX:
                    raise
                self._clock.wait(_PAUSE_AFTER_LOSS)

    def _has_images(self, after: Iterable[str]) -> bool:
        return any(name in self._watched.exact for name in after)

    def _follow_by_commands(self, client: Client, after: Mapping[str, int]) -> bool:
        """False if it is to go on another way."""
        databases = _databases(after)
        database = client["admin" if len(databases) > 1 else databases[0]]
        first, *rest = self._pipeline(after)
        if len(databases) > 1:
            first["$changeStream"]["allChangesForCluster"] = True
        size = {"batchSize": 1 if self._is_bare else _BATCH}
        command: dict[str, Any] = {"aggregate": 1, "pipeline": [first, *rest], "cursor": size}
        more = {"collection": "$cmd.aggregate", "maxTimeMS": _AWAIT_MS, **size}
        cursor = 0
        with client.start_session(causal_consistency=False) as session:
            try:
                while self._has_room():
                    reply = read_reply(bytes(database.command(command, codec_options=RAW, session=session).raw))
                    cursor = reply.cursor
                    self._put(Told(reply.batch, reply.token))
                    if not cursor:
                        return True
                    if self._is_bare and reply.batch.starts:
                        return False
                    command = {"getMore": Int64(cursor), **more}
                return True
            finally:
                if cursor:
                    with suppress(PyMongoError):
                        database.command({"killCursors": "$cmd.aggregate", "cursors": [Int64(cursor)]}, session=session)

    def _follow_by_cursor(self, client: Client, after: Mapping[str, int]) -> bool:
        databases = _databases(after)
        place: Any = client if len(databases) > 1 else client[databases[0]]
        first, *rest = self._pipeline(after)
        asked = first["$changeStream"]
        options = {ours: asked[theirs] for theirs, ours in _DRIVERS_NAMES.items() if theirs in asked}
        with place.watch(rest, max_await_time_ms=_AWAIT_MS, **options) as stream:
            events: list[bytes] = []
            while self._has_room():
                event = stream.try_next()
                if event is not None:
                    events.append(event.raw)
                if events and (event is None or self._is_bare or len(events) >= _BATCH_OF_DRIVER):
                    self._put(Told(ReplyBatch.joined(events), _token_text(stream.resume_token)))
                    events = []
                    if self._is_bare:
                        return False
                elif event is None:
                    self._put(Told(ReplyBatch.joined(()), _token_text(stream.resume_token)))
                    if not stream.alive:
                        return True
            return True

    def _put(self, told: Told) -> None:
        self._put_bytes += len(told.batch.data)
        self._told += 1
        self._token = told.token or self._token
        self._queue.put(told)
        while self._put_bytes - self._taken_bytes > _QUEUED_BYTES and self._has_room():
            self._clock.wait(_PAUSE)

    def _pipeline(self, after: Mapping[str, int]) -> list[dict[str, Any]]:
        start = min(after.values())
        asked: dict[str, Any] = {"startAtOperationTime": Timestamp(start >> 32, (start & 0xFFFFFFFF) + 1)}
        if self._token:
            asked = {"resumeAfter": {"_data": self._token}}
        if not self._is_bare:
            asked |= {"fullDocument": "whenAvailable"} if self._has_images(after) else {}
            asked |= {"fullDocumentBeforeChange": "whenAvailable"} if self._watched.before else {}
        names = [name.partition(".") for name in after]
        wanted: list[dict[str, Any]] = [
            {"ns.db": database, "ns.coll": {"$in": [coll for own, _, coll in names if own == database]}}
            for database in _databases(after)
        ]
        told = {"operationType": {"$in": list(_TOLD)}, "$or": wanted}
        return [
            {"$changeStream": asked},
            {"$match": {"$or": [told, {"operationType": {"$in": list(ENDS)}}]}},
            {"$unset": list(_NOT_NEEDED)},
        ]


def _can_go_on(error: PyMongoError) -> bool:
    """Whether the stream can be taken up behind its last event."""
    if isinstance(error, OperationFailure):
        return error.code not in HISTORY_LOST and (
            isinstance(error, CursorNotFound) or error.has_error_label("ResumableChangeStreamError")
        )
    return isinstance(error, ConnectionFailure)


def _databases(names: Iterable[str]) -> list[str]:
    return sorted({name.partition(".")[0] for name in names})


def _token_text(token: Any) -> str:
    return "" if token is None else str(token["_data"])


def token_time(token: str) -> int | None:
    """The cluster time that a resume token begins with: the type of a timestamp, then its eight bytes."""
    try:
        return int(token[2:18], 16) if token.startswith("82") and len(token) >= 18 else None
    except ValueError:
        return None
