"""The canonical text of an `_id`: equal for keys that MongoDB's index takes for equal, different for all others."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.datetime_ms import DatetimeMS
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import ConfigError
from frazil.model import schema as iceberg
from frazil.model.schema import Field, KnownTable, Schema
from frazil.sources.mongodb.decode.document_ids import (
    NotOfType,
    bound_of,
    bound_text,
    id_text,
    id_type,
    json_of,
    key_array,
)
from frazil.sources.mongodb.schema.bson_types import DocumentOf
from frazil.sources.mongodb.schema.mapping import MappedField
from frazil.sources.mongodb.schema.schema import CollectionSettings, schema_of

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


LOOKING_LIKE_OTHERS = [str(OID), "true", "false", "null", "{", '{"$numberLong":"1"}', "[1]", '"a"', '"', "", "1", "\n{"]


def strings() -> st.SearchStrategy[str]:
    """Often such as look like another type's text."""
    return st.text() | st.sampled_from(LOOKING_LIKE_OTHERS) | st.builds(id_text, ids_of_other_types())


def ids_of_other_types() -> st.SearchStrategy[Any]:
    """Of every BSON type that may be an `_id`, each value in one form only."""
    scalars = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1).map(Int64),
        st.floats(-1, 1, exclude_min=True, exclude_max=True).filter(lambda number: number != 0),
        st.integers(1, 9).map(lambda digit: Decimal128(f"0.{digit}000000000000000000001")),
        st.binary(min_size=12, max_size=12).map(ObjectId),
        st.just(OID),
        st.uuids(),
        st.binary(max_size=3).map(lambda raw: Binary(raw, 5)),
        st.integers(-(2**40), 2**40).map(DatetimeMS),
        st.builds(Timestamp, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
        st.builds(Code, st.text(max_size=3)),
        st.sampled_from([MinKey(), MaxKey()]),
    )
    names = st.text("a$.{", min_size=1, max_size=3)
    return scalars | st.dictionaries(names, scalars | st.text(max_size=3), max_size=3)


@given(st.lists(strings(), min_size=1, max_size=8))
def test_ids_that_are_all_strings_stand_in_the_column_as_they_are(values: list[str]) -> None:
    texts = pa.array([id_text(value) for value in values])
    assert key_array(texts, *id_type(values[0], values[-1], values)).to_pylist() == values


@given(st.lists(strings() | ids_of_other_types(), min_size=1, max_size=8, unique_by=bound_text))
def test_ids_of_all_types_that_differ_are_different_keys_in_a_mixed_collection(values: list[Any]) -> None:
    texts = [id_text(value) for value in values]
    assert len(set(texts)) == len(values)
    for spelled in (id_type(None, "", values), id_type(OID, OID, [OID])):
        assert len(set(key_array(pa.array(texts), *spelled).to_pylist())) == len(values)


@given(ids_of_other_types())
def test_an_id_of_another_type_never_takes_the_place_of_a_string(value: Any) -> None:
    """Each text is some string's, so there is no place for it; the column says so instead of sharing one."""
    with pytest.raises(NotOfType):
        key_array(pa.array([id_text("a"), id_text(value)]), *id_type("a", "b", ["a", "b"]))


def key_shown(settings: CollectionSettings, value: Any, target: KnownTable | None = None) -> str:
    """What the key column holds of this `_id`, in a collection that has no other."""
    source_schema = schema_of("shop.orders", settings, DocumentOf(), id_type(value, value, [value]), target)
    assert source_schema is not None
    (column,) = source_schema.key_columns
    return str(key_array(pa.array([id_text(value)]), column.type, column.source_type)[0].as_py())


PINNED_AS_STRING = [
    CollectionSettings(pins={"_id": "string"}),
    CollectionSettings(fields=(MappedField("_id", "_id", "string"),)),
]


@pytest.mark.parametrize("settings", [CollectionSettings(), *PINNED_AS_STRING])
@pytest.mark.parametrize("value", [*LOOKING_LIKE_OTHERS, OID])
def test_a_key_that_is_mapped_to_string_shows_strings_and_object_ids_as_they_are(
    settings: CollectionSettings, value: Any
) -> None:
    assert key_shown(settings, value) == str(value)


@pytest.mark.parametrize("settings", [CollectionSettings(), *PINNED_AS_STRING])
def test_a_table_of_an_earlier_version_keeps_its_spelling(settings: CollectionSettings) -> None:
    """Or an update of a document would leave its older row, which stands under the quoted text."""
    old = KnownTable(Schema(0, (Field(1, "_id", iceberg.STRING, required=True, doc="string"),), (1,)))
    assert key_shown(settings, str(OID), old) == f'"{OID}"'


@pytest.mark.parametrize("settings", [CollectionSettings(pins={"_id": "json"}), *PINNED_AS_STRING])
def test_a_key_is_spelled_as_the_table_began_whatever_the_configuration_says_later(
    settings: CollectionSettings,
) -> None:
    began = schema_of("shop.orders", CollectionSettings(), DocumentOf(), id_type("a", "a", ["a"]), None)
    assert began is not None
    fields = (Field(1, "_id", iceberg.STRING, required=True, doc=began.columns[0].source_type),)
    assert key_shown(settings, "true", KnownTable(Schema(0, fields, (1,)))) == "true"


def test_a_key_that_is_mapped_to_string_waits_for_a_document_to_tell_which() -> None:
    for settings in PINNED_AS_STRING:
        assert schema_of("shop.orders", settings, DocumentOf(), None, None) is None


@pytest.mark.parametrize("pin", ["int", "double", "date", "boolean", "binary", "decimal(10, 2)"])
def test_a_type_that_holds_no_key_is_refused_by_name(pin: str) -> None:
    for settings in (
        CollectionSettings(pins={"_id": pin}),
        CollectionSettings(fields=(MappedField("_id", "id", pin),)),
    ):
        with pytest.raises(ConfigError, match=r"_id.*cannot be"):
            schema_of("shop.orders", settings, DocumentOf(), (iceberg.LONG, "long"), None)
