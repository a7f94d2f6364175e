"""Whether something of a table is on its way: what maintenance asks before it takes a source for silent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from unit.coordinator.coordinator_builders import entry

from frazil.config.routing import Route
from frazil.config.tables import TableEntry
from frazil.daemon.tables import Origin, RunningTable
from frazil.daemon.windows import Executors, WindowWriter
from frazil.model.epoch import Frontier, Window
from frazil.model.names import TableName
from frazil.model.position import Hlc

NOW = datetime(2026, 1, 1, tzinfo=UTC)
UPPER = entry(10).resolved


def running_table() -> RunningTable:
    route = Route("orders", TableEntry.model_validate({"source": "orders"}), TableName(("shop",), "orders"))
    table = RunningTable(Origin(route, 0))
    table.start_at(Frontier(Hlc(1), ""), None, NOW)
    return table


def test_a_table_is_underway_from_its_window_to_its_last_commit() -> None:
    table, unused = running_table(), Any
    writer = WindowWriter(unused, unused, unused, Executors(write=unused, cores=1), unused, None)
    assert not table.is_underway
    writer.write(unused, Window((UPPER,)), [[table]], [])
    assert table.is_underway, "it is read"
    table.hand_over(Frontier(UPPER, ""))
    table.read_through(UPPER, True)
    assert table.is_underway, "it is to be committed"
    table.landed(entry(10), 7, NOW)
    assert not table.is_underway


def test_a_window_that_failed_is_forgotten_once_the_ledger_is_read_again() -> None:
    table = running_table()
    table.begin_reading()
    table.start_at(Frontier(Hlc(1), ""), None, NOW)
    assert not table.is_underway
