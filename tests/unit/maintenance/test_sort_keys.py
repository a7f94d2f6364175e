"""Bytes that compare as values do, and bits of several columns in turn."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cmp_to_key
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.data.arrow_types import arrow_schema, arrow_type
from frazil.maintenance.compact.sort.sort_keys import OrderForms, form, joined, sort_indices
from frazil.maintenance.compact.sort.zorder import RANK_BITS, cuts_of, interleave, ranks, zvalues
from frazil.model.ids import TableName
from frazil.model.partition import Transform
from frazil.model.schema import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    Field,
    Primitive,
    Schema,
    StructOf,
)
from frazil.model.schema import UUID as UUID_TYPE
from frazil.model.schema import Decimal as DecimalType
from frazil.model.sort import Order, OrderField


def float_order(value: float) -> tuple[int, float, int]:
    """-0.0 before 0.0, NaN after every number."""
    if math.isnan(value):
        return 2, 0.0, 0
    return 1, value, int(not math.copysign(1.0, value) < 0)


def as_it_is(value: Any) -> Any:
    return value


def uuids(values: list[Any]) -> list[Any]:
    return [value if value is None else value.bytes for value in values]


MOMENTS = st.datetimes()
DIGITS = st.integers(-(10**38) + 1, 10**38 - 1)
KINDS: dict[str, tuple[Any, st.SearchStrategy[Any], Callable[[Any], Any]]] = {
    "boolean": (BOOLEAN, st.booleans(), as_it_is),
    "int": (INT, st.integers(-(2**31), 2**31 - 1), as_it_is),
    "long": (LONG, st.integers(-(2**63), 2**63 - 1), as_it_is),
    "float": (FLOAT, st.floats(width=32), float_order),
    "double": (DOUBLE, st.floats(), float_order),
    "decimal": (DecimalType(9, 2), st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-2)), as_it_is),
    "long decimal": (DecimalType(38, 0), DIGITS.map(Decimal), as_it_is),
    "date": (DATE, st.dates(date(1, 1, 1), date(9999, 12, 31)), as_it_is),
    "time": (TIME, st.times(), as_it_is),
    "timestamp": (TIMESTAMP, MOMENTS, as_it_is),
    "timestamptz": (TIMESTAMPTZ, MOMENTS.map(lambda moment: moment.replace(tzinfo=UTC)), as_it_is),
    "string": (STRING, st.text(st.characters(codec="utf-8"), max_size=6), str.encode),
    "binary": (BINARY, st.binary(max_size=5) | st.lists(st.sampled_from([0, 1, 255]), max_size=4).map(bytes), as_it_is),
    "uuid": (UUID_TYPE, st.uuids(), lambda value: value.bytes),
    "fixed": (Primitive("fixed[3]"), st.binary(min_size=3, max_size=3), as_it_is),
}


def column(type_: Any, values: list[Any]) -> pa.Array:
    if type_ == UUID_TYPE:
        return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(uuids(values), pa.binary(16)))
    return pa.array(values, arrow_type(type_))


def compared(order_of: Callable[[Any], Any], descending: bool, nulls_first: bool) -> Callable[[Any, Any], int]:
    def compare(one: Any, other: Any) -> int:
        if one is None or other is None:
            if (one is None) == (other is None):
                return 0
            return -1 if (one is None) == nulls_first else 1
        left, right = order_of(one), order_of(other)
        sign = (left > right) - (left < right)
        return -sign if descending else sign

    return compare


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=150)
@given(data=st.data(), descending=st.booleans(), nulls_first=st.booleans())
def test_forms_compare_as_values_do(kind: str, data: st.DataObject, descending: bool, nulls_first: bool) -> None:
    type_, values, order_of = KINDS[kind]
    drawn = data.draw(st.lists(st.none() | values, max_size=12))
    # A slice: what lies before it in memory is none of its business.
    forms = form(column(type_, [None, *drawn]).slice(1), descending=descending, nulls_first=nulls_first).to_pylist()
    compare = compared(order_of, descending, nulls_first)
    for one, its in zip(drawn, forms, strict=True):
        for other, others in zip(drawn, forms, strict=True):
            assert (its > others) - (its < others) == compare(one, other), (one, other)


@given(st.lists(st.tuples(st.none() | st.text("a\0b", max_size=3), st.none() | st.integers(-3, 3)), max_size=12))
def test_a_later_field_counts_only_between_equal_ones(rows: list[tuple[Any, Any]]) -> None:
    forms = [
        form(pa.array([row[0] for row in rows], pa.string()), descending=True, nulls_first=False),
        form(pa.array([row[1] for row in rows], pa.int32())),
    ]
    keys = joined(forms).to_pylist()
    first, second = compared(as_it_is, True, False), compared(as_it_is, False, True)
    expected = sorted(
        range(len(rows)), key=cmp_to_key(lambda i, j: first(rows[i][0], rows[j][0]) or second(rows[i][1], rows[j][1]))
    )
    assert sorted(range(len(rows)), key=lambda i: keys[i]) == expected


@given(st.lists(st.text("ab\0", max_size=70), max_size=30), st.integers(0, 3))
def test_keys_are_sorted_alike_be_they_short_or_long(values: list[str], start: int) -> None:
    keys = form(pa.array(values, pa.string())).slice(start)
    found = sort_indices(keys).to_pylist()
    assert found == sorted(range(len(keys)), key=lambda place: keys[place].as_py())


def test_every_nan_is_the_same_nan_whatever_its_bits_are() -> None:
    odd = [struct.unpack("<d", struct.pack("<Q", bits))[0] for bits in (0xFFF8 << 48, 0x7FF0000000000001, 0xFFF << 52)]
    negative_nan, other_nan, minus_infinity = form(pa.array(odd, pa.float64())).to_pylist()
    assert negative_nan == other_nan > form(pa.array([math.inf])).to_pylist()[0]
    assert minus_infinity < form(pa.array([-1e308])).to_pylist()[0]


def test_a_field_may_be_a_transform_of_a_column_inside_a_struct() -> None:
    inner = StructOf((Field(3, "when", TIMESTAMP), Field(4, "x", INT)))
    schema = Schema(0, (Field(1, "id", LONG), Field(2, "at", inner)))
    order = Order((OrderField(3, Transform("day")), OrderField(1, Transform("bucket", 4), descending=True)))
    moments = ("2024-05-02 01:00", "2024-05-01 23:00", "2024-05-01 03:00")
    at = [{"when": datetime.fromisoformat(moment), "x": 1} for moment in moments]
    rows = pa.RecordBatch.from_arrays([pa.array([1, 2, 2]), pa.array([*at])], schema=arrow_schema(schema.fields))
    later, one, same = joined(OrderForms(TableName.parse("a.b"), schema, order).of(rows)).to_pylist()
    assert one == same < later


def test_nothing_that_is_nested_has_a_form() -> None:
    with pytest.raises(TypeError, match="list"):
        form(pa.array([[1]]))


# z-order


def test_bits_of_several_columns_are_taken_in_turn() -> None:
    columns = [np.array([0b101, 0b111], np.uint32), np.array([0b010, 0b000], np.uint32)]
    assert [value.hex() for value in interleave(columns, 3).to_pylist()] == ["98", "a8"]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6])
@settings(max_examples=40)
@given(data=st.data())
def test_interleaved_bits_are_those_of_the_columns_and_grow_with_each(count: int, data: st.DataObject) -> None:
    ranks_of = st.tuples(*[st.integers(0, 2**RANK_BITS - 1)] * count)
    rows = data.draw(st.lists(ranks_of, min_size=1, max_size=20))
    columns = [np.array(values, np.uint32) for values in zip(*rows, strict=True)]
    keys = [int.from_bytes(value, "big") for value in interleave(columns).to_pylist()]
    bits = RANK_BITS * count
    for row, key in zip(rows, keys, strict=True):
        text = format(key >> (-bits % 8), f"0{bits}b")
        assert tuple(int(text[place::count], 2) for place in range(count)) == row
    for one, its in zip(rows, keys, strict=True):
        for other, others in zip(rows, keys, strict=True):
            if all(a <= b for a, b in zip(one, other, strict=True)):
                assert its <= others


@given(st.lists(st.none() | st.text(max_size=4), min_size=1, max_size=40), st.data())
def test_ranks_grow_with_the_values_and_nulls_come_first(values: list[str | None], data: st.DataObject) -> None:
    forms = form(pa.array(values, pa.string()))
    sample = forms.take(pa.array(data.draw(st.lists(st.integers(0, len(values) - 1), max_size=20)), pa.int64()))
    found = ranks(forms, cuts_of(sample)).tolist()
    keys = forms.to_pylist()
    for one, its in zip(found, keys, strict=True):
        assert 0 <= one < 2**RANK_BITS
        for other, others in zip(found, keys, strict=True):
            assert one <= other or its > others


def test_small_numbers_and_long_common_beginnings_count_as_much_as_anything_else() -> None:
    """Every rank uses the highest bits, whatever the values are."""
    numbers = form(pa.array(np.arange(1000) % 4, pa.int64()))
    texts = form(pa.array([f"https://example.com/{n // 250}" for n in range(1000)]))
    for forms in (numbers, texts):
        assert len(set((ranks(forms, cuts_of(forms)) >> (RANK_BITS - 2)).tolist())) == 4


def test_a_box_of_two_columns_is_found_in_few_of_the_files_that_z_order_makes() -> None:
    chance = np.random.default_rng(1)
    a, b = chance.permutation(4096), chance.permutation(4096)
    forms = [form(pa.array(a)), form(pa.array(b))]
    order = np.argsort(np.array(zvalues(forms, [cuts_of(one) for one in forms]).to_pylist(), object), kind="stable")
    for column_ in (a, b):
        hit = [part for part in np.split(column_[order], 16) if part.min() <= 100 and part.max() >= 50]
        assert len(hit) <= 5, "of 16, where either column alone would let all but one be passed over"


def test_a_uuid_is_ordered_by_its_bytes() -> None:
    values = [UUID(int=1 << 127), UUID(int=1)]
    high, low = form(column(UUID_TYPE, values)).to_pylist()
    assert low < high
