"""Bad input as an operator meets it: a clear message, the right exit code, the table at its last epoch; and once the
cause is gone, the next run continues without loss.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from feed_builders import Lab, at, table, upsert
from pyspark.sql import SparkSession
from servers.processes import free_port

pytestmark = pytest.mark.spark

GOOD = {"a": 1, "b": "x"}


@pytest.fixture
def lab(spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path) -> Lab:
    """A feed whose first epoch is published; the second is up to the test."""
    lab = Lab(spark, warehouse, namespace, tmp_path)
    lab.feed.data(at(1), [upsert([1], at(1), **GOOD)])
    lab.feed.resolved(at(2))
    assert lab.run().epochs == 1
    return lab


def refused(lab: Lab, exit_code: int) -> Result:
    """The run stops with this code, says what to do, and publishes nothing."""
    result = lab.cli("run", "--once")
    assert result.exit_code == exit_code, result.stderr
    assert "error: " in result.stderr
    assert "hint: " in result.stderr
    assert "Traceback" not in result.stderr
    assert "unexpected" not in result.stderr
    assert lab.rows() == [GOOD]
    assert lab.resolved() == [at(2).text]
    return result


def goes_on(lab: Lab, mend: Callable[[], object], *expected: tuple[int, str]) -> None:
    mend()
    result = lab.cli("run", "--once")
    assert result.exit_code == 0, result.stderr
    assert [(row["a"], row["b"]) for row in lab.rows()] == [(1, "x"), *expected]
    assert lab.rows(resolved=at(2)) == [GOOD]


def with_a_bad_line(lab: Lab, line: str) -> tuple[str, Callable[[], object]]:
    """A file whose second line is this; the path in the feed, and what mends it."""
    good = [upsert([n], at(3), a=n, b="y") for n in (2, 4)]
    path = lab.feed.data(at(3), [good[0], line, good[1]])
    lab.feed.resolved(at(5))
    mended = "".join(text + "\n" for text in [good[0], upsert([3], at(3), a=3, b="y"), good[1]])
    return path, lambda: (lab.feed.root / path).write_text(mended)


AFTER = [(2, "y"), (3, "y"), (4, "y")]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"after": {"a": 3, "b": "y"}, "key": [3], "upd', "not a JSON object"),
        (f'{{"after": {{"a": 3}}, "key": [3], "updated": "{at(3)}", "weather": "ice"}}', "unknown envelope"),
        ('{"after": {"a": 3, "b": "y"}, "key": [3]}', "without commit time"),
        ('{"after": {"a": 3, "b": "y"}, "key": [3], "updated": "yesterday"}', "commit time"),
        (f'{{"after": {{"a": 3, "b": "y"}}, "key": [9], "updated": "{at(3)}"}}', "key"),
        (f'{{"after": {{"a": null, "b": "y"}}, "key": [null], "updated": "{at(3)}"}}', "NULL"),
        (f'{{"after": null, "updated": "{at(3)}"}}', "does not say which row"),
    ],
)
def test_a_line_that_cannot_be_understood_is_named_with_its_file(lab: Lab, line: str, told: str) -> None:
    """H11, H20: nothing advances."""
    path, mend = with_a_bad_line(lab, line)
    message = refused(lab, 3).stderr
    assert told in message
    assert f"{path}:2" in message
    goes_on(lab, mend, *AFTER)


@pytest.mark.parametrize("small", [True, False])
def test_a_value_that_does_not_fit_is_named_with_table_key_and_column(lab: Lab, small: bool) -> None:
    """H39: nothing is clamped or rounded. In a job of one task, and in one of several."""
    lab.settings["limits"] = {} if small else {"small_epoch_bytes": 1}
    lab.tables = [table(columns={"a": "INT8", "b": "STRING", "price": "DECIMAL(6,2)"})]
    path = lab.feed.root / lab.feed.data(at(3), [upsert([3], at(3), a=3, b="y", price=1.234)])
    lab.feed.resolved(at(5))
    result = lab.cli("run", "--once")
    assert result.exit_code == 3
    for part in ("t:", "[3]", "price", "DECIMAL(6,2)", "1.234", f"{path.name}:1"):
        assert part in result.stderr
    assert [row["a"] for row in lab.rows()] == [1]
    path.write_text(path.read_text().replace("1.234", "1.230"))
    assert lab.cli("run", "--once").exit_code == 0
    assert [str(row["price"]) for row in lab.rows()] == ["None", "1.23"]


def test_a_wrong_key_in_the_configuration_is_told_not_waited_for(
    spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path
) -> None:
    """Rows are there and have no such column: waiting for more of them would be waiting forever."""
    for pinned in ({}, {"a": "INT8", "b": "STRING"}):
        lab = Lab(spark, warehouse, namespace, tmp_path, tables=[table(key=["order_id"], columns=pinned)])
        lab.feed.data(at(1), [upsert([1], at(1), **GOOD)])
        lab.feed.resolved(at(2))
        result = lab.cli("run", "--once")
        assert result.exit_code in (2, 3), result.stderr + result.stdout
        assert "order_id" in result.stderr
        assert "hint: " in result.stderr
        assert not lab.exists()


def test_a_csv_export_without_pinned_columns_is_told_not_waited_for(
    spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path
) -> None:
    lab = Lab(spark, warehouse, namespace, tmp_path, tables=[table(columns={})], source={"complete": True})
    lab.feed.data(at(1), b"1,x\n", extension="csv")
    result = lab.cli("run", "--once")
    assert result.exit_code == 2, result.stderr
    assert "CSV" in result.stderr
    assert "columns:" in result.stderr


def test_messages_without_a_key_need_a_configured_one(
    spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path
) -> None:
    """A CDC query in the bare envelope carries no key."""
    lab = Lab(spark, warehouse, namespace, tmp_path, tables=[table(key=(), columns={})])
    lab.feed.data(at(1), [f'{{"__crdb__": {{"updated": "{at(1)}"}}, "a": 1, "b": "x"}}'])
    lab.feed.resolved(at(2))
    result = lab.cli("run", "--once")
    assert result.exit_code == 3, result.stderr
    assert "key:" in result.stderr
    lab.tables = [table(columns={})]
    assert lab.cli("run", "--once").exit_code == 0
    assert lab.rows() == [GOOD]


def test_a_resolved_file_without_timestamp_is_named(lab: Lab) -> None:
    lab.feed.data(at(3), [upsert([2], at(3), a=2, b="y")])
    lab.feed.resolved(at(5))
    bad = lab.feed.root / Path(lab.feed.files[-1]).parent / "999999.RESOLVED"
    bad.write_text("{}")
    assert "999999.RESOLVED" in refused(lab, 3).stderr
    goes_on(lab, bad.unlink, (2, "y"))


def test_a_torn_compressed_file_is_named(lab: Lab) -> None:
    path = lab.feed.root / lab.feed.data(at(3), [upsert([2], at(3), a=2, b="y" * 500)], extension="ndjson.gz")
    lab.feed.resolved(at(5))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert path.name in refused(lab, 3).stderr
    goes_on(lab, lambda: path.write_bytes(whole), (2, "y" * 500))


def test_a_misspelt_key_of_the_configuration_names_the_nearest(lab: Lab) -> None:
    lab.settings = {"hartbeat": "10m"}
    result = lab.cli("run", "--once")
    assert result.exit_code == 2
    message = result.stderr
    assert "hartbeat" in message
    assert "heartbeat" in message
    assert "pipeline.yaml" in message
    lab.feed.data(at(3), [upsert([2], at(3), a=2, b="y")])
    lab.feed.resolved(at(5))
    goes_on(lab, lab.settings.clear, (2, "y"))


def test_an_unknown_type_of_a_column_names_the_nearest(lab: Lab) -> None:
    """Before anything is opened."""
    right, lab.tables = lab.tables, [table(columns={"a": "INT8", "b": "STRNG"})]
    result = lab.cli("run", "--once")
    assert result.exit_code == 2
    assert "line 16: tables[0].columns.b: unknown column type 'STRNG'; did you mean STRING? (t)" in result.stderr
    lab.tables = right
    assert lab.rows() == [GOOD]


def test_a_feed_that_is_not_there_is_named(lab: Lab) -> None:
    there = lab.feed.root
    away = there.with_name("away")
    there.rename(away)
    message = refused(lab, 1).stderr
    assert str(there) in message
    assert "does not exist" in message
    goes_on(lab, lambda: away.rename(there))


@pytest.mark.parametrize("command", ["run", "check", "status"])
def test_a_rest_catalog_that_does_not_answer_is_named(lab: Lab, command: str) -> None:
    uri = f"http://127.0.0.1:{free_port()}"
    lab.catalog = {"type": "rest", "name": f"nobody_{command}", "uri": uri}
    result = lab.cli(command, *(["--once"] if command == "run" else []))
    assert result.exit_code == 1, result.stderr
    assert uri in result.stderr
    assert "hint: " in result.stderr
    assert "unexpected" not in result.stderr


def test_a_warehouse_that_cannot_be_written_is_named(lab: Lab) -> None:
    """Below a file nobody can make a directory, whatever the user's rights are."""
    (lab.root / "file").write_text("in the way")
    warehouse = lab.root / "file" / "warehouse"
    lab.catalog = {"type": "builtin", "name": "elsewhere", "warehouse": str(warehouse)}
    result = lab.cli("run", "--once")
    assert result.exit_code == 7, result.stderr
    assert str(warehouse) in result.stderr
    assert "hint: " in result.stderr


def test_overcompaction_is_exit_code_4(lab: Lab) -> None:
    path = lab.feed.root / lab.feed.files[-1]
    kept = path.read_bytes()
    path.unlink()
    lab.feed.data(at(3), [upsert([2], at(3), a=2, b="y")])
    lab.feed.resolved(at(5))
    assert "overcompacted" in refused(lab, 4).stderr
    goes_on(lab, lambda: path.write_bytes(kept), (2, "y"))


def test_answers_for_scripts_are_one_json_array(lab: Lab) -> None:
    (summary,) = json.loads(lab.cli("run", "--once", "--json").stdout)
    assert (summary["epochs"], summary["resolved"]) == (0, at(2).text)
    (state,) = json.loads(lab.cli("status", "--json").stdout)
    assert (state["table"], state["state"], state["resolved"]) == (f"{lab.namespace}.t", "STEADY_STATE", at(2).text)
    assert state["lag_seconds"] > 0
    (epoch,) = json.loads(lab.cli("epochs", f"{lab.namespace}.t", "--json").stdout)
    assert epoch["snapshot_id"] == state["snapshot_id"]
    assert (epoch["resolved"], epoch["data_files"], epoch["delete_files"], epoch["rows"]) == (at(2).text, 1, 0, 1)
    assert {"batch_id", "committed_at"} <= set(epoch)


def test_a_table_of_another_pipeline_is_refused_with_the_list_of_ours(lab: Lab) -> None:
    result = lab.cli("epochs", "some.other")
    assert result.exit_code == 2
    assert f"{lab.namespace}.t" in result.stderr


def test_a_rolled_back_table_is_refused_until_it_is_rewound(lab: Lab) -> None:
    """H4, H44: exit code 5, and `frazil rewind` publishes again what the rollback took away."""
    first = lab.epochs()[0].snapshot_id
    lab.feed.data(at(3), [upsert([2], at(3), a=2, b="y")])
    lab.feed.resolved(at(5))
    lab.run()
    lab.spark.sql(f"CALL frazil.system.rollback_to_snapshot('{lab.namespace}.t', {first})")
    result = lab.cli("run", "--once")
    assert result.exit_code == 5
    assert "rewind" in result.stderr
    assert lab.rows() == [GOOD]
    assert lab.cli("rewind", f"{lab.namespace}.t").exit_code == 0
    assert lab.cli("run", "--once").exit_code == 0
    assert [row["a"] for row in lab.rows()] == [1, 2]
