"""A process whose JVM is killed, then hangs, then belongs to somebody else; prints as JSON what it lived through.

epoch 10 --SIGKILL--> noticed, abandoned, opened again --> epoch 20
         --SIGSTOP--> calls block; noticed, killed, they return; opened again --> epoch 30
         --SIGSTOP, of a JVM that we did not start--> told of, and left alive
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pyarrow as pa
from iceberg_builders import plan, source_schema
from pyspark import SparkContext
from pyspark.sql import SparkSession

from frazil.clock import SystemClock
from frazil.iceberg.catalogs import open_catalog as catalogs
from frazil.iceberg.catalogs.open_catalog import Catalog, CatalogSettings, open_catalog
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.jvm import method_handles as handles
from frazil.iceberg.jvm.session import open_session
from frazil.iceberg.jvm.watchdog import JvmWatch, abandon, stop_session
from frazil.iceberg.system import system_table as system_tables
from frazil.iceberg.system.checkpoints import Checkpoint, Checkpoints
from frazil.iceberg.system.fence_register import IcebergArbiter
from frazil.iceberg.tables.tables import Tables
from frazil.model.ids import JobId, TableName
from frazil.model.state import TableState
from frazil.model.write import DeleteMode, TableOptions
from frazil.paths import scratch

NAME = TableName(("a",), "people")
SHOP = JobId("shop")
SECONDS = 60
ROW = Checkpoint(sync_id="a.people", state=TableState.STEADY_STATE, source_collection="people")
found: dict[str, Any] = {}


def main(warehouse: str) -> None:
    settings = CatalogSettings(warehouse=warehouse)
    spark, catalog = opened(settings)
    Tables(catalog).create(NAME, source_schema(), TableOptions(mode=DeleteMode.EQUALITY, format_version=2))
    found["pid"] = [spark.sparkContext._gateway.proc.pid, jvm_process(spark)]
    publish(catalog, 10)
    busy_and_answering(spark)
    first = spark.sparkContext.applicationId

    killed(spark, catalog)
    spark, catalog = opened(settings)
    found["another application"] = spark.sparkContext.applicationId != first
    found["caches after"] = applications()
    publish(catalog, 20, lower=10)
    found["works after a kill"] = doubled(spark)

    hung(spark, catalog)
    spark, catalog = opened(settings)
    publish(catalog, 30, lower=20)
    found["works after a hang"] = doubled(spark)
    found["rows"] = sorted(row.id for row in spark.sql(f"SELECT id FROM frazil.{NAME.sql}").collect())
    found["checkpoints"] = Checkpoints(catalog, SystemClock()).record(SHOP, [ROW])

    not_ours(spark)
    pid = jvm_process(spark)
    os.kill(pid, signal.SIGSTOP)
    stop_session(spark, patience=1.0)
    found["stopped"] = [SparkSession.getActiveSession() is None, not Path(f"/proc/{pid}").exists()]
    print(json.dumps(found))


def opened(settings: CatalogSettings) -> tuple[SparkSession, Catalog]:
    spark = open_session("lost-jvm", [settings], master="local[1]", jvm_memory="512m")
    return spark, open_catalog(spark, settings)


def publish(catalog: Catalog, resolved: int, lower: int | None = None) -> None:
    committer = IcebergCommitter(catalog)
    prepared = plan(Tables(catalog).load(NAME), resolved, {resolved: "x"}, lower=lower)
    found[f"epoch {resolved}"] = type(committer.commit(NAME, committer.head(NAME), prepared)).__name__


def busy_and_answering(spark: SparkSession) -> None:
    """A job that takes longer than the patience does not make the JVM lost."""
    watch = JvmWatch(spark, told_nobody, ping_every=0.1, patience=1.0)
    spark.sparkContext.parallelize([0], 1).map(lambda _: SystemClock().wait(3)).collect()
    found["lost while busy"] = watch.lost
    watch.stop()


def killed(spark: SparkSession, catalog: Catalog) -> None:
    committer, told = IcebergCommitter(catalog), SimpleQueue[str]()
    watch = JvmWatch(spark, told.put, ping_every=0.2)
    head, prepared = committer.head(NAME), plan(Tables(catalog).load(NAME), 15, {15: "never"}, lower=10)
    os.kill(jvm_process(spark), signal.SIGKILL)
    found["told of the kill"] = told.get(timeout=SECONDS)
    found["asked of the kill"] = watch.lost
    found["commit to a dead JVM"] = outcome(lambda: committer.commit(NAME, head, prepared))
    found["questions to a dead JVM"] = {name: outcome(ask) for name, ask in questions(catalog).items()}
    found["checkpoint to a dead JVM"] = Checkpoints(catalog, SystemClock()).record(SHOP, [ROW])
    directory = scratch("local")
    found["left on disk"] = [any(directory.iterdir())]
    abandon(spark)
    found["left on disk"].append(any(directory.iterdir()))
    found["abandoned"] = [SparkContext._gateway is None, SparkSession.getActiveSession() is None, len(applications())]
    found["questions after it was abandoned"] = {name: outcome(ask) for name, ask in questions(catalog).items()}
    found["told again"] = not told.empty()


def hung(spark: SparkSession, catalog: Catalog) -> None:
    """A commit and a question are under way in the JVM when it stops."""
    committer, told = IcebergCommitter(catalog), SimpleQueue[str]()
    head, prepared = committer.head(NAME), plan(Tables(catalog).load(NAME), 25, {25: "maybe"}, lower=20)
    pid = jvm_process(spark)
    JvmWatch(spark, told.put, ping_every=0.2, patience=2.0)
    os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(3) as pool:
        commit = pool.submit(lambda: outcome(lambda: committer.commit(NAME, head, prepared)))
        asked = pool.submit(lambda: outcome(lambda: committer.head(NAME)))
        job = pool.submit(lambda: outcome(lambda: spark.range(10).count()))
        SystemClock().wait(0.5)
        found["blocked"] = [not commit.done(), not asked.done(), not job.done()]
        found["told of the hang"] = told.get(timeout=SECONDS)
        found["commit in a hung JVM"], found["question in a hung JVM"] = commit.result(SECONDS), asked.result(SECONDS)
        found["a job in a hung JVM failed"] = job.result(SECONDS)
    found["hung process is gone"] = not Path(f"/proc/{pid}").exists()
    stop_session(spark)


def not_ours(spark: SparkSession) -> None:
    """Like a session of spark-submit, whose Python knows of no process."""
    gateway, pid, told = spark.sparkContext._gateway, jvm_process(spark), SimpleQueue[str]()
    process, gateway.proc = gateway.proc, None
    JvmWatch(spark, told.put, ping_every=0.2, patience=1.0)
    os.kill(pid, signal.SIGSTOP)
    found["told of somebody's hang"] = told.get(timeout=SECONDS)
    found["somebody's process"] = process.poll()
    os.kill(pid, signal.SIGCONT)
    gateway.proc = process


def questions(catalog: Catalog) -> dict[str, Callable[[], object]]:
    spark = catalog.spark
    return {
        "head": lambda: IcebergCommitter(catalog).head(NAME),
        "exists": lambda: Tables(catalog).exists(NAME),
        "load": lambda: Tables(catalog).load(NAME),
        "fence": lambda: IcebergArbiter(catalog, SystemClock()).newest(SHOP),
        "open": lambda: open_catalog(spark, CatalogSettings(name="other", warehouse=catalog.settings.warehouse)),
    }


def outcome(act: Callable[[], object]) -> str:
    try:
        return type(act()).__name__
    except Exception as error:
        return type(error).__name__


def applications() -> list[str]:
    """Whose handles are remembered: those of the session alone that is there now."""
    known = {key[0] for cache in (handles._made, catalogs._open, system_tables._plain) for key in cache}
    return sorted(known)


def doubled(spark: SparkSession) -> int:
    def double(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from (batch, batch)

    return spark.range(5).mapInArrow(double, "id long").count()


def jvm_process(spark: SparkSession) -> int:
    return int(spark._jvm.java.lang.ProcessHandle.current().pid())


def told_nobody(reason: str) -> None:
    found["told nobody"] = reason


if __name__ == "__main__":
    main(sys.argv[1])
