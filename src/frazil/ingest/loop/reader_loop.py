"""A reader loop: some tables of a pipeline, read together in one thread.

    read their ledgers --> open the source behind them
        |
        v
    poll --> plan a window --> WindowWriter --> EpochPlanner --> commit line --> acknowledge
      ^                                                             |
      +-- wait -------------------------------------- a doubt: -----+--> the loop ends and says why

Everything in memory here is a guess about the ledger; after any doubt it is thrown away: the loop ends with the
tables that failed, and the supervisor starts another one, which reads the ledgers again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Protocol

from frazil import errors
from frazil.commit.admission import Coordinator
from frazil.commit.machine import AlreadyPublished, EpochCommit, Outcome, Published, Recut, failure
from frazil.commit.publisher import publish, publish_together
from frazil.config.routing import matches
from frazil.ingest.loop.commit_lanes import TABLES_AT_ONCE, CommitLanes, Group, Late
from frazil.ingest.loop.components import Components
from frazil.ingest.loop.epoch_planner import EpochPlanner
from frazil.ingest.loop.table_registry import TableRegistry
from frazil.ingest.loop.target_tables import TargetTable
from frazil.ingest.quarantine.held_keys import HeldKeys
from frazil.ingest.write.schema_tracker import SchemaTracker
from frazil.ingest.write.window_writer import Targets, WindowWriter, WrittenWindow
from frazil.model.frontier import Window, plan_window, resume_after
from frazil.model.ledger import LedgerEntry
from frazil.model.position import Position, is_before
from frazil.model.write import Role
from frazil.observability.logs import Log
from frazil.sources.base import InputPartition, LoadsTables, LosesTables, Source

WHOLE = ""
"""Stands for all tables of a loop where an error names none."""
_log = Log("frazil.pipeline")


class CutAgain(errors.Transient):
    """The table holds something else than this coordinator thought; its ledger must be read again."""


class _TablesFailed(Exception):
    def __init__(self, errors: Mapping[str, BaseException]) -> None:
        super().__init__(str(errors))
        self.errors = errors


class Watcher(Protocol):
    """The supervisor, as a loop knows it."""

    def noticed(self, source: Source) -> Sequence[str]:
        """Tables that the source offers by now and that this loop is to take in."""

    def acknowledgeable(self) -> Position | None:
        """What the source may forget."""

    def changed(self, tables: Iterable[TargetTable]) -> None:
        """Something is different now; these tables may be in another state."""


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Everything that is resolved is published."""


@dataclass(frozen=True, slots=True)
class Yielded:
    """Asked to end; everything that was begun is finished."""


@dataclass(frozen=True, slots=True)
class Lagged:
    """These tables let the others wait; what they were given to publish goes on in `line`."""

    tables: frozenset[str]
    line: CommitLanes


@dataclass(frozen=True, slots=True)
class Failed:
    """Which tables failed with what; `WHOLE` if it cannot be told which."""

    errors: Mapping[str, BaseException]


Ending = CaughtUp | Yielded | Lagged | Failed


class ReaderLoop:
    """`tables` are source tables. With `ends_idle` it ends when all that the source had to tell when it was opened is
    published and nothing more is resolved by then, not before `idle_from` on the clock. `takes_new` if tables that
    appear at the source are taken in. `states_end` if a table that turns out to be empty publishes that."""

    def __init__(
        self,
        parts: Components,
        source: Source,
        registry: TableRegistry,
        coordinator: Coordinator,
        tables: Sequence[str],
        watcher: Watcher,
        capturing: HeldKeys | None,
        *,
        ends_idle: bool,
        idle_from: float = 0.0,
        takes_new: bool = False,
        states_end: bool = False,
    ) -> None:
        self._parts = parts
        self._config = parts.config
        self._source = source
        self._registry = registry
        self._coordinator = coordinator
        self._names = list(tables)
        self._watcher = watcher
        self._capturing = capturing
        self._ends_idle = ends_idle
        self._idle_from = idle_from
        self._takes_new = takes_new
        self._end = Event()
        self._after: Position | None = None
        self._epochs = 0
        self._got_on = False
        self._has_polled = False
        schema_tracker = SchemaTracker(source)
        self._windows = WindowWriter(
            parts.config, parts.tables, schema_tracker, parts.executors, parts.clock, capturing
        )
        self._epoch_commits = EpochPlanner(parts.config, source, parts.clock, parts.together, states_end)
        self._line = CommitLanes(self._publish, self._config.limits.epochs_in_flight - 1 or 1, parts.threads)

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(self._names)

    @property
    def has_progressed(self) -> bool:
        """A window that was read proves nothing about a catalog that takes no commits, nor about the window behind it,
        which the next loop may fail at again: but one that has come to the end of what is resolved has got past it."""
        return self._epochs > 0 or (self._got_on and not self._in_flight)

    def end(self) -> None:
        """Asks it to end when what is under way is finished."""
        self._end.set()

    def run(self) -> Ending:
        """Publishes until it is asked to end, has caught up, or cannot go on; never raises."""
        ending: Ending
        try:
            ending = self._run()
        except Late as late:
            ending = Lagged(late.lanes, self._line)
        except _TablesFailed as failed:
            ending = Failed(failed.errors)
        except BaseException as error:
            ending = Failed(self._blamed(error))
        if not isinstance(ending, Lagged):
            self._line.close()
            if failures := self._line.failures:
                ending = Failed(self._told_apart(failures))
        self._source.stop()
        return ending

    def _run(self) -> Ending:
        if failed := self._read_ledgers(self._names):
            return Failed(failed)
        self._source.initial({main_table.source: main_table.progress.published for main_table in self._main_tables})
        self._after = resume_after(main_table.progress for main_table in self._main_tables)
        self._watcher.changed(table for name in self._names for table in self._registry.targets_of(name))
        while not self._end.is_set():
            if self._line.failures:
                break
            if lost := self._lost():
                return Failed(lost)
            if self._step():
                continue
            if self._ends_idle and self._source.is_caught_up and self._parts.clock.monotonic() >= self._idle_from:
                self._line.drain()
                self._acknowledge()
                self._watcher.changed(())
                return CaughtUp()
            self._parts.clock.wait(self._config.source.poll_interval, self._end)
        return Yielded()

    @property
    def _main_tables(self) -> list[TargetTable]:
        return [self._registry.main_table(name) for name in self._names]

    @property
    def _in_flight(self) -> bool:
        return any(table.progress.in_flight for name in self._names for table in self._registry.targets_of(name))

    def _read_ledgers(self, names: Sequence[str]) -> dict[str, BaseException]:
        failed: dict[str, BaseException] = {}
        for name in names:
            try:
                self._registry.read_ledgers(self._coordinator, [name], self._parts.committer)
            except errors.FrazilError as error:
                failed[name] = error
            if self._capturing is not None:
                self._capturing.forget(self._registry.targets_of(name))
        return failed

    def _lost(self) -> dict[str, BaseException]:
        if not isinstance(self._source, LosesTables):
            return {}
        lost = self._source.lost_tables()
        return {name: lost[name] for name in self._names if name in lost}

    # what failed

    def _blamed(self, error: BaseException) -> dict[str, BaseException]:
        """The tables that an error names, as the source or the lake calls them; or as the source does where it knows
        more of a name than we do by now."""
        facts = error.facts if isinstance(error, errors.FrazilError) else {}
        named = {one for one in (facts.get("table"), *facts.get("tables", ())) if one}
        found = [name for name in self._names if any(one in named for one in (name, *self._target_names(name)))]
        if not found:
            tables = {one.rpartition("+")[0] or one for one in named}
            found = [name for name in self._names if any(matches(one, name) for one in tables)]
        return dict.fromkeys(found or [WHOLE], error)

    def _target_names(self, name: str) -> list[str]:
        return [table.name for table in self._registry.targets_of(name)]

    def _told_apart(self, failures: Mapping[str, BaseException]) -> dict[str, BaseException]:
        found: dict[str, BaseException] = {name: failures[name] for name in self._names if name in failures}
        for lane, error in failures.items():
            if lane not in found:
                found |= self._blamed(error)
        return found

    # one window

    def _step(self) -> bool:
        """Reads and writes the next window; False if nothing new is resolved."""
        resolved = self._source.latest()
        if self._takes_new and (new := self._watcher.noticed(self._source)):
            self._names = [*filter(self._registry.knows, self._names), *new]
            if failed := self._read_ledgers(new):
                raise _TablesFailed(failed)
        if self._takes_new and not self._has_polled:
            self._tell_of_quiet_tables()
        self._has_polled = True
        window = plan_window(resolved, self._after, self._config.snapshot.value, self._config.limits.epochs_per_job)
        if window is None:
            self._got_on |= self._source.is_caught_up
            self._look_at_loads()
            return False
        written, concerned = self._written(window)
        self._count(written, concerned)
        lanes = self._epoch_commits.lanes(self._coordinator, written, concerned)
        self._look_at_loads()
        if lanes:
            self._line.submit(lanes, self._config.limits.lag_patience)
        self._after = written.window.upper
        self._got_on |= not self._names
        self._acknowledge()
        self._watcher.changed(())
        if not any(is_before(self._after, position) for position in resolved):
            # With a pause before what is resolved already, a stream that is behind would stay so.
            self._parts.clock.wait(self._config.epoch_interval, self._end)
        return True

    def _tell_of_quiet_tables(self) -> None:
        """They may be quiet, or gone from the source: that is not told there."""
        offered = {table.name for table in self._source.tables()}
        if quiet := [main_table.name for main_table in self._main_tables if main_table.source not in offered]:
            _log.info("the source shows nothing of these tables beyond what is published", tables=quiet)
        if unmet := self._registry.unmet_entries:
            _log.warning(
                "the source shows no table that these entries name: check the names, or wait for the first change",
                entries=unmet,
            )

    def _look_at_loads(self) -> None:
        if isinstance(self._source, LoadsTables):
            for main_table in self._main_tables:
                main_table.load = self._source.loading(main_table.source)

    def _written(self, window: Window) -> tuple[WrittenWindow, Sequence[Targets]]:
        """The window, or its first epochs if all of it is more than one job should read. If a change in it cannot be
        taken, an earlier part, too: what lies before that change is still published, and columns that change between
        two epochs are met one after the other. Where several tables are read, that is left to a loop of the table's
        own. The rest is resolved still."""
        while True:
            behind = [
                main_table
                for main_table in self._main_tables
                if is_before(main_table.progress.tip_position, window.upper)
            ]
            concerned = [self._registry.targets_of(main_table.source) for main_table in behind]
            try:
                partitions = self._partitions(window, behind)
                epochs = self._windows.epochs_of_a_job(window, partitions)
                if epochs == len(window.uppers):
                    return self._windows.write(self._coordinator, window, concerned, partitions), concerned
            except errors.BadInput as error:
                if len(window.uppers) == 1 or (len(self._names) > 1 and WHOLE not in self._blamed(error)):
                    raise
                epochs = len(window.uppers) // 2
            window = window.first(epochs)

    def _partitions(self, window: Window, main_tables: Sequence[TargetTable]) -> Sequence[InputPartition]:
        frontiers = {main_table.source: main_table.progress.tip for main_table in main_tables}
        return self._source.partitions(
            window, frontiers, {main_table.source: main_table.index for main_table in main_tables}
        )

    def _count(self, written: WrittenWindow, concerned: Sequence[Targets]) -> None:
        for targets in concerned:
            main_table = targets[-1]
            if found := written.found(main_table.index):
                main_table.dropped += (dropped := sum(report.dropped for report in found))
                self._parts.metrics.changes_dropped(main_table.name, dropped)
                left_out = sum(sum(report.left_out.values()) for report in found)
                self._parts.metrics.values_left_out(main_table.name, left_out)
            quarantine = next((table for table in targets if table.role is Role.QUARANTINE), None)
            captured = written.captured(main_table.index)
            if quarantine is not None and self._capturing is not None and captured:
                *_, last = written.files(quarantine.target)
                self._capturing.sent(quarantine, last, captured)
                rows = sum(report.rows for report in captured)
                _log.warning("changes put in quarantine", table=main_table.name, changes=rows)

    # publishing, in the threads of the commit line

    def _publish(self, group: Group) -> None:
        parts, locators = self._parts, self._parts.locators
        searching = {
            epoch_commit.table: locators.of(epoch_commit.table)
            for epoch_commit in group
            if locators is not None and epoch_commit.needs_locating
        }
        outcomes: Sequence[Outcome]
        with ExitStack() as turns:
            for table in sorted({epoch_commit.table for epoch_commit in group}, key=lambda name: name.text):
                turns.enter_context(self._registry.target(table).turn)
            if len(group) == 1:
                (epoch_commit,) = group
                outcomes = (
                    publish(
                        epoch_commit, parts.committer, parts.clock, parts.observer, searching.get(epoch_commit.table)
                    ),
                )
            else:
                side_by_side = partial(parts.threads.map, at_once=TABLES_AT_ONCE)
                outcomes = publish_together(
                    group, parts.committer, parts.clock, parts.observer, searching, side_by_side=side_by_side
                )
        # All that landed is noted before anything is raised: a group may have landed in part.
        for epoch_commit, outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, Published):
                self._landed(epoch_commit, outcome.plan.entry, outcome.snapshot_id)
                self._registry.target(epoch_commit.table).holds_more(outcome.plan)
            elif isinstance(outcome, AlreadyPublished):
                self._landed(epoch_commit, epoch_commit.plan.entry, outcome.entry.snapshot_id)
        for epoch_commit, outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, Recut):
                raise CutAgain(
                    f"{epoch_commit.table} is at {outcome.position}, not at {epoch_commit.lower}",
                    table=epoch_commit.table.text,
                )
            if (error := failure(outcome, epoch_commit)) is not None:
                raise error
        self._watcher.changed([self._registry.target(epoch_commit.table) for epoch_commit in group])

    def _landed(self, epoch_commit: EpochCommit, entry: LedgerEntry, snapshot_id: int | None) -> None:
        table = self._registry.target(epoch_commit.table)
        table.landed(entry, snapshot_id, self._parts.clock.now())
        self._epochs += 1
        if table.role is Role.QUARANTINE and self._capturing is not None:
            self._capturing.landed(table, entry)

    def _acknowledge(self) -> None:
        position = self._watcher.acknowledgeable()
        if position is not None:
            self._source.commit(position)
