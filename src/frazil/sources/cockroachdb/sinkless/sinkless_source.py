"""A sinkless changefeed as a source: a relay writes its rows to a spool, and the cloud storage source reads that.

    open(frontiers) --> Relay(cursor = the oldest of them) --files--> spool --> CloudFeed --> partitions
    lost connection --> SourceUnavailable --> the pipeline reads its ledgers and opens again

The spool lies on this machine's disk, so executors must share it: local mode, or a shared FRAZIL_HOME.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from frazil.clock import Clock
from frazil.config.routing import ends_of
from frazil.errors import SourceLost
from frazil.model.change import PartitionReport
from frazil.model.frontier import Frontier, Window
from frazil.model.position import Position
from frazil.model.schema import KnownTable, SourceSchema
from frazil.sources.base import Decoder, InputPartition, Reader, SourceTable
from frazil.sources.cockroachdb.feed.location import FeedLocation
from frazil.sources.cockroachdb.position import Hlc
from frazil.sources.cockroachdb.resume_state import Notes
from frazil.sources.cockroachdb.sinkless.relay import Relay, are_empty
from frazil.sources.cockroachdb.sinkless.spool import seen_from_spool
from frazil.sources.cockroachdb.sinkless.sql import FeedOptions, FeedStart, server_of, start_of
from frazil.sources.cockroachdb.source import CloudFeed

MakeFeed = Callable[[FeedLocation], CloudFeed]


class SinklessFeed:
    """`spool` belongs to this pipeline alone. A feed `is_beside` another one that removes its own when it is closed."""

    def __init__(
        self,
        url: str,
        tables: Sequence[str],
        options: FeedOptions,
        spool: Path,
        make_feed: MakeFeed,
        clock: Clock,
        *,
        is_beside: bool = False,
    ) -> None:
        self._url = url
        self._tables = tuple(tables)
        self._options = options
        self._spool = spool
        self._make_feed = make_feed
        self._clock = clock
        self._relay: Relay | None = None
        self._opened: Mapping[str, Frontier | None] = {}
        self._live: dict[str, Frontier | None] = {}
        self._heard: Position | None = None
        self._nothing_of: dict[str, Frontier] = {}
        """Tables that nothing has come of, each with how far."""
        self._is_beside = is_beside
        self._was_used = False
        self._feed = make_feed(FeedLocation(str(spool / "none")))

    @property
    def incarnation(self) -> str:
        return f"cockroachdb:{server_of(self._url)}"

    def tables(self) -> Sequence[SourceTable]:
        """Those that are named, and those that a feed has told of. It tells full names: one that is named without its
        database is the same table, and is offered once."""
        told = set() if self._relay is None else {table.name for table in self._feed.tables()}
        ends = {end for name in told for end in ends_of(name)}
        return [SourceTable(name) for name in sorted(told.union(name for name in self._tables if name not in ends))]

    def initial(self, frontiers: Mapping[str, Frontier | None]) -> None:
        """Asks for these tables and no others: one that is read apart, or stopped, is not streamed once more, and its
        bad row ends nobody else's feed."""
        self.stop()
        self._remove_left_ones()
        self._opened, self._live, self._heard = dict(frontiers), dict(frontiers), None
        self._nothing_of = {name: one for name, one in self._nothing_of.items() if frontiers.get(name) is None}
        session = self._clock.new_uuid().hex[:16]
        start = self._start(frontiers)
        tables = sorted(frontiers) or self._tables
        self._relay = Relay(self._url, tables, self._spool, session=session, start=start, options=self._options)
        self._relay.begin()
        self._feed = self._make_feed(FeedLocation(str(self._relay.feed)))
        self._feed.initial(seen_from_spool(frontiers, self._opened, start))

    def _start(self, frontiers: Mapping[str, Frontier | None]) -> FeedStart:
        """A scan is of all tables of a feed. One that is known to have been empty then needs none: its first row is
        told like any other change."""
        known = {name: frontier or self._nothing_of.get(name) for name, frontier in frontiers.items()}
        start = start_of(known.values() or [None])
        bare = [name for name, frontier in known.items() if frontier is None]
        if start.cursor is not None and bare and are_empty(self._url, bare, start.cursor):
            return replace(start, scan=False)
        return start

    def latest(self) -> tuple[Position, ...]:
        if self._relay is not None:
            try:
                self._relay.check()
            except SourceLost as error:
                raise self._told_apart(error) from error.__cause__
        found = self._feed.latest()
        self._heard = found[-1] if found else self._heard
        return found

    def _told_apart(self, error: SourceLost) -> SourceLost:
        """Tables without a frontier are scanned by a feed of their own, which has no cursor that they could be younger
        than."""
        new = [name for name, frontier in self._opened.items() if frontier is None]
        if error.facts.get("too_young") and 0 < len(new) < len(self._opened):
            error.facts["tables"] = tuple(new)
        return error

    @property
    def is_caught_up(self) -> bool:
        return self._relay is not None and self._relay.has_told_all(self._heard)

    def partitions(
        self, window: Window, frontiers: Mapping[str, Frontier | None], index: Mapping[str, int]
    ) -> Sequence[InputPartition]:
        assert self._relay is not None
        self._live.update(frontiers)
        return self._feed.partitions(window, seen_from_spool(frontiers, self._opened, self._relay.start), index)

    def resume_state(self, table: str, upper: Position, reports: Sequence[PartitionReport]) -> str:
        return self._feed.resume_state(table, upper, reports)

    def commit(self, published: Position) -> None:
        self._feed.commit(published)
        if self._relay is not None and isinstance(published, Hlc):
            notes = [Notes.parse(frontier.notes) for frontier in self._live.values() if frontier is not None]
            self._relay.forget(published, keep={path for note in notes for path in note.carried})

    def for_tables(self, tables: Collection[str]) -> SinklessFeed:
        """A changefeed of its own for these tables, with a spool of its own."""
        self._remove_left_ones()
        spool = self._spools_beside / self._clock.new_uuid().hex[:12]
        return SinklessFeed(
            self._url, sorted(tables), self._options, spool, self._make_feed, self._clock, is_beside=True
        )

    def _remove_left_ones(self) -> None:
        """What a run that was killed left beside. Once: from then on there may be others that are read."""
        if not self._is_beside and not self._was_used:
            shutil.rmtree(self._spools_beside, ignore_errors=True)
        self._was_used = True

    @property
    def _spools_beside(self) -> Path:
        return self._spool.with_name(f"{self._spool.name}-beside")

    def stop(self) -> None:
        if self._relay is not None:
            self._relay.stop()
            self._relay = None
            self._remember_nothing()
            if self._is_beside:
                shutil.rmtree(self._spool, ignore_errors=True)

    def _remember_nothing(self) -> None:
        """A table without a frontier was scanned, or known to be empty. If no row of it has come, it was empty up to
        the last promise."""
        seen = {table.name for table in self._feed.tables()}
        for name in [name for name, frontier in self._opened.items() if frontier is None]:
            if name in seen:
                self._nothing_of.pop(name, None)
            elif self._heard is not None:
                self._nothing_of[name] = Frontier(self._heard)

    def schemas(
        self,
        partitions: Sequence[InputPartition],
        targets: Mapping[str, KnownTable],
        *,
        look: bool = False,
        ask: bool = False,
    ) -> Mapping[str, SourceSchema]:
        return self._feed.schemas(partitions, targets, look=look, ask=ask)

    def schema_changed(self, table: str, partitions: Sequence[InputPartition]) -> bool:
        return self._feed.schema_changed(table, partitions)

    def preview(self, table: str, target: KnownTable | None) -> SourceSchema | None:
        return self._feed.preview(table, target)

    def reader(self, index: Mapping[str, int], schemas: Mapping[str, SourceSchema]) -> Reader:
        return self._feed.reader(index, schemas)

    def decoder(self, index: Mapping[str, int], schemas: Mapping[str, SourceSchema]) -> Decoder:
        return self._feed.decoder(index, schemas)
