"""Two keys are equal exactly if their values are, whatever types, files and promotions they come from."""

from __future__ import annotations

import pickle
from decimal import Decimal as D
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lookup_builders import TYPES, KeyColumns, key_columns, long_keys, patient

from frazil.data.keys import hash as key_hash
from frazil.data.keys.codec import KeyCodec, Keys
from frazil.errors import BadInput, ConfigError
from frazil.model import schema as c
from frazil.model.schema import Field, ListOf, MapOf, StructOf


def identity(keys: Keys) -> list[Any]:
    return keys.hashes.tolist() if keys.exact is None else keys.exact.to_pylist()


def one_column(type_: c.Type, array: pa.Array) -> list[Any]:
    keys = KeyCodec([Field(1, "k", type_)]).encode([array])
    return [keys.hashes.tolist(), identity(keys)]


@patient
@given(key_columns())
def test_keys_are_equal_exactly_if_the_values_are(key: KeyColumns) -> None:
    found = identity(key.keys())
    for left, left_key in zip(key.rows, found, strict=True):
        for right, right_key in zip(key.rows, found, strict=True):
            assert (left == right) == (left_key == right_key), (left, right)


@patient
@given(key_columns())
def test_equal_keys_have_equal_hashes_in_whatever_batch_they_come(key: KeyColumns) -> None:
    together = key.keys()
    apart = Keys.concat([key.keys([]), *(key.keys([row]) for row in key.rows)])
    assert together.hashes.tolist() == apart.hashes.tolist()
    assert identity(together) == identity(apart)


@patient
@given(key_columns(), st.integers(0, 5), st.integers(0, 5))
def test_a_slice_of_a_batch_gives_the_keys_of_its_rows(key: KeyColumns, start: int, count: int) -> None:
    sliced = key.codec.encode([array.slice(start, count) for array in key.arrays()])
    whole = key.keys(key.rows[start : start + count])
    assert sliced.hashes.tolist() == whole.hashes.tolist()
    assert identity(sliced) == identity(whole)


@pytest.mark.parametrize("name", sorted(TYPES))
def test_a_slice_of_every_type_starts_where_it_says(name: str) -> None:
    rows = [(value,) for value in EXAMPLES[name]]
    key = KeyColumns((name,), tuple(rows))
    (array,) = key.arrays()
    for start in range(len(rows)):
        sliced, whole = key.codec.encode([array.slice(start, 1)]), key.keys(rows[start : start + 1])
        assert (sliced.hashes.tolist(), identity(sliced)) == (whole.hashes.tolist(), identity(whole))


EXAMPLES: dict[str, list[Any]] = {
    **{name: [7, 1, 4] for name in ("int", "long", "date", "time", "timestamp", "timestamptz")},
    "boolean": [False, True, False],
    "decimal(9,2)": [D("7.00"), D("-1.25"), D("4.00")],
    "decimal(38,10)": [D("7"), D("-1.25"), D("4")],
    "uuid": [bytes(16), bytes(range(16)), b"\xff" * 16],
    "fixed[3]": [b"abc", b"\x00\x01\x02", b"xyz"],
    "string": ["a", "", "a longer text of some words"],
    "binary": [b"a", b"", b"\x00\xff"],
}


@patient
@given(key_columns())
def test_sorted_keys_are_the_same_keys_in_order_of_their_hashes(key: KeyColumns) -> None:
    keys = key.keys()
    ordered = keys.sorted()
    assert ordered.is_sorted
    assert sorted(zip(keys.hashes.tolist(), identity(keys), strict=True)) == sorted(
        zip(ordered.hashes.tolist(), identity(ordered), strict=True)
    )


@patient
@given(key_columns())
def test_keys_survive_the_way_to_an_executor(key: KeyColumns) -> None:
    keys = key.keys()
    arrived = pickle.loads(pickle.dumps(keys))
    assert arrived.hashes.tolist() == keys.hashes.tolist()
    assert identity(arrived) == identity(keys)


@pytest.mark.parametrize("name", ["int", "long", "date", "time", "timestamp", "timestamptz"])
@patient
@given(st.data())
def test_one_number_is_its_own_hash_and_keeps_its_order(name: str, data: st.DataObject) -> None:
    values = sorted(data.draw(st.lists(TYPES[name].values)))
    keys = KeyColumns((name,), tuple((value,) for value in values)).keys()
    assert keys.exact is None
    assert keys.is_sorted
    assert keys.hashes.tolist() == [value + (1 << 63) for value in values]


@patient
@given(st.lists(st.integers(-128, 127)), st.sampled_from([pa.int8(), pa.int16(), pa.int32()]))
def test_a_key_written_as_int_is_the_key_written_as_long(values: list[int], narrow: pa.DataType) -> None:
    assert one_column(c.LONG, pa.array(values, narrow)) == one_column(c.LONG, pa.array(values, pa.int64()))
    assert KeyCodec([Field(1, "k", c.INT)]).signature == KeyCodec([Field(1, "k", c.LONG)]).signature


@pytest.mark.parametrize("narrow", [pa.decimal32(8, 2), pa.decimal64(12, 2), pa.decimal128(8, 2), pa.decimal256(50, 2)])
@patient
@given(st.lists(st.integers(-99999999, 99999999)))
def test_a_decimal_key_does_not_depend_on_the_precision_it_was_written_with(
    narrow: pa.DataType, numbers: list[int]
) -> None:
    values = [D(number).scaleb(-2) for number in numbers]
    wide = one_column(c.Decimal(12, 2), pa.array(values, pa.decimal128(12, 2)))
    assert one_column(c.Decimal(12, 2), pa.array(values, narrow)) == wide
    assert KeyCodec([Field(1, "k", c.Decimal(8, 2))]).signature == KeyCodec([Field(1, "k", c.Decimal(12, 2))]).signature


def test_a_date_promoted_to_timestamp_is_its_midnight_and_another_signature() -> None:
    dates = pa.array([-1, 0, 19_000], pa.int32()).view(pa.date32())
    midnights = pa.array([day * 86_400_000_000 for day in (-1, 0, 19_000)]).view(pa.timestamp("us"))
    assert one_column(c.TIMESTAMP, dates) == one_column(c.TIMESTAMP, midnights)
    assert KeyCodec([Field(1, "k", c.DATE)]).signature != KeyCodec([Field(1, "k", c.TIMESTAMP)]).signature


@pytest.mark.parametrize("unit", ["s", "ms", "ns"])
def test_a_timestamp_key_does_not_depend_on_the_unit_it_was_written_in(unit: str) -> None:
    seconds = pa.array([-5, 0, 1_700_000_000]).view(pa.timestamp("s", "UTC"))
    assert one_column(c.TIMESTAMPTZ, seconds.cast(pa.timestamp(unit, "UTC"))) == one_column(
        c.TIMESTAMPTZ, seconds.cast(pa.timestamp("us", "UTC"))
    )


@pytest.mark.parametrize(
    "other",
    [pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.dictionary(pa.int32(), pa.string())],
    ids=str,
)
def test_a_text_key_does_not_depend_on_how_arrow_holds_it(other: pa.DataType) -> None:
    texts = pa.array(["", "a", "a much longer text than any view inlines", "é", "a"])
    assert one_column(c.STRING, texts.cast(other)) == one_column(c.STRING, texts)
    assert one_column(c.STRING, texts.cast(other).slice(2, 2)) == one_column(c.STRING, texts.slice(2, 2))


def test_a_uuid_is_its_sixteen_bytes_however_it_comes() -> None:
    values = [bytes(range(16)), bytes(16), b"\xff" * 16]
    plain = one_column(c.UUID, pa.array(values, pa.binary(16)))
    assert one_column(c.UUID, pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))) == plain
    assert one_column(c.UUID, pa.array(values, pa.binary())) == plain


def test_parts_of_a_composite_key_cannot_shift_into_each_other() -> None:
    key = KeyColumns(("string", "string"), (("a", "bc"), ("ab", "c"), ("abc", ""), ("", "abc")))
    assert len(set(identity(key.keys()))) == 4
    assert len(set(key.keys().hashes.tolist())) == 4


def test_the_columns_of_a_batch_are_taken_by_name() -> None:
    codec = KeyCodec([Field(1, "a", c.LONG), Field(2, "b", c.STRING)])
    batch = pa.record_batch({"b": ["x"], "rest": [None], "a": [7]})
    assert identity(codec.encode(batch)) == identity(codec.encode([pa.array([7]), pa.array(["x"])]))


@pytest.mark.parametrize("name", sorted(TYPES))
def test_a_null_key_is_refused_by_name(name: str) -> None:
    """H20."""
    field = Field(1, "tenant", TYPES[name].type)
    with pytest.raises(BadInput, match="'tenant' is NULL in 2 of 2 rows"):
        KeyCodec([field]).encode([pa.nulls(2, TYPES[name].arrow)])


@pytest.mark.parametrize(
    "type_",
    [c.FLOAT, c.DOUBLE, c.VARIANT, ListOf(c.INT, 2), MapOf(c.STRING, c.INT, 2, 3), StructOf((Field(2, "x", c.INT),))],
    ids=str,
)
def test_floats_and_nested_columns_are_no_keys(type_: c.Type) -> None:
    """H21."""
    with pytest.raises(ConfigError, match="'price'") as caught:
        KeyCodec([Field(1, "price", type_)])
    assert caught.value.hint


@pytest.mark.parametrize(
    ("type_", "array"),
    [
        (c.LONG, pa.array(["1"])),
        (c.LONG, pa.array([2**63], pa.uint64())),
        (c.STRING, pa.array([1])),
        (c.UUID, pa.array([b"short"])),
        (c.Decimal(9, 2), pa.array([D("1.234")])),
        (c.TIMESTAMPTZ, pa.array([1], pa.timestamp("ns"))),
        (c.DATE, pa.array([1], pa.timestamp("us"))),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_values_that_cannot_be_in_the_column_are_refused_and_never_rounded(type_: c.Type, array: pa.Array) -> None:
    with pytest.raises(BadInput, match="'k' holds"):
        KeyCodec([Field(1, "k", type_)]).encode([array])


def test_keys_of_two_codecs_do_not_mix() -> None:
    texts = KeyColumns(("string",), (("a",),)).keys()
    with pytest.raises(AssertionError):
        Keys.concat([long_keys(1), texts])


@patient
@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(1, 6))
def test_the_hash_depends_on_the_bytes_alone_and_not_on_neighbours_or_blocks(values: list[bytes], block: int) -> None:
    data = np.frombuffer(b"##" + b"".join(values) + b"##", np.uint8)
    offsets = np.cumsum([2, *map(len, values)]).astype(np.int64)
    with pytest.MonkeyPatch.context() as patch:
        whole = key_hash.hash_spans(data, offsets).tolist()
        patch.setattr(key_hash, "BLOCK_WORDS", block)
        assert key_hash.hash_spans(data, offsets).tolist() == whole
    for value, found in zip(values, whole, strict=True):
        alone = np.frombuffer(value, np.uint8).reshape(1, len(value))
        assert key_hash.hash_rows(alone).tolist() == [found]


def test_the_hash_is_the_same_in_every_process_and_version() -> None:
    """Indexes on disk hold these numbers: who changes them raises `index.VERSION`."""
    texts = pa.array(["", "a", "customer-1", "x" * 100]).cast(pa.large_binary())
    keys = KeyCodec([Field(1, "k", c.BINARY)]).encode([texts])
    assert [f"{one:016x}" for one in keys.hashes.tolist()] == [
        "48218226ff3cd4bf",
        "d9725a59a74b3564",
        "5ad70378f67ba622",
        "3cbac2077584ff59",
    ]


def test_a_million_different_texts_have_as_many_hashes() -> None:
    numbers = pa.array(np.arange(1_000_000)).cast(pa.string())
    assert len(np.unique(KeyCodec([Field(1, "k", c.STRING)]).encode([numbers]).hashes)) == 1_000_000
