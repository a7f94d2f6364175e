"""An index finds exactly the rows of the wanted keys, built or mapped; what is damaged is refused."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lookup_builders import (
    TYPES,
    KeyColumns,
    constant_rows,
    constant_spans,
    key_columns,
    long_index,
    long_keys,
    patient,
    positions_of,
    string_index,
)

from frazil.data.keys import hash as key_hash
from frazil.data.keys.index import DamagedIndex, KeyIndex


def wanted_of(data: st.DataObject, key: KeyColumns) -> list[tuple[object, ...]]:
    """Some keys of the file, some of them twice, and some that are not in it."""
    others = data.draw(key_columns_like(key))
    return data.draw(st.lists(st.sampled_from([*key.rows, *others]), max_size=40)) if key.rows or others else []


def key_columns_like(key: KeyColumns) -> st.SearchStrategy[list[tuple[object, ...]]]:
    return st.lists(st.tuples(*(TYPES[name].values for name in key.types)), max_size=5)


def check(index: KeyIndex, key: KeyColumns, wanted: list[tuple[object, ...]]) -> None:
    needles = key.keys(wanted)
    assert index.find(needles).tolist() == positions_of(key.rows, wanted)
    assert index.find(needles.sorted()).tolist() == positions_of(key.rows, wanted)
    positions, numbers = index.match(needles)
    pairs = [(p, n) for p, row in enumerate(key.rows) for n, needle in enumerate(wanted) if row == needle]
    assert list(zip(positions.tolist(), numbers.tolist(), strict=True)) == pairs


@patient
@given(st.data())
def test_exactly_the_rows_of_the_wanted_keys_are_found(data: st.DataObject) -> None:
    key = data.draw(key_columns())
    check(KeyIndex.build(key.codec.signature, key.keys()), key, wanted_of(data, key))


@patient
@given(st.data())
def test_answers_stay_exact_if_every_hash_collides(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_hash, "hash_rows", constant_rows)
        patch.setattr(key_hash, "hash_spans", constant_spans)
        key = data.draw(key_columns())
        check(KeyIndex.build(key.codec.signature, key.keys()), key, wanted_of(data, key))


@patient
@given(st.data())
def test_a_mapped_index_answers_like_the_one_that_was_saved(tmp_path: Path, data: st.DataObject) -> None:
    key = data.draw(key_columns())
    path = str(tmp_path / "saved.index")
    KeyIndex.build(key.codec.signature, key.keys()).save(path, "a file")
    index = KeyIndex.open(path, key.codec.signature, "a file")
    assert index.records == len(key.rows)
    assert index.mapped is not None
    check(index, key, wanted_of(data, key))


def test_every_row_of_a_key_that_comes_more_than_once_is_found() -> None:
    index = long_index(7, 2, 7, 5, 7)
    assert index.find(long_keys(7, 9)).tolist() == [0, 2, 4]
    assert index.find(long_keys(7, 7, 5)).tolist() == [0, 2, 3, 4]


def test_many_needles_in_a_small_file_are_found_as_well_as_few_in_a_large_one() -> None:
    numbers = list(range(1000))
    assert long_index(3, 999, 3).find(long_keys(*numbers)).tolist() == [0, 1, 2]
    assert long_index(*numbers).find(long_keys(3, 999, 1000)).tolist() == [3, 999]


def test_positions_take_four_bytes_and_eight_only_where_they_must() -> None:
    assert long_index(1, 2).positions.dtype == np.uint32
    far = np.array([3, 1 << 40])
    index = KeyIndex.build("1:integer", long_keys(8, 9), positions=far, records=(1 << 40) + 1)
    assert index.positions.dtype == np.uint64
    assert index.find(long_keys(9)).tolist() == [1 << 40]


def test_rows_without_an_entry_are_counted_and_never_found(tmp_path: Path) -> None:
    index = KeyIndex.build("1:integer", long_keys(8, 9), positions=np.array([0, 4]), records=6)
    index.save(str(tmp_path / "i"))
    opened = KeyIndex.open(str(tmp_path / "i"), "1:integer")
    assert (opened.records, len(opened)) == (6, 2)
    assert opened.find(long_keys(8, 9, 0)).tolist() == [0, 4]


def test_a_mapped_index_copies_nothing(tmp_path: Path) -> None:
    string_index(100_000).save(str(tmp_path / "i"))
    before = pa.total_allocated_bytes()
    index = KeyIndex.open(str(tmp_path / "i"), "1:string")
    assert pa.total_allocated_bytes() - before < 10_000
    assert index.nbytes > 1_000_000
    assert not index.keys.hashes.flags.owndata
    assert not index.positions.flags.owndata


@pytest.mark.parametrize(("key", "owner"), [("2:integer", "file a"), ("1:string", "file a"), ("1:integer", "file b")])
def test_an_index_of_another_key_or_file_is_refused(tmp_path: Path, key: str, owner: str) -> None:
    long_index(1, 2, 3).save(str(tmp_path / "i"), "file a")
    with pytest.raises(DamagedIndex):
        KeyIndex.open(str(tmp_path / "i"), key, owner)


def test_an_index_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "i"
    long_index(1, 2, 3).save(str(path))
    with pa.ipc.open_file(path) as reader:
        batch, metadata = reader.get_batch(0), dict(reader.schema.metadata)
    header = json.dumps({**json.loads(metadata[b"frazil.index"]), "version": 999}).encode()
    metadata = {b"frazil.index": header, b"frazil.index.sum": str(zlib.crc32(header)).encode()}
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema.with_metadata(metadata)) as writer:
        writer.write_batch(batch)
    with pytest.raises(DamagedIndex, match="its version is 999"):
        KeyIndex.open(str(path), "1:integer")


@pytest.mark.parametrize("kind", ["numbers", "texts"])
def test_a_changed_byte_is_refused_or_changes_no_answer(tmp_path: Path, kind: str) -> None:
    index = long_index(*range(16, 0, -1)) if kind == "numbers" else string_index(16)
    needles = index.keys
    path = tmp_path / "i"
    index.save(str(path))
    whole = path.read_bytes()
    expected = index.find(needles).tolist()
    refused = 0
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        try:
            assert KeyIndex.open(str(path), index.signature).find(needles).tolist() == expected, place
        except DamagedIndex:
            refused += 1
    assert refused > len(index) * 12


def test_a_file_cut_at_any_byte_is_refused(tmp_path: Path) -> None:
    index = string_index(20)
    path = tmp_path / "i"
    index.save(str(path))
    whole = path.read_bytes()
    for length in range(0, len(whole), 5):
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedIndex) as caught:
            KeyIndex.open(str(path), index.signature)
        assert caught.value.hint


def test_a_missing_index_is_missing_and_not_damaged(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        KeyIndex.open(str(tmp_path / "nowhere"), "1:integer")


def test_a_mapped_file_that_was_cut_short_is_noticed_before_it_is_touched(tmp_path: Path) -> None:
    path = tmp_path / "i"
    string_index(1000).save(str(path))
    index = KeyIndex.open(str(path), "1:string")
    assert index.is_intact
    with path.open("r+b") as file:
        file.truncate(4096)
    # A failing assertion would show the index, and so touch it.
    is_intact = index.is_intact
    assert not is_intact


def test_a_file_without_rows_has_an_index_in_which_nothing_is_found(tmp_path: Path) -> None:
    long_index().save(str(tmp_path / "i"))
    assert KeyIndex.open(str(tmp_path / "i"), "1:integer").find(long_keys(1)).tolist() == []
    assert long_index(1, 2).find(long_keys()).tolist() == []
