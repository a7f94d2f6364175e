"""Tasks that fail and are tried again, and executors that die, on a cluster of separate processes."""

from __future__ import annotations

from pathlib import Path

import pytest
import quick_java
from failure_stage import Stage, assert_whole
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCRIPT = str(Path(__file__).with_name("flaky_cluster.py"))


def test_failed_tasks_and_a_lost_executor_leave_no_trace_in_the_tables(stage: Stage, spark: SparkSession) -> None:
    """H41, H42: every attempt writes under names of its own, and only the reports of complete attempts are taken.
    Nothing relies on sharing the driver's memory: readers, decoders and reports all cross between processes."""
    stage.write_config(
        spark={
            "master": "local-cluster[2,1,1024]",
            "jvm_memory": "1g",
            "conf": {
                "spark.shuffle.io.maxRetries": "1",
                "spark.shuffle.io.retryWait": "100ms",
                "spark.executor.extraJavaOptions": quick_java.PLAIN,
            },
        },
        limits={"epochs_per_job": 2, "small_epoch_bytes": 0},
    )
    notes = stage.directory / "notes"
    notes.mkdir()
    stage.trade(3)
    process = stage.start(SCRIPT, str(stage.config), str(notes))
    assert stage.finished(process) == 0, stage.said(process)

    faults = {path.name.partition("-")[0]: path for path in notes.iterdir()}
    assert set(faults) == {"read", "write", "lost"}, "not every fault was met: this run proves nothing"
    for path in notes.iterdir():
        assert b"CoarseGrainedExecutorBackend" in path.read_bytes(), "the task ran inside the driver"

    assert_whole(stage, spark, moments=3)
    for table in stage.tables:
        assert set(stage.referenced(spark, table)) <= stage.on_disk(table)
    leftovers = [path for table in stage.tables for path in stage.on_disk(table) - set(stage.referenced(spark, table))]
    assert leftovers, "no failed attempt had written anything: this run proves nothing"
