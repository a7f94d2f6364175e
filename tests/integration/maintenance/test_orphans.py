"""Files of crashed epochs, rewrites and commits are found on real tables, and nothing else is (H18, H19)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from retention_builders import DAY, FENCE, GRACE, SHOP, Crash, Crashing, Stage

from frazil.iceberg.system.queue_rows import ListedFile
from frazil.iceberg.tables.tables import Tables
from frazil.maintenance.orphans import QUIET
from frazil.model.commit import Accepted, ClearPlan, CommitPlan
from frazil.model.ids import TableName, batch_id, maintenance_folder, replay_folder
from frazil.model.ledger import Fence, LedgerEntry
from frazil.sources.cockroachdb.position import Hlc

pytestmark = pytest.mark.spark
OLD = Fence(2, UUID(int=2))


def local(path: str) -> Path:
    return Path(path.removeprefix("file:"))


def touch(path: str) -> str:
    local(path).parent.mkdir(parents=True, exist_ok=True)
    local(path).write_bytes(b"x")
    return path


def leave_garbage(stage: Stage) -> set[str]:
    """What a crashed coordinator, an aborted rewrite and commits that did not land leave behind."""
    data, metadata = stage.table.data_location, f"{stage.table.location}/metadata"
    return {
        stage.write({1: "x"}, 1).path,  # an attempt that lost, of an epoch that is published
        stage.write({1: "x"}, 10**6, fence=OLD).path,  # beyond the frontier, of a coordinator that was fenced off
        touch(f"{replay_folder(data, SHOP, uuid4())}/shard=0/data-0.parquet"),
        touch(f"{maintenance_folder(data, 'compact', uuid4())}/data-0.parquet"),
        touch(f"{metadata}/{uuid4()}-m0.avro"),
        touch(f"{metadata}/snap-123-1-{uuid4()}.avro"),
        touch(f"{metadata}/00099-{uuid4()}.metadata.json"),
    }


def filled(stage: Stage) -> None:
    stage.epoch({1: "a", 2: "b"})
    stage.epoch({3: "c"})
    stage.delete(1)
    stage.rewrite()
    stage.epoch({4: "d"})


def test_garbage_of_every_kind_is_found_queued_and_deleted_late(stage: Stage) -> None:
    """H19"""
    filled(stage)
    garbage = {str(local(path)) for path in leave_garbage(stage)}
    stage.clock.ahead = 2 * DAY
    swept = stage.sweep()
    assert stage.queued() == garbage
    assert swept.queued == len(garbage)
    assert garbage <= stage.on_disk(), "nothing is deleted inline"
    assert stage.sweep().queued == 0, "what waits already is not queued again, or its grace would never end"
    stage.clock.ahead += 2 * GRACE
    stage.clean()
    assert garbage.isdisjoint(stage.on_disk())
    assert stage.needed() <= stage.on_disk()
    stage.read_all()


def test_files_of_an_epoch_that_is_open_are_left_alone_however_old(stage: Stage) -> None:
    """H18: the commit is under way, and may be for long."""
    filled(stage)
    open_file = stage.write({9: "z"}, 10**6)
    stage.clock.ahead = 300 * DAY
    assert stage.sweep().queued == 0
    assert local(open_file.path).exists()


def test_young_files_are_left_alone(stage: Stage) -> None:
    """H18"""
    filled(stage)
    leave_garbage(stage)
    stage.clock.ahead = DAY - timedelta(minutes=5)
    assert stage.sweep().queued == 0


def test_an_epoch_on_the_branch_of_a_load_is_open_although_main_is_further(stage: Stage) -> None:
    """H18, H27: the load begins anew, and publishes epochs that main has long had."""
    filled(stage)
    clear = ClearPlan(job=SHOP, fence=FENCE, incarnation="cluster-1")
    answer = stage.committer.clear(stage.name, stage.committer.head(stage.name), SHOP.resync_branch, clear)
    assert isinstance(answer, Accepted)
    stage.write({1: "anew"}, 1)
    stage.clock.ahead = 2 * DAY
    assert stage.sweep().queued == 0


def test_files_of_others_are_not_ours_to_judge(stage: Stage) -> None:
    filled(stage)
    touch(f"{stage.table.data_location}/somebody/else.parquet")
    touch(f"{stage.table.location}/notes.txt")
    touch(f"{stage.table.location}/metadata/version-hint.text")
    touch(f"{stage.table.data_location}/frazil_job=unknown/epoch=1.0000000000/fence=1-00000000/shard=0/data.parquet")
    stage.clock.ahead = 300 * DAY
    assert stage.sweep().queued == 0


def test_a_rewrite_that_runs_for_days_keeps_its_files(stage: Stage) -> None:
    filled(stage)
    folder = maintenance_folder(stage.table.data_location, "compact", uuid4())
    touch(f"{folder}/data-0.parquet")
    young = touch(f"{folder}/data-1.parquet")
    stage.clock.ahead = 2 * DAY
    later = (stage.clock.now() - timedelta(hours=1)).timestamp()
    os.utime(local(young), (later, later))
    assert stage.sweep().queued == 0


def test_whoever_sweeps_without_waiting_takes_no_file_of_a_commit_or_a_rewrite_under_way(stage: Stage) -> None:
    """H18: by another process, of which nobody knows. Epochs that are closed need no age: the table tells."""
    filled(stage)
    open_epoch = str(local(stage.write({9: "z"}, 10**6).path))
    garbage = {str(local(path)) for path in leave_garbage(stage)}
    closed = {path for path in garbage if "/epoch=" in path}
    under_way = garbage - closed
    assert closed
    assert under_way
    stage.clock.ahead = timedelta(seconds=1)
    stage.sweep(older_than=timedelta(0))
    assert stage.queued() == closed
    stage.clock.ahead = 2 * QUIET
    stage.sweep(older_than=timedelta(0))
    assert stage.queued() == garbage
    assert open_epoch in stage.on_disk()


class Late:
    """An epoch is committed between the listing and the question what is referred to."""

    def __init__(self, stage: Stage, plan: CommitPlan) -> None:
        self._inner, self._stage, self._plan = stage.files, stage, plan
        self._done = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def list(self, table: TableName, folder: str) -> Sequence[ListedFile]:
        found = self._inner.list(table, folder)
        if not self._done:
            self._done = True
            stage = self._stage
            answer = stage.committer.commit(stage.name, stage.committer.head(stage.name), self._plan)
            assert isinstance(answer, Accepted)
            stage.rows[9] = "late"
            stage.diary[answer.snapshot_id] = dict(stage.rows)
        return found


def test_a_commit_that_lands_during_the_sweep_keeps_its_files(stage: Stage) -> None:
    """H18: by a coordinator that the table had already seen a newer one of; it should not, and must not cost a file."""
    filled(stage)
    file = stage.write({9: "late"}, 10**6, fence=OLD)
    entry = LedgerEntry(
        job=SHOP,
        batch_id=batch_id(SHOP, stage.name, Hlc(10**6)),
        lower=Hlc(3),
        resolved=Hlc(10**6),
        notes="",
        fence=OLD,
        incarnation="cluster-1",
        config_hash="",
        operation="append",
        data_files=1,
        delete_files=0,
        rows=1,
        deletes=0,
    )
    stage.clock.ahead = 2 * DAY
    assert stage.sweep(committer=Late(stage, CommitPlan(entry=entry, files=(file,)))).queued == 0
    stage.read_all()


@pytest.mark.parametrize(
    ("step", "after"), [(2, True), (6, True), (8, False), (8, True)], ids=["listed", "asked", "to queue", "queued"]
)
def test_a_sweep_that_crashes_anywhere_is_made_good_by_the_next(stage: Stage, step: int, after: bool) -> None:
    filled(stage)
    garbage = {str(local(path)) for path in leave_garbage(stage)}
    stage.clock.ahead = 2 * DAY
    crashes = 0
    for _ in range(2):
        calls = itertools.count()
        committer, queue = (Crashing(inner, calls, step, after) for inner in (stage.files, stage.queue))
        try:
            stage.sweep(committer=committer, queue=queue)
        except Crash:
            crashes += 1
            stage.read_all()
    assert crashes
    stage.sweep()
    stage.clock.ahead += 2 * GRACE
    stage.clean()
    assert garbage.isdisjoint(stage.on_disk())
    assert stage.queued() == set()
    stage.read_all()


def test_a_folder_that_holds_another_table_too_is_not_swept(stage: Stage) -> None:
    """A renamed table stays where it is, and its name is used again."""
    filled(stage)
    needed = stage.needed()
    Tables(stage.catalog).rename(stage.name, TableName(("shop",), "renamed"))
    again = Stage(stage.catalog, stage.name)
    assert again.table.location == stage.table.location
    again.epoch({1: "new"}, at=10**6)
    again.clock.ahead = 300 * DAY
    swept = again.sweep()
    assert swept.queued == 0
    assert stage.table.uuid in swept.skipped
    assert needed <= stage.on_disk()


def test_an_empty_table_in_the_folder_of_a_renamed_one_keeps_its_only_metadata(stage: Stage) -> None:
    """The name is used again, and nothing is published under it yet."""
    filled(stage)
    garbage = {str(local(path)) for path in leave_garbage(stage)}
    renamed, name = TableName(("shop",), "renamed"), stage.name
    Tables(stage.catalog).rename(name, renamed)
    again = Stage(stage.catalog, name)
    assert again.table.location == stage.table.location
    stage.name = renamed
    stage.clock.ahead = 300 * DAY
    swept = stage.sweep()
    assert again.table.uuid in swept.skipped
    stage.clock.ahead += 2 * GRACE
    stage.clean()
    assert again.needed() | garbage <= stage.on_disk()
    again.epoch({1: "new"}, at=10**6)
    again.read_all()


def test_a_data_location_of_its_own_choice_is_not_swept(stage: Stage, tmp_path: Path) -> None:
    """Several tables may share it, and a path does not tell whose it is."""
    filled(stage)
    leave_garbage(stage)
    stage.catalog.spark.sql(f"ALTER TABLE {stage.sql} SET TBLPROPERTIES ('write.data.path' = '{tmp_path}/elsewhere')")
    stage.clock.ahead = 2 * DAY
    assert "own location" in stage.sweep().skipped
    assert stage.queued() == set()
