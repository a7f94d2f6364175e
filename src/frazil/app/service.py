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
from datetime import datetime
from threading import Event, Lock
from typing import Protocol

from frazil import errors
from frazil.clock import Clock
from frazil.config.model import PipelineConfig
from frazil.config.secrets import Redactor
from frazil.daemon.assemble import Assembly
from frazil.daemon.autovacuum import Autovacuum
from frazil.daemon.maintaining import Maintenance
from frazil.daemon.presence import announce, withdraw
from frazil.daemon.results import Progress, RunSummary, TableProgress
from frazil.daemon.standing import backoff
from frazil.daemon.supervisor import Outcome, Supervisor
from frazil.daemon.tables import RunningTable
from frazil.lake.jvm import JvmWatch
from frazil.observability.health import Health, Pulse
from frazil.observability.history import History
from frazil.observability.http import DaemonServer
from frazil.observability.logs import Log
from frazil.observability.metrics import Metrics

_log = Log("frazil.daemon")
_STARTING = "the pipeline is starting"
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
        on_progress: Callable[[Progress], None] | None,
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
        self._telling = Lock()
        self._pulse = Pulse(clock)
        self._supervisor: Supervisor | None = None
        self._watch: JvmWatch | None = None
        self._next: PipelineConfig | None = None
        self._shown: set[str] = set()
        self._before = RunSummary(epochs=0, rows=0, deletes=0, dropped=0, tables=0, resolved=None)

    def run(self, once: bool) -> RunSummary:
        """Publishes until `stop` is set, or with `once` until everything resolved is published."""
        config = self._pipeline.assembled.parts.config
        server = self._server(config, once)
        if not once:
            announce(config.pipeline, "" if server is None else server.url)
        losses = 0
        try:
            while True:
                outcome, lost = self._run(once)
                if outcome is Outcome.FINISHED:
                    return self._summary
                self._before = self._summary
                if lost is None:
                    assert self._next is not None
                    self._assembled_anew(self._next)
                    losses = 0
                    continue
                losses += 1
                self._begin_after(lost, losses)
        finally:
            if not once:
                withdraw(config.pipeline)
            if server is not None:
                server.stop()

    def _run(self, once: bool) -> tuple[Outcome, str | None]:
        """Why it ended; with a text if the JVM was lost."""
        assembly = self._pipeline.assembled
        watch = JvmWatch(assembly.spark, lambda reason: None, may_kill=self._pipeline.owns_session, clock=self._clock)
        self._watch = watch
        self._supervisor = Supervisor(assembly.parts, self._tell, self._stop, self._is_interrupted)
        vacuum = None if once else self._autovacuum(assembly, self._supervisor)
        try:
            outcome = self._supervisor.run(once)
        except Exception as error:
            if not isinstance(error, errors.FrazilError):
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
            self._assemble_after_loss()

    def _assemble_after_loss(self) -> None:
        attempts = 0
        while not self._stop.is_set():
            self._pulse.beat()
            try:
                config = self._pipeline.assembled.parts.config
                self._pipeline.assemble_anew(config, new_session=True)
            except (errors.Transient, errors.OutcomeUnknown) as error:
                attempts += 1
                _log.warning("cannot begin yet", reason=str(error), attempt=attempts)
                self._clock.wait(backoff(attempts, self._clock.jitter()), self._stop)
            else:
                return

    def _assembled_anew(self, config: PipelineConfig) -> None:
        self._next = None
        self._pipeline.assemble_anew(config, new_session=False)
        _log.info("configuration reloaded", tables=len(config.tables))

    def _is_interrupted(self) -> bool:
        self._pulse.beat()
        if self._watch is not None and self._watch.lost is not None:
            return True
        if self._reload.is_set():
            self._reload.clear()
            try:
                self._next = self._reread()
            except errors.FrazilError as error:
                facts = {"reason": str(error), "hint": error.hint}
                _log.error("the new configuration is not taken; the old one goes on", **facts)
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
        mirrors = {} if run is None else {one.name: one for one in run.tables.values() if one.is_mirror}
        if run is None or table not in mirrors:
            raise errors.ConfigError(
                f"{table} is no table of this pipeline", hint=f"its tables: {', '.join(sorted(mirrors)) or _STARTING}"
            )
        check_rescans(self._pipeline.assembled, table)
        run.resync(mirrors[table].source)
        return f"{table} is loaded anew on a branch; readers see it when it is complete"

    def progress(self) -> Progress:
        run = self._supervisor
        if run is None:
            return Progress((), pipeline=self._pipeline.assembled.parts.config.pipeline, started_at=self._started_at)
        now = self._clock.now()
        return Progress(
            tuple(_table_progress(table, now) for table in run.tables.values()),
            None if run.resolved is None else run.resolved.text,
            self._pipeline.assembled.parts.config.pipeline,
            self._started_at,
        )

    def health(self) -> Health:
        ready = self._supervisor is not None and self._supervisor.is_publishing
        return self._pulse.health(ready, "" if ready else _STARTING)

    def _tell(self, run: Supervisor) -> None:
        if run.is_publishing:
            names = set(run.tables)
            gone, self._shown = self._shown - names, names
            for name in gone:
                self._metrics.table_removed(name)
        if self._on_progress is not None:
            with self._telling:
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
            history=History(),
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
        )


def check_rescans(assembly: Assembly, table: str) -> None:
    """Raises ConfigError if the source cannot be asked for all that a table holds."""
    if not assembly.parts.source.rescans:
        raise errors.ConfigError(
            f"{table} cannot be loaded anew: a changefeed tells each change once, and nobody can ask it for all rows",
            hint="Make a changefeed with initial_scan = 'yes' at another address, and a pipeline of another name over "
            f"it that fills a new table; then let that one take the place of {table}.",
        )


def _table_progress(table: RunningTable, now: datetime) -> TableProgress:
    done, trouble, held, upkeep = table.done_through, table.trouble, table.holdings, table.upkeep
    return TableProgress(
        table.name,
        table.state,
        None if done is None else done.text,
        table.epochs,
        table.rows,
        table.lag(now),
        source=table.source,
        deletes=table.deletes,
        snapshot_id=table.snapshot_id,
        data_files=None if held is None else held.data_files,
        delete_files=None if held is None else held.delete_files,
        snapshots=None if held is None else held.snapshots,
        error="" if trouble is None else str(trouble),
        hint="" if trouble is None else trouble.hint,
        load=table.load,
        maintained_at=upkeep.at,
        maintenance=upkeep.done,
        maintenance_waits=upkeep.waits,
        debt=upkeep.debt,
    )
