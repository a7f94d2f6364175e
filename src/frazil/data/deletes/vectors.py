"""Deletion vectors: which rows of a data file are gone, as Iceberg's version 3 keeps them.

    blob     length (4, big-endian) | D1 D3 39 64 | 64-bit roaring bitmap, portable form | CRC-32 (4, big-endian)
                 of magic + bitmap                                                            of magic + bitmap
    Puffin   PFA1 | blob | blob | ... | PFA1 | footer JSON | its length (4, little-endian) | flags (4) | PFA1

A manifest entry points straight at a blob, by offset and length; nobody needs the footer to read one. The bitmap's
portable form is what pyroaring's BitMap64 writes: the number of 32-bit bitmaps, then each with its upper half.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from array import array
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from frazil.errors import BadInput
from frazil.model.files import Blob
from frazil.storage.files.open_file import input_error, open_input, open_output

BLOB_TYPE = "deletion-vector-v1"
ROW_POSITION_ID = 2147483645
CREATED_BY = "frazil"
# The greatest position iceberg-java takes: it keeps an array of 32-bit bitmaps by upper half.
POSITION_MAX = ((1 << 31) - 2) << 32 | 0x80000000
_BLOB_MAGIC = bytes.fromhex("D1D33964")
_PUFFIN_MAGIC = b"PFA1"
_LENGTH_BYTES = _SUM_BYTES = 4


class DamagedVector(BadInput):
    """Bytes that are no deletion vector. To read the data file without it would bring deleted rows back."""


class PuffinFile(NamedTuple):
    """What was written: where each vector lies, in the order given; size and SHA-256 of the whole."""

    blobs: list[Blob]
    size: int
    digest: str


def to_bitmap(positions: NDArray[Any]) -> BitMap64:
    """A set of these positions. Raises ValueError for one that no vector can hold."""
    if len(positions) and (int(positions.min()) < 0 or int(positions.max()) > POSITION_MAX):
        raise ValueError(f"positions {positions.min()} to {positions.max()} are not all between 0 and {POSITION_MAX}")
    # pyroaring takes an array of Python's at once and goes over anything else one by one.
    return BitMap64(array("Q", positions.astype(np.uint64).tobytes()))


def to_positions(bitmap: BitMap64) -> NDArray[np.int64]:
    """The positions in a set, ascending."""
    return np.frombuffer(bitmap.to_array(), np.uint64).astype(np.int64)


def encode(positions: NDArray[Any] | BitMap64) -> bytes:
    """The blob of one vector."""
    # A copy in the smallest form: what was united or added to one by one may be far larger than it must be.
    bitmap = BitMap64(positions if isinstance(positions, BitMap64) else to_bitmap(positions), optimize=True)
    if bitmap and bitmap.max() > POSITION_MAX:
        raise ValueError(f"position {bitmap.max()} is beyond {POSITION_MAX}")
    checked = _BLOB_MAGIC + bitmap.serialize()
    return len(checked).to_bytes(_LENGTH_BYTES, "big") + checked + zlib.crc32(checked).to_bytes(_SUM_BYTES, "big")


def decode(blob: bytes, origin: str = "") -> BitMap64:
    """The positions in a blob. Raises DamagedVector, naming `origin`, unless length, magic and checksum are right."""
    length = int.from_bytes(blob[:_LENGTH_BYTES], "big")
    checked = memoryview(blob)[_LENGTH_BYTES : _LENGTH_BYTES + length]
    if len(blob) != _LENGTH_BYTES + length + _SUM_BYTES or length < len(_BLOB_MAGIC):
        raise _damaged(origin, f"it has {len(blob)} bytes and says {length} of them are the bitmap")
    if checked[: len(_BLOB_MAGIC)] != _BLOB_MAGIC:
        raise _damaged(origin, f"it starts with {checked[: len(_BLOB_MAGIC)].hex()}")
    if zlib.crc32(checked) != int.from_bytes(blob[-_SUM_BYTES:], "big"):
        raise _damaged(origin, "its checksum does not match")
    try:
        return BitMap64.deserialize(bytes(checked[len(_BLOB_MAGIC) :]))
    except (ValueError, RuntimeError, MemoryError) as error:
        raise _damaged(origin, f"its bitmap cannot be read: {error}") from error


def write_puffin(path: str, vectors: Mapping[str, BitMap64], storage: Mapping[str, str]) -> PuffinFile:
    """Creates a Puffin file with one vector for each data file, complete and on the disk when this returns.

    Raises CatalogRefused or StorageUnavailable naming the path, ValueError for a vector without a position.
    """
    pieces, blobs, entries = [_PUFFIN_MAGIC], list[Blob](), list[dict[str, Any]]()
    offset = len(_PUFFIN_MAGIC)
    for data_file, bitmap in vectors.items():
        if not bitmap:
            raise ValueError(f"a vector for {data_file} that deletes nothing")
        piece = encode(bitmap)
        pieces.append(piece)
        blobs.append(Blob(data_file, offset, len(piece)))
        entries.append(_footer_entry(data_file, offset, len(piece), len(bitmap)))
        offset += len(piece)
    footer = json.dumps(
        {"blobs": entries, "properties": {"created-by": CREATED_BY}}, ensure_ascii=False, separators=(",", ":")
    ).encode()
    pieces += [_PUFFIN_MAGIC, footer, len(footer).to_bytes(4, "little"), bytes(4), _PUFFIN_MAGIC]
    digest = hashlib.sha256()
    output = open_output(path, storage)
    try:
        for piece in pieces:
            digest.update(piece)
            output.write(memoryview(piece))
        output.sync()
    finally:
        output.close()
    return PuffinFile(blobs, sum(map(len, pieces)), digest.hexdigest())


def read_vector(path: str, offset: int, length: int, storage: Mapping[str, str]) -> BitMap64:
    """The vector at these bytes of a Puffin file. Raises DamagedVector, and what `open_input` raises."""
    with open_input(path, storage) as source:
        try:
            blob = source.read_at(length, offset)
        except OSError as error:
            raise input_error(error, path) from error
    return decode(blob, f"{path}, bytes {offset} to {offset + length}")


def _footer_entry(data_file: str, offset: int, length: int, cardinality: int) -> dict[str, Any]:
    # Snapshot and sequence number are those that the commit gives the file, which nobody knows yet.
    return {
        "type": BLOB_TYPE,
        "fields": [ROW_POSITION_ID],
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": offset,
        "length": length,
        "properties": {"referenced-data-file": data_file, "cardinality": str(cardinality)},
    }


def _damaged(origin: str, reason: str) -> DamagedVector:
    return DamagedVector(
        f"damaged deletion vector{f' in {origin}' if origin else ''}: {reason}",
        hint="Restore the Puffin file, or roll the table back to a snapshot before it.",
        origin=origin,
    )
