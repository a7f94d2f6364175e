"""`frazil maintain` on the tables of a pipeline: smaller, faster, and the same rows."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from feed_builders import Lab, at, delete, table, upsert
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from frazil.iceberg.system.deletion_queue import IcebergDeletionQueue
from frazil.iceberg.system.queue_rows import QueuedDeletion
from frazil.maintenance.convert.planner import ConvertSettings
from frazil.maintenance.runner import Maintenance
from frazil.maintenance.triggers import REWRITE
from frazil.model.ids import TableName
from frazil.model.results import MaintenanceStep

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


def test_a_dry_run_counts_the_queued_files_that_a_run_would_delete(lab: Lab) -> None:
    """Those of other tables in the same catalog are left to whoever maintains them."""
    with lab.open() as pipeline:
        places, table = pipeline.assembled.places, TableName.parse(f"{lab.namespace}.t")
        queue = IcebergDeletionQueue(places.of(table).catalog, pipeline.clock)
        old = pipeline.clock.now() - timedelta(days=9)
        elsewhere = TableName((lab.namespace,), "elsewhere")
        for name, path in ((table, "t"), (elsewhere, "u"), (elsewhere, "v")):
            path = f"{lab.warehouse}/nothing/{path}.parquet"
            queue.enqueue([QueuedDeletion(path=path, table=name, table_uuid=str(uuid4()), orphaned_at=old)])
        maintenance = Maintenance(pipeline.config, places, pipeline.spark, pipeline.clock)
        (planned,) = maintenance.run([table], dry=True, actions=("delete",))
    assert planned.counts == {"files": 1}


def rewrites(lab: Lab, **wishes: Any) -> list[MaintenanceStep]:
    per_hour = wishes.pop("bytes_per_hour", None)
    with lab.open() as pipeline:
        places, table = pipeline.assembled.places, TableName.parse(f"{lab.namespace}.t")
        made = Maintenance(pipeline.config, places, pipeline.spark, pipeline.clock, bytes_per_hour=per_hour)
        return [step for _ in range(wishes.pop("times", 1)) for step in made.run([table], actions=REWRITE, **wishes)]


def test_beside_a_stream_little_is_left_alone_and_at_rest_nothing_is(lab: Lab) -> None:
    steps(lab)
    lab.feed.data(at(20), [upsert([70], at(20), a=70, b="later"), delete([9], at(20))])
    lab.feed.resolved(at(21))
    lab.run()
    rows = lab.rows()
    assert {step.action for step in rewrites(lab, finish=False)} == {"convert"}
    assert counted(lab)[:2] == (2, 1), "one file more, and a vector: not worth it"
    finished = rewrites(lab, finish=True)
    assert [step.action for step in finished] == ["compact", "manifests"]
    assert counted(lab)[:2] == (1, 0)
    assert lab.spark.sql(f"SELECT path FROM {lab.sql_name('t')}.manifests").count() == 1
    assert lab.rows() == rows
    assert rewrites(lab, finish=True) == [], "that was all"


def test_a_conversion_goes_on_until_no_delete_waits(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """At rest; beside a stream the next run takes the next ones."""
    monkeypatch.setattr("frazil.maintenance.runner.ConvertSettings", partial(ConvertSettings, max_keys=1))
    (beside,) = [step for step in rewrites(lab, finish=False) if step.action == "convert"]
    assert beside.counts["waiting"] > 0
    assert counted_equality(lab) > 0
    rows = lab.rows()
    (rest,) = [step for step in rewrites(lab, finish=True) if step.action == "convert"]
    assert rest.counts["waiting"] == 0
    assert rest.counts["delete_files"] == beside.counts["waiting"]
    assert counted_equality(lab) == 0
    assert lab.rows() == rows


def counted_equality(lab: Lab) -> int:
    return lab.spark.sql(f"SELECT * FROM {lab.sql_name('t')}.delete_files WHERE content = 2").count()


def test_what_the_hour_does_not_bring_waits_and_says_so(lab: Lab) -> None:
    """One rewrite may overdraw what there is: a group that is larger than an hour's bytes must not wait for ever."""
    with lab.open() as pipeline:
        place, table = pipeline.assembled.places, TableName.parse(f"{lab.namespace}.t")
        made = Maintenance(pipeline.config, place, pipeline.spark, pipeline.clock, bytes_per_hour=1000)
        first = list(made.run([table], actions=REWRITE))
        assert [step.action for step in first if step.done] == ["convert", "compact", "manifests"]
        pipeline.spark.sql(f"INSERT INTO {lab.sql_name('t')} VALUES (100, 'x')")
        pipeline.spark.sql(f"INSERT INTO {lab.sql_name('t')} VALUES (101, 'y')")
        files = counted(lab)
        (waiting,) = [step for step in made.run([table], actions=REWRITE) if step.action == "compact"]
    assert not waiting.done
    assert not waiting.error
    assert "1000B of this hour are used up" in waiting.reason
    assert waiting.counts["data_files"] == 3
    assert counted(lab)[0] == files[0]
    by_hand = steps(lab)
    assert by_hand["compact"]["done"], "`frazil maintain` does not ask"


def test_who_must_not_proceed_does_nothing_more(lab: Lab) -> None:
    before = counted(lab)
    assert rewrites(lab, proceed=lambda: False) == []
    assert counted(lab) == before
    answers = iter([True, True, False, False, False])
    done = rewrites(lab, proceed=lambda: next(answers))
    assert [step.action for step in done] == ["convert", "compact"]
    assert done[1].counts["left"] == done[1].counts["waiting"] == 1, "asked once more before the first batch"
    assert counted(lab)[0] == before[0]
