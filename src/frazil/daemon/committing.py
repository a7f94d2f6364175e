"""Commits windows behind the reader's back: n+1 is read and written while n commits.

    reader --submit(window n+1)--> [ window n ] --> each table its own chain of epochs, tables side by side;
                                                    or one chain of groups: an epoch of all tables in one commit
              blocks when full            |
              raises what failed <--------+   after a failure nothing later is committed

Windows are committed in order, so each table's epochs are. Within a window the chains of companions go first, and
those of their mirrors when all of them are done. Which epoch may follow which is still decided by the
table alone; this line only keeps the order of sending.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Semaphore

from frazil.coordinator.publish import Intent

Group = tuple[Intent, ...]
"""What one commit publishes: one epoch of one table, or of several."""
Chain = Sequence[Group]
TABLES_AT_ONCE = 8


class CommitLine:
    def __init__(self, publish: Callable[[Group], None], windows_in_flight: int) -> None:
        """`publish` raises if the group is not published; then the rest of its chain and of the line is dropped."""
        self._publish = publish
        self._room = Semaphore(windows_in_flight)
        self._line = ThreadPoolExecutor(1, thread_name_prefix="commit-line")
        self._tables = ThreadPoolExecutor(TABLES_AT_ONCE, thread_name_prefix="commit")
        self._waiting: list[Future[None]] = []
        self._failure: BaseException | None = None

    def submit(self, chains: Sequence[Chain], first: Sequence[Chain] = ()) -> None:
        """Nothing of `chains` is sent before all of `first` is published. Raises what an earlier window failed with."""
        self._room.acquire()
        if self._failure is not None:
            self._room.release()
            self.check()
        self._waiting = [future for future in self._waiting if not future.done()]
        self._waiting.append(self._line.submit(self._commit_window, (first, chains)))

    @property
    def failure(self) -> BaseException | None:
        return self._failure

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def drain(self) -> None:
        """Waits for what was submitted, and raises what failed."""
        for future in self._waiting:
            future.result()
        self.check()

    def close(self) -> None:
        """Finishes what was submitted; never raises."""
        self._line.shutdown(wait=True)
        self._tables.shutdown(wait=True)

    def _commit_window(self, stages: Sequence[Sequence[Chain]]) -> None:
        try:
            for chains in stages:
                if self._failure is not None:
                    return
                for result in [self._tables.submit(self._commit_chain, chain) for chain in chains]:
                    failure = result.exception()
                    self._failure = self._failure or failure
        finally:
            self._room.release()

    def _commit_chain(self, chain: Chain) -> None:
        for group in chain:
            self._publish(group)
