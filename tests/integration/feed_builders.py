"""A changefeed on disk and a real pipeline on it, in the shared Spark session; tables are read back with Spark SQL.

feed.data(...), feed.resolved(R) --files--> Lab.run() --> Iceberg tables --Lab.rows(table, R)--> plain dicts
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import yaml
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType
from unit.sources.cockroach_feed import BASE, Feed, at, delete, upsert

from frazil.app.pipeline import Pipeline
from frazil.cli.main import cli
from frazil.cli.seam import Session
from frazil.clock import Clock
from frazil.config.load import load_config
from frazil.maintenance.orphans import QUIET
from frazil.model.results import EpochRow, RunSummary
from frazil.sources.cockroachdb.position import Hlc

__all__ = [
    "BASE",
    "Feed",
    "Lab",
    "at",
    "column_types",
    "delete",
    "make_old",
    "read_rows",
    "stop_when",
    "table",
    "upsert",
]

AB = {"a": "INT8", "b": "STRING"}


def table(source: str = "t", key: Sequence[str] = ("a",), columns: Mapping[str, str] | None = None, **more: Any) -> Any:
    """An entry of `tables:`; pinned to a INT8, b STRING unless told otherwise. Empty mappings pin nothing."""
    entry: dict[str, Any] = {"source": source, **more}
    if key:
        entry["key"] = list(key)
    if columns := AB if columns is None else columns:
        entry["columns"] = dict(columns)
    return entry


@dataclass
class Lab:
    """One feed, one configuration, one namespace. `settings` are further top-level keys of the configuration."""

    spark: SparkSession
    warehouse: Path
    namespace: str
    root: Path
    layout: str = "daily"
    tables: list[Any] = field(default_factory=lambda: [table()])
    source: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    catalog: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.feed = Feed(self.root / "feed", self.layout)
        self.feed.root.mkdir(parents=True, exist_ok=True)

    @property
    def config(self) -> Path:
        """The configuration as a file, written anew each time it is asked for."""
        entries = [{"target": f"{self.namespace}.{{table}}", **entry} for entry in self.tables]
        document = {
            "pipeline": self.namespace,
            "source": {"type": "cockroachdb", "feed": str(self.feed.root), "poll_interval": "50ms", **self.source},
            "catalog": self.catalog or {"type": "builtin", "warehouse": str(self.warehouse)},
            "tables": entries,
            **self.settings,
        }
        path = self.root / "pipeline.yaml"
        path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        return path

    @contextmanager
    def open(self, clock: Clock | None = None) -> Iterator[Pipeline]:
        with Pipeline(load_config(self.config), spark=self.spark, clock=clock) as pipeline:
            yield pipeline

    def run(self) -> RunSummary:
        """Publishes all that is resolved, as `frazil run --once` does."""
        with self.open() as pipeline:
            return pipeline.run(once=True)

    def cli(self, *arguments: str, config: Path | None = None) -> Result:
        """`frazil COMMAND CONFIG ...` in this process: its exit code, stdout and stderr."""
        command, *rest = arguments
        session = Session(open_pipeline=lambda loaded, reread=None: Pipeline(loaded, spark=self.spark, reread=reread))
        return CliRunner().invoke(cli, [command, str(config or self.config), *rest], obj=session)

    def epochs(self, name: str = "t") -> list[EpochRow]:
        """Newest first."""
        with self.open() as pipeline:
            return pipeline.epochs(f"{self.namespace}.{name}")

    def resolved(self, name: str = "t") -> list[str]:
        """The resolved timestamps published to a table, oldest first."""
        return [epoch.resolved for epoch in reversed(self.epochs(name))]

    def sql_name(self, name: str) -> str:
        return f"{self.catalog.get('name', 'frazil')}.{self.namespace}.`{name}`"

    def exists(self, name: str = "t") -> bool:
        with self.open() as pipeline:
            return bool(pipeline.spark.catalog.tableExists(self.sql_name(name)))

    def rows(self, name: str = "t", resolved: Hlc | None = None, order: str | None = None) -> list[dict[str, Any]]:
        """The rows now, or as of a resolved timestamp; nothing if the table had nothing published by then."""
        snapshot = None
        if resolved is not None:
            with self.open() as pipeline:
                snapshot = pipeline.snapshot_at(f"{self.namespace}.{name}", resolved)
            if snapshot is None:
                return []
        return read_rows(self.spark, self.sql_name(name), snapshot, order)


def read_rows(
    spark: SparkSession, table: str, snapshot: int | None = None, order: str | None = None
) -> list[dict[str, Any]]:
    """All rows as dicts, by the first column or `order`; timestamps with a zone come as their UTC wall clock."""
    version = "" if snapshot is None else f" VERSION AS OF {snapshot}"
    frame = spark.sql(f"SELECT * FROM {table}{version}")
    zoned = {f.name for f in frame.schema.fields if isinstance(f.dataType, TimestampType)}
    columns = [F.col(f"`{n}`").cast("timestamp_ntz").alias(n) if n in zoned else F.col(f"`{n}`") for n in frame.columns]
    rows = [row.asDict() for row in frame.select(columns).collect()]
    return sorted(rows, key=lambda row: row[order or frame.columns[0]])


def column_types(spark: SparkSession, table: str) -> dict[str, str]:
    return {f.name: f.dataType.simpleString() for f in spark.table(table).schema.fields}


def stop_when(done: Any, stop: Event) -> Any:
    """A progress listener that sets `stop` once `done(progress)` holds."""

    def listen(progress: Any) -> None:
        if done(progress):
            stop.set()

    return listen


def make_old(folder: Path) -> None:
    """All files below it, by longer than what is under way may take, so that the sweep takes nothing for work."""
    then = time.time() - 2 * QUIET.total_seconds()
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))
