"""A MongoDB source without a pipeline: made, opened, and walked along what it tells."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from frazil.clock import SystemClock
from frazil.model.frontier import Frontier, Window
from frazil.model.position import Position
from frazil.sources.base import InputPartition
from frazil.sources.mongodb.position import ClusterTime
from frazil.sources.mongodb.reader import rows_of
from frazil.sources.mongodb.schema.profile import joined, look_at
from frazil.sources.mongodb.schema.schema import CollectionSettings
from frazil.sources.mongodb.source import MongoDatabase, WantedCollections
from frazil.sources.mongodb.stream.stream import SegmentLimits


class EachAlike(Mapping[str, CollectionSettings]):
    """The same settings for every collection, whatever its name."""

    def __init__(self, **settings: Any) -> None:
        self._settings = CollectionSettings(**settings)

    def __getitem__(self, name: str) -> CollectionSettings:
        return self._settings

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class MakeSource:
    """Makes sources that spool in one place. `told` and `warned` is what they report."""

    def __init__(self, spool: Path) -> None:
        self._spool = spool
        self._made: list[MongoDatabase] = []
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.warned: list[tuple[str, dict[str, Any]]] = []

    def __call__(
        self, uri: str, *names: str, pattern: str = "", settings: Mapping[str, Any] | None = None, **limits: Any
    ) -> MongoDatabase:
        made = MongoDatabase(
            uri,
            WantedCollections(
                named=names, matches=lambda name: bool(pattern) and name.startswith(pattern), has_patterns=bool(pattern)
            ),
            settings=EachAlike(**(settings or {})),
            look=lambda partitions: joined(look_at(uri, partition) for partition in partitions),
            limits=SegmentLimits(**{"flush_interval": 0.05, **limits}),
            spool=self._spool,
            clock=SystemClock(),
            tell=lambda sentence, **facts: self.told.append((sentence, facts)),
            warn=lambda sentence, **facts: self.warned.append((sentence, facts)),
        )
        self._made.append(made)
        return made

    def close(self) -> None:
        for source in self._made:
            source.stop()


@contextmanager
def sources(spool: Path) -> Iterator[MakeSource]:
    """Those that are opened meanwhile are closed."""
    made = MakeSource(spool)
    try:
        yield made
    finally:
        made.close()


def changes(uri: str, partitions: Sequence[InputPartition]) -> list[dict[str, Any]]:
    batches = [batch for partition in partitions for batch in rows_of(uri, partition)]
    return [row for batch in batches for row in batch.to_pylist()]


def walk(source: MongoDatabase, uri: str, name: str, until: int = 0) -> list[tuple[ClusterTime, list[dict[str, Any]]]]:
    """Each resolved position with its changes, as a run would take them, until nothing is offered any more."""
    frontier: Frontier | None = None
    found = []
    while positions := source.latest():
        for position in positions:
            assert isinstance(position, ClusterTime)
            partitions = source.partitions(Window((position,)), {name: frontier}, {name: 0})
            found.append((position, changes(uri, partitions)))
            frontier = Frontier(position, source.resume_state(name, position, ()))
            if until and len(found) >= until:
                return found
    return found


def walk_on(
    source: MongoDatabase, uri: str, name: str, after: ClusterTime, wanted: int
) -> list[tuple[ClusterTime, list[dict[str, Any]]]]:
    """What the stream tells beyond a position, until so many changes were met."""
    found: list[tuple[ClusterTime, list[dict[str, Any]]]] = []
    frontier = Frontier(after)
    for _ in range(400):
        for position in source.latest():
            assert isinstance(position, ClusterTime)
            partitions = source.partitions(Window((position,)), {name: frontier}, {name: 0})
            found.append((position, changes(uri, partitions)))
            frontier = Frontier(position)
        if sum(len(rows) for _, rows in found) >= wanted:
            return found
        threading.Event().wait(0.05)
    raise AssertionError(f"only {found} came")


def follow(
    source: MongoDatabase, uri: str, after: Position, is_done: Callable[[dict[str, list[str]]], Any], *names: str
) -> dict[str, list[str]]:
    """The keys that are told of each collection, until they are enough."""
    frontier: Frontier | None = Frontier(after)
    told: dict[str, list[str]] = {name: [] for name in names}
    index = {name: number for number, name in enumerate(names)}
    for _ in range(400):
        for position in source.latest():
            partitions = source.partitions(Window((position,)), dict.fromkeys(names, frontier), index)
            for partition in partitions:
                told[names[partition.table]] += [row["key"] for row in changes(uri, [partition])]
            frontier = Frontier(position)
        if is_done(told):
            return told
        threading.Event().wait(0.05)
    raise AssertionError(f"only {told} came, lost are {dict(source.lost_tables())}")
