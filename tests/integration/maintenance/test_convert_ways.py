"""Rows that equality deletes delete are found by the key index or by a join, in as few tasks as told: always the same
ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from convert_builders import Ground

from frazil.data.keys.index_cache import process_cache
from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.ingest.locate.locators import LocatorSettings
from frazil.ingest.write.write_job import run_on_executors, running_task
from frazil.maintenance.convert.runner import Convert
from frazil.maintenance.convert.tasks import SparkConverting
from frazil.model.ids import TableName
from frazil.sources.base import InputPartition

pytestmark = pytest.mark.spark

WAYS = {
    "by the index": (True, None),
    "by the index, one task": (True, 1),
    "by a join": (False, None),
    "by a join, one task": (False, 1),
}


@pytest.fixture
def name(namespace: str) -> TableName:
    return TableName((namespace,), "orders")


def scenario(ground: Ground, text: str | None = None, number: int | None = None) -> None:
    """Several sets of key columns, NULLs unless told what else, several files and partitions, keys deleted and inserted
    again."""
    ground.append([(1, "a", 1), (2, text, 1), (3, "a", number), (4, text, number), (5, "b", 5), (6, "c", 2)])
    ground.delete_by(["name"], [(text,)])
    ground.append([(7, text, 7), (8, "b", 8), (5, "again", 5)])
    ground.delete_by(["part", "name"], [(number, "a"), (1, "b")])
    ground.delete_by(["id"], [(5,), (99,), (5,)])
    ground.append([(5, "once more", 5), (10, "j", 1)])
    ground.delete_by(["id"], [(10,)])


@pytest.mark.parametrize("nulls", [False, True], ids=["whole keys", "keys with a NULL"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("version", "partition"), [(2, ()), (2, ("part",)), (3, ("part",))], ids=str)
def test_every_way_finds_the_same_rows(
    catalog: Catalog,
    name: TableName,
    tmp_path: Path,
    way: str,
    nulls: bool,
    version: int,
    partition: tuple[str, ...],
) -> None:
    indexed, tasks = WAYS[way]
    index = LocatorSettings(directory=tmp_path / "index", size=1 << 28)
    ground = Ground(catalog, name, version=version, partition=list(partition))
    scenario(ground) if nulls else scenario(ground, "none", 0)
    before = ground.seen_by_spark()
    assert sorted(row[0] for row in before) == [1, 5, 6, 7, 8]
    plan = ground.plan()
    assert plan is not None
    converting = SparkConverting(ground.spark, ground.clock, index if indexed else None, tasks=tasks)
    assert Convert(ground.committer, converting, ground.clock).perform(plan).rows == 6
    ground.check_converted(before)
    assert bool(process_cache(index.directory, index.size).stats().entries) == (indexed and not nulls)


def test_no_more_tasks_run_at_once_than_told(catalog: Catalog, name: TableName) -> None:
    ground = Ground(catalog, name)
    scenario(ground)
    plan = ground.plan()
    assert plan is not None
    bounded = SparkConverting(ground.spark, ground.clock, tasks=1)
    assert bounded.matches(plan.search(ground.clock.new_uuid())).rdd.getNumPartitions() == 1
    partitions = [InputPartition(0, str(number), "", 1) for number in range(8)]

    def place(partition: InputPartition) -> int:
        return running_task()[0]

    assert set(run_on_executors(ground.spark, place, partitions, 1)) == {0}
    assert len(set(run_on_executors(ground.spark, place, partitions, 3))) == 3
    assert len(set(run_on_executors(ground.spark, place, partitions))) > 1
