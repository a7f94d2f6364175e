"""Many tables in step: one that is slow, broken or new holds nobody back, and what stops one of them stops no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from feed_builders import Lab, at, table, upsert
from pyspark.sql import SparkSession

from frazil.app.assemble import assemble
from frazil.app.pipeline import Pipeline
from frazil.clock import SystemClock
from frazil.config.load import load_config
from frazil.errors import BadInput, TableChanged
from frazil.ingest.loop.supervisor import Supervisor
from frazil.model.commit import CommitAnswer, CommitPlan, Unknown
from frazil.model.ids import TableName
from frazil.model.ledger import TableHead
from frazil.model.results import RunProgress, TableProgress
from frazil.model.state import TableState
from frazil.observability.metrics import Metrics

pytestmark = pytest.mark.spark

PATIENCE = 120.0


@pytest.fixture
def lab(spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path) -> Lab:
    limits = {"lag_patience": "300ms", "epochs_in_flight": 2}
    tables = [table("good"), table("bad")]
    lab = Lab(spark, warehouse, namespace, tmp_path, tables=tables, settings={"limits": limits})
    lab.feed.data(at(1), [upsert([1], at(1), a=1, b="x")], topic="good")
    lab.feed.data(at(1), [upsert([1], at(1), a=1, b="x")], topic="bad")
    lab.feed.resolved(at(2))
    return lab


class MoodyLake:
    """Passes on everything but commits to one table, which it treats as told."""

    def __init__(self, committer: Any, table: str, treat: Callable[[Callable[[], CommitAnswer]], CommitAnswer]) -> None:
        self._committer, self._table, self._treat = committer, table, treat

    def __getattr__(self, name: str) -> Any:
        return getattr(self._committer, name)

    def commit(self, table: TableName, head: TableHead, plan: CommitPlan) -> CommitAnswer:
        def commit() -> CommitAnswer:
            answer: CommitAnswer = self._committer.commit(table, head, plan)
            return answer

        return self._treat(commit) if table.name == self._table else commit()


class Daemon:
    """A supervisor at work in a thread."""

    def __init__(self, lab: Lab, committer: Callable[[Any], Any] = lambda committer: committer) -> None:
        clock = SystemClock()
        self.lab, self.stop = lab, Event()
        self.acknowledged: list[str] = []
        parts = assemble(load_config(lab.config), clock, Metrics(clock), lab.spark).parts
        self.supervisor = Supervisor(replace(parts, committer=committer(parts.committer)), lambda run: None, self.stop)
        self.failure: BaseException | None = None
        self._thread = Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.supervisor.run(once=False)
        except BaseException as error:
            self.failure = error

    def __enter__(self) -> Daemon:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def wait(self, holds: Callable[[], bool]) -> None:
        clock = SystemClock()
        until = clock.monotonic() + PATIENCE
        while not holds():
            assert clock.monotonic() < until, {name: table.state for name, table in self.supervisor.tables.items()}
            assert self.failure is None, self.failure
            clock.wait(0.05)

    def state(self, name: str) -> TableState | None:
        found = self.supervisor.tables.get(f"{self.lab.namespace}.{name}")
        return None if found is None else found.state

    def resolved(self, name: str) -> str:
        found = self.supervisor.tables.get(f"{self.lab.namespace}.{name}")
        done = None if found is None else found.progress.published
        return "" if done is None else done.position.text


def more(lab: Lab, moment: int, *topics: str) -> None:
    for topic in topics or ("good", "bad"):
        lab.feed.data(at(moment), [upsert([moment], at(moment), a=moment, b="more")], topic=topic)
    lab.feed.resolved(at(moment + 1))


def test_a_table_that_a_person_must_look_at_stops_alone_and_says_why(lab: Lab) -> None:
    lab.run()
    lab.spark.sql(f"CALL frazil.system.rollback_to_snapshot('{lab.namespace}.bad', {first_snapshot(lab)})")
    more(lab, 5)
    with Daemon(lab) as daemon:
        daemon.wait(lambda: daemon.state("bad") is TableState.STOPPED)
        more(lab, 8)
        daemon.wait(lambda: daemon.resolved("good") == at(9).text)
        trouble = daemon.supervisor.tables[f"{lab.namespace}.bad"].trouble
        assert isinstance(trouble, TableChanged)
        assert "frazil rewind" in trouble.hint
        assert daemon.supervisor.acknowledgeable() is None, "the source is kept for the table that stopped (H28)"
    assert daemon.failure is None


def first_snapshot(lab: Lab) -> int:
    """One more epoch for the table, so that there is something to roll back."""
    found = lab.spark.sql(f"SELECT snapshot_id FROM {lab.sql_name('bad')}.snapshots ORDER BY committed_at").first()
    assert found is not None
    lab.spark.sql(f"INSERT INTO {lab.sql_name('bad')} VALUES (99, 'foreign')")
    lab.spark.sql(f"DELETE FROM {lab.sql_name('bad')} WHERE a = 99")
    more(lab, 3)
    lab.run()
    return int(found.snapshot_id)


def test_a_column_dropped_under_a_running_daemon_stops_the_table_until_a_person_decides(lab: Lab) -> None:
    """Epochs that go on with the dropped field would lose its values, and adding it again those of all older rows."""
    name = lab.sql_name("bad")
    with Daemon(lab) as daemon:
        daemon.wait(lambda: daemon.resolved("bad") == at(2).text)
        lab.spark.sql(f"ALTER TABLE {name} DROP COLUMN b")
        more(lab, 3)
        daemon.wait(lambda: daemon.state("bad") is TableState.STOPPED and daemon.resolved("good") == at(4).text)
        trouble = daemon.supervisor.tables[f"{lab.namespace}.bad"].trouble
        assert isinstance(trouble, TableChanged)
        assert "somebody dropped the column 'b'" in str(trouble)
    assert lab.resolved("bad") == [at(2).text]

    with pytest.raises(TableChanged, match="somebody dropped the column 'b'"):
        lab.run()
    assert lab.rows("bad") == [{"a": 1}], "a restart changes nothing"

    lab.spark.sql(f"ALTER TABLE {name} ADD COLUMN b string")
    lab.run()
    assert lab.rows("bad") == [{"a": 1, "b": None}, {"a": 3, "b": "more"}]
    assert lab.resolved("bad") == [at(2).text, at(4).text]


def test_a_column_dropped_and_added_again_under_a_running_daemon_loses_nothing_new(lab: Lab) -> None:
    name = lab.sql_name("bad")
    with Daemon(lab) as daemon:
        daemon.wait(lambda: daemon.resolved("bad") == at(2).text)
        lab.spark.sql(f"ALTER TABLE {name} DROP COLUMN b")
        lab.spark.sql(f"ALTER TABLE {name} ADD COLUMN b string")
        more(lab, 3)
        daemon.wait(lambda: daemon.resolved("bad") == at(4).text)
    assert lab.rows("bad") == [{"a": 1, "b": None}, {"a": 3, "b": "more"}]


def test_with_once_the_others_are_finished_before_the_error_is_raised(lab: Lab) -> None:
    lab.tables[1] = table("bad", columns={"a": "INT8", "b": "INT8"})
    lab.feed.data(at(3), [upsert([7], at(3), a=7, b="y")], topic="good")
    lab.feed.resolved(at(4))
    with pytest.raises(BadInput, match="bad"):
        lab.run()
    assert [row["a"] for row in lab.rows("good")] == [1, 7]


def test_what_lies_before_the_change_that_stops_a_table_is_published(lab: Lab) -> None:
    lab.tables[1] = table("bad", columns={"a": "INT8", "b": "STRING"})
    more(lab, 3)
    lab.feed.data(at(5), [upsert([5], at(5), a="no number", b="y")], topic="bad")
    lab.feed.data(at(5), [upsert([5], at(5), a=5, b="y")], topic="good")
    lab.feed.resolved(at(6))
    with pytest.raises(BadInput):
        lab.run()
    assert [row["a"] for row in lab.rows("bad")] == [1, 3]
    assert [row["a"] for row in lab.rows("good")] == [1, 3, 5]


def test_a_table_whose_catalog_does_not_answer_backs_off_and_joins_the_others_again(lab: Lab) -> None:
    """H28: nobody waits for it, and the source is not told that it is done."""
    lab.run()
    away = Event()
    away.set()

    def treat(commit: Callable[[], CommitAnswer]) -> CommitAnswer:
        return Unknown("no answer") if away.is_set() else commit()

    with Daemon(lab, lambda committer: MoodyLake(committer, "bad", treat)) as daemon:
        more(lab, 4)
        daemon.wait(lambda: daemon.state("bad") is TableState.BACKOFF)
        more(lab, 6)
        daemon.wait(lambda: daemon.resolved("good") == at(7).text)
        assert daemon.resolved("bad") == at(2).text
        assert daemon.supervisor.acknowledgeable() == at(2)
        away.clear()
        daemon.wait(lambda: daemon.resolved("bad") == at(7).text)
        daemon.wait(lambda: daemon.supervisor.acknowledgeable() == at(7))
        more(lab, 9)
        daemon.wait(lambda: daemon.resolved("bad") == daemon.resolved("good") == at(10).text)
        assert daemon.state("bad") is TableState.STEADY_STATE
    assert lab.rows("bad") == lab.rows("good")


def test_a_table_whose_commits_are_slow_is_read_apart(lab: Lab) -> None:
    lab.run()
    gate = Event()

    def treat(commit: Callable[[], CommitAnswer]) -> CommitAnswer:
        gate.wait(PATIENCE)
        return commit()

    with Daemon(lab, lambda committer: MoodyLake(committer, "bad", treat)) as daemon:
        for moment in range(4, 24, 2):
            more(lab, moment)
            daemon.wait(lambda: daemon.resolved("good") == at(moment + 1).text)  # noqa: B023
        assert daemon.resolved("bad") == at(2).text
        gate.set()
        daemon.wait(lambda: daemon.resolved("bad") == at(23).text)
    assert lab.rows("bad") == lab.rows("good")


def test_when_every_table_has_stopped_the_daemon_ends_with_the_reason(lab: Lab) -> None:
    lab.tables = [table("bad", columns={"a": "INT8", "b": "INT8"})]
    with Daemon(lab) as daemon:
        daemon._thread.join(PATIENCE)
        assert isinstance(daemon.failure, BadInput)


def test_a_table_that_stopped_long_ago_no_longer_holds_the_source(lab: Lab) -> None:
    """H52: it needs a re-sync from then on."""
    lab.settings["resync_after"] = "1s"
    lab.tables[1] = table("bad", columns={"a": "INT8", "b": "STRING"})
    lab.run()
    lab.feed.data(at(3), [upsert([5], at(3), a="no number", b="y")], topic="bad")
    lab.feed.resolved(at(4))
    with Daemon(lab) as daemon:
        daemon.wait(lambda: daemon.state("bad") is TableState.STOPPED)
        assert daemon.supervisor.acknowledgeable() == at(2)
        more(lab, 2_000_000_000, "good")
        daemon.wait(lambda: daemon.state("bad") is TableState.NEEDS_RESYNC)
        daemon.wait(lambda: daemon.supervisor.acknowledgeable() == at(2_000_000_001))


@contextmanager
def running(lab: Lab) -> Iterator[tuple[Pipeline, Event, list[RunProgress]]]:
    """A pipeline as `frazil run` runs it, with its configuration file."""
    stop, reload, seen, failed = Event(), Event(), list[RunProgress](), list[BaseException]()
    lab.config  # noqa: B018  written before it is read
    with Pipeline.from_file(lab.root / "pipeline.yaml", spark=lab.spark) as pipeline:

        def run() -> None:
            try:
                pipeline.run(on_progress=seen.append, stop=stop, reload=reload)
            except BaseException as error:
                failed.append(error)

        thread = Thread(target=run, daemon=True)
        thread.start()
        yield pipeline, reload, seen
        stop.set()
        thread.join(PATIENCE)
        assert not failed, failed


def until(seen: list[RunProgress], holds: Callable[[dict[str, TableProgress]], bool]) -> None:
    clock = SystemClock()
    end = clock.monotonic() + PATIENCE
    while not (seen and holds({one.name.partition(".")[2]: one for one in seen[-1].tables})):
        assert clock.monotonic() < end, seen[-1:]
        clock.wait(0.05)


def test_tables_are_added_and_removed_while_the_others_go_on(lab: Lab) -> None:
    lab.tables = [table("good")]
    with running(lab) as (_, reload, seen):
        until(seen, lambda tables: tables["good"].resolved == at(2).text)
        lab.tables = [table("good"), table("bad")]
        lab.config  # noqa: B018
        reload.set()
        until(seen, lambda tables: "bad" in tables and tables["bad"].resolved == at(2).text)
        lab.tables = [table("bad")]
        lab.config  # noqa: B018
        reload.set()
        until(seen, lambda tables: "good" not in tables)
        more(lab, 4)
        until(seen, lambda tables: tables["bad"].resolved == at(5).text)
    assert [row["a"] for row in lab.rows("bad")] == [1, 4]
    assert [row["a"] for row in lab.rows("good")] == [1]


def test_a_configuration_that_does_not_load_changes_nothing(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    with running(lab) as (_, reload, seen):
        until(seen, lambda tables: tables["good"].resolved == at(2).text)
        lab.tables[1]["no_such_key"] = 1
        lab.config  # noqa: B018
        reload.set()
        more(lab, 4)
        until(seen, lambda tables: tables["good"].resolved == tables["bad"].resolved == at(5).text)
        until(seen, lambda _: "the new configuration is not taken" in caplog.text)


def test_a_configuration_whose_catalog_cannot_be_opened_changes_nothing(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    with running(lab) as (_, reload, seen):
        until(seen, lambda tables: tables["good"].resolved == at(2).text)
        lab.settings["catalog"] = {"type": "builtin", "warehouse": str(lab.root / "pipeline.yaml" / "no")}
        lab.config  # noqa: B018
        reload.set()
        until(seen, lambda _: "the new configuration is not taken" in caplog.text)
        more(lab, 4)
        until(seen, lambda tables: tables["good"].resolved == tables["bad"].resolved == at(5).text)


def test_a_stop_does_not_wait_for_ever_for_what_hangs(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    lab.settings["shutdown"] = "200ms"
    lab.run()
    gate, hangs = Event(), Event()

    def treat(commit: Callable[[], CommitAnswer]) -> CommitAnswer:
        hangs.set()
        gate.wait(PATIENCE)
        return commit()

    with Daemon(lab, lambda committer: MoodyLake(committer, "bad", treat)) as daemon:
        more(lab, 4)
        daemon.wait(hangs.is_set)
    assert daemon.failure is None
    assert "left what is under way" in caplog.text
    gate.set()
    lab.run()
    assert lab.rows("bad") == lab.rows("good")
    assert lab.resolved("bad") == [at(2).text, at(5).text]
