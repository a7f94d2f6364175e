"""Changes that cannot be taken: put away in the epoch they belong to, shown, and applied again in source order."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from click.testing import CliRunner, Result
from feed_builders import Lab, at, delete, table, upsert
from pyspark.sql import SparkSession

from frazil.app.assemble import assemble
from frazil.app.pipeline import Pipeline
from frazil.cli.main import cli
from frazil.cli.seam import Session
from frazil.clock import SystemClock
from frazil.config.load import load_config
from frazil.errors import BadInput, DoesNotFit
from frazil.ingest.loop.supervisor import Supervisor
from frazil.ingest.quarantine.replay import Replay
from frazil.model.commit import CommitAnswer
from frazil.model.results import RunProgress
from frazil.observability.metrics import Metrics

pytestmark = pytest.mark.spark

NARROW = {"a": "INT8", "n": "INT4"}
WIDE = {"a": "INT8", "n": "INT8"}
TOO_MUCH = 2**40


@pytest.fixture
def lab(spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path) -> Lab:
    return Lab(
        spark,
        warehouse,
        namespace,
        tmp_path,
        tables=[table(columns=NARROW)],
        settings={"on_error": "quarantine", "limits": {"epochs_per_job": 1}},
    )


def row(a: int, second: int, n: int) -> str:
    return upsert([a], at(second), a=a, n=n)


def epoch(lab: Lab, second: int, *lines: str) -> None:
    """A file and the resolved timestamp behind it."""
    lab.feed.data(at(second), lines)
    lab.feed.resolved(at(second + 9))


def main_table(lab: Lab) -> dict[int, int]:
    rows = lab.rows()
    assert len({row["a"] for row in rows}) == len(rows), "a key lives twice"
    return {row["a"]: row["n"] for row in rows}


def put_away(lab: Lab) -> list[tuple[Any, ...]]:
    """(key, second, captured) in source order."""
    with lab.open() as pipeline:
        found = pipeline.quarantine(f"{lab.namespace}.t")
    return [(c.key, c.position and second(c.position), c.captured) for c in found]


def second(position: str) -> int:
    return (int(position.partition(".")[0]) - at(0).wall) // 10**9


def frazil(lab: Lab, *arguments: str) -> Result:
    """`frazil quarantine list CONFIG ...`"""
    command, *rest = arguments
    session = Session(open_pipeline=lambda loaded, reread=None: Pipeline(loaded, spark=lab.spark))
    return CliRunner().invoke(cli, ["quarantine", command, str(lab.config), *rest], obj=session)


def replayed(lab: Lab) -> dict[str, Any]:
    result = frazil(lab, "replay", f"{lab.namespace}.t", "--json")
    assert result.exit_code == 0, result.stderr
    (report,) = json.loads(result.stdout)
    found: dict[str, Any] = report
    return found


def replays(lab: Lab, name: str = "t") -> int:
    rows = lab.spark.sql(f"SELECT summary FROM {lab.sql_name(name)}.snapshots").collect()
    return sum(row.summary.get("frazil.operation") == "replay" for row in rows)


def test_a_bad_row_is_put_away_captures_its_key_and_is_replayed_in_source_order(lab: Lab) -> None:
    """H20, H39, H49: within the window that meets it, in later windows, and after a restart."""
    lab.settings["limits"] = {"epochs_per_job": 2}
    null_key = upsert([None], at(2), n=1)
    epoch(lab, 0, row(1, 1, 1), row(2, 1, TOO_MUCH), row(3, 1, 3), "{torn", null_key)
    epoch(lab, 10, row(2, 11, 5), row(1, 11, 6))
    epoch(lab, 20, row(3, 21, TOO_MUCH), row(1, 21, 7))
    lab.run()
    assert main_table(lab) == {1: 7, 3: 3}
    expected = [(None, None, False), ("[2]", 1, False), (None, 2, False), ("[2]", 11, True), ("[3]", 21, False)]
    assert put_away(lab) == expected
    assert lab.resolved("t")[:3] == [at(9).text, at(19).text, at(29).text]

    epoch(lab, 30, row(2, 31, 8), delete([3], at(32)), row(4, 31, 4))
    lab.run()
    assert main_table(lab) == {1: 7, 3: 3, 4: 4}, "a key in quarantine captures what follows after a restart too"
    assert put_away(lab) == [*expected, ("[2]", 31, True), ("[3]", 32, True)]
    with lab.open() as pipeline:
        assert [line.quarantined for line in pipeline.status()] == [7]

    shown = frazil(lab, "list")
    assert shown.exit_code == 0
    assert all(told in shown.stdout for told in (".ndjson:4", "waits", "[2]"))
    as_json = json.loads(frazil(lab, "list", f"{lab.namespace}.t", "--json").stdout)
    torn = next(line for line in as_json if line["line"] == 4)
    assert (torn["payload"], torn["key"], torn["position"]) == ("{torn", None, None)
    null = next(line for line in as_json if line["line"] == 5)
    assert (null["column"], null["payload"]) == ("a", null_key)
    too_much = next(line for line in as_json if line["key"] == "[2]")
    assert too_much["column"] == "n"
    assert (too_much["file"], too_much["line"]) == (torn["file"], 2), "a bad value has its place, too"
    waiting = next(line for line in as_json if line["captured"])
    assert (waiting["file"] != torn["file"], waiting["line"]) == (True, 1)
    assert str(TOO_MUCH) in too_much["payload"]

    again = replayed(lab)
    assert again["replayed"] == 0, "nothing was mended"
    assert {line["key"] for line in again["left"]} == {None, "[2]", "[3]"}

    lab.tables = [table(columns=WIDE)]
    mended = replayed(lab)
    assert mended["replayed"] == 5
    assert main_table(lab) == {1: 7, 2: 8, 4: 4}, "the newest change of each key, and key 3 was deleted"
    assert [line["key"] for line in mended["left"]] == [None, None]
    assert all("key was not known" in line["reason"] for line in mended["left"])
    assert replayed(lab)["replayed"] == 0
    assert replays(lab) == 1
    assert lab.resolved("t")[-1] == at(39).text, "a replay is no epoch"

    epoch(lab, 40, row(2, 41, 9))
    lab.run()
    assert main_table(lab) == {1: 7, 2: 9, 4: 4}, "its key is free again"


class Dies:
    """A lake that ends the process instead of the commit after the Nth."""

    def __init__(self, committer: Any, number: int) -> None:
        self._committer, self._left = committer, number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._committer, name)

    def commit(self, *arguments: Any) -> CommitAnswer:
        return self._once(self._committer.commit, *arguments)

    def repair(self, *arguments: Any) -> CommitAnswer:
        return self._once(self._committer.repair, *arguments)

    def _once(self, act: Callable[..., CommitAnswer], *arguments: Any) -> CommitAnswer:
        if self._left == 0:
            raise KeyboardInterrupt
        self._left -= 1
        return act(*arguments)


def run_until_dead(lab: Lab, commits: int) -> None:
    clock = SystemClock()
    parts = assemble(load_config(lab.config), clock, Metrics(clock), lab.spark).parts
    with pytest.raises(KeyboardInterrupt):
        Supervisor(replace(parts, committer=Dies(parts.committer, commits)), lambda run: None, Event()).run(once=True)


def test_after_a_crash_between_quarantine_and_mirror_nothing_is_lost_or_doubled(lab: Lab) -> None:
    """H49: the quarantine is published first. What it has is not put away again; what it captures stays captured, even
    if the row would be good by now; what came before the bad row still reaches the main table."""
    lab.settings["limits"] = {"epochs_per_job": 2}
    epoch(lab, 0, row(1, 1, 1), row(2, 1, 2))
    epoch(lab, 10, row(2, 11, TOO_MUCH), row(3, 11, 3), "{torn", upsert([None], at(12), n=1))
    run_until_dead(lab, commits=1)
    lines = [(None, None, False), (None, 12, False)]
    assert put_away(lab) == [lines[0], ("[2]", 11, False), lines[1]]
    assert lab.rows() == []
    epoch(lab, 20, row(2, 21, 5), row(1, 21, 6))
    lab.tables = [table(columns=WIDE)]
    lab.run()
    assert main_table(lab) == {1: 6, 2: 2, 3: 3}
    assert put_away(lab) == [lines[0], ("[2]", 11, False), lines[1], ("[2]", 21, True)]
    assert replayed(lab)["replayed"] == 2
    assert main_table(lab) == {1: 6, 2: 5, 3: 3}
    assert put_away(lab) == lines


def test_a_row_that_turned_bad_after_its_epoch_was_put_away_stops_the_run(lab: Lab) -> None:
    lab.tables = [table(columns=WIDE)]
    epoch(lab, 0, row(1, 1, TOO_MUCH), upsert([None], at(2), n=1))
    run_until_dead(lab, commits=1)
    lab.tables = [table(columns=NARROW)]
    with pytest.raises(DoesNotFit):
        lab.run()


def test_a_line_that_turned_bad_after_its_epoch_was_put_away_stops_the_run(lab: Lab) -> None:
    epoch(lab, 0, row(1, 1, 1), "{torn")
    lab.run()
    epoch(lab, 10, row(1, 11, 2), row(2, 11, TOO_MUCH), "{torn")
    run_until_dead(lab, commits=1)
    expected = [(None, None, False), (None, None, False), ("[2]", 11, False)]
    assert put_away(lab) == expected
    lab.source["envelope"] = "bare"
    with pytest.raises(BadInput, match="neither"):
        lab.run()
    assert main_table(lab) == {1: 1}
    lab.source["envelope"] = "wrapped"
    lab.run()
    assert main_table(lab) == {1: 2}
    assert put_away(lab) == expected


@pytest.mark.parametrize("commits", [1, 2])
def test_a_replay_that_died_halfway_is_ended_by_the_next_one(lab: Lab, commits: int) -> None:
    """Published on the changelog, or on both tables, and still in the quarantine: each change comes once."""
    lab.tables = [table(columns=NARROW, changelog=True)]
    epoch(lab, 0, row(1, 1, 1), row(2, 1, TOO_MUCH), row(2, 2, 4))
    lab.run()
    lab.tables = [table(columns=WIDE, changelog=True)]
    clock = SystemClock()
    opened = assemble(load_config(lab.config), clock, Metrics(clock), lab.spark)
    with pytest.raises(KeyboardInterrupt):
        Replay(opened.parts, opened.quarantined, Dies(opened.committer, commits), "t").run()
    epoch(lab, 10, row(2, 11, 5), row(3, 11, 3))
    lab.run()
    assert put_away(lab) == [("[2]", 1, False), ("[2]", 2, True), ("[2]", 11, True)]
    assert replayed(lab)["replayed"] == 3
    assert main_table(lab) == {1: 1, 2: 5, 3: 3}
    logged = sorted((row["a"], row["n"]) for row in lab.rows("t__changelog"))
    assert logged == [(1, 1), (2, 4), (2, 5), (2, TOO_MUCH), (3, 3)]
    assert put_away(lab) == []


def test_a_captured_change_with_a_new_column_holds_back_nothing_but_its_key(lab: Lab) -> None:
    """Nobody has looked at its columns: it was put away as it came. The newest files tell of others."""
    epoch(lab, 0, row(1, 1, 1), row(2, 1, TOO_MUCH), row(3, 1, TOO_MUCH))
    epoch(lab, 10, upsert([2], at(11), a=2, n=5, extra=6))
    for later in range(20, 70, 10):
        epoch(lab, later, row(1, later + 1, later))
    lab.run()
    lab.tables = [table(columns=WIDE)]
    report = replayed(lab)
    assert report["replayed"] == 2
    assert main_table(lab) == {1: 60, 2: TOO_MUCH, 3: TOO_MUCH}
    (left,) = report["left"]
    assert (left["key"], left["captured"]) == ("[2]", True)
    assert "extra" in left["reason"]
    assert "columns:" in left["reason"]

    lab.tables = [table(columns={**WIDE, "extra": "INT8"})]
    assert replayed(lab)["replayed"] == 1
    assert main_table(lab) == {1: 60, 2: 5, 3: TOO_MUCH}
    assert [row["extra"] for row in lab.rows()] == [None, 6, None]
    assert put_away(lab) == []


def test_a_rewind_names_the_replays_that_were_rolled_back(lab: Lab) -> None:
    """What was replayed lies before the epoch that is gone on from: it is not read again."""

    def rewound_to(snapshot: int | None) -> str:
        lab.spark.sql(f"CALL frazil.system.rollback_to_snapshot('{lab.namespace}.t', {snapshot})")
        with lab.open() as pipeline:
            return pipeline.rewind(f"{lab.namespace}.t")

    epoch(lab, 0, row(1, 1, 1), row(2, 5, TOO_MUCH))
    lab.run()
    epoch(lab, 10, row(1, 11, 2))
    lab.run()
    lab.tables = [table(columns=WIDE)]
    assert replayed(lab)["replayed"] == 1
    for later in (20, 30):
        epoch(lab, later, row(1, later + 1, later))
        lab.run()
    _, third, _, first = lab.epochs()
    assert "replayed" not in rewound_to(third.snapshot_id), "it holds the replay"
    lab.run()

    told = rewound_to(first.snapshot_id)
    assert "replayed" in told
    query = told.splitlines()[-1]
    assert [row["_key"] for row in lab.spark.sql(query).collect()] == ["[2]"]
    lab.run()
    assert main_table(lab) == {1: 30}
    epoch(lab, 40, row(2, 41, 7))
    lab.run()
    assert main_table(lab) == {1: 30, 2: 7}, "a row that is changed at the source comes again"


def run_through(lab: Lab, *steps: tuple[int, Callable[[], Any]]) -> None:
    """A running pipeline: each step is taken when the main table is published up to its second; the last one ends
    it."""
    stop, left = Event(), list(steps)

    def listen(progress: RunProgress) -> None:
        published = {line.resolved for line in progress.tables if line.name.endswith(".t") and line.epochs}
        if left and at(left[0][0]).text in published:
            left.pop(0)[1]()
            if not left:
                stop.set()

    with lab.open() as pipeline:
        pipeline.run(stop=stop, on_progress=listen)
        assert "frazil_quarantined_rows" in pipeline.metrics.text()


def replay_elsewhere(lab: Lab, rows: int) -> None:
    """By another process, after the cause is mended there."""
    other = Lab(lab.spark, lab.warehouse, lab.namespace, lab.root, settings=lab.settings)
    other.tables = [table(columns=WIDE)]
    assert replayed(other)["replayed"] == rows


def test_a_replay_beside_a_running_pipeline_frees_the_key_there(lab: Lab) -> None:
    """H49: the pipeline that runs with the old configuration notices that the rows are gone."""
    epoch(lab, 0, row(1, 1, 1), row(2, 1, TOO_MUCH))

    def replay() -> None:
        replay_elsewhere(lab, rows=2)
        epoch(lab, 20, row(2, 21, 7))

    run_through(lab, (9, lambda: epoch(lab, 10, row(2, 11, 3))), (19, replay), (29, lambda: None))
    assert main_table(lab) == {1: 1, 2: 7}
    assert put_away(lab) == []


def test_a_key_that_was_put_away_early_in_a_window_is_freed_by_a_replay(lab: Lab) -> None:
    """The quarantine publishes the first epoch of the window and has nothing to say of the last one."""
    lab.settings["limits"] = {"epochs_per_job": 2}
    epoch(lab, 0, row(1, 1, 1), row(2, 1, TOO_MUCH))
    epoch(lab, 10, row(1, 11, 2))

    def replay() -> None:
        replay_elsewhere(lab, rows=1)
        epoch(lab, 20, row(2, 21, 7))

    run_through(lab, (19, replay), (29, lambda: None))
    assert main_table(lab) == {1: 2, 2: 7}
    assert put_away(lab) == []


def test_a_key_in_quarantine_captures_what_follows_after_the_pipeline_was_told_to_stop_at_bad_rows(lab: Lab) -> None:
    """H49: the cause is mended and `on_error: stop` set, and the rows of before are replayed later."""
    epoch(lab, 0, row(1, 1, 1), row(2, 5, TOO_MUCH), row(3, 5, TOO_MUCH))
    lab.run()
    lab.settings["on_error"] = "stop"
    lab.tables = [table(columns=WIDE)]
    epoch(lab, 20, row(1, 21, 2), row(2, 21, 7), delete([3], at(21)))
    lab.run()
    assert main_table(lab) == {1: 2}
    expected = [("[2]", 5, False), ("[3]", 5, False), ("[2]", 21, True), ("[3]", 21, True)]
    assert put_away(lab) == expected

    epoch(lab, 30, row(1, 31, 3), row(4, 31, 2**70))
    with pytest.raises(DoesNotFit):
        lab.run()
    assert main_table(lab) == {1: 2}, "a new bad row stops"
    assert put_away(lab) == expected

    assert replayed(lab)["replayed"] == 4
    assert main_table(lab) == {1: 2, 2: 7}, "the newest change of each key"


def test_stop_is_still_the_default(lab: Lab) -> None:
    lab.settings = {}
    epoch(lab, 0, row(1, 1, 1), row(2, 1, TOO_MUCH))
    with pytest.raises(DoesNotFit):
        lab.run()
    assert not lab.exists("t__quarantine")
