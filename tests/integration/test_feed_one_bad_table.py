"""One table's bad file is its own trouble: the others are published, and it is told which file and line it is."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from feed_builders import Lab, at, table, upsert
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TORN = upsert([2], at(1), a=2, b="y")[:30]
POISON = '{"after": {"a": 2, "b": "y"}, "key": {"a": 2}, "op": "c", "source": 5, "ts_ns": 1}'
SURROGATE = f'{{"after": {{"a": 2, "b": "\\ud800"}}, "key": ["\\ud800"], "updated": "{at(1)}"}}'
EXPONENT = f'{{"after": {{"a": 2, "b": 1E{"9" * 20}}}, "key": [2], "updated": "{at(1)}"}}'


def first(second: int = 1) -> str:
    return upsert([1], at(second), a=1, b="x")


def feed_of_bad_files(lab: Lab) -> dict[str, str]:
    """The bad file of each table, by its name."""
    squeezed = gzip.compress("".join(upsert([n], at(1), a=n, b=str(n**9)) + "\n" for n in range(5000)).encode())
    files = {
        "torn": lab.feed.data(at(1), [first(), TORN], topic="torn"),
        "torn_untold": lab.feed.data(at(1), [first(), TORN], topic="torn_untold"),
        "poison": lab.feed.data(at(1), [first(), POISON], topic="poison"),
        "poison_untold": lab.feed.data(at(1), [first(), POISON], topic="poison_untold"),
        "surrogate": lab.feed.data(at(1), [first(), SURROGATE], topic="surrogate"),
        "exponent": lab.feed.data(at(1), [first(), EXPONENT], topic="exponent"),
    }
    for name in ("cut", "cut_untold"):
        files[name] = lab.feed.data(at(1), [], topic=name, extension="ndjson.gz")
        (lab.feed.root / files[name]).write_bytes(squeezed[: len(squeezed) // 2])
    lab.feed.data(at(1), [first()], topic="good")
    lab.feed.resolved(at(2))
    return files


@pytest.fixture
def lab(spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path) -> Lab:
    """Pinned tables, tables whose columns rows must tell, and a good one that comes last."""
    pinned = [table(name) for name in ("torn", "cut", "poison", "surrogate", "exponent")]
    untold = [table(name, key=(), columns={}) for name in ("torn_untold", "cut_untold", "poison_untold")]
    return Lab(spark, warehouse, namespace, tmp_path, tables=[*pinned, *untold, table("good")])


def test_other_tables_are_published_beside_bad_files(lab: Lab) -> None:
    files = feed_of_bad_files(lab)
    result = lab.cli("run", "--once")
    assert result.exit_code == 3, result.stderr
    assert lab.rows("good") == [{"a": 1, "b": "x"}]
    for name, path in files.items():
        told = path if name.startswith("cut") else f"{path}:2"
        assert told in result.stderr, f"{name} is not told by its file"

    checked = lab.cli("check", "--json")
    assert checked.exit_code == 3, "it exits as the run"
    notes = {one["source"]: " ".join(one["notes"]) for one in json.loads(checked.stdout)}
    for name in ("torn", "cut", "poison", "torn_untold", "cut_untold", "poison_untold"):
        assert files[name] in notes[name], f"check does not tell the trouble of {name}"
    assert "problem" not in notes["good"]


def test_with_a_quarantine_bad_lines_are_put_away_and_bad_files_stop_their_table(lab: Lab) -> None:
    files = feed_of_bad_files(lab)
    lab.settings["on_error"] = "quarantine"
    result = lab.cli("run", "--once")
    assert result.exit_code == 3, "a file that cannot be read has no lines to put away"
    assert files["cut"] in result.stderr
    assert files["cut_untold"] in result.stderr
    for name in ("good", "torn", "torn_untold", "poison", "poison_untold", "surrogate", "exponent"):
        assert [row["a"] for row in lab.rows(name)] == [1], name
    with lab.open() as pipeline:
        put_away = {change.table.rpartition(".")[2]: change for change in pipeline.quarantine()}
    assert set(put_away) == {"torn", "torn_untold", "poison", "poison_untold", "surrogate", "exponent"}
    assert {(name, one.file, one.line) for name, one in put_away.items()} == {
        (name, files[name], 2) for name in put_away
    }


def test_a_table_whose_files_are_gone_is_told_as_what_it_is(
    spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path
) -> None:
    lab = Lab(spark, warehouse, namespace, tmp_path, tables=[table(key=(), columns={}), table("good")])
    gone = lab.feed.data(at(1), [first()])
    lab.feed.data(at(1), [first()], topic="good")
    lab.feed.resolved(at(2))
    lab.run()
    (lab.feed.root / gone).unlink()
    lab.feed.data(at(3), [first(3)], topic="good")
    lab.feed.resolved(at(4))

    result = lab.cli("run", "--once")
    assert result.exit_code == 0, result.stderr
    (told,) = [line for line in result.stderr.splitlines() if "shows nothing of these tables" in line]
    assert f"{namespace}.t" in told
    assert "good" not in told
    checked = {one["source"]: one for one in json.loads(lab.cli("check", "--json").stdout)}
    assert checked["t"]["key"] == ["a"]
    assert [column["name"] for column in checked["t"]["columns"]] == ["a", "b"]
    (note,) = checked["t"]["notes"]
    assert "published up to 2023-11-14 22:13:22.000 Z" in note


def test_a_name_and_a_pattern_that_fit_nothing_are_told(
    spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path
) -> None:
    lab = Lab(spark, warehouse, namespace, tmp_path, tables=[table("good"), table("goood"), table("missing_*")])
    lab.feed.data(at(1), [first()], topic="good")
    lab.feed.resolved(at(2))
    result = lab.cli("run", "--once")
    assert result.exit_code == 0, result.stderr
    (told,) = [line for line in result.stderr.splitlines() if "no table that these entries name" in line]
    assert "goood" in told
    assert "missing_*" in told
    checked = lab.cli("check").stdout
    assert "missing_*: no table yet\nnote: the source shows no table that fits this pattern" in checked
    assert "\n2 tables; nothing was changed" in checked
