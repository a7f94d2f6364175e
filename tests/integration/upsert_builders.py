"""One target table and the ways into it: single batches by hand, and streaming queries over a directory of files.

An `Upserts` of its own stands for a process of its own: it knows nothing but what the ledger says.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.tables.tables import Tables
from frazil.ingest.upsert_stream.api import BatchOutcome, BatchResult, Upserts
from frazil.ingest.upsert_stream.request import UpsertOptions
from frazil.model.ids import JobId, TableName

COLUMNS = "id long, version int, name string, op string"
PUBLISHED, ALREADY, NOTHING = BatchResult.PUBLISHED, BatchResult.ALREADY_PUBLISHED, BatchResult.NOTHING_TO_PUBLISH

Change = tuple[int | None, int, str | None, str | None]


@dataclass
class World:
    """One target table and the ways into it."""

    spark: SparkSession
    warehouse: Path
    table: TableName
    committer: IcebergCommitter
    tables: Tables
    options: dict[str, Any] = field(default_factory=dict)

    def with_options(self, **more: Any) -> dict[str, Any]:
        defaults = {
            "pipeline": "stream",
            "target": self.table.text,
            "warehouse": self.warehouse,
            "key": ["id"],
            "order_by": ["version"],
            "op": "op",
        }
        return {**defaults, **self.options, **more}

    def frame(self, changes: Sequence[tuple[Any, ...]], columns: str = COLUMNS) -> DataFrame:
        return self.spark.createDataFrame(list(changes), columns)

    def publish(
        self,
        batch_id: int,
        changes: Sequence[tuple[Any, ...]] | DataFrame,
        process: Upserts | None = None,
        query: str = "query-1",
        **more: Any,
    ) -> BatchOutcome:
        batch = changes if isinstance(changes, DataFrame) else self.frame(changes)
        options = UpsertOptions(**self.with_options(**more))
        return (process or self.process).publish(batch, batch_id, options, query)

    def __post_init__(self) -> None:
        self.process = Upserts()

    @property
    def name(self) -> str:
        return f"frazil.{self.table.sql}"

    def rows(self, columns: str = "id, version, name") -> list[tuple[Any, ...]]:
        found = [tuple(row) for row in self.spark.sql(f"SELECT {columns} FROM {self.name}").collect()]
        return sorted(found, key=lambda row: json.dumps(row, default=str))

    def batches(self) -> list[str]:
        """What the ledger says, oldest first."""
        return [e.resolved.text for e in reversed(self.committer.head(self.table).entries(JobId("stream")))]

    def snapshots(self) -> int:
        return len(self.committer.head(self.table).ancestry)


@dataclass
class Feed:
    """A directory of JSON files, one batch each, read by a streaming query with a checkpoint of its own."""

    world: World
    folder: Path
    count: int = 0

    def add(self, changes: Sequence[Change]) -> None:
        self.folder.mkdir(exist_ok=True)
        lines = [json.dumps(dict(zip(("id", "version", "name", "op"), change, strict=True))) for change in changes]
        path = self.folder / f"{self.count:05d}.json"
        path.write_text("\n".join(lines))
        # The file source orders by age.
        os.utime(path, (1_700_000_000 + self.count, 1_700_000_000 + self.count))
        self.count += 1

    def run(self, function: Callable[[DataFrame, int], Any], checkpoint: str = "checkpoint") -> str:
        """Runs the query over all that is there; returns its id."""
        source = self.world.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).json(str(self.folder))
        writer = source.writeStream.foreachBatch(function).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.folder.parent / checkpoint)).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return str(query.id)

    def publisher(self, process: Upserts | None = None, **more: Any) -> Callable[[DataFrame, int], None]:
        """The function for foreachBatch; what it was told is kept in its `outcomes`."""
        outcomes: list[BatchOutcome] = []
        options = UpsertOptions(**self.world.with_options(**more))
        chosen = process or self.world.process

        def publish(batch: DataFrame, batch_id: int) -> None:
            outcomes.append(chosen.publish(batch, batch_id, options))

        publish.outcomes = outcomes  # type: ignore[attr-defined]
        return publish
