"""Documents decoded together give what documents decoded one by one give, whatever they hold (H29, H39)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import bson
import numpy as np
import pyarrow as pa
import pytest
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.datetime_ms import DatetimeMS
from bson.errors import BSONError
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.errors import BadInput
from frazil.model.schema import LONG, SourceSchema
from frazil.sources.mongodb.decode import decoder as decode
from frazil.sources.mongodb.decode.bson_scan import Bytes, Uneven, walk
from frazil.sources.mongodb.decode.decoder import DecodedCollection
from frazil.sources.mongodb.decode.document_ids import CODEC, id_text
from frazil.sources.mongodb.decode.documents import key_of, keys_of, places
from frazil.sources.mongodb.schema.bson_types import kind_of_documents
from frazil.sources.mongodb.schema.mapping import MappedField
from frazil.sources.mongodb.schema.schema import CollectionSettings, schema_of

MOMENT = datetime(2024, 2, 29, 12, 30, tzinfo=UTC).replace(tzinfo=None)
_longs = st.integers(-(2**63), 2**63 - 1).map(Int64)
_decimals = st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9)
_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    _longs,
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.binary(max_size=9),
    st.builds(ObjectId, st.binary(min_size=12, max_size=12)),
    st.uuids(),
    st.datetimes(datetime(1800, 1, 1), datetime(2900, 1, 1)).map(lambda at: at.replace(microsecond=0)),  # noqa: DTZ001
    _decimals.map(Decimal128),
    st.sampled_from([MinKey(), MaxKey(), Regex("a", "i"), Code("f()"), Timestamp(3, 4), Binary(b"q", 5)]),
)
_values = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["a", "b", "cc", "a_long_name"]), inner, max_size=3),
    ),
    max_leaves=6,
)
_documents = st.lists(
    st.dictionaries(
        st.sampled_from(["a", "b", "name", "eightchr", "a_name_of_more_than_sixteen"]), _values, max_size=5
    ),
    min_size=1,
    max_size=8,
)


def encoded(documents: list[dict[str, Any]]) -> tuple[pa.Array, pa.Array]:
    keys = pa.array([id_text(document["_id"]) for document in documents])
    return keys, pa.array([bson.encode(document, codec_options=CODEC) for document in documents], pa.binary())


def shaped(documents: list[dict[str, Any]], **settings_: Any) -> SourceSchema:
    found = schema_of("t", CollectionSettings(**settings_), kind_of_documents(documents), (LONG, "long"), None)
    assert found is not None
    return found


def outcome(road: Any, known: DecodedCollection, keys: pa.Array, payloads: pa.Array) -> Any:
    """Rows, or what is refused and where."""
    try:
        rows = road(known, keys, payloads, decode._schema(known.source_schema.columns))
        rows.validate(full=True)
        return rows
    except (Uneven, BSONError):
        return None
    except BadInput as error:
        return type(error), error.facts


def assert_alike(known: DecodedCollection, keys: pa.Array, payloads: pa.Array) -> bool:
    """Whether they could be decoded together."""
    together = outcome(decode._together, known, keys, payloads)
    if together is not None:
        assert together == outcome(decode._apart, known, keys, payloads)
    return together is not None


@pytest.mark.slow
@settings(max_examples=300)
@given(_documents)
def test_whatever_documents_hold_both_roads_agree(bodies: list[dict[str, Any]]) -> None:
    documents = [{"_id": n, **body} for n, body in enumerate(bodies)]
    assert_alike(DecodedCollection("t", shaped(documents)), *encoded(documents))


@pytest.mark.slow
@settings(max_examples=300)
@given(_documents, _documents)
def test_both_roads_refuse_the_same(seen: list[dict[str, Any]], bodies: list[dict[str, Any]]) -> None:
    """Values that the table was not made for: another type, another field, too large a number."""
    known = DecodedCollection("t", shaped([{"_id": n, **body} for n, body in enumerate(seen)]))
    assert_alike(known, *encoded([{"_id": n, **body} for n, body in enumerate(bodies)]))


@settings(max_examples=200)
@given(_documents, st.sampled_from(["string", "long", "double", "decimal(12, 3)", "timestamp", "json", "boolean"]))
def test_both_roads_cast_alike(bodies: list[dict[str, Any]], type_: str) -> None:
    fields = tuple(MappedField(path, path.replace(".", "_"), type_) for path in ("a", "b.a", "name.a_long_name"))
    documents = [{"_id": n, **body} for n, body in enumerate(bodies)]
    known = DecodedCollection("t", shaped(documents, fields=fields), explicit=True)
    assert_alike(known, *encoded(documents))


USUAL: list[dict[str, Any]] = [
    {
        "_id": n,
        "text": f"käse {n}",
        "oid": ObjectId(),
        "int": n,
        "long": Int64(n),
        "price": Decimal128(f"{n}.50"),
        "at": MOMENT,
        "who": UUID(int=n),
        "inner": {"a": n, "b": {"c": [n] * (n % 3)}},
        "items": [{"sku": str(k), "n": k} for k in range(n % 4)],
        **({"sometimes": 1.5} if n % 2 else {"late": True}),
    }
    for n in range(50)
]


def test_usual_documents_are_decoded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or all of this would be for nothing."""
    known, (keys, payloads) = DecodedCollection("t", shaped(USUAL)), encoded(USUAL)
    assert assert_alike(known, keys, payloads)
    monkeypatch.setattr(decode, "array_of", None)
    assert outcome(decode._together, known, keys, payloads).num_rows == 50


def test_fields_in_another_order_are_found() -> None:
    shuffled = [
        dict(sorted(document.items(), key=lambda item: (item[0] != "_id", hash((n, item[0])))))
        for n, document in enumerate(USUAL[:6])
    ]
    assert assert_alike(DecodedCollection("t", shaped(USUAL)), *encoded(shuffled))


def test_a_field_that_comes_twice_counts_the_last_time() -> None:
    twice = bson.encode({"_id": 1, "x": 1, "y": 2}).replace(b"y\x00", b"x\x00")
    known = DecodedCollection("t", shaped([{"_id": 1, "x": 1}]))
    assert assert_alike(known, pa.array([id_text(1)]), pa.array([twice], pa.binary()))


@pytest.mark.parametrize("value", [DatetimeMS(2**62), Int64(2**40), Decimal128("1E+30"), Decimal128("NaN"), 2.5, "x"])
def test_what_does_not_fit_is_refused_by_both(value: Any) -> None:
    known = DecodedCollection("t", shaped([{"_id": 1, "x": 1, "d": Decimal128("1.5"), "at": MOMENT}]))
    for name in ("x", "d", "at"):
        assert_alike(known, *encoded([{"_id": 1, name: value}]))


@settings(max_examples=200)
@given(st.integers(0, 200), st.integers(0, 255))
def test_damaged_bytes_never_lead_beyond_a_document(place: int, byte: int) -> None:
    """A length that is wrong is noticed, or the value it gives is within its document."""
    keys, payloads = encoded(USUAL[:3])
    documents = payloads.to_pylist()
    broken = bytearray(documents[1])
    broken[4 + place % (len(broken) - 4)] = byte
    damaged = pa.array([documents[0], bytes(broken), documents[2]], pa.binary())
    found = outcome(decode._together, DecodedCollection("t", shaped(USUAL)), keys, damaged)
    if isinstance(found, pa.RecordBatch):
        whole = outcome(decode._together, DecodedCollection("t", shaped(USUAL)), keys, payloads)
        assert found.slice(0, 1) == whole.slice(0, 1)
        assert found.slice(2, 1) == whole.slice(2, 1)


IDS: list[list[Any]] = [
    [ObjectId(), ObjectId()],
    [1, Int64(2**40), -5],
    ["a", "", "käse", "x" * 40],
    ["a", "true", "0123456789abcdef01234567", '"'],
    [1, "a", None, {"a": 1}, b"x"],
]


@pytest.mark.parametrize("ids", IDS, ids=["objectId", "numbers", "texts", "texts in quotes", "mixed"])
def test_keys_of_many_are_the_keys_of_each(ids: list[Any]) -> None:
    raw = [bson.encode({"_id": value, "x": 1}, codec_options=CODEC) for value in ids]
    borders = np.array(places(b"".join(raw)), np.int64)
    found = keys_of(Bytes(b"".join(raw)), borders[:-1], borders[1:], "t")
    assert found.to_pylist() == [key_of(one, "t") for one in raw] == [id_text(value) for value in ids]


def test_names_that_nobody_asked_for_are_counted() -> None:
    raw = [bson.encode(one) for one in ({"a": 1, "b": 2, "c": None}, {"b": 1, "a": 3}, {"c": 1})]
    borders = np.array(places(b"".join(raw)), np.int64)
    walked = walk(Bytes(b"".join(raw)), borders[:-1], borders[1:], [b"a"])
    assert walked.strangers == {b"b": 2, b"c": 1}
    assert walked.fields[0].has_value.tolist() == [True, True, False]


def test_a_document_that_ends_too_early_is_none() -> None:
    """Fields behind a zero that does not belong there would be lost silently."""
    whole = bson.encode({"_id": 1, "x": 1, "y": 2})
    cut = whole.replace(b"\x10y\x00", b"\x00y\x00")
    keys, known = pa.array([id_text(1)]), DecodedCollection("t", shaped([{"_id": 1, "x": 1, "y": 2}]))
    assert outcome(decode._together, known, keys, pa.array([cut], pa.binary())) is None
    with pytest.raises(BadInput, match="cannot be decoded"):
        decode._rows(known, keys, pa.array([cut], pa.binary()), decode._schema(known.source_schema.columns))
