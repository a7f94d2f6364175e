"""BSON values to columns: the matrix of types, inference, conflicts, and the refusal of what would not be exact."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal as D
from typing import Any
from uuid import UUID as PyUuid

import bson
import pyarrow as pa
import pytest
from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.datetime_ms import DatetimeMS

from frazil.errors import BadInput, ConfigError, DoesNotFit, UnknownColumn
from frazil.model.schema import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    LONG,
    STRING,
    TIMESTAMPTZ,
    UUID,
    Decimal,
    Field,
    KnownTable,
    ListOf,
    Remembered,
    Schema,
    SourceSchema,
    StructOf,
    Type,
)
from frazil.sources.mongodb.decode.decoder import DecodedCollection, DocumentDecoder
from frazil.sources.mongodb.decode.document_ids import CODEC, id_text
from frazil.sources.mongodb.schema.bson_types import DocumentOf, kind_of_documents
from frazil.sources.mongodb.schema.mapping import MappedField
from frazil.sources.mongodb.schema.schema import CollectionSettings, schema_of

OID = ObjectId("507f1f77bcf86cd799439011")
LONG_KEY = (LONG, "long")


def source_schema(documents: list[dict[str, Any]], target: KnownTable | None = None, **settings: Any) -> SourceSchema:
    seen = kind_of_documents(documents)
    found = schema_of("shop.orders", CollectionSettings(**settings), seen, LONG_KEY, target)
    assert found is not None
    return found


def decoded(documents: list[dict[str, Any]], of: SourceSchema, explicit: bool = False) -> pa.RecordBatch:
    keys = pa.array([id_text(document["_id"]) for document in documents])
    payloads = pa.array([bson.encode(document, codec_options=CODEC) for document in documents], pa.binary())
    return DocumentDecoder({0: DecodedCollection("shop.orders", of, explicit)}).rows(0, keys, payloads)


def column(*values: Any) -> tuple[Type, list[Any]]:
    """What the values of one field become, beside a document that lacks it."""
    documents = [{"_id": n, "x": value} for n, value in enumerate(values)]
    of = source_schema(documents)
    found = decoded([*documents, {"_id": len(values)}], of)
    *told, missing = found.column("x").to_pylist()
    assert missing is None
    known = of.column("x")
    assert known is not None
    return known.type, told


UUID_VALUE = PyUuid(int=7)
MOMENT = datetime(2024, 2, 29, 12, 30, 0, 123000, tzinfo=UTC).replace(tzinfo=None)
MATRIX: list[tuple[str, list[Any], Type, list[Any]]] = [
    ("objectId", [OID], STRING, [str(OID)]),
    ("string", ["a", "", "é\u0000x"], STRING, ["a", "", "é\u0000x"]),
    ("int", [2**31 - 1, -(2**31)], INT, [2**31 - 1, -(2**31)]),
    ("long", [Int64(2**63 - 1), Int64(-(2**63)), 5], LONG, [2**63 - 1, -(2**63), 5]),
    ("double", [0.1, float("inf"), -0.0, 5], DOUBLE, [0.1, float("inf"), -0.0, 5.0]),
    ("bool", [True, False], BOOLEAN, [True, False]),
    ("date", [MOMENT], TIMESTAMPTZ, [MOMENT.replace(tzinfo=UTC)]),
    ("binary", [b"x", Binary(b"y", 5), Binary(UUID_VALUE.bytes, 3)], BINARY, [b"x", b"y", UUID_VALUE.bytes]),
    ("uuid", [UUID_VALUE], UUID, [UUID_VALUE.bytes]),
    ("decimal", [Decimal128("12.50"), 3, Int64(4)], Decimal(38, 10), [D("12.5"), D(3), D(4)]),
    ("decimal of 34 digits", [Decimal128("1" * 34)], Decimal(38, 4), [D("1" * 34)]),
    ("fine decimal", [Decimal128("1E-30")], Decimal(38, 30), [D("1E-30")]),
    ("decimals no decimal holds", [Decimal128("1E+30"), Decimal128("1E-30")], STRING, ["1E+30", "1E-30"]),
    ("not a number", [Decimal128("NaN"), Decimal128("1.0")], STRING, ["NaN", "1.0"]),
    ("regex", [Regex("^a", "im")], STRING, ["/^a/im"]),
    ("code", [Code("f()")], STRING, ["f()"]),
    ("timestamp", [Timestamp(5, 6)], STRING, ["5:6"]),
    ("min and max key", [MinKey(), MaxKey(), 1], INT, [None, None, 1]),
    (
        "document",
        [{"a": 1, "b": {"c": "x"}}, {"b": {}}],
        None,
        [{"a": 1, "b": {"c": "x"}}, {"a": None, "b": {"c": None}}],
    ),
    ("array", [[1, 2], [], None], ListOf(INT), [[1, 2], [], None]),
    ("array of documents", [[{"a": 1}, {"b": 2.5}]], None, [[{"a": 1, "b": None}, {"a": None, "b": 2.5}]]),
    ("array of arrays", [[[1], []]], ListOf(ListOf(INT)), [[[1], []]]),
    ("int and string", [1, "a"], STRING, ["1", '"a"']),
    ("objectId and string", [OID, "a"], STRING, [f'{{"$oid":"{OID}"}}', '"a"']),
    ("long beyond doubles", [Int64(2**53 + 1), 0.5], STRING, [str(2**53 + 1), "0.5"]),
    ("document and number", [{"a": 1}, 2], STRING, ['{"a":1}', "2"]),
    ("mixed array", [[1, "a"]], ListOf(STRING), [["1", '"a"']]),
    ("empty array", [[]], ListOf(STRING), [[]]),
    ("empty document", [{}], STRING, ["{}"]),
    ("names that differ by case", [{"a": 1, "A": 2}], STRING, ['{"a":1,"A":2}']),
    ("names with a dot", [{"a.b": 1}], STRING, ['{"a.b":1}']),
]


@pytest.mark.parametrize(("values", "type_", "expected"), [row[1:] for row in MATRIX], ids=[row[0] for row in MATRIX])
def test_every_type_becomes_a_column_that_holds_it_exactly(
    values: list[Any], type_: Type | None, expected: list[Any]
) -> None:
    """H29, H39: the one decoder of load and stream."""
    found, told = column(*values)
    assert type_ is None or found == type_
    assert told == expected


def test_a_reference_to_another_document_is_json() -> None:
    type_, (text,) = column(DBRef("users", OID))
    assert type_ == STRING
    assert json.loads(text) == {"$ref": "users", "$id": {"$oid": str(OID)}}


def test_dates_that_python_does_not_know_are_exact() -> None:
    documents = [{"_id": 1, "x": DatetimeMS(300_000_000_000_000)}]
    found = decoded(documents, source_schema(documents)).column("x")
    assert found.cast(pa.int64()).to_pylist() == [300_000_000_000_000_000]


def test_documents_deeper_than_a_table_should_be_are_json_from_there_on() -> None:
    value: dict[str, Any] = {"end": 1}
    for _ in range(60):
        value = {"d": value}
    documents = [{"_id": 1, "x": value}]
    found = decoded(documents, source_schema(documents)).column("x")[0].as_py()
    depth = 0
    while isinstance(found, dict):
        found, depth = found["d"], depth + 1
    assert depth > 20
    rest = json.loads(found)
    for _ in range(60 - depth):
        rest = rest["d"]
    assert rest == {"end": 1}


def test_conflicts_are_reported_with_their_path() -> None:
    told: list[str] = []
    documents = [{"_id": 1, "a": {"b": 1}}, {"_id": 2, "a": {"b": "x"}}, {"_id": 3, "c": [1, "x"]}]
    kind_of_documents(documents, lambda path, one, other: told.append(path))
    assert told == ["a.b", "c[]"]


def test_a_field_nobody_knew_is_named_with_its_path() -> None:
    of = source_schema([{"_id": 1, "a": {"b": 1}, "l": [{"x": 1}]}])
    with pytest.raises(UnknownColumn) as top:
        decoded([{"_id": 1, "new": 1}], of)
    assert top.value.facts["columns"] == ["new"]
    with pytest.raises(UnknownColumn) as nested:
        decoded([{"_id": 1, "a": {"c": 1}, "l": [{"y": 2}]}], of)
    assert nested.value.facts["columns"] == ["a.c", "l[].y"]


def test_a_new_field_without_a_value_asks_for_no_column() -> None:
    of = source_schema([{"_id": 1, "a": 1}])
    assert decoded([{"_id": 1, "new": None, "other": MinKey()}], of).schema.names == ["_id", "a"]


@pytest.mark.parametrize(
    ("before", "after"),
    [(1, 1.5), (1, "x"), (1, True), (1.5, Int64(2**53 + 1)), (Decimal128("1.5"), 1.5), (b"x", UUID_VALUE), ([1], 1)],
)
def test_a_value_that_its_column_cannot_hold_is_refused_and_named(before: Any, after: Any) -> None:
    """H39: never clamped, rounded or turned into something else."""
    of = source_schema([{"_id": 1, "x": before}])
    with pytest.raises(DoesNotFit) as refused:
        decoded([{"_id": 1, "x": before}, {"_id": 2, "x": after}], of)
    assert refused.value.facts["column"] == "x"
    assert refused.value.facts["key"] == id_text(2)


def test_a_whole_number_written_as_a_double_fits_a_column_of_integers() -> None:
    of = source_schema([{"_id": 1, "x": 1}])
    assert decoded([{"_id": 1, "x": 7.0}], of).column("x").to_pylist() == [7]


def test_a_misfit_in_an_array_names_the_right_document() -> None:
    of = source_schema([{"_id": 1, "x": [1]}])
    with pytest.raises(DoesNotFit) as refused:
        decoded([{"_id": 1, "x": [1, 2]}, {"_id": 2, "x": []}, {"_id": 3, "x": [5, "no"]}], of)
    assert refused.value.facts["key"] == id_text(3)


def test_text_that_is_not_utf8_names_the_document() -> None:
    of = source_schema([{"_id": 1, "x": "abc"}])
    good, bad = (bson.encode({"_id": n, "x": "abc"}) for n in (1, 2))
    payloads = pa.array([good, bad.replace(b"abc", b"a\xffc")], pa.binary())
    decoder = DocumentDecoder({0: DecodedCollection("shop.orders", of)})
    with pytest.raises(BadInput, match="cannot be decoded") as refused:
        decoder.rows(0, pa.array([id_text(1), id_text(2)]), payloads)
    assert refused.value.facts["key"] == id_text(2)


# what a table becomes


def table_of(*fields: tuple[str, Type, str], **memory: Remembered) -> KnownTable:
    told = (("_id", LONG, "long"), *fields)
    schema = Schema(0, tuple(Field(n, name, t, name == "_id", doc) for n, (name, t, doc) in enumerate(told, 1)), (1,))
    by_name = {field.name: field.id for field in schema}
    return KnownTable(schema, {by_name[name]: known for name, known in memory.items()})


def test_a_table_keeps_its_columns_and_gains_what_was_seen() -> None:
    known = table_of(("a", INT, "int"), ("s", StructOf((Field(9, "b", INT, False, "int"),)), "object"))
    found = source_schema([{"_id": 1, "a": Int64(2**40), "s": {"b": 1, "c": "x"}, "n": [1.5]}], known)
    assert [(c.name, str(c.type), c.origin) for c in found.columns] == [
        ("_id", "long", "table"),
        ("a", "long", "inferred"),
        ("s", "struct<b: int, c: string>", "inferred"),
        ("n", "list<double>", "inferred"),
    ]


def test_a_column_of_strings_takes_whatever_comes() -> None:
    known = table_of(("a", STRING, "string"))
    of = source_schema([{"_id": 1, "a": 5}], known)
    assert of.column("a") == source_schema([], known).column("a")
    told = decoded([{"_id": n, "a": v} for n, v in enumerate(("x", 5, OID, {"b": 1}))], of).column("a").to_pylist()
    assert told == ["x", "5", str(OID), '{"b":1}']


def test_a_column_that_cannot_hold_what_was_seen_wants_another_type() -> None:
    found = source_schema([{"_id": 1, "a": "x"}], table_of(("a", INT, "int"))).column("a")
    assert found is not None
    assert (found.type, found.source_type) == (STRING, "json")


def test_a_retired_column_is_none_of_ours_and_its_successor_is() -> None:
    known = table_of(
        ("a", INT, "int"),
        ("a_v2", STRING, "json"),
        a=Remembered(carried=("a",), retired=True),
        a_v2=Remembered(carried=("a",)),
    )
    of = source_schema([{"_id": 1, "a": 5}], known)
    assert [c.name for c in of.columns] == ["_id", "a_v2"]
    assert decoded([{"_id": 1, "a": 5}], of).column("a_v2").to_pylist() == ["5"]


def test_fields_that_no_column_can_be_called_get_another_name() -> None:
    documents = [{"_id": 1, "Name": 1, "name": 2, "a.b": 3, "": 4}]
    of = source_schema(documents)
    assert [c.name for c in of.columns] == ["_id", "Name", "name_2", "a_b", "_"]
    assert decoded(documents, of).to_pylist() == [{"_id": 1, "Name": 1, "name_2": 2, "a_b": 3, "_": 4}]


def test_a_pinned_field_is_not_inferred() -> None:
    of = source_schema([{"_id": 1, "a": 5}], pins={"a": "json", "later": "decimal(12, 2)"})
    assert [(c.name, str(c.type), c.origin) for c in of.columns][1:] == [
        ("a", "string", "configuration"),
        ("later", "decimal(12, 2)", "configuration"),
    ]


# explicit mapping


def mapped(*fields: tuple[str, str, str | None]) -> dict[str, Any]:
    return {"fields": tuple(MappedField(*field) for field in fields)}


def test_an_explicit_mapping_takes_paths_renames_and_casts() -> None:
    documents = [
        {
            "_id": 1,
            "customer": {"name": "Ada"},
            "at": "2024-02-29T10:00:00+02:00",
            "total": "12.5",
            "n": 3.0,
            "rest": 1,
        },
        {"_id": 2, "customer": "nobody", "total": 7, "n": "42"},
    ]
    of = source_schema(
        documents,
        **mapped(
            ("_id", "id", "long"),
            ("customer.name", "customer_name", "string"),
            ("at", "at", "timestamp"),
            ("total", "total", "decimal(12, 2)"),
            ("n", "n", "int"),
        ),
    )
    assert of.key == ("id",)
    assert decoded(documents, of, explicit=True).to_pylist() == [
        {"id": 1, "customer_name": "Ada", "at": datetime(2024, 2, 29, 8, tzinfo=UTC), "total": D("12.50"), "n": 3},
        {"id": 2, "customer_name": None, "at": None, "total": D(7), "n": 42},
    ]


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        ("twelve", "int"),
        (1.5, "long"),
        ("yes", "boolean"),
        ("x", "timestamp"),
        ("1.234", "decimal(5, 2)"),
        ("x", "uuid"),
    ],
)
def test_an_impossible_cast_names_document_and_column(value: Any, type_: str) -> None:
    documents = [{"_id": 5, "x": value}]
    of = source_schema(documents, **mapped(("x", "x", type_)))
    with pytest.raises(DoesNotFit) as refused:
        decoded(documents, of, explicit=True)
    assert (refused.value.facts["key"], refused.value.facts["column"]) == (id_text(5), "x")


def test_a_path_that_no_document_has_needs_a_type() -> None:
    with pytest.raises(ConfigError, match=r"custmer\.name"):
        source_schema([{"_id": 1, "customer": {"name": "x"}}], **mapped(("custmer.name", "name", None)))
    found = source_schema([{"_id": 1}], **mapped(("custmer.name", "name", "string")))
    assert [c.name for c in found.columns] == ["_id", "name"]


def test_a_type_that_there_is_none_of_is_refused() -> None:
    with pytest.raises(ConfigError, match="varchar"):
        source_schema([{"_id": 1, "x": 1}], **mapped(("x", "x", "varchar")))


def test_a_day_is_a_date() -> None:
    documents = [{"_id": 1, "x": MOMENT}]
    of = source_schema(documents, **mapped(("x", "x", "date")))
    assert of.column("x").type == DATE  # type: ignore[union-attr]
    assert decoded(documents, of, explicit=True).column("x").to_pylist() == [MOMENT.date()]


def test_nothing_is_known_of_a_collection_without_documents() -> None:
    assert schema_of("shop.orders", CollectionSettings(), DocumentOf(), None, None) is None
