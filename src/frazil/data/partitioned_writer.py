"""Writes the rows of one table and epoch into files of their partitions, with few files open at a time.

    rows --by partition--> one of the first OPEN_MAX partitions --> its own writer, open until the end
                     `---> any later partition ----------------> a spool on the local disk, sorted by partition
    close() --> the open writers, one after the other; then the spool, partition by partition, through one writer

So an epoch makes one data file for each partition it touches (more where the target size says so), however its rows
are mixed, and what is in memory does not grow with the number of partitions: the bytes that wait in all open writers
together are bounded (the fullest one writes a row group first), and the spool is read back as mapped memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from frazil.data import parquet_writer as parquet
from frazil.data.parquet_writer import ClosedFile, RollingWriter
from frazil.data.partition_values import Partition, by_partition
from frazil.data.transforms import BoundField
from frazil.storage.files.spill import SpillFile

OPEN_MAX = 16


@dataclass(frozen=True, slots=True)
class PartitionFile:
    """A closed file, and the partition values that all of its rows share, in JSON form."""

    file: ClosedFile
    partition: tuple[Any, ...]


class PartitionedWriter:
    """Takes batches of the table's Arrow schema. `new_writer` makes the writer of one more partition; no two of them
    may name a file alike."""

    def __init__(self, fields: Sequence[BoundField], new_writer: Callable[[], RollingWriter]) -> None:
        self._fields = tuple(fields)
        self._new_writer = new_writer
        self._open: dict[str, tuple[Partition, RollingWriter]] = {}
        self._spool: SpillFile | None = None
        self._spooled: dict[str, tuple[Partition, int]] = {}
        self._finishing: RollingWriter | None = None

    def write(self, rows: pa.RecordBatch) -> None:
        """Raises what the writers raise, and StorageUnavailable for a local disk that takes no more."""
        late: list[tuple[int, npt.NDArray[np.int64]]] = []
        for partition, places in by_partition(rows, self._fields):
            writer = self._writer_of(partition)
            if writer is None:
                late.append((self._number_of(partition), np.arange(rows.num_rows) if places is None else places))
            else:
                # Taken, not sliced: a slice that waits would keep the whole batch of all partitions in memory.
                writer.write(rows if places is None else rows.take(pa.array(places)))
                self._make_room()
        if late:
            self._to_spool(rows, late)

    def close(self) -> tuple[PartitionFile, ...]:
        """All files of all partitions."""
        closed: list[PartitionFile] = []
        for key in list(self._open):
            partition, writer = self._open[key]
            closed.extend(PartitionFile(file, partition.values) for file in writer.close())
            del self._open[key]
        if self._spool is not None:
            self._spool.seal()
            for partition, number in self._spooled.values():
                self._finishing = self._new_writer()
                for part in self._spool.read(number):
                    self._finishing.write(part)
                closed.extend(PartitionFile(file, partition.values) for file in self._finishing.close())
            self._finishing = None
            self._spool.release()
        return tuple(closed)

    def abandon(self) -> None:
        """Releases open files after a failure; what they hold so far is never reported."""
        for _, writer in self._open.values():
            writer.abandon()
        if self._finishing is not None:
            self._finishing.abandon()
        if self._spool is not None:
            self._spool.release()

    def _writer_of(self, partition: Partition) -> RollingWriter | None:
        """The partition's writer, a new one if there is room; None for one that goes to the spool."""
        if partition.key not in self._open:
            if len(self._open) >= OPEN_MAX:
                return None
            self._open[partition.key] = partition, self._new_writer()
        return self._open[partition.key][1]

    def _make_room(self) -> None:
        """The writers together hold no more than one alone may."""
        writers = [writer for _, writer in self._open.values()]
        waiting = sum(writer.waiting_bytes for writer in writers)
        while waiting > parquet.WAITING_BYTES_MAX:
            fullest = max(writers, key=lambda writer: writer.waiting_bytes)
            waiting -= fullest.waiting_bytes
            fullest.flush()

    def _number_of(self, partition: Partition) -> int:
        return self._spooled.setdefault(partition.key, (partition, len(self._spooled)))[1]

    def _to_spool(self, rows: pa.RecordBatch, late: list[tuple[int, npt.NDArray[np.int64]]]) -> None:
        if self._spool is None:
            self._spool = SpillFile(rows.schema)
        places = np.concatenate([places for _, places in late])
        numbers = np.repeat([number for number, _ in late], [len(places) for _, places in late])
        self._spool.add(rows.take(pa.array(places)), numbers)
