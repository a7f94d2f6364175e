"""The loops of a pipeline that are at work, each in its thread.

start(plan, loop) --> thread: loop.run() --> ended() tells which one ended, and how
main: the one that tables join; `ask_main_to_yield` ends it, so that it can begin anew with more of them
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from queue import Empty
from typing import Protocol

from frazil.clock import Clock
from frazil.ingest.loop.commit_lanes import CommitLanes
from frazil.ingest.loop.reader_loop import Ending
from frazil.ingest.loop.table_state import LoopPlan
from frazil.observability.logs import Log
from frazil.threads import Running, ThreadQueue, Threads

_log = Log("frazil.pipeline")


class Runs(Protocol):
    """A reader loop, on main or on a branch."""

    @property
    def tables(self) -> tuple[str, ...]: ...
    @property
    def has_progressed(self) -> bool: ...
    def run(self) -> Ending: ...
    def end(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Drained:
    """What these lagging tables were given to publish is done."""

    tables: frozenset[str]


@dataclass(frozen=True, slots=True)
class LoopEnded:
    """`loop` ended with `ending`."""

    loop: Runs
    ending: Ending


@dataclass(frozen=True, slots=True)
class _AtWork:
    loop: Runs
    thread: Running


class LoopPool:
    """Used by one thread; loops report from theirs."""

    def __init__(self, clock: Clock, threads: Threads) -> None:
        self._clock = clock
        self._threads = threads
        self._running: dict[int, _AtWork] = {}
        self._reports: ThreadQueue[tuple[int, Ending | Drained]] = threads.queue()
        self._numbers = 0
        self.main: int | None = None

    def __bool__(self) -> bool:
        """Whether any is at work."""
        return bool(self._running)

    def start(self, plan: LoopPlan, loop: Runs) -> int:
        """The number of the loop, which works from now on."""
        number = self._next()
        if plan.is_main:
            self.main = number
        _log.debug("loop", number=number, mode=plan.mode.value, tables=list(plan.tables))
        thread = self._threads.start(lambda: self._reports.put((number, loop.run())), f"frazil-{plan.mode}-{number}")
        self._running[number] = _AtWork(loop, thread)
        return number

    def finish(self, tables: Collection[str], line: CommitLanes) -> int:
        """Waits, in a thread, until a line has published what it was given. The number that stands for it."""
        number = self._next()

        def drain() -> None:
            line.close()
            self._reports.put((number, Drained(frozenset(tables))))

        self._threads.start(drain, f"frazil-finish-{number}")
        return number

    def ended(self, patience: float) -> LoopEnded | Drained | None:
        """The next one that ended, or None if there is none for so long."""
        try:
            number, ending = self._reports.get(timeout=patience)
        except Empty:
            return None
        if number == self.main:
            self.main = None
        if isinstance(ending, Drained):
            return ending
        return LoopEnded(self._running.pop(number).loop, ending)

    def ask_main_to_yield(self) -> None:
        if self.main is not None:
            self.ask_to_end(self.main)

    def ask_to_end(self, number: int | None) -> None:
        """Nothing is asked of a line that finishes: it ends by itself."""
        if number in self._running:
            self._running[number].loop.end()

    def end_all(self, deadline: float) -> list[Sequence[str]]:
        """Asks all of them to end, and waits until then; the tables of those that are still at work."""
        for running in self._running.values():
            running.loop.end()
        left: list[Sequence[str]] = []
        for running in self._running.values():
            running.thread.join(max(0.0, deadline - self._clock.monotonic()))
            left += [running.loop.tables] if running.thread.is_alive() else []
        return left

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers
