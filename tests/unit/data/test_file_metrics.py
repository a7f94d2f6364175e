"""Column metrics: counts and bounds in Iceberg's binary form."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime
from decimal import Decimal as D
from pathlib import Path
from typing import Any
from uuid import UUID as Uuid

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.data.arrow_types import arrow_schema, arrow_type
from frazil.data.column_metrics import FileMetrics, lower_bound, single_value, upper_bound
from frazil.ingest.write.table_writer import TableEpochWriter, TaskOutput
from frazil.model import schema as c
from frazil.model.files import ColumnMetrics
from frazil.model.ids import TableName
from frazil.model.metrics_modes import COUNTS, FULL, NONE, MetricsMode, MetricsModes
from frazil.model.schema import Field
from frazil.model.write import DeleteMode, EpochTarget, ParquetSettings, TableTask
from frazil.sources.cockroachdb.position import Hlc


class NoFooter:
    num_row_groups = 0


def measured(type_: c.Type, *groups: list[Any]) -> ColumnMetrics:
    """Metrics of one column written in these row groups."""
    field = Field(5, "x", type_)
    metrics = FileMetrics([field])
    for values in groups:
        if type_ == c.UUID:
            storage = pa.array([None if v is None else v.bytes for v in values], pa.binary(16))
            array = pa.ExtensionArray.from_storage(pa.uuid(), storage)
        else:
            array = pa.array(values, arrow_type(type_))
        metrics.observe(pa.table([array], schema=arrow_schema([field])))
    (column,) = metrics.finish(NoFooter())  # type: ignore[arg-type]
    return column


MOMENT = datetime(2020, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
MICROS = 1_577_934_245_678_901


@pytest.mark.parametrize(
    ("type_", "values", "lower", "upper"),
    [
        (c.BOOLEAN, [True, False, None], b"\x00", b"\x01"),
        (c.INT, [7, -2, None], b"\xfe\xff\xff\xff", b"\x07\x00\x00\x00"),
        (c.LONG, [1 << 40, -1], b"\xff" * 8, struct.pack("<q", 1 << 40)),
        (c.FLOAT, [1.5, -2.5], struct.pack("<f", -2.5), struct.pack("<f", 1.5)),
        (c.DOUBLE, [1.5, -2.5], struct.pack("<d", -2.5), struct.pack("<d", 1.5)),
        (c.DATE, [date(1970, 1, 2), date(1969, 12, 31)], struct.pack("<i", -1), struct.pack("<i", 1)),
        (c.TIMESTAMP, [MOMENT.replace(tzinfo=None)], struct.pack("<q", MICROS), struct.pack("<q", MICROS)),
        (c.TIMESTAMPTZ, [MOMENT], struct.pack("<q", MICROS), struct.pack("<q", MICROS)),
        (c.STRING, ["b", "ab", None], b"ab", b"b"),
        (c.BINARY, [b"\x00\xff", b"\xff"], b"\x00\xff", b"\xff"),
        (c.Decimal(10, 2), [D("1.28"), D("-1.28")], b"\x80", b"\x00\x80"),
        (c.Decimal(38, 0), [D(10**37), D(-(10**37))], (-(10**37)).to_bytes(16, "big", signed=True), None),
    ],
    ids=str,
)
def test_bounds_are_written_as_iceberg_writes_single_values(
    type_: c.Type, values: list[Any], lower: bytes, upper: bytes | None
) -> None:
    found = measured(type_, values)
    assert found.lower == lower
    assert found.upper == (upper if upper is not None else (10**37).to_bytes(16, "big", signed=True))
    assert (found.values, found.nulls) == (len(values), values.count(None))


@given(st.integers(-(10**38) + 1, 10**38 - 1))
def test_a_decimal_has_as_few_bytes_as_its_twos_complement_needs(unscaled: int) -> None:
    data = single_value(c.Decimal(38, 0), D(unscaled))
    assert int.from_bytes(data, "big", signed=True) == unscaled
    assert len(data) == 1 or not (data[0] in (0, 0xFF) and (data[0] ^ data[1]) < 0x80)


def test_a_timestamp_beyond_pythons_calendar_has_bounds() -> None:
    field = Field(5, "x", c.TIMESTAMP)
    metrics = FileMetrics([field])
    far = (1 << 62) + 1
    metrics.observe(pa.table([pa.array([far], pa.int64()).view(pa.timestamp("us"))], schema=arrow_schema([field])))
    assert metrics.finish(NoFooter())[0].upper == struct.pack("<q", far)  # type: ignore[arg-type]


def test_bounds_hold_over_all_row_groups() -> None:
    found = measured(c.LONG, [5, 9], [1, None], [7])
    assert (found.lower, found.upper) == (struct.pack("<q", 1), struct.pack("<q", 9))
    assert (found.values, found.nulls) == (5, 1)


def test_a_uuid_is_counted_and_has_no_bounds() -> None:
    """iceberg-java would skip by them in another order than the one they are in."""
    found = measured(c.UUID, [Uuid(int=1), None, Uuid(int=1 << 127)])
    assert (found.values, found.nulls, found.lower, found.upper) == (3, 1, None, None)


def test_a_column_of_nulls_has_counts_and_no_bounds() -> None:
    found = measured(c.STRING, [None, None])
    assert (found.values, found.nulls, found.lower, found.upper) == (2, 2, None, None)


def test_nan_is_counted_and_never_a_bound() -> None:
    nan = float("nan")
    found = measured(c.DOUBLE, [nan, 2.0, None], [nan, 1.0])
    assert (found.values, found.nulls, found.nans) == (5, 1, 2)
    assert (found.lower, found.upper) == (struct.pack("<d", 1.0), struct.pack("<d", 2.0))
    only = measured(c.FLOAT, [nan, None])
    assert (only.nans, only.lower, only.upper) == (1, None, None)


def test_a_column_that_cannot_hold_nan_has_no_nan_count() -> None:
    assert measured(c.LONG, [1]).nans is None
    assert measured(c.DOUBLE, [1.0]).nans == 0


@pytest.mark.parametrize("order", [[0.0, -0.0], [-0.0, 0.0]])
def test_minus_zero_lies_below_zero_in_whatever_order_they_come(order: list[float]) -> None:
    for groups in ([order], [[order[0]], [order[1]]]):
        found = measured(c.DOUBLE, *groups)
        assert (found.lower, found.upper) == (struct.pack("<d", -0.0), struct.pack("<d", 0.0))
    alone = measured(c.FLOAT, [-0.0, -1.0])
    assert alone.upper == struct.pack("<f", -0.0)


def test_long_strings_are_cut_at_sixteen_code_points_and_the_upper_one_is_raised() -> None:
    text = "é" * 15 + "yz"
    assert lower_bound(c.STRING, text.encode()) == ("é" * 15 + "y").encode()
    assert upper_bound(c.STRING, text.encode()) == ("é" * 15 + "z").encode()
    assert upper_bound(c.STRING, b"sixteen letters!") == b"sixteen letters!"


def test_the_upper_bound_steps_over_surrogates_and_back_from_the_last_code_point() -> None:
    assert upper_bound(c.STRING, ("a" * 15 + "\ud7ff" + "b").encode()) == ("a" * 15 + "\ue000").encode()
    assert upper_bound(c.STRING, ("a" * 14 + "b\U0010ffff" + "c").encode()) == ("a" * 14 + "c").encode()
    assert upper_bound(c.STRING, ("\U0010ffff" * 17).encode()) is None


def test_long_binaries_are_cut_at_sixteen_bytes_and_the_upper_one_is_raised() -> None:
    assert lower_bound(c.BINARY, b"\x01" * 17) == b"\x01" * 16
    assert upper_bound(c.BINARY, b"\x01" * 17) == b"\x01" * 15 + b"\x02"
    assert upper_bound(c.BINARY, b"\x01" + b"\xff" * 16) == b"\x02"
    assert upper_bound(c.BINARY, b"\xff" * 17) is None
    assert upper_bound(c.BINARY, b"\xff" * 16) == b"\xff" * 16


@given(st.text(max_size=24), st.text(max_size=24))
def test_bounds_enclose_every_string(one: str, other: str) -> None:
    found = measured(c.STRING, [one, other])
    assert found.lower is not None
    for text in (one, other):
        assert found.lower <= text.encode()
        assert found.upper is None or text.encode() <= found.upper


def test_a_list_has_only_its_size_under_the_id_of_its_element() -> None:
    assert measured(c.ListOf(c.LONG, 9), [[1, 2], None, []]) == ColumnMetrics(field_id=9, size=0)


def test_columns_inside_a_struct_are_counted_by_rows_and_null_where_the_struct_is() -> None:
    inner = c.StructOf((Field(7, "d", c.DOUBLE), Field(8, "l", c.ListOf(c.LONG, 9))))
    field = Field(5, "s", c.StructOf((Field(6, "n", c.LONG), Field(10, "inner", inner))))
    rows = [{"n": 3, "inner": {"d": float("nan"), "l": [1]}}, None, {"n": None, "inner": None}, {"n": 1}]
    metrics = FileMetrics([field])
    for part in (rows[:2], rows[2:]):
        metrics.observe(pa.table([pa.array(part, arrow_type(field.type))], schema=arrow_schema([field])))
    number, double, elements = metrics.finish(NoFooter())  # type: ignore[arg-type]
    assert (number.field_id, number.values, number.nulls) == (6, 4, 2)
    assert (number.lower, number.upper) == (struct.pack("<q", 1), struct.pack("<q", 3))
    assert (double.field_id, double.values, double.nulls, double.nans) == (7, 4, 3, 1)
    assert elements == ColumnMetrics(field_id=9, size=0)


def test_a_fixed_binary_is_never_cut() -> None:
    value = b"\xff" * 20
    found = measured(c.Primitive("fixed[20]"), [value])
    assert (found.lower, found.upper) == (value, value)


def test_the_table_says_how_much_is_told_of_a_column() -> None:
    fields = [Field(n, f"c{n}", c.STRING) for n in range(1, 5)]
    modes = MetricsModes(NONE, {1: COUNTS, 2: MetricsMode(length=2), 3: FULL})
    metrics = FileMetrics(fields, modes)
    metrics.observe(pa.table([pa.array(["abcd" * 9, None])] * 4, schema=arrow_schema(fields)))
    counts, cut, full = metrics.finish(NoFooter())  # type: ignore[arg-type]
    assert (counts.field_id, counts.values, counts.nulls, counts.lower, counts.upper) == (1, 2, 1, None, None)
    assert (cut.lower, cut.upper) == (b"ab", b"ac")
    assert full.lower == full.upper == b"abcd" * 9


def test_nans_are_counted_where_there_are_no_bounds() -> None:
    field = Field(1, "d", c.DOUBLE)
    metrics = FileMetrics([field], MetricsModes(COUNTS))
    metrics.observe(pa.table([pa.array([1.0, float("nan"), None])], schema=arrow_schema([field])))
    (told,) = metrics.finish(NoFooter())  # type: ignore[arg-type]
    assert (told.values, told.nulls, told.nans, told.lower) == (3, 1, 1, None)


def test_epochs_tell_of_their_columns_what_the_table_says(tmp_path: Path) -> None:
    """In data files and in deletes by key; a thousand columns of bounds in each entry would make manifests huge."""
    schema = c.Schema(0, tuple(Field(n, f"c{n}", c.LONG, n == 1) for n in range(1, 1001)), (1,))
    target = EpochTarget(Hlc(1), Uuid(int=1), str(tmp_path))
    task = TableTask(
        index=0,
        format_version=3,
        data_location="d",
        name=TableName.parse("shop.wide"),
        schema=schema,
        key=("c1",),
        mode=DeleteMode.EQUALITY,
        epochs=(target,),
        metrics=MetricsModes.told({"write.metadata.metrics.column.c1": "counts"}, schema),
    )
    writer = TableEpochWriter(task, target, TaskOutput(shard=0, attempt="a", parquet=ParquetSettings()))
    writer.upserts(pa.RecordBatch.from_pydict({f"c{n}": pa.array([n]) for n in range(1, 1001)}))
    data, deletes = writer.close()
    assert [told.field_id for told in data.metrics] == list(range(1, 101))
    assert (data.metrics[0].values, data.metrics[0].lower) == (1, None)
    assert data.metrics[1].lower is not None
    assert [(told.field_id, told.values, told.lower) for told in deletes.metrics] == [(1, 1, None)]
