"""Threads that take turns: only one runs at a time, and it says itself when the next may.

    scheduler --resume()--> fiber runs ... pause() --> scheduler picks another --resume()--> ...

The production code is plain blocking Python, so interleaving two coordinators at every call to the world needs
a stack for each. Since exactly one holds the turn, a run depends on the seed alone.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable


class Crash(BaseException):
    """The process is gone. Not an Exception: no handler of the production code may survive it."""


class Fiber:
    def __init__(self, name: str, body: Callable[[], None]) -> None:
        self.name = name
        self.done = False
        self._body = body
        self._error: BaseException | None = None
        self._killed = False
        self._started = False
        self._go = _thread.allocate_lock()
        self._back = _thread.allocate_lock()
        self._go.acquire()
        self._back.acquire()

    def resume(self) -> None:
        """Runs the fiber up to its next pause. Raises what it raised."""
        if self._started:
            self._go.release()
        else:
            self._started = True
            _thread.start_new_thread(self._run, ())
        self._back.acquire()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def pause(self) -> None:
        """Called from inside: gives the turn back."""
        self._back.release()
        self._go.acquire()
        if self._killed:
            raise Crash

    def kill(self) -> None:
        self._killed = True
        if self._started and not self.done:
            self.resume()
        self.done = True

    def _run(self) -> None:
        try:
            self._body()
        except Crash:
            pass
        except BaseException as error:
            self._error = error
        self.done = True
        self._back.release()
