"""Changes on disk: what the change stream told between two cluster times, one file for each collection.

    add(collection, key, position, op, payload) --> buffers --chunks--> <segment>-<collection>.arrow
    close(upper, token) ---------------------------------------------> Segment

A file is Arrow's stream format with the columns of `reader.SPOOLED`; memory holds a chunk of each.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from frazil.errors import StorageUnavailable
from frazil.model.change import Op
from frazil.model.position import ClusterTime
from frazil.sources.mongodb.reader import SPOOLED

_CHUNK_ROWS = 8192
_CHUNK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class SpoolFile:
    path: str
    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class Segment:
    """All changes up to `upper` that no earlier segment holds, by collection. `token` resumes the stream behind it."""

    upper: ClusterTime
    files: Mapping[str, SpoolFile]
    token: str


@dataclass(slots=True)
class _Buffer:
    path: Path
    keys: list[str] = field(default_factory=list)
    majors: list[int] = field(default_factory=list)
    minors: list[int] = field(default_factory=list)
    ops: list[int] = field(default_factory=list)
    payloads: list[bytes | None] = field(default_factory=list)
    waiting: int = 0
    rows: int = 0
    size: int = 0
    writer: pa.RecordBatchStreamWriter | None = None
    file: pa.OSFile | None = None

    def add(self, key: str, position: tuple[int, int], op: Op, payload: bytes | None) -> int:
        self.keys.append(key)
        self.majors.append(position[0])
        self.minors.append(position[1])
        self.ops.append(int(op))
        self.payloads.append(payload)
        size = len(key) + (0 if payload is None else len(payload)) + 24
        self.waiting += size
        self.size += size
        self.rows += 1
        if len(self.keys) >= _CHUNK_ROWS or self.waiting >= _CHUNK_BYTES:
            self.flush()
        return size

    def flush(self) -> None:
        if not self.keys:
            return
        if self.writer is None:
            self.file = pa.OSFile(str(self.path), "wb")
            self.writer = pa.ipc.new_stream(self.file, SPOOLED)
        columns = (self.keys, self.majors, self.minors, self.ops, self.payloads)
        arrays = [pa.array(values, f.type) for values, f in zip(columns, SPOOLED, strict=True)]
        self.writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=SPOOLED))
        for values in columns:
            values.clear()
        self.waiting = 0

    def close(self) -> None:
        self.flush()
        if self.writer is not None and self.file is not None:
            self.writer.close()
            self.file.close()


class Spool:
    """`directory` belongs to one session of one stream."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._number = 0
        self._open: dict[str, _Buffer] = {}
        self.rows = 0
        self.size = 0
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unusable(directory, error) from error

    def add(self, collection: str, key: str, position: tuple[int, int], op: Op, payload: bytes | None) -> None:
        """Raises StorageUnavailable if the disk does not take it."""
        buffer = self._open.get(collection)
        if buffer is None:
            path = self._directory / f"{self._number:08d}-{len(self._open):04d}.arrow"
            buffer = self._open[collection] = _Buffer(path)
        try:
            self.size += buffer.add(key, position, op, payload)
        except OSError as error:
            raise _unusable(self._directory, error) from error
        self.rows += 1

    def close(self, upper: ClusterTime, token: str) -> Segment:
        """Ends the open segment and begins the next one."""
        try:
            for buffer in self._open.values():
                buffer.close()
        except OSError as error:
            raise _unusable(self._directory, error) from error
        files = {name: SpoolFile(str(one.path), one.rows, one.size) for name, one in self._open.items()}
        self._open, self.rows, self.size = {}, 0, 0
        self._number += 1
        return Segment(upper, files, token)

    def remove(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)


def forget(segment: Segment) -> None:
    """Removes its files."""
    for file in segment.files.values():
        Path(file.path).unlink(missing_ok=True)


def _unusable(directory: Path, error: OSError) -> StorageUnavailable:
    return StorageUnavailable(
        f"the spool {directory} does not take changes: {error.strerror or error}",
        hint="Free or enlarge the disk, or point source.spool to another directory.",
        path=str(directory),
    )
