"""A Python worker of Spark that is killed in the middle of its work: a real process, a real signal."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest
from feed_builders import Lab, at, table, upsert
from pyspark.cloudpickle import register_pickle_by_value, unregister_pickle_by_value
from pyspark.sql import SparkSession

from frazil.app.assemble import assemble
from frazil.clock import SystemClock
from frazil.config.load import load_config
from frazil.errors import Unexplained
from frazil.ingest.loop.supervisor import Supervisor
from frazil.ingest.loop.table_state import UNEXPLAINED_MAX
from frazil.ingest.write.window_writer import Executors
from frazil.model.state import TableState
from frazil.observability.metrics import Metrics
from frazil.sources.base import Cut, InputPartition, Reader

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class DeadlyReader:
    """Kills the process that reads a partition of this name, so many times; `killed` counts them, as files."""

    reader: Reader
    deadly: str
    killed: str
    times: int

    def read(self, partition: InputPartition, cut: Cut) -> Iterator[pa.RecordBatch]:
        if self.deadly in partition.name and len(os.listdir(self.killed)) < self.times:
            Path(self.killed, str(os.getpid())).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.reader.read(partition, cut)


class Impatient(SystemClock):
    """Waits a hundredth of what it is told to."""

    def monotonic(self) -> float:
        return super().monotonic() * 100

    def wait(self, seconds: float, until: Event | None = None) -> bool:
        return super().wait(seconds / 100, until)


@pytest.fixture(autouse=True)
def _readers_travel() -> Iterator[None]:
    """Workers cannot import this module."""
    module = sys.modules[__name__]
    register_pickle_by_value(module)
    yield
    unregister_pickle_by_value(module)


@pytest.fixture
def lab(spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path) -> Lab:
    lab = Lab(spark, warehouse, namespace, tmp_path, tables=[table("good"), table("bad")])
    for topic in ("good", "bad"):
        lab.feed.data(at(1), [upsert([1], at(1), a=1, b="x")], topic=topic)
    lab.feed.resolved(at(2))
    return lab


def supervised(lab: Lab, times: int) -> tuple[Supervisor, Path]:
    """A run whose workers die of the table `bad`."""
    clock = Impatient()
    parts = assemble(load_config(lab.config), clock, Metrics(clock), lab.spark).parts
    work, killed = parts.executors, lab.root / "killed"
    killed.mkdir()

    def write(partitions: Any, cuts: Any, reader: Reader, *rest: Any, **more: Any) -> Any:
        deadly = DeadlyReader(reader, "-bad-", str(killed), times)
        return work.write(partitions, cuts, deadly, *rest, **more)

    parts = replace(parts, executors=Executors(write=write, cores=work.cores))
    return Supervisor(parts, lambda run: None, Event()), killed


def test_a_worker_that_is_killed_once_costs_one_more_attempt(lab: Lab) -> None:
    supervisor, killed = supervised(lab, times=1)
    supervisor.run(once=True)
    assert len(list(killed.iterdir())) == 1
    assert [row["b"] for name in ("good", "bad") for row in lab.rows(name)] == ["x", "x"]


def test_a_table_of_which_every_worker_dies_stops_and_the_others_are_published(lab: Lab) -> None:
    supervisor, killed = supervised(lab, times=1000)
    with pytest.raises(Unexplained, match="Python worker exited unexpectedly") as caught:
        supervisor.run(once=True)
    assert "epochs_per_job" in caught.value.hint
    assert len(list(killed.iterdir())) == 2 * UNEXPLAINED_MAX
    assert supervisor.tables[f"{lab.namespace}.bad"].state is TableState.STOPPED
    assert [row["b"] for row in lab.rows("good")] == ["x"]
