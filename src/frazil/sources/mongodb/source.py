"""MongoDB as a Source: first loads and one change stream, in one order of positions.

    open        P0 := now, before any scan (H26)
                table without frontier     load from P0
                frontier P0-k, load noted  goes on behind the noted bound; nothing published is read again (H48)
                frontier T                 stream
    poll        ... T1  T2  P0  P0-1  P0-2 ... P0-n  T3  T4 ...
                    `- stream -'  `- load steps -'   `- stream, for all tables
    splits      of a step: ranges of _id; of a time: spool files of the stream

A step is offered once the stream has passed P0 for the tables that are beyond their load, and what the stream tells
beyond P0 once all steps are: so every table's epochs ascend, whichever of the two it lives from.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from frazil.clock import Clock
from frazil.errors import SourceLost
from frazil.model.change import SplitReport
from frazil.model.columns import TableShape
from frazil.model.epoch import Frontier, Window
from frazil.model.ports import SourceTable, Split
from frazil.model.position import WHOLE, ClusterTime, Position, is_before
from frazil.model.remembered import KnownTable
from frazil.sources.mongodb.client import Client, Server, look, open_client, translated
from frazil.sources.mongodb.decode import DecodedCollection, DocumentDecoder
from frazil.sources.mongodb.deployment import CollectionFacts, Sample, collection_of, present, sampled
from frazil.sources.mongodb.kinds import Document, Kind, shown
from frazil.sources.mongodb.looking import joined
from frazil.sources.mongodb.ranges import Load, in_steps, plan_ranges
from frazil.sources.mongodb.reader import Assign, CollectionReader
from frazil.sources.mongodb.shapes import CollectionSettings, missing_paths, shape_of, unmapped
from frazil.sources.mongodb.stream import ChangeStream, Limits, Watched

STEPS_AT_ONCE = 4
_PATIENCE = 15.0
_PAUSE = 1.0

Look = Callable[[Sequence[Split]], Sample]
Tell = Callable[..., None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which collections: those that are `named`, and with patterns every one that `matches`."""

    named: tuple[str, ...]
    matches: Callable[[str], bool]
    has_patterns: bool = False


class MongoDatabase:
    """`look` tells what the documents of splits are like, by default nothing; `tell` reports to people (a sentence, and
    facts by name). `spool` belongs to this pipeline alone."""

    def __init__(
        self,
        uri: str,
        wanted: Wanted,
        *,
        settings: Mapping[str, CollectionSettings],
        look: Look,
        limits: Limits,
        spool: Path,
        clock: Clock,
        tell: Tell,
    ) -> None:
        self._uri = uri
        self._wanted = wanted
        self._settings = settings
        self._look = look
        self._limits = limits
        self._spool = spool
        self._clock = clock
        self._tell = tell
        self._client: Client | None = None
        self._server: Server | None = None
        self._present: dict[str, CollectionFacts] | None = None
        self._stream: ChangeStream | None = None
        self._loads: dict[str, Load] = {}
        self._rows: dict[str, int] = {}
        self._counted: set[str] = set()
        self._reached: Position | None = None
        self._taken: ClusterTime | None = None
        self._start = 0
        self._now = 0
        self._told: set[tuple[str, str]] = set()

    # the deployment

    @property
    def incarnation(self) -> str:
        return self._known_server().incarnation

    def tables(self) -> Sequence[SourceTable]:
        """The named collections, whether they are there yet or not, and those that a pattern matches."""
        return [SourceTable(name) for name in sorted({*self._wanted.named, *self._collections()})]

    def remarks(self, table: str) -> Sequence[str]:
        """What `frazil check` says of a collection beside its columns."""
        facts = self._collections().get(table)
        if facts is None:
            return ["there is no such collection yet: check the name, or wait for its first document"]
        notes = []
        if facts.post_images:
            notes.append("post-images are on: every epoch shows each document as it was then")
        else:
            notes.append(
                "updates are looked up (updateLookup): a document that changes again before the look is shown as it is "
                "then, so an epoch is exact once its keys are quiet. For exact epochs: db.runCommand({collMod: "
                f'"{table.partition(".")[2]}", changeStreamPreAndPostImages: {{enabled: true}}}})'
            )
        settings = self._settings[table]
        if settings.fields is not None:
            seen = self._sample(table).seen
            notes += [f"no document of the sample has {path!r}" for path in missing_paths(settings.fields, seen)]
            left = unmapped(settings.fields, seen)
            notes += [f"not mapped, and left out: {', '.join(left)}"] if left else []
        return notes

    # reading

    def open(self, frontiers: Mapping[str, Frontier | None]) -> None:
        """Raises SourceLost if a collection is another one than before, or the oplog no longer reaches back."""
        self._end_stream()
        self._server = self._present = None
        server, there = self._known_server(), self._collections()
        self._now = server.now.time
        names = sorted({*self._wanted.named, *there, *frontiers})
        after: dict[str, int] = {}
        self._loads, self._rows, self._counted = {}, {}, set()
        self._reached = self._taken = None
        for name in names:
            frontier = frontiers.get(name)
            facts = _noted(frontier)
            self._same_collection(name, facts)
            if frontier is None:
                after[name] = self._now
                self._loads[name] = self._planned(name, self._now, 0, None)
                continue
            position = _cluster_time(frontier.position)
            after[name] = position.time
            if "load" in facts and facts["load"] is not None:
                self._loads[name] = self._planned(name, position.time, position.step - WHOLE, str(facts["load"]))
                self._rows[name] = int(str(facts.get("rows", 0)))
        if not names:
            return
        positions = [frontier.position for frontier in frontiers.values() if frontier is not None]
        if positions and len(positions) == len(frontiers):
            self._reached = min(positions, key=lambda position: position.order)
        self._start = min(after.values())
        exact = bool(there) and all(name in there and there[name].post_images for name in names)
        self._stream = ChangeStream(
            self._uri,
            Watched(
                after=after,
                is_new=lambda name: self._wanted.has_patterns and self._wanted.matches(name),
                everywhere=self._wanted.has_patterns,
                exact=exact,
            ),
            start=self._start,
            stops=[*(load.time for load in self._loads.values()), self._now],
            limits=self._limits,
            directory=self._spool / self._clock.new_uuid().hex[:12],
            clock=self._clock,
            is_sharded=server.is_sharded,
        )
        self._stream.begin()

    def poll(self) -> tuple[Position, ...]:
        """Steps of loads and times of the stream, in order. Waits while the stream catches up with what had happened
        before `open`."""
        if self._stream is None:
            return ()
        if self._taken is not None:
            # Whoever asks for more has written what was handed out; after a failure the stream is read again.
            self._stream.forget(self._taken)
        self._stream.make_room(any(self._is_ahead(load.position(load.last)) for load in self._loads.values()))
        found = self._resolved(self._stream)
        idle_since, events = self._clock.monotonic(), self._stream.events
        while not found and not self._stream.has_passed(self._now):
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

    def _resolved(self, stream: ChangeStream) -> tuple[Position, ...]:
        segments = [segment.upper for segment in stream.segments() if self._is_ahead(segment.upper)]
        for time in sorted({load.time for load in self._loads.values()}):
            loads = [load for load in self._loads.values() if load.time == time]
            first, last = min(load.done for load in loads) + 1, max(load.last for load in loads)
            steps = [position for n in range(first, last + 1) if self._is_ahead(position := loads[0].position(n))]
            if steps:
                before = [upper for upper in segments if upper.time <= time]
                # What follows the load in the stream waits until all its steps are taken.
                return (*before, *steps[:STEPS_AT_ONCE]) if stream.has_passed(time) else tuple(before)
        return tuple(segments)

    def _is_ahead(self, position: ClusterTime) -> bool:
        return is_before(self._reached, position)

    def splits(
        self, window: Window, frontiers: Mapping[str, Frontier | None], index: Mapping[str, int]
    ) -> Sequence[Split]:
        """Ranges of the load steps in the window, and spool files of its times."""
        upper = self._taken = _cluster_time(window.upper)
        if is_before(self._reached, upper):
            self._reached = upper
        found: list[Split] = []
        segments = () if self._stream is None else self._stream.segments()
        for name, number in index.items():
            frontier = frontiers.get(name)
            tip = None if frontier is None else frontier.position
            load = self._loads.get(name)
            if load is not None:
                for step in range(load.done + 1, load.last + 1):
                    position = load.position(step)
                    if is_before(tip, position) and not is_before(upper, position):
                        found += [
                            Split(number, f"{name}@{position}#{at}", piece.to_json(name, position), piece.size)
                            for at, piece in enumerate(load.ranges(step))
                        ]
            for segment in segments:
                file = segment.files.get(name)
                if file is not None and is_before(tip, segment.upper) and not is_before(upper, segment.upper):
                    found.append(Split(number, file.path, json.dumps({"spooled": name}), file.size))
        return found

    def notes(self, table: str, upper: Position, reports: Sequence[SplitReport]) -> str:
        """The load's next bound while there is one, the newest resume token, the collection's own id."""
        position = _cluster_time(upper)
        facts: dict[str, object] = {"uuid": self._uuid(table), "token": self._token_before(position)}
        load = self._loads.get(table)
        if load is not None and position.time == load.time:
            facts["rows"] = self._count_rows(table, position, reports)
            bound = load.bound_behind(position)
            if bound is not None:
                facts["load"] = bound
            self._report_load(table, load, position)
        return json.dumps({name: value for name, value in facts.items() if value not in ("", None)})

    def acknowledge(self, published: Position) -> None:
        """The oplog forgets by itself."""

    def close(self) -> None:
        self._end_stream()
        if self._client is not None:
            self._client.close()
            self._client = None

    # shapes and roads

    def shapes(
        self, splits: Sequence[Split], targets: Mapping[str, KnownTable], *, look: bool = False, ask: bool = False
    ) -> Mapping[str, TableShape]:
        """Raises ConfigError for an impossible mapping."""
        by_table: dict[str, list[Split]] = {}
        for split in splits:
            facts = json.loads(split.facts)
            by_table.setdefault(facts.get("ranged") or facts["spooled"], []).append(split)
        found = {}
        for name, own in by_table.items():
            target = targets.get(name)
            sample = Sample(Document(), None)
            if target is None or self._settings[name].is_explicit:
                sample = self._sample(name)
            if look or (target is None and sample.id_type is None):
                sample = joined([sample, self._look(own)])
            shape = shape_of(name, self._settings[name], sample.seen, sample.id_type, target, self._conflict(name))
            if shape is not None:
                found[name] = shape
        return found

    def renewed(self, table: str, splits: Sequence[Split]) -> bool:
        """A collection has no schema that could change by itself."""
        return False

    def preview(self, table: str, target: KnownTable | None) -> TableShape | None:
        sample = self._sample(table)
        return shape_of(table, self._settings[table], sample.seen, sample.id_type, target, self._conflict(table))

    def reader(self, index: Mapping[str, int], shapes: Mapping[str, TableShape], assign: Assign) -> CollectionReader:
        return CollectionReader(self._uri, {number: name for name, number in index.items()}, assign)

    def decoder(self, index: Mapping[str, int], shapes: Mapping[str, TableShape]) -> DocumentDecoder:
        return DocumentDecoder(
            {
                number: DecodedCollection(name, shapes[name], self._settings[name].is_explicit)
                for name, number in index.items()
                if name in shapes
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
            with translated(self._uri):
                wants = self._wanted.matches if self._wanted.has_patterns else None
                self._present = present(self._connection(), self._wanted.named, wants)
            for name in self._wanted.named:
                if name not in self._present:
                    self._tell_once("there is no such collection yet", name)
        return self._present

    def _planned(self, name: str, time: int, done: int, start: str | None) -> Load:
        if name not in self._collections():
            return Load(time, done, (), start)
        with translated(self._uri, name):
            ranges = plan_ranges(collection_of(self._connection(), name), start)
        steps = in_steps(ranges)
        documents = sum(piece.documents for piece in ranges)
        self._tell(
            "first load", table=name, documents=documents, ranges=len(ranges), steps=len(steps), resumed=done > 0
        )
        return Load(time, done, steps, start)

    def _sample(self, name: str) -> Sample:
        if name not in self._collections():
            return Sample(Document(), None)
        with translated(self._uri, name):
            collection = collection_of(self._connection(), name)
            sample = sampled(collection, self._settings[name].sample, self._conflict(name))
        fields = self._settings[name].fields
        if fields is not None:
            for path in missing_paths(fields, sample.seen):
                self._tell_once(f"no document of the sample has {path!r}", name)
            for left in unmapped(fields, sample.seen):
                self._tell_once(f"the field {left!r} is not mapped and is left out", name)
        return sample

    def _same_collection(self, name: str, facts: Mapping[str, object]) -> None:
        known, now = facts.get("uuid"), self._uuid(name)
        if known and now and known != now:
            raise SourceLost(
                f"{name} is another collection than the one that was mirrored: it was dropped and made again",
                hint=f"Drop the Iceberg table of {name} and start the pipeline: the collection is loaded anew.",
                table=name,
                tables=[name],
            )

    def _uuid(self, name: str) -> str:
        facts = self._collections().get(name)
        return "" if facts is None else facts.uuid

    def _token_before(self, position: ClusterTime) -> str:
        segments = () if self._stream is None else self._stream.segments()
        tokens = [segment.token for segment in segments if segment.upper <= position and segment.token]
        return tokens[-1] if tokens else ""

    def _count_rows(self, table: str, position: ClusterTime, reports: Sequence[SplitReport]) -> int:
        """How many documents the load has read up to the position; each of its ranges is counted once."""
        for report in reports:
            name, _, place = report.split.rpartition("@")
            if name != table or report.split in self._counted:
                continue
            if not is_before(position, ClusterTime.parse(place.partition("#")[0])):
                self._counted.add(report.split)
                self._rows[table] = self._rows.get(table, 0) + report.rows
        return self._rows.get(table, 0)

    def _report_load(self, name: str, load: Load, position: ClusterTime) -> None:
        done = load.bound_behind(position) is None
        rows = self._rows.get(name, 0)
        if done:
            with translated(self._uri, name):
                now = collection_of(self._connection(), name).estimated_document_count()
            self._tell("first load is read", table=name, documents=rows, documents_now=now)
        else:
            self._tell(
                "first load", table=name, step=min(position.step - WHOLE, load.last), steps=load.last, documents=rows
            )

    def _conflict(self, name: str) -> Callable[[str, Kind, Kind], None]:
        def tell(path: str, one: Kind, other: Kind) -> None:
            self._tell_once(f"{path} is {shown(one)} and {shown(other)}: its column holds JSON", name)

        return tell

    def _tell_once(self, sentence: str, name: str) -> None:
        if (name, sentence) not in self._told:
            self._told.add((name, sentence))
            self._tell(sentence, table=name)

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
