"""The searches that Spark performs: by data file in tasks, and as a join.

    tasks   keys --broadcast--> [ task: index of file a, of file b, ... from the executor's cache ] --> bitmap per file
    join    rows of the table at the head's snapshot: key, _file, _pos --+
                                                                         +-- semi join --> by file --> bitmap per file
            keys of the epoch, read from its files ----------------------+

Both give what a search in the driver gives, but for rows that are deleted already: the join does not see them, and
nobody needs them. Nothing but bitmaps is collected; the join spills. Keys are compared in the bytes of `KeyCodec`, so
that all roads agree on what is equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from frazil.data.deletes.vectors import to_bitmap
from frazil.data.keys.codec import KeyCodec, Keys
from frazil.data.keys.index_cache import FileIdentity, process_cache
from frazil.data.read.parquet import read_keys
from frazil.errors import Terminal
from frazil.ingest.locate.locator import Found
from frazil.ingest.locate.searched_table import SearchedTable
from frazil.ingest.write.write_job import run_on_executors
from frazil.model.arrow import value_type
from frazil.model.files import LiveFile, WrittenFile
from frazil.model.schema import UUID, Field
from frazil.sources.base import InputPartition
from frazil.spark.bins import binned, members
from frazil.spark.errors import collected, guarded, packed, unpacked

_NUMBERS, _BYTES = "k long", "k binary"
_HYPHENS = (8, 13, 18, 23)


class SparkSearch:
    """Implements `locate.Roads` on one session. `catalog` is its name in Spark SQL; executors keep their indexes in
    `cache_root` on their own disk, up to `cache_bytes`."""

    def __init__(self, spark: SparkSession, catalog: str, cache_root: Path, cache_bytes: int) -> None:
        self._spark = spark
        self._catalog = catalog
        self._root = cache_root
        self._bytes = cache_bytes
        master = str(spark.sparkContext.master)
        self.local = master == "local" or master.startswith("local[")

    def tasks(self, table: SearchedTable, files: Sequence[LiveFile], keys: Keys) -> Found:
        shared = self._spark.sparkContext.broadcast(keys)
        root, limit = self._root, self._bytes

        def search(partition: InputPartition) -> tuple[str, bytes | None, bytes | None]:
            try:
                path, size = partition.name, partition.size
                signature = KeyCodec(table.key).signature
                index = process_cache(root, limit).get_or_build(
                    FileIdentity(path, size), signature, lambda: table.index(path, size)
                )
                return path, to_bitmap(index.find(shared.value)).serialize(), None
            except Terminal as error:
                return partition.name, None, packed(error)

        try:
            partitions = [InputPartition(0, file.path, "", file.size) for file in files]
            answers = run_on_executors(self._spark, search, partitions)
        finally:
            shared.destroy()
        found = {}
        for path, bitmap, error in answers:
            if error is not None or bitmap is None:
                raise unpacked(error or b"")
            found[path] = BitMap64.deserialize(bitmap)
        return found

    def join(self, table: SearchedTable, files: Sequence[WrittenFile], snapshot_id: int) -> Found:
        codec = KeyCodec(table.key)
        numeric = codec.encode([pa.array([], value_type(field.type)) for field in table.key]).exact is None
        kind = _NUMBERS if numeric else _BYTES

        def epoch_keys(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            partition: InputPartition
            for partition in members(batches):
                for rows in read_keys(partition.name, partition.size, table.key, table.storage, table.name_mapping):
                    yield pa.RecordBatch.from_arrays([_key_column(codec.encode(rows.columns))], ["k"])

        def table_keys(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                columns = [_as_key(batch.column(place), field) for place, field in enumerate(table.key)]
                places = batch.columns[len(columns) :]
                keys = _key_column(codec.encode(columns))
                yield pa.RecordBatch.from_arrays([keys, *places], ["k", "file", "pos"])

        spark = self._spark
        partitions = [[InputPartition(0, file.path, "", file.size)] for file in files]
        wanted = binned(spark, partitions).mapInArrow(guarded(epoch_keys), kind).distinct()
        names = [_column(field.name) for field in table.key]
        rows = spark.read.option("versionAsOf", str(snapshot_id)).table(f"{self._catalog}.{table.name.sql}")
        for name in names:
            rows = rows.where(name.isNotNull())
        placed = rows.select(*names, _column("_file"), _column("_pos"))
        keyed = placed.mapInArrow(guarded(table_keys), f"{kind}, file string, pos long")
        matched = keyed.join(wanted, "k", "left_semi").select("file", "pos")
        by_file = matched.repartition("file").sortWithinPartitions("file", "pos")
        bitmaps = by_file.mapInArrow(_to_bitmaps, "file string, bitmap binary")
        return {row.file: BitMap64.deserialize(bytes(row.bitmap)) for row in collected(bitmaps.collect)}


def _key_column(keys: Keys) -> pa.Array:
    """Keys as a column to join on."""
    if keys.exact is None:
        return pa.array(keys.hashes.view(np.int64))
    return keys.exact.cast(pa.large_binary()).cast(pa.binary())


def _as_key(column: pa.Array, field: Field) -> pa.Array:
    """Spark shows a uuid as text; everything else comes as it is."""
    return _uuid_bytes(column) if field.type == UUID else column


def _uuid_bytes(texts: pa.Array) -> pa.Array:
    """16 bytes of each text such as 6f1c2f0e-8c5b-4f0a-9d5e-0123456789ab."""
    fixed = texts.cast(pa.binary()).cast(pa.binary(36))
    count = len(fixed)
    if not count:
        return pa.array([], pa.binary(16))
    letters = np.frombuffer(fixed.buffers()[1], np.uint8, count * 36, fixed.offset * 36).reshape(count, 36)
    digits = np.delete(letters, _HYPHENS, axis=1)
    # '0' is 48, 'a' is 97, 'A' is 65: the bit 64 tells digits from letters.
    nibbles = (digits & 0x0F) + 9 * (digits >> 6)
    values = (nibbles[:, 0::2] << 4 | nibbles[:, 1::2]).astype(np.uint8)
    return pa.Array.from_buffers(pa.binary(16), count, [None, pa.py_buffer(np.ascontiguousarray(values))])


def _to_bitmaps(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row per file, of rows that come sorted by file; one file's bitmap is held at a time."""
    current: str | None = None
    bitmap = BitMap64()
    for batch in batches:
        files, positions = batch.column("file"), batch.column("pos").to_numpy()
        runs = pc.run_end_encode(files)
        start = 0
        for end, file in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            if file != current:
                if current is not None:
                    yield _bitmap_row(current, bitmap)
                current, bitmap = file, BitMap64()
            bitmap |= to_bitmap(positions[start:end])
            start = end
    if current is not None:
        yield _bitmap_row(current, bitmap)


def _bitmap_row(file: str, bitmap: BitMap64) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([file]), pa.array([bitmap.serialize()])], ["file", "bitmap"])


def _column(name: str) -> Column | Any:
    return F.col("`" + name.replace("`", "``") + "`")
