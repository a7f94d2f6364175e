"""A local file for rows whose turn to be written has not come, found again by partition.

    add(rows, partition numbers) --> waiting --SPOOL_BYTES--> sorted by number --> one batch of an Arrow file
                                                                  `-- parts[number]: batch, first row, rows
    seal() --> the file is mapped into memory; read(number) --> the partition's rows, without a copy

The file has no name from the moment it is made, so that no crash can leave it behind. It lies in the folder for
temporary files (TMPDIR).
"""

from __future__ import annotations

import mmap
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from frazil.storage.files.open_file import storage_error

# Arrow bytes that wait to become one sorted batch.
SPOOL_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of one partition within one batch of the file."""

    batch: int
    start: int
    rows: int


class SpillFile:
    """Rows of one schema, numbered by partition. First `add`, then `seal`, then `read`; `release` at the end."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._waiting: list[pa.RecordBatch] = []
        self._numbers: list[npt.NDArray[np.int64]] = []
        self._waiting_bytes = 0
        self._parts: defaultdict[int, list[_Part]] = defaultdict(list)
        self._batches: list[pa.RecordBatch] = []
        self._written = 0
        try:
            self._file: IO[bytes] = tempfile.TemporaryFile(prefix="frazil-spool-")  # noqa: SIM115 (open until release)
        except OSError as error:
            raise storage_error(error, self._name) from error
        self._writer = pa.ipc.new_file(pa.PythonFile(self._file, mode="w"), schema)

    def add(self, rows: pa.RecordBatch, numbers: npt.NDArray[np.int64]) -> None:
        """Takes rows with the number of each one's partition. Raises StorageUnavailable for a full disk."""
        self._waiting.append(rows)
        self._numbers.append(numbers)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= SPOOL_BYTES:
            self._write()

    def seal(self) -> None:
        """Nothing is added from here on."""
        if self._waiting:
            self._write()
        try:
            self._writer.close()
            self._file.flush()
            mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise storage_error(error, self._name) from error
        reader = pa.ipc.open_file(pa.py_buffer(mapped))
        self._batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of one partition in the order they came."""
        for part in self._parts[number]:
            yield self._batches[part.batch].slice(part.start, part.rows)

    def release(self) -> None:
        """Gives the disk back, once nobody holds rows that were read any more."""
        self._batches = []
        self._waiting = []
        self._file.close()

    @property
    def _name(self) -> str:
        return f"a temporary file in {tempfile.gettempdir()}"

    def _write(self) -> None:
        rows = pa.Table.from_batches(self._waiting, self._schema)
        numbers = np.concatenate(self._numbers)
        self._waiting, self._numbers, self._waiting_bytes = [], [], 0
        order = np.argsort(numbers, kind="stable")
        ordered = numbers[order]
        starts = np.concatenate([[0], np.flatnonzero(np.diff(ordered)) + 1])
        ends = np.append(starts[1:], len(ordered))
        (batch,) = rows.take(pa.array(order)).combine_chunks().to_batches()
        try:
            self._writer.write_batch(batch)
        except OSError as error:
            raise storage_error(error, self._name) from error
        for number, start, end in zip(ordered[starts].tolist(), starts.tolist(), ends.tolist(), strict=True):
            self._parts[number].append(_Part(self._written, start, end - start))
        self._written += 1
