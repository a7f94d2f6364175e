"""A cursor: some tables of a pipeline, read together in one thread.

    read their ledgers --> open the source behind them
        |
        v
    poll --> plan a window --> WindowWriter --> IntentMaker --> commit line --> acknowledge
      ^                                                             |
      +-- wait -------------------------------------- a doubt: -----+--> the cursor ends and says why

Everything in memory here is a guess about the ledger; after any doubt it is thrown away: the cursor ends with the
tables that failed, and the supervisor starts another one, which reads the ledgers again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Event
from typing import Protocol

from frazil import errors
from frazil.coordinator.admission import Coordinator
from frazil.coordinator.publish import AlreadyPublished, Intent, Outcome, Published, Recut, failure
from frazil.coordinator.publisher import publish, publish_together
from frazil.daemon.capturing import Capturing
from frazil.daemon.committing import TABLES_AT_ONCE, CommitLine, Group, Late
from frazil.daemon.discovery import Discovery
from frazil.daemon.intents import IntentMaker
from frazil.daemon.parts import Parts
from frazil.daemon.shaping import Shaper, ShapingSource
from frazil.daemon.tables import RunningTable
from frazil.daemon.windows import Targets, WindowWriter, WrittenWindow
from frazil.epochs.progress import plan_window, resume_after
from frazil.model.epoch import Window
from frazil.model.ledger import LedgerEntry
from frazil.model.ports import Split
from frazil.model.position import Position, is_before
from frazil.model.write import Role
from frazil.observability.logs import Log

WHOLE = ""
"""Stands for all tables of a cursor where an error names none."""
_log = Log("frazil.pipeline")


class CutAgain(errors.Transient):
    """The table holds something else than this coordinator thought; its ledger must be read again."""


class _TablesFailed(Exception):
    def __init__(self, errors: Mapping[str, BaseException]) -> None:
        super().__init__(str(errors))
        self.errors = errors


class Watcher(Protocol):
    """The supervisor, as a cursor knows it."""

    def noticed(self, source: ShapingSource) -> Sequence[str]:
        """Tables that the source offers by now and that this cursor is to take in."""

    def settled(self) -> Position | None:
        """What the source may forget."""

    def changed(self) -> None:
        """Something of a table is different now."""


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
    line: CommitLine


@dataclass(frozen=True, slots=True)
class Failed:
    """Which tables failed with what; `WHOLE` if it cannot be told which."""

    errors: Mapping[str, BaseException]


Ending = CaughtUp | Yielded | Lagged | Failed


class Cursor:
    """`tables` are source tables. With `ends_idle` it ends when there is nothing more to publish by then, not before
    `idle_from` on the clock. `takes_new` if tables that appear at the source are taken in. `states_end` if a table that
    turns out to be empty publishes that."""

    def __init__(
        self,
        parts: Parts,
        source: ShapingSource,
        roster: Discovery,
        coordinator: Coordinator,
        tables: Sequence[str],
        watcher: Watcher,
        capturing: Capturing | None,
        *,
        ends_idle: bool,
        idle_from: float = 0.0,
        takes_new: bool = False,
        states_end: bool = False,
    ) -> None:
        self._parts = parts
        self._config = parts.config
        self._source = source
        self._roster = roster
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
        self._steps = 0
        shaper = Shaper(source)
        self._windows = WindowWriter(parts.config, parts.tables, shaper, parts.executors, parts.clock, capturing)
        self._intents = IntentMaker(parts.config, source, parts.clock, parts.together, states_end)
        self._line = CommitLine(self._publish, self._config.limits.epochs_in_flight - 1 or 1)

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(self._names)

    @property
    def has_progressed(self) -> bool:
        """A window that was read proves nothing about a catalog that takes no commits."""
        return self._epochs > 0 or (self._steps > 0 and not self._in_flight)

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
        self._source.close()
        return ending

    def _run(self) -> Ending:
        if failed := self._read_ledgers(self._names):
            return Failed(failed)
        self._source.open({mirror.source: mirror.progress.published for mirror in self._mirrors})
        self._after = resume_after(mirror.progress for mirror in self._mirrors)
        self._tell()
        while not self._end.is_set():
            if self._line.failures:
                break
            if lost := self._lost():
                return Failed(lost)
            if self._step():
                continue
            if self._ends_idle and self._parts.clock.monotonic() >= self._idle_from:
                self._line.drain()
                self._acknowledge()
                self._tell()
                return CaughtUp()
            self._parts.clock.wait(self._config.source.poll_interval, self._end)
        return Yielded()

    @property
    def _mirrors(self) -> list[RunningTable]:
        return [self._roster.mirror(name) for name in self._names]

    @property
    def _in_flight(self) -> bool:
        return any(table.progress.in_flight for name in self._names for table in self._roster.targets_of(name))

    def _read_ledgers(self, names: Sequence[str]) -> dict[str, BaseException]:
        failed: dict[str, BaseException] = {}
        for name in names:
            try:
                self._roster.read_ledgers(self._coordinator, [name], self._parts.lake)
            except errors.FrazilError as error:
                failed[name] = error
            if self._capturing is not None:
                self._capturing.forget(self._roster.targets_of(name))
        return failed

    def _lost(self) -> dict[str, BaseException]:
        return {name: error for name, error in self._source.lost().items() if name in self._names}

    # what failed

    def _blamed(self, error: BaseException) -> dict[str, BaseException]:
        """The tables that an error names, as the source or the lake calls them."""
        facts = error.facts if isinstance(error, errors.FrazilError) else {}
        named = {facts.get("table"), *facts.get("tables", ())}
        found = [name for name in self._names if any(one in named for one in (name, *self._target_names(name)))]
        return dict.fromkeys(found or [WHOLE], error)

    def _target_names(self, name: str) -> list[str]:
        return [table.name for table in self._roster.targets_of(name)]

    def _told_apart(self, failures: Mapping[str, BaseException]) -> dict[str, BaseException]:
        found: dict[str, BaseException] = {}
        for lane, error in failures.items():
            found |= {lane: error} if lane in self._names else self._blamed(error)
        return found

    # one window

    def _step(self) -> bool:
        """Reads and writes the next window; False if nothing new is resolved."""
        resolved = self._source.poll()
        if self._takes_new and (new := self._watcher.noticed(self._source)):
            self._names = [*filter(self._roster.knows, self._names), *new]
            if failed := self._read_ledgers(new):
                raise _TablesFailed(failed)
        window = plan_window(resolved, self._after, self._config.snapshot.value, self._config.limits.epochs_per_job)
        if window is None:
            self._look_at_loads()
            return False
        written, concerned = self._written(window)
        self._count(written, concerned)
        lanes = self._intents.lanes(self._coordinator, written, concerned)
        self._look_at_loads()
        if lanes:
            self._line.submit(lanes, self._config.limits.lag_patience)
        self._after = written.window.upper
        self._steps += 1
        self._acknowledge()
        self._tell()
        if not any(is_before(self._after, position) for position in resolved):
            # With a pause before what is resolved already, a stream that is behind would stay so.
            self._parts.clock.wait(self._config.epoch_interval, self._end)
        return True

    def _look_at_loads(self) -> None:
        for mirror in self._mirrors:
            mirror.load = self._source.loading(mirror.source)

    def _written(self, window: Window) -> tuple[WrittenWindow, Sequence[Targets]]:
        """The window, or its first epochs if all of it is more than one job should read. If a change in it cannot be
        taken, an earlier part, too: what lies before that change is still published, and columns that change between
        two epochs are met one after the other. Where several tables are read, that is left to a cursor of the table's
        own. The rest is resolved still."""
        while True:
            behind = [mirror for mirror in self._mirrors if is_before(mirror.progress.tip_position, window.upper)]
            concerned = [self._roster.targets_of(mirror.source) for mirror in behind]
            try:
                splits = self._splits(window, behind)
                epochs = self._windows.epochs_of_a_job(window, splits)
                if epochs == len(window.uppers):
                    return self._windows.write(self._coordinator, window, concerned, splits), concerned
            except errors.BadInput as error:
                if len(window.uppers) == 1 or (len(self._names) > 1 and WHOLE not in self._blamed(error)):
                    raise
                epochs = len(window.uppers) // 2
            window = window.first(epochs)

    def _splits(self, window: Window, mirrors: Sequence[RunningTable]) -> Sequence[Split]:
        frontiers = {mirror.source: mirror.progress.tip for mirror in mirrors}
        return self._source.splits(window, frontiers, {mirror.source: mirror.index for mirror in mirrors})

    def _count(self, written: WrittenWindow, concerned: Sequence[Targets]) -> None:
        for targets in concerned:
            mirror = targets[-1]
            found = written.found(mirror.index)
            mirror.dropped += (dropped := sum(report.dropped for report in found))
            self._parts.metrics.changes_dropped(mirror.name, dropped)
            self._parts.metrics.values_left_out(mirror.name, sum(sum(report.left_out.values()) for report in found))
            quarantine = next((table for table in targets if table.role is Role.QUARANTINE), None)
            captured = written.captured(mirror.index)
            if quarantine is not None and self._capturing is not None and captured:
                *_, last = written.files(quarantine.target)
                self._capturing.sent(quarantine, last, captured)
                rows = sum(report.rows for report in captured)
                _log.warning("changes put in quarantine", table=mirror.name, changes=rows)

    # publishing, in the threads of the commit line

    def _publish(self, group: Group) -> None:
        parts, locators = self._parts, self._parts.locators
        searching = {
            intent.table: locators.of(intent.table)
            for intent in group
            if locators is not None and intent.needs_locating
        }
        outcomes: Sequence[Outcome]
        with ExitStack() as turns:
            for table in sorted({intent.table for intent in group}, key=lambda name: name.text):
                turns.enter_context(self._roster.target(table).turn)
            if len(group) == 1:
                (intent,) = group
                outcomes = (publish(intent, parts.lake, parts.clock, parts.observer, searching.get(intent.table)),)
            else:
                with ThreadPoolExecutor(TABLES_AT_ONCE) as pool:
                    outcomes = publish_together(
                        group, parts.lake, parts.clock, parts.observer, searching, side_by_side=pool.map
                    )
        # All that landed is noted before anything is raised: a group may have landed in part.
        for intent, outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, Published):
                self._landed(intent, outcome.plan.entry, outcome.snapshot_id)
                self._roster.target(intent.table).holds_more(outcome.plan)
            elif isinstance(outcome, AlreadyPublished):
                self._landed(intent, intent.plan.entry, outcome.entry.snapshot_id)
        for intent, outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, Recut):
                raise CutAgain(
                    f"{intent.table} is at {outcome.position}, not at {intent.lower}", table=intent.table.text
                )
            if (error := failure(outcome, intent)) is not None:
                raise error
        self._tell()

    def _landed(self, intent: Intent, entry: LedgerEntry, snapshot_id: int | None) -> None:
        table = self._roster.target(intent.table)
        table.landed(entry, snapshot_id, self._parts.clock.now())
        self._epochs += 1
        if table.role is Role.QUARANTINE and self._capturing is not None:
            self._capturing.landed(table, entry)

    def _acknowledge(self) -> None:
        settled = self._watcher.settled()
        if settled is not None:
            self._source.acknowledge(settled)

    def _tell(self) -> None:
        self._watcher.changed()
