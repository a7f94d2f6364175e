"""Small manifests are put together: no row, no row id and no ledger changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from compact_builders import Yard
from convert_builders import JOB

from frazil.clock import SystemClock
from frazil.lake.catalogs import Catalog
from frazil.lake.manifests import ManifestLake
from frazil.maintenance.manifests import ManifestSettings, MergeManifests
from frazil.model.commit import CommitAnswer, Conflicted, Unknown
from frazil.model.ledger import TableHead
from frazil.model.names import TableName

pytestmark = pytest.mark.spark
EAGER = ManifestSettings(min_manifests=2)


class InTheWay(ManifestLake):
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


def test_small_manifests_become_one(catalog: Catalog, yard: Yard) -> None:
    lake = ManifestLake(catalog)
    head = lake.head(yard.name)
    many = lake.manifests(yard.name, head)
    lineage = yard.lineage() if yard.lake.loaded(yard.name, head).format_version == 3 else {}
    frontier, tag = yard.frontier, head.tags[JOB.tag]
    action = MergeManifests(lake, SystemClock())
    plan = action.plan(yard.name, head, EAGER)
    assert plan is not None
    assert len(plan.manifests) == len(many) > 2
    done = action.perform(plan)
    after = lake.head(yard.name)
    (one,) = lake.manifests(yard.name, after)
    assert (done.snapshot_id, one.files) == (after.snapshot_id, sum(manifest.files for manifest in many))
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
    lake = InTheWay(catalog, yard, lost=False)
    action = MergeManifests(lake, SystemClock())
    plan = action.plan(yard.name, lake.head(yard.name), EAGER)
    assert plan is not None
    action.perform(plan)
    assert isinstance(lake.given[0], Conflicted)
    yard.check()
    assert len(lake.manifests(yard.name, lake.head(yard.name))) == 1


def test_a_commit_without_an_answer_is_found(catalog: Catalog, yard: Yard) -> None:
    lake = InTheWay(catalog, yard, lost=True)
    action = MergeManifests(lake, SystemClock())
    plan = action.plan(yard.name, lake.head(yard.name), EAGER)
    assert plan is not None
    done = action.perform(plan)
    assert done.snapshot_id == lake.head(yard.name).snapshot_id
    assert len(lake.given) == 1
    yard.check()
