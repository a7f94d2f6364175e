"""A table that a newer Frazil has published to: whatever reads its ledger says so, and nothing is changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from feed_builders import Lab, at, upsert
from pyspark.sql import SparkSession

from frazil.errors import LedgerTooNew
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.model.ids import JobId, TableName

pytestmark = pytest.mark.spark


@pytest.fixture
def lab(spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path) -> Lab:
    lab = Lab(spark, warehouse, namespace, tmp_path)
    lab.feed.data(at(1), [upsert([1], at(1), a=1, b="x")])
    lab.feed.resolved(at(2))
    lab.run()
    lab.feed.data(at(3), [upsert([1], at(3), a=1, b="y")])
    lab.feed.resolved(at(4))
    return lab


def by_summary(lab: Lab, committer: IcebergCommitter) -> int:
    """A snapshot whose entry says format 2, whatever else it may say."""
    frame = lab.spark.createDataFrame([(7, "new")], "a long, b string")
    writer = frame.writeTo(lab.sql_name("t"))
    for fact, value in (("format", "2"), ("job-id", lab.namespace)):
        writer = writer.option(f"snapshot-property.frazil.{fact}", value)
    writer.append()
    history = lab.spark.sql(f"SELECT snapshot_id FROM {lab.sql_name('t')}.history ORDER BY made_current_at")
    return int(history.collect()[-1].snapshot_id)


def by_property(lab: Lab, committer: IcebergCommitter) -> int:
    table, job = TableName((lab.namespace,), "t"), JobId(lab.namespace)
    head: Any = committer.head(table)
    facts: dict[str, Any] = json.loads(head.properties[job.ledger_property])
    newer = json.dumps({**facts, "frazil.format": "2"})
    head.base.table.updateProperties().set(job.ledger_property, newer).commit()
    return int(facts["snapshot-id"])


@pytest.mark.parametrize("newer", [by_summary, by_property])
def test_a_newer_format_stops_whatever_reads_the_ledger(
    lab: Lab, warehouse: Path, committer: IcebergCommitter, newer: Any
) -> None:
    name = f"{lab.namespace}.t"
    snapshot_id = newer(lab, committer)
    told = f"snapshot {snapshot_id} in {name} has format 2; this version of Frazil knows formats up to 1"
    before = {path for path in (warehouse / lab.namespace).rglob("*") if path.is_file()}
    register = generation(lab)
    for command in (["run", "--once"], ["epochs", name], ["as-of", name, at(2).text], ["rewind", name], ["maintain"]):
        result = lab.cli(*command)
        assert result.exit_code == LedgerTooNew.exit_code, f"{command}: {result.output}"
        assert told in " ".join(result.output.split()), command
        assert "Upgrade" in result.output or command == ["maintain"], command
    for command in (["doctor", name], ["check"]):
        result = lab.cli(*command)
        assert told in " ".join(result.output.split()), f"{command}: {result.output}"
    status = lab.cli("status", "--json")
    assert status.exit_code == LedgerTooNew.exit_code
    (line,) = json.loads(status.stdout)
    assert (line["state"], told in line["error"]) == ("STOPPED", True)
    assert {path for path in (warehouse / lab.namespace).rglob("*") if path.is_file()} == before
    assert generation(lab) == register, "the newer run was not fenced out"


def generation(lab: Lab) -> Any:
    rows = lab.spark.sql("SHOW TBLPROPERTIES frazil._frazil.pipelines").collect()
    return [row.value for row in rows if row.key == JobId(lab.namespace).fence_property]


def test_going_back_works_as_it_is_documented(lab: Lab, committer: IcebergCommitter) -> None:
    """docs/upgrades.md"""
    noted, name = lab.epochs()[0].snapshot_id, f"{lab.namespace}.t"
    newest = by_summary(lab, committer)
    for statement in (
        f"CALL frazil.system.rollback_to_snapshot('{name}', {noted})",
        f"ALTER TABLE frazil.{name} DROP TAG frazil_{lab.namespace}",
        f"ALTER TABLE frazil.{name} UNSET TBLPROPERTIES ('frazil.{lab.namespace}.ledger')",
        f"CALL frazil.system.expire_snapshots(table => '{name}', snapshot_ids => ARRAY({newest}))",
    ):
        assert lab.cli("run", "--once").exit_code == LedgerTooNew.exit_code
        lab.spark.sql(statement)
    lab.run()
    assert lab.rows() == [{"a": 1, "b": "y"}]
    assert lab.resolved() == [at(2).text, at(4).text]
