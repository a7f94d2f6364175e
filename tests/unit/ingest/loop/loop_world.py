"""The production loop, supervisor and reader loops, between edges of values: no Spark, no catalog, no server.

    Stream (tables, their changes, what is resolved) --> StreamSource --> Supervisor --> Catalog of the simulation

A source tells nothing for its first looks after `open`, as a connection that is being made does. A task that meets a
table with a fault fails; files are not written: an epoch is its ledger entry, and after a table's first one it is the
heartbeat that publishes it, so what is to be published then must come a few looks later (`silent_looks`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Event, Lock
from typing import Any
from uuid import UUID, uuid4

from simulation.tables import Catalog

from frazil.clock import SystemClock
from frazil.config.pipeline_config import PipelineConfig
from frazil.errors import CatalogRefused, CatalogUnavailable
from frazil.iceberg.tables.tables import LoadedTable
from frazil.ingest.loop.components import Components
from frazil.ingest.loop.supervisor import Supervisor
from frazil.ingest.write.window_writer import Executors
from frazil.model.change import PartitionReport
from frazil.model.commit import Accepted, CommitAnswer, CommitPlan, Conflicted
from frazil.model.files import Resolved
from frazil.model.frontier import Frontier, Window
from frazil.model.ids import JobId, TableName
from frazil.model.ledger import Fence, TableHead
from frazil.model.partition import PartitionSpec
from frazil.model.position import Position, is_before
from frazil.model.schema import LONG, Column, Field, Schema, SourceSchema
from frazil.model.state import TableState
from frazil.model.write import WriteJob
from frazil.observability.metrics import Metrics
from frazil.sources.base import InputPartition, SourceTable
from frazil.sources.cockroachdb.position import Hlc

SOURCE_SCHEMA = SourceSchema((Column("id", LONG, "INT8", "test", required=True),), ("id",), "test")
SCHEMA = Schema(0, (Field(1, "id", LONG, required=True),), (1,))
HURRY = 100.0


def at(second: int) -> Hlc:
    return Hlc(1_700_000_000_000_000_000 + second * 1_000_000_000)


class HurriedClock(SystemClock):
    """A second of it is ten milliseconds of ours."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def now(self) -> datetime:
        return datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return (time.monotonic() - self._start) * HURRY

    def wait(self, seconds: float, until: Event | None = None) -> bool:
        return (until or Event()).wait(seconds / HURRY)

    def new_uuid(self) -> UUID:
        return uuid4()


@dataclass
class Stream:
    """What the source holds: changes of tables at seconds, and which seconds are resolved. `silent_looks` after each
    `open` find nothing. `faults` raise what a task that meets these tables fails with."""

    changes: dict[str, list[int]]
    resolved: list[int]
    silent_looks: int = 0
    faults: dict[str, Callable[[], BaseException | None]] = field(default_factory=dict)
    at: Callable[[int], Position] = at
    opened: list[tuple[str, ...]] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)
    lock: Any = field(default_factory=Lock)


class StreamSource:
    """A source port over a Stream."""

    incarnation = "test:1"

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._looks = 0
        self._reached: Position | None = None

    def tables(self) -> Sequence[SourceTable]:
        return [SourceTable(name) for name in sorted(self._stream.changes)]

    def initial(self, frontiers: Mapping[str, Frontier | None]) -> None:
        with self._stream.lock:
            self._stream.opened.append(tuple(sorted(frontiers)))
        self._looks = 0
        known = [one.position for one in frontiers.values() if one is not None]
        self._reached = min(known, key=lambda p: p.order) if len(known) == len(frontiers) and known else None

    def latest(self) -> tuple[Position, ...]:
        self._looks += 1
        if self._looks <= self._stream.silent_looks:
            return ()
        known = map(self._stream.at, self._stream.resolved)
        return tuple(position for position in known if is_before(self._reached, position))

    @property
    def is_caught_up(self) -> bool:
        return self._looks > self._stream.silent_looks

    def partitions(
        self, window: Window, frontiers: Mapping[str, Frontier | None], index: Mapping[str, int]
    ) -> Sequence[InputPartition]:
        self._reached = window.upper
        found = []
        for name, number in index.items():
            frontier = frontiers.get(name)
            after = None if frontier is None else frontier.position
            changes = [(second, self._stream.at(second).order) for second in self._stream.changes[name]]
            start = (-1, 0) if after is None else after.order
            inside = [second for second, order in changes if start < order <= window.upper.order]
            found += [InputPartition(number, f"{name}@{second}", "{}", 1) for second in inside]
        return found

    def resume_state(self, table: str, upper: Position, reports: Sequence[PartitionReport]) -> str:
        return ""

    def commit(self, published: Position) -> None: ...

    def for_tables(self, tables: Collection[str]) -> StreamSource:
        return type(self)(self._stream)

    def stop(self) -> None: ...

    def schemas(
        self, partitions: Sequence[InputPartition], targets: Mapping[str, Any], **_: bool
    ) -> Mapping[str, SourceSchema]:
        return {partition.name.split("@")[0]: SOURCE_SCHEMA for partition in partitions}

    def schema_changed(self, table: str, partitions: Sequence[InputPartition]) -> bool:
        return False

    def preview(self, table: str, target: Any) -> SourceSchema | None:
        return SOURCE_SCHEMA

    def reader(self, *_: Any) -> Any:
        return None

    def decoder(self, *_: Any) -> Any:
        return None


class TimelessSource(StreamSource):
    """Its positions are numbers: only the source knows when they were."""

    def time_of(self, position: Position) -> datetime | None:
        return at(position.order[0]).source_time


class Shelf:
    """Lake, tables and register of pipelines, on the simulation's catalog."""

    def __init__(self, job: JobId) -> None:
        self.catalog = Catalog(job)
        self.damaged: set[str] = set()
        """Tables whose metadata cannot be read."""
        self.unavailable: set[str] = set()
        """Tables that the catalog has no answer for."""
        self._fence: Fence | None = None
        self._lock = Lock()

    def head(self, table: TableName) -> TableHead:
        if table.text in self.damaged:
            raise CatalogRefused(f"{table}: its metadata file is gone", table=table.text)
        if table.text in self.unavailable:
            raise CatalogUnavailable(f"{table}: no answer", table=table.text)
        return self.catalog.tables[table].head()

    def live(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("nothing is looked up")

    def commit(self, table: TableName, head: TableHead, plan: CommitPlan) -> CommitAnswer:
        with self._lock:
            snapshot = self.catalog.land(table, head.base, plan)
        return Conflicted("the table has moved") if snapshot is None else Accepted(snapshot.id)

    def commit_many(self, commits: Any) -> Any:
        return [self.commit(*one) for one in commits]

    def exists(self, table: TableName) -> bool:
        return table in self.catalog.tables

    def load(self, table: TableName) -> LoadedTable:
        metadata = self.catalog.tables[table]
        return LoadedTable(
            name=table,
            uuid=metadata.uuid,
            location=f"shelf/{table.text}",
            data_location=f"shelf/{table.text}/data",
            schema=SCHEMA,
            spec=PartitionSpec(0),
            specs=(PartitionSpec(0),),
            format_version=3,
            properties=metadata.properties,
        )

    def ensure(self, table: TableName, source_schema: SourceSchema, options: Any) -> LoadedTable:
        with self._lock:
            if not self.exists(table):
                self.catalog.create(table)
        return self.load(table)

    def set_property(self, *_: Any) -> None: ...

    def plan(self, *_: Any) -> Any: ...

    def plan_layout(self, *_: Any) -> Any: ...

    def newest(self, job: JobId) -> tuple[Fence | None, object]:
        return self._fence, self._fence

    def take(self, job: JobId, fence: Fence, read: object) -> CommitAnswer:
        self._fence = fence
        return Accepted(0)


class Quiet:
    """An observer with nothing to say."""

    def answered(self, *_: Any) -> None: ...

    def finished(self, *_: Any) -> None: ...


class LoopWorld:
    """A pipeline over a stream. `settings` go into the configuration."""

    def __init__(
        self,
        stream: Stream,
        tables: Sequence[Mapping[str, Any]] = (),
        source: type[StreamSource] = StreamSource,
        **settings: Any,
    ) -> None:
        self.stream = stream
        self.config = PipelineConfig.model_validate(
            {
                "pipeline": "loop",
                "source": {"type": "cockroachdb", "feed": "/nowhere", "poll_interval": "1s"},
                "catalog": {"type": "builtin", "warehouse": "/nowhere"},
                "tables": [*tables] or [{"source": "*", "target": "lake.{table}", "deletes": "equality"}],
                "heartbeat": "1s",
                **settings,
            }
        )
        self.shelf = Shelf(self.config.job)
        clock = HurriedClock()
        self.parts = Components(
            config=self.config,
            config_hash="test",
            source=source(stream),
            committer=self.shelf,
            tables=self.shelf,
            arbiter=self.shelf,
            executors=Executors(write=self._write, cores=1),
            observer=Quiet(),
            metrics=Metrics(clock),
            clock=clock,
        )
        self.stop = Event()

    def run(self, once: bool = False, until: Callable[[Supervisor], bool] = lambda run: False) -> Supervisor:
        """Ends when `until` holds. The deadline only keeps a broken run from going on for ever."""
        deadline = time.monotonic() + 30

        def changed(run: Supervisor) -> None:
            if until(run):
                self.stop.set()

        run = Supervisor(self.parts, changed, self.stop, lambda: time.monotonic() > deadline)
        run.run(once)
        return run

    def published(self, table: str) -> str | None:
        """How far a table is."""
        name = TableName.parse(table)
        if not self.shelf.exists(name):
            return None
        entry = self.shelf.head(name).newest(self.config.job)
        return None if entry is None else entry.resolved.text

    def _write(
        self,
        partitions: Sequence[InputPartition],
        cuts: Any,
        reader: Any,
        decoder: Any,
        job: WriteJob,
        epochs: tuple[Position, ...],
        *,
        small: bool,
    ) -> Any:
        for partition in partitions:
            name = partition.name.split("@")[0]
            if (fault := self.stream.faults.get(name)) is not None:
                self.stream.met[name] += 1
                if (error := fault()) is not None:
                    raise error
        reports = [
            PartitionReport(partition.table, partition.name, 1, 0, self._position(partition))
            for partition in partitions
        ]
        return [Resolved(epoch, 0, 1) for epoch in epochs], reports

    def _position(self, partition: InputPartition) -> Position:
        return self.stream.at(int(partition.name.split("@")[1]))


def state_of(run: Supervisor, table: str) -> TableState:
    return run.tables[table].state
