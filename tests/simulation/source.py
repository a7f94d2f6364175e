"""The source of the simulation: the production `CloudFeed` over a feed of values, which fails now and then.

    feed.py --names--> CloudFeed (production): what is resolved, which files, what to remember --> rows of values

In some worlds it is a source that can be read anew, as a database is: then a table that nothing was published of has a
first load, and one whose changes are lost is loaded anew. Each reader loop has a source of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from frazil import errors
from frazil.model.frontier import Frontier, LoadProgress, Window
from frazil.model.ids import TableName
from frazil.model.position import Position
from frazil.model.schema import LONG, STRING, Column, KnownTable, SourceSchema
from frazil.sources.base import InputPartition
from frazil.sources.cockroachdb.feed.listing import FeedListing
from frazil.sources.cockroachdb.source import CloudFeed

from .feed import Place

if TYPE_CHECKING:
    from .edges import RunEdges

ROWS = SourceSchema(
    (Column("key", LONG, "INT8", "test", required=True), Column("value", STRING, "STRING", "test")), ("key",), "test"
)


class SimulatedSource(CloudFeed):
    def __init__(self, edges: RunEdges) -> None:
        feed = edges.world.feed
        super().__init__(Place("/simulated", feed=feed))
        self.listing = FeedListing(feed)
        self.written_to: Position | None = None
        """The end of the newest window that was written."""
        self._edges = edges

    def initial(self, frontiers: Mapping[str, Frontier | None]) -> None:
        self._call()
        self.written_to = None
        super().initial(frontiers)

    def latest(self) -> tuple[Position, ...]:
        self._call()
        return super().latest()

    def partitions(
        self, window: Window, frontiers: Mapping[str, Frontier | None], index: Mapping[str, int]
    ) -> Sequence[InputPartition]:
        self._call()
        return super().partitions(window, frontiers, index)

    def _call(self) -> None:
        self._edges.enter()
        if self._edges.by_chance("source unavailable"):
            raise errors.SourceUnavailable("no answer")

    def commit(self, published: Position) -> None:
        super().commit(published)
        self._edges.acknowledged(published)

    def for_tables(self, tables: Collection[str]) -> SimulatedSource:
        return type(self)(self._edges)

    def schemas(
        self,
        partitions: Sequence[InputPartition],
        targets: Mapping[str, KnownTable] | None = None,
        *,
        look: bool = False,
        ask: bool = False,
    ) -> Mapping[str, SourceSchema]:
        return {self._table(partition.name): ROWS for partition in partitions}

    def schema_changed(self, table: str, partitions: Sequence[InputPartition]) -> bool:
        return False

    def reader(self, index: Mapping[str, int], schemas: Mapping[str, SourceSchema]) -> Any:
        """Whoever writes the rows reads the feed; it is told which loop they are for."""
        return self

    def decoder(self, index: Mapping[str, int], schemas: Mapping[str, SourceSchema]) -> Any:
        return None


class ReloadableSource(SimulatedSource):
    """A table that it has lost is followed again only from its beginning."""

    def __init__(self, edges: RunEdges) -> None:
        super().__init__(edges)
        self._seen: dict[str, int] = {}
        self._gone: set[str] = set()

    def initial(self, frontiers: Mapping[str, Frontier | None]) -> None:
        super().initial(frontiers)
        world = self._edges.world
        self._seen = dict(world.losses)
        self._gone = {
            name for name, frontier in frontiers.items() if frontier is not None and self._lacks(name, frontier)
        }

    def _lacks(self, name: str, frontier: Frontier) -> bool:
        """Whether there were changes behind the frontier that are not kept any more."""
        world = self._edges.world
        lost_at = world.lost_at.get(name)
        return lost_at is not None and world.feed.changed(TableName.parse(name), frontier.position, lost_at)

    def is_loaded(self, frontier: Frontier | None) -> bool:
        return frontier is not None

    def loading(self, table: str) -> LoadProgress | None:
        return None

    def lost_tables(self) -> Mapping[str, errors.SourceLost]:
        lost = {name for name, times in self._edges.world.losses.items() if times > self._seen.get(name, 0)}
        return {
            name: errors.SourceLost("its changes are gone", hint="resync", table=name) for name in lost | self._gone
        }
