"""Keeps every table of a pipeline going: one fence, and as many cursors as the tables need.

    take the fence --> know the tables --> dispatch --> cursors, each in its thread
                                              ^            |
                                              +-- ending --+   caught up, failed, lagged, yielded: see `standing`

Tables that go well share one cursor. A table in trouble reads alone and holds nobody back; one that a person must look
at stops, and the others go on. What the source may forget is the minimum over all of them (H28).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from threading import Event, RLock

from frazil import errors
from frazil.coordinator.admission import Coordinator
from frazil.coordinator.fence import take_fence
from frazil.coordinator.recovery import Start, start
from frazil.daemon.agreeing import Agreement
from frazil.daemon.capturing import Capturing
from frazil.daemon.checkpointing import Checkpointing
from frazil.daemon.committing import CommitLine
from frazil.daemon.cursor import WHOLE, CaughtUp, Cursor, Ending, Failed, Lagged, Yielded
from frazil.daemon.discovery import Discovery
from frazil.daemon.fleet import Drained, Ended, Fleet, Runs
from frazil.daemon.parts import Parts
from frazil.daemon.resyncing import ResyncCursor, is_under_way, on_branches
from frazil.daemon.shaping import ShapingSource
from frazil.daemon.standing import (
    CursorPlan,
    Road,
    Standing,
    after_failure,
    after_lag,
    asked_for,
    backoff,
    caught_up,
    concerns_all,
    dispatch,
    is_outlived,
)
from frazil.daemon.succession import Succession
from frazil.daemon.tables import RunningTable
from frazil.epochs.progress import acknowledgeable
from frazil.model.position import Position, is_before
from frazil.model.state import TableState
from frazil.observability.logs import Log

TROUBLE_MAX_ONCE = 6
_TICK = 0.5
_log = Log("frazil.pipeline")


class Outcome(StrEnum):
    """Why a run is over."""

    FINISHED = "finished"
    INTERRUPTED = "interrupted"


class Supervisor:
    """One run of a pipeline, from taking the fence to giving it up. `is_interrupted` is asked at every turn, and ends
    the run like `stop` does, for whoever wants to begin another one."""

    def __init__(
        self,
        parts: Parts,
        on_change: Callable[[Supervisor], None],
        stop: Event,
        is_interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        self._parts = parts
        self._config = parts.config
        self._clock = parts.clock
        self._on_change = on_change
        self._stop = stop
        self._is_interrupted = is_interrupted
        self._interrupted = False
        self._once = False
        self._roster = Discovery(parts.config, parts.source, parts.lake, parts.tables, parts.clock)
        self._capturing = (
            None
            if parts.quarantined is None
            else Capturing(parts.lake, parts.quarantined, parts.config.job, self._count_quarantined)
        )
        self._coordinator: Coordinator | None = None
        self._succession: Succession | None = None
        self._standings: dict[str, Standing] = {}
        self._fleet = Fleet(parts.clock)
        self._fatal: BaseException | None = None
        self._wanted_anew: set[str] = set()
        self._checkpointing: Checkpointing | None = None
        self._lonely = Standing(Road.STEADY)
        self._lock = RLock()
        self._agreement = None if parts.agreement is None else Agreement(parts.agreement, parts.lake, parts.config.job)

    # what others see

    @property
    def tables(self) -> dict[str, RunningTable]:
        """All targets by name, mirrors and their companions."""
        return {table.name: table for table in self._roster.targets}

    @property
    def resolved(self) -> Position | None:
        """Every table is published up to here, as far as there was anything to publish."""
        done = [table.done_through for table in self._roster.targets]
        if not done or None in done:
            return None
        return min((position for position in done if position is not None), key=lambda position: position.order)

    @property
    def is_publishing(self) -> bool:
        """Whether every table's ledger was read."""
        return bool(self._standings) and all(
            table.state is not TableState.INITIALIZING for table in self._roster.targets
        )

    # one run

    def run(self, once: bool) -> Outcome:
        """Publishes until it is stopped, or with `once` until everything resolved is published. Raises what ended it:
        a fence, what concerns all tables, or, when no table is left to go on with, why the first of them stopped."""
        self._once = once
        try:
            if not self._take_over():
                return self._outcome
            while not self._is_over:
                self._dispatch()
                self._wait()
        finally:
            self._end_all()
        if self._fatal is not None:
            raise self._fatal
        stopped = [one.error for one in self._standings.values() if one.road is Road.STOPPED and one.error]
        if stopped and (once or len(stopped) == len(self._standings)) and not self._interrupted:
            raise stopped[0]
        return self._outcome

    @property
    def _is_over(self) -> bool:
        if self._stop.is_set() or self._fatal is not None or self._is_asked_to_end():
            return True
        if self._fleet:
            return False
        left = any(not one.is_over for one in self._standings.values())
        return not left and (self._once or bool(self._standings))

    @property
    def _outcome(self) -> Outcome:
        return Outcome.INTERRUPTED if self._interrupted and not self._stop.is_set() else Outcome.FINISHED

    def _is_asked_to_end(self) -> bool:
        self._interrupted = self._interrupted or self._is_interrupted()
        return self._interrupted

    def _take_over(self) -> bool:
        """The fence first, then the frontiers: what an older coordinator still publishes is seen by the next look.
        False if it was stopped meanwhile."""
        attempts = 0
        while True:
            try:
                self._roster.recall()
                resync = self._parts.resync
                floor = self._roster.newest_generation(None if resync is None else resync.lake)
                fence = take_fence(self._config.job, self._parts.arbiter, self._clock, floor=floor)
                incarnation = self._parts.source.incarnation
                break
            except (errors.Transient, errors.OutcomeUnknown) as error:
                attempts += 1
                if self._once:
                    raise
                _log.warning("cannot begin yet", reason=str(error), attempt=attempts)
                self._clock.wait(backoff(attempts, self._clock.jitter()), self._stop)
                if self._stop.is_set() or self._is_asked_to_end():
                    return False
        self._coordinator = Coordinator(
            job=self._config.job, fence=fence, incarnation=incarnation, config_hash=self._parts.config_hash
        )
        self._succession = Succession(self._parts.arbiter, self._clock, self._coordinator)
        _log.info("took over", pipeline=self._config.pipeline, fence=fence.label)
        self._know(mirror.source for mirror in self._roster.mirrors)
        if (records := self._parts.checkpoints) is not None:
            self._checkpointing = Checkpointing(records, self._config.job, lambda: self._roster.mirrors, self._clock)
        return True

    def _know(self, names: Iterable[str]) -> None:
        for name in names:
            self._standings[name] = self._standing_of(name)

    def _standing_of(self, name: str) -> Standing:
        """Where a table begins. Only a source with first loads of its own must be told apart: the ledger knows."""
        source = self._parts.source
        if not source.rescans:
            return Standing(Road.STEADY)
        target, resync = self._roster.mirror(name).target, self._parts.resync
        if resync is None:
            raise AssertionError("a source that can be read anew has somewhere to load tables anew")
        try:
            if not self._parts.tables.exists(target):
                return Standing(Road.LOAD)
            heads = resync.lake.heads(target)
            if self._config.job.resync_property in heads.main.properties:
                return Standing(Road.RESYNC, anew=True)
            if is_under_way(heads, target, self._fenced):
                return Standing(Road.RESYNC)
        except errors.FrazilError as error:
            return self._after_failure(Standing(Road.STEADY), error, alone=True)
        match start(heads.main, target, self._fenced):
            case Start(frontier):
                return Standing(Road.STEADY if source.is_loaded(frontier) else Road.LOAD)
            case errors.Terminal() as trouble:
                return self._after_failure(Standing(Road.STEADY), trouble, alone=True)

    @property
    def _fenced(self) -> Coordinator:
        if self._coordinator is None:
            raise AssertionError("nothing is decided before the fence is taken")
        return self._coordinator

    # cursors

    def _dispatch(self) -> None:
        now, fleet = self._clock.monotonic(), self._fleet
        with self._lock:
            found = dispatch(self._standings, fleet.main, now, self._config.limits.max_first_loads)
            for plan in found.starts:
                self._start(plan)
            if found.main_yields:
                fleet.ask_main_to_yield()
            if not self._standings and fleet.main is None and now >= self._lonely.not_before:
                # Whatever is read first tells which tables there are.
                self._start(CursorPlan(Road.STEADY, (), is_main=True))

    def _start(self, plan: CursorPlan) -> None:
        made = self._resync_cursor(plan) if plan.road is Road.RESYNC else self._cursor(self._parts, plan)
        number = self._fleet.start(plan, made)
        for name in plan.tables:
            self._standings[name] = replace(self._standings[name], cursor=number)

    def _cursor(self, parts: Parts, plan: CursorPlan) -> Cursor:
        return Cursor(
            parts,
            parts.source if plan.is_main else parts.source.beside(plan.tables),
            self._roster,
            self._fenced,
            plan.tables,
            self,
            self._capturing,
            ends_idle=self._once or not plan.is_main,
            idle_from=max((self._standings[name].apart_until for name in plan.tables), default=0.0),
            takes_new=plan.is_main,
            states_end=plan.road is Road.RESYNC,
        )

    def _resync_cursor(self, plan: CursorPlan) -> ResyncCursor:
        parts = on_branches(self._parts)
        assert parts.resync is not None
        (name,) = plan.tables
        return ResyncCursor(
            parts,
            parts.resync.lake,
            self._fenced,
            self._roster.mirror(name),
            lambda: self._cursor(parts, plan),
            anew=self._standings[name].anew,
        )

    def _wait(self) -> None:
        """For the next ending, or a moment."""
        match self._fleet.ended(_TICK):
            case Ended(cursor, ending):
                with self._lock:
                    self._ended(cursor, ending)
            case Drained(tables):
                now = self._clock.monotonic()
                with self._lock:
                    self._standings |= {name: after_lag(self._standings[name], now) for name in tables}
        self._look_for_a_successor()
        self._give_up_the_outlived()

    def _ended(self, cursor: Runs, ending: Ending) -> None:
        tables = cursor.tables
        for name in tables:
            if cursor.has_progressed:
                self._standings[name] = replace(self._standings[name], attempts=0)
            if isinstance(cursor, ResyncCursor) and cursor.has_begun:
                self._standings[name] = replace(self._standings[name], anew=False)
        match ending:
            case CaughtUp():
                for name in tables:
                    self._standings[name] = self._done(self._standings[name])
                    self._roster.mirror(name).trouble = None
            case Yielded():
                self._free(tables)
            case Lagged(lagging, line):
                self._lagged(tables, lagging, line)
            case Failed(found):
                self._failed(tables, found)
        for name in self._wanted_anew.intersection(tables):
            self._wanted_anew.discard(name)
            self._standings[name] = asked_for(self._standings[name], self._clock.monotonic())

    def _done(self, standing: Standing) -> Standing:
        """With `once`, whoever has caught up is done."""
        return replace(caught_up(standing), road=Road.DONE) if self._once else caught_up(standing)

    def _free(self, tables: Iterable[str]) -> None:
        for name in tables:
            self._standings[name] = replace(self._standings[name], cursor=None)

    def _lagged(self, tables: Sequence[str], lagging: Collection[str], line: CommitLine) -> None:
        """What a lagging table was given to publish is finished before anybody else publishes to it."""
        _log.warning("commits do not keep up: reads alone from now on", tables=sorted(lagging))
        self._free(name for name in tables if name not in lagging)
        number = self._fleet.finish(lagging, line)
        for name in lagging:
            self._standings[name] = replace(self._standings[name], cursor=number)

    def _failed(self, tables: Sequence[str], found: Mapping[str, BaseException]) -> None:
        jitter = self._clock.jitter()
        self._free(tables)
        for error in found.values():
            if isinstance(error, errors.Fenced) or not isinstance(error, errors.FrazilError):
                self._fatal = self._fatal or error
                return
        known = {name: error for name, error in found.items() if isinstance(error, errors.FrazilError)}
        if WHOLE in known or self._parts.together or concerns_all(known, tables):
            self._failed_whole(tables, known.get(WHOLE) or next(iter(known.values())), jitter)
        else:
            for name, error in known.items():
                self._failed_alone(name, error, alone=len(tables) == 1, jitter=jitter)
        self.changed()

    def _failed_alone(self, name: str, error: errors.FrazilError, *, alone: bool, jitter: float) -> None:
        self._standings[name] = self._after_failure(self._standings[name], error, alone=alone, jitter=jitter)
        self._show(name, error)

    def _failed_whole(self, tables: Sequence[str], error: errors.FrazilError, jitter: float) -> None:
        """All of them wait, or if nobody can tell which of them a person must look at, everything stops."""
        if isinstance(error, errors.Terminal) and len(tables) != 1:
            self._fatal = self._fatal or error
            return
        if not tables:
            self._lonely = self._after_failure(self._lonely, error, alone=True, jitter=jitter)
            self._fatal = self._fatal or (error if self._lonely.road is Road.STOPPED else None)
            _log.warning("trying again", reason=str(error), attempt=self._lonely.attempts)
        for name in tables:
            self._failed_alone(name, error, alone=True, jitter=jitter)

    def _after_failure(
        self, standing: Standing, error: errors.FrazilError, *, alone: bool, jitter: float = 0.0
    ) -> Standing:
        return after_failure(
            standing,
            error,
            alone=alone,
            can_rescan=self._parts.source.rescans,
            now=self._clock.monotonic(),
            jitter=jitter,
            attempts_max=TROUBLE_MAX_ONCE if self._once else None,
        )

    def _show(self, name: str, error: errors.FrazilError) -> None:
        standing = self._standings[name]
        mirror = self._roster.mirror(name)
        mirror.trouble = error
        facts = {"table": mirror.name, "reason": str(error) or type(error).__name__, "hint": error.hint}
        self._parts.metrics.failed(mirror.name, error)
        if standing.road is Road.STOPPED:
            mirror.state = TableState.STOPPED
            _log.error("stopped; other tables go on", **facts)
        elif standing.road is Road.RESYNC:
            mirror.state = TableState.NEEDS_RESYNC
            _log.error("will be loaded anew", **facts)
        else:
            mirror.state = TableState.BACKOFF
            _log.warning("reading the ledger again", **facts, attempt=standing.attempts)

    # now and then

    def _look_for_a_successor(self) -> None:
        try:
            if self._succession is not None:
                self._succession.check()
        except errors.Fenced as error:
            self._fatal = self._fatal or error
        except (errors.Transient, errors.OutcomeUnknown) as error:
            _log.warning("cannot tell whether somebody has taken over", reason=str(error))

    def _give_up_the_outlived(self) -> None:
        newest = self._newest_published
        bound = timedelta(seconds=self._config.resync_after)
        for name, standing in list(self._standings.items()):
            mirror = self._roster.mirror(name)
            if standing.road is not Road.STOPPED or mirror.state is TableState.NEEDS_RESYNC:
                continue
            published = mirror.progress.published
            if is_outlived(None if published is None else published.position, newest, bound):
                mirror.state = TableState.NEEDS_RESYNC
                again = "frazil resync CONFIG" if self._parts.source.rescans else "make a changefeed with a scan for"
                _log.error(
                    "stopped for so long that the source is not kept for it any more",
                    table=mirror.name,
                    hint=f"Mend what stopped it, then: {again} {mirror.name}",
                )
                self.changed()

    @property
    def _newest_published(self) -> Position | None:
        positions = [mirror.progress.published.position for mirror in self._roster.mirrors if mirror.progress.published]
        return max(positions, key=lambda position: position.order, default=None)

    def _end_all(self) -> None:
        """What is under way is finished, if that does not take too long."""
        deadline = self._clock.monotonic() + self._config.shutdown
        for tables in self._fleet.end_all(deadline):
            _log.warning("left what is under way: the next run writes it again", tables=list(tables))
        self.changed()
        if self._checkpointing is not None:
            self._checkpointing.end(max(1.0, deadline - self._clock.monotonic()))

    # what cursors ask

    def noticed(self, source: ShapingSource) -> Sequence[str]:
        with self._lock:
            found = self._roster.notice(source)
            if source.rescans:
                self._know(found)
                return ()
            known = {name: one for name, one in self._standings.items() if self._roster.knows(name)}
            self._standings = {**known, **dict.fromkeys(found, Standing(Road.STEADY, cursor=self._fleet.main))}
            return found

    def settled(self) -> Position | None:
        """The mirrors speak for their companions, which are published before them."""
        held = [m.progress for m in self._roster.mirrors if m.state is not TableState.NEEDS_RESYNC]
        settled = acknowledgeable(held)
        if self._agreement is None:
            return settled
        agreed = self._agreement.reached(self.resolved, self._roster.mirrors)
        return agreed if is_before(agreed, settled) else settled

    def resync(self, name: str) -> None:
        """Loads a table anew, whatever state it is in."""
        with self._lock:
            standing = self._standings[name]
            if standing.cursor is not None and self._fleet.ask_to_end(standing.cursor):
                self._wanted_anew.add(name)
            else:
                self._standings[name] = asked_for(standing, self._clock.monotonic())

    def changed(self) -> None:
        for table in self._roster.targets:
            self._parts.metrics.table_is(table.name, table.state)
        if self._checkpointing is not None:
            self._checkpointing.changed()
        self._on_change(self)

    def _count_quarantined(self, table: RunningTable, rows: int) -> None:
        self._parts.metrics.quarantined(table.route.target.text, rows)
