"""The thread that maintains: what it does when a table is due, and what it remembers of it. The lake is a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from threading import Event
from typing import Any
from uuid import UUID

import pytest
from unit.commit.commit_builders import entry, file, head

from frazil.config.maintenance import MaintenanceConfig
from frazil.config.routing import Route
from frazil.config.table_entries import TableEntry
from frazil.ingest.loop.target_tables import SourceState, TargetTable
from frazil.maintenance.scheduler import Autovacuum
from frazil.model.commit import CommitPlan
from frazil.model.files import FileKind
from frazil.model.frontier import Frontier
from frazil.model.ids import TableName
from frazil.model.ledger import TableHead
from frazil.model.results import MaintenanceStep
from frazil.model.state import TableState
from frazil.observability.metrics import Metrics
from frazil.sources.cockroachdb.position import Hlc

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ORDERS = TableName(("shop",), "orders")


class ScriptedClock:
    """Every wait of the thread is a tick, at which the script acts; it ends with the script."""

    def __init__(self, script: Sequence[Callable[[], None]]) -> None:
        self.passed = 0.0
        self._script = iter(script)

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.passed)

    def monotonic(self) -> float:
        return self.passed

    def wait(self, seconds: float, until: Event | None = None) -> bool:
        self.passed += seconds
        act = next(self._script, None)
        if act is None:
            return True
        act()
        return False

    def new_uuid(self) -> UUID:
        return UUID(int=1)

    def jitter(self) -> float:
        return 0.0


@dataclass
class ScriptedMaintenance:
    """Takes `took` seconds for each table, more for some actions (`takes`), and finds nothing but what `steps` say."""

    clock: ScriptedClock
    took: float = 0.0
    takes: dict[str, float] = field(default_factory=dict)
    steps: list[MaintenanceStep] = field(default_factory=list)
    summary: dict[str, str] = field(default_factory=dict)
    error: Exception | None = None
    orders: list[tuple[float, tuple[str, ...], bool]] = field(default_factory=list)
    reached: list[tuple[float, str]] = field(default_factory=list)
    named: list[tuple[TableName, ...]] = field(default_factory=list)
    proceeds: list[bool] = field(default_factory=list)
    behind: Callable[[], None] = lambda: None

    def head(self, table: TableName) -> TableHead:
        return head(self.summary)

    def run(
        self,
        tables: Sequence[TableName],
        *,
        actions: Sequence[str],
        finish: bool,
        proceed: Callable[[], bool],
        turn: Any = None,
        dry: bool = False,
    ) -> Iterator[MaintenanceStep]:
        assert list(tables) in ([ORDERS], [])
        self.named.append(tuple(tables))
        self.orders.append((self.clock.passed, tuple(actions), finish))
        for action in actions:
            if proceed():
                self.reached.append((self.clock.passed, action))
                self.clock.passed += self.takes.get(action, 0.0)
        self.clock.passed += self.took
        self.behind()
        self.proceeds.append(proceed())
        if self.error is not None:
            raise self.error
        yield from self.steps


def step(action: str = "compact", *, done: bool = True, reason: str = "small files", **counts: int) -> MaintenanceStep:
    return MaintenanceStep(table="shop.orders", action=action, reason=reason, counts=counts, done=done, seconds=1.0)


def running_table() -> TargetTable:
    route = Route("orders", TableEntry.model_validate({"source": "orders", "key": ["id"]}), ORDERS)
    table = TargetTable(SourceState(route, 0))
    table.start_at(Frontier(stamp(0), ""), None, NOW)
    table.show(head({"total-data-files": "1"}))
    return table


def stamp(seconds: float) -> Hlc:
    return Hlc(int((NOW + timedelta(seconds=seconds)).timestamp() * 1e9))


def commit(table: TargetTable, clock: ScriptedClock, **changed: Any) -> None:
    """An epoch of now, with a file."""
    position = stamp(clock.passed)
    made = replace(entry(10), resolved=position)
    table.read_through(position, True)
    table.hand_over(Frontier(position, ""))
    table.landed(made, 7, clock.now())
    table.holds_more(CommitPlan(entry=made, files=(file(), *changed.get("more", ()))))


def played(
    ticks: Sequence[str], maintenance: dict[str, Any] | None = None, **scripted: Any
) -> tuple[ScriptedMaintenance, TargetTable, Metrics]:
    """`c` is a tick with a commit before it, `.` one without, `e` one with equality deletes too; at `r` a window begins
    to be read, at `h` one is handed over to be committed, at `-` nothing comes."""
    table = running_table()
    clock = ScriptedClock([])
    equality = file("e", FileKind.EQUALITY_DELETE)
    acts = {
        "c": lambda: commit(table, clock),
        "e": lambda: commit(table, clock, more=(equality,)),
        ".": lambda: table.read_through(stamp(clock.passed), False),
        "r": table.begin_reading,
        "h": lambda: table.hand_over(Frontier(stamp(clock.passed), "")),
        "-": lambda: None,
    }
    clock._script = iter([acts[tick] for tick in ticks])
    made = ScriptedMaintenance(clock, **scripted)
    settings = MaintenanceConfig.model_validate({"naptime": "10s", "after_commits": 5, **(maintenance or {})})
    metrics = Metrics(clock)
    vacuum = Autovacuum(made, lambda: [table], settings, clock, metrics)  # type: ignore[arg-type]
    vacuum.start()
    vacuum._thread.join()
    return made, table, metrics


REWRITE = ("convert", "compact", "manifests")
EQUALITY_DELETES = {"total-data-files": "3", "total-delete-files": "2", "total-equality-deletes": "7"}


def test_a_busy_table_is_looked_at_every_nap_and_finished_when_it_rests() -> None:
    made, table, metrics = played("c" * 25 + "." * 30, summary={"total-data-files": "3"})
    assert made.orders == [
        (10.0, REWRITE, False),
        (20.0, REWRITE, False),
        (30.0, REWRITE, False),
        (40.0, REWRITE, True),
    ]
    assert table.maintenance_status.debt == ""
    assert metrics.registry.get_sample_value("frazil_maintenance_finished", {"table": "shop.orders"}) == 1


def test_what_the_table_holds_is_read_anew_after_it_was_maintained() -> None:
    _, table, _ = played("c" * 12, summary={"total-data-files": "3", "total-delete-files": "1"})
    assert table.stats is not None
    assert (table.stats.data_files, table.stats.delete_files) == (5, 1), "and two commits since"


def test_equality_deletes_are_converted_between_two_looks() -> None:
    made, _, _ = played("e" * 9, {"convert": {"after_commits": 4}}, summary={"total-equality-deletes": "0"})
    assert made.orders == [(4.0, ("convert",), False), (8.0, ("convert",), False)]


def test_everything_is_done_once_in_a_while_and_the_queue_last() -> None:
    made, _, _ = played("." * 20, {"every": "15s"})
    assert made.orders == [
        (15.0, ("expire", "sweep"), True),
        (15.0, REWRITE, True),
        (15.0, ("delete",), False),
    ]


def test_snapshots_expire_although_every_rewrite_lasts_until_the_table_is_behind() -> None:
    """H31: what comes after a rewrite would never be reached, and metadata would grow without bounds."""
    made, _, _ = played("c" * 200, {"max_lag": "30s", "every": "60s"}, takes={"compact": 31.0})
    reached = [action for _, action in made.reached]
    assert reached.count("compact") > 1
    assert "manifests" not in reached, "the table was behind by then"
    assert reached.count("expire") > 1
    assert reached.count("sweep") > 1


def test_what_was_not_reached_is_due_again_at_the_next_look() -> None:
    made, _, _ = played("c" * 300, {"max_lag": "30s", "every": "200s"}, takes={"expire": 31.0})
    expiries = [at for at, action in made.reached if action == "expire"]
    assert [later - at for at, later in pairwise(expiries)][:1] == [31.0 + 3 * 31.0], "not after another 200 s"
    assert "sweep" not in [action for _, action in made.reached]


def test_a_conversion_that_was_not_reached_waits_for_no_further_commits() -> None:
    settings = {"max_lag": "30s", "naptime": "15s", "every": "15s", "convert": {"after_commits": 15}}
    made, _, _ = played("e" * 20, settings, takes={"sweep": 31.0}, summary=EQUALITY_DELETES)
    asked = [(at, actions) for at, actions, _ in made.orders if actions != ("delete",)]
    assert asked[:3] == [(15.0, ("expire", "sweep")), (46.0, REWRITE), (47.0, ("convert",))]
    assert (46.0, "convert") not in made.reached
    assert (47.0, "convert") in made.reached


def test_nothing_is_deleted_once_the_quiet_hours_have_begun_and_it_is_made_up_for_when_they_end() -> None:
    settings = {"quiet_hours": ["12:00:45-12:01:15"], "every": "40s"}
    made, _, _ = played("." * 90, settings, takes={"manifests": 10.0})
    assert next(at for at, action in made.reached if action == "expire") == 40.0
    assert next(at for at, action in made.reached if action == "delete") == 75.0, "not 50.0"


def test_nothing_is_deleted_while_the_table_is_behind() -> None:
    settings = {"naptime": "15s", "every": "15s", "max_lag": "30s"}
    made, _, _ = played("c" * 14 + "r" + "c" * 40, settings, takes={"manifests": 31.0})
    before = [action for at, action in made.reached if at <= 46.0]
    assert before == ["expire", "sweep", *REWRITE]
    assert made.reached[len(before)] == (47.0, "delete"), "at once, when it is not behind any more"


def test_what_took_long_is_not_repeated_soon() -> None:
    made, _, _ = played("c" * 80, took=20.0)
    starts = [at for at, _, _ in made.orders]
    assert starts == [10.0, 90.0], "a table has three quarters of the time for itself"


def test_conversions_go_on_while_a_long_look_is_not_repeated() -> None:
    made, _, _ = played(
        "e" * 80, {"convert": {"after_commits": 4}}, took=8.0, steps=[step("convert")], summary=EQUALITY_DELETES
    )
    looks = [at for at, actions, _ in made.orders if actions == REWRITE]
    conversions = [at for at, actions, _ in made.orders if actions == ("convert",)]
    assert all(later - at >= 8.0 + 3 * 8.0 for at, later in pairwise(looks))
    assert any(0 < at - look < 8.0 + 3 * 8.0 for at in conversions for look in looks)


def test_what_could_not_be_done_is_told_and_tried_again() -> None:
    waits = step(done=False, reason="waits 60 s: 1GB of this hour are used up")
    made, table, metrics = played("c" + "." * 35, steps=[step("convert"), waits], summary={"total-data-files": "3"})
    assert [finish for _, _, finish in made.orders] == [True, True, True]
    assert table.maintenance_status.done == "convert"
    assert table.maintenance_status.waits == "compact: waits 60 s: 1GB of this hour are used up"
    assert metrics.registry.get_sample_value("frazil_maintenance_finished", {"table": "shop.orders"}) == 0


def test_groups_that_wait_for_the_next_run_leave_the_table_unfinished() -> None:
    made, _, _ = played("c" + "." * 35, steps=[step(waiting=2)], summary={"total-data-files": "3"})
    assert len(made.orders) == 3


def test_a_failure_is_survived_and_does_not_repeat_at_once() -> None:
    made, _, _ = played("c" * 25, error=RuntimeError("no such thing"))
    assert [at for at, _, _ in made.orders] == [10.0, 20.0]
    made, _, _ = played("c" + "." * 35, error=RuntimeError("no such thing"), summary={"total-data-files": "3"})
    assert len(made.orders) == 3, "what failed is not finished"


def test_nothing_is_done_in_quiet_hours() -> None:
    made, _, _ = played("c" * 30, {"quiet_hours": ["11:00-13:00"]})
    assert made.orders == []


def test_a_run_is_told_to_pause_when_the_table_falls_behind() -> None:
    made, _, _ = played("c" * 12, {"max_lag": "30s"})
    assert made.proceeds == [True]
    made, _, _ = played("c" * 12, {"max_lag": "30s"}, took=31.0)
    assert made.proceeds == [False]


def test_a_table_that_lags_is_left_alone_until_nothing_has_come_for_as_long() -> None:
    made, _, _ = played("c" + "-" * 40, {"max_lag": "20s"})
    assert [at for at, _, _ in made.orders] == [11.0], "the stream rests, and lags little yet"
    made, _, _ = played("c" + "-" * 40, {"max_lag": "15s", "naptime": "16s"})
    assert [at for at, _, _ in made.orders] == [17.0]


@pytest.mark.parametrize("underway", ["r", "h"])
def test_a_source_is_not_silent_while_an_epoch_takes_longer_than_the_table_may_lag(underway: str) -> None:
    """After an outage one epoch may take hours: it is not the stream that rests."""
    made, _, _ = played("c" + underway + "-" * 60, {"naptime": "25s", "max_lag": "20s"})
    assert made.orders == []


def test_a_source_is_not_silent_between_two_windows_in_which_a_table_had_nothing() -> None:
    table, old = running_table(), iter(range(-9000, 0))
    clock = ScriptedClock([lambda: table.read_through(stamp(next(old)), False)] * 100)
    made = ScriptedMaintenance(clock)
    settings = MaintenanceConfig.model_validate({"naptime": "10s", "max_lag": "20s", "after_files": 1})
    vacuum = Autovacuum(made, lambda: [table], settings, clock)  # type: ignore[arg-type]
    vacuum.start()
    vacuum._thread.join()
    assert made.orders == [], "it catches up, and is hours behind"


@pytest.mark.parametrize("tables", [[], [running_table()]])
def test_what_dropped_tables_left_goes_although_no_table_can_be_due(tables: list[TargetTable]) -> None:
    """The last table was dropped, under its pipeline or before it: nobody else works the queue off."""
    for table in tables:
        table.state = TableState.STOPPED
    clock = ScriptedClock([lambda: None] * 40)
    made = ScriptedMaintenance(clock)
    settings = MaintenanceConfig.model_validate({"naptime": "10s", "every": "15s"})
    vacuum = Autovacuum(made, lambda: tables, settings, clock)  # type: ignore[arg-type]
    vacuum.start()
    vacuum._thread.join()
    assert made.orders == [(15.0, ("delete",), False), (30.0, ("delete",), False)]
    assert set(made.named) == {()}
