"""What every measurement stands on: one session, one warehouse, pipelines that run as a daemon runs them.

Bench --running(feed, name, mode)--> Pipeline in a thread --wait_for(R)--> seconds until the snapshot is there
                                         `-- asleep between measurements, so that nobody polls while a peer runs
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench.feeds import COLUMNS, Feed
from bench.sizes import Sizes
from frazil.app.pipeline import Pipeline
from frazil.clock import SystemClock
from frazil.config.pipeline_config import PipelineConfig
from frazil.iceberg.catalogs.open_catalog import CatalogSettings
from frazil.model.results import RunProgress
from frazil.sources.cockroachdb.position import Hlc

VECTORS, EQUALITY, APPEND_ONLY = "vectors", "equality", "append-only"
MODES = (VECTORS, EQUALITY)
FORMAT_VERSIONS = {VECTORS: 3, EQUALITY: 2, APPEND_ONLY: 2}
_PATIENCE_SECONDS = 1800
_started = time.monotonic()


@dataclass(frozen=True, slots=True)
class Bench:
    """`modes` are the delete modes to measure; the first one counts as the default."""

    spark: SparkSession
    work: Path
    sizes: Sizes
    modes: tuple[str, ...] = MODES

    @property
    def settings(self) -> CatalogSettings:
        return catalog_of(self.work)

    def table(self, name: str) -> str:
        """The table as Spark SQL knows it."""
        return f"{self.settings.name}.bench.{name}"

    def answer(self, name: str) -> tuple[int, Decimal]:
        """`count(*), sum(amount)`, read by Spark."""
        count, total = self.spark.sql(f"SELECT count(*), sum(amount) FROM {self.table(name)}").collect()[0]
        return int(count), total

    def check(self, name: str, expected: tuple[int, Decimal]) -> None:
        """A number of a table that holds something else is worth nothing."""
        if (found := self.answer(name)) != expected:
            raise AssertionError(f"{name} holds {found}, not {expected}")

    def feed(self, name: str, seed: int = 1) -> Feed:
        return Feed(self.work / "feeds" / name, seed)

    @contextmanager
    def running(self, feed: Feed, name: str, mode: str, catalog: CatalogSettings | None = None) -> Iterator[Running]:
        """The pipeline `name`, which fills the table of the same name, in another catalog than the usual if given."""
        clock = _Nap()
        config = config_of(feed, self.work, name, mode, catalog)
        with Pipeline(config, spark=self.spark, clock=clock) as pipeline:
            run = Running(pipeline, clock)
            try:
                yield run
            finally:
                run.stop()


def catalog_of(work: Path) -> CatalogSettings:
    return CatalogSettings(warehouse=str(work / "warehouse"))


def config_of(feed: Feed, work: Path, name: str, mode: str, catalog: CatalogSettings | None = None) -> PipelineConfig:
    settings = catalog or catalog_of(work)
    block: dict[str, Any] = {"type": settings.type.value, "name": settings.name, "warehouse": settings.warehouse}
    block |= {"uri": settings.uri, "properties": dict(settings.properties)} if catalog is not None else {}
    entry: dict[str, Any] = {
        "source": "t",
        "target": f"bench.{name}",
        "key": ["id"],
        "columns": COLUMNS,
        "deletes": mode,
    }
    if catalog is None:  # another one may not have all versions
        entry["format_version"] = FORMAT_VERSIONS[mode]
    return PipelineConfig.model_validate(
        {
            "pipeline": name,
            "source": {"type": "cockroachdb", "feed": str(feed.root), "poll_interval": "10ms"},
            "catalog": block,
            "tables": [entry],
            "heartbeat": "1d",
            "index": {"directory": str(work / "index" / name)},
        }
    )


class Running:
    """A pipeline in a thread of its own."""

    def __init__(self, pipeline: Pipeline, clock: _Nap) -> None:
        self._clock = clock
        self._stop = threading.Event()
        self._moved = threading.Condition()
        self._resolved: Hlc | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(pipeline,), daemon=True)
        self._thread.start()

    def seconds(self, publish: Callable[[], Hlc]) -> float:
        """From the moment the feed is resolved to the moment the snapshot is published."""
        self._clock.wake()
        resolved = publish()
        started = time.perf_counter()
        self._wait_for(resolved)
        took = time.perf_counter() - started
        self._clock.sleep()
        return took

    def stop(self) -> None:
        self._stop.set()
        self._clock.wake()
        self._thread.join()

    def _wait_for(self, resolved: Hlc) -> None:
        def is_there() -> bool:
            return self._failure is not None or (self._resolved is not None and self._resolved >= resolved)

        with self._moved:
            arrived = self._moved.wait_for(is_there, timeout=_PATIENCE_SECONDS)
        if self._failure is not None:
            raise self._failure
        if not arrived:
            raise TimeoutError(f"{resolved} was not published within {_PATIENCE_SECONDS} s")

    def _run(self, pipeline: Pipeline) -> None:
        try:
            pipeline.run(stop=self._stop, on_progress=self._progress)
        except BaseException as error:
            with self._moved:
                self._failure = error
                self._moved.notify_all()

    def _progress(self, progress: RunProgress) -> None:
        with self._moved:
            self._resolved = None if progress.resolved is None else Hlc.parse(progress.resolved)
            self._moved.notify_all()


class _Nap(SystemClock):
    """A clock that lets an idle pipeline wait until it is woken, instead of polling beside a peer's measurement."""

    def __init__(self) -> None:
        self._awake = threading.Event()
        self._awake.set()

    def wake(self) -> None:
        self._awake.set()

    def sleep(self) -> None:
        self._awake.clear()

    def wait(self, seconds: float, until: threading.Event | None = None) -> bool:
        if seconds:
            self._awake.wait()
        return super().wait(seconds, until)


def timed(act: Callable[[], Any]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def say(text: str) -> None:
    """RunProgress, with the time since the start."""
    minutes, seconds = divmod(int(time.monotonic() - _started), 60)
    print(f"[{minutes:3d}:{seconds:02d}] {text}", file=sys.stderr, flush=True)
