"""Maintains the tables of a running pipeline, beside it, without being asked.

    every second: each table --numbers in memory--> due? --not the hour, not a byte left?--> later
                                                     |
                                                     v
                               one table at a time: expire, sweep; convert, compact, manifests; then what is queued
                                                     |        a table that falls behind meanwhile: pause here
                                                     v
                               what the table holds now, from the head that came of it

Here snapshots expire before files are rewritten: a rewrite may take until the table is behind, every time, and what
would follow it would never be reached. What was not reached is due again at the next look.

In a thread of its own. What goes wrong is logged and tried again later: maintenance never stops a pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event, Thread

from frazil.clock import Clock
from frazil.config.maintenance import MaintenanceConfig
from frazil.errors import FrazilError
from frazil.ingest.loop.table_stats import Added, TableStats
from frazil.ingest.loop.target_tables import MaintenanceStatus, TargetTable
from frazil.maintenance.commit_rewrite import Turn
from frazil.maintenance.runner import DELETE, Maintenance
from frazil.maintenance.triggers import (
    CLEAN,
    CONVERT,
    REWRITE,
    Activity,
    Due,
    debt,
    due,
    is_behind,
    is_finished,
    is_quiet,
    may_be_disturbed,
)
from frazil.model.ids import TableName
from frazil.model.position import Position
from frazil.model.results import MaintenanceStep
from frazil.model.state import TableState
from frazil.observability.logs import Log
from frazil.observability.metrics import Metrics

TICK_SECONDS = 1.0
_log = Log("frazil.maintenance")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    """Where a table was when something was done to it last; see `Activity`."""

    at: float
    looked_at: float
    cleaned_at: float
    convert_took: float = 0.0
    look_took: float = 0.0
    epochs: int = 0
    converted: int = 0
    added: Added = field(default_factory=Added)
    stats: TableStats = field(default_factory=TableStats)
    snapshots: int = 0
    finished: bool = False


@dataclass(frozen=True, slots=True)
class _Performed:
    """`begun` if it was let do anything, `whole` if nothing held it up: neither whoever was asked, nor an error that
    ended it (`failed`)."""

    steps: tuple[MaintenanceStep, ...] = ()
    begun: bool = False
    whole: bool = True
    failed: bool = False


class Autovacuum:
    """At work from `start` until `stop`."""

    def __init__(
        self,
        maintenance: Maintenance,
        tables: Callable[[], Sequence[TargetTable]],
        settings: MaintenanceConfig,
        clock: Clock,
        metrics: Metrics | None = None,
    ) -> None:
        self._maintenance = maintenance
        self._tables = tables
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._stop = Event()
        began = clock.monotonic()
        self._start = _Mark(at=began, looked_at=began, cleaned_at=began)
        self._marks: dict[TableName, _Mark] = {}
        self._deleted_at = began
        self._queued: set[TableName] = set()
        """Tables of which queued files wait for a moment at which they may be deleted."""
        self._committed: dict[TableName, tuple[int, float]] = {}
        self._read: dict[TableName, tuple[Position | None, float]] = {}
        self._thread = Thread(target=self._run, name="frazil-autovacuum", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, patience: float) -> None:
        """What is under way may be left: files of a run that does not end are swept later."""
        self._stop.set()
        self._thread.join(patience)

    def _run(self) -> None:
        while not self._clock.wait(min(TICK_SECONDS, self._settings.naptime), self._stop):
            try:
                self._look()
            except Exception as error:  # whatever it met, the stream goes on
                _log.warning("maintenance failed", reason=f"{type(error).__name__}: {error}")

    def _look(self) -> None:
        activities = {table.target: self._activity(table) for table in self._tables()}
        self._tell(activities)
        if not self._is_quiet:
            found = {target: due(activity, self._settings) for target, activity in activities.items()}
            self._maintain({target: what for target, what in found.items() if what is not None})
            self._delete_dropped(activities)

    @property
    def _is_quiet(self) -> bool:
        return is_quiet(self._clock.now(), self._settings.quiet)

    def _activity(self, table: TargetTable) -> Activity:
        mark, now = self._marks.get(table.target, self._start), self._clock.monotonic()
        return Activity(
            state=table.state,
            lag=table.lag(self._clock.now()),
            idle=self._idle(table),
            silent=self._silent(table),
            seconds=now - mark.at,
            convert_took=mark.convert_took,
            looked=now - mark.looked_at,
            look_took=mark.look_took,
            cleaned=now - mark.cleaned_at,
            commits=table.epochs - mark.epochs,
            unconverted=table.epochs - mark.converted,
            added=table.added.since(mark.added),
            stats=table.stats or TableStats(),
            before=mark.stats,
            snapshots_before=mark.snapshots,
            finished=mark.finished,
        )

    def _idle(self, table: TargetTable) -> float:
        now = self._clock.monotonic()
        epochs, at = self._committed.get(table.target, (table.epochs, now))
        if epochs != table.epochs:
            at = now
        self._committed[table.target] = table.epochs, at
        return now - at

    def _silent(self, table: TargetTable) -> float:
        now, read = self._clock.monotonic(), table.progress.read
        before, at = self._read.get(table.target, (read, now))
        if before != read or table.is_underway:
            at = now
        self._read[table.target] = read, at
        return now - at

    def _tell(self, activities: Mapping[TableName, Activity]) -> None:
        if self._metrics is not None:
            for target, activity in activities.items():
                held = activity.stats
                self._metrics.table_holds(target.text, held.data_files, held.delete_files, held.snapshots)
                self._metrics.unmaintained(target.text, activity.commits, finished=is_finished(activity))
        for table in self._tables():
            if table.target in activities:
                table.maintenance_status = replace(table.maintenance_status, debt=debt(activities[table.target]))

    def _maintain(self, found: Mapping[TableName, Due]) -> None:
        by_name = {table.target: table for table in self._tables()}
        for target, what in found.items():
            if target in by_name and not self._stop.is_set():
                self._maintain_table(by_name[target], what)
        self._queued.update(target for target, what in found.items() if DELETE in what.actions)
        self._queued &= by_name.keys()
        self._delete([by_name[target] for target in sorted(self._queued, key=lambda target: target.text)])

    def _delete(self, tables: Sequence[TargetTable]) -> None:
        """What is queued of these tables goes, but not while they had better not be disturbed: then it waits."""
        ready = [table for table in tables if may_be_disturbed(self._activity(table), self._settings)]
        if not ready:
            return
        patience = [self._patience(table) for table in ready]
        targets = [table.target for table in ready]
        done = self._perform(targets, Due("", (DELETE,)), lambda: all(may_go_on() for may_go_on in patience))
        if done.whole or done.failed:
            self._queued -= set(targets)

    def _delete_dropped(self, activities: Mapping[TableName, Activity]) -> None:
        """What dropped tables have left goes with what other tables have queued. If no table is left that could be due,
        or all are held up, somebody must look all the same."""
        is_due = self._clock.monotonic() - self._deleted_at >= self._settings.every
        if is_due and not any(activity.state is TableState.STEADY_STATE for activity in activities.values()):
            self._perform([], Due("", (DELETE,)), lambda: not (self._stop.is_set() or self._is_quiet))

    def _maintain_table(self, table: TargetTable, what: Due) -> None:
        before, began = self._marks.get(table.target, self._start), self._clock.monotonic()
        epochs, added = table.epochs, table.added
        _log.info("maintaining", table=table.name, reason=what.reason, actions=" ".join(what.actions))
        may_go_on = self._patience(table)
        cleaned = self._perform([table.target], what.only(CLEAN), may_go_on, lambda: table.turn)
        rewritten = self._perform([table.target], what.only(REWRITE), may_go_on, lambda: table.turn)
        steps = (*cleaned.steps, *rewritten.steps)
        self._show(table)
        now = self._clock.monotonic()
        mark = replace(before, at=now, convert_took=now - began)
        if rewritten.begun:
            mark = replace(mark, converted=epochs)
        if what.actions != CONVERT:
            mark = replace(
                mark,
                convert_took=sum(step.seconds for step in steps if step.action in CONVERT),
                looked_at=now,
                look_took=now - began,
            )
        if what.actions != CONVERT and rewritten.begun:
            left = [step for step in steps if not step.done or step.counts.get("waiting")]
            mark = replace(
                mark,
                epochs=epochs,
                added=added,
                stats=table.stats or TableStats(),
                finished=what.finish and rewritten.whole and not left,
            )
        if DELETE in what.actions and cleaned.whole:
            mark = replace(mark, cleaned_at=now, snapshots=(table.stats or TableStats()).snapshots)
        self._marks[table.target] = mark
        done = [step for step in steps if step.done]
        waits = "; ".join(f"{step.action}: {step.error or step.reason}" for step in steps if not step.done)
        names = ", ".join(step.action for step in done) or table.maintenance_status.done
        table.maintenance_status = MaintenanceStatus(
            self._clock.now() if done else table.maintenance_status.at, names, waits, table.maintenance_status.debt
        )

    def _perform(
        self, targets: Sequence[TableName], what: Due, may_go_on: Callable[[], bool], turn: Turn | None = None
    ) -> _Performed:
        if not what.actions:
            return _Performed()
        if DELETE in what.actions:
            self._deleted_at = self._clock.monotonic()
        steps: list[MaintenanceStep] = []
        answers: list[bool] = []

        def proceed() -> bool:
            answers.append(may_go_on())
            return answers[-1]

        failed = False
        try:
            for step in self._maintenance.run(
                targets, actions=what.actions, finish=what.finish, proceed=proceed, turn=turn
            ):
                self._log_step(step)
                steps.append(step)
        except Exception as error:  # whatever it met, the stream goes on
            _log.warning("maintenance failed", reason=f"{type(error).__name__}: {error}")
            failed = True
        return _Performed(tuple(steps), any(answers), all(answers) and not failed, failed)

    def _patience(self, table: TargetTable) -> Callable[[], bool]:
        """Whether to go on. A table that was not behind when it began must not be while it lasts, also if it is this
        that keeps it from committing; a source that was silent may stay so."""
        was_silent = is_behind(table.lag(self._clock.now()), 0.0, self._settings)

        def may_go_on() -> bool:
            silent = self._silent(table) if was_silent else 0.0
            is_late = is_behind(table.lag(self._clock.now()), silent, self._settings)
            return not (self._stop.is_set() or self._is_quiet or is_late)

        return may_go_on

    def _show(self, table: TargetTable) -> None:
        try:
            table.show(self._maintenance.head(table.target))
        except FrazilError as error:
            _log.warning("what the table holds is not known", table=table.name, reason=str(error))

    def _log_step(self, step: MaintenanceStep) -> None:
        if self._metrics is not None:
            self._metrics.maintained(step.table, step.action, step.seconds, failed=bool(step.error))
        if not step.error:  # failures were logged where they happened
            word = "maintained" if step.done else "maintenance waits"
            facts = {"table": step.table, "action": step.action, "reason": step.reason}
            _log.info(word, **facts, **step.counts, seconds=step.seconds)
