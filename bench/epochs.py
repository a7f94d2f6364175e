"""An epoch of upserts into a table that has rows already: Frazil beside Spark's MERGE INTO on the same changes.

the same files --> Frazil, from the moment R.RESOLVED appears to the snapshot
               `-> Spark: read JSON, newest change per key, MERGE INTO (merge-on-read)
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from bench.feeds import COLUMNS, SPARK_SCHEMA, Feed
from bench.report import Measured, measured
from frazil.config.model import PipelineConfig
from frazil.daemon.api import Pipeline
from frazil.daemon.results import Progress
from frazil.model.position import Hlc

CHANGES = 50_000
EPOCHS = 5
_MERGE = """
MERGE INTO {table} t USING changes c ON t.id = c.id
WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
"""


class Running:
    """A pipeline in a thread of its own, as a daemon runs it."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._stop = threading.Event()
        self._moved = threading.Condition()
        self._resolved: Hlc | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(pipeline,), daemon=True)
        self._thread.start()

    def _run(self, pipeline: Pipeline) -> None:
        try:
            pipeline.run(stop=self._stop, on_progress=self._progress)
        except BaseException as error:
            self._failure = error
            with self._moved:
                self._moved.notify_all()

    def _progress(self, progress: Progress) -> None:
        with self._moved:
            self._resolved = None if progress.resolved is None else Hlc.parse(progress.resolved)
            self._moved.notify_all()

    def wait_for(self, resolved: Hlc) -> None:
        with self._moved:
            self._moved.wait_for(lambda: self._failure or (self._resolved and self._resolved >= resolved), timeout=900)
        if self._failure:
            raise self._failure

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def config_for(feed: Path, warehouse: Path, name: str, **more: object) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "pipeline": name,
            "source": {"type": "cockroachdb", "feed": str(feed), "poll_interval": "10ms"},
            "catalog": {"type": "builtin", "warehouse": str(warehouse)},
            "tables": [{"source": "t", "target": f"bench.{name}", "key": ["id"], "columns": COLUMNS}],
            **more,
        }
    )


@contextmanager
def running(feed: Feed, warehouse: Path, name: str, spark: SparkSession, **more: object) -> Iterator[Running]:
    with Pipeline(config_for(feed.root, warehouse, name, **more), spark=spark) as pipeline:
        run = Running(pipeline)
        try:
            yield run
        finally:
            run.stop()


def epoch_against_merge(spark: SparkSession, work: Path, rows: int) -> list[Measured]:
    feed = Feed(work / f"feed-{rows}")
    ours, merges = [], []
    peer = f"frazil.bench.merge_{rows}"
    with running(feed, work / "warehouse", f"t{rows}", spark) as run:
        resolved = feed.scan(rows)
        started = time.perf_counter()
        run.wait_for(resolved)
        first_load = time.perf_counter() - started
        _make_peer(spark, peer, feed)
        for _ in range(EPOCHS + 1):
            resolved = feed.updates(CHANGES, rows)
            started = time.perf_counter()
            run.wait_for(resolved)
            ours.append(time.perf_counter() - started)
            merges.append(_merge(spark, peer, feed))
    epoch, merge = statistics.median(ours[1:]), statistics.median(merges[1:])
    label = f"{CHANGES // 1000}k changes into {rows:,} rows"
    return [
        measured(f"{label}: Frazil equality", epoch, "s"),
        measured(f"{label}: Spark MERGE INTO, merge-on-read v2", merge, "s"),
        measured(f"{label}: MERGE INTO / Frazil", merge / epoch, "x"),
        measured(f"first load of {rows:,} rows", rows / first_load, "rows/s"),
    ]


def small_epoch(spark: SparkSession, work: Path) -> list[Measured]:
    feed = Feed(work / "feed-small")
    took = []
    with running(feed, work / "warehouse", "small", spark) as run:
        run.wait_for(feed.scan(10_000))
        for _ in range(8):
            resolved = feed.updates(1_000, 10_000)
            started = time.perf_counter()
            run.wait_for(resolved)
            took.append(time.perf_counter() - started)
    return [measured("fixed cost of a small epoch (1,000 changes)", statistics.median(took[2:]), "s", at_most=0.35)]


def catch_up(spark: SparkSession, work: Path, changes: int, epochs: int) -> list[Measured]:
    feed = Feed(work / "feed-behind")
    for _ in range(epochs):
        resolved = feed.updates(changes // epochs, changes)
    with running(feed, work / "warehouse", "behind", spark) as run:
        started = time.perf_counter()
        run.wait_for(resolved)
        took = time.perf_counter() - started
    return [
        measured(f"catch-up of {changes:,} changes in {epochs} epochs", changes / took, "changes/s", at_least=200_000)
    ]


def _make_peer(spark: SparkSession, table: str, feed: Feed) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS frazil.bench")
    _changes(spark, feed)
    spark.sql(
        f"CREATE TABLE {table} USING iceberg TBLPROPERTIES ('format-version'='2', 'write.merge.mode'='merge-on-read', "
        f"'write.update.mode'='merge-on-read', 'write.delete.mode'='merge-on-read') AS SELECT * FROM changes"
    )


def _merge(spark: SparkSession, table: str, feed: Feed) -> float:
    started = time.perf_counter()
    _changes(spark, feed)
    spark.sql(_MERGE.format(table=table))
    return time.perf_counter() - started


def _changes(spark: SparkSession, feed: Feed) -> None:
    lines = spark.read.schema(SPARK_SCHEMA).json([str(path) for path in feed.last_files])
    lines.createOrReplaceTempView("lines")
    newest = spark.sql("SELECT max_by(after, updated) AS row FROM lines GROUP BY after.id")
    newest.select("row.*").createOrReplaceTempView("changes")
