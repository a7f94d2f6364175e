"""Everything a pipeline counts, in a registry of its own.

    workers' FileClosed --+
    publisher's answers --+--> Metrics (one method for each thing that happens) --> registry --> text() --> /metrics
    daemon's positions ---+

Series by epoch would grow without bound, so only the newest epochs of a table are kept. The lag is computed when
it is asked for: a pipeline that hangs shows a growing lag, not its last good one. Some facts are told twice, under the
names `frazil_` or `iceberg_` and under those of `sync_`, for dashboards that know one or the other.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from frazil.clock import Clock
from frazil.model.state import TableState

EPOCHS_KEPT = 8
_LATENCY_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


Kind = TypeVar("Kind", bound=MetricWrapperBase)


@dataclass(frozen=True, slots=True)
class MetricSpec(Generic[Kind]):
    name: str
    type: type[Kind]
    labels: tuple[str, ...]
    help: str

    @property
    def kind(self) -> str:
        return self.type.__name__.lower()


FILES_CLOSED = MetricSpec(
    "iceberg_files_closed_total",
    Counter,
    ("table", "kind"),
    "Files that workers have closed and reported, by kind: data or equality-deletes.",
)
EPOCH_FILES = MetricSpec(
    "iceberg_epoch_files_total",
    Counter,
    ("table", "epoch"),
    f"Files buffered for one epoch. The newest {EPOCHS_KEPT} epochs of each table are kept.",
)
COMMIT_LATENCY = MetricSpec(
    "iceberg_commit_latency_seconds",
    Histogram,
    ("table",),
    "One commit: from asking the catalog to its answer, whatever that is.",
)
COMMIT_CONFLICTS = MetricSpec(
    "iceberg_commit_conflicts_total",
    Counter,
    ("table",),
    "Commits that the catalog refused because the table had moved on.",
)
DUPLICATES_SKIPPED = MetricSpec(
    "iceberg_duplicate_epochs_skipped_total",
    Counter,
    ("table",),
    "Epochs found already published by the look before the commit, and skipped.",
)
MANIFEST_BYTES = MetricSpec(
    "iceberg_manifest_entries_bytes",
    Gauge,
    ("table", "epoch"),
    f"Size of an epoch's manifest entries. The newest {EPOCHS_KEPT} epochs of each table are kept.",
)
LAG = MetricSpec(
    "frazil_lag_seconds",
    Gauge,
    ("table",),
    "Age of the newest published position by the source's clock, at the time of asking.",
)
ROWS = MetricSpec("frazil_rows_total", Counter, ("table", "kind"), "Changes published, by kind: upsert or delete.")
DROPPED = MetricSpec(
    "frazil_dropped_changes_total",
    Counter,
    ("table",),
    "Changes at or below the published position: duplicates of an at-least-once feed, or too late.",
)
LEFT_OUT = MetricSpec(
    "frazil_left_out_values_total",
    Counter,
    ("table",),
    "Values of fields that an explicit mapping does not name; the log tells each field once.",
)
QUARANTINED = MetricSpec("frazil_quarantined_rows", Gauge, ("table",), "Changes of a table that are in its quarantine.")
PUBLISHED = MetricSpec("frazil_epochs_published_total", Counter, ("table",), "Epochs published.")
STATE = MetricSpec("frazil_table_state", Gauge, ("table", "state"), "1 for the state a table is in, 0 for the others.")
LOADED = MetricSpec(
    "sync_initial_documents_processed_total", Counter, ("table",), "Rows or documents that first loads published."
)
EVENTS = MetricSpec(
    "sync_changestream_events_processed_total",
    Counter,
    ("table",),
    "Changes published after the first load, deletes included; several changes of a key in one epoch are one.",
)
COMMITS = MetricSpec("sync_iceberg_commits_total", Counter, ("table",), "Commits that the catalog accepted.")
ALL_COMMIT_LATENCY = MetricSpec(
    "sync_iceberg_commit_latency_seconds",
    Histogram,
    (),
    "One commit of any table: from asking the catalog to its answer, whatever that is.",
)
ERRORS = MetricSpec(
    "sync_errors_total",
    Counter,
    ("table", "type"),
    "Errors that held up a table, by their type: SourceUnavailable, BadInput, ...",
)
STATE_NUMBER = MetricSpec(
    "sync_state",
    Gauge,
    ("table",),
    f"The state a table is in: {', '.join(f'{number} {state.value}' for number, state in enumerate(TableState))}.",
)

DATA_FILES = MetricSpec("frazil_data_files", Gauge, ("table",), "Data files that a table holds.")
DELETE_FILES = MetricSpec("frazil_delete_files", Gauge, ("table",), "Delete files and vectors that a table holds.")
SNAPSHOTS = MetricSpec("frazil_snapshots", Gauge, ("table",), "Snapshots of a table that can be read.")
UNMAINTAINED = MetricSpec(
    "frazil_maintenance_debt_commits", Gauge, ("table",), "Commits since a table's files were looked at."
)
FINISHED = MetricSpec(
    "frazil_maintenance_finished",
    Gauge,
    ("table",),
    "1 if a table is as good to read as maintenance makes it: the stream rests, and nothing is left to do.",
)
MAINTAINED = MetricSpec(
    "frazil_maintenance_runs_total",
    Counter,
    ("table", "action", "outcome"),
    "What maintenance had to do: convert, compact, manifests, expire, sweep, delete; by outcome: done or failed.",
)
MAINTENANCE_SECONDS = MetricSpec(
    "frazil_maintenance_seconds_total", Counter, ("table", "action"), "Time that maintenance took."
)

METRICS = tuple(spec for spec in list(globals().values()) if isinstance(spec, MetricSpec))
"""All of the above, in their order."""


class Metrics:
    """What happened to which table. All methods may be called from any thread."""

    def __init__(self, clock: Clock) -> None:
        self.registry = CollectorRegistry()
        self._clock = clock
        self._lock = Lock()
        self._states: dict[str, TableState] = {}
        self._epochs: defaultdict[str, deque[str]] = defaultdict(deque)
        self._metrics = {spec: self._registered(spec) for spec in METRICS}

    def file_closed(self, table: str, kind: str, epoch: str) -> None:
        self._of(FILES_CLOSED).labels(table, kind).inc()
        with self._lock:
            self._keep(table, epoch)
            self._of(EPOCH_FILES).labels(table, epoch).inc()

    def manifest_entries(self, table: str, epoch: str, size: int) -> None:
        with self._lock:
            self._keep(table, epoch)
            self._of(MANIFEST_BYTES).labels(table, epoch).set(size)

    def commit_took(self, table: str, seconds: float) -> None:
        self._of(COMMIT_LATENCY).labels(table).observe(seconds)
        self._of(ALL_COMMIT_LATENCY).observe(seconds)

    def commit_conflicted(self, table: str) -> None:
        self._of(COMMIT_CONFLICTS).labels(table).inc()

    def duplicate_epoch_skipped(self, table: str) -> None:
        self._of(DUPLICATES_SKIPPED).labels(table).inc()

    def epoch_published(self, table: str) -> None:
        self._of(PUBLISHED).labels(table).inc()
        self._of(COMMITS).labels(table).inc()

    def rows_published(self, table: str, kind: str, rows: int) -> None:
        """They belong to the table's first load if that is the state it is in."""
        self._of(ROWS).labels(table, kind).inc(rows)
        is_loading = self._states.get(table) is TableState.INITIAL_SYNC
        (self._of(LOADED) if is_loading else self._of(EVENTS)).labels(table).inc(rows)

    def changes_dropped(self, table: str, changes: int) -> None:
        self._of(DROPPED).labels(table).inc(changes)

    def values_left_out(self, table: str, values: int) -> None:
        self._of(LEFT_OUT).labels(table).inc(values)

    def quarantined(self, table: str, rows: int) -> None:
        self._of(QUARANTINED).labels(table).set(rows)

    def resolved_at(self, table: str, source_time: datetime | None) -> None:
        """The newest published position, by the source's clock; None if its positions tell no time."""
        if source_time is not None:
            self._of(LAG).labels(table).set_function(lambda: max(0.0, self._age(source_time)))

    def table_is(self, table: str, state: TableState) -> None:
        if self._states.get(table) is state:
            return
        self._states[table] = state
        for each in TableState:
            self._of(STATE).labels(table, each.value).set(1 if each is state else 0)
        self._of(STATE_NUMBER).labels(table).set(list(TableState).index(state))

    def table_holds(self, table: str, data_files: int, delete_files: int, snapshots: int) -> None:
        self._of(DATA_FILES).labels(table).set(data_files)
        self._of(DELETE_FILES).labels(table).set(delete_files)
        self._of(SNAPSHOTS).labels(table).set(snapshots)

    def unmaintained(self, table: str, commits: int, *, finished: bool) -> None:
        self._of(UNMAINTAINED).labels(table).set(commits)
        self._of(FINISHED).labels(table).set(1 if finished else 0)

    def maintained(self, table: str, action: str, seconds: float, *, failed: bool) -> None:
        self._of(MAINTAINED).labels(table, action, "failed" if failed else "done").inc()
        self._of(MAINTENANCE_SECONDS).labels(table, action).inc(seconds)

    def failed(self, table: str, error: BaseException) -> None:
        """Something held the table up; it is tried again, or it stopped."""
        self._of(ERRORS).labels(table, type(error).__name__).inc()

    def tables_removed(self, tables: Collection[str]) -> None:
        """Forgets all series of tables that are no longer part of the pipeline: their lag would grow forever."""
        with self._lock:
            for table in tables:
                self._epochs.pop(table, None)
                self._states.pop(table, None)
            for spec, metric in self._metrics.items():
                if tables and "table" in spec.labels:
                    for labels in _series_of(metric, spec, tables):
                        metric.remove(*labels)

    def text(self) -> str:
        """The exposition that /metrics answers with."""
        return generate_latest(self.registry).decode()

    def _age(self, moment: datetime) -> float:
        return (self._clock.now() - moment).total_seconds()

    def _keep(self, table: str, epoch: str) -> None:
        """Remembers the epoch and forgets the oldest ones. Called with the lock held."""
        known = self._epochs[table]
        if epoch in known:
            return
        known.append(epoch)
        while len(known) > EPOCHS_KEPT:
            oldest = known.popleft()
            for metric in (self._of(EPOCH_FILES), self._of(MANIFEST_BYTES)):
                metric.remove(table, oldest)

    def _of(self, spec: MetricSpec[Kind]) -> Kind:
        metric = self._metrics[spec]
        assert isinstance(metric, spec.type)
        return metric

    def _registered(self, spec: MetricSpec[MetricWrapperBase]) -> MetricWrapperBase:
        more: dict[str, Any] = {"buckets": _LATENCY_BUCKETS} if spec.type is Histogram else {}
        metric = spec.type(spec.name, spec.help, spec.labels, registry=None, **more)
        self.registry.register(_WithoutCreationTimes(metric))
        return metric


def _series_of(
    metric: MetricWrapperBase, spec: MetricSpec[MetricWrapperBase], tables: Collection[str]
) -> set[tuple[str, ...]]:
    samples = (sample for family in metric.collect() for sample in family.samples)
    return {tuple(s.labels[name] for name in spec.labels) for s in samples if s.labels.get("table") in tables}


class _WithoutCreationTimes(Collector):
    """Leaves out the `_created` series, which double the exposition and tell nothing here."""

    def __init__(self, metric: MetricWrapperBase) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        for family in self._metric.collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family

    def describe(self) -> Iterable[Metric]:
        return self._metric.describe()
