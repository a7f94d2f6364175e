"""Halving finds exactly the rows that cannot be taken."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.errors import BadInput, ConfigError, DoesNotFit, UnknownColumn
from frazil.ingest.quarantine.bisect import bad_rows


def batch(bad: list[bool]) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(len(bad)), pa.int64()), "bad": pa.array(bad, pa.bool_())})


def refuse(rows: pa.RecordBatch) -> None:
    wrong = [row["n"] for row in rows.to_pylist() if row["bad"]]
    if wrong:
        raise DoesNotFit(f"row {wrong[0]}", column="n")


@given(bad=st.lists(st.booleans(), max_size=70))
@settings(max_examples=200)
def test_every_bad_row_is_found_with_its_own_error_and_no_good_one(bad: list[bool]) -> None:
    found = bad_rows(batch(bad), refuse)
    assert [at for at, _ in found] == [at for at, wrong in enumerate(bad) if wrong]
    assert [error.message for _, error in found] == [f"row {at}" for at, _ in found]


def test_one_bad_row_among_many_costs_about_two_tries_for_each_halving() -> None:
    sizes = []

    def counted(rows: pa.RecordBatch) -> None:
        sizes.append(rows.num_rows)
        refuse(rows)

    bad_rows(batch([number == 777 for number in range(1024)]), counted)
    assert len(sizes) == 1 + 2 * 10


@pytest.mark.parametrize("error", [UnknownColumn("new"), ConfigError("impossible")])
def test_what_is_no_property_of_a_row_is_raised(error: Exception) -> None:
    def fail(_: pa.RecordBatch) -> None:
        raise error

    with pytest.raises(type(error)):
        bad_rows(batch([False] * 8), fail)


def test_nothing_is_asked_of_an_empty_batch() -> None:
    def fail(_: pa.RecordBatch) -> None:
        raise BadInput("asked")

    assert bad_rows(batch([]), fail) == []
