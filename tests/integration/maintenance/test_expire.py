"""Snapshots expire on real tables: what is left reads as ever, and whatever crashes, every file is found again."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from retention_builders import DAY, GRACE, SHOP, Crash, Crashing, Stage

from frazil.commit.frontier_check import At, read_frontier
from frazil.iceberg.commits.snapshots import Expiry, TableSnapshots
from frazil.maintenance.expire.planner import Keep, Period
from frazil.model.commit import Accepted, CommitAnswer, Unknown
from frazil.model.ids import JobId, TableName
from frazil.sources.cockroachdb.position import Hlc

pytestmark = pytest.mark.spark
BANK = JobId("bank")


def history(stage: Stage) -> None:
    """Appends, vectors and a rewrite, so that old snapshots hold files of every kind that nobody else does."""
    stage.epoch({n: f"{n}@1" for n in range(8)})
    stage.epoch({n: f"{n}@2" for n in range(8, 12)})
    stage.delete(1, 9)
    stage.rewrite()
    stage.delete(2)
    stage.rewrite()
    stage.epoch({20: "last"})


def test_old_snapshots_go_and_their_files_wait_in_the_queue(stage: Stage) -> None:
    history(stage)
    before = stage.left()
    done = stage.expire(max_snapshots=2)
    assert len(stage.left()) == 2
    assert done.snapshots == len(before) - 2
    assert done.files_queued == len(stage.queued())
    assert stage.queued().isdisjoint(stage.needed())
    assert stage.queued() <= stage.on_disk(), "nothing is deleted inline"
    stage.read_all()


def test_after_the_grace_period_nothing_is_left_but_what_is_needed(stage: Stage) -> None:
    history(stage)
    stage.expire(max_snapshots=2)
    queued = stage.queued()
    assert stage.clean().deleted == 0
    assert queued <= stage.on_disk()
    stage.clock.ahead = GRACE * 2
    assert stage.clean().deleted == len(queued)
    assert stage.queued() == set()
    assert {path for path in stage.on_disk() if not path.endswith(".metadata.json")} <= stage.needed()
    assert stage.needed() <= stage.on_disk()
    stage.read_all()


def test_manifests_that_newer_snapshots_share_stay(stage: Stage) -> None:
    """Of plain appends nothing is free but the lists of manifests."""
    made = [stage.epoch({n: "a"}) for n in range(4)]
    before = stage.needed()
    stage.expire(max_snapshots=1)
    assert stage.left() == {made[-1]}
    assert len(stage.queued()) == 3
    assert stage.queued() == {path for path in before if Path(path).name.startswith("snap-")} - stage.needed()


def test_expiring_twice_finds_nothing_more(stage: Stage) -> None:
    history(stage)
    stage.expire(max_snapshots=2)
    assert stage.expire(max_snapshots=2).snapshots == 0


def test_the_ledger_goes_on_although_the_newest_epoch_was_long_ago(stage: Stage) -> None:
    """H3"""
    last = stage.epoch({1: "a"}, at=5)
    for key in range(2, 6):
        stage.epoch({key: "b"}, job=BANK)
    stage.catalog.spark.sql(f"ALTER TABLE {stage.sql} DROP TAG `frazil_shop`")
    stage.clock.ahead = 30 * DAY
    stage.expire(max_snapshots=1)
    assert last in stage.left()
    reading = read_frontier(stage.committer.head(stage.name), SHOP)
    assert isinstance(reading, At)
    assert reading.entry.resolved == Hlc(5)
    stage.expire(max_snapshots=1)
    assert last in stage.left(), "also once a hole in the ancestry hides it"
    stage.read_all()


def test_tags_and_branches_of_others_keep_what_they_name(stage: Stage) -> None:
    tagged = stage.epoch({1: "a"})
    stage.catalog.spark.sql(f"ALTER TABLE {stage.sql} CREATE TAG audit")
    branched = stage.epoch({2: "b"})
    stage.catalog.spark.sql(f"ALTER TABLE {stage.sql} CREATE BRANCH trial")
    for key in range(3, 7):
        stage.epoch({key: "c"})
    stage.clock.ahead = 30 * DAY
    stage.expire(max_snapshots=1)
    assert {tagged, branched, stage.head_id} == stage.left()
    stage.read_all()


def test_the_last_epoch_of_each_source_day_stays_by_its_tag(stage: Stage) -> None:
    nanos = [
        int(datetime(2026, 3, day, hour, tzinfo=UTC).timestamp()) * 10**9 for day in (1, 2, 3, 4) for hour in (6, 18)
    ]
    made = [stage.epoch({n: f"{n}"}, at=at) for n, at in enumerate(nanos)]
    stage.clock.ahead = 30 * DAY
    rule = {"keep": keep_daily(2)}
    stage.expire(max_snapshots=1, **rule)
    assert stage.tags() == {
        "frazil_keep_2026-03-02": made[3],
        "frazil_keep_2026-03-03": made[5],
        "frazil_shop": made[7],
    }
    stage.read_all()
    made.append(stage.epoch({99: "next day"}, at=nanos[-1] + 86_400 * 10**9))
    stage.expire(max_snapshots=1, **rule)
    assert stage.tags() == {
        "frazil_keep_2026-03-03": made[5],
        "frazil_keep_2026-03-04": made[7],
        "frazil_shop": made[8],
    }
    assert made[3] not in stage.left(), "its tag outlived the rule"
    stage.read_all()


def keep_daily(days: int) -> Any:
    return (Keep(Period.DAILY, days * DAY),)


class Meddled:
    """Somebody else commits between the look and our commit."""

    def __init__(self, stage: Stage, times: int) -> None:
        self._inner, self._stage, self._times = stage.snapshots, stage, times
        self.answers: list[CommitAnswer] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def expire(self, table: TableName, seen: TableSnapshots, expiry: Expiry) -> CommitAnswer:
        if self._times:
            self._times -= 1
            self._stage.epoch({100 + self._times: "meanwhile"})
        self.answers.append(self._inner.expire(table, seen, expiry))
        return self.answers[-1]


def test_a_commit_of_somebody_else_in_between_is_respected(stage: Stage) -> None:
    """H47"""
    history(stage)
    meddled = Meddled(stage, 2)
    stage.expire(committer=meddled, max_snapshots=2)
    assert [isinstance(answer, Accepted) for answer in meddled.answers] == [False, False, True]
    assert len(stage.left()) == 4, "what landed meanwhile is for the next time"
    stage.expire(max_snapshots=2)
    assert len(stage.left()) == 2
    assert stage.rows[100] == stage.rows[101] == "meanwhile"
    stage.read_all()
    stage.clock.ahead = GRACE * 2
    stage.clean()
    stage.read_all()


def test_a_tag_that_is_set_in_between_keeps_its_snapshot(stage: Stage) -> None:
    history(stage)
    seen = stage.snapshots.snapshots(stage.name)
    oldest = min(seen.snapshots.values(), key=lambda s: s.sequence_number).snapshot_id
    stage.catalog.spark.sql(f"ALTER TABLE {stage.sql} CREATE TAG audit AS OF VERSION {oldest}")
    answer = stage.snapshots.expire(stage.name, seen, Expiry(removed=frozenset([oldest])))
    assert not isinstance(answer, Accepted)
    assert oldest in stage.left()


class Forgetful(Meddled):
    """The commit lands and the answer is lost."""

    def expire(self, table: TableName, seen: TableSnapshots, expiry: Expiry) -> CommitAnswer:
        answer = super().expire(table, seen, expiry)
        return Unknown("timed out") if len(self.answers) == 1 else answer


def test_a_lost_answer_is_cleared_up_by_looking(stage: Stage) -> None:
    """H6"""
    history(stage)
    before = len(stage.left())
    done = stage.expire(committer=Forgetful(stage, 0), max_snapshots=2)
    assert done.snapshots == before - 2
    assert len(stage.left()) == 2
    assert stage.queued().isdisjoint(stage.needed())


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", [2, 3], ids=["enqueue", "commit"])
def test_a_crash_at_any_step_leaks_nothing_and_loses_nothing(stage: Stage, step: int, after: bool) -> None:
    """Then again, then clean."""
    history(stage)
    crashes = 0
    for _ in range(2):
        calls = itertools.count()
        committer, queue = (Crashing(inner, calls, step, after) for inner in (stage.snapshots, stage.queue))
        try:
            stage.expire(committer=committer, queue=queue, max_snapshots=2)
        except Crash:
            crashes += 1
            stage.read_all()
    assert crashes
    stage.expire(max_snapshots=2)
    stage.clock.ahead = GRACE * 2
    stage.clean()
    stage.read_all()
    assert stage.queued() == set()
    assert {path for path in stage.on_disk() if not path.endswith(".metadata.json")} <= stage.needed()


def test_a_table_that_shares_its_files_is_left_alone(stage: Stage) -> None:
    history(stage)
    before = stage.left()
    stage.catalog.spark.sql(f"ALTER TABLE {stage.sql} SET TBLPROPERTIES ('gc.enabled' = 'false')")
    assert stage.expire(max_snapshots=1).snapshots == 0
    assert stage.left() == before


def test_a_snapshot_that_something_names_is_never_sent(stage: Stage) -> None:
    stage.epoch({1: "a"})
    seen = stage.snapshots.snapshots(stage.name)
    with pytest.raises(ValueError, match="main"):
        stage.snapshots.expire(stage.name, seen, Expiry(removed=frozenset([stage.head_id])))
