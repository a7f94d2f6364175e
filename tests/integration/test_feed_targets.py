"""One source table, several targets: a changelog beside the main table, and modes that change while the table lives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from feed_builders import Lab, at, delete, table, upsert
from pyspark.sql import SparkSession

from frazil.app.assemble import assemble
from frazil.clock import SystemClock
from frazil.config.load import load_config
from frazil.errors import ConfigError
from frazil.ingest.loop.components import Components
from frazil.ingest.loop.supervisor import Supervisor
from frazil.model.commit import CommitAnswer, CommitPlan
from frazil.model.ids import TableName
from frazil.model.ledger import TableHead
from frazil.model.results import TableAction
from frazil.model.state import TableState
from frazil.observability.metrics import Metrics

pytestmark = pytest.mark.spark


@pytest.fixture
def make_lab(spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path) -> Callable[..., Lab]:
    def make(*tables: Any, **settings: Any) -> Lab:
        return Lab(spark, warehouse, namespace, tmp_path, tables=list(tables) or [table()], settings=settings)

    return make


def diff(key: int, second: int, after: str | None, before: str | None) -> str:
    """A line of a feed WITH diff."""

    def row(value: str | None) -> str:
        return "null" if value is None else f'{{"a": {key}, "b": "{value}"}}'

    return f'{{"after": {row(after)}, "before": {row(before)}, "key": [{key}], "updated": "{at(second)}"}}'


def log(lab: Lab, name: str = "t__changelog") -> list[tuple[Any, ...]]:
    rows = sorted(lab.rows(name), key=lambda row: (row["_position"], row["a"]))
    return [
        (row["a"], row["b"], row["_op"], None if row["_before"] is None else row["_before"].asDict()) for row in rows
    ]


def main_table(lab: Lab) -> list[tuple[Any, ...]]:
    return [(row["a"], row["b"]) for row in lab.rows()]


def test_mirror_and_changelog_are_published_for_the_same_epochs_with_rows_as_they_were(
    make_lab: Callable[..., Lab],
) -> None:
    lab = make_lab(table(changelog=True))
    lab.feed.data(at(1), [diff(1, 1, "x", None), diff(1, 2, "y", "x"), diff(2, 2, "z", None)])
    lab.feed.resolved(at(5))
    lab.feed.data(at(6), [diff(1, 6, None, "y"), upsert([3], at(7), a=3, b="n")])
    lab.feed.resolved(at(9))
    summary = lab.run()
    assert summary.tables == 2
    assert lab.resolved() == lab.resolved("t__changelog") == [at(5).text, at(9).text]
    assert main_table(lab) == [(2, "z"), (3, "n")]
    assert log(lab) == [
        (1, "x", "insert", None),
        (1, "y", "update", {"a": 1, "b": "x"}),
        (2, "z", "insert", None),
        (1, None, "delete", {"a": 1, "b": "y"}),
        (3, "n", "upsert", None),
    ]
    assert [(r["a"], r["b"]) for r in lab.rows("t", at(5))] == [(1, "y"), (2, "z")]
    assert {status["table"] for status in _status(lab)} == {f"{lab.namespace}.t", f"{lab.namespace}.t__changelog"}


def _status(lab: Lab) -> list[dict[str, Any]]:
    with lab.open() as pipeline:
        return [{"table": line.table, "quarantined": line.quarantined} for line in pipeline.status()]


class DyingLake:
    """Dies after, or instead of, the Nth commit."""

    def __init__(self, committer: Any, number: int) -> None:
        self._committer, self._left = committer, number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._committer, name)

    def commit(self, table: TableName, head: TableHead, plan: CommitPlan) -> CommitAnswer:
        if self._left == 0:
            raise KeyboardInterrupt
        self._left -= 1
        answer: CommitAnswer = self._committer.commit(table, head, plan)
        return answer


def run_until_dead(lab: Lab, commits: int) -> None:
    """A pipeline that ends for good after so many commits."""
    clock = SystemClock()
    parts: Components = assemble(load_config(lab.config), clock, Metrics(clock), lab.spark).parts
    with pytest.raises(KeyboardInterrupt):
        Supervisor(replace(parts, committer=DyingLake(parts.committer, commits)), lambda run: None, Event()).run(
            once=True
        )


@pytest.mark.parametrize("commits", [1, 2, 3])
def test_a_crash_between_the_commits_of_an_epoch_leaves_both_tables_with_every_change_once(
    make_lab: Callable[..., Lab], commits: int
) -> None:
    lab = make_lab(table(changelog=True), limits={"epochs_per_job": 1, "epochs_in_flight": 1})
    lab.feed.data(at(1), [upsert([1], at(1), a=1, b="x"), upsert([1], at(7), a=1, b="y"), upsert([2], at(2), a=2)])
    lab.feed.resolved(at(5))
    lab.feed.data(at(6), [delete([2], at(8)), upsert([3], at(8), a=3, b="n")])
    lab.feed.resolved(at(9))
    run_until_dead(lab, commits)
    assert lab.exists("t__changelog")
    lab.run()
    assert lab.resolved() == lab.resolved("t__changelog") == [at(5).text, at(9).text]
    assert main_table(lab) == [(1, "y"), (3, "n")]
    assert [row[:3] for row in log(lab)] == [
        (1, "x", "upsert"),
        (2, None, "upsert"),
        (1, "y", "upsert"),
        (2, None, "delete"),
        (3, "n", "upsert"),
    ]
    assert not lab.run().epochs, "nothing is left to be published"


def test_a_changelog_that_is_switched_on_later_begins_at_the_mirrors_frontier(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    lab.feed.data(at(1), [upsert([1], at(1), a=1, b="x"), upsert([9], at(7), a=9, b="beyond")])
    lab.feed.resolved(at(5))
    lab.run()
    lab.tables = [table(changelog=True)]
    lab.feed.data(at(6), [upsert([1], at(6), a=1, b="y")])
    lab.feed.resolved(at(9))
    lab.run()
    assert [row[:3] for row in log(lab)] == [(1, "y", "upsert"), (9, "beyond", "upsert")]
    assert main_table(lab) == [(1, "y"), (9, "beyond")]
    assert lab.resolved("t__changelog") == [at(9).text]


def test_a_mirror_becomes_a_changelog_and_never_a_mirror_again(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    lab.feed.data(at(1), [upsert([1], at(1), a=1, b="x")])
    lab.feed.resolved(at(5))
    lab.run()
    lab.tables = [table(deletes="append-only")]
    lab.feed.data(at(6), [upsert([1], at(6), a=1, b="y"), delete([1], at(7))])
    lab.feed.resolved(at(9))
    lab.run()
    rows = sorted(lab.rows(), key=lambda row: row["_position"] or "")
    assert [(r["a"], r["b"], r["_op"]) for r in rows] == [(1, "x", None), (1, "y", "upsert"), (1, None, "delete")]
    lab.tables = [table()]
    with pytest.raises(ConfigError, match="cannot hold one row for each") as caught:
        lab.run()
    assert "new target" in caught.value.hint


def test_a_table_without_a_key_becomes_a_changelog_of_all_its_messages(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(table(key=(), deletes="append-only"))
    row = f'{{"after": {{"a": 1, "b": "same"}}, "updated": "{at(2)}"}}'
    lab.feed.data(at(1), [row, row, f'{{"after": {{"a": 2, "b": "late"}}, "updated": "{at(7)}"}}'])
    lab.feed.resolved(at(5))
    lab.run()
    lab.feed.resolved(at(9))
    lab.run()
    assert [(r["a"], r["b"], r["_op"]) for r in lab.rows()] == [
        (1, "same", "upsert"),
        (1, "same", "upsert"),
        (2, "late", "upsert"),
    ]


def test_an_odd_source_table_is_refused_by_run_check_and_status_and_the_hint_takes_it_in(
    make_lab: Callable[..., Lab],
) -> None:
    """Two schemas have a table u; one table's name has a space."""
    lab = make_lab(table("s.*.*"))
    for topic in ("s.public.t", "s.public.order items", "s.a.u", "s.b.u"):
        lab.feed.data(at(1), [upsert([1], at(1), a=1, b="x")], topic=topic)
    lab.feed.resolved(at(5))
    with pytest.raises(ConfigError) as refused:
        lab.run()
    assert main_table(lab) == [(1, "x")]
    with lab.open() as pipeline:
        states = {line.table: line.state for line in pipeline.status()}
        checked = {one.source: one for one in pipeline.check().tables}
    stopped = ["s.a.u", "s.b.u", "s.public.order items"]
    assert sorted(name for name, state in states.items() if state is TableState.STOPPED) == stopped
    assert sorted(name for name, one in checked.items() if one.action is TableAction.REFUSED) == stopped
    assert refused.value.facts["table"] in stopped
    lab.tables.append(table("s.public.order items", target=f"{lab.namespace}.order_items"))
    lab.tables.append(table("s.a.u", target=f"{lab.namespace}.u_of_a"))
    lab.run()
    assert [row["b"] for name in ("order_items", "u", "u_of_a") for row in lab.rows(name)] == ["x"] * 3
