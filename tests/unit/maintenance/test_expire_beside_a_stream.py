"""Snapshots are expired while epochs come faster than their files can be found (H16)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from threading import Event
from uuid import UUID

from unit.maintenance.test_expire_plan import SHOP, World

from frazil.iceberg.commits.snapshots import Expiry, TableSnapshots
from frazil.iceberg.system.queue_rows import QueuedDeletion
from frazil.maintenance.commit_rewrite import LOSSES_BEFORE_A_TURN
from frazil.maintenance.expire.planner import Expire, ExpireSettings
from frazil.model.commit import Accepted, CommitAnswer, Conflicted
from frazil.model.ids import TableName

ORDERS = TableName(("shop",), "orders")
SETTINGS = ExpireSettings(max_age=timedelta(days=999), max_snapshots=3, min_snapshots=1)


class Busy:
    """A table to which an epoch is committed before every commit of ours, unless the pipeline waits."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.waits = False
        self.searched: list[frozenset[int]] = []
        self.queued: list[str] = []

    @contextmanager
    def turn(self) -> Iterator[None]:
        self.waits = True
        yield
        self.waits = False

    def snapshots(self, table: TableName) -> TableSnapshots:
        return self.world.table

    def freed(self, table: TableName, seen: TableSnapshots, removed: frozenset[int]) -> Sequence[str]:
        self.searched.append(removed)
        return [f"only-in-{snapshot_id}" for snapshot_id in removed]

    def expire(self, table: TableName, seen: TableSnapshots, expiry: Expiry) -> CommitAnswer:
        if not self.waits:
            self.world.commit(SHOP)
        if seen is not self.world.table:
            return Conflicted("an epoch was faster")
        self.world.apply(expiry)
        return Accepted(1)

    def enqueue(self, deletions: Sequence[QueuedDeletion]) -> None:
        self.queued += [deletion.path for deletion in deletions]


class WorldClock:
    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> datetime:
        return self._world.now

    def monotonic(self) -> float:
        return 0.0

    def wait(self, seconds: float, until: Event | None = None) -> bool:
        return False

    def new_uuid(self) -> UUID:
        return UUID(int=1)

    def jitter(self) -> float:
        return 0.0


def test_files_are_searched_once_and_exactly_those_snapshots_go_whose_files_are_queued() -> None:
    world = World()
    ids = [world.commit(SHOP) for _ in range(10)]
    busy = Busy(world)
    done = Expire(busy, busy, SETTINGS, WorldClock(world), busy.turn).perform(ORDERS)
    gone = frozenset(ids[:7])
    assert busy.searched == [gone], "what an epoch adds frees no file"
    assert sorted(busy.queued) == sorted(f"only-in-{snapshot_id}" for snapshot_id in gone)
    assert (done.snapshots, done.files_queued) == (7, 7)
    left = set(world.table.snapshots)
    assert not left & gone
    assert left == set(range(1, world.number + 1)) - gone
    assert world.number == 10 + LOSSES_BEFORE_A_TURN


def test_what_must_stay_meanwhile_is_not_among_those_that_go() -> None:
    """Somebody tags one of them between look and commit: they are chosen, and their files searched, anew."""
    world = World()
    ids = [world.commit(SHOP) for _ in range(10)]
    busy = Busy(world)
    tagging = iter([True])
    search = busy.freed

    def freed(table: TableName, seen: TableSnapshots, removed: frozenset[int]) -> Sequence[str]:
        found = search(table, seen, removed)
        if next(tagging, False):
            world.name("audit", ids[2])
        return found

    busy.freed = freed  # type: ignore[method-assign]
    Expire(busy, busy, SETTINGS, WorldClock(world), busy.turn).perform(ORDERS)
    assert ids[2] in world.table.snapshots
    assert len(busy.searched) == 2
    assert ids[2] not in busy.searched[1]
    assert world.table.snapshots.keys().isdisjoint(busy.searched[1])
