"""One round over the deletion queue: whose files it takes, and where it stops. Catalog and storage are in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from conversion_world import NAME
from upkeep_edges import Queue

from frazil.maintenance.deletion_queue import DeletionWorker, QueueSettings
from frazil.model.deletions import Deletion, Standing, Why
from frazil.model.names import TableName

NOW = datetime(2026, 6, 1, tzinfo=UTC)
OTHER = TableName(("shop",), "other")
GONE = TableName(("shop",), "gone")


class Lake:
    """Knows all tables but one that was dropped; nothing refers to anything."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

    def census(self) -> Lake:
        return self

    def holder(self, table_uuid: str) -> str | None:
        return None

    def twin(self, table: TableName, table_uuid: str) -> str | None:
        return None

    def standing(self, table: TableName) -> Standing:
        return Standing(None if table == GONE else "u")

    def unreferenced(self, table: TableName, paths: Sequence[str]) -> Sequence[str]:
        return paths

    def reached(self, metadata_file: str) -> Sequence[str]:
        raise AssertionError("rows are of files")

    def delete(self, table: TableName, paths: Sequence[str]) -> Mapping[str, str]:
        self.deleted += paths
        return {}


class Noon:
    def now(self) -> datetime:
        return NOW


def row(path: str, table: TableName = NAME, **more: Any) -> Deletion:
    return Deletion(path=path, table=table, table_uuid="u", orphaned_at=NOW - timedelta(hours=2), **more)


def worker(*batches: Sequence[Deletion]) -> tuple[DeletionWorker, Lake]:
    queue, lake = Queue(), Lake()
    for batch in batches:
        queue.enqueue(batch)
    settings = QueueSettings(grace=timedelta(hours=1))
    return DeletionWorker(queue, lake, settings, Noon()), lake  # type: ignore[arg-type]


def test_a_round_stops_between_two_batches_when_it_must_not_proceed() -> None:
    made, lake = worker([row("a")], [row("b")], [row("c")])
    answers = iter([True, True, False])
    done = made.perform(proceed=lambda: next(answers))
    assert lake.deleted == ["a", "b"]
    assert (done.deleted, done.waiting) == (2, 1)
    assert made.perform().deleted == 1, "the rest waits for the next round"


def test_what_is_planned_for_some_tables_is_what_goes() -> None:
    """Theirs, and what dropped tables have left, since nobody names those any more."""
    rows = [row("a")], [row("b", OTHER)], [row("c", GONE, why=Why.DROPPED)], [row("d", OTHER), row("e", OTHER)]
    made, lake = worker(*rows)
    planned = [one.path for _, found in made.plan([NAME]) for one in found]
    assert planned == ["a", "c"]
    made.perform([NAME])
    assert lake.deleted == planned
    assert [one.path for _, found in made.plan() for one in found] == ["b", "d", "e"]
