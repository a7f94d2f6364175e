"""Changes on disk: what the change stream told between two cluster times, one file for each collection.

    add(collection, rows) --> buffers --chunks--> <session>/<segment>-<collection>.arrow
    close(upper, token) ---------------------------------------------> Segment

A file is Arrow's stream format with the columns of `reader.SPOOLED`; memory holds a chunk of each. All sessions of a
pipeline have one parent directory. Each holds a lock while it lives, so that a start finds what crashed ones left.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pyarrow as pa

from frazil.errors import StorageUnavailable
from frazil.sources.mongodb.position import ClusterTime
from frazil.sources.mongodb.reader import SPOOLED

_CHUNK_ROWS = 8192
_CHUNK_BYTES = 4 << 20
_LOCK = "in-use"


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

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files.values())


@dataclass(slots=True)
class _Buffer:
    path: Path
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_rows: int = 0
    waiting_size: int = 0
    rows: int = 0
    size: int = 0
    writer: pa.RecordBatchStreamWriter | None = None
    file: pa.OSFile | None = None

    def add(self, rows: pa.RecordBatch) -> int:
        size: int = rows.nbytes
        self.waiting.append(rows)
        self.waiting_rows += rows.num_rows
        self.waiting_size += size
        self.size += size
        self.rows += rows.num_rows
        if self.waiting_rows >= _CHUNK_ROWS or self.waiting_size >= _CHUNK_BYTES:
            self.flush()
        return size

    def flush(self) -> None:
        if not self.waiting:
            return
        if self.writer is None:
            self.file = pa.OSFile(str(self.path), "wb")
            self.writer = pa.ipc.new_stream(self.file, SPOOLED)
        self.writer.write_batch(pa.concat_batches(self.waiting))
        self.waiting, self.waiting_rows, self.waiting_size = [], 0, 0

    def close(self) -> None:
        self.flush()
        if self.writer is not None and self.file is not None:
            self.writer.close()
            self.file.close()


class SegmentSpool:
    """`directory` belongs to one session of one stream."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._number = 0
        self._open: dict[str, _Buffer] = {}
        self.rows = 0
        self.size = 0
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = (directory / _LOCK).open("w")
            _is_taken(self._lock)
        except OSError as error:
            raise _unusable(directory, error) from error

    def add(self, collection: str, rows: pa.RecordBatch) -> None:
        """SPOOLED rows, in their order. Raises StorageUnavailable if the disk does not take them."""
        buffer = self._open.get(collection)
        if buffer is None:
            path = self._directory / f"{self._number:08d}-{len(self._open):04d}.arrow"
            buffer = self._open[collection] = _Buffer(path)
        try:
            self.size += buffer.add(rows)
        except OSError as error:
            raise _unusable(self._directory, error) from error
        self.rows += rows.num_rows

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
        self._lock.close()


def forget(segment: Segment) -> None:
    """Removes its files."""
    for file in segment.files.values():
        Path(file.path).unlink(missing_ok=True)


def sweep(parent: Path) -> int:
    """Removes the directories of sessions that no longer live, and says how many there were."""
    swept = 0
    for lock in parent.glob(f"*/{_LOCK}"):
        try:
            with lock.open("r+") as held:
                if _is_taken(held):
                    shutil.rmtree(lock.parent, ignore_errors=True)
                    swept += 1
        except OSError:
            continue
    return swept


def _is_taken(lock: IO[str]) -> bool:
    """Whether the lock is ours now. Where a file system knows no locks nobody gets one, and nothing is swept."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _unusable(directory: Path, error: OSError) -> StorageUnavailable:
    return StorageUnavailable(
        f"the spool {directory} does not take changes: {error.strerror or error}",
        hint="Free or enlarge the disk, or point source.spool to another directory.",
        path=str(directory),
    )
