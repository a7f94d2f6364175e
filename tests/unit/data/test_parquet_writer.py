"""Files are created once, hashed while written, rolled at their size, and reported only when whole."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from unit.storage.ordinary_user import refusal_of

from frazil.data import parquet_writer as parquet
from frazil.data.parquet_writer import RollingWriter
from frazil.errors import CatalogRefused, ConfigError, FrazilError, StorageUnavailable
from frazil.model import schema as c
from frazil.model.schema import Field
from frazil.model.write import ParquetSettings
from frazil.storage.files.open_file import local_path, open_output, storage_error

FIELDS = (Field(1, "id", c.LONG, required=True), Field(2, "data", c.BINARY))


def writer(folder: Path | str, **settings: Any) -> RollingWriter:
    return RollingWriter(FIELDS, lambda n: f"{folder}/f{n}.parquet", ParquetSettings(**settings), {})


def rows(schema: pa.Schema, start: int, count: int, width: int = 10) -> pa.RecordBatch:
    ids = range(start, start + count)
    return pa.record_batch([pa.array(ids), pa.array([os.urandom(width) for _ in ids])], schema=schema)


def test_a_file_is_described_by_what_was_written(tmp_path: Path) -> None:
    w = writer(tmp_path / "a" / "b")
    w.write(rows(w.schema, 0, 10))
    w.write(rows(w.schema, 10, 5))
    (file,) = w.close()
    data = Path(file.path).read_bytes()
    footer = pq.read_metadata(file.path)
    assert (file.size, file.digest) == (len(data), hashlib.sha256(data).hexdigest())
    assert file.records == footer.num_rows == 15
    assert footer.num_row_groups == len(file.split_offsets) == 1
    assert [m.field_id for m in file.metrics] == [1, 2]
    assert [m.size for m in file.metrics] == [footer.row_group(0).column(i).total_compressed_size for i in (0, 1)]


def test_field_ids_decimals_and_uuids_have_the_parquet_form_iceberg_prescribes(tmp_path: Path) -> None:
    fields = (
        Field(3, "u", c.UUID),
        Field(4, "d", c.Decimal(12, 2)),
        Field(5, "l", c.ListOf(c.STRING, 6)),
        Field(7, "t", c.TIMESTAMPTZ),
        Field(8, "small", c.Decimal(5, 2)),
    )
    w = RollingWriter(fields, lambda n: f"{tmp_path}/f{n}.parquet", ParquetSettings(), {})
    w.write(pa.RecordBatch.from_arrays([pa.nulls(1, f.type) for f in w.schema], schema=w.schema))
    footer = pq.read_metadata(w.close()[0].path)
    schema = str(footer.schema)
    assert "fixed_len_byte_array(16) field_id=3 u (UUID)" in schema
    assert "int64 field_id=4 d (Decimal(precision=12, scale=2))" in schema
    assert "int32 field_id=8 small (Decimal(precision=5, scale=2))" in schema
    assert "group field_id=5 l (List)" in schema
    assert "field_id=6 element (String)" in schema
    assert "field_id=7 t (Timestamp(isAdjustedToUTC=true, timeUnit=microseconds" in schema
    skippable = {col.path_in_schema: col.is_stats_set for col in map(footer.row_group(0).column, range(5))}
    assert skippable == {"u": False, "d": True, "l.list.element": True, "t": True, "small": True}
    assert not footer.row_group(0).column(0).has_dictionary_page


def test_values_that_repeat_have_a_dictionary_and_others_do_not_pay_for_one(tmp_path: Path) -> None:
    count, fields = 100_000, (Field(1, "id", c.LONG), Field(2, "city", c.STRING))
    w = RollingWriter(fields, lambda n: f"{tmp_path}/f{n}.parquet", ParquetSettings(compression="none"), {})
    cities = [f"a city whose name is long, number {n % 1_000}" for n in range(count)]
    w.write(pa.record_batch([pa.array(range(count)), pa.array(cities)], schema=w.schema))
    ids, names = map(pq.read_metadata(w.close()[0].path).row_group(0).column, (0, 1))
    assert ids.total_uncompressed_size < 1.2 * 8 * count
    assert names.total_uncompressed_size < 2 * count


def test_row_groups_end_at_their_number_of_rows(tmp_path: Path) -> None:
    w = writer(tmp_path, row_group_rows=4)
    w.write(rows(w.schema, 0, 10))
    (file,) = w.close()
    footer = pq.read_metadata(file.path)
    assert [footer.row_group(i).num_rows for i in range(footer.num_row_groups)] == [4, 4, 2]
    firsts = [footer.row_group(i).column(0) for i in range(3)]
    starts = [col.dictionary_page_offset or col.data_page_offset for col in firsts]
    assert list(file.split_offsets) == starts == sorted(set(starts))


def test_a_file_rolls_at_its_target_size_and_no_row_is_lost(tmp_path: Path) -> None:
    w = writer(tmp_path, target_file_bytes=50_000, row_group_rows=100)
    for start in range(0, 2_000, 70):
        w.write(rows(w.schema, start, min(70, 2_000 - start), width=200))
    files = w.close()
    assert len(files) > 3
    assert all(50_000 <= file.size < 120_000 for file in files[:-1])
    ids = [i for file in files for i in pq.read_table(file.path, columns=["id"]).column("id").to_pylist()]
    assert ids == list(range(2_000))
    assert len({file.path for file in files}) == len(files)


def test_wide_rows_do_not_wait_for_a_full_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H32: memory holds a bounded number of bytes whatever the settings say about rows."""
    monkeypatch.setattr(parquet, "WAITING_BYTES_MAX", 1 << 20)
    w = writer(tmp_path)
    base = peak = pa.total_allocated_bytes()
    for start in range(200):
        w.write(rows(w.schema, start, 1, width=100_000))
        peak = max(peak, pa.total_allocated_bytes())
    (file,) = w.close()
    assert peak - base < 4 << 20
    assert len(file.split_offsets) > 10


def test_without_rows_no_file_is_made(tmp_path: Path) -> None:
    w = writer(tmp_path)
    w.write(rows(w.schema, 0, 0))
    assert w.close() == ()
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_exists_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    """H41, H46."""
    (tmp_path / "f0.parquet").write_bytes(b"reported")
    w = writer(tmp_path)
    w.write(rows(w.schema, 0, 1))
    with pytest.raises(CatalogRefused, match=r"f0\.parquet") as caught:
        w.close()
    assert caught.value.hint
    assert (tmp_path / "f0.parquet").read_bytes() == b"reported"


def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    refused = refusal_of(lambda: open_output(f"{tmp_path}/x/f.parquet", {}))
    assert isinstance(refused, CatalogRefused)
    assert "Permission denied" in str(refused)


def test_a_file_in_the_way_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"")
    with pytest.raises(CatalogRefused) as caught:
        open_output(f"{tmp_path}/x/f.parquet", {})
    assert caught.value.facts["path"] == f"{tmp_path}/x/f.parquet"


def test_a_full_disk_raises_with_the_path_reports_nothing_and_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H11: the error of the disk itself comes out, through Arrow, and the file is never reported."""
    w = writer(tmp_path, row_group_rows=10)
    w.write(rows(w.schema, 0, 10))

    def full(_descriptor: int, _data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StorageUnavailable, match=r"f0\.parquet: No space left") as caught:
        w.write(rows(w.schema, 10, 10))
    assert "make room" in caught.value.hint
    monkeypatch.undo()
    size = (tmp_path / "f0.parquet").stat().st_size
    with pytest.raises(AssertionError, match="cannot be reported"):
        w.close()
    del w
    assert (tmp_path / "f0.parquet").stat().st_size == size


def test_a_failing_sync_means_that_no_file_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    w = writer(tmp_path)
    w.write(rows(w.schema, 0, 10))

    def broken(_descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(StorageUnavailable, match="Input/output error"):
        w.close()


def test_the_file_is_synced_after_its_last_byte_and_its_new_folders_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, int]] = []
    real = os.fsync

    def watched(descriptor: int) -> None:
        synced.append((os.readlink(f"/proc/self/fd/{descriptor}"), os.fstat(descriptor).st_size))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    w = writer(tmp_path / "a" / "b")
    w.write(rows(w.schema, 0, 10))
    (file,) = w.close()
    assert synced[0] == (file.path, file.size)
    assert [path for path, _ in synced[1:]] == [str(tmp_path / "a" / "b"), str(tmp_path / "a"), str(tmp_path)]


def test_an_abandoned_file_gets_no_footer(tmp_path: Path) -> None:
    w = writer(tmp_path, row_group_rows=10)
    w.write(rows(w.schema, 0, 10))
    w.abandon()
    del w
    with pytest.raises(pa.ArrowInvalid):
        pq.read_metadata(tmp_path / "f0.parquet")


@pytest.mark.parametrize(
    ("given", "local"),
    [
        ("/w/a b%20c/x", "/w/a b%20c/x"),
        ("file:/w/x", "/w/x"),
        ("file:///w/epoch=1.0000000000/x%41", "/w/epoch=1.0000000000/x%41"),
        ("relative/a:b/x", "relative/a:b/x"),
    ],
)
def test_local_paths_come_plain_or_as_file_urls(given: str, local: str) -> None:
    assert local_path(given) == local


@pytest.mark.parametrize("given", ["ftp://host/x", "s3:///x", "s3://bucket/a//x", "hdfs:/x", "file://host/x"])
def test_a_place_that_workers_cannot_reach_is_a_configuration_error(given: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_output(given, {})
    assert caught.value.hint


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EROFS, CatalogRefused),
        (errno.EACCES, CatalogRefused),
        (errno.ENOSPC, StorageUnavailable),
        (errno.EDQUOT, StorageUnavailable),
        (errno.EIO, StorageUnavailable),
    ],
)
def test_every_refusal_of_the_disk_says_what_to_do(number: int, kind: type[FrazilError]) -> None:
    error = storage_error(OSError(number, os.strerror(number)), "/w/f")
    assert type(error) is kind
    assert "/w/f" in error.message
    assert error.hint
