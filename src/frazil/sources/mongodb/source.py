"""MongoDB as a Source: first loads and one change stream, in one order of positions.

    open        P0 := now, before any scan (H26)
                table without frontier     load from P0
                frontier P0-k, load noted  goes on behind the noted bound; nothing published is read again (H48)
                frontier T                 stream
    poll        ... T1  T2  P0  P0-1  P0-2 ... P0-n  T3  T4 ...
                    `- stream -'  `- load steps -'   `- stream, for all tables
    partitions      of a step: ranges of _id; of a time: spool files of the stream

A step is offered once the stream has passed P0 for the tables that are beyond their load, and what the stream tells
beyond P0 once all steps are: so every table's epochs ascend, whichever of the two it lives from. A reader follows
the collections it was opened for and no others; one that is lost (see `stream.invalidations`) does not keep it from the
rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from frazil.clock import Clock
from frazil.errors import ConfigError, SourceLost
from frazil.model.change import PartitionReport
from frazil.model.frontier import Frontier, LoadProgress, Window
from frazil.model.position import Position, is_before
from frazil.model.schema import KnownTable, SourceSchema
from frazil.sources.base import InputPartition, SourceTable
from frazil.sources.mongodb.client.connection import Client, Server, let_go, look, open_client, translated
from frazil.sources.mongodb.client.deployment import CollectionFacts, Sample, collection_of, counted, present, sampled
from frazil.sources.mongodb.decode.decoder import DecodedCollection, DocumentDecoder
from frazil.sources.mongodb.load.progress import Beginning, Loads, Mismatch, resumed
from frazil.sources.mongodb.load.ranges import NOTHING, Load, in_steps, plan_ranges
from frazil.sources.mongodb.position import ClusterTime
from frazil.sources.mongodb.reader import CollectionReader
from frazil.sources.mongodb.schema.bson_types import DocumentOf, OnConflict
from frazil.sources.mongodb.schema.discover import Describer, Look, Tell, turn_images_on
from frazil.sources.mongodb.schema.schema import CollectionSettings
from frazil.sources.mongodb.stream.invalidations import Loss, replaced
from frazil.sources.mongodb.stream.segments import sweep
from frazil.sources.mongodb.stream.stream import ChangeStream, SegmentLimits
from frazil.sources.mongodb.stream.stream_reader import Watched

LISTED_EVERY = 5.0
"""How soon a collection that a pattern wants is found."""
_PATIENCE = 15.0
_PAUSE = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedCollections:
    """Which collections: those that are `named`, and with patterns every one that `matches`."""

    named: tuple[str, ...]
    matches: Callable[[str], bool]
    has_patterns: bool = False


class MongoDatabase:
    """`look` tells what the documents of partitions are like, by default nothing; `tell` and `warn` report to people (a
    sentence, and facts by name). `spool` belongs to this pipeline alone: each session has a directory of its own there.
    """

    def __init__(
        self,
        uri: str,
        wanted: WantedCollections,
        *,
        settings: Mapping[str, CollectionSettings],
        look: Look,
        limits: SegmentLimits,
        spool: Path,
        clock: Clock,
        tell: Tell,
        warn: Tell,
    ) -> None:
        self._uri = uri
        self._wanted = wanted
        self._settings = settings
        self._look = look
        self._limits = limits
        self._spool = spool
        self._clock = clock
        self._tell = tell
        self._warn = warn
        self._client: Client | None = None
        self._server: Server | None = None
        self._present: dict[str, CollectionFacts] | None = None
        self._listed_at = 0.0
        self._opened: frozenset[str] = frozenset()
        self._stream: ChangeStream | None = None
        self._loads = Loads()
        self._losses: dict[str, Loss] = {}
        self._counts: list[Mismatch] = []
        self._reached: Position | None = None
        self._taken: ClusterTime | None = None
        self._now = 0
        self._is_told = False
        self._describer = Describer(settings, look, self._sample, tell)

    def for_tables(self, tables: Collection[str]) -> MongoDatabase:
        return MongoDatabase(
            self._uri,
            WantedCollections(named=tuple(sorted(tables)), matches=lambda _: False),
            settings=self._settings,
            look=self._look,
            limits=self._limits,
            spool=self._spool,
            clock=self._clock,
            tell=self._tell,
            warn=self._warn,
        )

    # the deployment

    @property
    def incarnation(self) -> str:
        return self._known_server().incarnation

    def tables(self) -> Sequence[SourceTable]:
        """The named collections, whether they are there yet or not, and those that a pattern matches by now."""
        if self._wanted.has_patterns and self._clock.monotonic() - self._listed_at >= LISTED_EVERY:
            self._present = None
        return [SourceTable(name) for name in sorted({*self._wanted.named, *self._collections()})]

    def remarks(self, table: str) -> Sequence[str]:
        """What `frazil check` says of a collection beside its columns."""
        return self._describer.remarks(table, self._collections().get(table))

    def left_out(self, table: str) -> Mapping[str, int]:
        """Fields that an explicit mapping left out since the start, each with the number of documents that had a
        value."""
        return self._describer.left_out(table)

    # reading

    def initial(self, frontiers: Mapping[str, Frontier | None]) -> None:
        """Collections that cannot be taken up are told by `lost`."""
        self._end_stream()
        sweep(self._spool)
        self._server = self._present = None
        self._opened = frozenset(frontiers)
        server, there = self._known_server(), self._collections()
        self._now = server.now.time
        self._loads, self._losses, self._counts = Loads(), {}, []
        self._reached = self._taken = None
        self._is_told = False
        after: dict[str, int] = {}
        for name, frontier in sorted(frontiers.items()):
            self._must_show_before(name)
            facts = _noted(frontier)
            if facts.get("uuid") and facts["uuid"] != self._uuid(name):
                self._losses[name] = replaced(name, name in there)
                continue
            if frontier is None:
                after[name] = self._now
                self._begin_load(name, Beginning(self._now))
                continue
            position = _cluster_time(frontier.position)
            after[name] = position.time
            if (beginning := resumed(position, facts)) is not None:
                self._begin_load(name, beginning)
        positions = [one.position for name, one in frontiers.items() if one is not None and name in after]
        if positions and len(positions) == len(after):
            self._reached = min(positions, key=lambda position: position.order)
        if after:
            self._begin_stream(server, after)

    def _begin_stream(self, server: Server, after: Mapping[str, int]) -> None:
        there = self._collections()
        self._stream = ChangeStream(
            self._uri,
            Watched(
                after=after,
                exact=frozenset(name for name in after if name in there and there[name].has_images),
                before=frozenset(name for name in after if self._settings[name].wants_before),
            ),
            stops=[*self._loads.times, self._now],
            limits=self._limits,
            directory=self._spool / self._clock.new_uuid().hex[:12],
            clock=self._clock,
            is_sharded=server.is_sharded,
        )
        self._stream.begin()

    def latest(self) -> tuple[Position, ...]:
        """Steps of loads and times of the stream, in order. Waits while the stream catches up with what had happened
        before `open`."""
        if self._stream is None:
            return ()
        if self._taken is not None:
            # Whoever asks for more has written what was handed out; after a failure the stream is read again.
            self._stream.forget(self._taken)
        self._stream.make_room(self._loads.are_ahead(self._is_ahead))
        self._compare_counts(self._stream)
        found = self._resolved(self._stream)
        idle_since, events = self._clock.monotonic(), self._stream.events
        while not found and not self._is_told:
            self._stream.check()
            self._stream.wait(_PAUSE)
            found = self._resolved(self._stream)
            if self._stream.events != events:
                idle_since, events = self._clock.monotonic(), self._stream.events
            elif self._clock.monotonic() - idle_since > _PATIENCE:
                break
        if not found:
            self._stream.check()
        return found

    @property
    def is_caught_up(self) -> bool:
        return self._stream is None or self._is_told

    def _resolved(self, stream: ChangeStream) -> tuple[Position, ...]:
        # Asked first: what the stream passes a moment later is not among what is found here.
        self._is_told = stream.has_passed(self._now)
        for name in stream.losses:
            self._loads.end(name)
        segments = [segment.upper for segment in stream.segments() if self._is_ahead(segment.upper)]
        for time in self._loads.times:
            steps = self._loads.steps(time, self._is_ahead)
            if steps:
                before = [upper for upper in segments if upper.time <= time]
                # Either of the two, since steps alone need no shuffle. What follows the load in the stream waits until
                # all its steps are taken.
                return tuple(before) if before or not stream.has_passed(time) else tuple(steps)
        return tuple(segments)

    def _is_ahead(self, position: ClusterTime) -> bool:
        return is_before(self._reached, position)

    def partitions(
        self, window: Window, frontiers: Mapping[str, Frontier | None], index: Mapping[str, int]
    ) -> Sequence[InputPartition]:
        """Ranges of the load steps in the window, and spool files of its times. None of a collection that is lost."""
        upper = self._reached = self._taken = _cluster_time(window.upper)
        found: list[InputPartition] = []
        segments = () if self._stream is None else self._stream.segments()
        losses = self._all_losses()
        for name, number in index.items():
            frontier = frontiers.get(name)
            tip = None if frontier is None else frontier.position
            if name not in losses:
                found += self._loads.partitions(name, number, frontier, upper)
            for segment in segments:
                if name in losses and segment.upper.time >= losses[name].time:
                    break
                file = segment.files.get(name)
                if file is not None and is_before(tip, segment.upper) and not is_before(upper, segment.upper):
                    found.append(InputPartition(number, file.path, json.dumps({"spooled": name}), file.size))
        return found

    def lost_tables(self) -> Mapping[str, SourceLost]:
        """A collection whose last changes were not handed out yet is still followed."""
        segments = () if self._stream is None else self._stream.segments()
        ahead = [segment for segment in segments if self._is_ahead(segment.upper)]
        return {
            name: loss.error
            for name, loss in self._all_losses().items()
            if not any(name in segment.files and segment.upper.time < loss.time for segment in ahead)
        }

    def _all_losses(self) -> dict[str, Loss]:
        return {**self._losses, **({} if self._stream is None else self._stream.losses)}

    def loading(self, table: str) -> LoadProgress | None:
        return self._loads.progress(table)

    def is_loaded(self, frontier: Frontier | None) -> bool:
        return frontier is not None and _noted(frontier).get("load") is None

    def resume_state(self, table: str, upper: Position, reports: Sequence[PartitionReport]) -> str:
        """The load's next bound while there is one, the newest resume token, the collection's own id."""
        position = _cluster_time(upper)
        self._describer.count(table, reports)
        facts: dict[str, object] = {"uuid": self._uuid(table), "token": self._token_before(position)}
        if load := self._loads.noted(table, position, reports):
            facts |= load
            self._report_load(table)
        return json.dumps({name: value for name, value in facts.items() if value not in ("", None)})

    def commit(self, published: Position) -> None:
        """The oplog forgets by itself."""

    def stop(self) -> None:
        self._end_stream()
        if self._client is not None:
            let_go(self._client)
            self._client = None

    # source schemas, readers, decoders

    def schemas(
        self,
        partitions: Sequence[InputPartition],
        targets: Mapping[str, KnownTable],
        *,
        look: bool = False,
        ask: bool = False,
    ) -> Mapping[str, SourceSchema]:
        """Raises ConfigError for an impossible mapping."""
        return self._describer.schemas(partitions, targets, look)

    def schema_changed(self, table: str, partitions: Sequence[InputPartition]) -> bool:
        """A collection has no schema that could change by itself."""
        return False

    def preview(self, table: str, target: KnownTable | None) -> SourceSchema | None:
        return self._describer.source_schema(table, self._describer.sample(table), target)

    def reader(self, index: Mapping[str, int], schemas: Mapping[str, SourceSchema]) -> CollectionReader:
        mapped = {number: roots for name, number in index.items() if (roots := self._settings[name].roots) is not None}
        return CollectionReader(self._uri, {number: name for name, number in index.items()}, mapped)

    def decoder(self, index: Mapping[str, int], schemas: Mapping[str, SourceSchema]) -> DocumentDecoder:
        return DocumentDecoder(
            {
                number: DecodedCollection(name, schemas[name], self._settings[name].is_explicit)
                for name, number in index.items()
                if name in schemas
            }
        )

    # inside

    def _connection(self) -> Client:
        if self._client is None:
            self._client = open_client(self._uri)
        return self._client

    def _known_server(self) -> Server:
        if self._server is None:
            self._server = look(self._connection(), self._uri)
        return self._server

    def _collections(self) -> dict[str, CollectionFacts]:
        if self._present is None:
            self._known_server()
            named = {*self._wanted.named, *self._opened}
            with translated(self._uri):
                wants = self._wanted.matches if self._wanted.has_patterns else None
                self._present = present(self._connection(), sorted(named), wants)
            self._listed_at = self._clock.monotonic()
            for name in sorted(named - self._present.keys()):
                self._describer.tell_once("there is no such collection yet", name)
        return self._present

    def _begin_load(self, name: str, at: Beginning) -> None:
        if name not in self._collections():
            self._loads.begin(name, Load(at.time, at.done, NOTHING, at.start), rows=at.rows, total=at.rows)
            return
        with translated(self._uri, name):
            collection = collection_of(self._connection(), name)
            total = collection.estimated_document_count()
            ranges = plan_ranges(collection, at.start)
        steps = in_steps(ranges)
        self._tell("first load", table=name, documents=total, ranges=len(ranges), steps=len(steps), resumed=at.done > 0)
        self._loads.begin(name, Load(at.time, at.done, steps, at.start), rows=at.rows, total=total)

    def _sample(self, name: str, tell: OnConflict) -> Sample:
        if name not in self._collections():
            return Sample(DocumentOf(), None)
        with translated(self._uri, name):
            return sampled(collection_of(self._connection(), name), self._settings[name].sample, tell)

    def _uuid(self, name: str) -> str:
        facts = self._collections().get(name)
        return "" if facts is None else facts.uuid

    def _token_before(self, position: ClusterTime) -> str:
        segments = () if self._stream is None else self._stream.segments()
        tokens = [segment.token for segment in segments if segment.upper <= position and segment.token]
        return tokens[-1] if tokens else ""

    def _report_load(self, name: str) -> None:
        rows, is_read = self._loads.read(name)
        if not is_read:
            self._tell("first load", table=name, documents=rows)
            return
        with translated(self._uri, name):
            there, at = counted(self._connection(), name, rows)
        self._tell("first load is read", table=name, documents=rows, documents_now=there)
        if there != rows:
            self._counts.append(Mismatch(name, rows, there, at))

    def _compare_counts(self, stream: ChangeStream) -> None:
        """Numbers that differ mean something only if nothing changed meanwhile, which the stream tells later."""
        for one in [one for one in self._counts if stream.has_passed(one.at)]:
            self._counts.remove(one)
            if not stream.has_touched(one.name):
                self._warn(one.warning, table=one.name, documents=one.read, documents_now=one.there)

    def _must_show_before(self, name: str) -> None:
        facts = self._collections().get(name)
        if facts is None or facts.has_images or not self._settings[name].wants_before:
            return
        raise ConfigError(
            f"{name}: a changelog keeps documents as they were before each change, and this collection has no "
            "pre-images",
            hint=f"{turn_images_on(name)}, then start again; or leave out `changelog` and `deletes: append-only`.",
            table=name,
        )

    def _end_stream(self) -> None:
        if self._stream is not None:
            self._stream.stop()
            self._stream = None


def _noted(frontier: Frontier | None) -> dict[str, object]:
    return json.loads(frontier.notes) if frontier is not None and frontier.notes else {}


def _cluster_time(position: Position) -> ClusterTime:
    if not isinstance(position, ClusterTime):
        raise SourceLost(
            f"{position} is no position of MongoDB",
            hint="The pipeline's name was used with another kind of source: choose another name.",
        )
    return position
