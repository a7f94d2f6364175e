"""A source whose columns change while it streams, in the middle of an epoch too: feed -> pipeline -> Spark.

rows {a, b}  |  ALTER TABLE ...  |  rows {a, c}      one epoch, one commit of the schema before it, one of the data
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import psycopg
import pytest
from feed_builders import Lab, at, column_types, delete, table, upsert
from pyspark.sql import SparkSession
from servers.postgres import postgres_server

from frazil.errors import BadInput, DoesNotFit

pytestmark = [pytest.mark.spark, pytest.mark.servers]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with postgres_server() as url:
        yield url


@pytest.fixture
def lab(spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path) -> Lab:
    return Lab(spark, warehouse, namespace, tmp_path, tables=[table(key=("a",), columns={})])


class Shop:
    """The source's own table, which describes itself over SQL, and the feed of its rows."""

    def __init__(self, lab: Lab, url: str, create: str) -> None:
        self.lab, self.url = lab, url
        lab.tables, lab.source = [table(key=(), columns={})], {"schema_from": url}
        self.does("DROP TABLE IF EXISTS t", f"CREATE TABLE t ({create})")

    def does(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def publishes(self, second: int, *rows: dict[str, Any], schema: str = "1", resolved: bool = True) -> None:
        """One file of these rows, and the promise that they are all."""
        self.lab.feed.data(at(second), [upsert([r["a"]], at(second), **r) for r in rows], schema=schema)
        if resolved:
            self.lab.feed.resolved(at(second + 1))


@pytest.mark.parametrize("restart", [False, True])
def test_a_column_added_in_the_middle_of_an_epoch(lab: Lab, restart: bool) -> None:
    """H14: one epoch holds rows of both source schemas and becomes one snapshot."""
    lab.feed.data(at(1), [upsert([1], at(1), a=1, b="x")])
    lab.feed.resolved(at(2))
    if restart:
        lab.run()
    lab.feed.data(at(3), [upsert([2], at(3), a=2, b="y")])
    lab.feed.data(at(4), [upsert([1], at(4), a=1, b="z", new=7), upsert([3], at(4), a=3, b="w", new=8)], schema="2")
    lab.feed.data(at(5), [delete([2], at(5))], schema="2")
    lab.feed.resolved(at(6))
    lab.run()
    assert lab.rows() == [{"a": 1, "b": "z", "new": 7}, {"a": 3, "b": "w", "new": 8}]
    assert [row["a"] for row in lab.rows(resolved=at(2))] == [1]
    assert lab.resolved() == [str(at(2)), str(at(6))]


def test_a_column_widened_in_the_middle_of_an_epoch(lab: Lab, url: str) -> None:
    """H14: a value that does not fit is a lesson, once."""
    shop = Shop(lab, url, "a int8 PRIMARY KEY, n int4, d numeric(5,2)")
    shop.publishes(1, {"a": 1, "n": 1, "d": 1.25})
    lab.run()
    assert column_types(lab.spark, lab.sql_name("t")) == {"a": "bigint", "n": "int", "d": "decimal(5,2)"}
    shop.publishes(3, {"a": 2, "n": 2, "d": 2.5}, resolved=False)
    shop.does("ALTER TABLE t ALTER n TYPE int8", "ALTER TABLE t ALTER d TYPE numeric(12,2)")
    shop.publishes(4, {"a": 3, "n": 1 << 40, "d": 12345678.25}, schema="1")
    lab.run()
    assert [(row["n"], str(row["d"])) for row in lab.rows()] == [(1, "1.25"), (2, "2.50"), (1 << 40, "12345678.25")]


def test_a_column_widened_while_the_pipeline_runs(lab: Lab, url: str) -> None:
    """H14: nothing but a value that does not fit tells of the change; the source is asked again, once."""
    shop = Shop(lab, url, "a int8 PRIMARY KEY, n int4")
    shop.publishes(1, {"a": 1, "n": 1})
    stop, grown = Event(), []

    def after(progress: Any) -> None:
        (shown,) = progress.tables
        if shown.resolved == str(at(2)) and not grown:
            grown.append(shop.does("ALTER TABLE t ALTER n TYPE int8"))
            shop.publishes(3, {"a": 2, "n": 2}, {"a": 3, "n": 1 << 40})
        if shown.resolved == str(at(4)):
            stop.set()

    with lab.open() as pipeline:
        pipeline.run(on_progress=after, stop=stop)
    assert [row["n"] for row in lab.rows()] == [1, 2, 1 << 40]


def test_a_value_too_large_widens_an_integer_that_nobody_describes(lab: Lab) -> None:
    lab.tables = [table(columns={"a": "INT8", "n": "INT4"})]
    lab.feed.data(at(1), [upsert([1], at(1), a=1, n=1)])
    lab.feed.resolved(at(2))
    lab.run()
    lab.tables = [table(columns={})]
    lab.feed.data(at(3), [upsert([1], at(3), a=1, n=2), upsert([2], at(3), a=2, n=1 << 40)])
    lab.feed.resolved(at(4))
    lab.run()
    assert [row["n"] for row in lab.rows()] == [2, 1 << 40]


def test_a_value_that_no_widening_holds_still_stops(lab: Lab) -> None:
    lab.feed.data(at(1), [upsert([1], at(1), a=1, n=1)])
    lab.feed.resolved(at(2))
    lab.run()
    lab.feed.data(at(3), [upsert([1], at(3), a=1, n=1.5)])
    lab.feed.resolved(at(4))
    with pytest.raises(DoesNotFit) as stopped:
        lab.run()
    assert stopped.value.facts["column"] == "n"
    assert lab.rows() == [{"a": 1, "n": 1}]


@pytest.mark.parametrize("restart", [False, True])
def test_a_column_renamed_in_the_middle_of_an_epoch(lab: Lab, url: str, restart: bool) -> None:
    """H14, H30: rows of both names are one column, before and after a restart."""
    shop = Shop(lab, url, "a int8 PRIMARY KEY, b text")
    shop.publishes(1, {"a": 1, "b": "old"}, {"a": 2, "b": "kept"})
    lab.run()
    shop.publishes(3, {"a": 3, "b": "before"}, resolved=False)
    shop.does("ALTER TABLE t RENAME COLUMN b TO c")
    shop.publishes(4, {"a": 1, "c": "after"}, {"a": 4, "c": "new"}, schema="2")
    if restart:
        lab.run()
    shop.publishes(6, {"a": 5, "c": "later"}, schema="2")
    lab.run()
    assert [(row["a"], row["c"]) for row in lab.rows()] == [
        (1, "after"), (2, "kept"), (3, "before"), (4, "new"), (5, "later"),
    ]  # fmt: skip
    assert list(lab.rows()[0]) == ["a", "c"]


def test_a_renamed_key_column_still_finds_its_rows(lab: Lab, url: str) -> None:
    shop = Shop(lab, url, "a int8 PRIMARY KEY, b text")
    shop.publishes(1, {"a": 1, "b": "x"}, {"a": 2, "b": "y"})
    lab.run()
    shop.does("ALTER TABLE t RENAME COLUMN a TO ident")
    lab.feed.data(at(3), [upsert([1], at(3), ident=1, b="z")], schema="2")
    lab.feed.data(at(3), [delete([2], at(3))], schema="2", number=1)
    lab.feed.resolved(at(4))
    lab.run()
    assert lab.rows() == [{"ident": 1, "b": "z"}]


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("restart", [False, True])
def test_a_dropped_column_is_kept_or_follows(lab: Lab, url: str, drop: bool, restart: bool) -> None:
    shop = Shop(lab, url, "a int8 PRIMARY KEY, b text, c text")
    lab.tables = [table(key=(), columns={}, drop=drop)]
    shop.publishes(1, {"a": 1, "b": "x", "c": "y"})
    if restart:
        lab.run()
    # The source is ahead of us: these rows still have the column that it has no more.
    shop.does("ALTER TABLE t DROP COLUMN b")
    shop.publishes(3, {"a": 2, "b": "x2", "c": "y2"}, schema="2")
    if restart:
        lab.run()
        assert lab.rows()[1]["b"] == "x2"
    shop.publishes(5, {"a": 3, "c": "y3"}, schema="3")
    lab.run()
    if drop and restart:
        assert lab.rows()[0] == {"a": 1, "c": "y"}
    else:
        assert [row["b"] for row in lab.rows()] == ["x", "x2", None]
    assert [row["c"] for row in lab.rows()] == ["y", "y2", "y3"]


def test_a_drop_is_followed_while_the_pipeline_runs(lab: Lab, url: str) -> None:
    """A new version of the schema in the files' names is the sign to ask again."""
    shop = Shop(lab, url, "a int8 PRIMARY KEY, c text")
    lab.tables, lab.settings = [table(key=(), columns={}, drop=True)], {"limits": {"epochs_per_job": 1}}
    shop.publishes(1, {"a": 1, "b": "x", "c": "y"}, schema="1")
    shop.publishes(3, {"a": 2, "b": "x2", "c": "y2"}, schema="2")
    shop.publishes(5, {"a": 3, "c": "y3"}, schema="3")
    lab.run()
    assert lab.rows() == [{"a": 1, "c": "y"}, {"a": 2, "c": "y2"}, {"a": 3, "c": "y3"}]


@pytest.mark.parametrize("policy", ["stop", "new-column"])
def test_an_incompatible_change_stops_or_goes_on_in_a_new_column(lab: Lab, url: str, policy: str) -> None:
    shop = Shop(lab, url, "a int8 PRIMARY KEY, amount int8")
    lab.tables = [table(key=(), columns={}, on_schema_conflict=policy)]
    shop.publishes(1, {"a": 1, "amount": 5})
    lab.run()
    shop.does("ALTER TABLE t ALTER amount TYPE text")
    shop.publishes(3, {"a": 2, "amount": 6}, schema="1")
    lab.run()
    assert lab.rows() == [{"a": 1, "amount": 5}, {"a": 2, "amount": 6}], "rows from before the change still fit"
    shop.publishes(5, {"a": 1, "amount": "five"}, {"a": 3, "amount": None}, schema="2")
    if policy == "stop":
        with pytest.raises(BadInput, match="'amount' is long") as stopped:
            lab.run()
        assert "new-column" in stopped.value.hint
        assert len(lab.rows()) == 2
        return
    lab.run()
    shop.publishes(7, {"a": 4, "amount": "four"}, schema="2")
    lab.run()
    assert lab.rows() == [
        {"a": 1, "amount": None, "amount_v2": "five"},
        {"a": 2, "amount": 6, "amount_v2": None},
        {"a": 3, "amount": None, "amount_v2": None},
        {"a": 4, "amount": None, "amount_v2": "four"},
    ]


def test_a_type_that_nobody_describes_goes_on_in_a_new_column(lab: Lab) -> None:
    lab.tables = [table(columns={}, on_schema_conflict="new-column")]
    for second, value in ((1, 10), (3, 10.5), (5, 7)):
        lab.feed.data(at(second), [upsert([second], at(second), a=second, n=value)])
        lab.feed.resolved(at(second + 1))
        lab.run()
    found = [(row["n"], None if row["n_v2"] is None else float(row["n_v2"])) for row in lab.rows()]
    assert found == [(10, None), (None, 10.5), (None, 7.0)]


def test_a_new_column_begins_in_the_middle_of_what_is_read_at_once(lab: Lab, url: str) -> None:
    shop = Shop(lab, url, "a int8 PRIMARY KEY, amount int8")
    lab.tables = [table(key=(), columns={}, on_schema_conflict="new-column")]
    shop.publishes(1, {"a": 1, "amount": 5})
    lab.run()
    shop.does("ALTER TABLE t ALTER amount TYPE text")
    shop.publishes(3, {"a": 2, "amount": 6}, schema="1")
    shop.publishes(5, {"a": 3, "amount": "seven"}, schema="2")
    shop.publishes(7, {"a": 4, "amount": "eight"}, schema="2")
    lab.run()
    assert [(row["amount"], row["amount_v2"]) for row in lab.rows()] == [
        (5, None), (6, None), (None, "seven"), (None, "eight"),
    ]  # fmt: skip
    assert len(lab.epochs()) == 4


@pytest.mark.parametrize("policy", ["stop", "new-column"])
@pytest.mark.parametrize("restart", [False, True])
def test_rows_from_before_and_after_an_incompatible_change_lie_in_one_epoch(
    lab: Lab, url: str, policy: str, restart: bool
) -> None:
    """H14: as after a catch-up with `snapshot: latest`. Each row has a value in the column of its type only, as if the
    change lay between two epochs."""
    shop = Shop(lab, url, "a int8 PRIMARY KEY, amount int8")
    lab.tables, lab.settings = [table(key=(), columns={}, on_schema_conflict=policy)], {"snapshot": "latest"}
    shop.publishes(1, {"a": 1, "amount": 5}, {"a": 2, "amount": 5}, {"a": 3, "amount": 5}, {"a": 4, "amount": 5})
    lab.run()
    shop.publishes(3, {"a": 2, "amount": 6}, {"a": 3, "amount": 6}, schema="1")
    shop.does("ALTER TABLE t ALTER amount TYPE text")
    shop.publishes(5, {"a": 3, "amount": "seven"}, {"a": 5, "amount": "eight"}, {"a": 6, "amount": None}, schema="2")
    if policy == "stop":
        with pytest.raises(BadInput, match="'amount' is long") as stopped:
            lab.run()
        assert "new-column" in stopped.value.hint
        assert len(lab.rows()) == 4
        return
    if restart:
        lab.run()
    shop.publishes(7, {"a": 4, "amount": "four"}, {"a": 7, "amount": 8}, schema="2")  # 8: a row that came late
    lab.run()
    assert [(row["a"], row["amount"], row["amount_v2"]) for row in lab.rows()] == [
        (1, 5, None), (2, 6, None), (3, None, "seven"), (4, None, "four"), (5, None, "eight"), (6, None, None),
        (7, 8, None),
    ]  # fmt: skip
    assert len(lab.epochs()) == (3 if restart else 2)
    assert column_types(lab.spark, lab.sql_name("t")) == {"a": "bigint", "amount": "bigint", "amount_v2": "string"}


def test_a_changelog_has_rows_from_before_and_after_an_incompatible_change_too(lab: Lab, url: str) -> None:
    shop = Shop(lab, url, "a int8 PRIMARY KEY, amount int8")
    lab.tables = [table(key=(), columns={}, on_schema_conflict="new-column", changelog=True)]
    shop.publishes(1, {"a": 1, "amount": 5})
    lab.run()
    shop.does("ALTER TABLE t ALTER amount TYPE text")
    lines = [upsert([1], at(3), a=1, amount=6), upsert([1], at(4), a=1, amount="seven")]
    befores = [
        line.replace('"key"', f'"before": {{"a": 1, "amount": {was}}}, "key"')
        for line, was in zip(lines, "56", strict=True)
    ]
    lab.feed.data(at(3), befores, schema="2")
    lab.feed.resolved(at(5))
    lab.run()
    assert lab.rows() == [{"a": 1, "amount": None, "amount_v2": "seven"}]
    log = lab.spark.sql(
        "SELECT amount, amount_v2, _before.amount AS was, _before.amount_v2 AS was_v2 "
        f"FROM {lab.sql_name('t__changelog')} ORDER BY _position"
    )
    assert [tuple(row) for row in log.collect()] == [
        (5, None, None, None), (6, None, 5, None), (None, "seven", 6, None),
    ]  # fmt: skip


def test_rows_of_a_family_from_before_and_after_an_incompatible_change(lab: Lab) -> None:
    """The other family of such a row is filled from the older row; the column that its own has outgrown is not."""
    lab.tables = [table(key=("a",), columns={}, on_schema_conflict="new-column")]
    for row in (1, 2):
        lab.feed.data(at(1), [upsert([row], at(1), a=row, b="b")], topic="t+f1", number=row)
        lab.feed.data(at(1), [upsert([row], at(1), s="old")], topic="t+f2", number=row)
    lab.feed.resolved(at(2))
    lab.run()
    lab.feed.data(at(3), [upsert([1], at(3), s="new")], topic="t+f2", number=1)
    lab.feed.data(at(3), [upsert([2], at(3), s=7)], topic="t+f2", number=2)
    lab.feed.resolved(at(4))
    lab.run()
    assert lab.rows() == [{"a": 1, "b": "b", "s": "new", "s_v2": None}, {"a": 2, "b": "b", "s": None, "s_v2": 7}]


def test_what_lies_before_a_change_that_cannot_be_taken_is_published(lab: Lab) -> None:
    lab.tables = [table()]
    for second, value in ((1, "x"), (3, "y"), (5, "z")):
        lab.feed.data(at(second), [upsert([second], at(second), a=second, b=value)])
        lab.feed.resolved(at(second + 1))
    lab.feed.data(at(7), [upsert([None], at(7), a=None, b="without a key")])
    lab.feed.resolved(at(8))
    with pytest.raises(BadInput, match="key"):
        lab.run()
    assert [row["b"] for row in lab.rows()] == ["x", "y", "z"]


def test_check_shows_the_plan_and_a_contradiction_without_doing_anything(lab: Lab, url: str) -> None:
    shop = Shop(lab, url, "a int8 PRIMARY KEY, b text, n int4, amount int8")
    lab.tables = [table(key=(), columns={}, on_schema_conflict="new-column")]
    shop.publishes(1, {"a": 1, "b": "x", "n": 1, "amount": 1})
    lab.run()
    before = column_types(lab.spark, lab.sql_name("t"))
    shop.does(
        "ALTER TABLE t RENAME COLUMN b TO c", "ALTER TABLE t ALTER n TYPE int8",
        "ALTER TABLE t ALTER amount TYPE text", "ALTER TABLE t ADD COLUMN new bool",
    )  # fmt: skip
    shop.publishes(3, {"a": 1, "c": "x", "n": 1, "amount": "1", "new": True}, schema="2")
    told = lab.cli("check")
    assert told.exit_code == 0, told.output
    for note in (
        "note: renames b to c",
        "note: widens n from int to long",
        "note: starts amount_v2 string beside amount long",
        "note: adds column new boolean",
    ):
        assert note in told.output
    lab.tables = [table(key=(), columns={})]
    told = lab.cli("check")
    assert told.exit_code == 3, told.output
    assert "note: problem: table" in told.output
    assert "on_schema_conflict: new-column" in told.output
    assert column_types(lab.spark, lab.sql_name("t")) == before


def test_check_shows_how_partitioning_would_change(lab: Lab) -> None:
    lab.feed.data(at(1), [upsert([1], at(1), a=1, b="x")])
    lab.feed.resolved(at(2))
    lab.run()
    lab.tables = [table(columns={}, partition=["bucket(4, a)"], sort=["b desc"])]
    told = lab.cli("check")
    assert told.exit_code == 0, told.output
    assert "note: partitions new files by bucket[4](a)" in told.output
    assert "note: sorts new files by b desc" in told.output
    lab.tables = [table(columns={}, partition=["day(b)"])]
    told = lab.cli("check")
    assert told.exit_code == 2, "a run would stop with this"
    assert "note: problem:" in told.output


def test_a_foreign_column_added_between_two_epochs(lab: Lab) -> None:
    """H55."""
    lab.feed.data(at(1), [upsert([1], at(1), a=1, b="x")])
    lab.feed.resolved(at(2))
    lab.run()
    lab.spark.sql(f"ALTER TABLE {lab.sql_name('t')} ADD COLUMN theirs string")
    lab.feed.data(at(3), [upsert([2], at(3), a=2, b="y", ours="o")], schema="2")
    lab.feed.resolved(at(4))
    lab.run()
    assert lab.rows() == [
        {"a": 1, "b": "x", "theirs": None, "ours": None},
        {"a": 2, "b": "y", "theirs": None, "ours": "o"},
    ]


def test_a_column_renamed_in_the_table_by_hand_still_takes_its_values(lab: Lab) -> None:
    """H30."""
    lab.feed.data(at(1), [upsert([1], at(1), a=1, b="x")])
    lab.feed.resolved(at(2))
    lab.run()
    lab.spark.sql(f"ALTER TABLE {lab.sql_name('t')} RENAME COLUMN b TO nice")
    lab.feed.data(at(3), [upsert([2], at(3), a=2, b="y")])
    lab.feed.resolved(at(4))
    lab.run()
    assert lab.rows() == [{"a": 1, "nice": "x"}, {"a": 2, "nice": "y"}]
