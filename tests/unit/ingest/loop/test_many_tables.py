"""What a pipeline of many tables costs the driver: each commit what it itself changes. Calls are counted, not time."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any

import pytest
from unit.ingest.loop.many_tables import ManyTables

import frazil
from frazil.clock import Clock
from frazil.ingest.loop.supervisor import Supervisor
from frazil.model.state import TableState
from frazil.observability.metrics import Metrics

OURS = str(Path(frazil.__file__).parent)


class Calls:
    """While open, counts the calls of our own functions, in every thread that is started meanwhile and in this one."""

    def __init__(self) -> None:
        self.by_name: Counter[str] = Counter()

    @property
    def total(self) -> int:
        return self.by_name.total()

    def __enter__(self) -> Calls:
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            self.by_name[f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_qualname}"] += 1


class CountingMetrics(Metrics):
    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.states: Counter[str] = Counter()

    def table_is(self, table: str, state: TableState) -> None:
        self.states[table] += 1
        super().table_is(table, state)


def calls_of_an_epoch(root: Path, count: int, named: bool) -> Calls:
    """Of a start, and of one epoch in which every table has changed."""
    many = ManyTables(root, count, named)
    many.epoch()
    Supervisor(many.parts(), lambda _: None, Event()).run(once=True)
    many.epoch()
    parts = many.parts()
    with Calls() as calls:
        Supervisor(parts, lambda _: None, Event()).run(once=True)
    assert len(many.committer.commits) == 2 * count
    return calls


@pytest.mark.parametrize("named", [True, False], ids=["an entry each", "one pattern"])
def test_four_times_the_tables_are_four_times_the_work_of_an_epoch(tmp_path: Path, named: bool) -> None:
    few = calls_of_an_epoch(tmp_path / "few", 30, named)
    many = calls_of_an_epoch(tmp_path / "many", 120, named)
    grown = {name: f"{few.by_name[name]} -> {count}" for name, count in many.by_name.most_common(12)}
    assert many.total < 5 * few.total, grown


def test_a_commit_sets_the_gauges_of_its_own_table(tmp_path: Path) -> None:
    many = ManyTables(tmp_path, 20)
    many.epoch()
    parts = many.parts(CountingMetrics)
    Supervisor(parts, lambda _: None, Event()).run(once=True)
    assert isinstance(parts.metrics, CountingMetrics)
    assert parts.metrics.states == Counter({f"shop.{name}": 2 for name in many.names}), "once at the start"


def test_an_epoch_of_one_table_publishes_nothing_for_the_others(tmp_path: Path) -> None:
    many = ManyTables(tmp_path, 20)
    many.epoch()
    Supervisor(many.parts(), lambda _: None, Event()).run(once=True)
    many.epoch(["t0007"])
    Supervisor(many.parts(), lambda _: None, Event()).run(once=True)
    assert [table.name for table in many.committer.commits[20:]] == ["t0007"]
