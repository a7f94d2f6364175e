"""Whether something of a table is on its way: what maintenance asks before it takes a source for silent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from unit.commit.commit_builders import entry

from frazil.config.routing import Route
from frazil.config.table_entries import TableEntry
from frazil.ingest.loop.target_tables import SourceState, TargetTable
from frazil.ingest.write.window_writer import Executors, WindowWriter
from frazil.model.frontier import Frontier, Window
from frazil.model.ids import TableName
from frazil.sources.cockroachdb.position import Hlc

NOW = datetime(2026, 1, 1, tzinfo=UTC)
UPPER = entry(10).resolved


def running_table() -> TargetTable:
    route = Route("orders", TableEntry.model_validate({"source": "orders"}), TableName(("shop",), "orders"))
    table = TargetTable(SourceState(route, 0))
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
