"""The cursors of a pipeline that are at work, each in its thread.

start(plan, cursor) --> thread: cursor.run() --> ended() tells which one ended, and how
main: the one that tables join; `ask_main_to_yield` ends it, so that it can begin anew with more of them
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Protocol

from frazil.clock import Clock
from frazil.daemon.committing import CommitLine
from frazil.daemon.cursor import Ending
from frazil.daemon.standing import CursorPlan
from frazil.observability.logs import Log

_log = Log("frazil.pipeline")


class Runs(Protocol):
    """A cursor, on main or on a branch."""

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
class Ended:
    """`cursor` ended with `ending`."""

    cursor: Runs
    ending: Ending


@dataclass(frozen=True, slots=True)
class _Running:
    cursor: Runs
    thread: Thread


class Fleet:
    """Used by one thread; cursors report from theirs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: dict[int, _Running] = {}
        self._reports: SimpleQueue[tuple[int, Ending | Drained]] = SimpleQueue()
        self._numbers = 0
        self.main: int | None = None

    def __bool__(self) -> bool:
        """Whether any is at work."""
        return bool(self._running)

    def start(self, plan: CursorPlan, cursor: Runs) -> int:
        """The number of the cursor, which works from now on."""
        number = self._next()
        if plan.is_main:
            self.main = number
        _log.debug("cursor", number=number, road=plan.road.value, tables=list(plan.tables))
        self._thread(number, f"{plan.road}", lambda: self._reports.put((number, cursor.run())), cursor)
        return number

    def finish(self, tables: Collection[str], line: CommitLine) -> int:
        """Waits, in a thread, until a line has published what it was given. The number that stands for it."""
        number = self._next()

        def drain() -> None:
            line.close()
            self._reports.put((number, Drained(frozenset(tables))))

        Thread(target=drain, name=f"frazil-finish-{number}", daemon=True).start()
        return number

    def ended(self, patience: float) -> Ended | Drained | None:
        """The next one that ended, or None if there is none for so long."""
        try:
            number, ending = self._reports.get(timeout=patience)
        except Empty:
            return None
        if number == self.main:
            self.main = None
        if isinstance(ending, Drained):
            return ending
        return Ended(self._running.pop(number).cursor, ending)

    def ask_main_to_yield(self) -> None:
        if self.main is not None:
            self.ask_to_end(self.main)

    def ask_to_end(self, number: int) -> bool:
        """Whether there is such a cursor."""
        running = self._running.get(number)
        if running is not None:
            running.cursor.end()
        return running is not None

    def end_all(self, deadline: float) -> list[Sequence[str]]:
        """Asks all of them to end, and waits until then; the tables of those that are still at work."""
        for running in self._running.values():
            running.cursor.end()
        left: list[Sequence[str]] = []
        for running in self._running.values():
            running.thread.join(max(0.0, deadline - self._clock.monotonic()))
            left += [running.cursor.tables] if running.thread.is_alive() else []
        return left

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers

    def _thread(self, number: int, name: str, work: Callable[[], None], cursor: Runs) -> None:
        thread = Thread(target=work, name=f"frazil-{name}-{number}", daemon=True)
        self._running[number] = _Running(cursor, thread)
        thread.start()
