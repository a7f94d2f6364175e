"""`readers:` decides how new tables are made, `frazil check` says why and what an existing table needs; and its exit
code tells whether something would stop a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from feed_builders import Lab, at, delete, table, upsert
from pyspark.sql import SparkSession

from frazil.commit import machine

pytestmark = pytest.mark.spark

FORMAT_2 = "format version 2 because of `readers:`: athena cannot read format 3"


@pytest.fixture
def lab(spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path) -> Lab:
    lab = Lab(spark, warehouse, namespace, tmp_path, tables=[table(changelog=True)])
    lab.feed.data(at(1), [upsert([n], at(1), a=n, b="x") for n in (1, 2, 3)])
    lab.feed.resolved(at(2))
    return lab


def checked(lab: Lab) -> dict[str, Any]:
    result = lab.cli("check", "--json")
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.stdout)
    return dict(found)


def versions(lab: Lab, *names: str) -> list[str]:
    found = []
    for name in names:
        properties = lab.spark.sql(f"SHOW TBLPROPERTIES {lab.sql_name(name)}").collect()
        found += [row["value"] for row in properties if row["key"] == "format-version"]
    return found


def deletes(lab: Lab) -> set[tuple[int, str]]:
    rows = lab.spark.sql(f"SELECT content, file_format FROM {lab.sql_name('t')}.delete_files").collect()
    return {(row["content"], row["file_format"]) for row in rows}


def more(lab: Lab) -> None:
    lab.feed.data(at(3), [upsert([1], at(3), a=1, b="y"), delete([2], at(3))])
    lab.feed.resolved(at(4))
    lab.run()


def test_a_reader_without_format_3_gets_tables_of_format_2_with_position_deletes(lab: Lab) -> None:
    lab.settings = {"readers": ["spark", "athena"]}
    told = checked(lab)
    assert told["made"]["format_version"] == 2
    assert FORMAT_2 in told["notes"]
    assert any("only deleted by position" in note and "athena" in note for note in told["notes"])
    lab.run()
    more(lab)
    assert versions(lab, "t", "t__changelog") == ["2", "2"]
    assert deletes(lab) == {(1, "PARQUET")}, "position deletes"
    assert [(row["a"], row["b"]) for row in lab.rows()] == [(1, "y"), (3, "x")]


def test_readers_of_format_3_leave_everything_as_it_is(lab: Lab) -> None:
    lab.settings = {"readers": ["spark", "trino"]}
    assert checked(lab)["notes"] == []
    lab.run()
    more(lab)
    assert versions(lab, "t", "t__changelog") == ["3", "3"]
    assert deletes(lab) == {(1, "PUFFIN")}


def test_of_a_table_that_is_there_check_says_what_a_reader_cannot_read_and_what_to_do(lab: Lab) -> None:
    lab.tables = [table(deletes="equality")]
    lab.run()
    more(lab)
    lab.tables, lab.settings = [table()], {"readers": ["spark", "athena", "snowflake"]}
    told = checked(lab)
    assert told["made"]["format_version"] == 3, "it stays what it is"
    (format_3, by_key) = told["notes"]
    assert format_3.startswith("athena cannot read format 3, which this table has.")
    assert "frazil drop CONFIG TABLE --force" in format_3
    assert "snowflake" in by_key
    assert "`frazil maintain` converts them" in by_key
    assert lab.cli("maintain").exit_code == 0
    assert checked(lab)["notes"] == [format_3]


def test_a_table_that_was_never_published_to_is_made_anew_in_the_older_format(lab: Lab) -> None:
    lab.tables = [table(columns={"a": "INT8", "b": "BOOL"})]
    assert lab.cli("run", "--once").exit_code == 3
    assert versions(lab, "t") == ["3"]
    lab.tables, lab.settings = [table()], {"readers": ["athena"]}
    assert FORMAT_2 in checked(lab)["notes"]
    lab.run()
    assert versions(lab, "t") == ["2"]


@pytest.mark.parametrize(("reader", "content"), [("spark", 2), ("pyiceberg", 1)])
def test_a_lookup_that_lost_its_races_deletes_by_key_only_where_all_readers_see_it(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, reader: str, content: int
) -> None:
    lab.settings = {"readers": [reader]}
    lab.run()
    monkeypatch.setattr(machine, "LOOKUPS_LOST_MAX", 0)
    more(lab)
    assert {kind for kind, _ in deletes(lab)} == {content}
