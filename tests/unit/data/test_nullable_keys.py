"""Keys of equality deletes: two are equal exactly if Iceberg says so, whatever file they come from."""

from __future__ import annotations

import math
import struct
from datetime import UTC, date, datetime, time
from decimal import Decimal as Number
from pathlib import Path
from typing import Any
from uuid import UUID as Uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frazil.data.keys.nullable import at_place, nullable_keys
from frazil.data.partition_values import json_scalar
from frazil.data.read.parquet import UnreadableFile, read_columns
from frazil.model.arrow import value_type
from frazil.model.schema import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    Decimal,
    Field,
    Primitive,
    Type,
)  # fmt: skip

VALUES: dict[Type, st.SearchStrategy[Any]] = {
    INT: st.integers(-2, 2),
    LONG: st.integers(-(2**63), 2**63 - 1) | st.integers(-1, 1),
    STRING: st.text(max_size=3) | st.sampled_from(["", "a", "\0"]),
    BINARY: st.binary(max_size=3),
    DOUBLE: st.floats() | st.sampled_from([0.0, -0.0, math.nan]),
    DATE: st.dates(),
    BOOLEAN: st.booleans(),
    Decimal(6, 2): st.integers(-100, 100).map(lambda n: Number(n).scaleb(-2)),
    UUID: st.integers(0, 2).map(lambda n: Uuid(int=n).bytes),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Type], list[tuple[Any, ...]]]:
    types = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4))
    row = st.tuples(*(st.none() | VALUES[type_] for type_ in types))
    return types, draw(st.lists(row, min_size=1, max_size=12))


def encoded(types: list[Type], rows: list[tuple[Any, ...]]) -> list[bytes]:
    fields = [Field(n, f"c{n}", type_) for n, type_ in enumerate(types, 1)]
    columns = [pa.array([row[n] for row in rows], value_type(type_)) for n, type_ in enumerate(types)]
    return [bytes(key) for key in nullable_keys(fields, columns).to_pylist()]


def canonical(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack("<d", value)
    return value


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(tables())
def test_keys_are_equal_exactly_if_all_their_values_are(table: tuple[list[Type], list[tuple[Any, ...]]]) -> None:
    """NULL equals NULL and nothing else, not even 0 or the empty text; NaN equals NaN; 0.0 is not -0.0."""
    types, rows = table
    keys = encoded(types, rows)
    for one, key in zip(rows, keys, strict=True):
        for other, other_key in zip(rows, keys, strict=True):
            assert (key == other_key) is (tuple(map(canonical, one)) == tuple(map(canonical, other)))


def _decimals(precision: int) -> pa.Array:
    return pa.array([Number("1.50"), None], pa.decimal128(precision, 2))


@pytest.mark.parametrize(
    ("type_", "older", "newer"),
    [
        (LONG, pa.array([1, None], pa.int32()), pa.array([1, None], pa.int64())),
        (DOUBLE, pa.array([1.5, None], pa.float32()), pa.array([1.5, None], pa.float64())),
        (Decimal(12, 2), _decimals(5), _decimals(12)),
        (STRING, pa.array(["a", None]).dictionary_encode(), pa.array(["a", None], pa.large_string())),
        (UUID, pa.array([bytes(16), None], pa.binary(16)), pa.array([bytes(16), None], pa.uuid())),
    ],
    ids=str,
)
def test_a_key_outlives_a_change_of_its_type(type_: Type, older: pa.Array, newer: pa.Array) -> None:
    field = Field(1, "c", type_)
    assert nullable_keys([field], [older]).equals(nullable_keys([field], [newer]))


def test_every_nan_is_the_same() -> None:
    odd = struct.unpack("<d", bytes.fromhex("0100000000 00f8ff".replace(" ", "")))[0]
    assert math.isnan(odd)
    assert len(set(encoded([DOUBLE], [(math.nan,), (odd,)]))) == 1


def test_keys_of_two_places_are_never_equal() -> None:
    keys = nullable_keys([Field(1, "c", STRING)], [pa.array(["a", "", None])])
    here, there = at_place(keys, 1).to_pylist(), at_place(keys, 256).to_pylist()
    assert not set(here) & set(there)
    assert len(set(here)) == 3
    assert at_place(keys, 1).type == pa.binary()


@pytest.mark.parametrize(
    ("type_", "json", "value"),
    [
        (INT, 7, 7),
        (LONG, None, None),
        (STRING, "x", "x"),
        (BOOLEAN, True, True),
        (FLOAT, 0.5, 0.5),
        (DATE, "2024-02-29", date(2024, 2, 29)),
        (TIMESTAMP, "2024-02-29T01:02:03.000004", datetime.fromisoformat("2024-02-29T01:02:03.000004")),
        (TIMESTAMPTZ, "2024-02-29T01:02:03+00:00", datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC)),
        (TIME, "01:02:03.5", time(1, 2, 3, 500_000)),
        (TIME, "01:02:03", time(1, 2, 3)),
        (Decimal(9, 2), "14.20", Number("14.20")),
        (UUID, "00000000-0000-0000-0000-000000000001", Uuid(int=1).bytes),
        (BINARY, "00FF", b"\x00\xff"),
        (Primitive("fixed[2]"), "00FF", b"\x00\xff"),
    ],
    ids=str,
)
def test_a_value_of_metadata_is_read_as_the_column_has_it(type_: Type, json: Any, value: Any) -> None:
    scalar = json_scalar(type_, json)
    assert scalar.type == value_type(type_)
    assert scalar.as_py() == value


def written(folder: Path, table: pa.Table) -> tuple[str, int]:
    path = folder / "rows.parquet"
    pq.write_table(table, path)
    return str(path), path.stat().st_size


def test_a_column_that_the_file_does_not_have_is_what_the_caller_says(tmp_path: Path) -> None:
    path, size = written(tmp_path, pa.table({"id": [1, 2, 3]}))
    fields = [Field(2, "region", STRING), Field(1, "id", LONG)]
    batches = list(read_columns(path, size, fields, {}, missing={2: pa.scalar("eu")}, rows=2))
    assert [batch.num_rows for batch in batches] == [2, 1]
    assert [row for batch in batches for row in batch.to_pylist()] == [{"region": "eu", "id": n} for n in (1, 2, 3)]


def test_a_file_without_any_of_the_columns_still_tells_how_many_rows_it_has(tmp_path: Path) -> None:
    path, size = written(tmp_path, pa.table({"nested": [{"x": 1}, {"x": 2}]}))
    (batch,) = read_columns(path, size, [Field(2, "region", STRING)], {}, missing={2: pa.scalar(None, pa.string())})
    assert batch.column("region").to_pylist() == [None, None]


def test_a_column_of_a_delete_file_is_never_guessed(tmp_path: Path) -> None:
    path, size = written(tmp_path, pa.table({"id": [1]}))
    with pytest.raises(UnreadableFile, match="no key column 'region'"):
        list(read_columns(path, size, [Field(2, "region", STRING)], {}))
