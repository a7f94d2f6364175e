"""What the actions of maintenance meet at their edges: the deletion queue, the storage, the clock.

action --Edge--> table, queue, storage         at every call others may have been there, and it may be the last one
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from random import Random
from threading import Event
from typing import Any
from uuid import UUID

from upkeep_spark import WorkedTable
from upkeep_table import LOCATION

from frazil.iceberg.system.queue_rows import (
    DeletionBatch,
    ListedFile,
    QueuedDeletion,
    Remains,
    TablePlace,
    TableStanding,
)
from frazil.model.ids import TableName

BATCH_FILES = 3


class Queue:
    """`_frazil.deletion_queue`: every call is one commit. `forgets` is told the paths that are no longer in it. One
    that `mixes` fills small batches up, so that rows of several moments share one: nothing promises that none do."""

    def __init__(self, forgets: Callable[[Collection[str]], None] = lambda paths: None, *, mixes: bool = False) -> None:
        self.held: dict[str, tuple[QueuedDeletion, ...]] = {}
        self._forgets, self._mixes = forgets, mixes
        self._names = itertools.count()

    def enqueue(self, deletions: Sequence[QueuedDeletion]) -> None:
        by_kind: dict[Any, list[QueuedDeletion]] = {}
        for row in deletions:
            by_kind.setdefault((row.type, row.why), []).append(row)
        for kind, rows in by_kind.items():
            for name, old in list(self.held.items()):
                if self._mixes and len(old) < BATCH_FILES and (old[0].type, old[0].why) == kind:
                    rows[:0] = self.held.pop(name)
            for start in range(0, len(rows), BATCH_FILES):
                self.held[f"b{next(self._names)}"] = tuple(rows[start : start + BATCH_FILES])

    def batches(self) -> list[DeletionBatch]:
        return [DeletionBatch(name, rows) for name, rows in self.held.items()]

    def finish(self, batch: DeletionBatch, left: Sequence[QueuedDeletion]) -> bool:
        if self.held.pop(batch.name, None) is None:
            return False
        self.enqueue(left)
        waiting = {row.path for rows in self.held.values() for row in rows}
        self._forgets({row.path for row in batch.rows} - waiting)
        return True


class Storage:
    """The files of the table, as sweep and queue know them. `refuses` tells whether the next deletion fails."""

    def __init__(self, table: WorkedTable, refuses: Callable[[], bool] = lambda: False) -> None:
        self._table = table
        self._refuses = refuses

    def table_scan(self) -> Storage:
        return self

    def holder(self, table_uuid: str) -> str | None:
        raise AssertionError("nobody drops this table")

    def other_table_with_uuid(self, table: TableName, table_uuid: str) -> str | None:
        return None

    def remains(self, metadata_file: str) -> Remains:
        raise AssertionError("nobody drops this table")

    def owner_of(self, table: TableName, metadata_file: str) -> str | None:
        return "u"

    def standing(self, table: TableName) -> TableStanding:
        return TableStanding("u", locations=("/",))

    def place(self, table: TableName) -> TablePlace:
        known = self._table.metadata
        branches = {n: self._table.head_of(r.snapshot_id) for n, r in known.references.items() if r.is_branch}
        return TablePlace(
            uuid="u",
            data_location=f"{LOCATION}/data",
            metadata_location=f"{LOCATION}/metadata",
            main=self._table.head(table),
            branches=branches,
        )

    def list(self, table: TableName, folder: str) -> list[ListedFile]:
        return [ListedFile(path, 1, at) for path, at in self._table.stored.items() if path.startswith(f"{folder}/")]

    def unreferenced(self, table: TableName, paths: Sequence[str]) -> list[str]:
        needed = self._table.needed()
        return [path for path in paths if path not in needed]

    def delete(self, table: TableName, paths: Sequence[str]) -> dict[str, str]:
        failed = {path: "not now" for path in paths if self._refuses()}
        for path in paths:
            if path not in failed:
                self._table.stored.pop(path, None)
        self._table.check_files()
        return failed


class Edge:
    """What an action sees of something. Others may act before a call and after it, and it may be the action's last."""

    ALONE = frozenset(["live", "live_with_lineage", "converted_table", "rewritten_table", "table_scan", "standing"])

    def __init__(self, inner: Any, turn: Callable[[], None]) -> None:
        self._inner, self._turn = inner, turn

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name in self.ALONE:
            return method

        def call(*arguments: Any) -> Any:
            self._turn()
            answer = method(*arguments)
            self._turn()
            return answer

        return call

    def delete(self, table: TableName, paths: Sequence[str]) -> dict[str, str]:
        failed: dict[str, str] = {}
        for path in paths:
            self._turn()
            failed |= self._inner.delete(table, [path])
        return failed


class WorldClock:
    def __init__(self, now: Callable[[], datetime], chance: Random, turn: Callable[[], None]) -> None:
        self.now = now
        self._chance, self._turn = chance, turn

    def monotonic(self) -> float:
        return 0.0

    def wait(self, seconds: float, until: Event | None = None) -> bool:
        self._turn()
        return False

    def new_uuid(self) -> UUID:
        return UUID(int=self._chance.getrandbits(128))

    def jitter(self) -> float:
        return 0.0
