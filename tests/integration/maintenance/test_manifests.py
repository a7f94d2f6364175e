"""Small manifests are put together: no row, no row id and no ledger changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from compact_builders import Yard
from convert_builders import JOB
from retention_builders import Clock

from frazil.clock import SystemClock
from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.commits import transaction as publish
from frazil.iceberg.system.deletion_queue import IcebergDeletionQueue
from frazil.iceberg.tables.manifests import ManifestCommitter
from frazil.iceberg.tables.storage_files import TableFiles
from frazil.maintenance.orphans import Sweep
from frazil.maintenance.rewrite_manifests import ManifestSettings, MergeManifests
from frazil.model.commit import CommitAnswer, Conflicted, Unknown
from frazil.model.ids import TableName
from frazil.model.ledger import TableHead

pytestmark = pytest.mark.spark
EAGER = ManifestSettings(min_manifests=2)


class InTheWay(ManifestCommitter):
    """Something happens right before the commit is sent, or its answer is lost."""

    def __init__(self, catalog: Catalog, yard: Yard, lost: bool) -> None:
        super().__init__(catalog)
        self._yard, self._lost = yard, lost
        self.given: list[CommitAnswer] = []

    def merge_manifests(
        self, table: TableName, head: TableHead, paths: Sequence[str], summary: Mapping[str, str]
    ) -> CommitAnswer:
        if not self.given and not self._lost:
            self._yard.epoch({3: "3@meanwhile"}, [4])
        self.given.append(super().merge_manifests(table, head, paths, summary))
        return Unknown("the line went dead") if self._lost else self.given[-1]


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def yard(request: pytest.FixtureRequest, catalog: Catalog, namespace: str, tmp_path: Path) -> Yard:
    made = Yard(
        catalog, TableName((namespace,), "orders"), tmp_path, version=request.param, partition=("bucket(2, id)",)
    )
    for number in range(5):
        made.epoch({n: f"{n}@{number}" for n in range(number, 30, number + 1)}, [number])
    return made


def entries(yard: Yard) -> list[str]:
    """Every live entry, with all that a reader or a later commit goes by."""
    columns = "snapshot_id, sequence_number, file_sequence_number, data_file"
    found = yard.spark.sql(f"SELECT {columns} FROM {yard.sql}.entries WHERE status < 2").collect()
    return sorted(repr(row) for row in found)


def merged(catalog: Catalog, yard: Yard) -> None:
    action = MergeManifests(ManifestCommitter(catalog), SystemClock())
    plan = action.plan(yard.name, yard.committer.head(yard.name), EAGER)
    assert plan is not None
    action.perform(plan)


def test_small_manifests_become_one_of_each_kind(catalog: Catalog, yard: Yard) -> None:
    committer = ManifestCommitter(catalog)
    head = committer.head(yard.name)
    many = committer.manifests(yard.name, head)
    lineage = yard.lineage() if yard.committer.loaded(yard.name, head).format_version == 3 else {}
    frontier, tag = yard.frontier, head.tags[JOB.tag]
    action = MergeManifests(committer, SystemClock())
    plan = action.plan(yard.name, head, EAGER)
    assert plan is not None
    # One whose vectors were all replaced by the last epoch's is left to the next commit.
    assert len(plan.manifests) == sum(manifest.files > 0 for manifest in many) > 2
    assert {manifest.deletes for manifest in plan.manifests} == {False, True}
    before = entries(yard)
    done = action.perform(plan)
    after = committer.head(yard.name)
    data, deletes = [one for one in committer.manifests(yard.name, after) if one.files]
    assert (data.deletes, deletes.deletes, done.snapshot_id) == (False, True, after.snapshot_id)
    assert data.files == sum(manifest.files for manifest in many if not manifest.deletes)
    assert deletes.files == sum(manifest.files for manifest in many if manifest.deletes)
    assert entries(yard) == before
    assert (yard.frontier, after.tags[JOB.tag]) == (frontier, tag)
    assert after.ancestry[0].summary["operation"] == "replace"
    yard.check()
    assert not lineage or yard.lineage() == lineage
    assert action.plan(yard.name, after, EAGER) is None
    yard.epoch({1: "1@later"}, [2])
    yard.compact()
    yard.check()


def test_an_epoch_meanwhile_makes_it_look_again(catalog: Catalog, yard: Yard) -> None:
    """H47"""
    committer = InTheWay(catalog, yard, lost=False)
    action = MergeManifests(committer, SystemClock())
    plan = action.plan(yard.name, committer.head(yard.name), EAGER)
    assert plan is not None
    action.perform(plan)
    assert isinstance(committer.given[0], Conflicted)
    yard.check()
    left = [one.deletes for one in committer.manifests(yard.name, committer.head(yard.name)) if one.files]
    assert left == [False, True]


def test_a_commit_without_an_answer_is_found(catalog: Catalog, yard: Yard) -> None:
    committer = InTheWay(catalog, yard, lost=True)
    action = MergeManifests(committer, SystemClock())
    plan = action.plan(yard.name, committer.head(yard.name), EAGER)
    assert plan is not None
    done = action.perform(plan)
    assert done.snapshot_id == committer.head(yard.name).snapshot_id
    assert len(committer.given) == 1
    yard.check()


def test_equality_deletes_reach_what_they_reached(catalog: Catalog, yard: Yard) -> None:
    """H15: an entry that is moved keeps its sequence number. Global ones have a spec of their own, so do partitions."""
    for number in (6, 8):
        yard.delete_by(["id"], [(number,), (number + 1,)])
        yard.epoch({number: f"{number}@again"})
        del yard.rows[number + 1]
    part = next(file.partition for file in yard.live.files)
    spec = yard.tables.load(yard.name).spec.spec_id
    yard.delete_by(["id"], [(500,)], part, spec)
    yard.delete_by(["id"], [(501,)], part, spec)
    yard.check()
    before = entries(yard)
    merged(catalog, yard)
    assert entries(yard) == before
    committer = ManifestCommitter(catalog)
    left = [one for one in committer.manifests(yard.name, committer.head(yard.name)) if one.files and one.deletes]
    assert len(left) == len({one.spec_id for one in left}) == 2
    yard.check()
    yard.epoch({7: "7@last"})
    yard.convert()
    yard.check()


def test_entries_of_snapshots_that_are_gone_keep_their_numbers(catalog: Catalog, yard: Yard) -> None:
    settings = "older_than => TIMESTAMP '2100-01-01', retain_last => 1"
    yard.run(f"CALL {{catalog}}.system.expire_snapshots(table => '{{name}}', {settings})")
    assert len(yard.committer.head(yard.name).ancestry) == 1
    before = entries(yard)
    merged(catalog, yard)
    assert entries(yard) == before
    yard.check()


def test_manifests_of_deletes_alone_are_merged(catalog: Catalog, yard: Yard) -> None:
    merged(catalog, yard)
    yard.delete_by(["id"], [(500,)])
    yard.delete_by(["id"], [(501,)])
    committer = ManifestCommitter(catalog)
    before, listed = (
        entries(yard),
        [one for one in committer.manifests(yard.name, committer.head(yard.name)) if one.files],
    )
    merged(catalog, yard)
    after = [one for one in committer.manifests(yard.name, committer.head(yard.name)) if one.files]
    assert entries(yard) == before
    assert [one for one in after if not one.deletes] == [one for one in listed if not one.deletes]
    assert len(after) < len(listed)
    yard.check()


def test_manifests_of_a_commit_that_did_not_land_are_swept(
    own: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H19, H47: an epoch lands after the commit was staged, and before it is sent."""
    yard = Yard(own, TableName(("shop",), "orders"), tmp_path)
    for number in range(4):
        yard.epoch({n: f"{n}@{number}" for n in range(number, 30, number + 1)}, [number])
    acts = [lambda: yard.epoch({3: "3@meanwhile"}, [4])]
    send = publish.send

    def sent_late(*arguments: Any) -> None:
        if acts:
            acts.pop()()
        send(*arguments)

    monkeypatch.setattr(publish, "send", sent_late)
    merged(own, yard)
    clock = Clock()
    queue = IcebergDeletionQueue(own, clock)
    clock.ahead = timedelta(days=5)
    _, found = Sweep(TableFiles(own, queue.name), queue, timedelta(days=1), clock).plan(yard.name)
    assert any("/optimized-m-" in file.path for file in found)
    for file in found:
        Path(file.path.removeprefix("file:")).unlink()
    assert {row[0]: row[1] for row in yard.seen_by_spark()} == yard.rows
