"""The canonical text of an `_id`: equal for keys that MongoDB's index takes for equal, different for all others."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from bson import Binary, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.datetime_ms import DatetimeMS
from hypothesis import given
from hypothesis import strategies as st

from frazil.model import columns as iceberg
from frazil.sources.mongodb.ids import NotOfType, bound_of, bound_text, id_text, id_type, json_of, key_array

OID = ObjectId("507f1f77bcf86cd799439011")


def at(year: int) -> datetime:
    """A moment as the driver gives it: UTC, without saying so."""
    return datetime(year, 12, 31, 1, 2, 3, 4000, tzinfo=UTC).replace(tzinfo=None)


DIFFERENT: list[Any] = [
    OID,
    str(OID),
    "a",
    '"a"',
    "",
    "true",
    True,
    False,
    None,
    "null",
    1,
    "1",
    '{"$numberLong":"1"}',
    {"$numberLong": "1"},
    -1,
    1.5,
    0.1,
    Decimal128("0.1"),
    Decimal128("1E+30"),
    float("nan"),
    float("inf"),
    float("-inf"),
    2**62,
    Decimal128("9223372036854775808"),
    at(2020),
    DatetimeMS(2**60),
    Binary(b"x", 0),
    Binary(b"x", 5),
    UUID(int=1),
    Binary(UUID(int=1).bytes, 3),
    Timestamp(1, 2),
    Timestamp(2, 1),
    MinKey(),
    MaxKey(),
    {"a": 1, "b": 2},
    {"b": 2, "a": 1},
    {"a": {"$oid": str(OID)}},
    {"a": OID},
    {},
    Regex("a", "i"),
]


def test_no_two_keys_that_differ_have_one_text() -> None:
    """H51: also strings that look like another type's text."""
    texts = [id_text(value) for value in DIFFERENT]
    assert len(set(texts)) == len(texts)
    assert len({json_of(text) for text in texts}) == len(texts)


@pytest.mark.parametrize(
    "equal",
    [
        [1, Int64(1), 1.0, Decimal128("1"), Decimal128("1.00"), Decimal128("0.1E+1")],
        [0, 0.0, -0.0, Decimal128("-0")],
        [1.5, Decimal128("1.5"), Decimal128("1.50")],
        [float("nan"), Decimal128("NaN")],
        [{"a": 1}, {"a": Int64(1)}, {"a": 1.0}],
    ],
)
def test_numbers_that_mongodb_takes_for_equal_are_one_key(equal: list[Any]) -> None:
    assert len({id_text(value) for value in equal}) == 1


def test_a_double_and_the_decimal_that_is_written_alike_differ_as_they_do_in_mongodb() -> None:
    assert id_text(0.1) != id_text(Decimal128("0.1"))


@given(st.lists(st.text(), min_size=2, max_size=5, unique=True))
def test_strings_never_share_a_text(values: list[str]) -> None:
    assert len({id_text(value) for value in values}) == len(values)
    assert len({json_of(id_text(value)) for value in values}) == len(values)


@pytest.mark.parametrize("value", DIFFERENT)
def test_a_bound_gives_back_exactly_what_it_was(value: Any) -> None:
    again = bound_of(bound_text(value))
    assert id_text(again) == id_text(value)
    assert type(again) is type(value) or isinstance(value, Binary | int)


def test_the_key_column_has_the_type_of_all_keys_or_is_a_text() -> None:
    assert id_type(OID, OID, [OID]) == (iceberg.STRING, "objectId")
    assert id_type(1, Int64(5), [1, Int64(5)]) == (iceberg.LONG, "long")
    assert id_type(1, 5, [1, 2.5, 5]) == (iceberg.STRING, "json")
    for one, other in itertools.combinations([OID, "a", 1, UUID(int=1), at(2020)], 2):
        assert id_type(one, other, [one, other]) == (iceberg.STRING, "json")


def test_key_columns_of_each_type_hold_the_keys_exactly() -> None:
    longs = [-(2**63), 0, 2**63 - 1]
    texts = pa.array([id_text(Int64(value)) for value in longs])
    assert key_array(texts, iceberg.LONG, "long").to_pylist() == longs
    uuids = [UUID(int=0), UUID(int=2**128 - 1)]
    found = key_array(pa.array([id_text(value) for value in uuids]), iceberg.UUID, "uuid")
    assert found.to_pylist() == [value.bytes for value in uuids]
    moments = [at(1900), at(2999)]
    found = key_array(pa.array([id_text(value) for value in moments]), iceberg.TIMESTAMPTZ, "date")
    assert [value.replace(tzinfo=None) for value in found.to_pylist()] == moments


def test_a_key_of_another_type_is_refused_and_named() -> None:
    with pytest.raises(NotOfType, match="abc"):
        key_array(pa.array([id_text(1), id_text("abc")]), iceberg.LONG, "long")


def test_a_mixed_key_column_shows_json() -> None:
    shown = key_array(pa.array([id_text(v) for v in (OID, "a", 1, None)]), iceberg.STRING, "json").to_pylist()
    assert shown == [f'{{"$oid":"{OID}"}}', '"a"', '{"$numberLong":"1"}', "null"]
