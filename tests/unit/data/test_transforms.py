"""Partition transforms give the values of the specification, for every type it allows."""

from __future__ import annotations

import itertools
import random
from datetime import UTC, date, datetime, time
from decimal import Decimal as D
from typing import Any
from uuid import UUID as Uuid

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mmh3 import hash as reference_hash

from frazil.data.arrow_types import arrow_type
from frazil.data.partition_values import by_partition, json_scalar, json_values
from frazil.data.transforms import apply, bind_spec, hashes
from frazil.errors import ConfigError, DoesNotFit
from frazil.model import schema as c
from frazil.model.arrow import value_type
from frazil.model.ids import TableName
from frazil.model.partition import PartitionField, PartitionSpec, Transform, takes
from frazil.model.schema import Decimal, Field, ListOf, Schema, StructOf, Type

TABLE = TableName.parse("shop.orders")
FIXED = c.Primitive("fixed[4]")
UUID_VALUE = Uuid("f79c3e09-677c-4bbd-a479-3f349cb785e7")


def values(transform: str, type_: Type, given: list[Any]) -> list[Any]:
    return apply(Transform.parse(transform), type_, pa.array(given, value_type(type_))).to_pylist()


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        (c.INT, 34, 2017239379),
        (c.LONG, 34, 2017239379),
        (Decimal(9, 2), D("14.20"), -500754589),
        (c.DATE, date(2017, 11, 16), -653330422),
        (c.TIME, time(22, 31, 8), -662762989),
        (c.TIMESTAMP, moment("2017-11-16T22:31:08"), -2047944441),
        (c.TIMESTAMP, moment("2017-11-16T22:31:08.000001"), -1207196810),
        (c.TIMESTAMPTZ, moment("2017-11-16T14:31:08-08:00"), -2047944441),
        (c.TIMESTAMPTZ, moment("2017-11-16T14:31:08.000001-08:00"), -1207196810),
        (c.STRING, "iceberg", 1210000089),
        (c.UUID, UUID_VALUE.bytes, 1488055340),
        (FIXED, bytes([0, 1, 2, 3]), -188683207),
        (c.BINARY, bytes([0, 1, 2, 3]), -188683207),
    ],
    ids=str,
)
def test_hashes_are_the_specifications_own_test_values(type_: Type, value: Any, expected: int) -> None:
    column = pa.array([None, value, value], value_type(type_))
    assert hashes(column).view(np.int32)[1:].tolist() == [expected] * 2
    assert hashes(column.slice(2)).view(np.int32).tolist() == [expected]
    buckets = apply(Transform("bucket", 16), type_, column)
    assert buckets.type == pa.int32()
    assert buckets.to_pylist() == [None, *[(expected & 0x7FFF_FFFF) % 16] * 2]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=70)), max_size=40), st.integers(0, 3))
def test_byte_strings_of_mixed_lengths_hash_like_the_reference(given_: list[bytes | None], start: int) -> None:
    column = pa.array(given_, pa.binary())[start:]
    expected = [None if v is None else reference_hash(v) for v in given_[start:]]
    got = hashes(column).view(np.int32).tolist()
    assert [g for g, e in zip(got, expected, strict=True) if e is not None] == [e for e in expected if e is not None]


def test_a_few_very_long_strings_hash_like_the_reference() -> None:
    chance = random.Random(4)
    given_ = [chance.randbytes(n) for n in (3, 100_003, 5, 70_000, 0, 70_001)]
    assert hashes(pa.array(given_)).view(np.int32).tolist() == [reference_hash(v) for v in given_]


@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1), min_size=1, max_size=30))
def test_a_decimal_hashes_as_its_shortest_number(unscaled: list[int]) -> None:
    column = pa.array([D(f"{n}e-10") for n in unscaled])
    column = column.cast(pa.decimal128(38, 10))

    def shortest(n: int) -> bytes:
        return n.to_bytes((n if n >= 0 else ~n).bit_length() // 8 + 1, "big", signed=True)

    assert hashes(column).view(np.int32).tolist() == [reference_hash(shortest(n)) for n in unscaled]


def test_numbers_are_truncated_downwards() -> None:
    assert values("truncate[10]", c.INT, [0, 1, 9, 10, -1, -10, -11, None]) == [0, 0, 0, 10, -10, -10, -20, None]
    assert values("truncate[50]", c.LONG, [1 << 40, -1]) == [(1 << 40) - (1 << 40) % 50, -50]


@given(st.lists(st.integers(-(10**37), 10**37), min_size=1, max_size=20), st.integers(1, 2**31 - 1))
def test_decimals_are_truncated_downwards_by_their_unscaled_number(unscaled: list[int], width: int) -> None:
    column = pa.array([None, *(D(f"{n}e-2") for n in unscaled)])
    column = column.cast(pa.decimal128(38, 2))
    got = apply(Transform("truncate", width), Decimal(38, 2), column).to_pylist()
    assert got == [None, *(D(f"{n - n % width}e-2") for n in unscaled)]


def test_a_decimal_whose_partition_value_has_too_many_digits_is_named() -> None:
    """H39: iceberg-java could not write such a value into a manifest."""
    schema = Schema(0, (Field(7, "price", Decimal(4, 2)),))
    (field,) = bind_spec(TABLE, schema, spec_of((7, "truncate[1000]")))
    fits, beyond = ([D("-89.99"), None, D("99.99")], [D("0"), D("-99.99")])
    batches = [pa.record_batch([pa.array(v, pa.decimal128(4, 2))], ["price"]) for v in (fits, beyond)]
    assert field.values(batches[0]).to_pylist() == [D("-90.00"), None, D("90.00")]
    with pytest.raises(DoesNotFit, match=r"'price'.*-100\.00"):
        field.values(batches[1])


def test_texts_are_cut_by_code_points_and_binaries_by_bytes() -> None:
    assert values("truncate[3]", c.STRING, ["iceberg", "é\U0001f600xy", "ab", "", None]) == [
        *("ice", "é\U0001f600x", "ab", "", None)
    ]
    assert values("truncate[1]", c.BINARY, [b"\x01\x02", b"", None]) == [b"\x01", b"", None]


def test_times_round_down_before_1970_too() -> None:
    moments = [moment(text) for text in ("2017-11-16T22:31:08.000001", "1970-01-01", "1969-12-31T23:59:59.999999")]
    moments += [moment("1968-12-31T00:00:00"), moment("0001-01-01")]
    years, months = [47, 0, -1, -2, -1969], [574, 0, -1, -13, -23628]
    days = [17486, 0, -1, -366, -719162]
    dates = [m.date() for m in moments]
    for type_, given_ in (
        (c.TIMESTAMP, moments),
        (c.TIMESTAMPTZ, [m.replace(tzinfo=UTC) for m in moments]),
        (c.DATE, dates),
    ):
        assert values("year", type_, [*given_, None]) == [*years, None]
        assert values("month", type_, [*given_, None]) == [*months, None]
        day = apply(Transform("day"), type_, pa.array([*given_, None], value_type(type_)))
        assert day.type == pa.date32()
        assert day.cast(pa.int32()).to_pylist() == [*days, None]
    assert values("hour", c.TIMESTAMP, [*moments[:3], None]) == [17486 * 24 + 22, 0, -1, None]


def test_days_far_from_our_time_do_not_wrap() -> None:
    micros = pa.array([253_402_300_800_000_000, -210_866_803_200_000_000], pa.int64()).cast(pa.timestamp("us"))
    assert apply(Transform("year"), c.TIMESTAMP, micros).to_pylist() == [8030, -6683]
    day = apply(Transform("day"), c.TIMESTAMP, micros)
    assert json_values(c.DATE, day) == ["+10000-01-01", "-4713-11-24"]
    assert json_values(c.TIMESTAMP, micros)[0] == "+10000-01-01T00:00:00"
    years = pa.array(np.array(["-0001-11-28", "-0999-01-01", "0000-01-01", "0999-12-31"], "datetime64[D]"))
    assert json_values(c.DATE, years) == ["-0001-11-28", "-0999-01-01", "0000-01-01", "0999-12-31"]


@pytest.mark.parametrize(
    ("type_", "value", "json"),
    [
        (c.BOOLEAN, True, True),
        (c.INT, -3, -3),
        (c.DOUBLE, 0.1, 0.1),
        (c.DATE, date(2017, 11, 16), "2017-11-16"),
        (c.TIME, time(22, 31, 8, 5), "22:31:08.000005"),
        (c.TIMESTAMP, moment("1969-12-31T23:59:59.999999"), "1969-12-31T23:59:59.999999"),
        (c.TIMESTAMPTZ, moment("2017-11-16T22:31:08+00:00"), "2017-11-16T22:31:08+00:00"),
        (c.TIMESTAMPTZ, moment("2017-11-16T22:31:08.500+00:00"), "2017-11-16T22:31:08.5+00:00"),
        (c.STRING, "é", "é"),
        (c.UUID, UUID_VALUE.bytes, str(UUID_VALUE)),
        (FIXED, b"\x00\x01\xfe\xff", "0001FEFF"),
        (c.BINARY, b"", ""),
        (Decimal(12, 10), D("0E-10"), "0.0000000000"),
    ],
    ids=str,
)
def test_partition_values_have_icebergs_json_form(type_: Type, value: Any, json: Any) -> None:
    array = pa.array([value, None], value_type(type_))
    assert json_values(type_, array) == [json, None]
    assert json_scalar(type_, json).equals(array[0])


PRIMITIVES = ("boolean", "int", "long", "float", "double", "string", "uuid", "binary", "fixed[4]")
TIMES = ("date", "time", "timestamp", "timestamptz")
TYPES: dict[str, Type] = {name: c.Primitive(name) for name in PRIMITIVES + TIMES} | {"decimal": Decimal(9, 2)}
CALENDAR = {"date", "timestamp", "timestamptz"}
ALLOWED = {
    "identity": set(TYPES),
    "void": set(TYPES),
    "bucket[4]": set(TYPES) - {"boolean", "float", "double"},
    "truncate[4]": {"int", "long", "decimal", "string", "binary"},
    "year": CALENDAR,
    "month": CALENDAR,
    "day": CALENDAR,
    "hour": CALENDAR - {"date"},
}


def spec_of(*fields: tuple[int, str]) -> PartitionSpec:
    return PartitionSpec(
        1, tuple(PartitionField(1000 + n, source, f"p{n}", Transform.parse(t)) for n, (source, t) in enumerate(fields))
    )


@pytest.mark.parametrize(("transform", "name"), list(itertools.product(ALLOWED, TYPES)))
def test_a_transform_takes_the_types_of_the_specification_and_names_the_others(transform: str, name: str) -> None:
    schema = Schema(0, (Field(7, "col", TYPES[name]),))
    assert takes(Transform.parse(transform), TYPES[name]) == (name in ALLOWED[transform])
    if name not in ALLOWED[transform]:
        with pytest.raises(ConfigError) as caught:
            bind_spec(TABLE, schema, spec_of((7, transform)))
        for word in ("col", str(TYPES[name]), transform, "shop.orders"):
            assert word in caught.value.message
        assert caught.value.hint
        return
    (field,) = bind_spec(TABLE, schema, spec_of((7, transform)))
    batch = pa.record_batch([pa.nulls(2, arrow_type(TYPES[name]))], ["col"])
    assert field.values(batch).to_pylist() == [None, None]
    assert json_values(field.type, field.values(batch)) == [None, None]


@pytest.mark.parametrize("type_", [ListOf(c.INT, 9), StructOf(()), c.VARIANT])
def test_nested_columns_and_variants_are_no_partition(type_: Type) -> None:
    assert [takes(Transform.parse(t), type_) for t in ALLOWED] == [t == "void" for t in ALLOWED]


def test_a_column_inside_structs_is_found_and_null_where_its_struct_is() -> None:
    inner = StructOf((Field(3, "x", c.STRING), Field(4, "at", c.DATE)))
    schema = Schema(0, (Field(1, "id", c.LONG), Field(2, "s", inner)))
    (field,) = bind_spec(TABLE, schema, spec_of((4, "year")))
    structs = pa.StructArray.from_arrays(
        [pa.array(["a", "b", "c"]), pa.array([date(1971, 1, 1)] * 2 + [None])],
        names=["x", "at"],
        mask=pa.array([False, True, False]),
    )
    batch = pa.record_batch([pa.array([1, 2, 3]), structs], ["id", "s"])
    assert field.values(batch).to_pylist() == [1, None, None]


def test_a_source_column_that_is_gone_is_named() -> None:
    with pytest.raises(ConfigError, match="p0"):
        bind_spec(TABLE, Schema(0, (Field(1, "id", c.LONG),)), spec_of((9, "identity")))


def test_rows_are_split_by_all_values_together_in_their_order() -> None:
    schema = Schema(0, (Field(1, "a", c.STRING), Field(2, "b", c.DOUBLE), Field(3, "v", c.INT)))
    fields = bind_spec(TABLE, schema, spec_of((1, "identity"), (2, "identity"), (3, "void")))
    nan = float("nan")
    a = ["x", "x", None, "x", None, "y", "x", "x"]
    b = [0.0, nan, 1.0, -0.0, 1.0, None, nan, 0.0]
    batch = pa.record_batch([pa.array(a), pa.array(b), pa.array(range(8), pa.int32())], ["a", "b", "v"])
    found = {p.key: None if i is None else i.tolist() for p, i in by_partition(batch, fields)}
    assert found == {
        '["x", 0.0, null]': [0, 7],
        '["x", NaN, null]': [1, 6],
        "[null, 1.0, null]": [2, 4],
        '["x", -0.0, null]': [3],
        '["y", null, null]': [5],
    }
    ((partition, everything),) = by_partition(batch.slice(2, 1), fields)
    assert (partition.values, everything) == ((None, 1.0, None), None)
    assert [p.values for p, _ in by_partition(batch, ())] == [()]
    assert list(by_partition(batch.slice(0, 0), fields)) == []
