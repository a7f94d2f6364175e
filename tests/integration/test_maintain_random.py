"""Epochs, maintenance and foreign hands in random order: whatever was done, every snapshot shows what it must.

a model (key -> text)  --step by step-->  the table, read now and at every moment that is still kept
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from feed_builders import Lab, at, delete, read_rows, table, upsert
from pyspark.sql import SparkSession

from frazil.daemon.maintaining import Maintenance
from frazil.maintenance.orphans import QUIET
from frazil.model.names import TableName

pytestmark = pytest.mark.spark

STEPS = 15
SEEDS = range(1, 11)
KEYS = 40
Rows = dict[int, str]
Changes = dict[int, str | None]
"""What an epoch makes of keys; None deletes."""


class World:
    """One table, and what it must hold."""

    def __init__(self, lab: Lab, chance: random.Random) -> None:
        self.lab, self.chance = lab, chance
        self.rows: Rows = {}
        self.epochs: list[Changes] = []
        self.seen: dict[int, tuple[Rows, int]] = {}

    def epoch(self) -> None:
        """By vectors or by equality deletes, in either order."""
        self.lab.tables = [table("t", deletes=self.chance.choice(["vectors", "equality"]))]
        moment = 2 * len(self.epochs) + 2
        now, lines = at(moment), []
        changes: Changes = {}
        for key in self.chance.sample(range(KEYS), 8):
            if self.chance.random() < 0.3:
                changes[key] = None
                lines.append(delete([key], now))
            else:
                changes[key] = f"{key} at {moment}"
                lines.append(upsert([key], now, a=key, b=changes[key]))
        self.epochs.append(changes)
        self._apply(changes)
        self.lab.feed.data(now, lines)
        self.lab.feed.resolved(at(moment + 1))
        self.lab.run()

    def _apply(self, changes: Changes) -> None:
        for key, text in changes.items():
            if text is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = text

    def roll_back(self) -> None:
        """To an epoch that is still kept; the pipeline then publishes once more what came after it. Of another snapshot
        nobody could tell which epochs it holds, once the one before it has expired."""
        past = self.lab.spark.sql(
            f"SELECT snapshot_id FROM {self.name}.history JOIN {self.name}.snapshots USING (snapshot_id) "
            "WHERE is_current_ancestor AND summary['frazil.job-id'] IS NOT NULL ORDER BY made_current_at"
        ).collect()
        kept = [row.snapshot_id for row in past if row.snapshot_id in self.seen]
        if len(kept) < 2:
            return
        chosen = self.chance.choice(kept[:-1])
        self.lab.spark.sql(f"CALL frazil.system.rollback_to_snapshot('{self.lab.namespace}.t', {chosen})")
        rows, published = self.seen[chosen]
        self.rows = dict(rows)
        for changes in self.epochs[published:]:
            self._apply(changes)
        with self.lab.open() as pipeline:
            pipeline.rewind(f"{self.lab.namespace}.t")
        self.lab.run()

    def foreign_append(self) -> None:
        key = KEYS + self.chance.randrange(1000)
        if key not in self.rows:
            self.rows[key] = "foreign"
            self.lab.spark.sql(f"INSERT INTO {self.name} VALUES ({key}, 'foreign')")

    def foreign_delete(self) -> None:
        if self.rows:
            key = self.chance.choice(sorted(self.rows))
            del self.rows[key]
            self.lab.spark.sql(f"DELETE FROM {self.name} WHERE a = {key}")

    def foreign_rewrite(self) -> None:
        self.lab.spark.sql(
            f"CALL frazil.system.rewrite_data_files(table => '{self.lab.namespace}.t', "
            "options => map('rewrite-all', 'true'))"
        )

    def maintain(self) -> None:
        """One action or all of them, when nothing has been under way for hours."""
        then = time.time() - 2 * QUIET.total_seconds()
        for path in (self.lab.warehouse / self.lab.namespace).rglob("*"):
            if path.is_file():
                os.utime(path, (then, then))
        with self.lab.open() as pipeline:
            maintenance = Maintenance(pipeline.config, pipeline.assembled.places, pipeline.spark, pipeline.clock)
            only = self.chance.choice(["convert", "compact", "expire", "sweep", "all"])
            target = TableName((self.lab.namespace,), "t")
            if only != "all":
                bench = maintenance._bench(pipeline.assembled.places.of(target))
                bench.actions = {only: bench.actions[only]}
            found = list(maintenance.run([target], dry=False))
        assert not [step.error for step in found if step.error]

    @property
    def name(self) -> str:
        return self.lab.sql_name("t")

    def check(self) -> None:
        self.lab.spark.catalog.clearCache()
        kept = {
            row.snapshot_id for row in self.lab.spark.sql(f"SELECT snapshot_id FROM {self.name}.snapshots").collect()
        }
        head = self.lab.spark.sql(f"SELECT snapshot_id FROM {self.name}.refs WHERE name = 'main'").first()
        assert head is not None
        self.seen[head.snapshot_id] = dict(self.rows), len(self.epochs)
        for snapshot, (rows, _) in self.seen.items():
            if snapshot in kept:
                found = read_rows(self.lab.spark, self.name, snapshot)
                assert {row["a"]: row["b"] for row in found} == rows, f"snapshot {snapshot} shows something else"
                assert len(found) == len(rows), "a key is there twice"


@pytest.mark.parametrize("seed", SEEDS)
def test_every_snapshot_shows_what_it_must_whatever_was_done(
    spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path, seed: int
) -> None:
    """H15, H16, H17, H46, H47: nothing comes back, nothing is lost, no file of a kept snapshot goes."""
    lab = Lab(
        spark,
        warehouse,
        namespace,
        tmp_path,
        settings={
            "maintenance": {
                "compact": {"min_input_files": 2},
                "expire": {"max_age": "0s", "min_snapshots": 3, "min_epochs": 1, "max_snapshots": 4},
                "orphans": {"older_than": "0s"},
                "queue": {"grace": "0s"},
            }
        },
    )
    chance = random.Random(seed)
    world = World(lab, chance)
    world.epoch()
    steps: list[Callable[[], None]] = [
        world.epoch,
        world.epoch,
        world.maintain,
        world.maintain,
        world.foreign_append,
        world.foreign_delete,
        world.foreign_rewrite,
        world.roll_back,
    ]
    for _ in range(STEPS):
        chance.choice(steps)()
        world.check()
