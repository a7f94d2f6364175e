"""A daemon that maintains its table while upserts come, watched by a reader that travels in time.

    writer   epoch after epoch: updates, inserts, deletes; the next one when the last is published --> seconds of each
    daemon   publishes, and maintains as configured
    reader   any snapshot there is --> must hold what the model held at its position, whoever made it
    keeper   files, manifests, snapshots, bytes of metadata, now and then
    at rest  until nothing is left to maintain --> the table must be the model, row by row

`bench.soak` runs it for long and measures; among the tests a small form of it runs that only asserts.
"""

from __future__ import annotations

import logging
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
from pyspark.sql import Row, SparkSession

from bench.feeds import COLUMNS, Feed, lines
from frazil.app.pipeline import Pipeline
from frazil.config.pipeline_config import PipelineConfig
from frazil.iceberg.jvm.errors import JAVA_ERRORS
from frazil.model.results import RunProgress
from frazil.sources.cockroachdb.position import Hlc

NAMESPACE = "soak"
_ABSENT = -1
_PATIENCE_SECONDS = 600.0
Answer = tuple[int, Decimal | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    """`changes` an epoch, of which `delete_share` are deletes, into a table of about `rows`. `observations` are made in
    equal distances. `pause` between two epochs; every `rest_every` epochs it is as long as it takes maintenance to make
    the table what `rested` asks for."""

    name: str
    mode: str = "vectors"
    format_version: int = 3
    epochs: int = 40
    rows: int = 1_000
    changes: int = 100
    delete_share: float = 0.1
    seed: int = 1
    pause: float = 0.0
    rest_every: int | None = None
    rested: Callable[[Observed], bool] = lambda _: True
    observations: int = 20
    maintenance: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observed:
    """A table at one moment."""

    epoch: int
    data_files: int
    delete_files: int
    manifests: int
    snapshots: int
    metadata_bytes: int


@dataclass
class Soaked:
    """What came of it. `took` are seconds from resolved to published, `failures` what readers met, `problems` what
    maintenance did."""

    soak: Soak
    took: list[float] = field(default_factory=list)
    observed: list[Observed] = field(default_factory=list)
    reads: int = 0
    failures: list[str] = field(default_factory=list)
    maintenance: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    finished: bool = False
    settled_after: float = 0.0
    answer: Answer = (0, None)

    @property
    def at_rest(self) -> Observed:
        return self.observed[-1]

    def most(self, of: Callable[[Observed], int]) -> int:
        return max(map(of, self.observed))

    @property
    def maintenance_seconds(self) -> float:
        return sum(self.maintenance.values())

    @property
    def median_seconds(self) -> float:
        return statistics.median(self.took)


class SoakFeed(Feed):
    """A feed whose clock is the real one, with deletes; it remembers what a table holds at each resolved moment."""

    def __init__(self, root: Path, seed: int = 1) -> None:
        super().__init__(root, seed)
        self.answers: dict[str, Answer] = {}

    def changed(self, soak: Soak) -> Hlc:
        deletes = round(soak.changes * soak.delete_share)
        return self.moment(
            self._chance.integers(0, soak.rows, soak.changes - deletes), self._chance.integers(0, soak.rows, deletes)
        )

    def moment(self, updated: np.ndarray[Any, Any], deleted: np.ndarray[Any, Any]) -> Hlc:
        """Updates, then deletes, then a resolved moment."""
        self.now = max(self.now + 1, time.time_ns())
        cents = self._chance.integers(0, 100_000_000, len(updated))
        self._remember(updated, cents)
        for start in range(0, len(updated), 50_000):
            part = slice(start, start + 50_000)
            self._write(lines(updated[part], cents[part], self.now))
            self.now += len(updated[part])
        if len(deleted):
            self._newest[deleted] = _ABSENT
            self._write(
                "".join(_deletion(key, self.now + place) for place, key in enumerate(deleted.tolist())).encode()
            )
            self.now += len(deleted)
        resolved = Hlc(max(self.now, time.time_ns()))
        self.answers[resolved.text] = self.answer
        self._put(f"{resolved.file_stamp}.RESOLVED", f'{{"resolved":"{resolved.text}"}}'.encode())
        self.now = int(resolved.wall)
        return resolved

    def _write(self, content: Any) -> None:
        self._files += 1
        self._put(f"{Hlc(self.now).file_stamp}-00000000000000aa-1-1-{self._files:08x}-t-1.ndjson", content)

    @property
    def contents(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Ids and cents of all rows, by id."""
        ids = np.flatnonzero(self._newest != _ABSENT)
        return ids, self._newest[ids]


def _deletion(key: int, moment: int) -> str:
    return f'{{"after": null, "key": [{key}], "updated": "{moment}.0000000000"}}\n'


class _Warnings(logging.Handler):
    """What a logger warns of, with its reason."""

    def __init__(self, into: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._into = into

    def emit(self, record: logging.LogRecord) -> None:
        self._into.append(f"{record.getMessage()}: {getattr(record, 'frazil_fields', {})}")


class Soaking:
    """One run, over a session that has the catalog `frazil` at `warehouse`."""

    def __init__(self, spark: SparkSession, work: Path, warehouse: Path, soak: Soak) -> None:
        self._spark = spark
        self._work = work
        self._warehouse = warehouse
        self.soak = soak
        self.feed = SoakFeed(work / "feeds" / soak.name, soak.seed)
        self.table = f"frazil.{NAMESPACE}.{soak.name}"
        self.result = Soaked(soak)
        self._stop = Event()
        self._progress: RunProgress | None = None
        self._broken: BaseException | None = None

    @property
    def config(self) -> PipelineConfig:
        soak = self.soak
        return PipelineConfig.model_validate(
            {
                "pipeline": soak.name,
                "source": {"type": "cockroachdb", "feed": str(self.feed.root), "poll_interval": "10ms"},
                "catalog": {"type": "builtin", "warehouse": str(self._warehouse)},
                "tables": [
                    {
                        "source": "t",
                        "target": f"{NAMESPACE}.{soak.name}",
                        "key": ["id"],
                        "columns": COLUMNS,
                        "deletes": soak.mode,
                        "format_version": soak.format_version,
                    }
                ],
                "heartbeat": "1d",
                "http": {"port": 0},
                "index": {"directory": str(self._work / "index" / soak.name)},
                "maintenance": dict(soak.maintenance),
            }
        )

    def run(self, *, reader: bool = True) -> Soaked:
        """Raises what ended the daemon, and AssertionError if the table is not the model."""
        soak, every = self.soak, max(1, self.soak.epochs // self.soak.observations)
        with self._listening(), self._running() as pipeline:
            self._publish(lambda: self.feed.moment(np.arange(soak.rows), np.arange(0)), counts=False)
            with self._reading(reader):
                for number in range(1, soak.epochs + 1):
                    self._publish(lambda: self.feed.changed(soak))
                    if number % every == 0:
                        self.result.observed.append(self.observe(number))
                    if soak.rest_every is not None and number % soak.rest_every == 0:
                        self._rest(number)
                    self._stop.wait(soak.pause)
                self._settle(pipeline)
            self.result.maintenance = _maintenance_seconds(pipeline)
        self.result.observed.append(self.observe(soak.epochs))
        self.result.answer = self.feed.answer
        self._check()
        return self.result

    @contextmanager
    def _listening(self) -> Iterator[None]:
        handler, logger = _Warnings(self.result.problems), logging.getLogger("frazil.maintenance")
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)

    # the daemon

    @contextmanager
    def _running(self) -> Iterator[Pipeline]:
        with Pipeline(self.config, spark=self._spark) as pipeline:
            thread = Thread(target=self._run, args=(pipeline,), daemon=True)
            thread.start()
            try:
                yield pipeline
            finally:
                self._stop.set()
                thread.join()

    def _run(self, pipeline: Pipeline) -> None:
        try:
            pipeline.run(stop=self._stop, on_progress=self._show)
        except BaseException as error:
            self._broken = error

    def _show(self, progress: RunProgress) -> None:
        self._progress = progress

    def _publish(self, epoch: Callable[[], Hlc], *, counts: bool = True) -> None:
        resolved = epoch()
        began = time.perf_counter()
        while not self._has(resolved):
            if self._broken is not None:
                raise self._broken
            if time.perf_counter() - began > _PATIENCE_SECONDS:
                raise AssertionError(f"{resolved} is not published after {_PATIENCE_SECONDS:.0f} s")
            time.sleep(0.005)
        if counts:
            self.result.took.append(time.perf_counter() - began)

    def _has(self, resolved: Hlc) -> bool:
        shown = self._progress
        return shown is not None and shown.resolved is not None and Hlc.parse(shown.resolved) >= resolved

    def _rest(self, number: int) -> None:
        """What comes next is bounded then, however slow the machine is."""
        began = time.perf_counter()
        while not self.soak.rested(seen := self.observe(number)) and self._broken is None:
            if time.perf_counter() - began > _PATIENCE_SECONDS:
                raise AssertionError(f"maintenance left the table as {seen} for {_PATIENCE_SECONDS:.0f} s")
            time.sleep(0.2)

    def _settle(self, pipeline: Pipeline) -> None:
        """Until maintenance says that nothing is left."""
        began, labels = time.perf_counter(), {"table": f"{NAMESPACE}.{self.soak.name}"}
        while time.perf_counter() - began < _PATIENCE_SECONDS and self._broken is None:
            if pipeline.metrics.registry.get_sample_value("frazil_maintenance_finished", labels) == 1.0:
                self.result.finished = True
                break
            time.sleep(0.05)
        self.result.settled_after = time.perf_counter() - began

    # the reader

    @contextmanager
    def _reading(self, wanted: bool) -> Iterator[None]:
        done = Event()
        thread = Thread(target=self._read, args=(done,), daemon=True)
        if wanted:
            thread.start()
        try:
            yield
        finally:
            done.set()
            if wanted:
                thread.join()

    def _read(self, done: Event) -> None:
        chance = random.Random(self.soak.seed)
        while not done.wait(0.2):
            try:
                self._look(chance)
            except Exception as error:  # whatever it is, readers must not meet it
                self.result.failures.append(f"{type(error).__name__}: {str(error)[:500]}")

    def _look(self, chance: random.Random) -> None:
        listed = self.snapshots()
        known = [snapshot_id for snapshot_id in listed if self.expected(listed, snapshot_id) is not None]
        if not known:
            return
        chosen = chance.choice(known)
        try:
            found = self.read(chosen)
        except JAVA_ERRORS:
            if chosen not in self.snapshots():
                return  # expired since it was listed: no reader may hope for it any more
            raise
        self.result.reads += 1
        if found != self.expected(listed, chosen):
            self.result.failures.append(f"snapshot {chosen} is read as {found}, not {self.expected(listed, chosen)}")

    def read(self, snapshot_id: int | None = None) -> Answer:
        version = "" if snapshot_id is None else f" VERSION AS OF {snapshot_id}"
        count, total = self._spark.sql(f"SELECT count(*), sum(amount) FROM {self.table}{version}").collect()[0]
        return int(count), total

    def snapshots(self) -> dict[int, Row]:
        rows = self._spark.sql(f"SELECT snapshot_id, parent_id, summary FROM {self.table}.snapshots").collect()
        return {row.snapshot_id: row for row in rows}

    def expected(self, listed: Mapping[int, Row], snapshot_id: int | None) -> Answer | None:
        """What a snapshot must hold: that of its epoch, or if maintenance made it, of the one before."""
        while snapshot_id is not None and snapshot_id in listed:
            row = listed[snapshot_id]
            if "frazil.resolved" in row.summary:
                count, total = self.feed.answers[row.summary["frazil.resolved"]]
                return count, total if count else None
            snapshot_id = row.parent_id
        return None

    # the keeper

    def observe(self, epoch: int) -> Observed:
        contents = [row.content for row in self._spark.sql(f"SELECT content FROM {self.table}.files").collect()]
        manifests = self._spark.sql(f"SELECT path FROM {self.table}.manifests").count()
        documents = (self._warehouse / NAMESPACE / self.soak.name / "metadata").glob("*.metadata.json")
        newest = max(documents, key=lambda path: path.name)
        data = contents.count(0)
        return Observed(epoch, data, len(contents) - data, manifests, len(self.snapshots()), newest.stat().st_size)

    def _check(self) -> None:
        found = self._spark.sql(f"SELECT id, amount FROM {self.table} ORDER BY id").toArrow()
        ids, cents = self.feed.contents
        amounts = [int(amount.scaleb(2)) for amount in found.column("amount").to_pylist()]
        if found.column("id").to_pylist() != ids.tolist() or amounts != cents.tolist():
            raise AssertionError(f"{self.table} holds {found.num_rows:,} rows, and not the {len(ids):,} of the model")


def _maintenance_seconds(pipeline: Pipeline) -> dict[str, float]:
    """By action."""
    found: dict[str, float] = {}
    for family in pipeline.metrics.registry.collect():
        for sample in family.samples:
            if sample.name == "frazil_maintenance_seconds_total":
                action = sample.labels["action"]
                found[action] = found.get(action, 0.0) + sample.value
    return found
