"""A daemon that maintains its tables while it publishes: forty epochs of updates, read throughout."""

from __future__ import annotations

import random
from pathlib import Path
from threading import Event, Thread

import pytest
from feed_builders import Lab, at, delete, read_rows, table, upsert
from pyspark.sql import SparkSession

from frazil.clock import SystemClock
from frazil.daemon.results import Progress

pytestmark = pytest.mark.spark

EPOCHS = 40
KEYS = 60
PATIENCE = 240.0


@pytest.mark.parametrize("mode", ["vectors", "equality"])
def test_forty_epochs_leave_few_files_and_every_snapshot_as_it_was(
    spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path, mode: str
) -> None:
    """H15, H16, H46: the stream and maintenance commit to one table, and no reader ever misses a file."""
    lab = Lab(
        spark,
        warehouse,
        namespace,
        tmp_path,
        tables=[table("t", deletes=mode)],
        settings={
            "http": {"port": 0},
            "maintenance": {
                "naptime": "100ms",
                "after_commits": 4,
                "max_lag": "36500d",
                "compact": {"min_input_files": 4},
                "orphans": {"older_than": "1h"},
                "queue": {"grace": "0s"},
            },
        },
    )
    chance, clock = random.Random(5), SystemClock()
    model: dict[int, str] = {}
    states: dict[str, dict[int, str]] = {}
    stop, progress, failed = Event(), list[Progress](), list[BaseException]()

    def reached() -> str | None:
        return progress[-1].tables[0].resolved if progress and progress[-1].tables else None

    def read() -> None:
        """Whatever is there must be readable."""
        while not stop.wait(0.2):
            try:
                if reached() is None:
                    continue
                found = spark.sql(f"SELECT snapshot_id FROM {lab.sql_name('t')}.snapshots").collect()
                read_rows(spark, lab.sql_name("t"), chance.choice(found).snapshot_id)
            except Exception as error:
                failed.append(error)
                return

    with lab.open() as pipeline:

        def run() -> None:
            try:
                pipeline.run(on_progress=progress.append, stop=stop)
            except BaseException as error:
                failed.append(error)

        threads = [Thread(target=run, daemon=True), Thread(target=read, daemon=True)]
        for thread in threads:
            thread.start()
        for number in range(EPOCHS):
            now, lines = at(2 * number + 1), []
            for key in chance.sample(range(KEYS), 12):
                if chance.random() < 0.2:
                    model.pop(key, None)
                    lines.append(delete([key], now))
                else:
                    model[key] = f"{key} in {number}"
                    lines.append(upsert([key], now, a=key, b=model[key]))
            lab.feed.data(now, lines)
            resolved = at(2 * number + 2)
            lab.feed.resolved(resolved)
            states[resolved.text] = dict(model)
            until = clock.monotonic() + PATIENCE
            while reached() != resolved.text and not failed:
                assert clock.monotonic() < until, reached()
                clock.wait(0.05)
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)
    assert not failed, failed[0]
    assert {row["a"]: row["b"] for row in lab.rows()} == model
    for epoch in lab.epochs():
        found = read_rows(spark, lab.sql_name("t"), epoch.snapshot_id)
        assert {row["a"]: row["b"] for row in found} == states[epoch.resolved]
    assert len(lab.epochs()) == EPOCHS
    assert {"compact" if mode == "vectors" else "convert"} <= done_by_itself(lab)
    with lab.open() as pipeline:
        assert not [step.error for step in pipeline.maintain() if step.error]
    files = spark.sql(f"SELECT content FROM {lab.sql_name('t')}.files").count()
    assert files <= 2, "a file, and perhaps a vector"
    assert {row["a"]: row["b"] for row in lab.rows()} == model


def done_by_itself(lab: Lab) -> set[str]:
    """What the daemon did between its epochs."""
    rows = lab.spark.sql(f"SELECT summary FROM {lab.sql_name('t')}.snapshots").collect()
    return {row.summary["frazil.maintenance"] for row in rows if "frazil.maintenance" in row.summary}
