"""Where rows went when files were put together."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from frazil.maintenance.compact.position_map import PositionMap


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[list[tuple[int, int]]], list[BitMap64], list[list[tuple[int, int]]]]:
    """Rows of the inputs, which of them are left out, and rows of the outputs."""
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=6))
    inputs = [[(number, position) for position in range(size)] for number, size in enumerate(sizes)]
    left_out = [BitMap64(draw(st.sets(st.integers(0, size - 1)))) for size in sizes]
    alive = [row for number, rows in enumerate(inputs) for row in rows if row[1] not in left_out[number]]
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(alive) - 1)), max_size=4)))
    bounds = [0, *(cut for cut in cuts if cut < len(alive)), len(alive)]
    outputs = [alive[start:end] for start, end in itertools.pairwise(bounds) if start < end]
    return inputs, left_out, outputs


@given(groups(), st.data())
def test_every_row_is_found_where_it_was_written(
    group: tuple[list[list[tuple[int, int]]], list[BitMap64], list[list[tuple[int, int]]]], data: st.DataObject
) -> None:
    """H16"""
    inputs, left_out, outputs = group
    deleted = [BitMap64(data.draw(st.sets(st.integers(0, len(rows) - 1)))) for rows in inputs]
    places = PositionMap([len(rows) for rows in inputs], left_out, [len(rows) for rows in outputs])
    expected: dict[int, set[int]] = {}
    for number, rows in enumerate(outputs):
        gone = {place for place, (of, position) in enumerate(rows) if position in deleted[of]}
        if gone:
            expected[number] = gone
    assert {number: set(bitmap) for number, bitmap in places.follow(deleted).items()} == expected


def test_a_position_beyond_its_file_is_refused() -> None:
    with pytest.raises(ValueError, match="none at 3"):
        PositionMap([3], [BitMap64()], [3]).follow([BitMap64([3])])


def test_rows_that_were_lost_on_the_way_are_noticed() -> None:
    with pytest.raises(ValueError, match="2 rows were alive and 3 were written"):
        PositionMap([3], [BitMap64([0])], [3])
