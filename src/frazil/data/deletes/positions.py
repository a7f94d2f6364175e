"""Position delete files: which rows of which data files are gone, as Iceberg's version 2 keeps them.

    {file a: {3, 7}, file b: {0}}  <-->  Parquet rows (file_path, pos): (a, 3), (a, 7), (b, 0)

Rows are sorted by file, then position. The bounds of `file_path` in the manifest are whole paths, never cut short:
a reader that sees the same lower and upper bound knows the one data file that the deletes are for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap64

from frazil.data.deletes.vectors import to_bitmap, to_positions
from frazil.data.parquet_writer import ClosedFile, RollingWriter
from frazil.data.read.parquet import BATCH_ROWS, bound_name, open_parquet, unreadable
from frazil.model.files import ColumnMetrics
from frazil.model.schema import LONG, STRING, Field
from frazil.model.write import ParquetSettings

FILE_PATH = Field(2147483546, "file_path", STRING, required=True)
POS = Field(2147483545, "pos", LONG, required=True)
_ONE_FILE = 1 << 62


def write_positions(
    path: str, positions: Mapping[str, BitMap64], settings: ParquetSettings, storage: Mapping[str, str]
) -> ClosedFile:
    """Creates one position delete file. Raises CatalogRefused or StorageUnavailable naming the path, ValueError if
    there is nothing to delete."""
    data_files = sorted((name for name, bitmap in positions.items() if bitmap), key=str.encode)
    if not data_files:
        raise ValueError(f"{path}: a delete file that deletes nothing")
    writer = RollingWriter((FILE_PATH, POS), lambda _: path, replace(settings, target_file_bytes=_ONE_FILE), storage)
    try:
        for data_file in data_files:
            rows = to_positions(positions[data_file])
            for start in range(0, len(rows), BATCH_ROWS):
                part = pa.array(rows[start : start + BATCH_ROWS])
                writer.write(pa.RecordBatch.from_arrays([pa.repeat(data_file, len(part)), part], schema=writer.schema))
        (closed,) = writer.close()
    except BaseException:
        writer.abandon()
        raise
    lower, upper = data_files[0].encode(), data_files[-1].encode()
    return replace(closed, metrics=tuple(_with_whole_paths(column, lower, upper) for column in closed.metrics))


def read_positions(path: str, storage: Mapping[str, str], data_file: str | None = None) -> dict[str, BitMap64]:
    """The deleted positions by data file, of any writer's position delete file; of `data_file` alone if it is given.

    Raises UnreadableFile, and what `open_input` raises.
    """
    found: dict[str, BitMap64] = {}
    try:
        for name, part in _read_parts(path, storage, data_file):
            found[name] = found[name] | to_bitmap(part) if name in found else to_bitmap(part)
    except ValueError as error:
        raise unreadable(path, str(error)) from error
    return found


def _read_parts(
    path: str, storage: Mapping[str, str], data_file: str | None
) -> Iterator[tuple[str, NDArray[np.int64]]]:
    with open_parquet(path, storage) as file:
        names = [bound_name(file.schema_arrow, field) for field in (FILE_PATH, POS)]
        if None in names:
            raise unreadable(path, f"no position deletes: its columns are {file.schema_arrow.names}")
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=names):
            paths, rows = batch.column(names[0]), batch.column(names[1])
            if paths.null_count or rows.null_count:
                raise unreadable(path, "a position delete without file or position")
            if pa.types.is_dictionary(paths.type):
                paths = paths.dictionary_decode()
            if data_file is not None:
                wanted = pc.equal(paths, pa.scalar(data_file, paths.type))
                paths, rows = paths.filter(wanted), rows.filter(wanted)
            yield from _by_file(paths, rows.cast(pa.int64()).to_numpy())


def _by_file(paths: pa.Array, rows: NDArray[np.int64]) -> Iterator[tuple[str, NDArray[np.int64]]]:
    encoded = paths.dictionary_encode()
    codes = encoded.indices.to_numpy()
    ordered = rows[np.argsort(codes, kind="stable")]
    start = 0
    for name, count in zip(encoded.dictionary.to_pylist(), np.bincount(codes).tolist(), strict=True):
        yield name, ordered[start : start + count]
        start += count


def _with_whole_paths(column: ColumnMetrics, lower: bytes, upper: bytes) -> ColumnMetrics:
    return replace(column, lower=lower, upper=upper) if column.field_id == FILE_PATH.id else column
