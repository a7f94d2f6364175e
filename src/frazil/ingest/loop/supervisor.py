"""Keeps every table of a pipeline going: one fence, and as many loops as the tables need.

    take the fence --> know the tables --> dispatch --> loops, each in its thread
                                              ^            |
                                              +-- ending --+   caught up, failed, lagged, yielded: see `table_state`

Tables that go well share one loop. A table in trouble reads alone and holds nobody back; one that a person must look
at stops, and the others go on. What the source may forget is the minimum over all of them (H28).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum
from threading import Event

from frazil import errors
from frazil.commit.admission import Coordinator
from frazil.commit.fence import take_fence
from frazil.commit.recovery import StartPoint, start
from frazil.ingest.loop import table_state as states
from frazil.ingest.loop.checkpointing import Checkpointing
from frazil.ingest.loop.commit_lanes import CommitLanes
from frazil.ingest.loop.components import Components
from frazil.ingest.loop.consistency import Agreement
from frazil.ingest.loop.fence_watch import FenceWatch
from frazil.ingest.loop.loop_pool import Drained, LoopEnded, LoopPool, Runs
from frazil.ingest.loop.reader_loop import WHOLE, CaughtUp, Ending, Failed, Lagged, ReaderLoop, Yielded
from frazil.ingest.loop.resync_loop import ResyncLoop, as_asked_for, is_under_way, on_branches
from frazil.ingest.loop.table_registry import TableRegistry
from frazil.ingest.loop.table_state import LoopPlan, LoopState, Mode
from frazil.ingest.loop.target_tables import TargetTable
from frazil.ingest.quarantine.held_keys import HeldKeys
from frazil.model.frontier import acknowledgeable
from frazil.model.position import Position, is_before
from frazil.model.state import TableState
from frazil.observability.logs import Log
from frazil.sources.base import LoadsTables, Source

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
        parts: Components,
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
        self._interrupted = self._once = False
        self._registry = TableRegistry(
            parts.config, parts.source, parts.committer, parts.tables, parts.clock, parts.threads
        )
        self._capturing = (
            None
            if parts.quarantined is None
            else HeldKeys(parts.committer, parts.quarantined, parts.config.job, self._count_quarantined)
        )
        self._coordinator: Coordinator | None = None
        self._succession: FenceWatch | None = None
        self._loop_states: dict[str, LoopState] = {}
        self._pool = LoopPool(parts.clock, parts.threads)
        self._fatal: BaseException | None = None
        self._wanted_anew: set[str] = set()
        self._shown_refused: set[str] = set()
        self._checkpointing: Checkpointing | None = None
        self._lonely = LoopState(Mode.STEADY)
        self._lock = parts.threads.lock()
        shared = (parts.committer, parts.config.job, parts.threads)
        self._agreement = None if parts.agreement is None else Agreement(parts.agreement, *shared)

    # what others see

    @property
    def tables(self) -> dict[str, TargetTable]:
        """All targets by name, main tables and their side tables."""
        return {table.name: table for table in self._registry.targets}

    @property
    def refused(self) -> Mapping[str, errors.ConfigError]:
        """Source tables that the pipeline cannot take, each with why: stopped before they have begun."""
        return self._registry.refused

    @property
    def resolved(self) -> Position | None:
        """Every table is published up to here, as far as there was anything to publish."""
        return None if (slowest := self._registry.slowest) is None else slowest.done_through

    @property
    def resolved_time(self) -> datetime | None:
        """When that was by the source's clock; None if nothing tells."""
        return None if (slowest := self._registry.slowest) is None else slowest.done_time

    @property
    def is_publishing(self) -> bool:
        """Whether every table's ledger was read."""
        return bool(self._loop_states) and all(
            table.state is not TableState.INITIALIZING for table in self._registry.targets
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
        stopped = [one.error for one in self._loop_states.values() if one.mode is Mode.STOPPED and one.error]
        if once:
            stopped += self.refused.values()
        if stopped and (once or len(stopped) == len(self._loop_states)) and not self._interrupted:
            raise stopped[0]
        return self._outcome

    @property
    def _is_over(self) -> bool:
        if self._stop.is_set() or self._fatal is not None or self._is_asked_to_end():
            return True
        if self._pool:
            return False
        left = any(not one.is_over for one in self._loop_states.values())
        return not left and (self._once or bool(self._loop_states))

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
                self._registry.recall()
                resync = self._parts.resync
                floor = self._registry.newest_generation(None if resync is None else resync.committer)
                fence = take_fence(self._config.job, self._parts.arbiter, self._clock, floor=floor)
                incarnation = self._parts.source.incarnation
                break
            except (errors.Transient, errors.OutcomeUnknown) as error:
                attempts += 1
                if self._once:
                    raise
                _log.warning("cannot begin yet", reason=str(error), attempt=attempts)
                self._clock.wait(states.backoff(attempts, self._clock.jitter()), self._stop)
                if self._stop.is_set() or self._is_asked_to_end():
                    return False
        self._coordinator = Coordinator(
            job=self._config.job, fence=fence, incarnation=incarnation, config_hash=self._parts.config_hash
        )
        self._succession = FenceWatch(self._parts.arbiter, self._clock, self._coordinator)
        _log.info("took over", pipeline=self._config.pipeline, fence=fence.label)
        self._know(main_table.source for main_table in self._registry.main_tables)
        self._show_refused()
        if (records := self._parts.checkpoints) is not None:
            self._checkpointing = Checkpointing(
                records, self._config.job, lambda: self._registry.main_tables, self._clock, self._parts.threads
            )
        return True

    def _know(self, names: Iterable[str]) -> None:
        known = {name: self._loop_state_of(name) for name in names}
        self._loop_states |= known
        self._begin_anew(known)

    def _loop_state_of(self, name: str) -> LoopState:
        """Where a table begins. Only a source with first loads of its own must be told apart: the ledger knows."""
        source = self._parts.source
        if not isinstance(source, LoadsTables):
            return LoopState(Mode.STEADY)
        target, resync = self._registry.main_table(name).target, self._parts.resync
        if resync is None:
            raise AssertionError("a source that can be read anew has somewhere to load tables anew")
        try:
            if not self._parts.tables.exists(target):
                return LoopState(Mode.LOAD)
            heads = as_asked_for(self._parts, resync.committer, target, self._fenced)
            if self._config.job.resync_property in heads.main.properties:
                return LoopState(Mode.RESYNC, anew=True)
            if is_under_way(heads, target, self._fenced):
                return LoopState(Mode.RESYNC)
        except errors.FrazilError as error:
            return self._after_failure(LoopState(Mode.STEADY), error, alone=True)
        match start(heads.main, target, self._fenced):
            case StartPoint(frontier):
                return LoopState(Mode.STEADY if source.is_loaded(frontier) else Mode.LOAD)
            case errors.Terminal() as trouble:
                return self._after_failure(LoopState(Mode.STEADY), trouble, alone=True)

    @property
    def _fenced(self) -> Coordinator:
        if self._coordinator is None:
            raise AssertionError("nothing is decided before the fence is taken")
        return self._coordinator

    # loops

    def _dispatch(self) -> None:
        now, pool = self._clock.monotonic(), self._pool
        with self._lock:
            found = states.dispatch(self._loop_states, pool.main, now, self._config.limits.max_first_loads)
            for plan in found.starts:
                self._start(plan)
            if found.main_yields:
                pool.ask_main_to_yield()
            if not self._loop_states and pool.main is None and now >= self._lonely.not_before:
                # Whatever is read first tells which tables there are.
                self._start(LoopPlan(Mode.STEADY, (), is_main=True))

    def _start(self, plan: LoopPlan) -> None:
        made = self._resync_loop(plan) if plan.mode is Mode.RESYNC else self._loop(self._parts, plan)
        self._give(plan.tables, self._pool.start(plan, made))

    def _loop(self, parts: Components, plan: LoopPlan) -> ReaderLoop:
        return ReaderLoop(
            parts,
            parts.source if plan.is_main else parts.source.for_tables(plan.tables),
            self._registry,
            self._fenced,
            plan.tables,
            self,
            self._capturing,
            ends_idle=self._once or not plan.is_main,
            idle_from=max((self._loop_states[name].apart_until for name in plan.tables), default=0.0),
            takes_new=plan.is_main,
            states_end=plan.mode is Mode.RESYNC,
        )

    def _resync_loop(self, plan: LoopPlan) -> ResyncLoop:
        parts = on_branches(self._parts)
        assert parts.resync is not None
        (name,) = plan.tables
        return ResyncLoop(
            parts,
            parts.resync.committer,
            self._fenced,
            self._registry.main_table(name),
            lambda: self._loop(parts, plan),
            anew=self._loop_states[name].anew,
        )

    def _wait(self) -> None:
        """For the next ending, or a moment."""
        match self._pool.ended(_TICK):
            case LoopEnded(loop, ending):
                with self._lock:
                    self._ended(loop, ending)
            case Drained(tables):
                now = self._clock.monotonic()
                with self._lock:
                    known = tables & self._loop_states.keys()
                    self._loop_states |= {name: states.after_lag(self._loop_states[name], now) for name in known}
                    self._begin_anew(known)
        self._look_for_a_successor()
        self._give_up_the_outlived()

    def _ended(self, loop: Runs, ending: Ending) -> None:
        # A table that the feed calls otherwise by now is read on by the loop that noticed it.
        tables = tuple(name for name in loop.tables if name in self._loop_states)
        if not loop.tables and loop.has_progressed:
            self._lonely = LoopState(Mode.STEADY)
        for name in tables:
            if loop.has_progressed:
                self._loop_states[name] = replace(self._loop_states[name], attempts=0, unexplained=0)
            if isinstance(loop, ResyncLoop) and loop.has_begun:
                self._loop_states[name] = replace(self._loop_states[name], anew=False)
        match ending:
            case CaughtUp():
                for name in tables:
                    self._loop_states[name] = self._done(self._loop_states[name])
                    self._registry.main_table(name).trouble = None
            case Yielded():
                self._give(tables)
            case Lagged(lagging, line):
                self._lagged(tables, lagging, line)
            case Failed(found) if tables or not loop.tables:
                self._failed(tables, found)
        self._begin_anew(tables)

    def _begin_anew(self, tables: Iterable[str]) -> None:
        for name in self._wanted_anew.intersection(tables):
            self._wanted_anew.discard(name)
            self._loop_states[name] = states.asked_for(self._loop_states[name], self._clock.monotonic())

    def _done(self, state: LoopState) -> LoopState:
        """With `once`, whoever has caught up is done."""
        return replace(states.caught_up(state), mode=Mode.DONE) if self._once else states.caught_up(state)

    def _give(self, tables: Iterable[str], loop: int | None = None) -> None:
        self._loop_states |= {name: replace(self._loop_states[name], loop=loop) for name in tables}

    def _lagged(self, tables: Sequence[str], lagging: Collection[str], line: CommitLanes) -> None:
        """What a lagging table was given to publish is finished before anybody else publishes to it."""
        _log.warning("commits do not keep up: reads alone from now on", tables=sorted(lagging))
        self._give(name for name in tables if name not in lagging)
        number = self._pool.finish(lagging, line)
        self._give(self._loop_states.keys() & lagging, number)

    def _failed(self, tables: Sequence[str], found: Mapping[str, BaseException]) -> None:
        # One moment for all: tables that wait together go on together.
        when = (self._clock.monotonic(), self._clock.jitter())
        self._give(tables)
        for error in found.values():
            if not isinstance(error, errors.FrazilError):
                _log.failure("failed without a reason", error, tables=list(tables))
            if states.ends_the_run(error):
                self._fatal = self._fatal or error
                return
        known = {name: states.explained(error) for name, error in found.items()}
        lost = [name for name, error in known.items() if isinstance(error, errors.SourceLost) and name in tables]
        for name in lost if isinstance(self._parts.source, LoadsTables) else ():
            # It is loaded anew by itself, also where tables commit together.
            self._failed_alone(name, known.pop(name), alone=False, when=when)
        if WHOLE in known or (known and self._parts.together) or states.concerns_all(known, tables):
            rest = [name for name in tables if name not in found or name in known]
            self._failed_whole(rest, known.get(WHOLE) or next(iter(known.values())), when)
        else:
            for name, error in known.items():
                self._failed_alone(name, error, alone=len(tables) == 1, when=when)
        self.changed(self._registry.main_table(name) for name in tables)

    def _failed_alone(self, name: str, error: errors.FrazilError, *, alone: bool, when: tuple[float, float]) -> None:
        self._loop_states[name] = self._after_failure(self._loop_states[name], error, alone=alone, when=when)
        self._show(name, error)

    def _failed_whole(self, tables: Sequence[str], error: errors.FrazilError, when: tuple[float, float]) -> None:
        """All of them wait, or if nobody can tell which of them a person must look at, everything stops. What nobody
        explains may be one table's: after some attempts each reads alone, unless they must commit together."""
        tried = {name: states.is_tried_enough(self._loop_states[name]) for name in tables}
        suspects = {name for name, enough in tried.items() if enough and isinstance(error, errors.Unexplained)}
        is_definite = isinstance(error, errors.Terminal) or (suspects and self._parts.together)
        if is_definite and len(tables) != 1:
            self._fatal = self._fatal or error
            return
        if not tables:
            self._lonely = self._after_failure(self._lonely, error, alone=True, when=when)
            self._fatal = self._fatal or (error if self._lonely.mode is Mode.STOPPED else None)
            _log.warning("trying again", reason=str(error), attempt=self._lonely.attempts)
        for name in tables:
            self._failed_alone(name, error, alone=name not in suspects or len(tables) == 1, when=when)

    def _after_failure(
        self, state: LoopState, error: errors.FrazilError, *, alone: bool, when: tuple[float, float] | None = None
    ) -> LoopState:
        now, jitter = when or (self._clock.monotonic(), 0.0)
        return states.after_failure(
            state,
            error,
            alone=alone,
            can_rescan=isinstance(self._parts.source, LoadsTables),
            now=now,
            jitter=jitter,
            attempts_max=TROUBLE_MAX_ONCE if self._once else None,
        )

    def _show(self, name: str, error: errors.FrazilError) -> None:
        state = self._loop_states[name]
        main_table = self._registry.main_table(name)
        main_table.trouble = error
        facts = {"table": main_table.name, "reason": str(error) or type(error).__name__, "hint": error.hint}
        self._parts.metrics.failed(main_table.name, error)
        if state.mode is Mode.STOPPED:
            main_table.state = TableState.STOPPED
            _log.error("stopped; other tables go on", **facts)
        elif state.mode is Mode.RESYNC:
            main_table.state = TableState.NEEDS_RESYNC
            _log.error("will be loaded anew", **facts)
        else:
            main_table.state = TableState.BACKOFF
            confirms = isinstance(error, errors.Terminal)
            word = "cannot go on as it is; tried once more by itself, then it stops" if confirms else "trying again"
            _log.warning(word, **facts, attempt=state.attempts)

    def _show_refused(self) -> None:
        """Once for each."""
        for name in self.refused.keys() - self._shown_refused:
            error = self.refused[name]
            self._parts.metrics.failed(name, error)
            _log.error("stopped; other tables go on", table=name, reason=str(error), hint=error.hint)
        self._shown_refused |= self.refused.keys()

    def _look_for_a_successor(self) -> None:
        try:
            if self._succession is not None:
                self._succession.check()
        except errors.Fenced as error:
            self._fatal = self._fatal or error
        except (errors.Transient, errors.OutcomeUnknown) as error:
            _log.warning("cannot tell whether somebody has taken over", reason=str(error))

    def _give_up_the_outlived(self) -> None:
        stopped = [name for name, state in list(self._loop_states.items()) if state.mode is Mode.STOPPED]
        newest = max(filter(None, (table.published_time for table in self._registry.main_tables)), default=None)
        bound = timedelta(seconds=self._config.resync_after)
        for main_table in map(self._registry.main_table, stopped):
            if main_table.state is TableState.NEEDS_RESYNC:
                continue
            if states.is_outlived(main_table.published_time, newest, bound):
                main_table.state = TableState.NEEDS_RESYNC
                reloads = isinstance(self._parts.source, LoadsTables)
                again = "frazil resync CONFIG" if reloads else "make a changefeed with a scan for"
                _log.error(
                    "stopped for so long that the source is not kept for it any more",
                    table=main_table.name,
                    hint=f"Mend what stopped it, then: {again} {main_table.name}",
                )
                self.changed([main_table])

    def _end_all(self) -> None:
        """What is under way is finished, if that does not take too long."""
        deadline = self._clock.monotonic() + self._config.shutdown
        for tables in self._pool.end_all(deadline):
            _log.warning("left what is under way: the next run writes it again", tables=list(tables))
        self.changed(())
        if self._checkpointing is not None:
            self._checkpointing.end(max(1.0, deadline - self._clock.monotonic()))

    # what loops ask

    def noticed(self, source: Source) -> Sequence[str]:
        with self._lock:
            found = self._registry.notice(source)
            self._show_refused()
            if isinstance(source, LoadsTables):
                self._know(found)
                return ()
            if not found:
                return ()
            known = {name: one for name, one in self._loop_states.items() if self._registry.knows(name)}
            self._loop_states = {**known, **dict.fromkeys(found, LoopState(Mode.STEADY, loop=self._pool.main))}
            return found

    def acknowledgeable(self) -> Position | None:
        """The main tables speak for their side tables, which are published before them."""
        if not self._registry.is_whole:
            return None
        held = [m.progress for m in self._registry.main_tables if m.state is not TableState.NEEDS_RESYNC]
        position = acknowledgeable(held)
        if self._agreement is None:
            return position
        # What is loaded anew is on a branch: main does not show it.
        is_on_branch = any(one.mode is Mode.RESYNC for one in list(self._loop_states.values()))
        agreed = self._agreement.reached(None if is_on_branch else self.resolved, self._registry.main_tables)
        return agreed if is_before(agreed, position) else position

    def resync(self, name: str) -> None:
        """Loads a table anew, whatever state it is in; one that this run has not begun with yet, once it does."""
        with self._lock:
            self._wanted_anew.add(name)
            state = self._loop_states.get(name)
            if state is not None:
                self._pool.ask_to_end(state.loop)
                self._begin_anew([name] if state.loop is None else ())

    def changed(self, tables: Iterable[TargetTable]) -> None:
        for table in tables:
            self._parts.metrics.table_is(table.name, table.state)
        for name in self.refused:
            self._parts.metrics.table_is(name, TableState.STOPPED)
        if self._checkpointing is not None:
            self._checkpointing.changed()
        self._on_change(self)

    def _count_quarantined(self, table: TargetTable, rows: int) -> None:
        self._registry.main_table(table.source).quarantined = rows
        self._parts.metrics.quarantined(table.route.target.text, rows)
