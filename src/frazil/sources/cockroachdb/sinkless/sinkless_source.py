"""A sinkless changefeed as a source: a relay writes its rows to a spool, and the cloud storage source reads that.

    open(frontiers) --> Relay(cursor = the oldest of them) --files--> spool --> CloudFeed --> splits, shapes, roads
    lost connection --> SourceUnavailable --> the pipeline reads its ledgers and opens again

The spool lies on this machine's disk, so executors must share it: local mode, or a shared FRAZIL_HOME.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from frazil.clock import Clock
from frazil.errors import SourceLost
from frazil.model.change import SplitReport
from frazil.model.columns import TableShape
from frazil.model.epoch import Frontier, Window
from frazil.model.ports import Decoder, Reader, SourceTable, Split
from frazil.model.position import Hlc, Position
from frazil.model.progress import LoadProgress
from frazil.model.remembered import KnownTable
from frazil.sources.cockroachdb.reader import Assign
from frazil.sources.cockroachdb.relay import Relay
from frazil.sources.cockroachdb.source import CloudFeed
from frazil.sources.cockroachdb.spool import seen_from_spool
from frazil.sources.cockroachdb.sql import FeedOptions, server_of, start_of
from frazil.sources.cockroachdb.storage import FeedLocation

MakeFeed = Callable[[FeedLocation], CloudFeed]


class SinklessFeed:
    """`spool` belongs to this pipeline alone."""

    def __init__(
        self,
        url: str,
        tables: Sequence[str],
        options: FeedOptions,
        spool: Path,
        make_feed: MakeFeed,
        clock: Clock,
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
        self._feed = make_feed(FeedLocation(str(spool / "none")))

    @property
    def incarnation(self) -> str:
        return f"cockroachdb:{server_of(self._url)}"

    def tables(self) -> Sequence[SourceTable]:
        """What the statement asks for, and what has come of it."""
        seen = {table.name for table in self._feed.tables()} if self._relay is not None else set()
        return [SourceTable(name) for name in sorted(seen or set(self._tables))]

    def open(self, frontiers: Mapping[str, Frontier | None]) -> None:
        self.close()
        self._opened, self._live = dict(frontiers), dict(frontiers)
        session = self._clock.new_uuid().hex[:16]
        start = start_of([frontiers.get(name) for name in frontiers] or [None])
        self._relay = Relay(self._url, self._tables, self._spool, session=session, start=start, options=self._options)
        self._relay.begin()
        self._feed = self._make_feed(FeedLocation(str(self._relay.feed)))
        self._feed.open(seen_from_spool(frontiers, self._opened, start))

    def poll(self) -> tuple[Position, ...]:
        if self._relay is not None:
            self._relay.check()
        return self._feed.poll()

    def splits(
        self, window: Window, frontiers: Mapping[str, Frontier | None], index: Mapping[str, int]
    ) -> Sequence[Split]:
        assert self._relay is not None
        self._live.update(frontiers)
        return self._feed.splits(window, seen_from_spool(frontiers, self._opened, self._relay.start), index)

    def notes(self, table: str, upper: Position, reports: Sequence[SplitReport]) -> str:
        return self._feed.notes(table, upper, reports)

    def acknowledge(self, published: Position) -> None:
        self._feed.acknowledge(published)
        if self._relay is not None and isinstance(published, Hlc):
            notes = [frontier.notes for frontier in self._live.values() if frontier is not None and frontier.notes]
            self._relay.forget(published, keep={path for note in notes for path in json.loads(note)})

    def beside(self, tables: Collection[str]) -> SinklessFeed:
        """A changefeed of its own for these tables, with a spool of its own."""
        spool = self._spool.with_name(f"{self._spool.name}-beside") / self._clock.new_uuid().hex[:12]
        return SinklessFeed(self._url, sorted(tables), self._options, spool, self._make_feed, self._clock)

    @property
    def rescans(self) -> bool:
        return self._feed.rescans

    def is_loaded(self, frontier: Frontier | None) -> bool:
        return self._feed.is_loaded(frontier)

    def lost(self) -> Mapping[str, SourceLost]:
        return self._feed.lost()

    def loading(self, table: str) -> LoadProgress | None:
        return self._feed.loading(table)

    def close(self) -> None:
        if self._relay is not None:
            self._relay.stop()
            self._relay = None

    def shapes(
        self, splits: Sequence[Split], targets: Mapping[str, KnownTable], *, look: bool = False, ask: bool = False
    ) -> Mapping[str, TableShape]:
        return self._feed.shapes(splits, targets, look=look, ask=ask)

    def renewed(self, table: str, splits: Sequence[Split]) -> bool:
        return self._feed.renewed(table, splits)

    def preview(self, table: str, target: KnownTable | None) -> TableShape | None:
        return self._feed.preview(table, target)

    def reader(self, index: Mapping[str, int], shapes: Mapping[str, TableShape], assign: Assign) -> Reader:
        return self._feed.reader(index, shapes, assign)

    def decoder(self, index: Mapping[str, int], shapes: Mapping[str, TableShape]) -> Decoder:
        return self._feed.decoder(index, shapes)
