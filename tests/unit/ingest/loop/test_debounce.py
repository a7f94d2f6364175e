"""A thing that is done soon after it was asked for, once for all who asked."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread

import pytest

from frazil.clock import SystemClock
from frazil.ingest.loop.debounce import Debounced
from frazil.threads import SystemThreads


class Work:
    """Waits at a gate while it is at work."""

    def __init__(self) -> None:
        self.done = 0
        self.began, self.gate = Event(), Event()

    def __call__(self) -> None:
        self.began.set()
        assert self.gate.wait(10)
        self.done += 1


def soon(work: Callable[[], None]) -> Debounced:
    return Debounced(work, SystemClock(), SystemThreads(), "test")


def test_all_who_ask_while_it_is_at_work_share_the_next_one() -> None:
    work = Work()
    made = soon(work)
    made.ask()
    assert work.began.wait(10)
    for _ in range(1000):
        made.ask()
    work.gate.set()
    made.end()
    assert work.done in (2, 3), "that one, one for the thousand, and perhaps the last one"


def test_the_last_one_sees_what_was_there_at_the_end() -> None:
    seen: list[int] = []
    state = [0]
    made = soon(lambda: seen.append(state[0]))
    for number in range(100):
        state[0] = number
        made.ask()
    made.end()
    assert seen[-1] == 99


def test_who_ends_it_between_two_looks_is_seen() -> None:
    """The end comes after the wait and before the wish is noted as heard."""
    ended = Event()

    class Late(SystemClock):
        def wait(self, seconds: float, stop: Event | None = None) -> bool:
            assert ended.wait(10)
            return False

    made = Debounced(lambda: None, Late(), SystemThreads(), "test")
    made.ask()
    ender = Thread(target=made.end, daemon=True)
    ender.start()
    while not made._ending.is_set():
        ender.join(0.01)
    ended.set()
    ender.join(10)
    assert not ender.is_alive()


def test_what_it_raises_is_kept_and_ends_it() -> None:
    calls: list[int] = []

    def fails() -> None:
        calls.append(1)
        raise ValueError("no")

    made = soon(fails)
    made.ask()
    made.end(10)
    made.ask()
    assert isinstance(made.failure, ValueError)
    assert calls == [1]


@pytest.mark.parametrize("took", [0.5, 2.0])
def test_it_rests_so_long_that_its_work_is_a_tenth_of_the_time(took: float) -> None:
    rests: list[float] = []
    rested = Event()

    class Clock(SystemClock):
        passed = 0.0

        def monotonic(self) -> float:
            return self.passed

        def wait(self, seconds: float, until: Event | None = None) -> bool:
            rests.append(seconds)
            if seconds:
                rested.set()
            return super().wait(0, until)

    clock = Clock()

    def works() -> None:
        clock.passed += took

    made = Debounced(works, clock, SystemThreads(), "test")
    made.ask()
    assert rested.wait(10)
    made.end()
    assert rests[:2] == [0.0, pytest.approx(9 * took)]
