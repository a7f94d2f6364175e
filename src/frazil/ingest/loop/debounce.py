"""Does one thing soon after it is asked for, however often that is, in a thread of its own.

    ask, ask, ask --> after `delay` --> work() --> ask, ask meanwhile --> work() once more

What it costs is bounded by time, not by how much happens: it rests after its work so long that the work takes no more
than `SHARE` of the time.
"""

from __future__ import annotations

from collections.abc import Callable

from frazil.clock import Clock
from frazil.threads import Threads

SHARE = 0.1


class Debounced:
    """At work until `end`. `work` sees all that was there when it was asked for."""

    def __init__(self, work: Callable[[], None], clock: Clock, threads: Threads, name: str, delay: float = 0.0) -> None:
        self._work = work
        self._clock = clock
        self._delay = delay
        self._asked = threads.event()
        self._ending = threads.event()
        self.failure: BaseException | None = None
        """What the work raised: then it is not done again."""
        self._thread = threads.start(self._run, name)

    def ask(self) -> None:
        self._asked.set()

    def end(self, patience: float | None = None) -> None:
        """Does once more what was asked for, and waits for that no longer than told."""
        self._ending.set()
        self._asked.set()
        self._thread.join(patience)

    def _run(self) -> None:
        while self._asked.wait():
            self._clock.wait(self._delay, self._ending)
            self._asked.clear()
            # After that: whoever ends it meanwhile has asked once more, or is seen here.
            is_last = self._ending.is_set()
            began = self._clock.monotonic()
            try:
                self._work()
            except BaseException as error:
                self.failure = error
                return
            if is_last:
                return
            took = self._clock.monotonic() - began
            self._clock.wait(took * (1 / SHARE - 1), self._ending)
