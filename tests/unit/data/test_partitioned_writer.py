"""An epoch makes one file per partition it touches, whatever their number, with bounded memory; rows can be sorted."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from unit.ingest.write.worker_builders import R1, table_task, write_job

from frazil.data import parquet_writer as parquet
from frazil.data import partitioned_writer as partitioned
from frazil.errors import CatalogRefused, ConfigError, StorageUnavailable
from frazil.ingest.write.table_writer import TableEpochWriter, TaskOutput
from frazil.model import schema as c
from frazil.model.files import FileClosed, FileKind
from frazil.model.partition import PartitionField, PartitionSpec, Transform
from frazil.model.schema import Field, Schema
from frazil.model.sort import SortField, parse_sort
from frazil.model.write import DeleteMode, ParquetSettings, TableTask
from frazil.storage.files import spill as spool
from frazil.storage.files.spill import SpillFile

ORDERS = Schema(
    3,
    (Field(1, "id", c.LONG, required=True), Field(2, "region", c.STRING), Field(3, "note", c.BINARY)),
    identifier_ids=(1,),
)
BY_REGION = PartitionSpec(2, (PartitionField(1000, 2, "region", Transform("identity")),))


def task(folder: Path, spec: PartitionSpec = BY_REGION, **more: Any) -> TableTask:
    mode = more.pop("mode", DeleteMode.VECTORS)
    deletes = more.pop("deletes", True)
    return replace(table_task(folder, schema=more.pop("schema", ORDERS), mode=mode, deletes=deletes), spec=spec, **more)


def writer(given: TableTask, **settings: Any) -> TableEpochWriter:
    job = write_job(given, **settings)
    return TableEpochWriter(given, given.epochs[0], TaskOutput.of(job, 0, "a"))


def rows(ids: range | list[int], regions: list[str | None], note: bytes = b"") -> pa.RecordBatch:
    return pa.record_batch(
        {"id": pa.array(ids, pa.int64()), "region": pa.array(regions), "note": pa.array([note] * len(regions))}
    )


def ids_by_partition(files: tuple[FileClosed, ...]) -> dict[tuple[Any, ...], list[int]]:
    found = {
        f.partition: pq.ParquetFile(f.path).read(["id"])["id"].to_pylist() for f in files if f.kind is FileKind.DATA
    }
    assert sum(map(len, found.values())) == sum(f.records for f in files if f.kind is FileKind.DATA)
    return found


def test_each_partition_gets_one_file_with_its_rows_in_order(tmp_path: Path) -> None:
    w = writer(task(tmp_path))
    w.upserts(rows([1, 2, 3, 4], ["eu", "us", None, "eu"]))
    w.upserts(rows([5, 6], ["us", "us"]))
    files = w.close()
    assert ids_by_partition(files) == {("eu",): [1, 4], ("us",): [2, 5, 6], (None,): [3]}
    assert len({f.path for f in files}) == len(files) == 3
    assert {f.spec_id for f in files} == {2}
    assert all(f.path.startswith(f"{tmp_path}/t0/epoch={R1.text}/shard=0/data-") for f in files)
    (eu,) = (f for f in files if f.partition == ("eu",))
    assert {m.field_id: (m.lower, m.upper) for m in eu.metrics}[2] == (b"eu", b"eu")


@pytest.mark.slow
def test_thousands_of_partitions_in_one_epoch_make_one_file_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few files are open at a time, and no row is lost on its way through the spool."""
    monkeypatch.setattr(spool, "SPOOL_BYTES", 20_000)
    most = 0
    real = parquet._OpenFile

    class Counted(real):  # type: ignore[misc, valid-type]
        open_now = 0

        def __init__(self, *arguments: Any) -> None:
            nonlocal most
            super().__init__(*arguments)
            Counted.open_now += 1
            most = max(most, Counted.open_now)

        def close(self) -> Any:
            Counted.open_now -= 1
            return super().close()

    monkeypatch.setattr(parquet, "_OpenFile", Counted)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    w = writer(task(tmp_path), row_group_rows=3)
    for start in range(0, 9_000, 1_000):
        ids = range(start, start + 1_000)
        w.upserts(rows(ids, [f"r{(i * 7) % 3_000}" for i in ids]))
    files = w.close()
    assert len(files) == 3_000
    expected: dict[tuple[Any, ...], list[int]] = {}
    for i in range(9_000):
        expected.setdefault((f"r{(i * 7) % 3_000}",), []).append(i)
    assert ids_by_partition(files) == expected
    assert most <= partitioned.OPEN_MAX


def test_memory_does_not_grow_with_the_number_of_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H32: rows that wait are bounded over all partitions together, and hold no other rows in memory."""
    monkeypatch.setattr(parquet, "WAITING_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(spool, "SPOOL_BYTES", 1 << 20)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    w = writer(task(tmp_path))
    base = peak = pa.total_allocated_bytes()
    for start in range(0, 20_000, 500):
        ids = range(start, start + 500)
        # The first partition has nearly all bytes; of the others few rows come with every batch, and wait.
        batch = rows(ids, [f"r{i % 100}" if i % 5 == 0 else "hot" for i in ids], b"x" * 2_000)
        w.upserts(batch)
        del batch
        peak = max(peak, pa.total_allocated_bytes())
    files = w.close()
    assert peak - base < 8 << 20
    assert sum(f.records for f in files) == 20_000
    assert len(files) == 21
    assert len(next(f for f in files if f.partition == ("hot",)).split_offsets) > 5


def test_many_open_partitions_share_the_bytes_that_may_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H32."""
    monkeypatch.setattr(parquet, "WAITING_BYTES_MAX", 2 << 20)
    w = writer(task(tmp_path))
    base = peak = pa.total_allocated_bytes()
    for start in range(0, 12_000, 160):
        ids = range(start, start + 160)
        w.upserts(rows(ids, [f"r{i % 16}" for i in ids], b"x" * 2_000))
        peak = max(peak, pa.total_allocated_bytes())
    files = w.close()
    assert peak - base < 8 << 20
    assert (len(files), sum(f.records for f in files)) == (16, 12_000)
    assert min(len(f.split_offsets) for f in files) > 3


def test_a_partition_rolls_at_the_target_size_with_names_apart(tmp_path: Path) -> None:
    w = writer(task(tmp_path), target_file_bytes=5_000, row_group_rows=10)
    for start in range(0, 200, 20):
        w.upserts(rows(range(start, start + 20), ["a", "b"] * 10, os.urandom(1_000)))
    files = w.close()
    assert {f.partition for f in files} == {("a",), ("b",)}
    assert len(files) >= 6
    assert len({f.path for f in files}) == len(files)
    assert sorted(i for f in files for i in pq.ParquetFile(f.path).read(["id"])["id"].to_pylist()) == list(range(200))


def test_vectors_write_rows_without_deletes_and_the_keys_of_deleted_rows(tmp_path: Path) -> None:
    w = writer(task(tmp_path))
    w.upserts(rows([1, 2], ["eu", "us"]))
    w.deletes(pa.record_batch({"id": [7]}))
    assert not w.drops_deletes
    files = w.close()
    (keys,) = (f for f in files if f.kind is FileKind.EQUALITY_DELETE)
    assert pq.read_table(keys.path).to_pylist() == [{"id": 7}]
    assert (keys.spec_id, keys.partition, keys.equality_ids) == (0, (), (1,))
    assert len(files) == 3


@pytest.mark.parametrize("mode", [DeleteMode.VECTORS, DeleteMode.EQUALITY])
def test_into_an_empty_table_no_key_is_deleted(tmp_path: Path, mode: DeleteMode) -> None:
    w = writer(task(tmp_path, mode=mode, deletes=False))
    assert w.drops_deletes
    w.upserts(rows([1], ["eu"]))
    w.deletes(pa.record_batch({"id": [7]}))
    assert [f.kind for f in w.close()] == [FileKind.DATA]


def test_equality_deletes_belong_to_no_partition(tmp_path: Path) -> None:
    """H1: the older row may lie in another partition than the newer one."""
    emptied = PartitionSpec(5, (PartitionField(1000, 2, "region", Transform("void")),))
    w = writer(task(tmp_path, mode=DeleteMode.EQUALITY, specs=(emptied,)))
    w.upserts(rows([1, 2], ["eu", "us"]))
    (deletes,) = (f for f in w.close() if f.kind is FileKind.EQUALITY_DELETE)
    assert (deletes.spec_id, deletes.partition, deletes.records) == (5, (None,), 2)


def test_deletes_under_a_partitioned_spec_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    """H1."""
    with pytest.raises(ConfigError, match="no unpartitioned spec"):
        writer(task(tmp_path, mode=DeleteMode.EQUALITY, specs=(BY_REGION,)))
    assert list(tmp_path.iterdir()) == []


def test_a_transform_on_a_type_it_does_not_take_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    spec = PartitionSpec(2, (PartitionField(1000, 2, "region_day", Transform("day")),))
    with pytest.raises(ConfigError, match=r"day does not take string.*'region'"):
        writer(task(tmp_path, spec))
    assert list(tmp_path.iterdir()) == []


def test_a_full_local_disk_is_named_and_nothing_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H11."""
    monkeypatch.setattr(spool, "SPOOL_BYTES", 1)
    w = writer(task(tmp_path))
    w.upserts(rows(range(30), [f"r{i}" for i in range(30)]))

    class Full:
        closed = False

        def write_batch(self, _batch: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    assert w._data._spool is not None
    monkeypatch.setattr(w._data._spool, "_writer", Full())
    with pytest.raises(StorageUnavailable, match="temporary file in"):
        w.upserts(rows(range(30), [f"r{i}" for i in range(30)]))
    w.abandon()
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_path_that_exists_stops_the_spooled_partitions_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H41."""
    monkeypatch.setattr(partitioned, "OPEN_MAX", 1)
    w = writer(task(tmp_path))
    w.upserts(rows([1, 2], ["a", "b"]))
    taken = Path(w._data_path(0).replace("-0.parquet", "-2.parquet"))
    taken.parent.mkdir(parents=True)
    taken.write_bytes(b"reported")
    with pytest.raises(CatalogRefused):
        w.close()
    w.abandon()
    assert taken.read_bytes() == b"reported"


def test_the_spool_gives_back_what_it_took_partition_by_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "SPOOL_BYTES", 100)
    schema = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"}), pa.field("u", pa.uuid())])
    s = SpillFile(schema)
    for start in range(0, 40, 8):
        ids = list(range(start, start + 8))
        uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes([i]) * 16 for i in ids], pa.binary(16)))
        batch = pa.RecordBatch.from_arrays([pa.array(ids), uuids], schema=schema)
        s.add(batch, pa.array([i % 3 for i in ids]).to_numpy())
    s.seal()
    for number in range(3):
        batches = list(s.read(number))
        assert all(b.schema.equals(schema, check_metadata=True) for b in batches)
        assert [i for b in batches for i in b.column("id").to_pylist()] == list(range(number, 40, 3))
    del batches
    s.release()


def sort_task(folder: Path, *order: str, **more: Any) -> TableTask:
    fields = tuple(parse_sort(text) for text in order)
    schema = Schema(0, (*ORDERS.fields[:1], Field(4, "x", c.DOUBLE), Field(5, "u", c.UUID)), identifier_ids=(1,))
    return task(folder, PartitionSpec(0), schema=schema, sort=fields, sort_order_id=7, **more)


def sorted_ids(folder: Path, xs: list[float | None], *order: str, **settings: Any) -> tuple[list[int], FileClosed]:
    w = writer(sort_task(folder, *order), **settings)
    uuids = pa.array([bytes([255 - i]) * 16 for i in range(len(xs))], pa.binary(16))
    w.upserts(pa.record_batch({"id": pa.array(range(len(xs))), "x": pa.array(xs, pa.float64()), "u": uuids}))
    (file,) = w.close()
    return pq.ParquetFile(file.path).read(["id"])["id"].to_pylist(), file


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (["x"], [3, 4, 1, 5, 0, 6, 2]),
        (["x desc"], [2, 6, 0, 5, 1, 4, 3]),
        (["x desc nulls first"], [3, 2, 6, 0, 5, 1, 4]),
        (["x nulls last"], [4, 1, 5, 0, 6, 2, 3]),
        (["u"], [6, 5, 4, 3, 2, 1, 0]),
    ],
    ids=str,
)
def test_rows_lie_in_icebergs_order(tmp_path: Path, order: list[str], expected: list[int]) -> None:
    ids, file = sorted_ids(tmp_path, [0.0, -1.5, NAN, None, -INF, -0.0, INF], *order)
    assert ids == expected
    assert file.sort_order_id == 7


def test_a_later_sort_field_decides_among_equals(tmp_path: Path) -> None:
    assert sorted_ids(tmp_path, [1.0, None, 1.0, None], "x", "u")[0] == [3, 1, 2, 0]


def test_a_file_of_several_row_groups_does_not_claim_an_order(tmp_path: Path) -> None:
    ids, file = sorted_ids(tmp_path, [4.0, 3.0, 2.0, 1.0], "x", row_group_rows=2)
    assert ids == [1, 0, 3, 2]
    assert file.sort_order_id is None


@pytest.mark.parametrize("column", ["missing", "tags"])
def test_a_column_that_cannot_be_sorted_by_is_named(tmp_path: Path, column: str) -> None:
    schema = Schema(0, (*ORDERS.fields, Field(8, "tags", c.ListOf(c.STRING, 9))), identifier_ids=(1,))
    with pytest.raises(ConfigError, match=column):
        writer(task(tmp_path, schema=schema, sort=(SortField(column),)))


def test_key_columns_of_data_files_get_bloom_filters_if_wanted(tmp_path: Path) -> None:
    for wanted in (True, False):
        given = task(tmp_path / str(wanted), mode=DeleteMode.EQUALITY)
        job = replace(write_job(given), parquet=ParquetSettings(bloom_filter=wanted))
        w = TableEpochWriter(given, given.epochs[0], TaskOutput.of(job, 0, "a"))
        w.upserts(rows(range(1_000), ["eu"] * 1_000))
        data, deletes = w.close()
        group = pq.ParquetFile(data.path).metadata.row_group(0)
        sizes = {group.column(i).path_in_schema: group.column(i).bloom_filter_length for i in range(3)}
        assert [name for name, size in sizes.items() if size] == (["id"] if wanted else [])
        assert not wanted or 1_000 < sizes["id"] < 4_000
        assert pq.ParquetFile(deletes.path).metadata.row_group(0).column(0).bloom_filter_length is None


def test_sizes_and_encodings_of_the_settings_are_in_the_footer(tmp_path: Path) -> None:
    settings = ParquetSettings(dictionary=False, compression="snappy", row_group_rows=5_000, page_bytes=4_096)
    given = task(tmp_path)
    w = TableEpochWriter(given, given.epochs[0], TaskOutput.of(replace(write_job(given), parquet=settings), 0, "a"))
    w.upserts(rows(range(12_000), ["eu"] * 12_000))
    (file,) = w.close()
    footer = pq.ParquetFile(file.path).metadata
    assert [footer.row_group(i).num_rows for i in range(footer.num_row_groups)] == [5_000, 5_000, 2_000]
    column = footer.row_group(0).column(0)
    assert (column.compression, column.has_dictionary_page) == ("SNAPPY", False)
