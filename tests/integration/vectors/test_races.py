"""Others commit while an epoch looks for its older rows: nothing lives twice, nothing comes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from vector_builders import ME, Meddling, Stage

from frazil.clock import SystemClock
from frazil.commit.machine import LOOKUPS_LOST_MAX, Published
from frazil.data.deletes.deleted_rows import DeletedRows
from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.ingest.locate.locator import TableLocator
from frazil.model.commit import Conflicted, Refused
from frazil.model.files import FileKind
from frazil.model.ids import TableName

pytestmark = pytest.mark.spark


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def stage(request: pytest.FixtureRequest, catalog: Catalog, namespace: str, tmp_path: Path) -> Stage:
    made = Stage(
        catalog,
        TableName((namespace,), "raced"),
        tmp_path,
        format_version=request.param,
        properties={"write.delete.mode": "merge-on-read"},
    )
    made.epoch({n: f"{n}@0" for n in range(10)})
    made.epoch({1: "1@1"}, [2])
    return made


def acts(stage: Stage) -> dict[str, Callable[[], None]]:
    return {
        "a rewrite": stage.rewrite,
        "an append of the key": lambda: stage.append({3: "3@f"}),
        "a delete of the row": lambda: stage.delete(["3@0"]),
    }


@pytest.mark.parametrize("act", ["a rewrite", "an append of the key", "a delete of the row"])
def test_what_happens_between_lookup_and_commit_is_seen(stage: Stage, act: str) -> None:
    """H47: the commit's base is the lookup's head, so it is looked up again."""
    meddling = Meddling(stage.locator, [acts(stage)[act]])
    stage.epoch({3: "3@2", 4: "4@2"}, [5], meddling)
    assert len(meddling.answers) == 2
    stage.check()


@pytest.mark.parametrize("act", ["a rewrite", "an append of the key", "a delete of the row"])
def test_what_happened_before_the_lookup_is_seen(stage: Stage, act: str) -> None:
    acts(stage)[act]()
    stage.epoch({3: "3@2", 4: "4@2"}, [5])
    stage.check()


def test_a_key_that_others_doubled_lives_once_after_its_next_epoch(stage: Stage) -> None:
    stage.append({6: "6@f"})
    stage.append({6: "6@g"})
    assert sum(key == stage.kind.key(6) for key, _ in stage.rows.elements()) == 3
    stage.epoch({6: "6@2"})
    assert sum(key == stage.kind.key(6) for key, _ in stage.rows.elements()) == 1
    stage.check()


def test_after_three_lost_races_the_epoch_is_published_with_equality_deletes(stage: Stage) -> None:
    losses = [lambda n=n: stage.append({20 + n: f"{n}@f"}) for n in range(LOOKUPS_LOST_MAX)]
    meddling = Meddling(stage.locator, list(losses))
    outcome = stage.epoch({3: "3@2", 4: "4@2"}, [5], meddling)
    assert meddling.asked_by_equality == [False] * LOOKUPS_LOST_MAX + [True]
    stage.check(pyiceberg=False)
    assert isinstance(outcome, Published)
    entry = stage.committer.head(stage.name).newest(ME.job)
    assert entry is not None
    assert (entry.delete_files, entry.deletes, entry.rows) == (2, 3, 2)
    stage.epoch({3: "3@3"}, [4])
    stage.check(pyiceberg=False)
    stage.rewrite()
    stage.check()


def test_the_ledger_tells_what_was_committed_and_not_what_was_lost(stage: Stage) -> None:
    meddling = Meddling(stage.locator, [lambda: stage.append({3: "3@f"})])
    outcome = stage.epoch({3: "3@2"}, [], meddling)
    head = stage.committer.head(stage.name)
    entry = head.newest(ME.job)
    assert isinstance(outcome, Published)
    assert entry is not None
    assert [located.found for located in meddling.answers] == [1, 2]
    assert (entry.operation, entry.deletes, entry.data_files) == ("row_delta", 2, 1)
    assert head.ancestry[0].summary["frazil.deletes"] == "2"


def test_a_file_whose_rows_are_all_deleted_already_is_not_touched(stage: Stage) -> None:
    stage.epoch({}, [7])
    stage.epoch({}, [7, 8])
    before = stage.committer.live(stage.name, stage.committer.head(stage.name))
    located = stage.locator.locate(stage.write({}, [7, 8])[1], stage.committer.head(stage.name), by_equality=False)
    assert located.files == ()
    assert located.removed_deletes == ()
    assert before == stage.committer.live(stage.name, stage.committer.head(stage.name))


def test_a_commit_for_another_head_lands_nowhere(stage: Stage) -> None:
    """H47: even if the machine were wrong, the lake is not."""
    stale = stage.committer.head(stage.name)
    epoch, files = stage.write({3: "3@2"}, [])
    located = stage.locator.locate(files, stale, by_equality=False)
    stage.append({3: "3@f"})
    epoch_commit = stage.epoch_commit(epoch, located.files)
    assert isinstance(stage.committer.commit(stage.name, stale, epoch_commit.plan), Conflicted)
    stage.check()


def test_deletes_of_the_wrong_kind_are_refused(catalog: Catalog, namespace: str, tmp_path: Path) -> None:
    """Version 3 takes vectors alone, version 2 position delete files alone; nothing was sent, and that is proven."""
    stages = {
        version: Stage(catalog, TableName((namespace,), f"v{version}"), tmp_path, format_version=version)
        for version in (2, 3)
    }
    for version, stage in stages.items():
        stage.epoch({1: "1@0"})
        head = stage.committer.head(stage.name)
        epoch, files = stage.write({1: "1@1"})
        mistaken = replace(stage.locator.table, format_version=5 - version)
        locator = TableLocator(mistaken, stage.committer, stage.cache, DeletedRows(), SystemClock())
        wrong = locator.locate(files, head, by_equality=False)
        assert any(file.kind is FileKind.POSITION_DELETE for file in wrong.files)
        answer = stage.committer.commit(stage.name, head, stage.epoch_commit(epoch, wrong.files).plan)
        assert isinstance(answer, Refused), answer
        stage.check()
