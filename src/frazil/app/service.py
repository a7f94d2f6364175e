"""A pipeline that keeps running: whatever ends one run of it without being asked to, another one follows.

    assembled --> Supervisor --stopped--------------------------------------> summary
        ^             |
        |             +-- SIGHUP, POST /reload: the new configuration loads --> assembled anew, same Spark
        +-------------+
        |             +-- the JVM died or hangs (H56) --> forgotten, a new one started, assembled anew
        +-------------+

Every run begins by reading the tables' ledgers, so none of them needs anything of the one before.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime
from threading import Event
from typing import Protocol

from frazil import errors
from frazil.app.assemble import Assembly
from frazil.app.pidfile import announced, check_alone
from frazil.clock import Clock
from frazil.config.pipeline_config import PipelineConfig
from frazil.config.secrets import Redactor
from frazil.iceberg.jvm.watchdog import JvmWatch
from frazil.ingest.loop.debounce import Debounced
from frazil.ingest.loop.supervisor import Outcome, Supervisor
from frazil.ingest.loop.table_state import backoff
from frazil.ingest.loop.target_tables import TargetTable
from frazil.maintenance.runner import Maintenance
from frazil.maintenance.scheduler import Autovacuum
from frazil.model.results import RunProgress, RunSummary, TableProgress
from frazil.model.state import TableState
from frazil.observability.logs import Log
from frazil.observability.metrics import Metrics
from frazil.serve.http.health import Health, Pulse
from frazil.serve.http.server import DaemonServer
from frazil.serve.http.timeseries import Timeseries
from frazil.sources.base import LoadsTables
from frazil.threads import SystemThreads

_log = Log("frazil.daemon")
_STARTING = "the pipeline is starting"
_NOT_TAKEN = "the new configuration is not taken; the old one goes on"
_SEEN_GONE_SECONDS = 1.0
_VACUUM_STOPS_SECONDS = 5.0


class Opens(Protocol):
    """A pipeline that can be assembled anew."""

    @property
    def assembled(self) -> Assembly: ...
    @property
    def owns_session(self) -> bool:
        """Whether Spark was started by us."""

    def reread(self) -> PipelineConfig:
        """Its configuration as it is now. Raises ConfigError."""

    def assemble_anew(self, config: PipelineConfig, *, new_session: bool) -> Assembly:
        """With `new_session` the one so far is forgotten, with its JVM."""


class Service:
    """One call of `Pipeline.run`. Also what may be asked of it over HTTP."""

    def __init__(
        self,
        pipeline: Opens,
        metrics: Metrics,
        clock: Clock,
        on_progress: Callable[[RunProgress], None] | None,
        stop: Event,
        reload: Event,
    ) -> None:
        self._pipeline = pipeline
        self._metrics = metrics
        self._clock = clock
        self._on_progress = on_progress
        self._stop = stop
        self._reload = reload
        self._started_at = clock.now()
        self._telling = Debounced(self._tell, clock, SystemThreads(), "frazil-progress")
        self._pulse = Pulse(clock)
        self._supervisor: Supervisor | None = None
        self._watch: JvmWatch | None = None
        self._next: PipelineConfig | None = None
        self._shown: set[str] = set()
        self._before = RunSummary(epochs=0, rows=0, deletes=0, dropped=0, tables=0, resolved=None)

    def run(self, once: bool, take_over: bool = False) -> RunSummary:
        """Publishes until `stop` is set, or with `once` until everything resolved is published. Raises ConfigError for
        a run `once` beside a daemon, unless it is to `take_over`."""
        config = self._pipeline.assembled.parts.config
        if once and not take_over:
            check_alone(config)
        server = self._server(config, once)
        try:
            with nullcontext() if once else announced(config, "" if server is None else server.url):
                self._run_to_its_end(once)
        finally:
            self._telling.end()
            if server is not None:
                server.stop()
        if self._telling.failure is not None:
            raise self._telling.failure
        return self._summary

    def _run_to_its_end(self, once: bool) -> None:
        losses = 0
        while True:
            outcome, lost = self._run(once)
            if outcome is Outcome.FINISHED:
                return
            self._before = self._summary
            if lost is None:
                assert self._next is not None
                self._assembled_anew(self._next)
                losses = 0
                continue
            losses += 1
            self._begin_after(lost, losses)

    def _run(self, once: bool) -> tuple[Outcome, str | None]:
        """Why it ended; with a text if the JVM was lost."""
        assembly = self._pipeline.assembled
        watch = JvmWatch(assembly.spark, lambda reason: None, may_kill=self._pipeline.owns_session, clock=self._clock)
        self._watch = watch
        self._supervisor = Supervisor(assembly.parts, lambda _: self._telling.ask(), self._stop, self._is_interrupted)
        vacuum = None if once else self._autovacuum(assembly, self._supervisor)
        try:
            outcome = self._supervisor.run(once)
        except Exception as error:
            if not isinstance(error, errors.FrazilError) or isinstance(error, errors.Transient):
                # A connection breaks a moment before the process behind it is seen to be gone.
                self._clock.wait(_SEEN_GONE_SECONDS)
            if watch.lost is None or self._stop.is_set():
                raise
            outcome = Outcome.INTERRUPTED
        finally:
            watch.stop()
            if vacuum is not None:
                vacuum.stop(_VACUUM_STOPS_SECONDS)
        return outcome, watch.lost if outcome is Outcome.INTERRUPTED else None

    def _autovacuum(self, assembly: Assembly, run: Supervisor) -> Autovacuum | None:
        config = assembly.parts.config
        if not config.maintenance.enabled:
            return None
        per_hour = config.maintenance.budget.bytes_per_hour
        maintenance = Maintenance(config, assembly.places, assembly.spark, self._clock, bytes_per_hour=per_hour)
        vacuum = Autovacuum(
            maintenance, lambda: list(run.tables.values()), config.maintenance, self._clock, self._metrics
        )
        vacuum.start()
        return vacuum

    def _begin_after(self, lost: str, losses: int) -> None:
        """Nothing is lost with a JVM: what it had committed is in the tables, the rest is written again."""
        if not self._pipeline.owns_session:
            raise errors.Terminal(
                f"{lost}; the Spark session was handed in, so Frazil cannot start another one",
                hint="Start the program again: the pipeline goes on where its tables' ledgers end.",
            )
        self._pulse.beat()
        wait = backoff(losses, self._clock.jitter())
        _log.error("Spark is started anew", reason=lost, seconds=round(wait, 1), hint="spark.jvm_memory caps its heap")
        if not self._clock.wait(wait, self._stop):
            self._assemble_as_before(new_session=True)

    def _assemble_as_before(self, *, new_session: bool) -> None:
        attempts = 0
        while not self._stop.is_set():
            self._pulse.beat()
            try:
                config = self._pipeline.assembled.parts.config
                self._pipeline.assemble_anew(config, new_session=new_session)
            except (errors.Transient, errors.OutcomeUnknown) as error:
                attempts += 1
                _log.warning("cannot begin yet", reason=str(error), attempt=attempts)
                self._clock.wait(backoff(attempts, self._clock.jitter()), self._stop)
            else:
                return

    def _assembled_anew(self, config: PipelineConfig) -> None:
        """As the one so far if what the new one names cannot be opened: whoever reloads wants no daemon to end."""
        self._next = None
        try:
            self._pipeline.assemble_anew(config, new_session=False)
        except errors.FrazilError as error:
            _log.error(_NOT_TAKEN, reason=str(error), hint=error.hint)
            self._assemble_as_before(new_session=False)
        else:
            _log.info("configuration reloaded", tables=len(config.tables))

    def _is_interrupted(self) -> bool:
        self._pulse.beat()
        if self._telling.failure is not None:
            raise self._telling.failure
        if self._watch is not None and self._watch.lost is not None:
            return True
        if self._reload.is_set():
            self._reload.clear()
            try:
                self._next = self._reread()
            except errors.FrazilError as error:
                _log.error(_NOT_TAKEN, reason=str(error), hint=error.hint)
        return self._next is not None

    def _reread(self) -> PipelineConfig:
        new, old = self._pipeline.reread(), self._pipeline.assembled.parts.config
        if new.pipeline != old.pipeline:
            raise errors.ConfigError(
                f"pipeline is {new.pipeline!r} now, and {old.pipeline!r} runs: that would be another pipeline",
                hint="Start it as a process of its own.",
            )
        return new

    # what people see and ask

    def reload(self) -> str:
        self._reread()
        self._reload.set()
        return "the configuration is read again"

    def resync(self, table: str) -> str:
        run = self._supervisor
        main_tables = {} if run is None else {one.name: one for one in run.tables.values() if one.is_main}
        if run is None or table not in main_tables:
            raise errors.ConfigError(
                f"{table} is no table of this pipeline",
                hint=f"its tables: {', '.join(sorted(main_tables)) or _STARTING}",
            )
        check_rescans(self._pipeline.assembled, table)
        run.resync(main_tables[table].source)
        return f"{table} is loaded anew on a branch; readers see it when it is complete"

    def progress(self) -> RunProgress:
        run = self._supervisor
        if run is None:
            return RunProgress((), pipeline=self._pipeline.assembled.parts.config.pipeline, started_at=self._started_at)
        now, resolved, parts = self._clock.now(), run.resolved, self._pipeline.assembled.parts
        index = None if parts.locators is None else parts.locators.index
        return RunProgress(
            (
                *(_table_progress(table, now) for table in run.tables.values()),
                *(_refused_progress(name, error) for name, error in run.refused.items()),
            ),
            None if resolved is None else resolved.text,
            parts.config.pipeline,
            self._started_at,
            index.bytes if index is not None and index.entries else None,
            None if index is None else index.hit_rate,
            run.resolved_time,
        )

    def health(self) -> Health:
        ready = self._supervisor is not None and self._supervisor.is_publishing
        return self._pulse.health(ready, "" if ready else _STARTING)

    def _tell(self) -> None:
        """All tables cost what they cost, so this is done now and then, not after each commit."""
        run = self._supervisor
        if run is not None and run.is_publishing:
            names = {*run.tables, *run.refused}
            gone, self._shown = self._shown - names, names
            self._metrics.tables_removed(gone)
        if self._on_progress is not None:
            self._on_progress(self.progress())

    def _server(self, config: PipelineConfig, once: bool) -> DaemonServer | None:
        http = config.http
        if http.port == 0 or (http.port is None and once):
            return None
        return DaemonServer(
            http.host,
            http.port,
            http.token,
            metrics=self._metrics,
            progress=self.progress,
            health=self.health,
            history=Timeseries(),
            actions=self,
            redact=Redactor(config),
            clock=self._clock,
        )

    @property
    def _summary(self) -> RunSummary:
        assert self._supervisor is not None
        tables, before = self._supervisor.tables.values(), self._before
        resolved = self._supervisor.resolved
        return RunSummary(
            epochs=before.epochs + sum(table.epochs for table in tables),
            rows=before.rows + sum(table.rows for table in tables),
            deletes=before.deletes + sum(table.deletes for table in tables),
            dropped=before.dropped + sum(table.dropped for table in tables),
            tables=len(tables),
            resolved=before.resolved if resolved is None else resolved.text,
            source_time=before.source_time if resolved is None else self._supervisor.resolved_time,
        )


def check_rescans(assembly: Assembly, table: str) -> None:
    """Raises ConfigError if the source cannot be asked for all that a table holds."""
    if not isinstance(assembly.parts.source, LoadsTables):
        raise errors.ConfigError(
            f"{table} cannot be loaded anew: a changefeed tells each change once, and nobody can ask it for all rows",
            hint="Make a changefeed with initial_scan = 'yes' at another address, and a pipeline of another name over "
            f"it that fills a new table; then let that one take the place of {table}.",
        )


def _table_progress(table: TargetTable, now: datetime) -> TableProgress:
    done, trouble, held, maintenance_status = table.done_through, table.trouble, table.stats, table.maintenance_status
    return TableProgress(
        table.name,
        table.state,
        None if done is None else done.text,
        table.epochs,
        table.rows,
        table.lag(now),
        source=table.source,
        deletes=table.deletes,
        snapshot_id=table.head_snapshot_id,
        epoch_snapshot_id=table.snapshot_id,
        table_rows=None if held is None else held.rows,
        quarantined=table.quarantined,
        exit_code=0 if trouble is None else trouble.exit_code,
        data_files=None if held is None else held.data_files,
        delete_files=None if held is None else held.delete_files,
        snapshots=None if held is None else held.snapshots,
        error="" if trouble is None else str(trouble),
        hint="" if trouble is None else trouble.hint,
        load=table.load,
        maintained_at=maintenance_status.at,
        maintenance=maintenance_status.done,
        maintenance_waits=maintenance_status.waits,
        debt=maintenance_status.debt,
        source_time=table.done_time,
    )


def _refused_progress(name: str, error: errors.ConfigError) -> TableProgress:
    """Under the source's name: it has no target."""
    return TableProgress(name, TableState.STOPPED, None, 0, 0, None, source=name, error=str(error), hint=error.hint)
