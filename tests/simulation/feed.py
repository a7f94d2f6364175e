"""A changefeed of values: at-least-once files in the order they appear, with resolved marks among them.

    file 0 (orders) | file 1 (items, holds rows beyond R1) | R1 | file 3 (replay of file 0) | R2 ...

Everything at or below R lies in files before R's mark; files before it may hold rows beyond R, which are not
written again. `Feed` also knows the truth: what every table looks like at every R.

Names are those of a cloud storage sink, and the production source reads them. Some files that appear after R1 have the
very stamp of R1 and sort before its mark, as after `ALTER CHANGEFEED ... ADD ... WITH initial_scan`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from frazil.model.ids import TableName
from frazil.model.position import Position
from frazil.sources.base import InputPartition
from frazil.sources.cockroachdb.feed.listing import Counters, FeedListing
from frazil.sources.cockroachdb.feed.location import FeedLocation
from frazil.sources.cockroachdb.position import Hlc
from frazil.sources.cockroachdb.source import CloudFeed

Rows = dict[int, str]


@dataclass(frozen=True, slots=True)
class Change:
    key: int
    position: Hlc
    value: str | None


@dataclass(frozen=True, slots=True)
class FeedFile:
    name: str
    table: TableName
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    resolved: Hlc

    @property
    def name(self) -> str:
        return f"{self.resolved.file_stamp}.RESOLVED"


class Feed:
    """The feed and the truth behind it. `visible` items of it have been written so far."""

    def __init__(
        self, chance: random.Random, late: random.Random, tables: Sequence[TableName], epochs: int, keys: int
    ) -> None:
        self._late = late
        self._lateness = late.choice((0.0, 0.3, 0.6))
        self.items: list[FeedFile | Mark] = []
        self.resolved: list[Hlc] = []
        self.history: dict[TableName, list[Change]] = {table: [] for table in tables}
        self.visible = 0
        self.acknowledged: Position | None = None
        self._truth: dict[tuple[TableName, Position | None], Rows] = {}
        self._write(chance, tables, epochs, keys)
        self._files = {item.name: item for item in self.items if isinstance(item, FeedFile)}

    @property
    def complete(self) -> bool:
        return self.visible == len(self.items)

    def truth(self, table: TableName, at: Position | None) -> Rows:
        known = self._truth.get((table, at))
        if known is None:
            known = {}
            for change in self.history[table]:
                if at is None or change.position > at:
                    break
                if change.value is None:
                    known.pop(change.key, None)
                else:
                    known[change.key] = change.value
            self._truth[table, at] = known
        return known

    def changed(self, table: TableName, lower: Position | None, upper: Position) -> bool:
        return any(
            (lower is None or change.position > lower) and change.position <= upper for change in self.history[table]
        )

    def source(self) -> CloudFeed:
        """The production source over what is visible."""
        source = CloudFeed(Place("/simulated", feed=self))
        source.listing = FeedListing(self)
        return source

    def read(self, partition: InputPartition) -> tuple[Change, ...]:
        return self._files[partition.name].changes

    # What the production port `Lister` asks for.

    def names_after(self, start: str, counters: Counters) -> Iterator[tuple[str, int]]:
        return ((item.name, 1) for item in self.items[: self.visible] if item.name > start)

    def _write(self, chance: random.Random, tables: Sequence[TableName], epochs: int, keys: int) -> None:
        position = Hlc(1_700_000_000_000_000_000)
        unwritten: list[tuple[TableName, Change]] = []
        written: list[tuple[TableName, Change]] = []
        for _ in range(epochs):
            for _ in range(chance.randrange(6)):
                position = Hlc(position.wall + 1) if chance.random() < 0.6 else Hlc(position.wall, position.logical + 1)
                for table in chance.sample(tables, chance.randint(1, min(2, len(tables)))):
                    value = None if chance.random() < 0.3 else f"{table.name}@{position}"
                    change = Change(chance.randrange(keys), position, value)
                    self.history[table].append(change)
                    unwritten.append((table, change))
            # Resolving an older position than the newest leaves rows beyond R in files before its mark.
            back = chance.choice((0, 0, 1, 3))
            recent = sorted({change.position for _, change in (*written[-8:], *unwritten)})
            resolved = recent[-1 - back] if len(recent) > back else position
            if self.resolved and resolved <= self.resolved[-1]:
                position = resolved = Hlc(position.wall + 1)
            due = [entry for entry in unwritten if entry[1].position <= resolved or chance.random() < 0.5]
            unwritten = [entry for entry in unwritten if entry not in due]
            written += due
            again = chance.sample(written, min(len(written), 3)) if chance.random() < 0.4 else []
            self._flush(chance, [*due, *again])
            self.resolved.append(resolved)
            self.items.append(Mark(resolved))
        position = Hlc(position.wall + 1)
        self._flush(chance, unwritten)
        self.resolved.append(position)
        self.items.append(Mark(position))

    def _flush(self, chance: random.Random, entries: list[tuple[TableName, Change]]) -> None:
        chance.shuffle(entries)
        by_file: dict[tuple[TableName, int], list[Change]] = {}
        for table, change in entries:
            by_file.setdefault((table, chance.randrange(2)), []).append(change)
        stamp = Hlc(1_600_000_000_000_000_000)
        if self.resolved:
            last = self.resolved[-1]
            stamp = last if self._late.random() < self._lateness else last.next()
        for (table, _), changes in by_file.items():
            number = sum(isinstance(item, FeedFile) for item in self.items)
            name = f"{stamp.file_stamp}-{'a' * 16}-1-1-{number:08x}-{table}-1.ndjson"
            self.items.append(FeedFile(name, table, tuple(changes)))


@dataclass(frozen=True)
class Place(FeedLocation):
    """Where nothing is but names."""

    feed: Feed = field(kw_only=True)

    def size(self, path: str) -> int | None:
        return next((1 for item in self.feed.items[: self.feed.visible] if item.name == path), None)

    def written_at(self, path: str) -> float:
        return next(place for place, item in enumerate(self.feed.items) if item.name == path)
