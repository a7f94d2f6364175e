"""`_frazil.checkpoints`: where every table of every pipeline stands, one row for each, for people and their queries.

    record(job, rows) --> head --> Parquet of these rows --> one commit: the pipeline's partition is that file alone
                           ^                                   |
                           +---- moved meanwhile, or no word --+   a few times, then False

A mirror: nothing is ever decided from it (H48). So it neither stops a pipeline nor is worth waiting for: what could
not be recorded is logged, and the next epoch's record makes it good. Snapshots behind the newest are of no use to
anybody and go once there are many, with the files that only they had.

Where a table of a pipeline stands, as a row that people can query.

A mirror of what the ledgers prove: nothing is ever decided from it, so a row that is old, wrong or lost costs nothing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import Row
from pyspark.sql import functions as F

from frazil.clock import Clock
from frazil.errors import FrazilError
from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.system.system_table import SystemTable, system_schema
from frazil.model.ids import JobId
from frazil.model.position import Position, parse_position
from frazil.model.schema import LONG, STRING, TIMESTAMPTZ
from frazil.model.state import TableState
from frazil.retry import Attempt, commit_with_retry


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """`sync_id` is the target, `namespace.table`; `source_collection` is the table as its source calls it.

    `resume_token` and `high_water_mark_id` are the source's own words for where its stream goes on and which keys a
    first load has behind it; sources that have none leave them out. `updated_at` is given when it is recorded.
    """

    sync_id: str
    state: TableState
    source_collection: str
    source_database: str | None = None
    resume_token: str | None = None
    high_water_mark_id: str | None = None
    documents_processed: int = 0
    last_snapshot_id: int | None = None
    resolved: Position | None = None
    updated_at: datetime | None = None

    def __post_init__(self) -> None:
        if not self.sync_id or not self.source_collection:
            raise ValueError("a checkpoint names its target and its source")
        if self.documents_processed < 0:
            raise ValueError(f"{self.sync_id} cannot have taken {self.documents_processed} documents")


NAME = "checkpoints"
TIDY_EVERY = 50
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SCHEMA = system_schema(
    {
        "pipeline": STRING,
        "sync_id": STRING,
        "state": STRING,
        "source_database": STRING,
        "source_collection": STRING,
        "resume_token": STRING,
        "high_water_mark_id": STRING,
        "documents_processed": LONG,
        "last_snapshot_id": LONG,
        "resolved": STRING,
        "updated_at": TIMESTAMPTZ,
    },
    key=("pipeline", "sync_id"),
)
_log = logging.getLogger("frazil.checkpoints")


class Checkpoints:
    """The table of one catalog."""

    def __init__(self, catalog: Catalog, clock: Clock, *, tidy_every: int = TIDY_EVERY) -> None:
        """Old snapshots go once there are so many."""
        self._catalog = catalog
        self._clock = clock
        self._table = SystemTable(catalog, NAME, _SCHEMA, clock, partition_by="pipeline", short_history=True)
        self._tidy_every = tidy_every

    def record(self, job: JobId, rows: Sequence[Checkpoint]) -> bool:
        """These rows, in one commit, instead of all that the pipeline had before. Whether they are recorded: False,
        and a line in the log, if the catalog does not answer, says no, or others kept getting in the way."""
        twice = [name for name, times in Counter(row.sync_id for row in rows).items() if times > 1]
        if twice:
            raise ValueError(f"two checkpoints of one table: {', '.join(twice)}")
        try:
            self._replace(job, rows)
        except FrazilError as error:
            _log.warning("the checkpoints of pipeline %s were not recorded: %s; %s", job, error, error.hint)
            return False
        self._table.tidy(self._tidy_every)
        return True

    def recorded(self, job: JobId) -> list[Checkpoint]:
        """By target; empty if there is no such table. Raises CatalogUnavailable or CatalogRefused."""
        if not self._table.exists():
            return []
        table = self._catalog.spark.table(f"{self._catalog.settings.name}.{self._table.name.sql}")
        rows = table.where(F.col("pipeline") == job.text).withColumn("updated_at", F.unix_micros("updated_at"))
        return [_checkpoint(row) for row in rows.orderBy("sync_id").collect()]

    def _replace(self, job: JobId, rows: Sequence[Checkpoint]) -> None:
        values = [self._row(job, row) for row in rows]
        summary = {"frazil.operation": "checkpoint", "frazil.pipeline": job.text}

        def once(_lost: int) -> Attempt[None]:
            return Attempt(None, self._table.exchange(self._table.head(), job.text, {job.text: values}, summary))

        commit_with_retry(f"cannot write to {self._table.name}", once, self._clock)

    def _row(self, job: JobId, row: Checkpoint) -> dict[str, object]:
        return {
            "pipeline": job.text,
            "sync_id": row.sync_id,
            "state": row.state.value,
            "source_database": row.source_database,
            "source_collection": row.source_collection,
            "resume_token": row.resume_token,
            "high_water_mark_id": row.high_water_mark_id,
            "documents_processed": row.documents_processed,
            "last_snapshot_id": row.last_snapshot_id,
            "resolved": None if row.resolved is None else row.resolved.text,
            "updated_at": row.updated_at or self._clock.now(),
        }


def _checkpoint(row: Row) -> Checkpoint:
    return Checkpoint(
        sync_id=row.sync_id,
        state=TableState(row.state),
        source_database=row.source_database,
        source_collection=row.source_collection,
        resume_token=row.resume_token,
        high_water_mark_id=row.high_water_mark_id,
        documents_processed=row.documents_processed,
        last_snapshot_id=row.last_snapshot_id,
        resolved=None if row.resolved is None else parse_position(row.resolved),
        updated_at=_EPOCH + timedelta(microseconds=row.updated_at),
    )
