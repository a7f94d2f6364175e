"""Keeps the tables of a pipeline small and fast: every action, on every table, in the order in which they help.

    convert   equality deletes become vectors          a compaction needs that, and so do readers that know vectors only
    compact   small files become larger ones
    manifests small lists of files become larger ones
    expire    snapshots go, their files are queued
    sweep     files that no commit took are queued
    delete    what was queued for long enough goes     once, after all tables

An action that fails is told, and the others go on: none of them needs another one to be right.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import cached_property, partial
from typing import Any

from pyspark.sql import SparkSession

from frazil.clock import Clock
from frazil.config.maintenance import MaintenanceConfig
from frazil.config.model import PipelineConfig
from frazil.daemon.places import Place, Places
from frazil.daemon.results import MaintenanceStep
from frazil.errors import FrazilError
from frazil.lake.deletions import IcebergDeletionQueue
from frazil.lake.expiry import SnapshotLake
from frazil.lake.manifests import ManifestLake
from frazil.lake.table_files import TableFiles
from frazil.maintenance.compact import CompactSettings
from frazil.maintenance.compact_run import Compact
from frazil.maintenance.convert import ConvertSettings
from frazil.maintenance.convert_run import Convert
from frazil.maintenance.deletion_queue import DeletionWorker, QueueSettings
from frazil.maintenance.expire import Expire, ExpireSettings, Keep, Period
from frazil.maintenance.manifests import MergeManifests
from frazil.maintenance.orphans import Sweep
from frazil.model.names import TableName
from frazil.observability.logs import Log
from frazil.workers.converting import SparkConverting
from frazil.workers.rewriting import SparkRewriting

QUEUE = "_frazil.deletion_queue"
_log = Log("frazil.maintenance")


class Maintenance:
    """Of one pipeline. `dry` plans and changes nothing."""

    def __init__(self, config: PipelineConfig, places: Places, spark: SparkSession, clock: Clock) -> None:
        self._config = config
        self._places = places
        self._spark = spark
        self._clock = clock
        self._benches: dict[str, _Bench] = {}

    def run(self, tables: Sequence[TableName], *, dry: bool) -> Iterator[MaintenanceStep]:
        """What was done, or would be, as it happens; tables to which nothing has to be done are left out."""
        for table in tables:
            bench = self._bench(self._places.of(table))
            for name, action in bench.actions.items():
                yield from self._step(table.text, name, partial(action, table, dry), dry)
        for place in dict.fromkeys(map(self._places.of, tables)):
            yield from self._step(QUEUE, "delete", partial(self._bench(place).delete, tables, dry), dry)

    def _bench(self, place: Place) -> _Bench:
        name = place.catalog.settings.name
        if name not in self._benches:
            self._benches[name] = _Bench(self._config, place, self._spark, self._clock)
        return self._benches[name]

    def _step(self, table: str, name: str, work: Callable[[], _Found | None], dry: bool) -> Iterator[MaintenanceStep]:
        began = self._clock.monotonic()
        problem: FrazilError | None = None
        try:
            found = work()
        except FrazilError as error:
            _log.warning("maintenance failed; the table is as it was", table=table, action=name, reason=str(error))
            found, problem = _Found("failed", {}), error
        if found is not None:
            yield MaintenanceStep(
                table=table,
                action=name,
                reason=found.reason,
                counts=found.counts,
                done=not dry and problem is None,
                seconds=round(self._clock.monotonic() - began, 3),
                error="" if problem is None else str(problem),
                hint="" if problem is None else problem.hint,
            )


@dataclasses.dataclass(frozen=True, slots=True)
class _Found:
    reason: str
    counts: dict[str, int]


class _Bench:
    """The actions on the tables of one catalog."""

    def __init__(self, config: PipelineConfig, place: Place, spark: SparkSession, clock: Clock) -> None:
        self._settings: MaintenanceConfig = config.maintenance
        self._parquet = config.parquet.settings
        self._place = place
        self._spark = spark
        self._clock = clock
        self.actions = {
            "convert": self.convert,
            "compact": self.compact,
            "manifests": self.merge_manifests,
            "expire": self.expire,
            "sweep": self.sweep,
        }

    def convert(self, table: TableName, dry: bool) -> _Found | None:
        made = Convert(self._place.lake, SparkConverting(self._spark, self._clock), self._clock, self._parquet)
        settings = ConvertSettings(min_delete_files=self._settings.convert.min_delete_files)
        head = self._place.lake.head(table)
        plan = made.plan(table, head, self._place.lake.live(table, head), settings)
        if plan is None:
            return None
        return _Found(plan.reason, plan.counts if dry else _counts(made.perform(plan, settings)))

    def compact(self, table: TableName, dry: bool) -> _Found | None:
        made = Compact(self._place.lake, SparkRewriting(self._spark, self._clock), self._clock, self._parquet)
        own = self._settings.compact
        settings = CompactSettings(
            target_file_bytes=own.target_file_size,
            min_input_files=own.min_input_files,
            delete_ratio=own.delete_ratio,
            budget_bytes=own.budget,
        )
        head = self._place.lake.head(table)
        plan = made.plan(table, head, self._place.lake.live(table, head), settings)
        if plan is None:
            return None
        return _Found(plan.reason, plan.counts if dry else _counts(made.perform(plan)))

    def merge_manifests(self, table: TableName, dry: bool) -> _Found | None:
        made = MergeManifests(ManifestLake(self._place.catalog), self._clock)
        plan = made.plan(table, self._place.lake.head(table))
        if plan is None:
            return None
        return _Found(plan.reason, plan.counts if dry else _counts(made.perform(plan)))

    def expire(self, table: TableName, dry: bool) -> _Found | None:
        own = self._settings.expire
        settings = ExpireSettings(
            max_age=timedelta(seconds=own.max_age),
            max_snapshots=own.max_snapshots,
            min_snapshots=own.min_snapshots,
            min_epochs=own.min_epochs,
            keep=tuple(Keep(Period(period), timedelta(seconds=seconds)) for period, seconds in own.rules),
        )
        made = Expire(SnapshotLake(self._place.catalog), self._queue, settings, self._clock)
        plan = made.plan(table)
        if plan is None:
            return None
        return _Found(plan.reason, plan.counts if dry else _counts(made.perform(table)))

    def sweep(self, table: TableName, dry: bool) -> _Found | None:
        older_than = timedelta(seconds=self._settings.orphans.older_than)
        made = Sweep(self._files, self._queue, older_than, self._clock)
        swept = made.plan(table)[0] if dry else made.perform(table)
        if not swept.queued and not swept.skipped:
            return None
        return _Found(swept.skipped or "files that no commit took", _counts(swept))

    def delete(self, tables: Sequence[TableName], dry: bool) -> _Found | None:
        own = self._settings.queue
        settings = QueueSettings(grace=timedelta(seconds=own.grace), max_retries=own.max_retries)
        worker = DeletionWorker(self._queue, self._files, settings, self._clock)
        if dry:
            rows = sum(len(rows) for _, rows in worker.plan())
            return _Found("queued for longer than the grace period", {"files": rows}) if rows else None
        cleaned = worker.perform(tables)
        touched = cleaned.deleted + cleaned.dismissed + cleaned.expanded + cleaned.failed + cleaned.given_up
        return _Found("queued for longer than the grace period", _counts(cleaned)) if touched else None

    @cached_property
    def _queue(self) -> IcebergDeletionQueue:
        return IcebergDeletionQueue(self._place.catalog, self._clock, batch_files=self._settings.queue.batch_files)

    @cached_property
    def _files(self) -> TableFiles:
        return TableFiles(self._place.catalog, self._queue.name)


def _counts(done: Any) -> dict[str, int]:
    """The numbers of what an action tells."""
    values = {field.name: getattr(done, field.name) for field in dataclasses.fields(done)}
    return {name: value for name, value in values.items() if isinstance(value, int) and name != "snapshot_id"}
