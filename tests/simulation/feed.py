"""A changefeed of values: at-least-once files in listing order, with resolved marks among them.

    file 0 (orders) | file 1 (items, holds rows beyond R1) | R1 | file 3 (replay of file 0) | R2 ...

Everything at or below R lies in files before R's mark; files before it may hold rows beyond R, which are not
written again. `Feed` also knows the truth: what every table looks like at every R.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from frazil.model.change import SplitReport
from frazil.model.epoch import Frontier, Window
from frazil.model.names import TableName
from frazil.model.ports import Split
from frazil.model.position import Hlc, Position

Rows = dict[int, str]


@dataclass(frozen=True, slots=True)
class Change:
    key: int
    position: Hlc
    value: str | None


@dataclass(frozen=True, slots=True)
class FeedFile:
    table: TableName
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    resolved: Hlc


class Feed:
    """The feed and the truth behind it. `visible` items of it have been written so far."""

    def __init__(self, chance: random.Random, tables: Sequence[TableName], epochs: int, keys: int) -> None:
        self.items: list[FeedFile | Mark] = []
        self.resolved: list[Hlc] = []
        self.history: dict[TableName, list[Change]] = {table: [] for table in tables}
        self.visible = 0
        self.acknowledged: Position | None = None
        self._truth: dict[tuple[TableName, Position | None], Rows] = {}
        self._write(chance, tables, epochs, keys)
        self._index = {item.resolved: at for at, item in enumerate(self.items) if isinstance(item, Mark)}

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

    # What the production port `Source` asks for.

    def poll(self) -> tuple[Position, ...]:
        return tuple(item.resolved for item in self.items[: self.visible] if isinstance(item, Mark))

    def splits(
        self, window: Window, frontiers: Mapping[TableName, Frontier | None], index: Mapping[TableName, int]
    ) -> Iterator[Split]:
        end = self._index[window.upper]
        for table, frontier in frontiers.items():
            begin = 0 if frontier is None else self._index[frontier.position] + 1
            carried = json.loads(frontier.notes) if frontier is not None and frontier.notes else []
            for at in (*carried, *range(begin, end)):
                item = self.items[at]
                if isinstance(item, FeedFile) and item.table == table:
                    yield Split(index[table], str(at), "", len(item.changes))

    def read(self, split: Split) -> tuple[Change, ...]:
        item = self.items[int(split.name)]
        assert isinstance(item, FeedFile)
        return item.changes

    def notes(self, upper: Position, reports: Sequence[SplitReport]) -> str:
        end = self._index[upper]
        carried = sorted(
            int(r.split) for r in reports if int(r.split) < end and r.newest is not None and r.newest > upper
        )
        return json.dumps(carried) if carried else ""

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
        for (table, _), changes in by_file.items():
            self.items.append(FeedFile(table, tuple(changes)))
