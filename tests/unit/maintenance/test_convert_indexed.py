"""Few delete keys are found in the key indexes of data files, each of which is read once."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID as Uuid

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.data.keys.index_cache import IndexCache
from frazil.data.parquet_writer import RollingWriter
from frazil.data.read.parquet import UnreadableFile
from frazil.maintenance.convert import indexed
from frazil.maintenance.convert.indexed import IndexedSearch, NotIndexed, may_be_indexed
from frazil.model.arrow import value_type
from frazil.model.conversion import DeleteKeys, KeyColumn, Search, SearchedFile
from frazil.model.files import LiveFile
from frazil.model.ids import TableName
from frazil.model.schema import DOUBLE, LONG, STRING, Field
from frazil.model.write import ParquetSettings

ID, NAME, PRICE = Field(1, "id", LONG), Field(2, "name", STRING), Field(3, "price", DOUBLE)
Keys = list[Any]


class Ground:
    """Delete files and data files of one key column on disk."""

    def __init__(self, folder: Path, key: Field = ID) -> None:
        self.folder, self.key, self._numbers = folder, key, itertools.count()
        self.cache = IndexCache(folder / "index", 1 << 20)
        self.deletes: list[DeleteKeys] = []

    def write(self, values: Keys, column: Field | None = None) -> tuple[str, int]:
        field = column or self.key
        path = str(self.folder / f"{next(self._numbers)}.parquet")
        writer = RollingWriter([field], lambda _: path, ParquetSettings(), {})
        writer.write(pa.RecordBatch.from_arrays([pa.array(values, value_type(field.type))], schema=writer.schema))
        (closed,) = writer.close()
        return path, closed.size

    def delete(self, values: Keys, sequence: int, place: int = 0) -> None:
        self.deletes.append(DeleteKeys(*self.write(values), place, sequence))

    def file(
        self, values: Keys, sequence: int, places: tuple[int, ...] = (0,), column: Field | None = None
    ) -> SearchedFile:
        path, size = self.write(values, column)
        file = LiveFile(
            path=path, format="parquet", size=size, records=len(values), sequence_number=sequence, spec_id=0
        )
        return SearchedFile(file, places)

    def search(self, *files: SearchedFile, places: int = 1) -> Search:
        return Search(
            table=TableName(("shop",), "orders"),
            number=Uuid(int=1),
            folder=str(self.folder),
            schema_id=0,
            format_version=3,
            key_sets=((KeyColumn(self.key),),),
            places=(0,) * places,
            deletes=tuple(self.deletes),
            files=files,
        )

    def found(self, *files: SearchedFile, places: int = 1) -> list[list[int]]:
        """The rows of each file that are deleted."""
        keys = IndexedSearch(self.search(places=places), self.cache)
        return [sorted(keys.deleted(file)) for file in files]


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def test_a_row_is_deleted_by_a_newer_delete_of_its_key_alone(ground: Ground) -> None:
    ground.delete([1, 2], 3)
    ground.delete([2, 3], 5)
    assert ground.found(ground.file([1, 2, 3, 4], 4), ground.file([3, 1, 2, 2], 2), ground.file([1, 2, 3], 5)) == [
        [1, 2],
        [0, 1, 2, 3],
        [],
    ]


def test_deletes_of_one_place_do_not_reach_files_of_another(ground: Ground) -> None:
    ground.delete([1], 3, place=0)
    ground.delete([2], 3, place=1)
    files = [ground.file([1, 2], 1, places) for places in ((0,), (1,), (0, 1))]
    assert ground.found(*files, places=2) == [[0], [1], [0, 1]]


def test_the_keys_of_a_data_file_are_read_once(ground: Ground) -> None:
    file = ground.file([1, 2], 1)
    ground.delete([1], 3)
    assert ground.found(file) == [[0]]
    ground.delete([2], 4)
    assert ground.found(file) == [[0, 1]]
    assert ground.cache.stats().misses == 1


def test_keys_with_a_null_are_left_to_the_join(ground: Ground) -> None:
    """A NULL equals a NULL in an equality delete, and no index has it."""
    ground.delete([1, None], 3)
    with pytest.raises(NotIndexed):
        ground.found()


def test_keys_that_do_not_fit_are_left_to_the_join(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    ground.delete(list(range(100)), 3)
    monkeypatch.setattr(indexed, "KEY_BYTES_MAX", 100)
    with pytest.raises(NotIndexed):
        ground.found()


def test_a_file_that_lacks_a_key_column_is_left_to_the_join(ground: Ground) -> None:
    """Its partition or the column's default may tell what its rows have there."""
    ground.delete([1], 3)
    with pytest.raises(UnreadableFile):
        ground.found(ground.file(["a"], 1, column=NAME))


def test_what_no_index_has_is_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ground = Ground(tmp_path)
    search = replace(ground.search(ground.file([1], 1)), deletes=(DeleteKeys("d", 10, 0, 2),))
    assert may_be_indexed(search)
    assert not may_be_indexed(replace(search, key_sets=((KeyColumn(PRICE),),)))
    monkeypatch.setattr(indexed, "FILE_ROWS_MAX", 0)
    assert not may_be_indexed(search)
    monkeypatch.undo()
    monkeypatch.setattr(indexed, "DELETE_BYTES_MAX", 9)
    assert not may_be_indexed(search)


_KEYS = st.integers(0, 12)


@pytest.mark.parametrize("key", [ID, NAME], ids=["numbers", "texts"])
@given(
    st.lists(st.tuples(st.lists(_KEYS, min_size=1, max_size=8), st.integers(1, 6)), min_size=1, max_size=4),
    st.lists(st.tuples(st.lists(_KEYS, min_size=1, max_size=8), st.integers(0, 6)), max_size=4),
)
def test_it_is_what_a_dictionary_would_say(
    key: Field, deletes: list[tuple[list[int], int]], files: list[tuple[list[int], int]]
) -> None:
    newest: dict[int, int] = {}
    for keys, number in deletes:
        newest |= {one: max(newest.get(one, 0), number) for one in keys}
    as_key = str if key is NAME else int
    with TemporaryDirectory() as folder:
        ground = Ground(Path(folder), key)
        for keys, number in deletes:
            ground.delete([as_key(one) for one in keys], number)
        found = ground.found(*(ground.file([as_key(one) for one in keys], number) for keys, number in files))
    assert found == [[place for place, one in enumerate(keys) if newest.get(one, 0) > number] for keys, number in files]
