"""Commits windows behind the reader's back: n+1 is read and written while n commits.

    reader --submit(window n+1)--> lane orders     [ n ] --> its epochs, one after the other
                                   lane customers  [ n ]
              waits while a lane is full      |
              is told what failed <-----------+   the rest of that lane is dropped, the others go on

A lane is one source table: its companions' epochs, then its mirror's. Where all tables of an epoch are one commit there
is one lane for all of them. Which epoch may follow which is still decided by the table alone; a line only keeps the
order of sending.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Condition

from frazil.coordinator.publish import Intent

Group = tuple[Intent, ...]
"""What one commit publishes: one epoch of one table, or of several."""
TABLES_AT_ONCE = 8


class Late(Exception):
    """These lanes keep the others waiting."""

    def __init__(self, lanes: Collection[str]) -> None:
        super().__init__(f"commits do not keep up: {', '.join(sorted(lanes))}")
        self.lanes = frozenset(lanes)


@dataclass
class _Lane:
    windows: deque[Sequence[Group]] = field(default_factory=deque)
    is_running: bool = False
    failure: BaseException | None = None


class CommitLine:
    def __init__(self, publish: Callable[[Group], None], windows_in_flight: int) -> None:
        """`publish` raises if the group is not published; then the rest of its lane is dropped."""
        self._publish = publish
        self._windows_in_flight = windows_in_flight
        self._pool = ThreadPoolExecutor(TABLES_AT_ONCE, thread_name_prefix="commit")
        self._changed = Condition()
        self._lanes: dict[str, _Lane] = {}

    def submit(self, window: Mapping[str, Sequence[Group]], patience: float | None = None) -> None:
        """Takes the window once every lane of it has room. Raises Late if some lanes had none for so long while others
        had nothing left to do. A lane that failed takes nothing more."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._full(window), patience):
                full = self._full(window)
                if any(not lane.windows for lane in self._lanes.values()):
                    raise Late(full)
                self._changed.wait_for(lambda: not self._full(window))
            for name, groups in window.items():
                lane = self._lanes.setdefault(name, _Lane())
                if lane.failure is not None:
                    continue
                lane.windows.append(groups)
                if not lane.is_running:
                    lane.is_running = True
                    self._pool.submit(self._work_off, lane)

    @property
    def failures(self) -> dict[str, BaseException]:
        """By lane."""
        with self._changed:
            return {name: lane.failure for name, lane in self._lanes.items() if lane.failure is not None}

    def drain(self, lanes: Collection[str] | None = None) -> None:
        """Waits until everything that was submitted is published or has failed."""
        with self._changed:
            chosen = [lane for name, lane in self._lanes.items() if lanes is None or name in lanes]
            self._changed.wait_for(lambda: not any(lane.is_running for lane in chosen))

    def close(self) -> None:
        """Finishes what was submitted; never raises."""
        self._pool.shutdown(wait=True)

    def _full(self, window: Mapping[str, Sequence[Group]]) -> set[str]:
        found = ((name, self._lanes.get(name)) for name in window)
        return {name for name, lane in found if lane is not None and len(lane.windows) >= self._windows_in_flight}

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
                    lane.failure = failure
                    lane.windows.clear()
                lane.is_running = bool(lane.windows)
                self._changed.notify_all()
                if not lane.is_running:
                    return
