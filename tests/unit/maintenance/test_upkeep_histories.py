"""All actions of maintenance, epochs and foreign hands on one table, interleaved at every call, in thousands of orders:
nothing comes back, nothing is lost, no file that a kept snapshot needs goes, and of all garbage nothing stays.

A seed that fails tells its last steps; `run_seed(seed)` of `upkeep_world` runs it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from conversion_world import NAME
from upkeep_edges import Queue, WorldClock
from upkeep_table import UpkeepTable
from upkeep_world import UpkeepWorld, run_seed

from frazil.iceberg.system.queue_rows import QueuedDeletion
from frazil.maintenance.expire.planner import Expire, ExpireSettings
from frazil.maintenance.queue import DeletionWorker, QueueSettings
from frazil.model.ledger import SnapshotFacts

SEEDS = 2000
PARTS = 4
MET = (
    "came too late with an epoch",
    "compacted",
    "converted",
    "deleted",
    "died",
    "expired",
    "failed to delete",
    "followed deletes",
    "gave up a group",
    "merged manifests",
    "rolled back",
    "swept",
)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_happens_in_whatever_order_every_kept_snapshot_shows_what_it_must(part: int) -> None:
    """H3, H4, H15, H16, H17, H18, H19, H22, H23, H24, H46, H47"""
    met: Counter[str] = Counter()
    for seed in range(part, SEEDS, PARTS):
        met.update(run_seed(seed).met.keys())
    assert all(met[event] >= 5 for event in MET), f"the world has become too calm: {met}"


def test_files_of_an_expiry_that_the_queue_looked_at_too_early_are_not_forgotten() -> None:
    """Without a grace period, a worker may come between the queueing of the files and the expiry itself. Nobody sweeps
    files that somebody else wrote."""
    world = UpkeepWorld(0)
    world.calm = True
    for _ in range(2):
        world.table.append_rows([(1, 1)], None, None)
        world.table.rewrite(world.table.current, list(world.table.current.data))
    before = set(world.table.stored)
    queue, clock = Queue(), WorldClock(world.time, world.chance, lambda: None)
    worker = DeletionWorker(queue, world.storage, QueueSettings(grace=timedelta(0)), clock)

    class Slow(Queue):
        def enqueue(self, deletions: Sequence[QueuedDeletion]) -> None:
            queue.enqueue(deletions)
            assert worker.perform().deleted == 0

    settings = ExpireSettings(max_age=timedelta(0), max_snapshots=1)
    assert Expire(world.table, Slow(), settings, clock).perform(NAME).snapshots
    world.now += timedelta(hours=2)
    worker.perform()
    assert before - set(world.table.stored) >= {path for path in before if not path.startswith("table/")} - (
        world.table.needed()
    )
    assert not queue.held


TOTALS = (
    "total-records",
    "total-data-files",
    "total-delete-files",
    "total-position-deletes",
    "total-equality-deletes",
    "total-files-size",
)


@pytest.mark.parametrize("count", ["0", "1000000", "many"])
def test_what_summaries_count_changes_nothing_that_is_done(count: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """H35: deletes make the counts of a summary wrong, and other engines write what they like. Every action plans from
    the files of the table, so histories with and without counts are the same, step by step."""
    seeds = range(40)
    without = [run_seed(seed).told for seed in seeds]
    true_facts = UpkeepTable.facts

    def facts(self: UpkeepTable, number: int) -> SnapshotFacts:
        told = true_facts(self, number)
        return replace(told, summary={**dict.fromkeys(TOTALS, count), **told.summary})

    monkeypatch.setattr(UpkeepTable, "facts", facts)
    assert [run_seed(seed).told for seed in seeds] == without
