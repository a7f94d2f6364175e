"""What must change for a table to be cut and sorted as configured, from metadata alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from frazil.errors import ConfigError
from frazil.iceberg.tables.layout import (
    Layout,
    LayoutChange,
    check_identifiers,
    layout_change,
    parse_layout,
)
from frazil.iceberg.tables.tables import parse_table
from frazil.model import schema as c
from frazil.model.ids import TableName
from frazil.model.partition import UNPARTITIONED, PartitionField, PartitionSpec, Transform, parse_partition
from frazil.model.schema import Column, Field, ListOf, Remembered, Schema, SourceSchema, StructOf
from frazil.model.sort import SortField, parse_sort
from frazil.model.table import Table
from frazil.model.write import DeleteMode, TableOptions

ORDERS = TableName.parse("shop.orders")
SCHEMA = Schema(
    0,
    (
        Field(1, "id", c.LONG, required=True),
        Field(2, "region", c.STRING),
        Field(3, "at", c.TIMESTAMPTZ),
        Field(4, "s", StructOf((Field(5, "code", c.STRING),))),
        Field(6, "tags", ListOf(c.STRING, 7)),
    ),
    (1,),
)


def spec(number: int, *fields: tuple[int, str, str]) -> PartitionSpec:
    return PartitionSpec(
        number,
        tuple(PartitionField(1000 + n, source, name, Transform.parse(t)) for n, (source, name, t) in enumerate(fields)),
    )


def change(
    current: PartitionSpec,
    *partition: str,
    sort: tuple[str, ...] = (),
    older: tuple[PartitionSpec, ...] = (UNPARTITIONED,),
    mode: DeleteMode = DeleteMode.EQUALITY,
    known: Mapping[int, Remembered] | None = None,
    schema: Schema = SCHEMA,
) -> LayoutChange:
    options = TableOptions(
        mode=mode, partition=tuple(map(parse_partition, partition)), sort=tuple(map(parse_sort, sort))
    )
    layout = Layout(spec=current, specs=(*older, current), sort=(SortField("region"),), sort_order_id=1)
    return layout_change(ORDERS, schema, layout, options, known or {})


def added(found: LayoutChange) -> list[tuple[str, str, str]]:
    return [(field.name, field.column, field.transform.text) for field in found.add]


BY_DAY = spec(1, (3, "when", "day"))


def test_what_is_not_configured_stays() -> None:
    assert not change(BY_DAY)


def test_a_field_is_known_by_its_column_and_transform_whatever_its_name_and_place() -> None:
    assert not change(BY_DAY, "day(at)")
    assert not change(spec(1, (2, "region", "identity"), (3, "when", "day")), "days(at)", "region")


def test_fields_are_added_and_removed() -> None:
    found = change(BY_DAY, "bucket(4, id)", "s.code")
    assert found.remove == ("when",)
    assert added(found) == [("id_bucket_4", "id", "bucket[4]"), ("s.code", "s.code", "identity")]


def test_a_void_field_that_an_old_format_keeps_stays() -> None:
    assert not change(spec(1, (2, "region", "void"), (3, "when", "day")), "day(at)")


def test_a_name_that_a_column_or_another_field_has_or_had_is_not_taken() -> None:
    crowded = Schema(0, (*SCHEMA.fields, Field(8, "at_day", c.INT), Field(9, "id_bucket_4", c.INT)))
    old = spec(2, (1, "id_bucket_4_2", "bucket[8]"))
    found = change(UNPARTITIONED, "day(at)", "bucket(4, id)", schema=crowded, older=(old,))
    assert [field.name for field in found.add] == ["at_day_2", "id_bucket_4_3"]
    again = change(UNPARTITIONED, "bucket(8, id)", older=(spec(2, (1, "id_bucket_8", "bucket[8]")),))
    assert [field.name for field in again.add] == ["id_bucket_8"]


def test_a_column_that_was_renamed_at_the_source_is_found_by_its_former_name() -> None:
    known = {3: Remembered("104.3", ("at", "created_at"))}
    assert not change(BY_DAY, "day(created_at)", known=known)
    assert change(BY_DAY, sort=("created_at",), known=known).sort == (SortField("at"),)


@pytest.mark.parametrize(
    ("partition", "sort", "column"),
    [
        ("day(missing)", "id", "missing"),
        ("day(region)", "id", "region"),
        ("tags", "id", "tags"),
        ("s.other", "id", "s.other"),
        ("region.x", "id", "region.x"),
        ("region", "tags", "tags"),
        ("region", "s.code", "s.code"),
        ("region", "nowhere", "nowhere"),
    ],
)
def test_what_cannot_be_is_named(partition: str, sort: str, column: str) -> None:
    with pytest.raises(ConfigError) as caught:
        change(UNPARTITIONED, partition, sort=(sort,))
    assert f"'{column}'" in caught.value.message
    assert "shop.orders" in caught.value.message
    assert caught.value.hint


def test_a_field_that_is_written_twice_is_named() -> None:
    with pytest.raises(ConfigError, match="twice"):
        change(UNPARTITIONED, "day(at)", "days(at)")


def test_a_sort_order_is_replaced_only_by_another_one() -> None:
    assert not change(UNPARTITIONED)
    assert not change(UNPARTITIONED, sort=("region",))
    assert change(UNPARTITIONED, sort=("region desc",)).sort == (SortField("region", True, False),)


@pytest.mark.parametrize("mode", list(DeleteMode))
def test_deletes_by_key_need_an_unpartitioned_spec(mode: DeleteMode) -> None:
    """H1: vectors too, whose epochs are published by equality after lost races."""
    assert change(BY_DAY, older=(), mode=mode).unpartitioned == mode.needs_key
    assert not change(BY_DAY, mode=mode)


def test_of_several_unpartitioned_specs_the_one_without_fields_is_taken() -> None:
    voided = spec(0, (2, "region", "void"))

    def delete_spec(*specs: PartitionSpec) -> PartitionSpec:
        table = Table(name=ORDERS, schema=SCHEMA, format_version=2, data_location="d", spec=BY_DAY, specs=specs)
        return table.delete_spec

    assert delete_spec(voided, BY_DAY, PartitionSpec(4)) == PartitionSpec(4)
    assert delete_spec(voided, BY_DAY) == voided
    assert delete_spec(BY_DAY) == BY_DAY


def test_identifier_fields_that_contradict_the_key_are_named() -> None:
    columns = tuple(Column(field.name, field.type, "", "sql") for field in SCHEMA)
    keyed = TableOptions(mode=DeleteMode.VECTORS)
    check_identifiers(ORDERS, SCHEMA, SourceSchema(columns, ("id",), "sql"), keyed)
    other = SourceSchema(columns, ("region",), "sql")
    with pytest.raises(ConfigError, match="by id, but the key is region"):
        check_identifiers(ORDERS, SCHEMA, other, keyed)
    check_identifiers(ORDERS, SCHEMA, other, TableOptions(mode=DeleteMode.APPEND_ONLY))
    check_identifiers(ORDERS, Schema(0, SCHEMA.fields), other, keyed)


def metadata(**more: Any) -> dict[str, Any]:
    return {
        "table-uuid": "u",
        "location": "/w/orders/",
        "format-version": 3,
        "current-schema-id": 0,
        "schemas": [SCHEMA.to_json()],
        "default-spec-id": 1,
        "partition-specs": [{"spec-id": 0, "fields": []}, field_of("day")],
        **more,
    }


def field_of(transform: str, spec_id: int = 1, **field: Any) -> dict[str, Any]:
    return {
        "spec-id": spec_id,
        "fields": [{"field-id": 1000, "source-id": 3, "name": "p", "transform": transform, **field}],
    }


def sorted_by(**field: Any) -> dict[str, Any]:
    plain = {"transform": "identity", "source-id": 2, "direction": "desc", "null-order": "nulls-last"}
    return {
        "default-sort-order-id": 3,
        "sort-orders": [{"order-id": 0, "fields": []}, {"order-id": 3, "fields": [{**plain, **field}]}],
    }


def test_a_table_tells_its_specs_and_its_order() -> None:
    table = parse_table(ORDERS, metadata(**sorted_by()))
    assert (table.spec.spec_id, table.delete_spec.spec_id) == (1, 0)
    assert (table.sort, table.sort_order_id) == ((SortField("region", True, False),), 3)
    assert table.data_location == "/w/orders/data"
    assert parse_table(ORDERS, metadata(properties={"write.data.path": "/d/x/"})).data_location == "/d/x"


@pytest.mark.parametrize("field", [{"transform": "bucket[4]"}, {"source-id": 5}, {"source-id": 6}])
def test_an_order_of_more_than_plain_columns_is_not_followed(field: dict[str, Any]) -> None:
    table = parse_table(ORDERS, metadata(**sorted_by(**field)))
    assert (table.sort, table.sort_order_id) == ((), None)


@pytest.mark.parametrize("transform", ["zorder", "bucket[0]"])
def test_a_table_of_a_later_specification_is_refused_by_name(transform: str) -> None:
    with pytest.raises(ConfigError, match=r"shop\.orders is partitioned by .* another specification") as caught:
        parse_table(ORDERS, metadata(**{"partition-specs": [field_of(transform)]}))
    assert caught.value.hint
    old = metadata(**{"partition-specs": [field_of("day"), field_of(transform, 0)]})
    assert [known.spec_id for known in parse_table(ORDERS, old).specs] == [1]


def test_a_transform_of_several_columns_is_refused_by_name() -> None:
    several = field_of("bucket[4]")
    del several["fields"][0]["source-id"]
    with pytest.raises(ConfigError, match="another specification"):
        parse_layout(ORDERS, SCHEMA, metadata(**{"partition-specs": [several]}))
