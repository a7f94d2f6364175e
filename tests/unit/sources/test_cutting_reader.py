"""Changes are cut into epochs exactly, for 64-bit pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.model.frontier import Window
from frazil.sources.base import Cut
from frazil.sources.cockroachdb.position import Hlc
from frazil.sources.cutting_reader import BEYOND, DROPPED, assign, cut_of

Pair = tuple[int, int]
LARGEST = 2**63 - 1


def assigned(pairs: list[Pair], cut: Cut) -> list[int]:
    major = np.array([a for a, _ in pairs], dtype=np.int64)
    minor = np.array([b for _, b in pairs], dtype=np.int64)
    result = assign(major, minor, cut)
    assert result.dtype == np.int32
    return [int(epoch) for epoch in result]


def one_by_one(pair: Pair, cut: Cut) -> int:
    if cut.lower is not None and pair <= cut.lower:
        return DROPPED
    return next((at for at, upper in enumerate(cut.uppers) if pair <= upper), BEYOND)


def test_the_borders_of_epochs() -> None:
    cut = Cut((10, 5), ((20, 0), (20, 7), (30, 0)))
    expected = {
        (0, 0): DROPPED,
        (10, 5): DROPPED,
        (10, 6): 0,
        (20, 0): 0,
        (20, 1): 1,
        (20, 7): 1,
        (20, 8): 2,
        (21, 0): 2,
        (30, 0): 2,
        (30, 1): BEYOND,
        (31, 0): BEYOND,
    }
    assert assigned(list(expected), cut) == list(expected.values())


def test_without_a_lower_nothing_is_dropped() -> None:
    assert assigned([(0, 0), (1, 0)], Cut(None, ((0, 0),))) == [0, BEYOND]


def test_an_upper_at_or_below_lower_keeps_its_index() -> None:
    """A table that is ahead of the others in the window."""
    assert assigned([(5, 0), (15, 0), (25, 0)], Cut((20, 0), ((10, 0), (20, 0), (30, 0)))) == [DROPPED, DROPPED, 2]


def test_nanoseconds_and_logical_time_survive() -> None:
    """A double would take these for equal."""
    wall = 1_701_102_296_662_969_433
    pairs = [(wall, 0), (wall, 1), (wall, 2), (wall + 1, 0)]
    assert assigned(pairs, Cut((wall, 0), ((wall, 1),))) == [DROPPED, 0, BEYOND, BEYOND]


def test_the_ends_of_the_range_and_no_changes_at_all() -> None:
    cut = Cut(None, ((LARGEST, LARGEST),))
    assert assigned([(LARGEST, LARGEST), (0, LARGEST)], cut) == [0, 0]
    assert assigned([], cut) == []


small = st.integers(0, 4)
pairs = st.tuples(small | st.integers(0, LARGEST), small | st.integers(0, LARGEST))


@given(
    changes=st.lists(pairs, max_size=30),
    lower=st.none() | pairs,
    uppers=st.sets(pairs, min_size=1, max_size=6).map(lambda found: tuple(sorted(found))),
)
def test_it_agrees_with_comparing_one_by_one(changes: list[Pair], lower: Pair | None, uppers: tuple[Pair, ...]) -> None:
    cut = Cut(lower, uppers)
    changes = [*changes, *uppers]
    assert assigned(changes, cut) == [one_by_one(change, cut) for change in changes]


@pytest.mark.parametrize(("lower", "expected"), [(None, None), (Hlc(7, 2), (7, 2))])
def test_the_cut_of_a_table_in_a_window(lower: Hlc | None, expected: Pair | None) -> None:
    assert cut_of(Window((Hlc(8), Hlc(9, 1))), lower) == Cut(expected, ((8, 0), (9, 1)))
