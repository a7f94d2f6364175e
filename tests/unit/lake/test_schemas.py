from __future__ import annotations

import pytest

from frazil.errors import BadInput, ConfigError
from frazil.lake.schemas import can_promote, check_required, difference, new_schema, source_schema, target_columns
from frazil.lake.tables import uuid_properties
from frazil.model.columns import (
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    Column,
    Decimal,
    Field,
    ListOf,
    Schema,
    TableShape,
    Type,
)
from frazil.model.names import TableName
from frazil.model.write import DeleteMode

ORDERS = TableName(("shop",), "orders")


def column(name: str, kind: Type = STRING, origin: str = "sql") -> Column:
    return Column(name, kind, str(kind).upper(), origin)


def shape(*columns: Column, key: tuple[str, ...] = ("id",)) -> TableShape:
    return TableShape((column("id", LONG), *columns), key, "sql")


def schema(**kinds: Type) -> Schema:
    return Schema(0, tuple(Field(n, name, kind) for n, (name, kind) in enumerate(kinds.items(), start=1)))


def test_ids_are_given_to_columns_first_and_to_elements_after() -> None:
    made = new_schema(ORDERS, shape(column("a", ListOf(ListOf(STRING))), column("b")), DeleteMode.EQUALITY)
    assert [field.id for field in made] == [1, 2, 3]
    outer = made.field("a").type  # type: ignore[union-attr]
    assert isinstance(outer, ListOf)
    assert isinstance(outer.element, ListOf)
    assert (outer.element_id, outer.element.element_id) == (4, 5)


def test_only_key_columns_are_required() -> None:
    made = new_schema(ORDERS, shape(Column("name", STRING, "STRING", "sql", required=True)), DeleteMode.EQUALITY)
    assert [(field.name, field.required) for field in made] == [("id", True), ("name", False)]
    assert made.identifier_ids == (1,)


def test_a_changelog_requires_nothing_and_says_what_happened() -> None:
    made = new_schema(ORDERS, shape(key=()), DeleteMode.APPEND_ONLY)
    assert [(field.name, field.required) for field in made] == [("id", False), ("_op", False), ("_position", False)]


def test_a_changelog_cannot_hold_a_source_column_of_its_own_names() -> None:
    with pytest.raises(ConfigError, match="'_op'"):
        target_columns(ORDERS, shape(column("_op")), DeleteMode.APPEND_ONLY)


@pytest.mark.parametrize("kind", [FLOAT, DOUBLE, ListOf(LONG)])
def test_a_key_that_cannot_identify_is_refused(kind: Type) -> None:
    """H21"""
    with pytest.raises(ConfigError, match=r"shop.orders.*'price'"):
        new_schema(ORDERS, shape(column("price", kind), key=("price",)), DeleteMode.EQUALITY)


def test_a_table_without_a_key_must_be_a_changelog() -> None:
    with pytest.raises(ConfigError, match="no key") as caught:
        new_schema(ORDERS, shape(key=()), DeleteMode.EQUALITY)
    assert "append-only" in caught.value.hint


def test_equal_shapes_differ_in_nothing() -> None:
    assert not difference(ORDERS, [column("a", ListOf(STRING))], schema(a=ListOf(STRING, 77)))


def test_missing_columns_are_added_in_the_order_of_the_source() -> None:
    change = difference(ORDERS, [column("z"), column("a"), column("id", LONG)], schema(id=LONG))
    assert [added.name for added in change.add] == ["z", "a"]
    assert change.promote == ()


@pytest.mark.parametrize(("existing", "wanted"), [(INT, LONG), (FLOAT, DOUBLE), (Decimal(8, 2), Decimal(12, 2))])
def test_a_narrow_column_is_widened_and_a_wide_one_left(existing: Type, wanted: Type) -> None:
    assert difference(ORDERS, [column("n", wanted)], schema(n=existing)).promote == (("n", wanted),)
    assert not difference(ORDERS, [column("n", existing)], schema(n=wanted))


@pytest.mark.parametrize(
    ("existing", "wanted"),
    [
        (LONG, STRING),
        (INT, DOUBLE),
        (Decimal(8, 2), Decimal(12, 3)),
        (TIMESTAMP, TIMESTAMPTZ),
        (STRING, ListOf(STRING)),
    ],
)
def test_a_contradiction_names_table_column_and_both_types(existing: Type, wanted: Type) -> None:
    assert not can_promote(existing, wanted)
    with pytest.raises(BadInput) as caught:
        difference(ORDERS, [column("n", wanted)], schema(n=existing))
    for part in ("shop.orders", "'n'", str(existing), str(wanted)):
        assert part in str(caught.value)


def test_a_contradiction_from_the_configuration_is_its_error() -> None:
    with pytest.raises(ConfigError):
        difference(ORDERS, [column("n", STRING, "configuration")], schema(n=LONG))


def test_a_column_the_source_lost_may_stay_unless_it_is_required() -> None:
    check_required(ORDERS, [column("id", LONG)], schema(id=LONG, old=STRING))
    demanding = Schema(0, (Field(1, "id", LONG), Field(2, "old", STRING, required=True)))
    with pytest.raises(BadInput, match="'old'"):
        check_required(ORDERS, [column("id", LONG)], demanding)


def test_a_changelogs_own_columns_are_not_taken_for_the_sources() -> None:
    """A restart learns the source's columns from the table, too."""
    made = new_schema(ORDERS, shape(column("name")), DeleteMode.APPEND_ONLY)
    known = source_schema(made, DeleteMode.APPEND_ONLY)
    assert [field.name for field in known] == ["id", "name"]
    upserted = schema(id=LONG, _op=STRING)
    assert source_schema(upserted, DeleteMode.EQUALITY) == upserted, "there a source may have such a column"


def test_uuid_columns_keep_no_bounds_whoever_writes_them() -> None:
    """iceberg-java compares uuids as signed numbers: with bounds it would skip equality deletes that match."""
    schema = Schema(0, (Field(1, "id", UUID, required=True), Field(2, "n", LONG)), (1,))
    assert uuid_properties(schema) == {"write.metadata.metrics.column.id": "counts"}
