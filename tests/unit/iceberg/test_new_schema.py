from __future__ import annotations

import pytest

from frazil.errors import BadInput, ConfigError
from frazil.iceberg.tables.create import uuid_properties
from frazil.iceberg.tables.new_schema import check_required, new_schema, target_columns, without_changelog
from frazil.model.ids import TableName
from frazil.model.schema import (
    DOUBLE,
    FLOAT,
    LONG,
    STRING,
    UUID,
    Column,
    Field,
    ListOf,
    MapOf,
    Schema,
    SourceSchema,
    StructOf,
    Type,
)
from frazil.model.write import DeleteMode

ORDERS = TableName(("shop",), "orders")


def column(name: str, kind: Type = STRING, origin: str = "sql") -> Column:
    return Column(name, kind, str(kind).upper(), origin)


def source_schema(*columns: Column, key: tuple[str, ...] = ("id",)) -> SourceSchema:
    return SourceSchema((column("id", LONG), *columns), key, "sql")


def schema(**kinds: Type) -> Schema:
    return Schema(0, tuple(Field(n, name, kind) for n, (name, kind) in enumerate(kinds.items(), start=1)))


def test_ids_are_given_to_columns_first_and_to_elements_after() -> None:
    made = new_schema(ORDERS, source_schema(column("a", ListOf(ListOf(STRING))), column("b")), DeleteMode.EQUALITY)
    assert [field.id for field in made] == [1, 2, 3]
    outer = made.field("a").type  # type: ignore[union-attr]
    assert isinstance(outer, ListOf)
    assert isinstance(outer.element, ListOf)
    assert (outer.element_id, outer.element.element_id) == (4, 5)


def test_only_key_columns_are_required() -> None:
    made = new_schema(
        ORDERS, source_schema(Column("name", STRING, "STRING", "sql", required=True)), DeleteMode.EQUALITY
    )
    assert [(field.name, field.required) for field in made] == [("id", True), ("name", False)]
    assert made.identifier_ids == (1,)


def test_a_changelog_requires_nothing_and_says_what_happened() -> None:
    made = new_schema(ORDERS, source_schema(key=()), DeleteMode.APPEND_ONLY)
    assert [(field.name, field.required) for field in made] == [
        ("id", False),
        ("_op", False),
        ("_position", False),
        ("_before", False),
    ]
    assert str(made.fields[-1].type) == "struct<id: long>"


@pytest.mark.parametrize("name", ["_op", "_OP", "_Before"])
def test_a_changelog_cannot_hold_a_source_column_of_its_own_names(name: str) -> None:
    """Nor one that Spark, which looks at no name's case, could not tell from them."""
    with pytest.raises(ConfigError, match=f"'{name}'"):
        target_columns(ORDERS, source_schema(column(name)), DeleteMode.APPEND_ONLY)


def test_ids_of_one_level_precede_those_below() -> None:
    inner = StructOf((Field(0, "x", LONG, True), Field(0, "m", MapOf(STRING, ListOf(LONG)))))
    made = new_schema(ORDERS, source_schema(column("s", inner), column("b")), DeleteMode.EQUALITY)
    (x, m) = made.fields[1].type.fields  # type: ignore[union-attr]
    assert (x.id, m.id, m.type.key_id, m.type.value_id, m.type.value.element_id) == (4, 5, 6, 7, 8)
    assert not x.required, "a column of a table to be made requires nothing inside"


@pytest.mark.parametrize("kind", [FLOAT, DOUBLE, ListOf(LONG), StructOf((Field(0, "x", LONG),))])
def test_a_key_that_cannot_identify_is_refused(kind: Type) -> None:
    """H21"""
    with pytest.raises(ConfigError, match=r"shop.orders.*'price'"):
        new_schema(ORDERS, source_schema(column("price", kind), key=("price",)), DeleteMode.EQUALITY)


def test_a_table_without_a_key_must_be_a_changelog() -> None:
    with pytest.raises(ConfigError, match="no key") as caught:
        new_schema(ORDERS, source_schema(key=()), DeleteMode.EQUALITY)
    assert "append-only" in caught.value.hint


def test_a_column_the_source_lost_may_stay_unless_it_is_required() -> None:
    check_required(ORDERS, [column("id", LONG)], schema(id=LONG, old=STRING))
    demanding = Schema(0, (Field(1, "id", LONG), Field(2, "old", STRING, required=True)))
    with pytest.raises(BadInput, match="'old'"):
        check_required(ORDERS, [column("id", LONG)], demanding)


def test_a_changelogs_own_columns_are_not_taken_for_the_sources() -> None:
    """A restart learns the source's columns from the table, too."""
    made = new_schema(ORDERS, source_schema(column("name")), DeleteMode.APPEND_ONLY)
    known = without_changelog(made, DeleteMode.APPEND_ONLY)
    assert [field.name for field in known] == ["id", "name"]
    upserted = schema(id=LONG, _op=STRING)
    assert without_changelog(upserted, DeleteMode.EQUALITY) == upserted, "there a source may have such a column"


def test_uuid_columns_keep_no_bounds_whoever_writes_them() -> None:
    """iceberg-java compares uuids as signed numbers: with bounds it would skip equality deletes that match."""
    schema = Schema(0, (Field(1, "id", UUID, required=True), Field(2, "n", LONG)), (1,))
    assert uuid_properties(schema) == {"write.metadata.metrics.column.id": "counts"}
