"""Keeps the tables of a pipeline small and fast: every action, on every table, in the order in which they help.

    convert   equality deletes become vectors          a compaction needs that, and so do readers that know vectors only
    compact   small files become larger ones
    manifests small lists of files become larger ones
    expire    snapshots go, their files are queued
    sweep     files that no commit took are queued
    delete    what was queued for long enough goes     once, after all tables; of dropped ones in every catalog, since
                                                       nobody names those any more

An action that fails is told, and the others go on: none of them needs another one to be right. All of them together
take no more cores at once than the budget says, so that a stream beside them has the others.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import cached_property, partial
from typing import Any

from pyspark.sql import SparkSession

from frazil.clock import Clock
from frazil.config.maintenance import MaintenanceConfig
from frazil.config.pipeline_config import PipelineConfig
from frazil.errors import FrazilError
from frazil.iceberg.commits.expire import SnapshotCommitter
from frazil.iceberg.system.deletion_queue import IcebergDeletionQueue
from frazil.iceberg.tables.manifests import ManifestCommitter
from frazil.iceberg.tables.storage_files import TableFiles
from frazil.ingest.catalog_handles import CatalogHandle, Catalogs
from frazil.maintenance.budget import Allowance
from frazil.maintenance.commit_rewrite import Turn
from frazil.maintenance.compact.planner import CompactSettings
from frazil.maintenance.compact.runner import Compact
from frazil.maintenance.compact.tasks import SparkRewriting
from frazil.maintenance.convert.planner import ConvertPlan, ConvertSettings
from frazil.maintenance.convert.runner import Convert
from frazil.maintenance.convert.tasks import SparkConverting
from frazil.maintenance.expire.planner import Expire, ExpireSettings, Keep, Period
from frazil.maintenance.orphans import Sweep
from frazil.maintenance.queue import DeletionWorker, QueueSettings
from frazil.maintenance.rewrite_manifests import ManifestSettings, MergeManifests
from frazil.maintenance.triggers import EVERYTHING
from frazil.model.ids import TableName
from frazil.model.ledger import TableHead
from frazil.model.results import MaintenanceStep
from frazil.model.sort import parse_sort
from frazil.observability.logs import Log

QUEUE = "_frazil.deletion_queue"
DELETE = "delete"
COMMIT_BYTES = 1 << 30
"""What one snapshot of a compaction replaces at most: between two of them it may be stopped."""
ROW_GROUP_ROWS = 1 << 18
"""Of rewritten files, at most: threads and tasks of one reader share a file by its row groups."""
FINISH_FILES = 2
"""When nothing is to be left, two files that could be one are worth it; and so are two manifests."""
FINISHED_MANIFESTS = ManifestSettings(min_manifests=2, drops_empty=True)
_log = Log("frazil.maintenance")


def _always() -> bool:
    return True


class Maintenance:
    """Of one pipeline. With `bytes_per_hour` rewrites read no more than that."""

    def __init__(
        self,
        config: PipelineConfig,
        places: Catalogs,
        spark: SparkSession,
        clock: Clock,
        *,
        bytes_per_hour: int | None = None,
    ) -> None:
        self._config = config
        self._places = places
        self._spark = spark
        self._clock = clock
        self._allowance = None if bytes_per_hour is None else Allowance(bytes_per_hour, clock)
        self._benches: dict[str, _Bench] = {}

    def run(
        self,
        tables: Sequence[TableName],
        *,
        dry: bool = False,
        actions: Sequence[str] = EVERYTHING,
        finish: bool = True,
        proceed: Callable[[], bool] = _always,
        turn: Turn | None = None,
    ) -> Iterator[MaintenanceStep]:
        """What was done, or would be with `dry`, as it happens; tables to which nothing has to be done are left out.
        With `finish` whatever helps a reader is done, otherwise what is worth it beside a stream. Asks before each step
        whether to proceed, and between the commits of one. In a `turn` the pipeline publishes nothing to the tables."""
        wish = _Wish(dry, finish, proceed, turn)
        for table in tables:
            bench = self._bench(self._places.of(table))
            for name, action in bench.actions.items():
                if name in actions and proceed():
                    yield from self._step(table.text, name, partial(action, table, wish), dry)
        if DELETE in actions and proceed():
            for place in self._places.all:
                yield from self._step(QUEUE, DELETE, partial(self._bench(place).delete, tables, wish), dry)

    def head(self, table: TableName) -> TableHead:
        """Raises CatalogUnavailable, or TableChanged if the table is gone."""
        return self._places.of(table).committer.head(table)

    def _bench(self, place: CatalogHandle) -> _Bench:
        name = place.catalog.settings.name
        if name not in self._benches:
            self._benches[name] = _Bench(self._config, place, self._spark, self._clock, self._allowance)
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
                done=not dry and problem is None and found.done,
                seconds=round(self._clock.monotonic() - began, 3),
                error="" if problem is None else str(problem),
                hint="" if problem is None else problem.hint,
                exit_code=0 if problem is None else problem.exit_code,
            )


@dataclasses.dataclass(frozen=True, slots=True)
class _Wish:
    """How an action is to be done."""

    dry: bool
    finish: bool
    proceed: Callable[[], bool]
    turn: Turn | None


@dataclasses.dataclass(frozen=True, slots=True)
class _Found:
    reason: str
    counts: dict[str, int]
    done: bool = True


class _Bench:
    """The actions on the tables of one catalog."""

    def __init__(
        self,
        config: PipelineConfig,
        place: CatalogHandle,
        spark: SparkSession,
        clock: Clock,
        allowance: Allowance | None,
    ) -> None:
        self._settings: MaintenanceConfig = config.maintenance
        self._cores = cores_of(self._settings, spark.sparkContext.defaultParallelism)
        self._allowance = allowance
        own = config.parquet.settings
        self._parquet = dataclasses.replace(own, row_group_rows=min(own.row_group_rows, ROW_GROUP_ROWS))
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

    def convert(self, table: TableName, wish: _Wish) -> _Found | None:
        """To finish is to go on until nothing waits: one run takes so many keys and no more."""
        converting = SparkConverting(self._spark, self._clock, self._place.locators.settings, tasks=self._cores)
        made = Convert(self._place.committer, converting, self._clock, self._parquet, wish.turn)
        settings = ConvertSettings(min_delete_files=self._settings.convert.min_delete_files)

        def planned() -> ConvertPlan | None:
            head = self._place.committer.head(table)
            return made.plan(table, head, self._place.committer.live(table, head), settings)

        plan = planned()
        found = None if plan is None else _Found(plan.reason, plan.counts)
        if wish.dry:
            return found
        counts: Counter[str] = Counter()
        while plan is not None:
            done = made.perform(plan, settings)
            counts.update(_counts(done))
            found = _Found(plan.reason, {**counts, "waiting": done.waiting})
            plan = planned() if wish.finish and done.waiting and wish.proceed() else None
        return found

    def compact(self, table: TableName, wish: _Wish) -> _Found | None:
        rewriting = SparkRewriting(self._spark, self._clock, tasks=self._cores)
        made = Compact(self._place.committer, rewriting, self._clock, self._parquet, wish.turn)
        settings = self._compaction(wish.finish)
        head = self._place.committer.head(table)
        plan = made.plan(table, head, self._place.committer.live(table, head), settings)
        if plan is None:
            return None
        if wish.dry:
            return _Found(plan.reason, plan.counts)
        if self._allowance is not None:
            if self._allowance.left <= 0:
                return _Found(f"{self._allowance.wait_text}; {plan.reason}", plan.counts, done=False)
            self._allowance.take(plan.counts["bytes"])
        done = made.perform(plan, proceed=wish.proceed)
        return _Found(plan.reason, {**_counts(done), "waiting": plan.waiting + done.left})

    def _compaction(self, finish: bool) -> CompactSettings:
        own = self._settings.compact
        left = own.budget if self._allowance is None else max(1, min(own.budget, self._allowance.left))
        settings = CompactSettings(
            target_file_bytes=own.target_file_size,
            min_input_files=own.min_input_files,
            delete_ratio=own.delete_ratio,
            budget_bytes=left,
            commit_bytes=COMMIT_BYTES,
            order_by=tuple(parse_sort(text) for text in own.order_by),
            zorder_by=own.zorder_by,
            sorted_files=own.sorted_files,
        )
        if not finish:
            return settings
        ratio = min(own.delete_ratio, own.rest_delete_ratio)
        return dataclasses.replace(settings, min_input_files=FINISH_FILES, delete_ratio=ratio, tiered=False)

    def merge_manifests(self, table: TableName, wish: _Wish) -> _Found | None:
        made = MergeManifests(ManifestCommitter(self._place.catalog), self._clock)
        settings = FINISHED_MANIFESTS if wish.finish else ManifestSettings()
        plan = made.plan(table, self._place.committer.head(table), settings)
        if plan is None:
            return None
        return _Found(plan.reason, plan.counts if wish.dry else _counts(made.perform(plan)))

    def expire(self, table: TableName, wish: _Wish) -> _Found | None:
        own = self._settings.expire
        settings = ExpireSettings(
            max_age=timedelta(seconds=own.max_age),
            max_snapshots=own.max_snapshots,
            min_snapshots=own.min_snapshots,
            min_epochs=own.min_epochs,
            keep=tuple(Keep(Period(period), timedelta(seconds=seconds)) for period, seconds in own.rules),
        )
        made = Expire(SnapshotCommitter(self._place.catalog), self._queue, settings, self._clock, wish.turn)
        plan = made.plan(table)
        if plan is None:
            return None
        return _Found(plan.reason, plan.counts if wish.dry else _counts(made.perform(table)))

    def sweep(self, table: TableName, wish: _Wish) -> _Found | None:
        older_than = timedelta(seconds=self._settings.orphans.older_than)
        made = Sweep(self._files, self._queue, older_than, self._clock)
        swept = made.plan(table)[0] if wish.dry else made.perform(table)
        if not swept.queued and not swept.skipped:
            return None
        return _Found(swept.skipped or "files that no commit took", _counts(swept))

    def delete(self, tables: Sequence[TableName], wish: _Wish) -> _Found | None:
        own = self._settings.queue
        settings = QueueSettings(
            grace=timedelta(seconds=own.grace), max_retries=own.max_retries, delete_outside=own.delete_outside
        )
        worker = DeletionWorker(self._queue, self._files, settings, self._clock)
        if wish.dry:
            rows = sum(len(rows) for _, rows in worker.plan(tables))
            return _Found("queued for longer than the grace period", {"files": rows}) if rows else None
        cleaned = worker.perform(tables, wish.proceed)
        counts = _counts(cleaned)
        if not any(value for name, value in counts.items() if name != "waiting"):
            return None
        reason = "queued for longer than the grace period"
        if cleaned.outside:
            reason += "; files outside of their tables' locations are left (maintenance.queue.delete_outside)"
        return _Found(reason, counts)

    @cached_property
    def _queue(self) -> IcebergDeletionQueue:
        return IcebergDeletionQueue(self._place.catalog, self._clock, batch_files=self._settings.queue.batch_files)

    @cached_property
    def _files(self) -> TableFiles:
        return TableFiles(self._place.catalog, self._queue.name)


def cores_of(settings: MaintenanceConfig, all_cores: int) -> int:
    """How many tasks may run at once: half of the cores if nothing else is said, and never more than there are."""
    return max(1, min(all_cores, settings.budget.cores or all_cores // 2))


def _counts(done: Any) -> dict[str, int]:
    """The numbers of what an action tells."""
    values = {field.name: getattr(done, field.name) for field in dataclasses.fields(done)}
    return {name: value for name, value in values.items() if isinstance(value, int) and name != "snapshot_id"}
