"""`_frazil.checkpoints`: where every table of every pipeline stands, one row for each, for people and their queries.

    record(job, rows) --> head --> Parquet of these rows --> one commit: the pipeline's partition is that file alone
                           ^                                   |
                           +---- moved meanwhile, or no word --+   a few times, then False

A mirror: nothing is ever decided from it (H48). So it neither stops a pipeline nor is worth waiting for: what could
not be recorded is logged, and the next epoch's record makes it good. Snapshots behind the newest are of no use to
anybody and go once there are many, with the files that only they had.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from pyspark.sql import Row
from pyspark.sql import functions as F

from frazil.clock import Clock
from frazil.errors import FrazilError
from frazil.lake.catalogs import Catalog
from frazil.lake.system_tables import SystemTable, system_shape
from frazil.model.checkpoint import Checkpoint
from frazil.model.columns import LONG, STRING, TIMESTAMPTZ
from frazil.model.commit import Accepted, Refused
from frazil.model.names import JobId
from frazil.model.position import parse_position
from frazil.model.state import TableState

NAME = "checkpoints"
TIDY_EVERY = 50
_ATTEMPTS = 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHAPE = system_shape(
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
        self._table = SystemTable(catalog, NAME, _SHAPE, clock, partition_by="pipeline", short_history=True)
        self._tidy_every = tidy_every

    def record(self, job: JobId, rows: Sequence[Checkpoint]) -> bool:
        """These rows, in one commit, instead of all that the pipeline had before. Whether they are recorded: False,
        and a line in the log, if the catalog does not answer, says no, or others kept getting in the way."""
        twice = [name for name, times in Counter(row.sync_id for row in rows).items() if times > 1]
        if twice:
            raise ValueError(f"two checkpoints of one table: {', '.join(twice)}")
        try:
            problem = self._replace(job, rows)
        except FrazilError as error:
            problem = str(error)
        if problem is None:
            self._table.tidy(self._tidy_every)
        else:
            _log.warning("the checkpoints of pipeline %s were not recorded: %s", job, problem)
        return problem is None

    def recorded(self, job: JobId) -> list[Checkpoint]:
        """By target; empty if there is no such table. Raises CatalogUnavailable or CatalogRefused."""
        if not self._table.exists():
            return []
        table = self._catalog.spark.table(f"{self._catalog.settings.name}.{self._table.name.sql}")
        rows = table.where(F.col("pipeline") == job.text).withColumn("updated_at", F.unix_micros("updated_at"))
        return [_checkpoint(row) for row in rows.orderBy("sync_id").collect()]

    def _replace(self, job: JobId, rows: Sequence[Checkpoint]) -> str | None:
        """None, or why not."""
        values = [self._row(job, row) for row in rows]
        summary = {"frazil.operation": "checkpoint", "frazil.pipeline": job.text}
        last = ""
        for _ in range(_ATTEMPTS):
            answer = self._table.exchange(self._table.head(), job.text, {job.text: values}, summary)
            match answer:
                case Accepted():
                    return None
                case Refused(reason, hint):
                    return f"{reason}; {hint}" if hint else reason
                case _:
                    last = answer.reason
        return f"{_ATTEMPTS} attempts failed, the last one with: {last}"

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
