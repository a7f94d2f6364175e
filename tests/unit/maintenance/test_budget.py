"""Bytes an hour that rewrites may read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.clock import SystemClock
from frazil.maintenance.budget import Allowance

HOUR = 3600.0


class HandClock(SystemClock):
    at = 0.0

    def monotonic(self) -> float:
        return self.at


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def test_an_hour_brings_what_was_said_and_a_quiet_day_no_more(clock: HandClock) -> None:
    allowance = Allowance(1000, clock)
    assert allowance.left == 1000
    clock.at = 24 * HOUR
    assert allowance.left == 1000
    allowance.take(1000)
    assert allowance.left == 0
    clock.at += HOUR / 2
    assert allowance.left == 500
    clock.at += HOUR / 2
    assert allowance.left == 1000


def test_what_was_begun_may_overdraw_it_and_the_next_one_waits_until_that_is_paid(clock: HandClock) -> None:
    allowance = Allowance(1000, clock)
    assert allowance.seconds_until == 0.0
    allowance.take(3000)
    assert allowance.seconds_until == pytest.approx(2 * HOUR + HOUR / 1000)
    assert "1000B" in allowance.wait_text
    clock.at = HOUR
    assert allowance.left == -1000
    clock.at = 2 * HOUR
    assert allowance.left == 0
    clock.at += allowance.seconds_until
    assert allowance.left == 1


def test_a_clock_that_goes_back_brings_nothing(clock: HandClock) -> None:
    clock.at = 100.0
    allowance = Allowance(1000, clock)
    allowance.take(500)
    clock.at = 0.0
    assert allowance.left == 500
    allowance.take(100)
    clock.at = 100.0
    assert allowance.left == 400


def test_an_allowance_of_nothing_is_refused(clock: HandClock) -> None:
    with pytest.raises(ValueError, match="one byte"):
        Allowance(0, clock)


@given(
    st.integers(1, 10**12),
    st.lists(st.tuples(st.floats(0, 10 * HOUR), st.floats(0.01, 3.0)), max_size=40),
)
def test_over_any_time_no_more_is_read_than_the_hours_bring_and_one_overdraft(
    per_hour: int, wishes: list[tuple[float, float]]
) -> None:
    """Whoever begins only if something is left, in steps of up to three hours' worth."""
    clock = HandClock()
    allowance, read, largest = Allowance(per_hour, clock), 0, 0
    for wait, share in wishes:
        clock.at += wait
        size = max(1, int(share * per_hour))
        if allowance.left > 0:
            allowance.take(size)
            read, largest = read + size, max(largest, size)
        bound = per_hour * (1 + clock.at / HOUR) + largest
        assert read <= bound * (1 + 1e-9) + 1
