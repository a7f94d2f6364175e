"""A pipeline of many tables, driven by the production loop: a real feed on disk, and a lake and workers in memory.

Feed on disk --CloudFeed--> Supervisor, Cursor, CommitLine, publish --> MemoryLake
                                |  writes
                                v
                            one file for each partition, reported as a worker would
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Lock
from typing import Any

from unit.sources.cockroach_feed import Feed, Register, at, upsert

from frazil.app.assemble import open_source
from frazil.clock import SystemClock
from frazil.config.load import parse_config
from frazil.config.pipeline_config import PipelineConfig
from frazil.iceberg.tables.layout import LayoutChange
from frazil.iceberg.tables.schema_steps import SchemaChange
from frazil.iceberg.tables.tables import LoadedTable
from frazil.ingest.loop.components import Components
from frazil.ingest.loop.observer import PublishObserver
from frazil.ingest.write.window_writer import Executors, WritesWindows
from frazil.model.change import PartitionReport, Report
from frazil.model.commit import Accepted, CommitAnswer, CommitPlan
from frazil.model.files import FileClosed, FileKind, LiveFiles, Message, Resolved
from frazil.model.ids import JobId, TableName, data_path
from frazil.model.ledger import Fence, SnapshotFacts, TableHead
from frazil.model.partition import UNPARTITIONED
from frazil.model.position import Position
from frazil.model.schema import Column, Field, Schema, SourceSchema
from frazil.model.write import TableOptions, WriteJob
from frazil.observability.metrics import Metrics
from frazil.sources.base import Cut, Decoder, InputPartition, Reader


class MemoryLake:
    """Tables, their heads and commits, and the register of pipelines: every commit is accepted."""

    def __init__(self) -> None:
        self.heads: dict[TableName, TableHead] = {}
        self.commits: list[TableName] = []
        self.fence: Fence | None = None
        self._loaded: dict[TableName, LoadedTable] = {}
        self._lock = Lock()

    # tables

    def exists(self, table: TableName) -> bool:
        return table in self.heads

    def load(self, table: TableName) -> LoadedTable:
        return self._loaded[table]

    def ensure(self, table: TableName, source_schema: SourceSchema, options: TableOptions) -> LoadedTable:
        fields = tuple(
            Field(number, column.name, column.type, required=column.name in source_schema.key)
            for number, column in enumerate(source_schema.columns, 1)
        )
        made = LoadedTable(
            name=table,
            uuid=f"uuid of {table}",
            location=f"memory/{table}",
            data_location=f"memory/{table}/data",
            schema=Schema(0, fields),
            spec=UNPARTITIONED,
            specs=(UNPARTITIONED,),
            format_version=3,
            properties={},
        )
        with self._lock:
            self.heads.setdefault(table, TableHead(uuid=made.uuid, ancestry=(), properties={}))
            return self._loaded.setdefault(table, made)

    def set_property(self, table: TableName, name: str, value: str | None) -> None:
        raise AssertionError("not in these tests")

    def plan(self, table: TableName, columns: Sequence[Column], options: TableOptions) -> SchemaChange:
        raise AssertionError("not in these tests")

    def plan_layout(self, table: TableName, options: TableOptions) -> LayoutChange:
        raise AssertionError("not in these tests")

    # lake

    def head(self, table: TableName) -> TableHead:
        return self.heads[table]

    def commit(self, table: TableName, head: TableHead, plan: CommitPlan) -> CommitAnswer:
        with self._lock:
            number = len(self.commits) + 1
            self.commits.append(table)
        landed = SnapshotFacts(number, head.snapshot_id, number, 0, plan.summary)
        job = plan.entry.job
        self.heads[table] = replace(
            head,
            ancestry=(landed, *head.ancestry),
            properties={**head.properties, job.ledger_property: plan.entry.to_property(number, number)},
        )
        return Accepted(number)

    def commit_many(self, commits: Sequence[tuple[TableName, TableHead, CommitPlan]]) -> Sequence[CommitAnswer]:
        return [self.commit(*one) for one in commits]

    def live(self, table: TableName, head: TableHead, bounds_of: Sequence[int] = ()) -> LiveFiles:
        raise AssertionError("not in these tests")

    # arbiter

    def newest(self, job: JobId) -> tuple[Fence | None, object]:
        return self.fence, self.fence

    def take(self, job: JobId, fence: Fence, read: object) -> CommitAnswer:
        self.fence = fence
        return Accepted(0)


def write_in_memory(
    partitions: Sequence[InputPartition],
    cuts: Mapping[int, Cut],
    reader: Reader,
    decoder: Decoder,
    job: WriteJob,
    epochs: tuple[Position, ...],
    *,
    small: bool,
) -> tuple[list[Message], list[Report]]:
    """Each partition has one row, of the window's first epoch."""
    tasks = {task.index: task for task in job.tables}
    messages: list[Message] = []
    for number, partition in enumerate(partitions):
        task = tasks[partition.table]
        target = task.epochs[0]
        closed = FileClosed(
            table=task.name,
            epoch=target.epoch,
            batch_id=target.batch_id,
            worker=0,
            schema_id=0,
            spec_id=0,
            path=data_path(target.prefix, 0, job.attempt, number),
            kind=FileKind.DATA,
            records=1,
            size=100,
            digest="d",
        )
        messages.append(closed)
    messages += [Resolved(epochs[-1], worker, job.shards) for worker in range(job.shards)]
    return messages, [PartitionReport(partition.table, partition.name, 1, 0, epochs[0]) for partition in partitions]


class HurriedClock(SystemClock):
    """Waits for nothing."""

    def wait(self, seconds: float, until: Event | None = None) -> bool:
        return super().wait(0, until)


@dataclass
class ManyTables:
    """`named` if the configuration has an entry for each table, else one pattern takes them all."""

    root: Path
    count: int
    named: bool = True
    committer: MemoryLake = field(default_factory=MemoryLake)
    epochs: int = 0

    def __post_init__(self) -> None:
        self.feed = Feed(self.root)

    @property
    def names(self) -> list[str]:
        return [f"t{number:04}" for number in range(self.count)]

    def epoch(self, tables: Sequence[str] | None = None) -> None:
        """One change of each of these tables, by default of all, and the resolved file behind them."""
        self.epochs += 1
        second = 10 * self.epochs
        for number, name in enumerate(self.names if tables is None else tables):
            line = upsert([1], at(second), a=1, b="x")
            self.feed.data(at(second), [line], topic=name, number=number)
        self.feed.resolved(at(second + 5))

    def parts(
        self, metrics: Callable[[SystemClock], Metrics] = Metrics, write: WritesWindows = write_in_memory
    ) -> Components:
        clock = HurriedClock()
        config, told = self.config, metrics(clock)
        unused: Any = None
        return Components(
            config=config,
            config_hash="",
            source=open_source(config, unused, clock, Register()),
            committer=self.committer,
            tables=self.committer,
            arbiter=self.committer,
            executors=Executors(write=write, cores=2),
            observer=PublishObserver(told),
            metrics=told,
            clock=clock,
        )

    @property
    def config(self) -> PipelineConfig:
        sources = self.names if self.named else ["*"]
        target = "shop.{table}"
        entries = "".join(
            f"  - {{source: '{source}', target: '{target}', deletes: append-only, key: [a], "
            "columns: {a: INT8, b: STRING}}\n"
            for source in sources
        )
        return parse_config(
            f"pipeline: shop\nsource: {{type: cockroachdb, feed: {self.root}}}\n"
            f"catalog: {{type: builtin, warehouse: {self.root}/warehouse}}\ntables:\n{entries}"
        )
