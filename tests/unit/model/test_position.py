"""Positions: texts, file stamps, order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.model.position import BatchNumber, NotAPosition, is_before, parse_position
from frazil.sources.cockroachdb.position import LOGICAL_MAX, Hlc

YEAR_9999 = 253_402_300_799 * 1_000_000_000
hlcs = st.builds(Hlc, st.integers(0, 2**63 - 1), st.integers(0, LOGICAL_MAX))
dated = st.builds(Hlc, st.integers(0, 2**63 - 1).map(lambda wall: wall % YEAR_9999), st.integers(0, LOGICAL_MAX))
batches = st.builds(BatchNumber, st.integers(0, 2**63))


def test_the_text_of_an_hlc() -> None:
    found = Hlc.parse("1701102296662969433.0000000001")
    assert (found.wall, found.logical) == (1701102296662969433, 1)
    assert str(found) == found.text == "1701102296662969433.0000000001"


def test_the_stamp_of_a_changefeed_file() -> None:
    found = Hlc.from_file_stamp("202004022058072107140000000000000")
    assert found.text == "1585861087210714000.0000000000"
    assert found.file_stamp == "202004022058072107140000000000000"


def test_a_boundary_before_a_schema_change() -> None:
    assert Hlc.parse("1701102296662969432.2147483647") < Hlc.parse("1701102296662969433.0000000000")


@given(hlcs | batches)
def test_a_text_reads_back_as_the_same_position(position: Hlc | BatchNumber) -> None:
    assert parse_position(position.text) == position


@given(dated)
def test_a_file_stamp_reads_back_as_the_same_position(position: Hlc) -> None:
    assert len(position.file_stamp) == 33
    assert Hlc.from_file_stamp(position.file_stamp) == position


@given(dated, dated)
def test_file_stamps_sort_like_positions(a: Hlc, b: Hlc) -> None:
    assert (a.file_stamp < b.file_stamp) == (a < b)


@given(hlcs, hlcs, hlcs)
def test_positions_are_totally_ordered(a: Hlc, b: Hlc, c: Hlc) -> None:
    assert is_before(a, b) == (a < b) == (a.order < b.order)
    assert is_before(a, b) + is_before(b, a) + (a == b) == 1
    assert not (is_before(a, b) and is_before(b, c)) or is_before(a, c)


@given(hlcs)
def test_none_lies_before_everything(position: Hlc) -> None:
    assert is_before(None, position)
    assert not is_before(position, None)
    assert not is_before(None, None)


@pytest.mark.parametrize(
    "text", ["", "1", "1.1", "1.00000000001", "-1.0000000000", "1e9.0000000000", "batch:", "batch:-1", " 1.0000000000"]
)
def test_a_text_that_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(NotAPosition):
        parse_position(text)


@pytest.mark.parametrize("stamp", ["2020", "202013022058072107140000000000000", "x" * 33])
def test_a_stamp_that_is_no_moment_is_refused(stamp: str) -> None:
    with pytest.raises(NotAPosition):
        Hlc.from_file_stamp(stamp)


@pytest.mark.parametrize(("wall", "logical"), [(-1, 0), (2**63, 0), (0, -1), (0, LOGICAL_MAX + 1)])
def test_an_hlc_out_of_range_cannot_exist(wall: int, logical: int) -> None:
    with pytest.raises(NotAPosition):
        Hlc(wall, logical)


def test_source_time_is_exact_to_the_microsecond() -> None:
    moment = Hlc.parse("1701102296662969433.0000000001").source_time
    assert moment is not None
    assert moment.isoformat() == "2023-11-27T16:24:56.662969+00:00"
    assert BatchNumber(3).source_time is None


def test_batch_numbers_start_at_zero() -> None:
    with pytest.raises(NotAPosition):
        BatchNumber(-1)
    assert BatchNumber(2) < BatchNumber(10)
