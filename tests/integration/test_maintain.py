"""`frazil maintain` on the tables of a pipeline: smaller, faster, and the same rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from feed_builders import Lab, at, delete, table, upsert
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def lab(spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path) -> Lab:
    lab = Lab(
        spark,
        warehouse,
        namespace,
        tmp_path,
        tables=[table("t", deletes="equality")],
        settings={
            "limits": {"epochs_per_job": 1},
            "maintenance": {
                "compact": {"min_input_files": 3},
                "expire": {"max_age": "0s", "min_snapshots": 1, "min_epochs": 1, "max_snapshots": 1},
                "orphans": {"older_than": "0s"},
                "queue": {"grace": "0s"},
            },
        },
    )
    for number in range(1, 13, 2):
        rows = [upsert([key], at(number), a=key, b=f"{key} at {number}") for key in range(number, number + 4)]
        lab.feed.data(at(number), [*rows, delete([number - 1], at(number))])
        lab.feed.resolved(at(number + 1))
    lab.run()
    return lab


def steps(lab: Lab, *arguments: str) -> dict[str, dict[str, object]]:
    result = lab.cli("maintain", "--json", *arguments)
    assert result.exit_code == 0, result.output
    return {step["action"]: step for step in json.loads(result.stdout)}


def counted(lab: Lab) -> tuple[int, int, int]:
    """Data files, delete files, snapshots."""
    files = lab.spark.sql(f"SELECT content FROM {lab.sql_name('t')}.files").collect()
    snapshots = lab.spark.sql(f"SELECT * FROM {lab.sql_name('t')}.snapshots").count()
    return sum(row.content == 0 for row in files), sum(row.content != 0 for row in files), snapshots


def test_a_dry_run_tells_what_would_be_done_and_changes_nothing(lab: Lab) -> None:
    before = counted(lab)
    planned = steps(lab, "--dry-run")
    assert {"convert", "expire"} <= set(planned)
    assert not any(step["done"] for step in planned.values())
    assert counted(lab) == before


def test_tables_become_small_and_every_engine_reads_the_same_rows(lab: Lab) -> None:
    rows = lab.rows()
    first = steps(lab)
    assert all(step["done"] and not step["error"] for step in first.values())
    assert lab.rows() == rows
    assert counted(lab)[:2] == (1, 0)
    catalog = SqlCatalog("frazil", uri=f"sqlite:///{lab.warehouse}/catalog.db", warehouse=str(lab.warehouse))
    found = catalog.load_table(f"{lab.namespace}.t").scan().to_arrow().to_pylist()
    assert sorted(row["a"] for row in found) == [row["a"] for row in rows]

    lab.feed.data(at(20), [upsert([7], at(20), a=7, b="later"), delete([8], at(20))])
    lab.feed.resolved(at(21))
    lab.run()
    expected = [row | {"b": "later"} if row["a"] == 7 else row for row in rows if row["a"] != 8]
    assert lab.rows() == expected, "the pipeline goes on where it was"
    steps(lab)
    assert lab.rows() == expected


def test_one_table_may_be_named_and_another_one_is_refused(lab: Lab) -> None:
    assert lab.cli("maintain", f"{lab.namespace}.t", "--dry-run").exit_code == 0
    wrong = lab.cli("maintain", f"{lab.namespace}.nothing")
    assert wrong.exit_code == 2
    assert f"{lab.namespace}.t" in wrong.stderr
