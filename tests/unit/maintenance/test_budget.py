"""Bytes an hour that rewrites may read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.maintenance.budget import Bucket

HOUR = 3600.0


def test_an_hour_brings_what_was_said_and_a_quiet_day_no_more() -> None:
    bucket = Bucket.full(1000, at=0.0)
    assert bucket.left(0.0) == 1000
    assert bucket.left(24 * HOUR) == 1000
    spent = bucket.taken(1000, 0.0)
    assert spent.left(0.0) == 0
    assert spent.left(HOUR / 2) == 500
    assert spent.left(HOUR) == 1000


def test_what_was_begun_may_overdraw_it_and_the_next_one_waits_until_that_is_paid() -> None:
    bucket = Bucket.full(1000, at=0.0).taken(3000, 0.0)
    assert bucket.left(HOUR) == -1000
    assert bucket.left(2 * HOUR) == 0
    assert bucket.seconds_until(0.0) == pytest.approx(2 * HOUR + HOUR / 1000)
    assert bucket.left(bucket.seconds_until(0.0)) == 1
    assert Bucket.full(1000, at=0.0).seconds_until(0.0) == 0.0


def test_a_clock_that_goes_back_brings_nothing() -> None:
    bucket = Bucket.full(1000, at=100.0).taken(500, 100.0)
    assert bucket.left(0.0) == 500
    assert bucket.taken(100, 0.0).left(100.0) == 400


def test_a_bucket_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="one byte"):
        Bucket.full(0, at=0.0)
    with pytest.raises(ValueError, match="one hour"):
        Bucket(10, 11, 0.0)


@given(
    st.integers(1, 10**12),
    st.lists(st.tuples(st.floats(0, 10 * HOUR), st.floats(0.01, 3.0)), max_size=40),
)
def test_over_any_time_no_more_is_read_than_the_hours_bring_and_one_overdraft(
    per_hour: int, wishes: list[tuple[float, float]]
) -> None:
    """Whoever begins only if something is left, in steps of up to three hours' worth."""
    bucket, now, read, largest = Bucket.full(per_hour, at=0.0), 0.0, 0, 0
    for wait, share in wishes:
        now += wait
        size = max(1, int(share * per_hour))
        if bucket.left(now) > 0:
            bucket = bucket.taken(size, now)
            read, largest = read + size, max(largest, size)
        bound = per_hour * (1 + now / HOUR) + largest
        assert read <= bound * (1 + 1e-9) + 1
