"""No table gets columns that Spark or PyIceberg cannot tell apart, or take for their own; sources keep their names."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.iceberg.tables.column_match import RESERVED, match_columns, named
from frazil.iceberg.tables.new_schema import first_memory, new_schema
from frazil.model.ids import TableName
from frazil.model.schema import LONG, Column, Field, KnownTable, ListOf, Remembered, Schema, SourceSchema, StructOf
from frazil.model.write import DeleteMode, TableOptions

T = TableName(("shop",), "t")
OPTIONS = TableOptions()
NAMES = st.sampled_from(
    ["a", "A", "a_2", "A_2", "b", "B", "bB", "Bb", "_pos", "_POS", "_pos_2", "_file", "_row_id", "x"]
)


def source_schema(*names: str, key: Sequence[str] = ()) -> SourceSchema:
    return SourceSchema(tuple(Column(name, LONG, "INT8", "inferred") for name in names), tuple(key), "inferred")


def made(matched: SourceSchema) -> KnownTable:
    """The table that is created of it."""
    schema = new_schema(T, matched, DeleteMode.APPEND_ONLY)
    return KnownTable(schema, first_memory(matched.columns, schema))


def names(matched: SourceSchema) -> dict[str, str]:
    """By the source's name."""
    return {column.carried_as[0]: column.name for column in matched.columns}


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_names_of_the_readers_own_get_a_number(name: str) -> None:
    assert names(named(T, source_schema("id", name, name.upper() + "x"), OPTIONS))[name] == f"{name}_2"
    assert names(named(T, source_schema(name.upper()), OPTIONS)) == {name.upper(): f"{name.upper()}_2"}


def test_names_that_differ_in_case_only_are_told_apart_however_they_come() -> None:
    for order in permutations(["b", "B", "b_2", "id"]):
        assert names(named(T, source_schema(*order), OPTIONS)) == {"id": "id", "B": "B", "b": "b_3", "b_2": "b_2"}


def test_the_key_follows_its_column() -> None:
    assert named(T, source_schema("id", "_file", key=["_file", "id"]), OPTIONS).key == ("_file_2", "id")


def test_a_dotted_name_is_told_apart_from_a_field_inside_of_a_column() -> None:
    """Iceberg refuses a table with two fields that it finds by one name."""
    struct = StructOf((Field(1, "b", ListOf(LONG)),))
    nested = (Column("a", struct, "", "inferred"), Column("l", ListOf(LONG), "", "inferred"))
    flat = [Column(name, LONG, "", "inferred") for name in ("a.b", "a.b.element", "L.element", "a.c", "a.b_2")]
    for order in permutations([*nested, *flat]):
        settled = named(T, SourceSchema(order, (), ""), OPTIONS)
        assert names(settled) == {
            "a": "a", "a.b": "a.b_3", "a.b.element": "a.b.element_2", "a.b_2": "a.b_2", "a.c": "a.c",
            "L.element": "L.element", "l": "l_2",
        }  # fmt: skip


def test_a_list_that_comes_after_the_name_of_its_elements_gets_a_number() -> None:
    table = made(named(T, source_schema("a.element", "b"), OPTIONS))
    later = SourceSchema((*source_schema("a.element", "b").columns, Column("a", ListOf(LONG), "", "inferred")), (), "")
    assert names(match_columns(T, later, table, OPTIONS)) == {"a.element": "a.element", "b": "b", "a": "a_2"}


def test_a_column_that_comes_later_leaves_the_others_their_names() -> None:
    table = made(named(T, source_schema("b", "id"), OPTIONS))
    matched = match_columns(T, source_schema("B", "_pos", "b", "id"), table, OPTIONS)
    assert names(matched) == {"B": "B_2", "_pos": "_pos_2", "b": "b", "id": "id"}


def test_a_table_of_old_keeps_its_names() -> None:
    fields = tuple(Field(place, name, LONG) for place, name in enumerate(["id", "_file", "b", "B"], start=1))
    table = KnownTable(Schema(0, fields), {field.id: Remembered(None, (field.name,)) for field in fields})
    assert names(match_columns(T, source_schema("id", "_file", "b", "B"), table, OPTIONS)) == {
        n: n for n in ("id", "_file", "b", "B")
    }


@given(first=st.sets(NAMES, min_size=1), later=st.sets(NAMES))
def test_any_columns_are_told_apart_now_and_later(first: set[str], later: set[str]) -> None:
    matched = named(T, source_schema(*first), OPTIONS)
    before = names(matched)
    assert len({name.lower() for name in before.values()}) == len(first)
    assert not {name.lower() for name in before.values()} & RESERVED
    again = sorted(first | later, reverse=True)
    after = names(match_columns(T, source_schema(*again), made(matched), OPTIONS))
    assert {name: after[name] for name in first} == before, "what has a name keeps it"
    assert len({name.lower() for name in after.values()}) == len(first | later)
