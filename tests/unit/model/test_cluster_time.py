"""MongoDB's cluster time as a position."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.ingest.write.change_rows import text_like
from frazil.model.position import BatchNumber, NotAPosition, parse_position
from frazil.sources.cockroachdb.position import Hlc
from frazil.sources.mongodb.position import WHOLE, ClusterTime

positions = st.builds(ClusterTime.of, st.integers(0, 2**31 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**31 - 1))


@given(positions)
def test_the_text_of_a_position_gives_it_back_whatever_else_there_is(position: ClusterTime) -> None:
    assert parse_position(position.text) == position


@given(positions)
def test_a_whole_column_has_the_same_texts(position: ClusterTime) -> None:
    major, minor = (pa.array([number], pa.int64()) for number in position.order)
    assert text_like(position)(major, minor).to_pylist() == [position.text]


def test_changes_come_before_their_whole_and_that_before_the_steps_of_a_load() -> None:
    texts = ["5-1.0", "5-1.1", "5-1", "5-1-1", "5-1-2", "5-2.0", "5-2", "6-1"]
    assert [p.text for p in sorted((ClusterTime.parse(text) for text in texts), key=lambda p: p.order)] == texts
    assert ClusterTime.of(5, 1).step == WHOLE


def test_it_is_no_other_position() -> None:
    assert isinstance(parse_position("1701102296662969433.0000000001"), Hlc)
    assert isinstance(parse_position("batch:7"), BatchNumber)


@pytest.mark.parametrize("text", ["5", "5-", "5:1", "5-1-", "5-1.x", "-5-1"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(NotAPosition):
        ClusterTime.parse(text)
