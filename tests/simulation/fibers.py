"""The port `Threads` with turns: only one fiber runs at a time, and the seed says which one is next.

    scheduler --step()--> fiber runs ... pause() --> scheduler picks another that may go on --step()--> ...

The production code is plain blocking Python, so interleaving its threads at every call to the world needs a stack for
each: real threads that hand on a baton. They switch at calls to the world and at what the port makes, nowhere else, and
a fiber that waits is woken by what it waits for, or by the clock; so a run depends on the seed alone. A wake-up that
nobody sends is missed here as it is there.
"""

from __future__ import annotations

import _thread
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from queue import Empty
from typing import Any, TypeVar

T = TypeVar("T")
U = TypeVar("U")
_YIELDS = 0.1
"""How often one that could go on lets others go first, at what the port makes."""


class Crash(BaseException):
    """The process is gone. Not an Exception: whatever handler of the production code survives it, meets it again at
    its next step."""


class Fiber:
    """Runs from one pause to the next, whenever it is told to."""

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
        """Lets it meet the crash."""
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


class ThreadFiber(Fiber):
    """A thread of `threads`, as whoever started it knows it. It may go on once `ready` holds or `deadline` has come."""

    def __init__(self, threads: Fibers, name: str, body: Callable[[], None]) -> None:
        super().__init__(name, body)
        self.ready: Callable[[], bool] | None = None
        self.deadline: float | None = None
        self._threads = threads

    def may_go_on(self, now: float) -> bool:
        if self.deadline is not None and now >= self.deadline:
            return True
        return self.deadline is None if self.ready is None else self.ready()

    # What the port promises of a thread.

    def join(self, timeout: float | None = None) -> None:
        self._threads.pause(lambda: self.done, self._threads.after(timeout))

    def is_alive(self) -> bool:
        return not self.done


class Fibers:
    """The threads of one process. `now` is the world's clock."""

    def __init__(self, chance: random.Random, now: Callable[[], float]) -> None:
        self.chance = chance
        self.now = now
        self.dead = False
        self.alive: list[ThreadFiber] = []
        self.current: ThreadFiber | None = None

    # The scheduler's side.

    @property
    def ready(self) -> list[ThreadFiber]:
        now = self.now()
        return [fiber for fiber in self.alive if fiber.may_go_on(now)]

    @property
    def next_deadline(self) -> float | None:
        return min((fiber.deadline for fiber in self.alive if fiber.deadline is not None), default=None)

    def step(self) -> None:
        """One of those that may go on does. Raises what ended it."""
        fiber = self.chance.choice(self.ready)
        self.current = fiber
        try:
            fiber.resume()
        finally:
            self.current = None
            if fiber.done:
                self.alive.remove(fiber)

    def kill(self) -> None:
        self.dead = True
        for fiber in list(self.alive):
            self.current = fiber
            fiber.kill()
        self.alive.clear()
        self.current = None

    # The fibers' side.

    def pause(self, ready: Callable[[], bool] | None = None, deadline: float | None = None) -> None:
        """Called from inside: gives the turn back until then."""
        fiber = self.current
        if self.dead or fiber is None:
            raise Crash
        fiber.ready, fiber.deadline = ready, deadline
        fiber.pause()
        if self.dead:
            raise Crash

    def perhaps_pause(self) -> None:
        if not self.dead and self.chance.random() < _YIELDS:
            self.pause()

    def after(self, seconds: float | None) -> float | None:
        return None if seconds is None else self.now() + seconds

    # The port.

    def start(self, work: Callable[[], None], name: str) -> Fiber:
        fiber = ThreadFiber(self, name, work)
        if self.dead:
            fiber.done = True
        else:
            self.alive.append(fiber)
        return fiber

    def lock(self) -> AbstractContextManager[object]:
        return SimulatedLock(self)

    def changes(self) -> SimulatedChanges:
        return SimulatedChanges(self)

    def event(self) -> threading.Event:
        return SimulatedEvent(self)

    def queue(self) -> SimulatedQueue:
        return SimulatedQueue(self)

    def map(self, work: Callable[[T], U], items: Iterable[T], *, at_once: int) -> list[U]:
        made: dict[int, U] = {}
        failed: list[BaseException] = []

        def one(place: int, item: T) -> None:
            try:
                made[place] = work(item)
            except Exception as error:
                failed.append(error)

        fibers = [
            self.start(lambda place=place, item=item: one(place, item), f"map-{place}")  # type: ignore[misc]
            for place, item in enumerate(items)
        ]
        self.pause(lambda: all(fiber.done for fiber in fibers))
        if failed:
            raise failed[0]
        return [made[place] for place in range(len(fibers))]


class SimulatedLock:
    def __init__(self, threads: Fibers) -> None:
        self._threads = threads
        self._owner: Fiber | None = None
        self._depth = 0

    def __enter__(self) -> None:
        self.take(1)

    def __exit__(self, *raised: Any) -> None:
        self._depth -= 1
        if self._depth <= 0:
            self._owner = None

    def take(self, depth: int) -> None:
        me = self._threads.current
        if self._owner is not me:
            self._threads.perhaps_pause()
            while self._owner is not None:
                self._threads.pause(lambda: self._owner is None)
            self._owner, self._depth = me, 0
        self._depth += depth

    def leave(self) -> int:
        depth, self._owner, self._depth = self._depth, None, 0
        return depth


class SimulatedChanges(SimulatedLock):
    def __init__(self, threads: Fibers) -> None:
        super().__init__(threads)
        self._told = 0

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        deadline = self._threads.after(timeout)
        while not (found := predicate()) and not (deadline is not None and self._threads.now() >= deadline):
            seen, depth = self._told, self.leave()
            self._threads.pause(lambda seen=seen: self._told != seen, deadline)  # type: ignore[misc]
            self.take(depth)
        return found

    def notify_all(self) -> None:
        self._told += 1


class SimulatedEvent(threading.Event):
    def __init__(self, threads: Fibers) -> None:
        super().__init__()
        self._threads = threads

    def wait(self, timeout: float | None = None) -> bool:
        if not self.is_set():
            self._threads.pause(self.is_set, self._threads.after(timeout))
        return self.is_set()


class SimulatedQueue:
    def __init__(self, threads: Fibers) -> None:
        self._threads = threads
        self._items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)
        self._threads.perhaps_pause()

    def get(self, *, timeout: float | None = None) -> Any:
        deadline = self._threads.after(timeout)
        while not self._items:
            if deadline is not None and self._threads.now() >= deadline:
                raise Empty
            self._threads.pause(lambda: bool(self._items), deadline)
        return self._items.popleft()
