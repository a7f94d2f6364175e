"""Columns of a decoder become fields of a table: by id, without loss, or not at all."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal as D
from typing import Any
from uuid import UUID as Uuid

import pyarrow as pa
import pytest

from frazil.data.arrow_types import arrow_schema, arrow_type, leaves
from frazil.data.bind import Binding, key_fields
from frazil.errors import BadInput, ConfigError, DoesNotFit, UnknownColumn
from frazil.model import schema as c
from frazil.model.ids import TableName
from frazil.model.schema import Field, ListOf, MapOf, Schema, StructOf

TABLE = TableName.parse("shop.orders")


def bound(type_: c.Type, values: pa.Array, *, required: bool = False) -> list[Any]:
    batch = pa.record_batch({"x": values})
    (column,) = Binding(TABLE, [Field(1, "x", type_, required)]).bind(batch).columns
    assert column.type == arrow_type(type_)
    return column.to_pylist()


def test_every_field_and_list_element_carries_its_id() -> None:
    nested = ListOf(ListOf(c.STRING, 4), 3)
    schema = arrow_schema([Field(1, "id", c.LONG, True), Field(2, "tags", nested)])
    tags = schema.field("tags")
    ids = [f.metadata[b"PARQUET:field_id"] for f in (schema.field("id"), tags, tags.type.value_field)]
    assert ids == [b"1", b"2", b"3"]
    assert tags.type.value_type.value_field.metadata[b"PARQUET:field_id"] == b"4"
    assert not schema.field("id").nullable


POINT = StructOf((Field(3, "x", c.LONG), Field(4, "id", c.UUID), Field(5, "tags", ListOf(c.STRING, 6))))
POINTS = ListOf(POINT, 2)
BY_NAME = MapOf(c.STRING, POINT, 8, 9)


def test_ids_lie_at_every_level_of_a_nested_type() -> None:
    """H30."""
    schema = arrow_schema([Field(1, "points", POINTS), Field(7, "by_name", BY_NAME)])

    def ids(field: pa.Field) -> list[int]:
        own = [int(field.metadata[b"PARQUET:field_id"])]
        return own + [
            i for n in range(field.type.num_fields) for i in ids(field.type.field(n)) if n or not is_map(field)
        ]

    def is_map(field: pa.Field) -> bool:
        return bool(pa.types.is_map(field.type))

    assert ids(schema.field("points")) == [1, 2, 3, 4, 5, 6]
    named = schema.field("by_name").type
    assert [f.metadata[b"PARQUET:field_id"] for f in (named.key_field, named.item_field)] == [b"8", b"9"]
    assert named.item_type.field("x").metadata[b"PARQUET:field_id"] == b"3"


def test_leaves_are_named_as_parquet_names_them() -> None:
    found = [(leaf.path, leaf.id, leaf.repeated) for leaf in leaves(Field(7, "by_name", BY_NAME))]
    assert found == [
        ("by_name.key_value.key", 8, True),
        ("by_name.key_value.value.x", 3, True),
        ("by_name.key_value.value.id", 4, True),
        ("by_name.key_value.value.tags.list.element", 6, True),
    ]
    assert next((leaf.path, leaf.repeated) for leaf in leaves(Field(2, "p", POINT))) == ("p.x", False)


def test_structs_bind_by_name_at_each_level_and_missing_fields_are_null() -> None:
    """H30: another order, a narrower integer, a uuid as text, and a field the source does not have yet."""
    given = pa.array(
        [[{"id": str(Uuid(int=5)), "x": 1}, None], None, []],
        pa.list_(pa.struct([("id", pa.string()), ("x", pa.int32())])),
    )
    assert bound(POINTS, given) == [[{"x": 1, "id": Uuid(int=5), "tags": None}, None], None, []]


def test_maps_bind_their_values_by_name() -> None:
    given = pa.array([[("a", {"x": 1})], None, []], pa.map_(pa.string(), pa.struct([("x", pa.int32())])))
    expected = [[("a", {"x": 1, "id": None, "tags": None})], None, []]
    assert bound(BY_NAME, given) == expected
    assert bound(BY_NAME, given.slice(1)) == expected[1:]
    assert bound(BY_NAME, pa.nulls(2)) == [None, None]


def test_a_slice_of_structs_keeps_its_rows() -> None:
    given = pa.array([{"x": 1}, None, {"x": 3}], pa.struct([("x", pa.int64())])).slice(1)
    assert bound(POINT, given) == [None, {"x": 3, "id": None, "tags": None}]


@pytest.mark.parametrize(
    ("type_", "given", "path"),
    [
        (POINT, pa.array([{"x": 1, "y": 2}]), "x.y"),
        (POINTS, pa.array([[{"z": 2}]]), "x.element.z"),
        (BY_NAME, pa.array([[("a", {"w": 1})]], pa.map_(pa.string(), pa.struct([("w", pa.int64())]))), "x.value.w"),
    ],
    ids=str,
)
def test_a_nested_field_the_table_lacks_is_named_by_its_path(type_: c.Type, given: pa.Array, path: str) -> None:
    with pytest.raises(UnknownColumn) as caught:
        bound(type_, given)
    assert caught.value.facts["columns"] == [path]


def test_a_table_of_others_may_require_a_nested_field() -> None:
    demanding = StructOf((Field(2, "x", c.LONG, True),))
    assert bound(demanding, pa.array([{"x": 1}, None])) == [{"x": 1}, None]
    with pytest.raises(DoesNotFit, match="'x' is null"):
        bound(demanding, pa.array([{"x": None}], pa.struct([("x", pa.int64())])))


def test_a_variant_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match="variant"):
        arrow_type(c.VARIANT)


def test_a_field_without_an_id_is_refused() -> None:
    with pytest.raises(ValueError, match="no field id"):
        arrow_schema([Field(1, "tags", ListOf(c.STRING))])


def test_columns_bind_by_name_in_any_order_and_missing_ones_are_null() -> None:
    """H30."""
    fields = [Field(7, "a", c.LONG), Field(3, "b", c.STRING), Field(9, "new", c.INT)]
    rows = Binding(TABLE, fields).bind(pa.record_batch({"b": ["x"], "a": [1]}))
    assert rows.to_pylist() == [{"a": 1, "b": "x", "new": None}]


def test_names_that_differ_in_case_are_two_columns() -> None:
    """H30."""
    with pytest.raises(UnknownColumn, match="'ID'"):
        Binding(TABLE, [Field(1, "id", c.LONG)]).bind(pa.record_batch({"ID": [1]}))


def test_a_column_the_table_lacks_is_never_dropped() -> None:
    with pytest.raises(UnknownColumn) as caught:
        Binding(TABLE, [Field(1, "id", c.LONG)]).bind(pa.record_batch({"id": [1], "extra": [2]}))
    assert caught.value.facts["columns"] == ["extra"]
    assert caught.value.hint


def test_a_column_that_serves_the_fold_may_be_missing_from_the_table() -> None:
    binding = Binding(TABLE, [Field(1, "id", c.LONG)], ignored=("op",))
    assert binding.bind(pa.record_batch({"id": [1], "op": ["u"]})).to_pylist() == [{"id": 1}]


@pytest.mark.parametrize(
    ("type_", "given", "expected"),
    [
        (c.LONG, pa.array([1, None], pa.int32()), [1, None]),
        (c.DOUBLE, pa.array([1.5], pa.float32()), [1.5]),
        (c.Decimal(12, 2), pa.array([D("1.5")], pa.decimal128(10, 1)), [D("1.50")]),
        (c.STRING, pa.array(["x"], pa.large_string()), ["x"]),
        (c.BINARY, pa.array([b"x"], pa.large_binary()), [b"x"]),
        (c.TIMESTAMP, pa.array([1000], pa.timestamp("ns")), [datetime.fromisoformat("1970-01-01T00:00:00.000001")]),
        (c.TIMESTAMPTZ, pa.array([0], pa.timestamp("us", "Europe/Berlin")), [datetime(1970, 1, 1, tzinfo=UTC)]),
        (c.STRING, pa.nulls(2), [None, None]),
        (c.UUID, pa.array([Uuid(int=5).bytes, None], pa.binary(16)), [Uuid(int=5), None]),
        (c.UUID, pa.array([str(Uuid(int=5)), None, str(Uuid(int=6))]), [Uuid(int=5), None, Uuid(int=6)]),
        (c.UUID, pa.nulls(1), [None]),
        (ListOf(c.LONG, 2), pa.array([[1, None], None, []], pa.list_(pa.int32())), [[1, None], None, []]),
        (ListOf(c.UUID, 2), pa.array([[str(Uuid(int=5))], None]), [[Uuid(int=5)], None]),
        (ListOf(c.LONG, 2), pa.array([[9], [1], [2, 3]], pa.large_list(pa.int64())).slice(1), [[1], [2, 3]]),
        (ListOf(c.LONG, 2), pa.array([None, [9], None, [2, 3]]).slice(1), [[9], None, [2, 3]]),
        (ListOf(c.LONG, 2), pa.nulls(1), [None]),
    ],
    ids=str,
)
def test_a_type_that_loses_nothing_is_taken(type_: c.Type, given: pa.Array, expected: list[Any]) -> None:
    assert bound(type_, given) == expected


@pytest.mark.parametrize(
    ("type_", "given"),
    [
        (c.INT, pa.array([1 << 40])),
        (c.Decimal(4, 1), pa.array([D("1.55")])),
        (c.Decimal(3, 1), pa.array([D("100.5")])),
        (c.TIMESTAMP, pa.array([1], pa.timestamp("ns"))),
        (c.TIMESTAMP, pa.array([0], pa.timestamp("us", "UTC"))),
        (c.FLOAT, pa.array([0.1])),
        (c.LONG, pa.array(["1"])),
        (c.LONG, pa.array([1.0])),
        (c.STRING, pa.array([1])),
        (c.UUID, pa.array(["not-a-uuid"])),
        (c.UUID, pa.array([" " * 2 + "0" * 30])),
        (ListOf(c.LONG, 2, element_required=True), pa.array([[None, 1]])),
        (ListOf(c.INT, 2), pa.array([[1 << 40]])),
        (StructOf((Field(2, "y", c.INT),)), pa.array([{"y": 1 << 40}])),
        (StructOf((Field(2, "y", c.LONG),)), pa.array([{"y": "1"}])),
        (MapOf(c.STRING, c.FLOAT, 2, 3), pa.array([[("a", 0.1)]], pa.map_(pa.string(), pa.float64()))),
        (MapOf(c.STRING, c.LONG, 2, 3), pa.array([{"y": 1}])),
    ],
    ids=str,
)
def test_a_value_that_would_be_clamped_rounded_or_guessed_is_an_error(type_: c.Type, given: pa.Array) -> None:
    """H39."""
    with pytest.raises(DoesNotFit, match="'x'") as caught:
        bound(type_, given)
    assert caught.value.facts["table"] == "shop.orders"


def test_a_null_key_is_bad_input_that_names_the_row() -> None:
    """H20."""
    fields = [Field(1, "a", c.LONG), Field(2, "b", c.STRING)]
    with pytest.raises(BadInput, match=r"'b' is null in the row with key a=2, b=None"):
        Binding(TABLE, fields, key=("a", "b")).bind(pa.record_batch({"a": [1, 2], "b": ["x", None]}))


def test_a_null_in_a_required_column_is_bad_input() -> None:
    with pytest.raises(BadInput, match="required column 'x'"):
        bound(c.LONG, pa.array([1, None]), required=True)


@pytest.mark.parametrize("type_", [c.FLOAT, c.DOUBLE, ListOf(c.LONG, 2), POINT, BY_NAME], ids=str)
def test_a_float_or_anything_nested_cannot_be_a_key(type_: c.Type) -> None:
    """H21."""
    with pytest.raises(ConfigError, match="cannot identify a row"):
        key_fields(TABLE, Schema(0, (Field(1, "x", type_),)), ("x",))


def test_a_key_column_the_table_lacks_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="no key column 'y'"):
        key_fields(TABLE, Schema(0, (Field(1, "x", c.LONG),)), ("y",))
