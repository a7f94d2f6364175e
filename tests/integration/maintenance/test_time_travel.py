"""Somebody reads old snapshots all the time, while epochs are published, snapshots expire and their files are deleted.

reader   picks a snapshot that is there --> opens it --> others expire it, delete its files --> reads it
grace    longer than a read takes: it reads what it opened, always
         none: a read may fail, but only of a snapshot that is gone by then
"""

from __future__ import annotations

import random
from datetime import timedelta
from threading import Event, Thread

import pytest
from retention_builders import GRACE, Stage

from frazil.maintenance.queue import DeletionWorker, QueueSettings

pytestmark = pytest.mark.spark

ROUND = GRACE / 5
"""By the clock of maintenance; a read takes less than two of them."""


class Reader:
    """Opens a snapshot, waits until others were at work, reads it to its end; again and again."""

    def __init__(self, stage: Stage, turn: Event) -> None:
        self.reads, self.late = 0, 0
        self.wrong: list[str] = []
        self._stage, self._turn = stage, turn
        self._stop = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._turn.set()
        self._thread.join(120)

    def _run(self) -> None:
        chance = random.Random(3)
        while not self._stop.is_set():
            known = sorted(self._stage.left() & self._stage.diary.keys())
            if known:
                self._read(chance.choice(known[:2] if chance.random() < 0.7 else known))

    def _read(self, snapshot_id: int) -> None:
        expected, opened = self._stage.diary[snapshot_id], False
        try:
            table = self._stage.catalog.spark.read.option("versionAsOf", str(snapshot_id)).table(self._stage.sql)
            opened = True
            self._turn.clear()
            self._turn.wait(5)
            found = {row.id: row.name for row in table.collect()}
        except Exception as error:
            if snapshot_id in self._stage.left():
                self.wrong.append(f"snapshot {snapshot_id} is there and could not be read: {error}")
            self.late += opened
            return
        self.reads += 1
        if found != expected:
            self.wrong.append(f"snapshot {snapshot_id} shows {found}, expected {expected}")


def busy(stage: Stage, turn: Event, grace: timedelta, rounds: int) -> int:
    """Epochs, deletes and rewrites by others, expiry, sweep and deletion. Returns how many files were deleted."""
    deleted = 0
    for number in range(rounds):
        stage.epoch({number: f"round {number}", 100 + number: "more"})
        if number % 3 == 2:
            stage.delete(number)
        if number % 5 == 4:
            stage.rewrite()
        stage.expire(max_age=timedelta(0), max_snapshots=3)
        stage.sweep()
        worker = DeletionWorker(stage.queue, stage.files, QueueSettings(grace=grace), stage.clock)
        deleted += worker.perform().deleted
        stage.clock.ahead += ROUND
        turn.set()
    return deleted


@pytest.mark.parametrize(("grace", "rounds"), [(GRACE, 10), (timedelta(0), 6)], ids=["grace", "none"])
def test_a_reader_reads_what_it_has_opened_as_long_as_the_grace_period_lasts(
    stage: Stage, grace: timedelta, rounds: int
) -> None:
    """H46: without a grace period it may be too late, and even then only for a snapshot that has expired."""
    stage.epoch({1000: "first"})
    turn = Event()
    with Reader(stage, turn) as reader:
        deleted = busy(stage, turn, grace, rounds)
    assert not reader.wrong, reader.wrong[0]
    assert deleted
    if grace:
        assert reader.reads
        assert not reader.late, "it had opened the snapshot when its files were still due to stay"
    stage.read_all()
