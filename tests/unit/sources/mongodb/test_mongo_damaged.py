"""Documents with damaged bytes are BadInput of their own, whatever is wrong with them."""

from __future__ import annotations

from datetime import UTC, datetime

import bson
import pyarrow as pa
from bson import Code, Decimal128, Int64, ObjectId, Regex
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.errors import BadInput
from frazil.model.schema import DOUBLE, LONG, STRING, TIMESTAMPTZ, Column, ListOf, SourceSchema, StructOf
from frazil.sources.mongodb.decode.decoder import DecodedCollection, DocumentDecoder, readable
from frazil.sources.mongodb.decode.documents import key_of
from frazil.sources.mongodb.decode.field_paths import strangers

WHOLE = {
    "_id": ObjectId(b"0" * 12),
    "n": Int64(7),
    "d": 1.5,
    "at": datetime(2024, 2, 29, tzinfo=UTC),
    "s": "text",
    "list": ["a", 1, {"x": Decimal128("1.5")}],
    "doc": {"r": Regex("a", "i"), "c": Code("f()", {"y": 1}), "b": b"\x00\x01"},
}
TYPES = {"_id": STRING, "n": LONG, "d": DOUBLE, "at": TIMESTAMPTZ, "s": STRING, "list": ListOf(STRING)}
DOCS = {"_id": "OBJECTID", "list": "array<json>", "doc": "json"}
SOURCE_SCHEMA = SourceSchema(
    tuple(Column(name, type_, DOCS.get(name, ""), "inferred") for name, type_ in {**TYPES, "doc": STRING}.items()),
    ("_id",),
    "_id",
)
NESTED = SourceSchema((*SOURCE_SCHEMA.columns[:-1], Column("doc", StructOf(()), "", "inferred")), ("_id",), "_id")


@given(
    hits=st.lists(st.tuples(st.integers(4, 400), st.integers(0, 255)), max_size=4),
    cut=st.none() | st.integers(5, 200),
    its_shape=st.sampled_from([SOURCE_SCHEMA, NESTED]),
)
@settings(max_examples=400, deadline=None)
def test_damaged_bytes_are_rows_or_bad_input(
    hits: list[tuple[int, int]], cut: int | None, its_shape: SourceSchema
) -> None:
    raw = bytearray(bson.encode(WHOLE))
    for at, byte in hits:
        raw[at % len(raw)] = byte
    damaged, key = bytes(raw[:cut]), "30" * 12
    decoder = DocumentDecoder({0: DecodedCollection("shop.t", its_shape)})
    try:
        decoder.rows(0, pa.array([key, key]), pa.array([bson.encode({"_id": 1}), damaged], pa.binary()))
    except BadInput as error:
        assert error.facts["table"] == "shop.t"  # noqa: PT017
    try:
        key_of(damaged, "shop.t")
    except BadInput as error:
        assert error.facts["table"] == "shop.t"  # noqa: PT017
    readable(damaged)
    strangers(pa.array([damaged], pa.binary()), ["n"])
