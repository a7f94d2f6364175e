"""Where sorted rows are cut, and how a row is found again after it was sorted."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from frazil.errors import BadInput, TableChanged, Transient
from frazil.maintenance.compact.sort.row_map import Question, RowMapWriter
from frazil.maintenance.compact.sort.sort_keys import form
from frazil.maintenance.compact.sort.sort_ranges import Ranges, SortKeys
from frazil.maintenance.compact.sort.spark_sort import whole
from frazil.model.compaction import Group, Rewrite, RewriteResult, RewrittenTable, RowMap
from frazil.model.files import FileKind, LiveFile, WrittenFile
from frazil.model.ids import TableName
from frazil.model.schema import LONG, Field, Schema
from frazil.model.sort import Order, OrderField
from frazil.model.write import ParquetSettings

BY_ONE = Order((OrderField(1),))
BY_BITS = Order((OrderField(1), OrderField(2)), interleaved=True)


def keys_of(keys: SortKeys, values: list[int], columns: int = 1) -> pa.Array:
    forms = [form(pa.array(values, pa.int64()))] * columns
    return keys.of(forms, np.zeros(len(values), np.int32), np.arange(len(values)))


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=60),
    st.integers(1, 5),
    st.integers(1, 12),
    st.data(),
)
def test_every_row_has_one_bucket_and_buckets_lie_in_order(
    values: list[int], ranges: int, buckets: int, data: st.DataObject
) -> None:
    keys = SortKeys(BY_ONE)
    whole = keys_of(keys, values)
    chosen = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=30, unique=True))
    made = Ranges.of(keys, whole.take(pa.array(chosen, pa.int64())), ranges, buckets)
    assert made.count <= ranges
    assert list(made.bounds) == sorted(set(made.bounds))
    assert list(made.starts) == sorted(set(made.starts))
    ordered = whole.take(pc.sort_indices(whole))
    cut = list(made.cut(ordered))
    assert [start for _, start, _ in cut] == [0, *(end for _, _, end in cut[:-1])]
    assert cut[-1][2] == len(values)
    assert [bucket for bucket, _, _ in cut] == sorted({bucket for bucket, _, _ in cut})
    for bucket, start, end in cut:
        bounds = (b"", *made.bounds)
        assert all(bounds[bucket] <= key for key in ordered.slice(start, end - start).to_pylist())
    numbers = [made.range_of(bucket) for bucket in range(len(made.bounds) + 1)]
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(made.count))


def test_equal_values_are_cut_apart_where_memory_asks_for_it() -> None:
    keys = SortKeys(BY_ONE)
    whole = keys_of(keys, [7] * 1000)
    made = Ranges.of(keys, whole, 2, 10)
    sizes = [end - start for _, start, end in made.cut(whole.take(pc.sort_indices(whole)))]
    assert sizes == [100] * 10
    assert made.count == 2
    assert made.range_of(4) == 0
    assert made.range_of(5) == 1


@pytest.mark.parametrize("order", [BY_ONE, BY_BITS])
def test_rows_with_equal_values_keep_the_order_of_their_files(order: Order) -> None:
    forms = [form(pa.array([5, 5, 5], pa.int64()))] * len(order.fields)
    keys = SortKeys.seen(order, forms).of(forms, np.array([256, 1, 256]), np.array([300, 9, 2]))
    assert pc.sort_indices(keys).to_pylist() == [1, 2, 0]


# row maps


@st.composite
def shuffles(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[int], list[int]]:
    """Rows of inputs as they were written, how many were added at a time, and how many each file has."""
    sizes = draw(st.lists(st.integers(1, 30), min_size=1, max_size=4))
    rows = [(number, position) for number, size in enumerate(sizes) for position in range(size)]
    rows = draw(st.permutations(rows))
    cuts = draw(st.lists(st.integers(1, len(rows)), max_size=3))
    ends = sorted({*cuts, len(rows)})
    files = sorted({*draw(st.lists(st.integers(1, len(rows)), max_size=2)), len(rows)})
    return rows, ends, files


def written(path: str, rows: list[tuple[int, int]], ends: list[int], files: int = 1) -> RowMap:
    writer = RowMapWriter(path, ParquetSettings(), {})
    for start, end in itertools.pairwise([0, *ends]):
        part = np.array(rows[start:end], np.int64).reshape(-1, 2)
        writer.add(part[:, 0], part[:, 1])
    return writer.close(files)


@settings(max_examples=60)
@given(shuffled=shuffles(), data=st.data())
def test_every_row_is_found_where_it_was_sorted_to(
    tmp_path_factory: pytest.TempPathFactory,
    shuffled: tuple[list[tuple[int, int]], list[int], list[int]],
    data: st.DataObject,
) -> None:
    """H16"""
    rows, ends, files = shuffled
    row_map = written(str(tmp_path_factory.mktemp("trail") / "trail.parquet"), rows, ends, len(files))
    gone = data.draw(st.sets(st.sampled_from(rows)))
    deleted: dict[int, BitMap64] = {}
    for number, position in gone:
        deleted.setdefault(number, BitMap64()).add(position)
    sizes = tuple(end - start for start, end in itertools.pairwise([0, *files]))
    asked = Question(row_map, sizes, {number: bitmap.serialize() for number, bitmap in deleted.items()})
    found = asked.follow({})
    starts = [0, *files]
    assert {(number, row) for number, bitmap in found.items() for row in bitmap} == {
        (number, place - starts[number])
        for place, row in enumerate(rows)
        if row in gone
        for number in range(len(files))
        if starts[number] <= place < starts[number + 1]
    }


def test_row_groups_that_cannot_have_the_row_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(number, position) for position in range(70_000) for number in range(2)]
    row_map = written(str(tmp_path / "trail.parquet"), rows, [len(rows)])
    assert pq.ParquetFile(row_map.path).num_row_groups == 3
    read: list[int] = []
    original = pq.ParquetFile.read_row_group

    def counted(self: pq.ParquetFile, number: int) -> pa.Table:
        read.append(number)
        return original(self, number)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    found = Question(row_map, (len(rows),), {1: BitMap64([69_999]).serialize()}).follow({})
    assert list(found[0]) == [len(rows) - 1]
    assert read == [1, 2], "one has the end of one input and the beginning of the next"


def test_a_trail_of_other_rows_is_refused(tmp_path: Path) -> None:
    row_map = written(str(tmp_path / "trail.parquet"), [(0, 0), (0, 1)], [2])
    with pytest.raises(ValueError, match="2 rows, and 3 were written"):
        Question(row_map, (3,), {})
    with pytest.raises(BadInput, match="2 rows instead of 5"):
        Question(replace(row_map, rows=5), (5,), {0: BitMap64([1]).serialize()}).follow({})
    with pytest.raises(TableChanged):
        Question(replace(row_map, path=row_map.path + "x"), (2,), {0: BitMap64([1]).serialize()}).follow({})


# what came out of the shuffle


def test_rows_that_did_not_arrive_are_not_taken_for_deleted() -> None:
    inputs = tuple(
        LiveFile(path=path, format="parquet", size=9, records=10, sequence_number=1, spec_id=0) for path in "ab"
    )
    table = RewrittenTable(
        name=TableName.parse("a.b"),
        schema=Schema(0, (Field(1, "id", LONG),)),
        format_version=2,
        sequence_number=1,
        data_location="d",
    )
    rewrite = Rewrite(
        table=table,
        snapshot_id=1,
        number=UUID(int=1),
        folder="f",
        sequence_number=1,
        groups=(Group(inputs, "", 1, 1),),
        order=BY_ONE,
    )
    left_out = (BitMap64([1, 2]).serialize(), BitMap64().serialize())

    def result(records: int) -> RewriteResult:
        file = WrittenFile(spec_id=0, kind=FileKind.DATA, path="x", records=records, size=1, digest="")
        return RewriteResult(0, (file,), left_out, row_maps=(RowMap("t", 1, records),))

    assert whole(rewrite, result(18)) == result(18)
    with pytest.raises(Transient, match="18 rows were to be sorted, and 17 arrived"):
        whole(rewrite, result(17))
    failed = RewriteResult(0, failure="a is damaged")
    assert whole(rewrite, failed) is failed
