"""A first load that is killed again and again reads every document once, without a server: a list stands for one."""

from __future__ import annotations

import bisect
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.model.change import PartitionReport
from frazil.model.frontier import Frontier
from frazil.sources.mongodb.decode.document_ids import bound_of
from frazil.sources.mongodb.load import ranges
from frazil.sources.mongodb.load.progress import Beginning, Loads, resumed
from frazil.sources.mongodb.load.ranges import Load, in_steps, plan_ranges
from frazil.sources.mongodb.position import ClusterTime

ORDERS, TIME = "shop.orders", ClusterTime.of(1_700_000_000, 3).time


class Documents:
    """As much of a collection as the planning of ranges asks for. Its ids are the numbers below `count`."""

    name = "orders"

    def __init__(self, count: int) -> None:
        self.ids = list(range(count))
        self.database = self

    def list_collection_names(self, **_: Any) -> list[str]:
        return [self.name]

    def aggregate(self, pipeline: Sequence[dict[str, Any]], **_: Any) -> list[dict[str, Any]]:
        if "$collStats" in pipeline[0]:
            return [{"storageStats": {"count": len(self.ids), "size": 100 * len(self.ids)}}]
        start = next((stage["$match"]["$expr"]["$gt"][1]["$literal"] for stage in pipeline if "$match" in stage), -1)
        return [{"_id": value} for value in self.ids if value > start]

    def between(self, lower: str | None, upper: str | None) -> list[int]:
        low = 0 if lower is None else bisect.bisect_left(self.ids, bound_of(lower))
        return self.ids[low : len(self.ids) if upper is None else bisect.bisect_left(self.ids, bound_of(upper))]


def run(documents: Documents, frontier: Frontier | None, steps: int) -> tuple[list[int], Frontier]:
    """What one process reads in so many steps of the load, and what the ledger says when it is killed."""
    noted = {} if frontier is None else json.loads(frontier.notes)
    position = None if frontier is None else frontier.position
    assert position is None or isinstance(position, ClusterTime)
    at = Beginning(TIME) if position is None else resumed(position, noted)
    assert at is not None
    collection: Any = documents
    load = Load(at.time, at.done, in_steps(plan_ranges(collection, at.start)), at.start)
    loads = Loads()
    loads.begin(ORDERS, load, rows=at.rows, total=len(documents.ids))
    read: list[int] = []
    for step in range(load.done + 1, min(load.done + steps, load.last) + 1):
        upper = load.position(step)
        reports = []
        for partition in loads.partitions(ORDERS, 0, frontier, upper):
            facts = json.loads(partition.facts)
            found = documents.between(facts["lower"], facts["upper"])
            read += found
            reports.append(PartitionReport(0, partition.name, len(found), 0, None))
        frontier = Frontier(upper, json.dumps(loads.noted(ORDERS, upper, reports)))
    assert frontier is not None
    return read, frontier


@given(st.integers(1, 60), st.integers(1, 3), st.lists(st.integers(1, 3), max_size=12))
def test_a_load_that_is_killed_goes_on_behind_what_is_published(count: int, per_step: int, lives: list[int]) -> None:
    """H48: nothing is read again, nothing is left out, and the count that is noted is the count of what was read."""
    documents, read, frontier = Documents(count), [], None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "RANGE_BYTES", 500)
        patch.setattr(ranges, "SAMPLES_PER_RANGE", 1)
        patch.setattr(ranges, "RANGES_PER_STEP", per_step)
        for steps in [*lives, 1_000]:
            found, frontier = run(documents, frontier, steps)
            read += found
            assert json.loads(frontier.notes)["rows"] == len(read)
            if json.loads(frontier.notes).get("load") is None:
                break
    assert read == documents.ids
