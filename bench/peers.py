"""What a user would use instead, on the same files.

Merge       Spark: read the JSON files, newest change per key, MERGE INTO; as the body of a foreachBatch does it
floor       PyArrow: newest change per key of decoded rows, one Parquet file, fsync; no table, no commit
plain_load  PyArrow: parse the JSON files and write them as Parquet on all cores; no table, no order, no commit
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from bench.feeds import ARROW_LINE, SPARK_SCHEMA, Feed, rows_sql


@dataclass(frozen=True, slots=True)
class MergeMode:
    label: str
    how: str
    format_version: int


COPY_ON_WRITE = MergeMode("copy-on-write v2", "copy-on-write", 2)
MERGE_ON_READ_V2 = MergeMode("merge-on-read v2", "merge-on-read", 2)
MERGE_ON_READ_V3 = MergeMode("merge-on-read v3", "merge-on-read", 3)
MERGE_MODES = (MERGE_ON_READ_V3, MERGE_ON_READ_V2, COPY_ON_WRITE)


def create_peer(spark: SparkSession, table: str, mode: MergeMode, rows: int) -> None:
    """A table of the mode with rows 0 to `rows`."""
    properties = {
        "format-version": str(mode.format_version),
        "write.parquet.compression-codec": "zstd",
        **{f"write.{operation}.mode": mode.how for operation in ("merge", "update", "delete")},
    }
    create_empty(spark, table, properties)
    spark.sql(f"INSERT INTO {table} {rows_sql(rows)}")


def create_empty(spark: SparkSession, table: str, properties: dict[str, str]) -> None:
    namespace = table.rpartition(".")[0]
    listed = ", ".join(f"'{key}'='{value}'" for key, value in properties.items())
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
    spark.sql(
        f"CREATE TABLE {table} (id bigint, name string, amount decimal(12,2), city string, at timestamp) "
        f"USING iceberg TBLPROPERTIES ({listed})"
    )


def merge(spark: SparkSession, table: str, files: Sequence[Path]) -> None:
    """The changes of these files into the table, in one snapshot."""
    feed_rows(spark, files).createOrReplaceTempView("lines")
    newest = spark.sql("SELECT max_by(after, updated) AS row FROM lines GROUP BY after.id")
    newest.select("row.*").createOrReplaceTempView("changes")
    spark.sql(
        f"MERGE INTO {table} t USING changes c ON t.id = c.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def append(spark: SparkSession, table: str, files: Sequence[Path]) -> None:
    feed_rows(spark, files).select("after.*").writeTo(table).append()


def feed_rows(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    return spark.read.schema(SPARK_SCHEMA).json([str(path) for path in files])


def decoded(feed: Feed) -> pa.Table:
    """The last epoch of a feed as typed columns in memory, with each change's position."""
    return pa.concat_tables([_parsed(path) for path in feed.last_files]).combine_chunks()


def floor(changes: pa.Table, path: Path) -> None:
    """The least that any upsert must do: the newest change of each key, written and on the disk."""
    order = pc.sort_indices(changes, sort_keys=[("id", "ascending"), ("updated", "ascending")])
    rows = changes.take(order)
    ids = rows.column("id").combine_chunks()
    is_last = np.append(pc.not_equal(ids.slice(0, len(ids) - 1), ids.slice(1)).to_numpy(zero_copy_only=False), True)
    kept = rows.filter(pa.array(is_last))
    _write_synced(kept.drop_columns(["updated"]), path)


def plain_load(files: Sequence[Path], to: Path, threads: int) -> None:
    to.mkdir(parents=True)

    def load(path: Path) -> None:
        _write_synced(_parsed(path).drop_columns(["updated"]), to / f"{path.stem}.parquet")

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(load, files))


def _parsed(path: Path) -> pa.Table:
    options = pj.ReadOptions(use_threads=False, block_size=path.stat().st_size + 1)
    lines = pj.read_json(path, read_options=options, parse_options=pj.ParseOptions(explicit_schema=ARROW_LINE))
    rows = pa.Table.from_struct_array(lines.column("after"))
    moment = pc.cast(rows.column("at"), pa.timestamp("us", tz="UTC"))
    return rows.set_column(rows.schema.get_field_index("at"), "at", moment).append_column(
        "updated", lines.column("updated")
    )


def _write_synced(rows: pa.Table, path: Path) -> None:
    with path.open("wb") as file:
        pq.write_table(rows, file, compression="zstd")
        file.flush()
        os.fsync(file.fileno())
