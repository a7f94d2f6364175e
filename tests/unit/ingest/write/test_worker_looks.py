"""A look at one file: whole, damaged, gone, or of a kind that is not read here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from frazil.data.deletes.positions import write_positions
from frazil.data.deletes.vectors import write_puffin
from frazil.doctor.examination import ExaminedTable
from frazil.doctor.tasks import look_at_data, look_at_delete
from frazil.model.compaction import RewrittenTable
from frazil.model.files import FileKind, LiveDelete, LiveFile
from frazil.model.ids import TableName
from frazil.model.partition import UNPARTITIONED, PartitionField, PartitionSpec, Transform
from frazil.model.schema import LONG, Field, Schema
from frazil.model.write import ParquetSettings

ID = Field(1, "id", LONG)
BY_ID = PartitionSpec(1, (PartitionField(1000, 1, "id", Transform("identity")),))
TABLE = RewrittenTable(
    name=TableName(("shop",), "orders"),
    schema=Schema(0, (ID,)),
    format_version=3,
    sequence_number=1,
    data_location="",
    specs=(UNPARTITIONED, BY_ID),
)
EXAMINED = ExaminedTable(TABLE, (ID,))


def write_ids(path: Path, *ids: int) -> str:
    column = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.table([list(ids)], schema=pa.schema([column])), path)
    return str(path)


def data(path: str, **more: Any) -> LiveFile:
    facts = {"format": "parquet", "size": Path(path).stat().st_size, "records": 3, "sequence_number": 1, "spec_id": 0}
    return LiveFile(path=path, **{**facts, **more})


def delete(path: str, kind: FileKind = FileKind.POSITION_DELETE, **more: Any) -> LiveDelete:
    facts = {"format": "parquet", "size": Path(path).stat().st_size, "records": 1, "sequence_number": 2, "spec_id": 0}
    return LiveDelete(path=path, kind=kind, **{**facts, **more})


def vectors(folder: Path) -> list[LiveDelete]:
    path = str(folder / "v.puffin")
    made = write_puffin(path, {"a": BitMap64([0, 1]), "b": BitMap64([2])}, {})
    return [
        delete(path, format="puffin", data_file=blob.data_file, offset=blob.offset, length=blob.length)
        for blob in made.blobs
    ]


def overwrite(path: str, offset: int, count: int) -> None:
    """The size stays."""
    with open(path, "r+b") as file:
        file.seek(offset, 0 if offset >= 0 else 2)
        file.write(b"\x5a" * count)


def test_a_whole_file_has_neither_damage_nor_trouble(tmp_path: Path) -> None:
    path = write_ids(tmp_path / "a.parquet", 1, 2, 3)
    look = look_at_data(EXAMINED, data(path))
    assert (look.records, look.damage, look.trouble) == (3, "", "")
    assert [look_at_delete(TABLE, one).damage for one in vectors(tmp_path)] == ["", ""]


def test_a_data_file_without_its_footer_is_damaged(tmp_path: Path) -> None:
    path = write_ids(tmp_path / "a.parquet", 1, 2, 3)
    overwrite(path, -12, 12)
    look = look_at_data(EXAMINED, data(path))
    assert path in look.damage
    assert look.trouble == ""


def test_a_damaged_page_of_a_partition_column_is_damage(tmp_path: Path) -> None:
    path = write_ids(tmp_path / "a.parquet", 7, 7, 7)
    overwrite(path, 4, 30)
    assert path in look_at_data(EXAMINED, data(path, spec_id=1, partition=(7,))).damage


def test_a_file_that_is_not_parquet_is_no_damage(tmp_path: Path) -> None:
    (tmp_path / "a.orc").write_bytes(b"ORC")
    look = look_at_data(EXAMINED, data(str(tmp_path / "a.orc"), format="orc"))
    assert (look.damage, look.trouble) == ("", "it is orc")
    avro = look_at_delete(TABLE, delete(str(tmp_path / "a.orc"), format="avro"))
    assert (avro.damage, avro.trouble) == ("", "it is avro")


def test_one_damaged_vector_of_several_is_told(tmp_path: Path) -> None:
    first, second = vectors(tmp_path)
    assert second.offset is not None
    overwrite(second.path, second.offset + 10, 4)
    assert look_at_delete(TABLE, first).damage == ""
    assert "damaged deletion vector" in look_at_delete(TABLE, second).damage


@pytest.mark.parametrize("of_one", [True, False])
def test_a_damaged_position_delete_file_is_told(tmp_path: Path, of_one: bool) -> None:
    path = str(tmp_path / "p.parquet")
    write_positions(path, {"a": BitMap64([0]), "b": BitMap64([1])}, ParquetSettings(), {})
    made = delete(path, data_file="a" if of_one else None)
    assert look_at_delete(TABLE, made).names == (None if of_one else frozenset("ab"))
    overwrite(path, -12, 12)
    assert path in look_at_delete(TABLE, made).damage


def test_a_damaged_equality_delete_file_is_told(tmp_path: Path) -> None:
    path = write_ids(tmp_path / "e.parquet", 1)
    made = delete(path, FileKind.EQUALITY_DELETE, equality_ids=(1,))
    assert look_at_delete(TABLE, made).damage == ""
    overwrite(path, 4, 30)
    assert path in look_at_delete(TABLE, made).damage


def test_a_damaged_delete_file_is_no_damage_of_the_data_file_it_is_for(tmp_path: Path) -> None:
    path = write_ids(tmp_path / "a.parquet", 7, 7, 7)
    vector = replace(vectors(tmp_path)[0], data_file=path)
    assert vector.offset is not None
    overwrite(vector.path, vector.offset + 10, 4)
    look = look_at_data(EXAMINED, data(path, spec_id=1, partition=(7,), deletes=(vector,)))
    assert look.damage == ""
    assert "damaged deletion vector" in look.trouble
