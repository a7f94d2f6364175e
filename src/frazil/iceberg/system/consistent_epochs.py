"""`_frazil.consistent_epochs`: moments of a source at which all tables of a pipeline agree.

    record(R, {orders: s8, items: s5})  --> one row a table, in one commit
        `-- now and then                --> the newest moments in one file, instead of all there were
    recorded(job)                       --> newest first: R, and the snapshot of every table that shows it

A reader joins tables at one R by taking the snapshot that stands beside each. Nothing is decided from it: the ledgers
of the tables prove everything, and a lost row is made good by the next R.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import functions as F

from frazil.clock import Clock
from frazil.errors import CatalogRefused, FrazilError
from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.jvm.errors import JAVA_ERRORS
from frazil.iceberg.system.system_table import SystemTable, system_schema
from frazil.model.commit import Refused
from frazil.model.frontier import ConsistentEpoch, Frontier
from frazil.model.ids import JobId, TableName
from frazil.model.ledger import TableHead
from frazil.model.schema import LONG, STRING, TIMESTAMPTZ
from frazil.retry import Attempt, commit_with_retry

NAME = "consistent_epochs"
KEPT = 1000
"""Moments of a pipeline. Of each table fewer snapshots stay by default, and a moment is of no use without them."""
TIDY_EVERY = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SCHEMA = system_schema(
    {
        "pipeline": STRING,
        "resolved": STRING,
        "source_time": TIMESTAMPTZ,
        "table": STRING,
        "snapshot_id": LONG,
        "recorded_at": TIMESTAMPTZ,
    },
    key=("pipeline", "resolved", "table"),
)
_log = logging.getLogger("frazil.catalog")
_TIMES = [column.name for column in _SCHEMA.columns if column.type == TIMESTAMPTZ]


class ConsistentEpochs:
    """The table of one catalog."""

    def __init__(self, catalog: Catalog, clock: Clock, *, kept: int = KEPT, tidy_every: int = TIDY_EVERY) -> None:
        """So many moments of a pipeline stay; that is seen to with every so many records."""
        self._catalog = catalog
        self._clock = clock
        self._kept = kept
        self._tidy_every = tidy_every
        # The first record finds what other processes left.
        self._untidy = tidy_every
        self._table = SystemTable(catalog, NAME, _SCHEMA, clock, partition_by="pipeline", short_history=True)

    def record(self, job: JobId, resolved: Frontier, snapshots: Mapping[TableName, int | None]) -> bool:
        """False if the catalog does not let us. Raises CatalogUnavailable, OutcomeUnknown or StorageUnavailable."""
        text = resolved.position.text
        rows = [
            {
                "pipeline": job.text,
                "resolved": text,
                "source_time": resolved.source_time,
                "table": table.text,
                "snapshot_id": snapshot_id,
                "recorded_at": self._clock.now(),
            }
            for table, snapshot_id in snapshots.items()
        ]
        summary = {
            "frazil.operation": "consistent",
            "frazil.pipeline": job.text,
            "frazil.consistent": text,
        }

        def once(_lost: int) -> Attempt[TableHead]:
            head = self._table.head()
            return Attempt(head, self._table.exchange(head, None, {job.text: rows}, summary))

        try:
            head, _ = commit_with_retry(f"cannot write to {self._table.name}", once, self._clock)
        except CatalogRefused as error:
            _log.warning("the moments of pipeline %s were not recorded: %s; %s", job, error, error.hint)
            return False
        self._tidy(job, head)
        return True

    def recorded(self, job: JobId) -> Sequence[ConsistentEpoch]:
        """The newest ones, newest first. A moment that was recorded twice is told once."""
        if not self._table.exists():
            return ()
        found: dict[str, ConsistentEpoch] = {}
        for row in self._newest(job):
            known = found.get(row["resolved"]) or ConsistentEpoch(
                resolved=row["resolved"],
                snapshots={},
                recorded_at=row["recorded_at"],
                source_time=row["source_time"],
            )
            snapshots = {**known.snapshots, row["table"]: row["snapshot_id"]}
            found[row["resolved"]] = replace(known, snapshots=snapshots)
        return list(found.values())

    def _tidy(self, job: JobId, before: TableHead) -> None:
        """`before` is the head that was recorded on. If others get in the way, or it fails, the next time will do."""
        self._untidy += 1
        files = int(before.ancestry[0].summary.get("total-data-files", 0)) if before.ancestry else 0
        if min(files, self._untidy) >= self._tidy_every:
            self._untidy = 0
            try:
                self._keep_newest(job)
            except (FrazilError, *JAVA_ERRORS) as error:
                _log.warning("the moments of pipeline %s were not tidied: %s", job, error)
        self._table.tidy(self._tidy_every)

    def _keep_newest(self, job: JobId) -> None:
        head = self._table.head()
        summary = {"frazil.operation": "tidy", "frazil.pipeline": job.text}
        answer = self._table.exchange(head, job.text, {job.text: self._newest(job, head.snapshot_id)}, summary)
        if isinstance(answer, Refused):
            _log.warning("the moments of pipeline %s are not tidied: %s", job, answer.reason)

    def _newest(self, job: JobId, snapshot_id: int | None = None) -> list[dict[str, Any]]:
        """The rows of the newest moments: as of now, or of a snapshot."""
        version = "" if snapshot_id is None else f" VERSION AS OF {snapshot_id}"
        name = f"`{self._catalog.settings.name}`.{self._table.name.sql}"
        own = self._catalog.spark.sql(f"SELECT * FROM {name}{version}").where(F.col("pipeline") == job.text)
        # Of positions that tell no time, and of which none is known, the one that was recorded last is the newest.
        order = (F.col("time").desc(), F.col("first").desc(), F.col("resolved").desc())
        moments = own.groupBy("resolved").agg(F.max("source_time").alias("time"), F.min("recorded_at").alias("first"))
        newest = moments.orderBy(*order).limit(self._kept)
        rows = own.join(newest, "resolved").orderBy(*order, F.col("recorded_at"))
        for name in _TIMES:
            rows = rows.withColumn(name, F.unix_micros(name))
        return [
            {**row.asDict(), **{name: _moment(row[name]) for name in _TIMES}}
            for row in rows.select(*(column.name for column in _SCHEMA.columns)).collect()
        ]


def _moment(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else _EPOCH + timedelta(microseconds=microseconds)
