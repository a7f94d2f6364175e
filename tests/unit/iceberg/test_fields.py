"""Every column a table ever had, and its own order."""

from __future__ import annotations

import pytest

from frazil.iceberg.tables.fields import columns_ever, float_places, sort_order
from frazil.model.partition import Transform
from frazil.model.schema import INT, LONG, STRING, TIMESTAMP, Field, Schema, StructOf
from frazil.model.sort import OrderField


def schema(number: int, *fields: tuple[int, str, object], **more: object) -> dict[str, object]:
    listed = [{"id": id_, "name": name, "required": False, "type": type_, **more} for id_, name, type_ in fields]
    return {"type": "struct", "schema-id": number, "fields": listed}


def test_dropped_columns_are_known_and_widened_ones_have_their_widest_type() -> None:
    metadata = {
        "current-schema-id": 2,
        "schemas": [
            schema(2, (1, "id", "long"), (3, "name", "int")),
            schema(0, (1, "id", "int"), (2, "name", "string")),
            schema(1, (1, "id", "long"), (2, "title", "string")),
        ],
    }
    known = columns_ever(metadata)
    assert {id_: (column.field.name, column.field.type) for id_, column in known.items()} == {
        1: ("id", LONG),
        2: ("title", STRING),
        3: ("name", INT),
    }


def test_the_current_schema_has_the_last_word() -> None:
    """A schema may be made the current one again."""
    metadata = {"current-schema-id": 0, "schemas": [schema(0, (1, "now", "long")), schema(1, (1, "then", "long"))]}
    assert columns_ever(metadata)[1].field.name == "now"


def test_what_older_files_have_in_a_column_is_known() -> None:
    metadata = {"current-schema-id": 0, "schemas": [schema(0, (1, "region", "string"), **{"initial-default": "eu"})]}
    assert columns_ever(metadata)[1].default == "eu"


def test_a_type_that_is_not_known_here_is_left_out() -> None:
    metadata = {"current-schema-id": 0, "schemas": [schema(0, (1, "at", "timestamp_ns"), (2, "id", "long"))]}
    assert sorted(columns_ever(metadata)) == [2]


# the table's own order


def ordered(*fields: tuple[int, str, str, str], order_id: int = 3) -> dict[str, object]:
    keys = ("source-id", "transform", "direction", "null-order")
    listed = [dict(zip(keys, field, strict=True)) for field in fields]
    return {"default-sort-order-id": 3, "sort-orders": [{"order-id": order_id, "fields": listed}]}


SCHEMA = Schema(0, (Field(1, "id", LONG), Field(2, "at", StructOf((Field(3, "when", TIMESTAMP),)))))


def test_the_order_of_a_table_is_told_with_its_id() -> None:
    metadata = ordered((3, "day", "desc", "nulls-last"), (1, "bucket[4]", "asc", "nulls-first"))
    assert sort_order(SCHEMA, metadata) == (
        (OrderField(3, Transform("day"), descending=True, nulls_first=False), OrderField(1, Transform("bucket", 4))),
        3,
    )


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"default-sort-order-id": 0, "sort-orders": [{"order-id": 0, "fields": []}]},
        ordered((1, "identity", "asc", "nulls-first"), order_id=2),
        ordered((1, "identity", "asc", "nulls-first"), (9, "identity", "asc", "nulls-first")),
        ordered((1, "zorder[4]", "asc", "nulls-first")),
        ordered((1, "day", "asc", "nulls-first")),
        ordered((2, "identity", "asc", "nulls-first")),
    ],
    ids=["none", "unsorted", "gone", "dropped column", "later transform", "wrong type", "a struct"],
)
def test_an_order_that_cannot_be_computed_is_none(metadata: dict[str, object]) -> None:
    assert sort_order(SCHEMA, metadata) == ((), None)


def test_places_of_floats_are_told_by_the_columns_that_specs_take_as_they_are() -> None:
    inner = {"type": "struct", "fields": [{"id": 4, "name": "y", "required": False, "type": "double"}]}
    metadata = {
        "current-schema-id": 0,
        "schemas": [schema(0, (1, "id", "long"), (2, "x", "float"), (3, "point", inner))],
        "partition-specs": [
            {"spec-id": 0, "fields": []},
            {
                "spec-id": 1,
                "fields": [
                    {"source-id": 1, "field-id": 1000, "name": "b", "transform": "bucket[4]"},
                    {"source-id": 4, "field-id": 1001, "name": "y", "transform": "identity"},
                    {"source-id": 2, "field-id": 1002, "name": "x", "transform": "identity"},
                    {"source-id": 2, "field-id": 1003, "name": "v", "transform": "void"},
                ],
            },
        ],
    }
    assert float_places(metadata) == {1: {1: "<d", 2: "<f"}}
