"""What the tables tell where no daemon is asked, and a run beside one, in the shared Spark session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from feed_builders import Lab, at, delete, upsert
from pyspark.sql import SparkSession

from frazil.app.pidfile import announced
from frazil.config.load import load_config
from frazil.errors import ConfigError

pytestmark = pytest.mark.spark


@pytest.fixture
def lab(spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path) -> Lab:
    lab = Lab(spark, warehouse, namespace, tmp_path)
    lab.feed.data(at(1), [upsert([1], at(1), a=1, b="x"), upsert([2], at(1), a=2, b="y")])
    lab.feed.resolved(at(2))
    lab.run()
    lab.feed.data(at(3), [upsert([1], at(3), a=1, b="z"), delete([2], at(3)), upsert([3], at(3), a=3, b="w")])
    lab.feed.resolved(at(4))
    lab.run()
    return lab


def status(lab: Lab, code: int = 0) -> dict[str, Any]:
    result = lab.cli("status", "--json")
    assert result.exit_code == code, result.output
    (told,) = json.loads(result.stdout)
    assert isinstance(told, dict)
    return told


def test_the_snapshot_is_the_head_and_not_that_of_the_last_epoch(lab: Lab) -> None:
    epoch = lab.epochs()[0].snapshot_id
    told = status(lab)
    assert (told["snapshot_id"], told["epoch_snapshot_id"], told["told_by"]) == (epoch, epoch, "tables")
    assert (told["table_rows"], told["epochs"], told["rows"]) == (2, None, None)
    lab.spark.sql(
        f"CALL frazil.system.rewrite_data_files(table => '{lab.namespace}.t', options => map('rewrite-all', 'true'))"
    )
    told = status(lab)
    head = lab.spark.sql(f"SELECT snapshot_id FROM {lab.sql_name('t')}.history ORDER BY made_current_at DESC").first()
    assert head is not None
    assert told["snapshot_id"] == head[0] != epoch
    assert (told["epoch_snapshot_id"], told["resolved"], told["table_rows"]) == (epoch, at(4).text, 2)


def test_a_table_that_was_rolled_back_is_told_stopped_with_what_to_do(lab: Lab) -> None:
    first = lab.epochs()[-1].snapshot_id
    lab.spark.sql(f"CALL frazil.system.rollback_to_snapshot('{lab.namespace}.t', {first})")
    told = status(lab, code=5)
    assert told["state"] == "STOPPED"
    assert f"rolled back behind its last epoch, {at(4).text}" in told["error"]
    assert f"frazil rewind CONFIG {lab.namespace}.t" in told["hint"]


@pytest.mark.parametrize("name", ["t", "order", "Two-Words"])
def test_the_statement_that_as_of_prints_runs(lab: Lab, name: str) -> None:
    lab.tables[0]["target"] = f"{lab.namespace}.{name}"
    lab.run()
    result = lab.cli("as-of", f"{lab.namespace}.{name}", at(2).text)
    assert result.exit_code == 0, result.output
    said, statement = result.stdout.splitlines()
    assert said.endswith(f"Z, {at(2).text}")
    assert sorted(row["b"] for row in lab.spark.sql(statement).collect()) == ["x", "y"]


def test_the_time_that_epochs_prints_of_the_newest_epoch_is_reached(lab: Lab) -> None:
    shown = lab.cli("epochs", f"{lab.namespace}.t").stdout
    assert "2023-11-14 22:13:24.000 Z" in shown
    result = lab.cli("as-of", f"{lab.namespace}.t", "2023-11-14 22:13:24.000 Z")
    assert (result.exit_code, result.stderr) == (0, "")
    too_old = lab.cli("as-of", f"{lab.namespace}.t", "2023-11-14T22:13:21Z")
    assert (
        "as of 2023-11-14T22:13:21Z: the oldest epoch that can be read is of 2023-11-14 22:13:22.000 Z"
        in too_old.stderr
    )


def test_the_block_that_check_prints_can_be_pasted(lab: Lab) -> None:
    """The feed tells only the table's name, and three of the entry's settings are not about columns."""
    lab.feed.data(at(5), [upsert([1], at(5), a=1, b="x", c=1.5)], topic="wide")
    lab.feed.resolved(at(6))
    entry = {"source": "shop.public.wide", "key": ["a"], "columns": {"a": "INT8"}, "partition": ["bucket(4, a)"]}
    lab.tables.append({**entry, "changelog": True, "deletes": "equality", "format_version": 2})
    result = lab.cli("check")
    assert result.exit_code == 0, result.output
    beside = f"beside it: {lab.namespace}.wide__changelog"
    assert f"deletes: equality; format version 2; partitioned by bucket(4, a); {beside}\n" in result.stdout
    _, _, block = result.stdout.partition("put this into the configuration:\n")
    before = load_config(lab.config)
    lab.tables = yaml.safe_load(block)["tables"]
    after = load_config(lab.config)
    wide = after.tables[1]
    assert (wide.source, wide.target) == ("shop.public.wide", f"{lab.namespace}.wide")
    assert wide.columns == {"a": "INT8", "b": "STRING", "c": "DECIMAL(38,10)"}
    assert wide.options == before.tables[1].options
    assert wide.changelog
    assert lab.run().epochs == 2
    again = lab.cli("check")
    assert "exists; key: a (from configuration)\ndeletes: equality; format version 2; partitioned by" in again.stdout
    assert "problem" not in again.stdout


def test_a_run_once_beside_a_daemon_is_refused_unless_it_is_to_take_over(lab: Lab) -> None:
    with announced(load_config(lab.config), ""), lab.open() as pipeline:
        with pytest.raises(ConfigError, match="would take over, end it with exit code 6"):
            pipeline.run(once=True)
        assert pipeline.run(once=True, take_over=True).epochs == 0
    assert lab.run().epochs == 0, "a daemon that has ended is in nobody's way"
