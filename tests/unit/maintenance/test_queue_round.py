"""One round over the deletion queue: whose files it takes, and where it stops. Catalog and storage are in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from conversion_world import NAME
from upkeep_edges import Queue

from frazil.iceberg.system.queue_rows import DeletionType, QueuedDeletion, Remains, TableStanding, Why
from frazil.maintenance.queue import DeletionWorker, QueueSettings
from frazil.model.ids import TableName

NOW = datetime(2026, 6, 1, tzinfo=UTC)
OTHER = TableName(("shop",), "other")
GONE = TableName(("shop",), "gone")


class Committer:
    """Knows all tables but one that was dropped; nothing refers to anything."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.left = Remains()

    def table_scan(self) -> Committer:
        return self

    def holder(self, table_uuid: str) -> str | None:
        return None

    def other_table_with_uuid(self, table: TableName, table_uuid: str) -> str | None:
        return None

    def standing(self, table: TableName) -> TableStanding:
        return TableStanding(None if table == GONE else "u", locations=("/w/shop/t", "s3://fast/t"))

    def unreferenced(self, table: TableName, paths: Sequence[str]) -> Sequence[str]:
        return paths

    def remains(self, metadata_file: str) -> Remains:
        return self.left

    def delete(self, table: TableName, paths: Sequence[str]) -> Mapping[str, str]:
        self.deleted += paths
        return {}


class Noon:
    def now(self) -> datetime:
        return NOW


def row(path: str, table: TableName = NAME, **more: Any) -> QueuedDeletion:
    path = path if "/" in path else f"/w/shop/t/{path}"
    return QueuedDeletion(path=path, table=table, table_uuid="u", orphaned_at=NOW - timedelta(hours=2), **more)


def names(paths: Sequence[str]) -> list[str]:
    return [path.removeprefix("/w/shop/t/") for path in paths]


def worker(*batches: Sequence[QueuedDeletion], **more: Any) -> tuple[DeletionWorker, Committer]:
    queue, committer = Queue(), Committer()
    for batch in batches:
        queue.enqueue(batch)
    settings = QueueSettings(grace=timedelta(hours=1), **more)
    return DeletionWorker(queue, committer, settings, Noon()), committer  # type: ignore[arg-type]


def test_a_round_stops_between_two_batches_when_it_must_not_proceed() -> None:
    made, committer = worker([row("a")], [row("b")], [row("c")])
    answers = iter([True, True, False])
    done = made.perform(proceed=lambda: next(answers))
    assert names(committer.deleted) == ["a", "b"]
    assert (done.deleted, done.waiting) == (2, 1)
    assert made.perform().deleted == 1, "the rest waits for the next round"


def test_what_is_planned_for_some_tables_is_what_goes() -> None:
    """Theirs, and what dropped tables have left, since nobody names those any more."""
    rows = [row("a")], [row("b", OTHER)], [row("c", GONE, why=Why.DROPPED)], [row("d", OTHER), row("e", OTHER)]
    made, committer = worker(*rows)
    planned = [one.path for _, found in made.plan([NAME]) for one in found]
    assert names(planned) == ["a", "c"]
    made.perform([NAME])
    assert committer.deleted == planned
    assert names([one.path for _, found in made.plan() for one in found]) == ["b", "d", "e"]


ELSEWHERE = ["/w/shop/t2/a.parquet", "/originals/a.parquet", "s3://raw/t/a.parquet", "/w/shop/t/../t3/a.parquet"]
OWN = ["/w/shop/t/data/a.parquet", "file:/w/shop/t/metadata/m.avro", "s3a://fast/t/b.parquet"]


@pytest.mark.parametrize("why", [Why.EXPIRED, Why.UNCOMMITTED])
def test_files_outside_of_the_tables_own_locations_are_left(why: Why, caplog: pytest.LogCaptureFixture) -> None:
    """Somebody registered them with add_files, and may need them as they were."""
    made, committer = worker([row(path, why=why) for path in (*OWN, *ELSEWHERE)])
    done = made.perform()
    assert sorted(committer.deleted) == sorted(OWN)
    assert (done.deleted, done.outside, done.dismissed) == (len(OWN), len(ELSEWHERE), 0)
    assert "files of shop.orders are left where they are" in caplog.text
    assert made.perform() == type(done)(), "they are not asked about for ever"


def test_files_outside_of_a_dropped_tables_locations_are_left() -> None:
    made, committer = worker([row("/w/shop/gone/m.json", GONE, type=DeletionType.METADATA, why=Why.DROPPED)])
    committer.left = Remains(("/w/shop/gone/data/a", *ELSEWHERE), ("/w/shop/gone",))
    assert made.perform().outside == len(ELSEWHERE)
    made.perform()
    assert committer.deleted == ["/w/shop/gone/data/a"]


def test_files_outside_go_too_if_that_is_asked_for() -> None:
    made, committer = worker([row(path) for path in ELSEWHERE], delete_outside=True)
    assert made.perform().deleted == len(ELSEWHERE)
    assert sorted(committer.deleted) == sorted(ELSEWHERE)
