"""Commits windows behind the reader's back: n+1 is read and written while n commits.

    reader --submit(window n+1)--> lane orders     [ n ] --> its epochs, one after the other
                                   lane customers  [ n ]
              waits while a lane is full      |
              is told what failed <-----------+   the rest of that lane is dropped, the others go on

A lane is one source table: its side tables' epochs, then its main table's. Where all tables of an epoch are one
commit there is one lane for all of them. Which epoch may follow which is still decided by the table alone; a line
only keeps the order of sending.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from frazil.commit.machine import EpochCommit
from frazil.threads import Running, ThreadQueue, Threads

Group = tuple[EpochCommit, ...]
"""What one commit publishes: one epoch of one table, or of several."""
TABLES_AT_ONCE = 8


class Late(Exception):
    """These lanes keep the others waiting."""

    def __init__(self, lanes: Collection[str]) -> None:
        super().__init__(f"commits do not keep up: {', '.join(sorted(lanes))}")
        self.lanes = frozenset(lanes)


@dataclass
class _Lane:
    name: str
    windows: deque[Sequence[Group]] = field(default_factory=deque)


class CommitLanes:
    def __init__(self, publish: Callable[[Group], None], windows_in_flight: int, threads: Threads) -> None:
        """`publish` raises if the group is not published; then the rest of its lane is dropped."""
        self._publish = publish
        self._windows_in_flight = windows_in_flight
        self._threads = threads
        self._workers: list[Running] = []
        self._waiting: ThreadQueue[_Lane | None] = threads.queue()
        self._changed = threads.changes()
        self._lanes: dict[str, _Lane] = {}
        # By name, so that a commit that ends costs those who wait nothing for all the other lanes.
        self._at_work: set[str] = set()
        self._full: set[str] = set()
        self._failures: dict[str, BaseException] = {}

    def submit(self, window: Mapping[str, Sequence[Group]], patience: float | None = None) -> None:
        """Takes the window once every lane of it has room. Raises Late if some lanes had none for so long while others
        had nothing left to do. A lane that failed takes nothing more."""
        names = window.keys()
        with self._changed:
            if not self._changed.wait_for(lambda: names.isdisjoint(self._full), patience):
                if len(self._at_work) < len(self._lanes):
                    raise Late(names & self._full)
                self._changed.wait_for(lambda: names.isdisjoint(self._full))
            for name, groups in window.items():
                if name in self._failures:
                    continue
                lane = self._lanes.setdefault(name, _Lane(name))
                lane.windows.append(groups)
                self._count(lane)
                if name not in self._at_work:
                    self._at_work.add(name)
                    self._waiting.put(lane)
                    self._have_workers()

    @property
    def failures(self) -> dict[str, BaseException]:
        """By lane."""
        with self._changed:
            return dict(self._failures)

    def drain(self, lanes: Collection[str] | None = None) -> None:
        """Waits until everything that was submitted is published or has failed."""
        with self._changed:
            chosen = None if lanes is None else frozenset(lanes)
            self._changed.wait_for(lambda: not self._at_work if chosen is None else chosen.isdisjoint(self._at_work))

    def close(self) -> None:
        """Finishes what was submitted; never raises."""
        self.drain()
        for _ in self._workers:
            self._waiting.put(None)

    def _have_workers(self) -> None:
        if len(self._workers) < min(TABLES_AT_ONCE, len(self._lanes)):
            self._workers.append(self._threads.start(self._work, f"commit-{len(self._workers)}"))

    def _work(self) -> None:
        while (lane := self._waiting.get()) is not None:
            self._work_off(lane)

    def _count(self, lane: _Lane) -> None:
        (self._full.add if len(lane.windows) >= self._windows_in_flight else self._full.discard)(lane.name)

    def _work_off(self, lane: _Lane) -> None:
        """A window counts as long as it is not done."""
        while True:
            failure: BaseException | None = None
            try:
                for group in lane.windows[0]:
                    self._publish(group)
            except BaseException as error:
                failure = error
            with self._changed:
                lane.windows.popleft()
                if failure is not None:
                    self._failures[lane.name] = failure
                    lane.windows.clear()
                self._count(lane)
                is_done = not lane.windows
                if is_done:
                    self._at_work.discard(lane.name)
                self._changed.notify_all()
                if is_done:
                    return
