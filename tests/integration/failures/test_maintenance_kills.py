"""`frazil maintain` dies in the middle of each of its actions, one run after the other, and the next run goes on.

    trade --> epochs --> maintain, killed at a moment --> every kept snapshot is read --> maintain, killed at the next
    at last nobody is killed: the files that the table refers to are there, and no others

Each of these processes has a Spark of its own, and takes some seconds.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from campaigns import campaign
from failure_stage import Stage, a_stage
from feed_builders import make_old
from pyspark.sql import SparkSession

from frazil.app.pipeline import Pipeline
from frazil.clock import SystemClock
from frazil.config.load import load_config
from frazil.demo.proof import differences
from frazil.demo.shop import Rows
from frazil.model.ids import TableName
from frazil.model.write import DeleteMode
from frazil.sources.cockroachdb.position import Hlc

pytestmark = pytest.mark.spark

SCRIPT = str(Path(__file__).with_name("deadly_maintenance.py"))
MAINTENANCE = {
    "convert": {"min_delete_files": 1},
    "compact": {"min_input_files": 4},
    "expire": {"max_age": "0s", "max_snapshots": 4, "min_snapshots": 2, "min_epochs": 1},
    "orphans": {"older_than": "0s"},
    "queue": {"grace": "0s", "batch_files": 4},
}
GRACE = timedelta(hours=1)
EVERY_MOMENT = (
    ("convert-staged", "convert-sent", "compact-staged", "compact-sent"),
    ("manifests-staged", "manifests-sent", "expire-queued", "expire-sent"),
    ("sweep-found", "sweep-queued", "delete-asked", "delete-half", "delete-done"),
)
SOME_MOMENTS = (("convert-sent", "compact-staged"), ("expire-sent",), ("delete-half",))


class Diary:
    """What every snapshot must show. Between two looks either epochs were published, or nothing but maintenance was
    done, which changes no row."""

    def __init__(self, stage: Stage, spark: SparkSession) -> None:
        self._stage, self._spark = stage, spark
        (self._table,) = stage.tables
        self._rows: dict[int, Rows] = {}

    def read_all(self) -> int:
        """Reads every snapshot that is kept. Returns how many."""
        stage, table = self._stage, self._table
        kept = self._spark.sql(f"SELECT snapshot_id, summary FROM {stage.sql(table)}.snapshots").collect()
        for row in kept:
            resolved = row.summary.get("frazil.resolved")
            moment = stage.shop.resolved[-1] if resolved is None else Hlc.parse(resolved)
            expected = self._rows.setdefault(row.snapshot_id, stage.shop.state_at(moment)[table.name])
            found = differences(self._spark, stage.catalog, table, row.snapshot_id, expected)
            assert not found, f"snapshot {row.snapshot_id}: {found[:5]}"
        return len(kept)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = a_stage(tmp_path, {"products": DeleteMode.EQUALITY})
    stage.write_config(limits={"epochs_per_job": 1}, maintenance=MAINTENANCE)
    return stage


@campaign("moments", short=SOME_MOMENTS, long=EVERY_MOMENT)
def test_maintenance_killed_in_every_action_loses_nothing_and_leaves_nothing_behind(
    stage: Stage, spark: SparkSession, moments: tuple[Sequence[str], Sequence[str], Sequence[str]]
) -> None:
    """H15, H18, H19, H46: killed with all local state gone; again at another moment; then clean."""
    rewriting, expiring, deleting = moments
    diary = Diary(stage, spark)
    try:
        publish(stage, spark, rounds=5)
        for moment in rewriting:
            killed(stage, moment)
            diary.read_all()
        publish(stage, spark, rounds=2)
        diary.read_all()
        for moment in expiring:
            killed(stage, moment)
            diary.read_all()
        publish(stage, spark, rounds=1)
        for moment in deleting:
            make_old(stage.warehouse)
            killed(stage, moment)
            diary.read_all()
    finally:
        stage.end_all()
    (table,) = stage.tables
    garbage = on_disk(stage, table) - needed(stage, spark, table)
    assert garbage, "runs that were killed leave files"
    for _ in range(2):
        make_old(stage.warehouse)
        with stage.pipeline(spark) as pipeline:
            assert not [step.error for step in pipeline.maintain() if step.error]
    assert diary.read_all() <= MAINTENANCE["expire"]["max_snapshots"] + 1
    assert on_disk(stage, table) == needed(stage, spark, table)


class Later(SystemClock):
    """The clock of somebody who comes later."""

    def __init__(self, by: timedelta) -> None:
        self._by = by

    def now(self) -> datetime:
        return super().now() + self._by


def test_what_a_killed_run_queued_stays_until_its_grace_period_is_over_and_is_gone_after(
    stage: Stage, spark: SparkSession
) -> None:
    """H18, H19: readers of what expired may still be at work; and the kill is no reason to forget it."""
    settings = {**MAINTENANCE, "queue": {"grace": f"{GRACE.total_seconds():.0f}s", "batch_files": 4}}
    stage.write_config(limits={"epochs_per_job": 1}, maintenance=settings)
    diary = Diary(stage, spark)
    (table,) = stage.tables
    try:
        publish(stage, spark, rounds=5)
        killed(stage, "expire-sent")
        diary.read_all()
    finally:
        stage.end_all()
    garbage = on_disk(stage, table) - needed(stage, spark, table)
    assert garbage, "what expired is still there"
    for by in (timedelta(0), GRACE / 2):
        maintain(stage, spark, by)
        assert garbage <= on_disk(stage, table), "somebody may still read it"
    maintain(stage, spark, 2 * GRACE)
    assert garbage.isdisjoint(on_disk(stage, table))
    for turn in (4, 6):
        maintain(stage, spark, turn * GRACE)
    diary.read_all()
    assert on_disk(stage, table) == needed(stage, spark, table)


def maintain(stage: Stage, spark: SparkSession, later: timedelta) -> None:
    with Pipeline(load_config(stage.config), spark=spark, clock=Later(later)) as pipeline:
        assert not [step.error for step in pipeline.maintain() if step.error]


def publish(stage: Stage, spark: SparkSession, rounds: int) -> None:
    stage.trade(rounds)
    stage.drain(spark)


def killed(stage: Stage, moment: str) -> None:
    process = stage.start(SCRIPT, str(stage.config), moment)
    assert stage.finished(process) == -signal.SIGKILL, f"{moment} did not come: {stage.said(process)}"


def on_disk(stage: Stage, table: TableName) -> set[str]:
    root = stage.warehouse / table.namespace[0] / table.name
    return {str(path) for path in root.rglob("*") if path.is_file()}


def needed(stage: Stage, spark: SparkSession, table: TableName) -> set[str]:
    """By Iceberg's own metadata tables and log."""
    found = set()
    for name, column in (
        ("all_files", "file_path"),
        ("all_manifests", "path"),
        ("snapshots", "manifest_list"),
        ("metadata_log_entries", "file"),
    ):
        found |= {row[0] for row in spark.table(f"{stage.sql(table)}.{name}").select(column).collect()}
    return {path.removeprefix("file:") for path in found}
