"""Everything a pipeline counts, in a registry of its own.

    workers' FileClosed --+
    publisher's answers --+--> Metrics (one method for each thing that happens) --> registry --> /metrics
    daemon's positions ---+

Series by epoch would grow without bound, so only the newest epochs of a table are kept. The lag is computed when
it is asked for: a pipeline that hangs shows a growing lag, not its last good one.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from types import TracebackType

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, start_http_server
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from frazil.clock import Clock
from frazil.errors import ConfigError
from frazil.model.state import TableState

EPOCHS_KEPT = 8
_LATENCY_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True, slots=True)
class MetricSpec:
    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


FILES_CLOSED = MetricSpec(
    "iceberg_files_closed_total",
    "counter",
    ("table", "kind"),
    "Files that workers have closed and reported, by kind: data or equality-deletes.",
)
EPOCH_FILES = MetricSpec(
    "iceberg_epoch_files_total",
    "counter",
    ("table", "epoch"),
    f"Files buffered for one epoch. The newest {EPOCHS_KEPT} epochs of each table are kept.",
)
COMMIT_LATENCY = MetricSpec(
    "iceberg_commit_latency_seconds",
    "histogram",
    ("table",),
    "One commit: from asking the catalog to its answer, whatever that is.",
)
COMMIT_CONFLICTS = MetricSpec(
    "iceberg_commit_conflicts_total",
    "counter",
    ("table",),
    "Commits that the catalog refused because the table had moved on.",
)
DUPLICATES_SKIPPED = MetricSpec(
    "iceberg_duplicate_epochs_skipped_total",
    "counter",
    ("table",),
    "Epochs found already published by the look before the commit, and skipped.",
)
MANIFEST_BYTES = MetricSpec(
    "iceberg_manifest_entries_bytes",
    "gauge",
    ("table", "epoch"),
    f"Size of an epoch's manifest entries. The newest {EPOCHS_KEPT} epochs of each table are kept.",
)
LAG = MetricSpec(
    "frazil_lag_seconds",
    "gauge",
    ("table",),
    "Age of the newest published position by the source's clock, at the time of asking.",
)
ROWS = MetricSpec("frazil_rows_total", "counter", ("table", "kind"), "Changes published, by kind: upsert or delete.")
DROPPED = MetricSpec(
    "frazil_dropped_changes_total",
    "counter",
    ("table",),
    "Changes at or below the published position: duplicates of an at-least-once feed, or too late.",
)
QUARANTINED = MetricSpec(
    "frazil_quarantined_rows", "gauge", ("table",), "Changes of a table that are in its quarantine."
)
PUBLISHED = MetricSpec("frazil_epochs_published_total", "counter", ("table",), "Epochs published.")
STATE = MetricSpec(
    "frazil_table_state", "gauge", ("table", "state"), "1 for the state a table is in, 0 for the others."
)

METRICS = (
    FILES_CLOSED,
    EPOCH_FILES,
    COMMIT_LATENCY,
    COMMIT_CONFLICTS,
    DUPLICATES_SKIPPED,
    MANIFEST_BYTES,
    LAG,
    ROWS,
    DROPPED,
    QUARANTINED,
    PUBLISHED,
    STATE,
)


class Metrics:
    """What happened to which table. All methods may be called from any thread."""

    def __init__(self, clock: Clock) -> None:
        self.registry = CollectorRegistry()
        self._clock = clock
        self._lock = Lock()
        self._epochs: defaultdict[str, deque[str]] = defaultdict(deque)
        self._files_closed = self._counter(FILES_CLOSED)
        self._epoch_files = self._counter(EPOCH_FILES)
        self._commit_latency = Histogram(
            COMMIT_LATENCY.name, COMMIT_LATENCY.help, COMMIT_LATENCY.labels, buckets=_LATENCY_BUCKETS, registry=None
        )
        self._conflicts = self._counter(COMMIT_CONFLICTS)
        self._duplicates = self._counter(DUPLICATES_SKIPPED)
        self._manifest_bytes = self._gauge(MANIFEST_BYTES)
        self._lag = self._gauge(LAG)
        self._rows = self._counter(ROWS)
        self._dropped = self._counter(DROPPED)
        self._quarantined = self._gauge(QUARANTINED)
        self._published = self._counter(PUBLISHED)
        self._state = self._gauge(STATE)
        self._register(self._commit_latency)

    def file_closed(self, table: str, kind: str, epoch: str) -> None:
        self._files_closed.labels(table, kind).inc()
        with self._lock:
            self._keep(table, epoch)
            self._epoch_files.labels(table, epoch).inc()

    def manifest_entries(self, table: str, epoch: str, size: int) -> None:
        with self._lock:
            self._keep(table, epoch)
            self._manifest_bytes.labels(table, epoch).set(size)

    def commit_took(self, table: str, seconds: float) -> None:
        self._commit_latency.labels(table).observe(seconds)

    def commit_conflicted(self, table: str) -> None:
        self._conflicts.labels(table).inc()

    def duplicate_epoch_skipped(self, table: str) -> None:
        self._duplicates.labels(table).inc()

    def epoch_published(self, table: str) -> None:
        self._published.labels(table).inc()

    def rows_published(self, table: str, kind: str, rows: int) -> None:
        self._rows.labels(table, kind).inc(rows)

    def changes_dropped(self, table: str, changes: int) -> None:
        self._dropped.labels(table).inc(changes)

    def quarantined(self, table: str, rows: int) -> None:
        self._quarantined.labels(table).set(rows)

    def resolved_at(self, table: str, source_time: datetime | None) -> None:
        """The newest published position, by the source's clock; None if its positions tell no time."""
        if source_time is not None:
            self._lag.labels(table).set_function(lambda: max(0.0, self._age(source_time)))

    def table_is(self, table: str, state: TableState) -> None:
        for each in TableState:
            self._state.labels(table, each.value).set(1 if each is state else 0)

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
            for metric in (self._epoch_files, self._manifest_bytes):
                metric.remove(table, oldest)

    def _counter(self, spec: MetricSpec) -> Counter:
        counter = Counter(spec.name, spec.help, spec.labels, registry=None)
        self._register(counter)
        return counter

    def _gauge(self, spec: MetricSpec) -> Gauge:
        return Gauge(spec.name, spec.help, spec.labels, registry=self.registry)

    def _register(self, metric: MetricWrapperBase) -> None:
        self.registry.register(_WithoutCreationTimes(metric))


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


class MetricsServer:
    """The endpoint /metrics. Port 0 takes any free one; `port` tells which."""

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        """Raises ConfigError if the address cannot be had."""
        try:
            self._server, self._thread = start_http_server(port, addr=host, registry=metrics.registry)
        except OSError as error:
            raise ConfigError(
                f"the metrics endpoint cannot listen on {host}:{port}: {(error.strerror or str(error)).lower()}",
                hint="choose another metrics.port, or 0 to turn the endpoint off",
                host=host,
                port=port,
            ) from error
        self.host = host
        self.port = int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/metrics"

    def stop(self) -> None:
        """Safe to call twice."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
