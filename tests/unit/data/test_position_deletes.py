"""Position delete files: ours are as the specification wants them, and those of other writers are read."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lookup_builders import numbered, patient, write_parquet
from pyroaring import BitMap64

from frazil.data.deletes import positions
from frazil.data.deletes.positions import read_positions, write_positions
from frazil.data.read.parquet import UnreadableFile
from frazil.errors import CatalogRefused, TableChanged
from frazil.model.write import ParquetSettings

PATHS = st.text("ab/é", min_size=1, max_size=30)
DELETES = st.dictionaries(PATHS, st.sets(st.integers(0, 1 << 40), min_size=1, max_size=30), min_size=1, max_size=6)
FILE_PATH_ID, POS_ID = 2147483546, 2147483545


def bitmaps(deletes: dict[str, set[int]]) -> dict[str, BitMap64]:
    return {name: BitMap64(rows) for name, rows in deletes.items()}


@patient
@given(DELETES, st.integers(1, 20))
def test_what_is_written_is_read_back_for_all_files_and_for_one(
    tmp_path_factory: pytest.TempPathFactory, deletes: dict[str, set[int]], group: int
) -> None:
    path = tmp_path_factory.mktemp("positions") / "d.parquet"
    closed = write_positions(str(path), bitmaps(deletes), ParquetSettings(row_group_rows=group), {})
    assert closed.records == sum(map(len, deletes.values()))
    assert read_positions(str(path), {}) == bitmaps(deletes)
    for name, rows in deletes.items():
        assert read_positions(str(path), {}, name) == {name: BitMap64(rows)}
    assert read_positions(str(path), {}, "nobody") == {}


def test_rows_are_sorted_by_file_and_position_and_carry_the_reserved_ids(tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    deletes = {"b": BitMap64([7, 1]), "é": BitMap64([0]), "a": BitMap64([1 << 40, 2])}
    write_positions(str(path), deletes, ParquetSettings(), {})
    table = pq.read_table(path)
    assert list(zip(*table.to_pydict().values(), strict=True)) == [
        ("a", 2),
        ("a", 1 << 40),
        ("b", 1),
        ("b", 7),
        ("é", 0),
    ]
    schema = pq.ParquetFile(path).schema_arrow
    assert [(f.name, f.type, f.nullable, f.metadata[b"PARQUET:field_id"]) for f in schema] == [
        ("file_path", pa.string(), False, b"2147483546"),
        ("pos", pa.int64(), False, b"2147483545"),
    ]


def test_the_manifest_gets_whole_paths_as_bounds(tmp_path: Path) -> None:
    first, last = "file:/warehouse/ns/table/data/" + "a" * 100, "file:/warehouse/ns/table/data/" + "b" * 100
    path = tmp_path / "d.parquet"
    closed = write_positions(str(path), {last: BitMap64([9]), first: BitMap64([3, 4])}, ParquetSettings(), {})
    metrics = {column.field_id: column for column in closed.metrics}
    assert (metrics[FILE_PATH_ID].lower, metrics[FILE_PATH_ID].upper) == (first.encode(), last.encode())
    assert metrics[POS_ID].lower == (3).to_bytes(8, "little")
    assert metrics[POS_ID].upper == (9).to_bytes(8, "little")
    assert {column.values for column in closed.metrics} == {3}
    assert closed.size == path.stat().st_size
    assert closed.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert closed.split_offsets


def test_deletes_of_one_file_have_its_path_as_both_bounds(tmp_path: Path) -> None:
    name = "s3://bucket/" + "x" * 200
    closed = write_positions(str(tmp_path / "d"), {name: BitMap64([1]), "none": BitMap64()}, ParquetSettings(), {})
    column = next(one for one in closed.metrics if one.field_id == FILE_PATH_ID)
    assert column.lower == column.upper == name.encode()


def test_all_positions_go_to_one_file_whatever_the_target_size(tmp_path: Path) -> None:
    many = BitMap64(range(0, 300_000, 3))
    settings = ParquetSettings(target_file_bytes=1, row_group_rows=1000)
    closed = write_positions(str(tmp_path / "d"), {"a": many}, settings, {})
    assert closed.records == 100_000
    assert [entry.name for entry in tmp_path.iterdir()] == ["d"]
    assert read_positions(str(tmp_path / "d"), {}) == {"a": many}


def test_nothing_to_delete_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="deletes nothing"):
        write_positions(str(tmp_path / "d"), {"a": BitMap64()}, ParquetSettings(), {})
    assert list(tmp_path.iterdir()) == []


def test_a_delete_file_is_created_once_and_never_replaced(tmp_path: Path) -> None:
    """H46."""
    path = tmp_path / "d"
    write_positions(str(path), {"a": BitMap64([1])}, ParquetSettings(), {})
    with pytest.raises(CatalogRefused):
        write_positions(str(path), {"a": BitMap64([2])}, ParquetSettings(), {})
    assert read_positions(str(path), {}) == {"a": BitMap64([1])}


def foreign(path: Path, *, ids: bool = True, names: tuple[str, str] = ("file_path", "pos"), **more: Any) -> None:
    """Unsorted, with a position twice, and with the deleted rows beside them if asked for."""
    columns = [
        (numbered(names[0], pa.string(), FILE_PATH_ID if ids else None), ["b", "a", "b", "b"]),
        (numbered(names[1], pa.int64(), POS_ID if ids else None), [5, 1, 2, 5]),
    ]
    if more.get("rows"):
        inner = pa.struct([numbered("id", pa.int64(), 1)])
        columns.insert(0, (numbered("row", inner, 2147483544), [{"id": 1}, None, {"id": 2}, {"id": 3}]))
    write_parquet(path, columns, row_group_size=2)


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("rows", [True, False])
def test_files_of_other_writers_are_read(tmp_path: Path, ids: bool, rows: bool) -> None:
    foreign(tmp_path / "d", ids=ids, rows=rows and ids)
    assert read_positions(str(tmp_path / "d"), {}) == {"a": BitMap64([1]), "b": BitMap64([2, 5])}


def test_positions_of_one_file_are_gathered_over_all_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "BATCH_ROWS", 1)
    foreign(tmp_path / "d")
    assert read_positions(str(tmp_path / "d"), {}) == {"a": BitMap64([1]), "b": BitMap64([2, 5])}


def test_columns_of_other_names_are_found_by_their_ids(tmp_path: Path) -> None:
    """H30."""
    foreign(tmp_path / "d", names=("which", "where"))
    assert read_positions(str(tmp_path / "d"), {}, "b") == {"b": BitMap64([2, 5])}


def test_a_dictionary_of_paths_with_unused_names_adds_no_file(tmp_path: Path) -> None:
    paths = pa.DictionaryArray.from_arrays(pa.array([1, 1], pa.int32()), pa.array(["unused", "a"]))
    schema = pa.schema([numbered("file_path", paths.type, FILE_PATH_ID), numbered("pos", pa.int64(), POS_ID)])
    pq.write_table(pa.Table.from_arrays([paths, pa.array([4, 3])], schema=schema), tmp_path / "d")
    assert read_positions(str(tmp_path / "d"), {}) == {"a": BitMap64([3, 4])}


def test_what_is_no_position_delete_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "d"
    with pytest.raises(TableChanged, match="is gone"):
        read_positions(str(path), {})
    write_parquet(path, [(numbered("id", pa.int64(), 1), [1])])
    with pytest.raises(UnreadableFile, match=r"no position deletes: its columns are \['id'\]"):
        read_positions(str(path), {})
    columns = [(numbered("file_path", pa.string(), FILE_PATH_ID), ["a"]), (numbered("pos", pa.int64(), POS_ID), [-1])]
    write_parquet(path, columns)
    with pytest.raises(UnreadableFile, match="between 0"):
        read_positions(str(path), {})
    write_parquet(path, [columns[0], (columns[1][0], [None])])
    with pytest.raises(UnreadableFile, match="without file or position"):
        read_positions(str(path), {})


def test_many_files_and_positions_are_read_without_a_look_at_each(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    deletes = {f"file-{i}": BitMap64(rng.integers(0, 1 << 33, 500).tolist()) for i in range(200)}
    write_positions(str(tmp_path / "d"), deletes, ParquetSettings(), {})
    assert read_positions(str(tmp_path / "d"), {}) == deletes
