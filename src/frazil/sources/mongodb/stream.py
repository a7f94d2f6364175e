"""One change stream for all collections of a pipeline, read by a thread into the spool.

    watch, raw events --> spool --cut between cluster times--> segments --> the source hands them out as splits
                            ^                                      |
                            `---- waits while too much is unread <-'

A segment ends when it holds `max_records` or `max_bytes`, or is `flush_interval` old, and then at the next change of
the cluster time: what a transaction did lies in one segment. It also ends at every moment in `stops`: there a first
load begins, or the stream has caught up with the server at the start. Changes of one cluster time are numbered in their
order. When nothing happens, the newest time that the stream has passed is told now and then, so that frontiers move on
and the oplog is never outlived.

drop, rename, dropDatabase, invalidate: what lies before is handed out, then the stream ends with SourceLost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Thread
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from frazil.clock import Clock
from frazil.errors import FrazilError, SourceLost, SourceUnavailable
from frazil.model.change import Op
from frazil.model.position import ClusterTime
from frazil.sources.mongodb.client import translated, translation
from frazil.sources.mongodb.ids import CODEC, id_text
from frazil.sources.mongodb.reader import key_of
from frazil.sources.mongodb.spool import Segment, Spool, forget

UNREAD_BYTES = 1 << 30
"""So much is read ahead; more while a first load runs, or the stream would fall out of the oplog meanwhile."""
UNREAD_BYTES_LOADING = 16 << 30
_AWAIT_MS = 250
_UPSERTS = frozenset(("insert", "update", "replace"))
_ENDS = frozenset(("drop", "rename", "dropDatabase", "invalidate"))
_NOT_NEEDED = ["updateDescription", "wallTime", "lsid", "txnNumber", "collectionUUID"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    max_records: int = 50_000
    max_bytes: int = 128 << 20
    flush_interval: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What a stream tells of: `after` are the collections, each with the cluster time behind which its changes count;
    `is_new` tells whether a collection that is not among them is wanted. `exact` if the server keeps post-images of all
    of them."""

    after: Mapping[str, int]
    is_new: Callable[[str], bool]
    everywhere: bool = False
    exact: bool = False


class ChangeStream:
    """Reads from behind `start` until it is stopped. `directory` is this session's own."""

    def __init__(
        self,
        uri: str,
        watched: Watched,
        *,
        start: int,
        stops: Sequence[int],
        limits: Limits,
        directory: Path,
        clock: Clock,
        is_sharded: bool,
    ) -> None:
        self._uri = uri
        self._watched = watched
        self._limits = limits
        self._clock = clock
        self._is_sharded = is_sharded
        self._stops = sorted(stop for stop in set(stops) if stop > start)
        self._spool = Spool(directory)
        self._start = start
        self._time = start
        self._sequence = 0
        self._token = ""
        self._opened_at: float | None = None
        self._told_at = clock.monotonic()
        self._changed = Condition()
        self._segments: list[Segment] = []
        self._passed = start
        self._events = 0
        self._failure: FrazilError | None = None
        self._stopped = False
        self._room = UNREAD_BYTES
        self._thread = Thread(target=self._run, name="frazil-change-stream", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout=30)
        self._spool.remove()

    @property
    def events(self) -> int:
        """How many were read: whoever waits sees that it goes on."""
        return self._events

    def has_passed(self, time: int) -> bool:
        """Whether all that happened up to then lies in finished segments."""
        with self._changed:
            return self._passed >= time

    def segments(self) -> tuple[Segment, ...]:
        with self._changed:
            return tuple(self._segments)

    def check(self) -> None:
        """Raises what ended the stream."""
        with self._changed:
            if self._failure is not None:
                raise self._failure

    def wait(self, seconds: float) -> None:
        """For a new segment or the end of the stream, or so long."""
        with self._changed:
            before = len(self._segments)
            self._changed.wait_for(lambda: len(self._segments) != before or self._failure is not None, seconds)

    def make_room(self, is_loading: bool) -> None:
        """How much may be read ahead from now on."""
        with self._changed:
            self._room = UNREAD_BYTES_LOADING if is_loading else UNREAD_BYTES
            self._changed.notify_all()

    def forget(self, done: ClusterTime) -> None:
        """Removes segments that nobody will read again."""
        with self._changed:
            gone = [segment for segment in self._segments if segment.upper <= done]
            self._segments = [segment for segment in self._segments if segment.upper > done]
            self._changed.notify_all()
        for segment in gone:
            forget(segment)

    # in the thread

    def _run(self) -> None:
        try:
            with translated(self._uri):
                self._read()
        except FrazilError as error:
            self._fail(error)
        except PyMongoError as error:
            self._fail(translation(error, self._uri))
        except Exception as error:
            self._fail(SourceUnavailable(f"the change stream ended: {type(error).__name__}: {error}"))

    def _fail(self, error: FrazilError) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def _read(self) -> None:
        options: dict[str, Any] = {"document_class": RawBSONDocument, "appname": "frazil"}
        with MongoClient[Any](self._uri, **options) as client, self._watch(client) as stream:
            while self._has_room():
                event = stream.try_next()
                if event is None:
                    self._nothing(_token_text(stream.resume_token))
                elif not self._take(event, client):
                    return

    def _watch(self, client: MongoClient[Any]) -> Any:
        """On as little as possible: what is watched decides which rights are needed, and what the server reads."""
        names = [name.partition(".") for name in self._watched.after]
        databases = {database for database, _, _ in names}
        match: dict[str, Any] = {"$or": [{"ns.db": db, "ns.coll": coll} for db, _, coll in names]}
        match["$or"] += [{"operationType": {"$in": sorted(_ENDS)}}]
        pipeline: list[dict[str, Any]] = [] if self._watched.everywhere else [{"$match": match}]
        pipeline.append({"$unset": _NOT_NEEDED})
        options: dict[str, Any] = {
            "full_document": "whenAvailable" if self._watched.exact else "updateLookup",
            "start_at_operation_time": Timestamp(self._start >> 32, (self._start & 0xFFFFFFFF) + 1),
            "max_await_time_ms": _AWAIT_MS,
        }
        if self._watched.everywhere or len(databases) > 1:
            return client.watch(pipeline, **options)
        (database,) = databases
        if len(names) > 1:
            return client[database].watch(pipeline, **options)
        return client[database][names[0][2]].watch(pipeline, **options)

    def _has_room(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._unread < self._room)
            return not self._stopped

    @property
    def _unread(self) -> int:
        return sum(file.size for segment in self._segments for file in segment.files.values())

    def _take(self, event: RawBSONDocument, client: MongoClient[Any]) -> bool:
        """False if the stream ends here."""
        self._events += 1
        time, op, where = _packed(event["clusterTime"]), event["operationType"], event.get("ns")
        while self._stops and time > self._stops[0]:
            self._cut(self._stops.pop(0))
        if time > self._time:
            if self._is_due():
                self._cut(self._time)
            self._time, self._sequence = time, 0
        if op in _ENDS:
            lost = self._lost(op, where, event.get("to"), time)
            if lost is not None:
                self._end(time, lost)
                return False
            return True
        name = f"{where['db']}.{where['coll']}" if where is not None and "coll" in where else ""
        after = self._watched.after.get(name)
        if after is None:
            if op in _UPSERTS and self._watched.is_new(name):
                self._end(time, SourceUnavailable(f"a new collection {name} is taken up", table=name))
                return False
            return True
        if time > after:
            self._put(name, op, event, client)
        self._token = _token_text(event["_id"])
        return True

    def _put(self, name: str, op: str, event: RawBSONDocument, client: MongoClient[Any]) -> None:
        position = (self._time, self._sequence)
        if op == "delete":
            key = id_text(bson.decode(event["documentKey"].raw, codec_options=CODEC)["_id"])
            self._spool.add(name, key, position, Op.DELETE, None)
        elif op in _UPSERTS:
            document = event.get("fullDocument") or self._looked_up(name, event, client)
            if document is None:
                # It is gone by now, and the event that tells so is still to come.
                return
            payload = bytes(document.raw)
            self._spool.add(name, key_of(payload, name), position, Op.UPSERT, payload)
        else:
            return
        self._sequence += 1
        if self._opened_at is None:
            self._opened_at = self._clock.monotonic()

    def _looked_up(self, name: str, event: RawBSONDocument, client: MongoClient[Any]) -> Any:
        """A post-image may have expired: then the document as it is now stands in, as it does without post-images."""
        if not self._watched.exact:
            return None
        database, _, collection = name.partition(".")
        return client[database][collection].find_one({"_id": event["documentKey"]["_id"]})

    def _nothing(self, token: str) -> None:
        """All that had happened was read."""
        passed = _token_time(token)
        if passed is not None and self._is_sharded:
            passed -= 1  # a shard may still tell of something at the very same time
        if passed is not None and passed >= self._time:
            self._token = token
        while self._stops and passed is not None and passed >= self._stops[0]:
            self._cut(self._stops.pop(0))
        if self._spool.rows:
            if self._is_due() and not (self._is_sharded and (passed is None or passed < self._time)):
                self._cut(self._time)
        elif passed is not None and passed > self._passed and self._is_time_to_tell():
            self._cut(passed)

    def _is_due(self) -> bool:
        if not self._spool.rows:
            return False
        if self._spool.rows >= self._limits.max_records or self._spool.size >= self._limits.max_bytes:
            return True
        now, opened = self._clock.monotonic(), self._opened_at
        return opened is not None and now - opened >= self._limits.flush_interval

    def _is_time_to_tell(self) -> bool:
        return self._clock.monotonic() - self._told_at >= self._limits.flush_interval

    def _cut(self, time: int) -> None:
        if time <= self._passed:
            return
        segment = self._spool.close(ClusterTime(time), self._token)
        self._opened_at, self._told_at = None, self._clock.monotonic()
        with self._changed:
            self._segments.append(segment)
            self._passed = time
            self._changed.notify_all()

    def _end(self, time: int, error: FrazilError) -> None:
        """What happened before is published first."""
        self._cut(time - 1)
        self._fail(error)

    def _lost(self, op: str, where: Any, to: Any, time: int) -> SourceLost | None:
        concerned = [name for name, after in self._watched.after.items() if time > after and _names(where, to, name)]
        if op == "invalidate":
            concerned = list(self._watched.after)
        if not concerned:
            return None
        did = {"rename": "renamed", "dropDatabase": "dropped with its database", "drop": "dropped"}.get(
            op, "invalidated"
        )
        names = ", ".join(concerned)
        return SourceLost(
            f"{names}: the collection was {did} at {ClusterTime(time)}; its table stays as it was before",
            hint=f"If this was meant: drop the Iceberg table of {names} (or its entry under `tables:`) and start the "
            "pipeline; a collection of that name is loaded anew.",
            table=concerned[0],
            tables=concerned,
        )


def _names(where: Any, to: Any, name: str) -> bool:
    database, _, collection = name.partition(".")
    places = [place for place in (where, to) if place is not None]
    return any(place["db"] == database and place.get("coll", collection) == collection for place in places)


def _packed(time: Timestamp) -> int:
    return time.time << 32 | time.inc


def _token_text(token: Any) -> str:
    return "" if token is None else str(token["_data"])


def _token_time(token: str) -> int | None:
    """The cluster time that a resume token begins with: the type of a timestamp, then its eight bytes."""
    try:
        return int(token[2:18], 16) if token.startswith("82") and len(token) >= 18 else None
    except ValueError:
        return None
