"""Row maps: where the rows of sorted files came from, kept beside them until they are published.

    rows as written, some at a time --RowMapWriter--> Parquet: input, position, place      sorted by input and position
    deleted rows of inputs --Question--> only row groups that may have some of them --> places among the rows written

A row map is for one writer's files, one after the other: a place counts their rows from the first. Nobody commits it;
it goes when the run's folder is swept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyroaring import BitMap64

from frazil.data.deletes.vectors import to_bitmap, to_positions
from frazil.data.parquet_writer import RollingWriter
from frazil.data.read.parquet import open_parquet, unreadable
from frazil.model.compaction import RowMap
from frazil.model.schema import INT, LONG, Field
from frazil.model.write import ParquetSettings

_FIELDS = (Field(1, "input", INT, True), Field(2, "position", LONG, True), Field(3, "place", LONG, True))
_ROW_GROUP = 1 << 16
_ONE_FILE = 1 << 62
Numbers = NDArray[np.int64]


class RowMapWriter:
    """Of one file, made with the first row."""

    def __init__(self, path: str, settings: ParquetSettings, storage: Mapping[str, str]) -> None:
        own = replace(settings, target_file_bytes=_ONE_FILE, row_group_rows=_ROW_GROUP, dictionary=False)
        self._path = path
        self._writer = RollingWriter(_FIELDS, lambda _: path, own, storage)
        self._rows = 0

    def add(self, inputs: NDArray[Any], positions: Numbers) -> None:
        """Rows in the order in which they are written. What is added at once can be found quickly: sorted, it falls
        into row groups of few inputs."""
        order = np.lexsort((positions, inputs))
        columns = [inputs[order].astype(np.int32), positions[order].astype(np.int64), self._rows + order]
        schema = self._writer.schema
        self._writer.write(pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=schema))
        self._writer.flush()
        self._rows += len(inputs)

    def close(self, files: int) -> RowMap:
        """The row map of so many files. Raises AssertionError if there was no row."""
        (closed,) = self._writer.close()
        if closed.records != self._rows:
            raise AssertionError(f"{self._path} has {closed.records} rows of {self._rows}")
        return RowMap(self._path, files, self._rows)

    def abandon(self) -> None:
        self._writer.abandon()


@dataclass(frozen=True, slots=True)
class Question:
    """Where rows of inputs went. `written` are the rows of each of the row map's files; `deleted` are the rows asked
    for, by the number of their input, as roaring bitmaps. Picklable."""

    row_map: RowMap
    written: tuple[int, ...]
    deleted: Mapping[int, bytes]

    def __post_init__(self) -> None:
        if sum(self.written) != self.row_map.rows:
            raise ValueError(
                f"{self.row_map.path} is of {self.row_map.rows} rows, and {sum(self.written)} were written"
            )

    def follow(self, storage: Mapping[str, str]) -> dict[int, BitMap64]:
        """The rows that they became, of those of the row map's files that have some, by number among them. Raises
        TableChanged if the row map is gone, UnreadableFile, StorageUnavailable."""
        wanted = {number: to_positions(BitMap64.deserialize(rows)) for number, rows in self.deleted.items()}
        found = [np.empty(0, np.int64)]
        with open_parquet(self.row_map.path, storage) as file:
            if file.metadata.num_rows != self.row_map.rows:
                raise unreadable(
                    self.row_map.path, f"it has {file.metadata.num_rows} rows instead of {self.row_map.rows}"
                )
            for number in range(file.num_row_groups):
                if _may_have(file.metadata.row_group(number), wanted):
                    found.append(_places(file.read_row_group(number), wanted))
        places = np.concatenate(found)
        starts = np.concatenate([[0], np.cumsum(self.written, dtype=np.int64)])
        files = np.searchsorted(starts, places, side="right") - 1
        return {int(number): to_bitmap(places[files == number] - starts[number]) for number in np.unique(files)}


def _may_have(group: pq.RowGroupMetaData, wanted: Mapping[int, Numbers]) -> bool:
    inputs, positions = (group.column(place).statistics for place in (0, 1))
    if not all(one is not None and one.has_min_max for one in (inputs, positions)):
        return True
    return any(
        inputs.min <= number <= inputs.max
        and np.searchsorted(rows, positions.min) < np.searchsorted(rows, positions.max, side="right")
        for number, rows in wanted.items()
    )


def _places(rows: pa.Table, wanted: Mapping[int, Numbers]) -> Numbers:
    inputs, positions, places = (rows.column(field.name).to_numpy() for field in _FIELDS)
    found = [np.empty(0, np.int64)]
    # Rows lie by input and position, unless the group holds parts of two that were added one after the other.
    for number in np.unique(inputs).tolist():
        if number in wanted:
            mine = inputs == number
            found.append(places[mine][np.isin(positions[mine], wanted[number])])
    return np.concatenate(found)
