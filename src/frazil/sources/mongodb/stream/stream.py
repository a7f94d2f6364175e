"""What the change stream tells, in the spool, cut between cluster times.

    Watching --events--> documents looked up --> spool --cut--> segments --> the source hands them out as partitions
        ^                                                          |
        `----------- waits while too much is unread <--------------'

A segment ends when it holds `max_records` or `max_bytes`, or is `flush_interval` old, and then at the next change of
the cluster time: what a transaction did lies in one segment. It also ends at every moment in `stops`: there a first
load begins, or the stream has caught up with the server at the start. Changes of one cluster time are numbered in their
order. When nothing happens, the newest time that the stream has passed is told now and then, so that frontiers move on
and the oplog is never outlived.

drop, rename, dropDatabase: what lies before is handed out, then the collection is lost; the others go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Thread

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from bson.timestamp import Timestamp

from frazil.clock import Clock
from frazil.errors import FrazilError, SourceUnavailable
from frazil.model.change import Op
from frazil.sources.mongodb.decode.bson_scan import Bits, Ints
from frazil.sources.mongodb.position import ClusterTime
from frazil.sources.mongodb.reader import SPOOLED
from frazil.sources.mongodb.stream.events import Events, events_of
from frazil.sources.mongodb.stream.invalidations import Loss, concerned, gone, outlived
from frazil.sources.mongodb.stream.post_images import Lookups
from frazil.sources.mongodb.stream.segments import Segment, SegmentSpool, forget
from frazil.sources.mongodb.stream.stream_reader import (
    ENDS,
    Item,
    Outlived,
    StreamEnded,
    Told,
    Watched,
    Watching,
    token_time,
)

UNREAD_BYTES = 1 << 30
"""So much is read ahead; more while a first load runs, or the stream would fall out of the oplog meanwhile."""
UNREAD_BYTES_LOADING = 16 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLimits:
    max_records: int = 50_000
    max_bytes: int = 128 << 20
    flush_interval: float = 60.0


class ChangeStream:
    """Reads from behind the oldest of `watched.after` until it is stopped. `directory` is this session's own."""

    def __init__(
        self,
        uri: str,
        watched: Watched,
        *,
        stops: Sequence[int],
        limits: SegmentLimits,
        directory: Path,
        clock: Clock,
        is_sharded: bool,
    ) -> None:
        start = min(watched.after.values())
        self._followed = dict(watched.after)
        self._wants_before = frozenset(watched.before)
        self._limits = limits
        self._clock = clock
        self._is_sharded = is_sharded
        self._stops = sorted(stop for stop in set(stops) if stop > start)
        self._spool = SegmentSpool(directory)
        self._time = start
        self._counted = (-1, 0)
        self._last: tuple[Events, int] | None = None
        self._token = ""
        self._opened_at: float | None = None
        self._told_at = clock.monotonic()
        self._changed = Condition()
        self._segments: list[Segment] = []
        self._unread = 0
        self._passed = start
        self._events = 0
        self._touched: set[str] = set()
        self._losses: dict[str, Loss] = {}
        self._failure: FrazilError | None = None
        self._is_over = False
        self._stopped = False
        self._room = UNREAD_BYTES
        self._lookups = Lookups(uri)
        self._watching = Watching(uri, watched, self._has_room, clock)
        self._thread = Thread(target=self._run, name="frazil-change-spool", daemon=True)

    def begin(self) -> None:
        self._watching.begin()
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._watching.end()
        if self._thread.ident is not None:
            self._thread.join(timeout=30)
        self._spool.remove()

    @property
    def events(self) -> int:
        """How many were read: whoever waits sees that it goes on."""
        return self._events

    @property
    def losses(self) -> Mapping[str, Loss]:
        """Collections that it no longer follows."""
        with self._changed:
            return dict(self._losses)

    def has_touched(self, name: str) -> bool:
        """Whether it has met a change of this collection."""
        return name in self._touched

    def has_passed(self, time: int) -> bool:
        """Whether all that happened up to then lies in finished segments, as far as it still can be told."""
        with self._changed:
            return self._passed >= time or (self._is_over and self._failure is None)

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
            self._changed.wait_for(lambda: len(self._segments) != before or self._is_over, seconds)

    def make_room(self, is_loading: bool) -> None:
        """How much may be read ahead from now on."""
        with self._changed:
            self._room = UNREAD_BYTES_LOADING if is_loading else UNREAD_BYTES
            self._changed.notify_all()

    def forget(self, done: ClusterTime) -> None:
        """Removes segments that nobody will read again."""
        with self._changed:
            gone_by = [segment for segment in self._segments if segment.upper <= done]
            self._segments = [segment for segment in self._segments if segment.upper > done]
            self._unread = sum(segment.size for segment in self._segments)
            self._changed.notify_all()
        for segment in gone_by:
            forget(segment)

    # in the thread

    def _has_room(self) -> bool:
        # Asked for each event; what it reads changes seldom, and the next event sees it.
        if self._unread < self._room and not self._stopped and self._followed:
            return True
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or not self._followed or self._unread < self._room)
            return not self._stopped and bool(self._followed)

    def _run(self) -> None:
        error: FrazilError | None = None
        try:
            while not self._stopped:
                item = self._watching.take()
                if isinstance(item, StreamEnded):
                    error = item.error
                    break
                self._take(item)
        except FrazilError as known:
            error = known
        except Exception as unknown:
            error = SourceUnavailable(f"the change stream cannot be read: {type(unknown).__name__}: {unknown}")
        finally:
            self._lookups.close()
        if error is None and self._followed and not self._stopped:
            error = SourceUnavailable("the change stream ended without a reason", hint="Frazil tries again.")
        with self._changed:
            self._failure = error
            self._is_over = True
            self._changed.notify_all()

    def _take(self, item: Item) -> None:
        match item:
            case Told(batch, token):
                for events in events_of(batch) if batch.starts else ():
                    self._events += len(events)
                    self._tell(events)
                if not batch.starts:
                    self._nothing(token)
            case Outlived(names, said):
                self._lose([outlived(name, self._followed[name], said) for name in names if name in self._followed])

    def _tell(self, events: Events) -> None:
        """Changes of documents, up to each event that ends a collection."""
        ends = np.isin(events.ops, [code for code, op in enumerate(events.all_ops) if op in ENDS])
        order = self._order(events)
        begin = 0
        for at in [*np.flatnonzero(ends).tolist(), len(events)]:
            self._put_all(events, order, begin, at)
            if at < len(events):
                self._end(events, at)
            begin = at + 1

    def _order(self, events: Events) -> Ints:
        """The number of each event among those of its cluster time, of which some may have come before."""
        times = events.times
        order = np.arange(len(times)) - np.searchsorted(times, times)
        if times[0] == self._counted[0]:
            order[times == times[0]] += self._counted[1]
        self._counted = (int(times[-1]), int(order[-1]) + 1)
        return order

    def _put_all(self, events: Events, order: Ints, begin: int, end: int) -> None:
        """Piece by piece: each ends where a segment is full or a stop is passed, and then at the next cluster time, or
        where enough documents are to be looked up."""
        nobody = np.iinfo(np.int64).max
        after = np.array([self._followed.get(name, nobody) for name in events.all_names], np.int64)
        rows = begin + np.flatnonzero((events.times > after[events.names])[begin:end])
        lacking = ~events.has_document(rows) & (events.ops[rows] != _code(events.all_ops, "delete"))
        sizes = np.cumsum(events.sizes[rows])
        while len(rows):
            first = int(rows[0])
            self._arrive(int(events.times[first]))
            room = max(self._limits.max_records - self._spool.rows, 1)
            full = int(np.searchsorted(sizes - sizes[0], max(self._limits.max_bytes - self._spool.size, 1)))
            last = min(room, full + 1, len(rows)) - 1
            stop = int(np.searchsorted(events.times[rows], events.times[rows[last]], side="right"))
            if self._stops:
                stop = min(stop, int(np.searchsorted(events.times[rows], self._stops[0], side="right")))
            asking = np.flatnonzero(lacking[:stop])
            if len(asking):
                stop = min(stop, int(asking[: self._lookups.at_once(self._name(events, rows[asking[0]]))][-1]) + 1)
            self._put(events, order, rows[:stop], lacking[:stop])
            rows, lacking, sizes = rows[stop:], lacking[stop:], sizes[stop:]

    def _name(self, events: Events, row: int) -> str:
        return events.all_names[int(events.names[row])]

    def _put(self, events: Events, order: Ints, rows: Ints, lacking: Bits) -> None:
        for code in np.unique(events.names[rows]):
            name, own = events.all_names[code], events.names[rows] == code
            self._touched.add(name)
            told = self._rows(name, events, order, rows[own], lacking[own])
            if told.num_rows:
                self._spool.add(name, told)
                if self._opened_at is None:
                    self._opened_at = self._clock.monotonic()
        self._time = int(events.times[rows[-1]])
        self._last = events, int(rows[-1])

    def _rows(self, name: str, events: Events, order: Ints, rows: Ints, lacking: Bits) -> pa.RecordBatch:
        """SPOOLED rows. A document that is gone by now is left out: the event that tells so is still to come."""
        keys, deleted = events.keys(rows, name), events.ops[rows] == _code(events.all_ops, "delete")
        there = ~lacking & ~deleted
        documents = events.documents(rows[there])
        places = np.cumsum(there) - 1
        known = there.copy()
        if lacking.any():
            found_keys, found = self._looked_up(name, events, rows[lacking], keys.filter(pa.array(lacking)))
            at = pc.index_in(keys, value_set=found_keys)
            is_found = lacking & at.is_valid().to_numpy(zero_copy_only=False)
            places = np.where(is_found, len(documents) + at.fill_null(0).to_numpy().astype(np.int64), places)
            documents, known = pa.concat_arrays([documents, found]), known | is_found
        columns = [
            keys,
            pa.array(events.times[rows]),
            pa.array(order[rows]),
            pa.array(np.where(deleted, int(Op.DELETE), int(Op.UPSERT)).astype(np.int32)),
            documents.take(pa.array(places, mask=~known)),
            events.befores(rows) if name in self._wants_before else pa.nulls(len(rows), pa.binary()),
        ]
        told = pa.RecordBatch.from_arrays(columns, schema=SPOOLED)
        return told if (known | deleted).all() else told.filter(pa.array(known | deleted))

    def _looked_up(self, name: str, events: Events, rows: Ints, keys: pa.Array) -> tuple[pa.Array, pa.Array]:
        ids = dict(zip(keys.to_pylist(), events.ids(rows), strict=True))
        newest = int(events.times[rows[-1]])
        return self._lookups.find(name, list(ids.values()), Timestamp(newest >> 32, newest & 0xFFFFFFFF))

    def _arrive(self, time: int) -> None:
        """The stream is at this cluster time from now on."""
        while self._stops and time > self._stops[0]:
            self._cut(self._stops.pop(0))
        if time > self._time:
            if self._is_due():
                self._cut(self._time)
            self._time = time

    def _end(self, events: Events, row: int) -> None:
        """What happened before is published first."""
        time, op = int(events.times[row]), events.all_ops[events.ops[row]]
        database, _, collection = events.all_names[events.names[row]].partition(".")
        where = {"db": database} | ({"coll": collection} if collection else {})
        names = list(self._followed) if op == "invalidate" else concerned(self._followed, where, events.to(row))
        lost = [gone(name, op, time) for name in names if time > self._followed[name]]
        self._arrive(time)
        if lost:
            self._cut(time - 1)
            self._lose(lost)
        self._last = events, row

    def _lose(self, losses: Sequence[Loss]) -> None:
        with self._changed:
            for loss in losses:
                name = loss.error.facts["table"]
                self._followed.pop(name, None)
                self._losses.setdefault(name, loss)
            self._changed.notify_all()

    def _nothing(self, token: str) -> None:
        """All that had happened was read."""
        passed = token_time(token)
        if passed is not None and self._is_sharded:
            passed -= 1  # a shard may still tell of something at the very same time
        if passed is not None and passed >= self._time:
            self._token, self._last = token, None
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
        if self._last is not None:
            self._token = self._last[0].token(self._last[1])
        segment = self._spool.close(ClusterTime(time), self._token)
        self._opened_at, self._told_at = None, self._clock.monotonic()
        with self._changed:
            self._segments.append(segment)
            self._unread += segment.size
            self._passed = time
            self._changed.notify_all()


def _code(names: Sequence[str], name: str) -> int:
    return names.index(name) if name in names else -1
