"""Columns and types in the JSON forms of the Iceberg specification."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.model.schema import (
    BINARY,
    LONG,
    STRING,
    BadType,
    Column,
    Decimal,
    Field,
    ListOf,
    Primitive,
    Schema,
    SourceSchema,
    Type,
    same_type,
    type_from_json,
)

primitives = st.sampled_from(
    [
        "boolean",
        "int",
        "long",
        "float",
        "double",
        "date",
        "time",
        "timestamp",
        "timestamptz",
        "string",
        "uuid",
        "binary",
    ]
).map(Primitive) | st.integers(1, 64).map(lambda size: Primitive(f"fixed[{size}]"))
decimals = st.integers(1, 38).flatmap(lambda p: st.builds(Decimal, st.just(p), st.integers(0, p)))
types: st.SearchStrategy[Type] = st.recursive(
    primitives | decimals, lambda inner: st.builds(ListOf, inner, st.integers(1, 99), st.booleans()), max_leaves=3
)


@given(types)
def test_a_type_reads_back(found: Type) -> None:
    assert type_from_json(found.to_json()) == found


@pytest.mark.parametrize(
    ("json", "expected"),
    [("decimal(12,2)", Decimal(12, 2)), ("decimal( 12 , 2 )", Decimal(12, 2)), ("fixed[16]", Primitive("fixed[16]"))],
)
def test_spellings_of_other_writers(json: str, expected: Type) -> None:
    assert type_from_json(json) == expected


@pytest.mark.parametrize(
    "json", ["varchar", "decimal(39, 2)", "decimal(2, 3)", {"type": "map"}, {"type": "set"}, 7, None]
)
def test_a_type_that_is_unknown_is_refused(json: Any) -> None:
    with pytest.raises(BadType):
        type_from_json(json)


def test_lists_are_the_same_whatever_id_a_catalog_gave_their_elements() -> None:
    assert same_type(ListOf(STRING, 5), ListOf(STRING, 9, True))
    assert not same_type(ListOf(STRING), ListOf(LONG))
    assert not same_type(ListOf(STRING), STRING)


def test_a_schema_reads_back_from_its_json() -> None:
    schema = Schema(
        3,
        (
            Field(1, "id", LONG, required=True),
            Field(2, "tags", ListOf(STRING, 4)),
            Field(3, "raw", BINARY, doc="as is"),
        ),
        identifier_ids=(1,),
    )
    json = schema.to_json()
    assert json["type"] == "struct"
    assert json["fields"][1] == {
        "id": 2,
        "name": "tags",
        "required": False,
        "type": {"type": "list", "element-id": 4, "element": "string", "element-required": False},
    }
    assert Schema.from_json(json) == schema


def test_fields_are_found_by_name_and_keep_their_ids() -> None:
    """H30"""
    schema = Schema(0, (Field(7, "b", LONG), Field(3, "a", STRING)), identifier_ids=(3,))
    assert [field.id for field in schema.select(("a", "b"))] == [3, 7]
    assert [field.name for field in schema.identifiers] == ["a"]
    assert schema.field("B") is None
    with pytest.raises(KeyError, match="c"):
        schema.select(("a", "c"))


def test_a_shape_has_each_column_once_and_its_key_among_them() -> None:
    columns = tuple(Column(name, LONG, "INT8", "sql") for name in ("a", "b"))
    source_schema = SourceSchema(columns, ("b", "a"), "sql")
    assert [column.name for column in source_schema.key_columns] == ["b", "a"]
    assert source_schema.column("c") is None
    with pytest.raises(BadType, match="'c'"):
        SourceSchema(columns, ("c",), "sql")
    with pytest.raises(BadType, match="twice"):
        SourceSchema((*columns, columns[0]), (), "sql")
