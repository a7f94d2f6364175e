"""Seeded random feeds: sparse tables, rows beyond every R, replays, restarts. Every R of every table equals the oracle.

A failing seed is the whole bug report: the feed of a seed is always the same.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import pytest
from feed_builders import Feed, Lab, at, delete, read_rows, table, upsert
from pyspark.sql import SparkSession

from frazil.ingest.write import window_writer as windows
from frazil.model.results import RunProgress
from frazil.sources.cockroachdb.position import Hlc

pytestmark = pytest.mark.spark

TOPICS = ("t", "u", "v", "w")
WINDOWS = 7


@dataclass
class RandomFeed:
    feed: Feed
    chance: random.Random
    log: list[tuple[str, Hlc, int, str | None]] = field(default_factory=list)
    resolved: list[Hlc] = field(default_factory=list)
    written: int = 0
    session: int = 0

    def window(self, number: int) -> None:
        """Some changes of some tables, in files named from the frontier; then R, somewhere in the past of them."""
        start = 100 * number
        active = [topic for topic in TOPICS if self.chance.random() < 0.5]
        for second in range(start + 1, start + 1 + self.chance.randint(0, 12)):
            topic = self.chance.choice(active or TOPICS[:1])
            value = None if self.chance.random() < 0.3 else f"{topic}{second}"
            self.log.append((topic, at(second * 5, self.chance.randint(0, 2)), self.chance.randint(0, 5), value))
        fresh, self.written = self.log[self.written :], len(self.log)
        if self.chance.random() < 0.4:
            self.session += 1
            newest = self.resolved[-1] if self.resolved else Hlc(0)
            fresh = [change for change in self.log if change[1] > newest]
        stale = self.chance.sample(self.log, len(self.log) // 8)
        for topic in TOPICS:
            lines = [line(*change[1:]) for change in [*fresh, *stale] if change[0] == topic]
            self.chance.shuffle(lines)
            if lines:
                stamp = self.resolved[-1].next() if self.resolved else at(0)
                self.feed.data(stamp, lines, topic=topic, session=f"{self.session:016x}", number=number)
        last = self.resolved[-1] if self.resolved else at(0)
        behind = [moment for _, moment, _, _ in self.log if moment > last]
        self.resolved.append(self.chance.choice(behind) if behind else last.next())
        self.feed.resolved(self.resolved[-1])

    def state(self, topic: str, resolved: Hlc) -> list[dict[str, object]]:
        rows: dict[int, str] = {}
        for name, moment, key, value in sorted(self.log, key=lambda change: change[1]):
            if name == topic and moment <= resolved:
                rows.pop(key, None)
                if value is not None:
                    rows[key] = value
        return [{"a": key, "b": rows[key]} for key in sorted(rows)]


def line(moment: Hlc, key: int, value: str | None) -> str:
    return delete([key], moment) if value is None else upsert([key], moment, a=key, b=value)


def follow(lab: Lab, windows: Iterator[int], feed: RandomFeed) -> None:
    """One daemon for all windows: the next is written when the one before is done."""
    stop = Event()

    def listen(progress: RunProgress) -> None:
        done = feed.resolved[-1].text
        if not progress.tables or progress.resolved == done or all(t.resolved == done for t in progress.tables):
            number = next(windows, None)
            if number is None:
                stop.set()
            else:
                feed.window(number)

    with lab.open() as pipeline:
        pipeline.run(stop=stop, on_progress=listen)


LAYOUTS = (
    {"deletes": "vectors", "format_version": 3},
    {"deletes": "vectors", "format_version": 2},
    {"deletes": "vectors", "format_version": 3, "partition": ["b"]},
    {"deletes": "vectors", "format_version": 2, "partition": ["truncate(2, b)", "bucket(3, a)"]},
    {"deletes": "equality", "format_version": 2},
    {"deletes": "equality", "format_version": 3, "partition": ["truncate(2, b)"], "sort": ["b desc"]},
)
"""Rows move between partitions whenever `b` changes (H1)."""


@pytest.mark.parametrize("seed", range(6))
def test_a_random_feed_equals_its_oracle_at_every_resolved_timestamp(
    spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    # Few bytes for a task mean that what is behind is divided, now and then down to single epochs.
    monkeypatch.setattr(windows, "TASK_BYTES", chance.choice([300, 1_000, windows.TASK_BYTES]))
    lab = Lab(spark, warehouse, namespace, tmp_path, tables=[])
    for name in TOPICS:
        layout = chance.choice(LAYOUTS)
        pinned = chance.random() < 0.5
        lab.tables.append(table(name, **layout) if pinned else table(name, key=["a"], columns={}, **layout))
    lab.settings = {"limits": {"epochs_per_job": chance.choice([1, 3, 16]), "epochs_in_flight": chance.choice([1, 3])}}
    feed = RandomFeed(lab.feed, chance)
    feed.window(0)
    if seed % 2:
        follow(lab, iter(range(1, WINDOWS)), feed)
    else:
        for number in range(1, WINDOWS):
            if chance.random() < 0.5:
                lab.run()
            feed.window(number)
    lab.run()
    with lab.open() as pipeline:
        for topic in TOPICS:
            for resolved in feed.resolved:
                snapshot = pipeline.snapshot_at(f"{namespace}.{topic}", resolved)
                found = [] if snapshot is None else read_rows(spark, lab.sql_name(topic), snapshot, order="a")
                rows = [{"a": row["a"], "b": row["b"]} for row in found]
                assert rows == feed.state(topic, resolved), (topic, resolved.text)
