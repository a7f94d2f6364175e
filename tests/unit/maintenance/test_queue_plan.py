"""When a file may be deleted, and what is done with one that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from upkeep_edges import Queue, Storage, WorldClock
from upkeep_spark import WorkedTable

from frazil.iceberg.system.queue_rows import DeletionBatch, DeletionType, QueuedDeletion, TableStanding, Why
from frazil.maintenance.queue import (
    Delete,
    DeletionWorker,
    Dismiss,
    Expand,
    Hold,
    QueueSettings,
    Verdict,
    after_failure,
    due,
    judge,
    must_be_alone,
    must_be_nowhere,
    while_referred_to,
)
from frazil.model.ids import TableName

NOW = datetime(2026, 6, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
ORDERS = TableName(("shop",), "orders")


def row(path: str = "/a", age: timedelta = 2 * HOUR, **more: Any) -> QueuedDeletion:
    facts: dict[str, Any] = {"table": ORDERS, "table_uuid": "u1", "orphaned_at": NOW - age, **more}
    return QueuedDeletion(path=path, **facts)


def dropped(**more: Any) -> QueuedDeletion:
    facts: dict[str, Any] = {"type": DeletionType.METADATA, "why": Why.DROPPED, **more}
    return row("/v9.metadata.json", **facts)


def due_paths(*batches: DeletionBatch) -> list[str]:
    return [one.path for _, rows in due(batches, NOW, HOUR) for one in rows]


def test_a_row_is_due_once_its_grace_period_is_over() -> None:
    batch = DeletionBatch("b", (row("/old", HOUR), row("/young", HOUR - timedelta(seconds=1))))
    assert due_paths(batch) == ["/old"]


def one_round(queue: Queue, stored: list[str], refuses: Callable[[], bool] = lambda: False) -> set[str]:
    """The paths that are left in storage."""
    table = WorkedTable(3, lambda: NOW)
    of_table = set(table.stored)
    for path in stored:
        table.put(path)
    clock = WorldClock(lambda: NOW, Random(1), lambda: None)
    DeletionWorker(queue, Storage(table, refuses), QueueSettings(grace=HOUR), clock).perform()
    return set(table.stored) - of_table


def queued(queue: Queue) -> dict[str, QueuedDeletion]:
    return {one.path: one for batch in queue.batches() for one in batch.rows}


@pytest.mark.parametrize("why", [Why.UNCOMMITTED, Why.EXPIRED])
def test_rows_that_are_not_due_stay_in_the_queue_when_others_of_their_batch_go(why: Why) -> None:
    """H19: forgotten, their files would be left to nobody."""
    facts: dict[str, Any] = {"table_uuid": "u", "why": why}
    young, failed = row("/young", timedelta(0), **facts), row("/failed", retry_count=1, retry_at=NOW + HOUR, **facts)
    queue = Queue()
    queue.enqueue([row("/old", **facts), young, failed])
    assert len(queue.batches()) == 1
    assert one_round(queue, ["/old", "/young", "/failed"]) == {"/young", "/failed"}
    assert queued(queue) == {"/young": young, "/failed": failed}


def test_rows_that_are_not_due_stay_beside_one_that_could_not_be_deleted() -> None:
    queue = Queue()
    queue.enqueue([row("/old", table_uuid="u"), row("/young", timedelta(0), table_uuid="u")])
    assert one_round(queue, ["/old", "/young"], refuses=lambda: True) == {"/old", "/young"}
    assert {path: one.retry_count for path, one in queued(queue).items()} == {"/old": 1, "/young": 0}


def test_rows_that_are_not_due_stay_beside_a_table_that_was_dropped() -> None:
    """Its row is expanded, or dismissed: here its uuid is still there."""
    facts: dict[str, Any] = {"type": DeletionType.METADATA, "why": Why.DROPPED, "table_uuid": "u"}
    young = row("/v2.metadata.json", timedelta(0), **facts)
    queue = Queue()
    queue.enqueue([row("/v1.metadata.json", **facts), young])
    one_round(queue, [])
    assert queued(queue) == {"/v2.metadata.json": young}


def test_a_row_that_failed_waits_for_its_next_try() -> None:
    batch = DeletionBatch("b", (row("/now", retry_at=NOW), row("/later", retry_at=NOW + timedelta(seconds=1))))
    assert due_paths(batch) == ["/now"]


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=6))
def test_of_a_path_that_waits_several_times_the_last_time_counts(ages: list[int]) -> None:
    batches = [DeletionBatch(f"b{n}", (row("/a", timedelta(seconds=age)),)) for n, age in enumerate(ages)]
    assert bool(due_paths(*batches)) == (min(ages) >= 3600)


@pytest.mark.parametrize(
    ("first", "standing", "verdict"),
    [
        (row(), TableStanding("u1"), Delete),
        (row(), TableStanding(None), Hold),
        (row(), TableStanding("u2"), Hold),
        (row(), TableStanding("u1", may_be_cleaned=False), Dismiss),
        (row(why=Why.DROPPED), TableStanding(None), Delete),
        (row(why=Why.DROPPED), TableStanding("u2"), Delete),
        (row(why=Why.DROPPED), TableStanding("u1"), Delete),
        (dropped(), TableStanding("u1"), Dismiss),
        (dropped(), TableStanding("u2"), Expand),
        (dropped(), TableStanding(None), Expand),
        (dropped(), TableStanding("u2", may_be_cleaned=False), Dismiss),
    ],
)
def test_what_became_of_the_table_decides(
    first: QueuedDeletion, standing: TableStanding, verdict: type[Verdict]
) -> None:
    assert isinstance(judge([first], standing), verdict)


@pytest.mark.parametrize("standing", [TableStanding(None), TableStanding("u2")])
@pytest.mark.parametrize(
    "first", [dropped(), dropped(why=Why.DROPPING), row(why=Why.DROPPED)], ids=["dropped", "intent", "file"]
)
def test_a_table_that_the_catalog_has_under_another_name_loses_nothing(
    first: QueuedDeletion, standing: TableStanding
) -> None:
    """It was renamed, or registered again from its last metadata file."""
    assert must_be_nowhere([first], standing)
    assert isinstance(judge([first], standing, "shop.renamed"), Dismiss)
    assert not isinstance(judge([first], standing, None), Dismiss)


def test_files_that_only_became_orphans_are_held_wherever_their_table_is() -> None:
    assert not must_be_nowhere([row()], TableStanding(None))
    assert isinstance(judge([row()], TableStanding(None), "shop.renamed"), Hold)


def test_files_of_a_table_that_the_catalog_has_under_two_names_wait() -> None:
    """One of the two cannot tell what the other needs."""
    for why in (Why.EXPIRED, Why.UNCOMMITTED, Why.DROPPED):
        assert must_be_alone([row(why=why)], TableStanding("u1"))
        verdict = judge([row(why=why)], TableStanding("u1"), "shop.copy")
        assert isinstance(verdict, Hold)
        assert "shop.copy" in verdict.reason
        assert "gc.enabled=false" in verdict.reason, "it says what to do"


def test_who_is_not_there_and_who_was_not_dropped_need_no_second_name() -> None:
    assert not must_be_alone([row()], TableStanding(None))
    assert not must_be_alone([row()], TableStanding("u2"))
    assert not must_be_alone([dropped()], TableStanding("u1"))


def test_an_intent_is_expanded_once_the_table_is_gone_and_dismissed_while_it_is_there() -> None:
    epoch_commit = dropped(why=Why.DROPPING)
    assert isinstance(judge([epoch_commit], TableStanding(None)), Expand)
    assert isinstance(judge([epoch_commit], TableStanding("u1")), Dismiss)


def test_a_file_of_an_expiry_that_has_not_landed_yet_is_looked_at_again() -> None:
    """Dismissed, it would be left to nobody once it lands. What was never committed is dismissed at once."""
    young = row(age=timedelta(minutes=1), why=Why.EXPIRED)
    waits = while_referred_to(young, NOW)
    assert waits is not None
    assert waits.retry_at is not None
    assert NOW < waits.retry_at <= NOW + HOUR
    assert waits.retry_count == 0
    assert while_referred_to(waits, waits.retry_at) is None
    assert while_referred_to(row(age=timedelta(minutes=1), why=Why.UNCOMMITTED), NOW) is None


def test_waits_grow_up_to_a_day_and_then_it_is_given_up() -> None:
    settings = QueueSettings(grace=HOUR, max_retries=14)
    waits = []
    one: QueuedDeletion | None = row()
    while (one := after_failure(one, NOW, settings)) is not None:
        assert one.retry_at is not None
        waits.append(one.retry_at - NOW)
    assert len(waits) == 14
    assert waits[:3] == [timedelta(minutes=1), timedelta(minutes=2), timedelta(minutes=4)]
    assert waits == sorted(waits)
    assert waits[-1] == timedelta(days=1)


def test_a_batch_is_of_one_table_and_kind() -> None:
    with pytest.raises(ValueError, match="mixes"):
        DeletionBatch("b", (row(), dropped()))
    with pytest.raises(ValueError, match="mixes"):
        DeletionBatch("b", (row(), row(table_uuid="u2")))


@pytest.mark.parametrize(
    "facts",
    [{"path": ""}, {"table_uuid": ""}, {"retry_count": -1}, {"type": DeletionType.METADATA}, {"why": Why.DROPPING}],
)
def test_an_untrue_row_does_not_exist(facts: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        row(**facts)
