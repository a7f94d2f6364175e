"""Many changes over many tables, through readers and writers, compared with an oracle row by row at several moments."""

from __future__ import annotations

from pathlib import Path

import pytest
from feed_builders import Lab, table
from feed_workload import COLUMNS, Workload, found_rows
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TABLES, WINDOWS, KEPT = 8, 5, (0, 2, 4)


@pytest.fixture
def lab(spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path) -> Lab:
    lab = Lab(spark, warehouse, namespace, tmp_path)
    lab.tables = [
        table(f"table-{n}", key=["id"], columns=COLUMNS) if n % 2 else table(f"table-{n}", key=(), columns={})
        for n in range(TABLES)
    ]
    lab.settings = {"limits": {"small_epoch_bytes": 0, "epochs_per_job": 2}}
    return lab


def test_three_hundred_thousand_changes_over_eight_tables_equal_the_oracle(lab: Lab) -> None:
    work = Workload(lab.feed.root, changes=300_000, tables=TABLES, windows=WINDOWS, kept=KEPT)
    work.write()
    summary = lab.run()
    assert summary.resolved == work.resolved[-1].text
    assert summary.dropped > 0
    with lab.open() as pipeline:
        for window in KEPT:
            for number, name in enumerate(work.names):
                snapshot = pipeline.snapshot_at(f"{lab.namespace}.{name}", work.resolved[window])
                assert snapshot is not None
                found = found_rows(lab.spark, lab.sql_name(name), snapshot, pinned=bool(number % 2))
                assert found == work.rows(window, name, pinned=bool(number % 2)), (window, name)
    assert all(len(lab.epochs(name)) == WINDOWS for name in work.names)
