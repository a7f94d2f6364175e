"""The only maker of the threads of `ingest/loop`, and of what they wait at: so a test owns their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from queue import SimpleQueue
from threading import Condition, Event, RLock, Thread
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
U = TypeVar("U")


class Running(Protocol):
    """A thread."""

    def join(self, timeout: float | None = None) -> None: ...
    def is_alive(self) -> bool: ...


class Changes(Protocol):
    """A lock, and those who wait until something under it has changed: as `threading.Condition`."""

    def __enter__(self) -> object: ...
    def __exit__(self, *raised: Any) -> object: ...
    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T: ...
    def notify_all(self) -> None: ...


class ThreadQueue(Protocol[T]):
    def put(self, item: T) -> None: ...
    def get(self, *, timeout: float | None = None) -> T:
        """Raises queue.Empty if there is nothing for so long."""


class Threads(Protocol):
    def start(self, work: Callable[[], None], name: str) -> Running:
        """A thread that keeps no process alive: what is left under way is left as by a kill, which loses nothing."""

    def lock(self) -> AbstractContextManager[object]:
        """Who holds it may take it again."""

    def changes(self) -> Changes: ...
    def event(self) -> Event: ...
    def queue(self) -> ThreadQueue[Any]: ...
    def map(self, work: Callable[[T], U], items: Iterable[T], *, at_once: int) -> list[U]:
        """As the builtin one, in so many threads; raises the first error once all of them are done."""


class SystemThreads:
    def start(self, work: Callable[[], None], name: str) -> Running:
        thread = Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread

    def lock(self) -> AbstractContextManager[object]:
        return RLock()

    def changes(self) -> Changes:
        return Condition()

    def event(self) -> Event:
        return Event()

    def queue(self) -> ThreadQueue[Any]:
        return SimpleQueue()

    def map(self, work: Callable[[T], U], items: Iterable[T], *, at_once: int) -> list[U]:
        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(work, items))
