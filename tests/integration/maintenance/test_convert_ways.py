"""Rows that equality deletes delete are found in memory or by a join that spills, in as few tasks as told: always the
same ones."""

from __future__ import annotations

import pytest
from convert_builders import Ground

from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.ingest.write.write_job import run_on_executors, running_task
from frazil.maintenance.convert import small as converting_small
from frazil.maintenance.convert.runner import Convert
from frazil.maintenance.convert.tasks import SparkConverting
from frazil.model.ids import TableName
from frazil.sources.base import InputPartition

pytestmark = pytest.mark.spark

WAYS = {
    "in memory": (True, None),
    "in one task": (True, 1),
    "by a join": (False, None),
    "by a join, one task": (False, 1),
}


@pytest.fixture
def name(namespace: str) -> TableName:
    return TableName((namespace,), "orders")


def scenario(ground: Ground) -> None:
    """Several sets of key columns, NULLs, several files and partitions, keys deleted and inserted again."""
    ground.append([(1, "a", 1), (2, None, 1), (3, "a", None), (4, None, None), (5, "b", 5), (6, "c", 2)])
    ground.delete_by(["name"], [(None,)])
    ground.append([(7, None, 7), (8, "b", 8), (5, "again", 5)])
    ground.delete_by(["part", "name"], [(None, "a"), (1, "b")])
    ground.delete_by(["id"], [(5,), (99,), (5,)])
    ground.append([(5, "once more", 5), (10, "j", 1)])
    ground.delete_by(["id"], [(10,)])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("version", "partition"), [(2, ()), (2, ("part",)), (3, ("part",))], ids=str)
def test_every_way_finds_the_same_rows(
    catalog: Catalog,
    name: TableName,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    version: int,
    partition: tuple[str, ...],
) -> None:
    in_memory, tasks = WAYS[way]
    if not in_memory:
        monkeypatch.setattr(converting_small, "FILE_BYTES_MAX", -1)
    ground = Ground(catalog, name, version=version, partition=list(partition))
    scenario(ground)
    before = ground.seen_by_spark()
    assert sorted(row[0] for row in before) == [1, 5, 6, 7, 8]
    plan = ground.plan()
    assert plan is not None
    made = Convert(ground.committer, SparkConverting(ground.spark, ground.clock, tasks=tasks), ground.clock)
    assert made.perform(plan).rows == 6
    ground.check_converted(before)


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
