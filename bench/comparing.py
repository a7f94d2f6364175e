"""How fast a table is read, beside the same rows freshly written: in Spark and in PyIceberg.

    round after round: the fresh one, then each table --> median of each --> ratio

Both are read in turn, so that a busy moment of the machine meets both. All must answer the same, or there is no number.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path

import pyarrow.compute as pc
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from bench.peers import create_empty

ROUNDS = 25
SLOW_SECONDS = 10.0
Answer = tuple[int, Decimal | None]
Ask = Callable[[str], Answer]


def write_anew(spark: SparkSession, source: str, fresh: str, format_version: int) -> None:
    """The rows of a table in two files of another one, both by the names of Spark SQL."""
    spark.sql(f"DROP TABLE IF EXISTS {fresh}")
    create_empty(spark, fresh, {"format-version": str(format_version), "write.parquet.compression-codec": "zstd"})
    spark.table(source).repartition(2).writeTo(fresh).append()


def asking_spark(spark: SparkSession, catalog: str) -> Ask:
    def ask(table: str) -> Answer:
        count, total = spark.sql(f"SELECT count(*), sum(amount) FROM {catalog}.{table}").collect()[0]
        return int(count), total

    return ask


def asking_pyiceberg(catalog: str, warehouse: Path) -> Ask:
    opened = SqlCatalog(catalog, uri=f"sqlite:///{warehouse}/catalog.db", warehouse=str(warehouse))

    def ask(table: str) -> Answer:
        rows = opened.load_table(table).scan(selected_fields=("amount",)).to_arrow()
        return rows.num_rows, pc.sum(rows.column("amount")).as_py()

    return ask


def median_seconds(ask: Ask, tables: Sequence[str], expected: Answer, rounds: int = ROUNDS) -> dict[str, float]:
    """Of each table (`namespace.name`), after a round that warms up. A table that takes long is not asked again. Raises
    AssertionError for another answer than the expected one."""
    took: dict[str, list[float]] = {table: [] for table in tables}
    for _ in range(1 + rounds):
        for table, seconds in took.items():
            if seconds and seconds[-1] > SLOW_SECONDS:
                continue
            began = time.perf_counter()
            found = ask(table)
            seconds.append(time.perf_counter() - began)
            if found != expected:
                raise AssertionError(f"{table} is read as {found}, not as {expected}")
    return {table: statistics.median(seconds[1:] or seconds) for table, seconds in took.items()}
