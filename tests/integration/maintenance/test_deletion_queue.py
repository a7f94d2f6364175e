"""`_frazil.deletion_queue` on real tables: late, in batches, after one more look, and as often as it takes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from retention_builders import GRACE, Crash, Crashing, Stage

from frazil.errors import CatalogUnavailable
from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.system.deletion_queue import IcebergDeletionQueue
from frazil.iceberg.system.queue_rows import DeletionType, QueuedDeletion, Why
from frazil.iceberg.tables.tables import Tables
from frazil.model.ids import TableName

pytestmark = pytest.mark.spark


def row(stage: Stage, path: str, at: datetime | None = None, **more: Any) -> QueuedDeletion:
    facts: dict[str, Any] = {"why": Why.UNCOMMITTED, **more}
    return QueuedDeletion(
        path=path,
        table=stage.name,
        table_uuid=stage.table.uuid,
        orphaned_at=at or stage.clock.now(),
        **facts,
    )


def stray(stage: Stage, number: int = 1) -> list[str]:
    """Files of ours that were never committed."""
    return [stage.write({n: "x"}, 1000 + n).path for n in range(number)]


def exists(path: str) -> bool:
    return Path(path.removeprefix("file:")).exists()


def test_rows_read_back_as_they_were_put_in(stage: Stage) -> None:
    rows = [
        row(stage, "/a", why=Why.EXPIRED),
        row(stage, "/b", retry_count=3, retry_at=stage.clock.now() + timedelta(minutes=4)),
        row(stage, "/m.metadata.json", type=DeletionType.METADATA, why=Why.DROPPED),
    ]
    stage.queue.enqueue(rows)
    found = [one for batch in stage.queue.batches() for one in batch.rows]
    assert sorted(found, key=lambda one: one.path) == rows
    assert len(stage.queue.batches()) == 3, "a batch is of one kind"


def test_other_engines_can_look_into_the_queue(stage: Stage, tmp_path: Path) -> None:
    stage.queue.enqueue([row(stage, "/a")])
    warehouse = tmp_path / "warehouse"
    other = SqlCatalog(stage.catalog.settings.name, uri=f"sqlite:///{warehouse}/catalog.db", warehouse=str(warehouse))
    (found,) = other.load_table("_frazil.deletion_queue").scan().to_arrow().to_pylist()
    assert (found["path"], found["table"], found["type"], found["retry_count"]) == ("/a", "shop.orders", "file", 0)


def test_a_path_that_became_referenced_again_is_not_deleted(stage: Stage) -> None:
    """H46: it was queued as an orphan, and its commit landed after all."""
    stage.epoch({1: "a"})
    file = stage.write({2: "b"}, 2)
    stage.queue.enqueue([row(stage, file.path)])
    stage.clock.ahead = GRACE * 2
    stage.catalog.spark.sql(
        f"CALL {stage.catalog.settings.name}.system.add_files(table => '{stage.name}', "
        f"source_table => '`parquet`.`{Path(file.path.removeprefix('file:')).parent}`')"
    )
    stage.rows[2] = "b"
    stage.diary[stage.head_id] = dict(stage.rows)
    done = stage.clean()
    assert (done.deleted, done.dismissed) == (0, 1)
    assert stage.queued() == set()
    stage.read_all()


def test_a_path_that_only_a_tag_refers_to_is_not_deleted(stage: Stage) -> None:
    """H46: nor one that the metadata log or a branch refers to."""
    stage.epoch({1: "a", 2: "b"})
    stage.catalog.spark.sql(f"ALTER TABLE {stage.sql} CREATE TAG audit")
    stage.delete(1)
    stage.rewrite()
    stage.queue.enqueue([row(stage, path) for path in sorted(stage.needed())])
    stage.clock.ahead = GRACE * 2
    before = stage.needed()
    done = stage.clean()
    assert (done.deleted, done.dismissed) == (0, len(before))
    assert stage.needed() == before <= stage.on_disk()
    stage.read_all()


def test_nothing_is_deleted_before_its_grace_period_is_over(stage: Stage) -> None:
    paths = stray(stage, 2)
    stage.queue.enqueue([row(stage, paths[0]), row(stage, paths[1], stage.clock.now() - GRACE)])
    done = stage.clean()
    assert (done.deleted, done.waiting) == (1, 1)
    assert [exists(path) for path in paths] == [True, False]
    assert stage.queued() == {paths[0]}, "it still waits, though the rest of its batch is done"
    stage.clock.ahead = GRACE * 2
    assert stage.clean().deleted == 1
    assert not exists(paths[0])


def test_the_grace_period_counts_from_the_last_time_a_path_was_orphaned(stage: Stage) -> None:
    (path,) = stray(stage)
    stage.queue.enqueue([row(stage, path, stage.clock.now() - 2 * GRACE)])
    stage.queue.enqueue([row(stage, path)])
    assert stage.clean().deleted == 0
    assert exists(path)


def test_empty_folders_of_ours_go_with_their_last_file(stage: Stage) -> None:
    (path,) = stray(stage)
    stage.queue.enqueue([row(stage, path, stage.clock.now() - 2 * GRACE)])
    stage.clean()
    local = Path(path.removeprefix("file:"))
    job = local.parents[3]
    assert job.name == "frazil_job=shop"
    assert list(job.iterdir()) == []


class Stubborn:
    """A storage that does not delete some files."""

    def __init__(self, stage: Stage, *paths: str) -> None:
        self._inner, self.paths = stage.files, set(paths)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def delete(self, table: TableName, paths: Sequence[str]) -> Mapping[str, str]:
        done = self._inner.delete(table, [path for path in paths if path not in self.paths])
        return {**done, **{path: "not now" for path in paths if path in self.paths}}


def test_what_could_not_be_deleted_is_tried_again_later_and_later(stage: Stage) -> None:
    paths = stray(stage, 3)
    stage.queue.enqueue([row(stage, path, stage.clock.now() - 2 * GRACE) for path in paths])
    stubborn = Stubborn(stage, paths[0])
    done = stage.clean(committer=stubborn)
    assert (done.deleted, done.failed) == (2, 1)
    (batch,) = stage.queue.batches()
    assert [(one.path, one.retry_count) for one in batch.rows] == [(paths[0], 1)]
    assert stage.clean().deleted == 0, "it waits"
    stage.clock.ahead += timedelta(minutes=2)
    assert stage.clean(committer=stubborn).failed == 1
    stage.clock.ahead += timedelta(seconds=90)
    assert stage.clean().deleted == 0, "for longer"
    stage.clock.ahead += timedelta(minutes=2)
    assert stage.clean().deleted == 1
    assert stage.queue.batches() == []


def test_a_file_that_cannot_be_deleted_for_good_is_given_up(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    (path,) = stray(stage)
    stage.queue.enqueue([row(stage, path, stage.clock.now() - 2 * GRACE)])
    for _ in range(3):
        done = stage.clean(committer=Stubborn(stage, path), max_retries=2)
        stage.clock.ahead += timedelta(days=1)
    assert done.given_up == 1
    assert stage.queue.batches() == []
    assert path in caplog.text


def test_a_file_that_is_gone_already_counts_as_deleted(stage: Stage) -> None:
    (path,) = stray(stage)
    Path(path.removeprefix("file:")).unlink()
    stage.queue.enqueue([row(stage, path, stage.clock.now() - 2 * GRACE)])
    assert stage.clean().deleted == 1
    assert stage.queue.batches() == []


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", [2, 3, 4], ids=["references", "delete", "finish"])
def test_a_crash_at_any_step_is_made_good_by_the_next_round(own: Catalog, step: int, after: bool) -> None:
    """Then again, then clean; readers see all they saw before."""
    stage = Stage(own, TableName(("shop",), "orders"), batch_files=4)
    stage.epoch({1: "a", 2: "b"})
    stage.delete(1)
    stage.rewrite()
    paths = [*stray(stage, 4), *sorted(stage.needed())[:3]]
    stage.queue.enqueue([row(stage, path, stage.clock.now() - 2 * GRACE) for path in paths])
    crashed = 0
    for _ in range(2):
        calls = itertools.count()
        committer, queue = (Crashing(inner, calls, step, after) for inner in (stage.files, stage.queue))
        try:
            stage.clean(committer=committer, queue=queue)
        except Crash:
            crashed += 1
        stage.read_all()
    assert crashed, "the second time there may be less to do"
    stage.clean()
    assert stage.queue.batches() == []
    assert not any(exists(path) for path in paths[:4])
    stage.read_all()


def test_two_workers_finish_a_batch_once(stage: Stage) -> None:
    (path,) = stray(stage)
    stage.queue.enqueue([row(stage, path)])
    (batch,) = stage.queue.batches()
    other = IcebergDeletionQueue(stage.catalog, stage.clock)
    assert other.finish(batch, [])
    assert not stage.queue.finish(batch, batch.rows), "what the other has finished does not come back"
    assert stage.queue.batches() == []


def test_many_rows_are_cut_into_batches(own: Catalog) -> None:
    stage = Stage(own, TableName(("shop",), "orders"), batch_files=3)
    stage.queue.enqueue([row(stage, f"/f{n}") for n in range(8)])
    assert sorted(len(batch.rows) for batch in stage.queue.batches()) == [2, 3, 3]
    head = SqlHead(stage).snapshots
    assert head == 1, "in one commit"


class SqlHead:
    def __init__(self, stage: Stage) -> None:
        table = f"{stage.catalog.settings.name}.{stage.queue.name.sql}.snapshots"
        self.snapshots = stage.catalog.spark.table(table).count()


def test_a_dropped_table_is_expanded_late_and_all_its_files_go(stage: Stage) -> None:
    stage.epoch({1: "a", 2: "b"})
    stage.delete(1)
    stage.rewrite()
    stage.epoch({3: "c"})
    everything = stage.needed()
    assert stage.queue.drop(stage.name)
    assert not Tables(stage.catalog).exists(stage.name)
    assert everything <= stage.on_disk(), "nothing is deleted inline"
    assert stage.clean().deleted == 0
    stage.clock.ahead = 2 * GRACE
    assert stage.clean().expanded >= len(everything)
    assert everything <= stage.on_disk()
    assert stage.clean().deleted >= len(everything)
    assert everything.isdisjoint(stage.on_disk())
    assert stage.queue.batches() == []


def test_a_table_made_again_under_the_name_of_a_dropped_one_keeps_its_own_files(stage: Stage) -> None:
    """H10: in the same folder, too."""
    stage.epoch({1: "old"})
    old = stage.needed()
    assert stage.queue.drop(stage.name)
    again = Stage(stage.catalog, stage.name)
    assert again.table.location == stage.table.location
    again.epoch({7: "new"})
    again.clock.ahead = 2 * GRACE
    again.clean()
    again.clean()
    assert old.isdisjoint(again.on_disk())
    assert again.needed() <= again.on_disk()
    again.read_all()


def test_a_drop_that_did_not_happen_deletes_nothing(stage: Stage) -> None:
    """It crashed after the queue was told."""
    stage.epoch({1: "a"})
    location = stage.committer.head(stage.name).base.metadata.metadataFileLocation()  # type: ignore[attr-defined]
    stage.queue.enqueue([row(stage, location, type=DeletionType.METADATA, why=Why.DROPPED)])
    stage.clock.ahead = 2 * GRACE
    assert stage.clean().dismissed == 1
    assert stage.queue.batches() == []
    stage.read_all()


def test_files_of_a_table_that_somebody_renamed_are_held(stage: Stage) -> None:
    """Nobody can be asked whether they are in use."""
    stage.epoch({1: "a"})
    needed = stage.needed()
    stage.queue.enqueue([row(stage, path) for path in sorted(needed)])
    Tables(stage.catalog).rename(stage.name, TableName(("shop",), "renamed"))
    stage.clock.ahead = 2 * GRACE
    done = stage.clean()
    assert (done.deleted, done.failed) == (0, len(needed))
    assert needed <= stage.on_disk()


class Away(Stubborn):
    """The catalog does not answer."""

    def standing(self, table: TableName) -> Any:
        raise CatalogUnavailable("away", hint="wait")


def test_a_catalog_that_is_away_costs_no_retry(stage: Stage) -> None:
    (path,) = stray(stage)
    stage.queue.enqueue([row(stage, path, stage.clock.now() - 2 * GRACE)])
    assert stage.clean(committer=Away(stage)).failed == 1
    (batch,) = stage.queue.batches()
    assert batch.rows[0].retry_count == 0
    assert stage.clean().deleted == 1


class Rescuing(Stubborn):
    """Before the second batch is asked for, somebody commits a file of it."""

    def __init__(self, stage: Stage, rescue: Any) -> None:
        super().__init__(stage)
        self._rescue, self._asked = rescue, 0

    def unreferenced(self, table: TableName, paths: Sequence[str]) -> Sequence[str]:
        self._asked += 1
        if self._asked == 2:
            self._rescue()
        return self._inner.unreferenced(table, paths)


def test_every_batch_is_asked_for_right_before_it_is_deleted(own: Catalog) -> None:
    """H46"""
    stage = Stage(own, TableName(("shop",), "orders"), batch_files=1)
    stage.epoch({1: "a"})
    files = [stage.write({key: "b"}, 100 + key) for key in (2, 3)]
    at = stage.clock.now() - 3 * GRACE
    stage.queue.enqueue([row(stage, file.path, at + number * GRACE / 2) for number, file in enumerate(files)])

    def rescue() -> None:
        folder = Path(files[1].path.removeprefix("file:")).parent
        stage.catalog.spark.sql(
            f"CALL {stage.catalog.settings.name}.system.add_files(table => '{stage.name}', "
            f"source_table => '`parquet`.`{folder}`')"
        )
        stage.rows[3] = "b"
        stage.diary[stage.head_id] = dict(stage.rows)

    done = stage.clean(committer=Rescuing(stage, rescue))
    assert (done.deleted, done.dismissed) == (1, 1)
    assert [exists(file.path) for file in files] == [False, True]
    stage.read_all()
