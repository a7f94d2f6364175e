"""The moments at which all tables of a pipeline are said to agree."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from loop_world import Shelf, at
from simulation.tables import Catalog

from frazil.commit.admission import Coordinator
from frazil.commit.machine import make_epoch_commit
from frazil.config.routing import Route
from frazil.config.table_entries import TableEntry
from frazil.ingest.loop.consistency import Agreement
from frazil.ingest.loop.reader_loop import CutAgain
from frazil.ingest.loop.target_tables import SourceState, TargetTable
from frazil.model.frontier import Frontier
from frazil.model.ids import JobId, TableName
from frazil.model.ledger import Fence
from frazil.model.position import Position
from frazil.threads import SystemThreads

JOB = JobId("loop")
COORDINATOR = Coordinator(job=JOB, fence=Fence(1, UUID(int=1)), incarnation="test:1")


class Records:
    def __init__(self) -> None:
        self.moments: list[tuple[Position, Mapping[TableName, int | None]]] = []

    def record(self, job: JobId, resolved: Frontier, snapshots: Mapping[TableName, int | None]) -> bool:
        self.moments.append((resolved.position, snapshots))
        return True


class AgreeingTables:
    def __init__(self, *names: str) -> None:
        self.shelf, self.records = Shelf(JOB), Records()
        self.tables = [self._table(name) for name in names]
        self.agreement = Agreement(self.records, self.shelf, JOB, SystemThreads())

    @property
    def catalog(self) -> Catalog:
        return self.shelf.catalog

    def _table(self, name: str) -> TargetTable:
        table = TableName(("lake",), name)
        self.catalog.create(table)
        return TargetTable(SourceState(Route(name, TableEntry(source=name, target=table.text), table), 0))

    def publish(self, table: TargetTable, *seconds: int) -> None:
        lower: Any = table.progress.tip_position
        for second in seconds:
            head = self.shelf.head(table.target)
            made = make_epoch_commit(COORDINATOR, table.target, head.uuid, lower, Frontier(at(second)), ())
            assert self.catalog.land(table.target, head.base, made.plan) is not None
            lower = at(second)
        table.start_at(Frontier(lower), None, datetime(2024, 1, 1, tzinfo=UTC))


def test_a_table_whose_own_snapshots_have_expired_still_agrees() -> None:
    world = AgreeingTables("orders")
    (orders,) = world.tables
    world.publish(orders, 1)
    for number in range(3):
        world.catalog.foreign(orders.target, (), f"append {number}")
    world.catalog.expire(orders.target, 1)
    assert world.agreement.reached(at(1), world.tables) == at(1)
    assert world.records.moments == [(at(1), {orders.target: 4})]


def test_a_moment_that_a_table_is_beyond_is_recorded_only_if_an_epoch_of_it_ended_there() -> None:
    """After a rewind of one table the others are further; what they held in between, nobody knows."""
    world = AgreeingTables("orders", "items")
    orders, items = world.tables
    world.publish(orders, 1)
    world.publish(items, 5)
    assert world.agreement.reached(at(1), world.tables) is None
    world.publish(orders, 5)
    assert world.agreement.reached(at(5), world.tables) == at(5)


def test_a_table_that_does_not_show_what_was_published_to_it_is_cut_again() -> None:
    world = AgreeingTables("orders")
    (orders,) = world.tables
    world.publish(orders, 1)
    orders.start_at(Frontier(at(2)), None, datetime(2024, 1, 1, tzinfo=UTC))
    with pytest.raises(CutAgain):
        world.agreement.reached(at(2), world.tables)
