"""Deletion vectors and Puffin files: what is written is read, and what is damaged is refused."""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lookup_builders import patient
from pyroaring import BitMap64

from frazil.data.deletes.vectors import (
    POSITION_MAX,
    DamagedVector,
    decode,
    encode,
    read_vector,
    to_bitmap,
    to_positions,
    write_puffin,
)
from frazil.errors import CatalogRefused, TableChanged
from frazil.model.files import Blob

POSITIONS = st.sets(
    st.one_of(st.integers(0, 200), st.integers(0, 1 << 34), st.sampled_from([POSITION_MAX, 1 << 32, (1 << 32) - 1]))
)


@patient
@given(POSITIONS)
def test_a_vector_holds_exactly_its_positions(positions: set[int]) -> None:
    array = np.array(sorted(positions), np.int64)
    assert set(decode(encode(array))) == positions
    assert set(decode(encode(BitMap64(positions)))) == positions
    assert to_positions(to_bitmap(array)).tolist() == sorted(positions)


def test_the_blob_is_framed_as_the_specification_says() -> None:
    """By hand: one 32-bit bitmap with upper half 0 that has one container of two values."""
    bitmap = struct.pack("<QIIIHHIHH", 1, 0, 12346, 1, 0, 1, 16, 3, 7)
    magic = bytes([0xD1, 0xD3, 0x39, 0x64])
    blob = encode(np.array([7, 3]))
    assert blob[:4] == struct.pack(">I", len(bitmap) + 4)
    assert blob[4:8] == magic
    assert blob[8:-4] == bitmap
    assert blob[-4:].hex() == "a6519a26"


def test_the_upper_half_of_a_far_position_is_in_the_portable_form() -> None:
    blob = encode(np.array([5, (3 << 32) | 9]))
    count, first = struct.unpack_from("<QI", blob, 8)
    assert (count, first) == (2, 0)
    assert struct.pack("<II", 3, 12346) in blob


def test_a_range_of_positions_takes_few_bytes_even_after_a_union() -> None:
    halves = to_bitmap(np.arange(0, 1_000_000, 2)) | to_bitmap(np.arange(1, 1_000_000, 2))
    assert len(encode(halves)) < 500


def test_to_encode_leaves_the_bitmap_as_it_is() -> None:
    bitmap = BitMap64([1, 2, 3])
    encode(bitmap)
    assert bitmap == BitMap64([1, 2, 3])


@pytest.mark.parametrize("position", [-1, POSITION_MAX + 1])
def test_positions_that_no_reader_takes_are_refused(position: int) -> None:
    with pytest.raises(ValueError, match="between 0"):
        encode(np.array([position]))


def test_a_bitmap_beyond_what_readers_take_is_refused() -> None:
    with pytest.raises(ValueError, match="beyond"):
        encode(BitMap64([POSITION_MAX + 1]))


def test_any_changed_byte_is_refused() -> None:
    blob = encode(np.array([1, 5, 1 << 33]))
    for place in range(len(blob)):
        changed = blob[:place] + bytes([blob[place] ^ 1]) + blob[place + 1 :]
        with pytest.raises(DamagedVector):
            decode(changed)


def test_a_blob_of_another_kind_is_refused_though_its_checksum_is_right() -> None:
    checked = b"\xd1\xd3\x39\x65" + encode(np.array([1]))[8:-4]
    other = struct.pack(">I", len(checked)) + checked + struct.pack(">I", zlib.crc32(checked))
    with pytest.raises(DamagedVector, match="it starts with d1d33965"):
        decode(other)


def test_any_missing_or_added_byte_is_refused() -> None:
    blob = encode(np.array([1, 5]))
    for length in range(len(blob)):
        with pytest.raises(DamagedVector):
            decode(blob[:length])
    with pytest.raises(DamagedVector):
        decode(blob + b"\x00")


@patient
@given(st.lists(POSITIONS.filter(bool), max_size=4))
def test_every_vector_of_a_puffin_file_is_read_back_by_its_place(
    tmp_path_factory: pytest.TempPathFactory, vectors: list[set[int]]
) -> None:
    path = tmp_path_factory.mktemp("puffin") / "deep" / "v.puffin"
    given_ = {f"data/é-{number}.parquet": BitMap64(positions) for number, positions in enumerate(vectors)}
    blobs, size, digest = write_puffin(str(path), given_, {})
    assert [blob.data_file for blob in blobs] == list(given_)
    assert [read_vector(str(path), blob.offset, blob.length, {}) for blob in blobs] == list(given_.values())
    assert size == path.stat().st_size
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_footer_is_what_iceberg_writes(tmp_path: Path) -> None:
    path = tmp_path / "v.puffin"
    blobs, _, _ = write_puffin(str(path), {"file:/é.parquet": BitMap64([3]), "b": BitMap64([1, 2])}, {})
    content = path.read_bytes()
    assert content[:4] == content[-4:] == b"PFA1"
    length, flags = struct.unpack("<II", content[-12:-4])
    assert flags == 0
    assert content[-16 - length : -12 - length] == b"PFA1"
    assert blobs == [Blob("file:/é.parquet", 4, blobs[0].length), Blob("b", 4 + blobs[0].length, blobs[1].length)]
    assert blobs[1].offset + blobs[1].length == len(content) - 16 - length
    footer = content[-12 - length : -12].decode()
    assert footer == (
        '{"blobs":[{"type":"deletion-vector-v1","fields":[2147483645],"snapshot-id":-1,"sequence-number":-1,'
        f'"offset":4,"length":{blobs[0].length},'
        '"properties":{"referenced-data-file":"file:/é.parquet","cardinality":"1"}},'
        '{"type":"deletion-vector-v1","fields":[2147483645],"snapshot-id":-1,"sequence-number":-1,'
        f'"offset":{blobs[1].offset},"length":{blobs[1].length},'
        '"properties":{"referenced-data-file":"b","cardinality":"2"}}],"properties":{"created-by":"frazil"}}'
    )
    json.loads(footer)


def test_a_puffin_file_is_created_once_and_never_replaced(tmp_path: Path) -> None:
    """H46."""
    path = tmp_path / "v.puffin"
    write_puffin(str(path), {"a": BitMap64([1])}, {})
    before = path.read_bytes()
    with pytest.raises(CatalogRefused):
        write_puffin(str(path), {"a": BitMap64([2])}, {})
    assert path.read_bytes() == before


def test_a_vector_without_positions_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="deletes nothing"):
        write_puffin(str(tmp_path / "v.puffin"), {"a": BitMap64()}, {})
    assert list(tmp_path.iterdir()) == []


def test_a_vector_at_the_wrong_place_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "v.puffin"
    (blob,), size, _ = write_puffin(str(path), {"a": BitMap64([1])}, {})
    for offset, length in [(blob.offset + 1, blob.length), (blob.offset, blob.length + 1), (size, 10)]:
        with pytest.raises(DamagedVector, match=r"v\.puffin"):
            read_vector(str(path), offset, length, {})
    with pytest.raises(TableChanged, match="is gone"):
        read_vector(str(tmp_path / "other.puffin"), 4, 10, {})
