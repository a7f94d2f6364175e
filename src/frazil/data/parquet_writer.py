"""Writes rows into Parquet files of a bounded size, and says of each what a manifest must know.

    write(batch) --> waiting rows --enough for a row group--> open file --target size reached--> ClosedFile
                                                               |  hash, size: of the bytes on their way
                                                               `- metrics: of the rows on their way
    close() --> what waits, footer, sync, close --> all ClosedFiles
    abandon() --> handles released; nothing is reported, nothing is removed

At most one row group of rows waits in memory; who has several writers open shares the bytes among them by `flush`.
Rows are sorted when they leave the waiting room, if they are to be sorted at all. A file counts only after its footer
is synced: an error before that raises, and the path is never reported.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from frazil.data.arrow_types import arrow_schema, leaves
from frazil.data.column_metrics import FileMetrics, has_order, split_offsets
from frazil.data.row_sort import Sort
from frazil.errors import FrazilError
from frazil.model.files import ColumnMetrics
from frazil.model.metrics_modes import ALL_TOLD, MetricsModes
from frazil.model.schema import BOOLEAN, Field
from frazil.model.write import ParquetSettings
from frazil.storage.files.open_file import Output, open_output, storage_error

# Arrow bytes that may wait for a row group, whatever the settings say about rows: twice that much in each task, once
# for data, be it of one writer or of one for each partition, and once for deletes.
WAITING_BYTES_MAX = 64 << 20
# Of the values of one column in one row group. A column whose values hardly repeat leaves its dictionary early: with
# numbers and names that are all different, files are written a quarter faster and are a sixth smaller than with
# Parquet's 1 MB, and Spark reads them a tenth faster (measured). Some thousand different values still have one.
DICTIONARY_BYTES_MAX = 128 << 10
# A reader that asks for a key which a row group does not have reads it nevertheless, once in a hundred times.
_BLOOM_FALSE_POSITIVES = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedFile:
    """A file that is whole and on the disk."""

    path: str
    records: int
    size: int
    digest: str
    metrics: tuple[ColumnMetrics, ...]
    split_offsets: tuple[int, ...]

    @property
    def facts(self) -> dict[str, Any]:
        """What whoever reports the file takes over as it is."""
        return {name: getattr(self, name) for name in self.__slots__}


class RollingWriter:
    """Files of one schema; `path_of(n)` names the n-th. No file is made before there is a row for it.

    `sort` orders the rows of each row group. `bloom` names columns that get a bloom filter in each row group. `metrics`
    say how much is told of each column.
    """

    def __init__(
        self,
        fields: Sequence[Field],
        path_of: Callable[[int], str],
        settings: ParquetSettings,
        storage: Mapping[str, str],
        *,
        sort: Sort | None = None,
        bloom: Sequence[str] = (),
        metrics: MetricsModes = ALL_TOLD,
    ) -> None:
        self.schema = arrow_schema(fields)
        self._fields = tuple(fields)
        self._sort = sort
        self._bloom = tuple(bloom)
        self._metrics = metrics
        self._path_of = path_of
        self._settings = settings
        self._storage = storage
        self._bytes_max = min(WAITING_BYTES_MAX, settings.target_file_bytes)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self._open: _OpenFile | None = None
        self._closed: list[ClosedFile] = []

    @property
    def waiting_bytes(self) -> int:
        """Arrow bytes of the rows that wait for a row group."""
        return self._waiting_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        """Takes a batch of exactly `schema`. Raises CatalogRefused or StorageUnavailable naming the path."""
        rows_max = self._settings.row_group_rows
        while batch.num_rows:
            part = batch.slice(0, rows_max - self._waiting_rows)
            batch = batch.slice(part.num_rows)
            self._waiting.append(part)
            self._waiting_rows += part.num_rows
            self._waiting_bytes += part.nbytes
            if self._waiting_rows >= rows_max or self._waiting_bytes >= self._bytes_max:
                self._write_row_group()

    def flush(self) -> None:
        """Writes what waits as a row group of its own."""
        if self._waiting_rows:
            self._write_row_group()

    def close(self) -> tuple[ClosedFile, ...]:
        """All files, the last one completed now."""
        self.flush()
        self._roll()
        return tuple(self._closed)

    def abandon(self) -> None:
        """Releases the open file after a failure elsewhere."""
        self._waiting = []
        if self._open is not None:
            self._open.abandon()

    def _write_row_group(self) -> None:
        rows = pa.Table.from_batches(self._waiting, self.schema)
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        if self._sort is not None:
            rows = self._sort(rows)
        if self._open is None:
            path = self._path_of(len(self._closed))
            filters = self._bloom_filters(rows.num_rows)
            gathered = FileMetrics(self._fields, self._metrics)
            self._open = _OpenFile(path, self.schema, self._fields, self._settings, self._storage, filters, gathered)
        self._open.write_row_group(rows)
        if self._open.size >= self._settings.target_file_bytes:
            self._roll()

    def _bloom_filters(self, rows: int) -> dict[str, dict[str, Any]] | None:
        """Sized for the first row group; the later ones of a file are about as large."""
        options = {"ndv": rows, "fpp": _BLOOM_FALSE_POSITIVES}
        # Parquet has no bloom filter of booleans.
        return {f.name: options for f in self._fields if f.name in self._bloom and f.type != BOOLEAN} or None

    def _roll(self) -> None:
        if self._open is not None:
            self._closed.append(self._open.close())
            self._open = None


class _OpenFile:
    """One Parquet file under way."""

    def __init__(
        self,
        path: str,
        schema: pa.Schema,
        fields: Sequence[Field],
        settings: ParquetSettings,
        storage: Mapping[str, str],
        bloom_filters: Mapping[str, Mapping[str, Any]] | None,
        metrics: FileMetrics,
    ) -> None:
        self._path = path
        self._records = 0
        self._metrics = metrics
        self._footers: list[pq.FileMetaData] = []
        self._sink = _HashingSink(open_output(path, storage))
        # Statistics and dictionaries serve readers to skip row groups, which they must not do without an order.
        ordered = [leaf.path for field in fields for leaf in leaves(field) if has_order(leaf.type)]
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._sink, mode="w"),
            schema,
            compression=settings.compression,
            use_dictionary=ordered if settings.dictionary else False,
            dictionary_pagesize_limit=DICTIONARY_BYTES_MAX,
            write_statistics=ordered,
            data_page_size=settings.page_bytes,
            # Iceberg prescribes integers for small decimals, and its ids say all that an Arrow schema would.
            store_decimal_as_integer=True,
            store_schema=False,
            bloom_filter_options=bloom_filters,
            metadata_collector=self._footers,
        )

    @property
    def size(self) -> int:
        return self._sink.size

    def write_row_group(self, rows: pa.Table) -> None:
        self._metrics.observe(rows)
        self._guarded(lambda: self._writer.write_table(rows, row_group_size=rows.num_rows))
        self._records += rows.num_rows

    def close(self) -> ClosedFile:
        if self._sink.closed:
            raise AssertionError(f"{self._path}: a file that was abandoned cannot be reported")
        self._guarded(self._writer.close)
        self._sink.finish()
        footer = self._footers[0]
        if footer.num_rows != self._records:
            raise AssertionError(f"{self._path}: the footer says {footer.num_rows} rows, {self._records} were written")
        return ClosedFile(
            path=self._path,
            records=self._records,
            size=self._sink.size,
            digest=self._sink.digest,
            metrics=self._metrics.finish(footer),
            split_offsets=split_offsets(footer),
        )

    def abandon(self) -> None:
        self._sink.release()

    def _guarded(self, act: Callable[[], Any]) -> None:
        """Arrow may wrap or replace what the sink raised; the sink's own word counts."""
        try:
            act()
        except FrazilError:
            self.abandon()
            raise
        except OSError as error:
            self.abandon()
            raise self._sink.failure or storage_error(error, self._path) from error
        except BaseException:
            self.abandon()
            raise


class _HashingSink:
    """A file-like object for Arrow: hashes and counts what passes.

    After a failure Arrow's destructor still writes a footer: a released sink lets it go nowhere.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._hash = hashlib.sha256()
        self.size = 0
        self.closed = False
        self.failure: FrazilError | None = None

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def write(self, data: Any) -> int:
        view = memoryview(data)
        if self.closed:
            return len(view)
        try:
            self._output.write(view)
        except FrazilError as error:
            self.failure = error
            raise
        self._hash.update(view)
        self.size += len(view)
        return len(view)

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """Arrow closes what it is given; the file ends with `finish` or `release` only."""

    def finish(self) -> None:
        try:
            self._output.sync()
        finally:
            self.release()

    def release(self) -> None:
        if not self.closed:
            self.closed = True
            self._output.close()
