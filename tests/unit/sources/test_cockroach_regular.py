"""Rows that are printed alike are read without parsing them, and every value is what a JSON reader would read."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.sources.cockroachdb.decode.fast.uniform_rows import Regular, read_regular

TYPES = {
    "amount": pa.decimal128(12, 2),
    "city": pa.string(),
    "id": pa.int64(),
    "is_new": pa.bool_(),
    "ratio": pa.float64(),
}
ODD = [
    '{"amount": 1.5, "city": "a\\"b", "id": 1, "is_new": true, "ratio": 0.5}',
    '{"amount": 1.5, "city": "a\\u003cb", "id": 1, "is_new": true, "ratio": 0.5}',
    '{"amount": 1.5, "city": null, "id": 1, "is_new": true, "ratio": 0.5}',
    '{"amount": 1E+2, "city": "x", "id": 1, "is_new": true, "ratio": 0.5}',
    '{"amount": "NaN", "city": "x", "id": 1, "is_new": true, "ratio": 0.5}',
    '{"amount": 1.5, "city": "x", "id": 1, "is_new": true, "ratio": 1e-7}',
    '{"amount": 1.5, "city": "x", "id": 007, "is_new": true, "ratio": 0.5}',
    '{"amount": 1.5, "city": "x", "id": -0, "is_new": true, "ratio": 0.5}',
    '{"amount": 1.5, "city": "x", "id": 1.0, "is_new": true, "ratio": 0.5}',
    '{"amount": 1.5, "city": "x", "id": --1, "is_new": true, "ratio": 0.5}',
    '{"amount": 1.5.5, "city": "x", "id": 1, "is_new": true, "ratio": 0.5}',
    '{"amount": .5, "city": "x", "id": 1, "is_new": true, "ratio": 0.5}',
    '{"amount": 5., "city": "x", "id": 1, "is_new": true, "ratio": 0.5}',
    '{"amount": +5, "city": "x", "id": 1, "is_new": true, "ratio": 0.5}',
    '{"amount": 1.5, "city": "x", "id": 1, "is_new": True, "ratio": 0.5}',
    '{"amount": 1.5, "city": "x", "id": 1, "is_new": 1, "ratio": 0.5}',
    '{"amount": 1.5, "city": "x", "id": , "is_new": true, "ratio": 0.5}',
    '{"amount": 1.5, "city": "x", "id": [1], "is_new": true, "ratio": 0.5}',
    '{"amount": 1.5, "city": "x",  "id": 1, "is_new": true, "ratio": 0.5}',
    '{"amount": 1.5, "city": "x", "id": 1, "is_new": true, "ratio": 0.5 }',
    '{"amount": 1.5, "city": "x", "id" : 1, "is_new": true, "ratio": 0.5}',
    '{"amount": 1.5, "city": "x" , "id": 1, "is_new": true, "ratio": 0.5}',
    '{"amount": 1.5, "town": "x", "id": 1, "is_new": true, "ratio": 0.5}',
    '{"city": "x", "amount": 1.5, "id": 1, "is_new": true, "ratio": 0.5}',
    '{"amount": 1.5, "city": "x", "id": 1, "is_new": true, "ratio": 0.5}}',
    '{"amount": 1.5, "city": "tab\there", "id": 1, "is_new": true, "ratio": 0.5}',
    f'{{"amount": {"9" * 37}, "city": "x", "id": 1, "is_new": true, "ratio": 0.5}}',
    "{}",
    "",
]


def printed(amount: Any = "1.5", city: Any = "Turin", id: Any = 7, is_new: Any = True, ratio: Any = 0.5) -> str:
    shown = {"amount": amount, "city": json.dumps(city, ensure_ascii=False)}
    shown |= {"id": id, "is_new": json.dumps(is_new), "ratio": json.dumps(ratio)}
    return "{" + ", ".join(f'"{name}": {"null" if value is None else value}' for name, value in shown.items()) + "}"


def read(*rows: str) -> Regular:
    found = read_regular(pa.array(rows, pa.string()), TYPES)
    assert found is not None
    return found


def test_rows_that_are_printed_alike_are_read() -> None:
    found = read(printed(), printed("-0.01", "", 12, False, -3.25), printed("12", 'Zürich {}, [": '[:-3], -5))
    assert found.rows.all()
    assert found.columns["amount"].to_pylist() == [Decimal("1.50"), Decimal("-0.01"), Decimal("12.00")]
    assert found.columns["city"].to_pylist() == ["Turin", "", "Zürich {}, ["]
    assert found.columns["id"].to_pylist() == [7, 12, -5]
    assert found.columns["is_new"].to_pylist() == [True, False, True]
    assert found.columns["ratio"].to_pylist() == [0.5, -3.25, 0.5]
    assert {name: column.type for name, column in found.columns.items()} == TYPES


def test_nulls_that_need_no_quotes_are_read() -> None:
    found = read(printed(), printed(amount=None, id=None, is_new=None, ratio=None))
    assert found.rows.all()
    assert [found.columns[name][1].as_py() for name in ("amount", "id", "is_new", "ratio")] == [None] * 4


@pytest.mark.parametrize("odd", ODD)
def test_a_row_that_looks_different_is_left_to_a_reader(odd: str) -> None:
    found = read(printed(), odd, printed(id=8), printed(id=9))
    assert found.rows.tolist() == [True, False, True, True]
    assert found.columns["id"].to_pylist() == [7, 8, 9]


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_row_may_come_last_and_one_that_comes_first_is_not_taken_for_the_others(odd: str) -> None:
    assert read(printed(), printed(), printed(), odd).rows.tolist() == [True, True, True, False]
    found = read_regular(pa.array([odd, printed(), printed(), printed()]), TYPES)
    assert found is None or found.rows.tolist() == [False, True, True, True]


def test_rows_of_which_most_are_odd_are_not_for_this_road() -> None:
    assert read_regular(pa.array([*ODD[:3], printed()]), TYPES) is None
    assert read_regular(pa.array([], pa.string()), TYPES) is None
    assert read_regular(pa.array([printed()]), {"amount": pa.decimal128(12, 2)}) is None, "a name that nobody knows"
    assert read_regular(pa.array([printed()]), {**TYPES, "id": pa.list_(pa.int64())}) is None


def test_a_column_that_no_row_has_is_left_out() -> None:
    found = read_regular(pa.array(['{"id": 1}', '{"id": 2}']), TYPES)
    assert found is not None
    assert set(found.columns) == {"id"}


def test_a_number_that_does_not_fit_is_an_error() -> None:
    for bad in (printed(id=2**63), printed(amount="0.001")):
        with pytest.raises(pa.ArrowInvalid):
            read(printed(), bad)


@settings(max_examples=300)
@given(
    st.lists(
        st.builds(
            printed,
            st.none() | st.decimals(-(10**9), 10**9, places=2, allow_nan=False).map(lambda value: f"{value:f}"),
            st.none() | st.text(st.characters(codec="utf-8"), max_size=12),
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.booleans(),
            st.none() | st.floats(allow_nan=False, allow_infinity=False),
        )
        | st.sampled_from(ODD),
        min_size=1,
        max_size=30,
    ),
    st.integers(0, 3),
)
def test_what_is_read_is_what_a_json_reader_reads(rows: list[str], skipped: int) -> None:
    texts = pa.array([printed()] * skipped + rows, pa.string()).slice(skipped)
    found = read_regular(texts, TYPES)
    if found is None:
        return
    for name, column in found.columns.items():
        expected = [
            json.loads(row, parse_float=Decimal if name == "amount" else float)[name]
            for row, is_regular in zip(rows, found.rows, strict=True)
            if is_regular
        ]
        assert column.to_pylist() == expected
    assert all(len(column) == np.count_nonzero(found.rows) for column in found.columns.values())
