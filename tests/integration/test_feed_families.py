"""Tables with column families, from feed files to rows: the families are one table, whatever a change leaves out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from feed_builders import Lab, at, column_types, delete, table, upsert
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from frazil.errors import ConfigError
from frazil.sources.cockroachdb.position import Hlc

pytestmark = pytest.mark.spark

COLUMNS = {"a": "INT8", "b": "STRING", "c": "INT8", "d": "STRING", "e": "STRING"}


def f1(a: int, when: Hlc, b: str = "x") -> str:
    """The primary family: it owns the key."""
    return upsert([a], when, a=a, b=b)


def f2(a: int, when: Hlc, c: int | None = None, d: str | None = None) -> str:
    return upsert([a], when, c=c, d=d)


def f3(a: int, when: Hlc, e: str | None) -> str:
    return upsert([a], when, e=e)


def row(a: int, b: str | None = "x", c: int | None = None, d: str | None = None, e: str | None = None) -> Any:
    return {"a": a, "b": b, "c": c, "d": d, "e": e}


def families(lab: Lab, at_: Hlc, number: int = 0, **lines: list[str]) -> None:
    for family, own in lines.items():
        lab.feed.data(at_, own, topic=f"t+{family}", number=number)


@pytest.fixture
def lab(spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path) -> Lab:
    return Lab(spark, warehouse, namespace, tmp_path)


@pytest.fixture(params=["pinned", "discovered"])
def told(request: pytest.FixtureRequest, lab: Lab) -> Lab:
    lab.tables = [table(columns=COLUMNS if request.param == "pinned" else {}, key=("a",))]
    return lab


def test_families_are_put_together_and_keep_what_a_change_leaves_out(told: Lab) -> None:
    lab = told
    families(
        lab,
        at(1),
        f1=[f1(n, at(1)) for n in (1, 2, 3, 4)],
        f2=[f2(1, at(1), 10, "one"), f2(2, at(1), 20, "two"), f2(4, at(1), 40, "four")],
        f3=[f3(1, at(1), "e1"), f3(3, at(1), "e3")],
    )
    lab.feed.resolved(at(2))
    # Nothing but one family of row 1; family f2 of row 2 becomes NULL; row 3 gets one; row 4 is deleted.
    families(lab, at(3), f2=[f2(1, at(3), 11, None), delete([2], at(3)), f2(3, at(3), 30), delete([4], at(4))])
    families(lab, at(3), f1=[delete([4], at(4))])
    lab.feed.resolved(at(5))
    # Row 1 is deleted and inserted again, without f2 and f3; row 2 changes in its primary family only.
    families(lab, at(6), f1=[delete([1], at(6)), f1(1, at(7), "again"), f1(2, at(7), "second")])
    families(lab, at(6), f2=[delete([1], at(6))], f3=[delete([1], at(6))])
    lab.feed.resolved(at(8))
    lab.run()
    assert lab.rows(resolved=at(2)) == [
        row(1, c=10, d="one", e="e1"),
        row(2, c=20, d="two"),
        row(3, e="e3"),
        row(4, c=40, d="four"),
    ]
    assert lab.rows(resolved=at(5)) == [row(1, c=11, e="e1"), row(2), row(3, c=30, e="e3")]
    assert lab.rows() == [row(1, "again"), row(2, "second"), row(3, c=30, e="e3")]


def test_what_is_known_of_families_survives_a_restart(told: Lab) -> None:
    """The second run meets rows of f2 and f3 only, and then nothing but deletes of f3."""
    lab = told
    families(lab, at(1), f1=[f1(1, at(1)), f1(2, at(1))], f2=[f2(1, at(1), 10, "d")], f3=[f3(2, at(1), "e")])
    lab.feed.resolved(at(2))
    lab.run()
    families(lab, at(3), f2=[f2(2, at(3), 20)])
    lab.feed.resolved(at(4))
    lab.run()
    assert lab.rows() == [row(1, c=10, d="d"), row(2, c=20, e="e")]
    families(lab, at(5), f3=[delete([2], at(5))])
    lab.feed.resolved(at(6))
    lab.run()
    assert lab.rows() == [row(1, c=10, d="d"), row(2, c=20)]
    families(lab, at(7), f1=[delete([1], at(7))], f2=[delete([1], at(7))])
    lab.feed.resolved(at(8))
    lab.run()
    assert lab.rows() == [row(2, c=20)]


def test_a_row_beyond_r_in_one_family_is_carried_over(lab: Lab) -> None:
    lab.tables = [table(columns=COLUMNS)]
    families(lab, at(1), f1=[f1(1, at(1))], f2=[f2(1, at(1), 10), f2(1, at(9), 11)])
    lab.feed.resolved(at(2))
    lab.run()
    assert lab.rows() == [row(1, c=10)]
    families(lab, at(3), f1=[f1(1, at(3), "y")])
    lab.feed.resolved(at(10))
    lab.run()
    assert lab.rows() == [row(1, "y", c=11)]


@pytest.mark.parametrize("version", [2, 3])
def test_a_row_moves_when_one_family_changes_its_partition(lab: Lab, version: int) -> None:
    lab.tables = [table(columns=COLUMNS, partition=["d"], sort=["a"], format_version=version)]
    families(lab, at(1), f1=[f1(n, at(1)) for n in (1, 2, 3)], f2=[f2(n, at(1), n, "left") for n in (1, 2, 3)])
    lab.feed.resolved(at(2))
    families(lab, at(3), f2=[f2(2, at(3), 2, "right")])
    lab.feed.resolved(at(4))
    families(lab, at(5), f1=[f1(2, at(5), "moved"), f1(3, at(5), "stays")])
    lab.feed.resolved(at(6))
    lab.run()
    expected = [row(1, c=1, d="left"), row(2, "moved", c=2, d="right"), row(3, "stays", c=3, d="left")]
    assert lab.rows() == expected
    parts = lab.spark.sql(f"SELECT partition.d, record_count FROM {lab.sql_name('t')}.partitions").collect()
    assert {part["d"] for part in parts} == {"left", "right"}
    assert lab.spark.sql(f"SELECT a FROM {lab.sql_name('t')} WHERE d = 'left'").count() == 2
    catalog = SqlCatalog("frazil", uri=f"sqlite:///{lab.warehouse}/catalog.db")
    read = catalog.load_table((lab.namespace, "t")).scan().to_arrow().to_pylist()
    assert sorted(read, key=lambda one: one["a"]) == expected


def test_a_family_that_an_entry_names_is_a_table_of_its_own(lab: Lab) -> None:
    lab.tables = [
        table("t", columns={}),
        table("t+f3", columns={"a": "INT8"}, target=f"{lab.namespace}.third"),
    ]
    families(lab, at(1), f1=[f1(1, at(1))], f2=[f2(1, at(1), 10, "d")], f3=[f3(1, at(1), "e")])
    lab.feed.resolved(at(2))
    lab.run()
    assert lab.rows() == [{"a": 1, "b": "x", "c": 10, "d": "d"}]
    assert lab.rows("third") == [{"a": 1, "e": "e"}]


def test_a_pattern_takes_a_table_and_not_its_families(lab: Lab) -> None:
    lab.tables = [{"source": "*", "target": f"{lab.namespace}.{{table}}"}]
    families(lab, at(1), f1=[f1(n, at(1)) for n in (5, 6)], f2=[f2(n, at(1), n + 10, "d") for n in (5, 6)])
    lab.feed.data(at(1), [upsert([1], at(1), a=1, b="plain")], topic="u")
    lab.feed.resolved(at(2))
    lab.run()
    assert lab.rows() == [{"a": n, "b": "x", "c": n + 10, "d": "d"} for n in (5, 6)]
    assert lab.rows("u") == [{"a": 1, "b": "plain"}]


def test_a_table_gets_a_second_family_and_a_family_a_new_column(lab: Lab) -> None:
    """A table with one family is sent under its plain name; what came before goes on under the family's."""
    lab.tables = [table(columns={})]
    lab.feed.data(at(1), [upsert([n], at(1), a=n, b="x") for n in (1, 2)])
    lab.feed.resolved(at(2))
    lab.run()
    lab.feed.data(at(3), [upsert([1], at(3), a=1, b="y")])
    lab.feed.data(at(4), [upsert([1], at(4), a=1, b="z")], topic="t+primary", schema="2")
    lab.feed.data(at(4), [upsert([1], at(4), c=10), upsert([2], at(4), c=20)], topic="t+f2", schema="2")
    lab.feed.resolved(at(5))
    lab.run()
    assert lab.rows() == [{"a": 1, "b": "z", "c": 10}, {"a": 2, "b": "x", "c": 20}]
    lab.feed.data(at(6), [upsert([2], at(6), c=21, g=True)], topic="t+f2", schema="3")
    lab.feed.resolved(at(7))
    lab.feed.data(at(8), [upsert([2], at(8), a=2, b="w")], topic="t+primary", schema="3")
    lab.feed.resolved(at(9))
    lab.run()
    assert lab.rows() == [{"a": 1, "b": "z", "c": 10, "g": None}, {"a": 2, "b": "w", "c": 21, "g": True}]
    assert column_types(lab.spark, lab.sql_name("t"))["g"] == "boolean"


def test_a_pinned_column_that_a_family_gets_later_is_not_lost(lab: Lab) -> None:
    """No row told which family `d` belongs to, until one has a value of it."""
    lab.tables = [table(columns=COLUMNS)]
    families(lab, at(1), f1=[f1(1, at(1))], f2=[upsert([1], at(1), c=10)])
    lab.feed.resolved(at(2))
    families(lab, at(3), f2=[f2(1, at(3), 11, "late")])
    lab.feed.resolved(at(4))
    families(lab, at(5), f1=[f1(1, at(5), "y")])
    lab.feed.resolved(at(6))
    families(lab, at(7), f2=[f2(1, at(7), 12, None)])
    lab.feed.resolved(at(8))
    lab.settings = {"limits": {"epochs_per_job": 1}}
    lab.run()
    assert lab.rows(resolved=at(6)) == [row(1, "y", 11, "late")]
    assert lab.rows() == [row(1, "y", 12)]


def test_an_older_row_that_somebody_changed_is_filled_as_it_is_now(lab: Lab) -> None:
    lab.tables = [table(columns=COLUMNS)]
    families(lab, at(1), f1=[f1(1, at(1)), f1(2, at(1))], f2=[f2(1, at(1), 10, "d"), f2(2, at(1), 20, "d")])
    lab.feed.resolved(at(2))
    lab.run()
    lab.spark.sql(f"UPDATE {lab.sql_name('t')} SET e = 'theirs' WHERE a = 1")
    lab.spark.sql(f"DELETE FROM {lab.sql_name('t')} WHERE a = 2")
    families(lab, at(3), f1=[f1(1, at(3), "y"), f1(2, at(3), "y")])
    lab.feed.resolved(at(4))
    lab.run()
    assert lab.rows() == [row(1, "y", 10, "d", "theirs"), row(2, "y")]


def test_a_bad_value_in_one_family_puts_the_key_in_quarantine(lab: Lab) -> None:
    """H49: all parts of the change wait, and what follows; a replay puts them together with what the row has."""
    lab.settings = {"on_error": "quarantine"}
    lab.tables = [table(columns=COLUMNS)]
    families(lab, at(1), f1=[f1(1, at(1)), f1(2, at(1))], f2=[f2(1, at(1), 10), f2(2, at(1), 20)])
    lab.feed.resolved(at(2))
    families(lab, at(3), f1=[f1(1, at(3), "y"), f1(2, at(3), "y")], f2=[upsert([1], at(3), c="bad", d="d")])
    lab.feed.resolved(at(4))
    families(lab, at(5), f3=[f3(1, at(5), "e"), f3(2, at(5), "e")])
    lab.feed.resolved(at(6))
    lab.run()
    assert lab.rows() == [row(1, c=10), row(2, "y", c=20, e="e")]
    with lab.open() as pipeline:
        waiting = pipeline.quarantine(f"{lab.namespace}.t")
        assert sorted((one.key, one.position, one.captured) for one in waiting) == [
            ("[1]", at(3).text, False),
            ("[1]", at(3).text, True),
            ("[1]", at(5).text, True),
        ]
        report = pipeline.replay(f"{lab.namespace}.t")
        assert (report.replayed, len(report.left)) == (0, 3)
    lab.tables = [table(columns={**COLUMNS, "c": "STRING"}, on_schema_conflict="new-column")]
    with lab.open() as pipeline:
        report = pipeline.replay(f"{lab.namespace}.t")
        assert (report.replayed, report.left) == (3, ())
    assert lab.rows()[0] == {**row(1, "y", d="d", e="e"), "c_v2": "bad"}


@pytest.mark.parametrize("more", [{"deletes": "equality"}, {"deletes": "append-only"}, {"changelog": True}])
def test_a_mode_that_cannot_fill_rows_is_refused_with_the_way_out(lab: Lab, more: dict[str, Any]) -> None:
    lab.tables = [table(columns=COLUMNS, **more)]
    families(lab, at(1), f1=[f1(1, at(1))], f2=[f2(1, at(1), 10)])
    lab.feed.resolved(at(2))
    with pytest.raises(ConfigError, match="column families f1, f2") as refused:
        lab.run()
    assert "deletes: vectors" in refused.value.hint
    assert "t+f1, t+f2" in refused.value.hint
    assert not lab.exists()
    checked = lab.cli("check")
    assert "cannot put its rows together" in checked.output


def test_the_family_that_owns_the_key_cannot_be_taken_out(lab: Lab) -> None:
    lab.tables = [table("t", columns=COLUMNS), table("t+f1", target=f"{lab.namespace}.first")]
    families(lab, at(1), f1=[f1(1, at(1))], f2=[f2(1, at(1), 10)])
    lab.feed.resolved(at(2))
    with pytest.raises(ConfigError, match=r"none of the column families .* owns its key"):
        lab.run()
