"""The keys of one data file, sorted, with their positions.

    rows of the file   0:k7  1:k2  2:k7  3:k5
    index              hash  h2 h5 h7 h7     sorted
                       pos    1  3  0  2
                       key   k2 k5 k7 k7     only where the hash is not the key itself

    find({k7, k9}) --> [0, 2]

On disk it is one Arrow IPC file, mapped and used in place. Its header names version, key and counts, and has a
checksum of everything else: what is not exactly what was saved is refused, and built again by whoever needs it.
"""

from __future__ import annotations

import json
import mmap
import os
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil.data.keys.codec import Keys
from frazil.errors import Transient

VERSION = 1
_HEADER, _HEADER_SUM = b"frazil.index", b"frazil.index.sum"
_SMALL_POSITIONS = 1 << 32
Positions = NDArray[np.int64]


class DamagedIndex(Transient):
    """A saved index that is not whole, or of another version, key or file: it is built again from the data file."""


@dataclass(frozen=True, slots=True, eq=False)
class KeyIndex:
    """`signature` is that of the codec that made the keys; `records` counts the rows of the data file. `keys` are
    sorted by hash, `positions` lie beside them. A row without an entry is never found."""

    signature: str
    records: int
    keys: Keys
    positions: NDArray[Any]
    mapped: mmap.mmap | None = None

    @classmethod
    def build(
        cls, signature: str, keys: Keys, *, positions: NDArray[Any] | None = None, records: int | None = None
    ) -> KeyIndex:
        """Of the keys of one data file. Key i is that of row i, or of row `positions[i]` in a file of `records`."""
        order = keys.order()
        rows = order if positions is None else positions[order]
        if records is None:
            if positions is not None:
                raise ValueError("whoever names positions says how many rows there are")
            records = len(keys)
        width = np.uint32 if records <= _SMALL_POSITIONS else np.uint64
        return cls(signature, records, keys.take(order), rows.astype(width))

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + int(self.positions.nbytes)

    @property
    def is_intact(self) -> bool:
        """False if somebody cut the mapped file short: touching what is gone would end the process."""
        return self.mapped is None or self.mapped.size() == len(self.mapped)

    def find(self, needles: Keys) -> Positions:
        """The positions of all rows whose key is among the needles, ascending, each once."""
        entries, _ = self._pairs(needles)
        positions = np.sort(self.positions[entries].astype(np.int64))
        # Needles may name a key twice.
        is_new = np.ones(len(positions), np.bool_)
        is_new[1:] = positions[1:] != positions[:-1]
        return positions[is_new]

    def match(self, needles: Keys) -> tuple[Positions, Positions]:
        """All pairs of a row and a needle with the same key: positions, and numbers of needles. Ordered by position,
        then by needle."""
        entries, numbers = self._pairs(needles)
        positions = self.positions[entries].astype(np.int64)
        by_position = np.lexsort((numbers, positions))
        return positions[by_position], numbers[by_position]

    def _pairs(self, needles: Keys) -> tuple[Positions, Positions]:
        """Numbers of entries and of needles that have the same key."""
        order = None if needles.is_sorted else needles.order()
        hashes = needles.hashes if order is None else needles.hashes[order]
        # Searching the smaller side in the larger one costs the smaller one's length times a logarithm.
        if len(hashes) <= len(self):
            wanted, entries = _equal_pairs(hashes, self.keys.hashes)
        else:
            entries, wanted = _equal_pairs(self.keys.hashes, hashes)
        numbers = wanted if order is None else order[wanted]
        same = self.keys.same(entries, needles, numbers)
        return entries[same], numbers[same]

    def save(self, path: str, owner: str = "") -> None:
        """Writes the whole file; `owner` says what the index is of. Raises OSError."""
        batch = self._batch()
        header = json.dumps(
            {
                "version": VERSION,
                "key": self.signature,
                "records": self.records,
                "entries": len(self),
                "owner": owner,
                "sum": _checksum(batch),
            }
        ).encode()
        metadata = {_HEADER: header, _HEADER_SUM: str(zlib.crc32(header)).encode()}
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, batch.schema.with_metadata(metadata)) as writer:
            writer.write_batch(batch.replace_schema_metadata(metadata))

    @classmethod
    def open(cls, path: str, signature: str, owner: str = "") -> KeyIndex:
        """Maps a saved index. Raises FileNotFoundError, or DamagedIndex for anything but what `save` made of this
        key and owner."""
        try:
            return cls._open(path, signature, owner)
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise _damaged(path, str(error)) from error

    @classmethod
    def _open(cls, path: str, signature: str, owner: str) -> KeyIndex:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            mapped = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
        finally:
            os.close(descriptor)
        reader = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(mapped)))
        metadata = reader.schema.metadata or {}
        header_text = metadata[_HEADER]
        if zlib.crc32(header_text) != int(metadata[_HEADER_SUM]):
            raise _damaged(path, "its header was altered")
        header = json.loads(header_text)
        for name, expected in (("version", VERSION), ("key", signature), ("owner", owner)):
            if header[name] != expected:
                raise _damaged(path, f"its {name} is {header[name]!r}, not {expected!r}")
        if reader.num_record_batches != 1:
            raise _damaged(path, f"it has {reader.num_record_batches} parts")
        batch = reader.get_batch(0)
        batch.validate()
        if batch.num_rows != header["entries"] or _checksum(batch) != header["sum"]:
            raise _damaged(path, "its content was altered")
        exact = batch.column("key") if "key" in batch.schema.names else None
        keys = Keys(batch.column("hash").to_numpy(), exact)
        return cls(header["key"], header["records"], keys, batch.column("position").to_numpy(), mapped)

    def _batch(self) -> pa.RecordBatch:
        columns = {"hash": pa.array(self.keys.hashes), "position": pa.array(self.positions)}
        return pa.record_batch(columns if self.keys.exact is None else {**columns, "key": self.keys.exact})


def _equal_pairs(few: NDArray[np.uint64], many: NDArray[np.uint64]) -> tuple[Positions, Positions]:
    """All (i, j) with few[i] == many[j]. Both are sorted."""
    if not len(many):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    first = np.searchsorted(many, few)
    hits = np.flatnonzero(many[np.minimum(first, len(many) - 1)] == few)
    first = first[hits]
    counts = np.ones(len(hits), np.int64)
    # Most keys are there once: only for those that are not, the end of their run is worth a search.
    runs = np.flatnonzero(many[np.minimum(first + 1, len(many) - 1)] == few[hits])
    counts[runs] = np.searchsorted(many, few[hits[runs]], side="right") - first[runs]
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(hits, counts), np.arange(total) - np.repeat(ends - counts - first, counts)


def _checksum(batch: pa.RecordBatch) -> int:
    """Over the types and every byte that an answer can depend on; not over padding."""
    checksum = zlib.crc32(str([(field.name, str(field.type)) for field in batch.schema]).encode())
    for column in batch.columns:
        if column.null_count or column.offset:
            raise ValueError("an index has neither nulls nor slices")
        buffers = column.buffers()
        if pa.types.is_large_binary(column.type):
            offsets = np.frombuffer(buffers[1], np.int64, len(column) + 1) if len(column) else np.zeros(1, np.int64)
            checksum = zlib.crc32(offsets.data, checksum)
            used = int(offsets[-1])
        else:
            used = len(column) * column.type.bit_width // 8
        data = memoryview(buffers[-1] or b"")[:used]
        if len(data) != used:
            raise ValueError(f"column {column.type} has {len(data)} bytes of {used}")
        checksum = zlib.crc32(data, checksum)
    return checksum


def _damaged(path: str, reason: str) -> DamagedIndex:
    return DamagedIndex(
        f"the index {path} cannot be used: {reason}",
        hint="Nothing is lost: it is built again from the data file. If it happens often, look at the local disk.",
        path=path,
    )
