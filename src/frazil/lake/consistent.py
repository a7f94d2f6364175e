"""`_frazil.consistent_epochs`: moments of a source at which all tables of a pipeline agree.

    record(R, {orders: s8, items: s5})  --> one row a table, in one commit
    recorded(job)                       --> newest first: R, and the snapshot of every table that shows it

A reader joins tables at one R by taking the snapshot that stands beside each. Nothing is decided from it: the ledgers
of the tables prove everything, and a lost row is made good by the next R.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pyspark.sql import functions as F

from frazil.clock import Clock
from frazil.lake.catalogs import Catalog
from frazil.lake.system_tables import SystemTable, system_shape
from frazil.model.columns import LONG, STRING, TIMESTAMPTZ
from frazil.model.commit import Accepted
from frazil.model.epoch import ConsistentEpoch
from frazil.model.names import JobId, TableName
from frazil.model.position import Position

NAME = "consistent_epochs"
_ATTEMPTS = 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHAPE = system_shape(
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


class ConsistentEpochs:
    """The table of one catalog."""

    def __init__(self, catalog: Catalog, clock: Clock) -> None:
        self._catalog = catalog
        self._clock = clock
        self._table = SystemTable(catalog, NAME, _SHAPE, clock)

    def record(self, job: JobId, resolved: Position, snapshots: Mapping[TableName, int | None]) -> bool:
        """Whether it is recorded; False if others kept getting in the way. Raises CatalogUnavailable, CatalogRefused
        or StorageUnavailable."""
        rows = [
            {
                "pipeline": job.text,
                "resolved": resolved.text,
                "source_time": resolved.source_time,
                "table": table.text,
                "snapshot_id": snapshot_id,
                "recorded_at": self._clock.now(),
            }
            for table, snapshot_id in snapshots.items()
        ]
        summary = {"frazil.operation": "consistent", "frazil.pipeline": job.text, "frazil.consistent": resolved.text}
        return any(
            isinstance(self._table.append(self._table.head(), rows, summary), Accepted) for _ in range(_ATTEMPTS)
        )

    def recorded(self, job: JobId, limit: int = 1000) -> Sequence[ConsistentEpoch]:
        """The newest so many, newest first. A moment that was recorded twice is told once."""
        if not self._table.exists():
            return ()
        table = self._catalog.spark.table(f"{self._catalog.settings.name}.{self._table.name.sql}")
        own = table.where(F.col("pipeline") == job.text)
        order = (F.col("source_time").desc(), F.col("resolved").desc())
        newest = own.select("source_time", "resolved").distinct().orderBy(*order).limit(limit)
        rows = (
            own.join(newest.select("resolved"), "resolved", "left_semi")
            .orderBy(*order, F.col("recorded_at"))
            .select("resolved", "table", "snapshot_id", F.col("recorded_at").cast("double"))
            .collect()
        )
        found: dict[str, ConsistentEpoch] = {}
        for resolved, name, snapshot_id, seconds in rows:
            at = _EPOCH + timedelta(seconds=seconds)
            known = found.get(resolved) or ConsistentEpoch(resolved=resolved, snapshots={}, recorded_at=at)
            found[resolved] = replace(known, snapshots={**known.snapshots, name: snapshot_id})
        return list(found.values())
