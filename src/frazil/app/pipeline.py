"""`frazil.Pipeline`: what the command line does, from Python.

with Pipeline.from_file("shop.yaml") as pipeline:    opens Spark, the catalog and the source
    pipeline.run(once=True)                           check() status() epochs() rewind() snapshot_at()
                                                      as_of() consistent() quarantine() replay()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from threading import Event
from types import TracebackType

from pyspark.sql import DataFrame, SparkSession

from frazil.app import check as checking
from frazil.app import inspect as inspection
from frazil.app.assemble import Assembly, assemble
from frazil.app.moment import AskedMoment
from frazil.app.service import Service, check_rescans
from frazil.clock import Clock, SystemClock
from frazil.commit.resync_machine import CANCEL
from frazil.config.load import load_config
from frazil.config.pipeline_config import PipelineConfig
from frazil.doctor.diagnosis import Diagnosis
from frazil.doctor.doctor import Doctor, OnProgress
from frazil.errors import ConfigError
from frazil.iceberg.jvm.watchdog import abandon, stop_session
from frazil.iceberg.system.consistent_epochs import ConsistentEpochs
from frazil.ingest.catalog_handles import checked_catalogs
from frazil.ingest.quarantine.replay import Replay
from frazil.ingest.quarantine.store import listed
from frazil.maintenance.drop import drop_table
from frazil.maintenance.runner import Maintenance
from frazil.model.ids import TableName
from frazil.model.position import Position, parse_position
from frazil.model.results import (
    CheckReport,
    ConsistentEpoch,
    EpochRow,
    MaintenanceStep,
    QuarantinedChange,
    ReplayReport,
    RunProgress,
    RunSummary,
    SourceSnapshot,
    TableStatus,
)
from frazil.model.write import Role, side_table
from frazil.observability.metrics import Metrics


class Pipeline:
    """One source feeding many tables. Open it with `with`; methods that need Spark work only inside."""

    def __init__(
        self,
        config: PipelineConfig,
        *,
        spark: SparkSession | None = None,
        clock: Clock | None = None,
        reread: Callable[[], PipelineConfig] | None = None,
    ) -> None:
        """`spark` is used and left running if given; otherwise a session is opened, and stopped if it was new. `reread`
        tells the configuration as it is now, for `reload`."""
        self.config = config
        self.clock = clock or SystemClock()
        self.metrics = Metrics(self.clock)
        self.owns_session = False
        self._spark = spark
        self._reread = reread
        self._opened: Assembly | None = None

    @classmethod
    def from_file(
        cls, path: str | Path, overrides: Sequence[str] = (), *, spark: SparkSession | None = None
    ) -> Pipeline:
        """Raises ConfigError naming the key that is wrong."""
        reread = partial(load_config, Path(path), overrides)
        return cls(reread(), spark=spark, reread=reread)

    def __enter__(self) -> Pipeline:
        self._opened = assemble(self.config, self.clock, self.metrics, self._spark)
        self.owns_session = self._opened.opened_session
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()
            if self.owns_session:
                stop_session(opened.spark)

    def reread(self) -> PipelineConfig:
        """The configuration as it is now. Raises ConfigError."""
        return self.config if self._reread is None else self._reread()

    def assemble_anew(self, config: PipelineConfig, *, new_session: bool) -> Assembly:
        """For a run that goes on with another configuration, or on another JVM."""
        before = self.assembled
        before.close()
        if new_session:
            abandon(before.spark)
        self._opened = assemble(config, self.clock, self.metrics, None if new_session else before.spark)
        self.config = config
        return self._opened

    @property
    def spark(self) -> SparkSession:
        return self.assembled.spark

    @property
    def catalog_name(self) -> str:
        """The name under which Spark SQL knows the catalog."""
        return self.config.catalog.name

    def run(
        self,
        once: bool = False,
        on_progress: Callable[[RunProgress], None] | None = None,
        stop: Event | None = None,
        reload: Event | None = None,
        take_over: bool = False,
    ) -> RunSummary:
        """Publishes until `stop` is set, or with `once` until everything resolved is published. When `reload` is set,
        the configuration is read again and the run goes on with it.

        `on_progress` is called in a thread of its own, soon after something has changed, and once at the end; what it
        raises ends the run. Raises a FrazilError if a person must act; beside a daemon that was found, also if this is
        a run `once` that is not told to `take_over`.
        """
        service = Service(self, self.metrics, self.clock, on_progress, stop or Event(), reload or Event())
        return service.run(once, take_over)

    def check(self) -> CheckReport:
        """Connects to everything and says what a run would create or change; changes nothing."""
        parts, assembly = self.assembled.parts, self.assembled
        return checking.check(parts, checked_catalogs(assembly.places, self.config), assembly.described_feed)

    def status(self) -> list[TableStatus]:
        return inspection.status(self.assembled.parts)

    def epochs(self, table: str) -> list[EpochRow]:
        """What was published to a target table, newest first. Raises ConfigError if it is not a table of this
        pipeline."""
        return inspection.epochs(self.assembled.parts, table)

    def snapshot_at(self, table: str, resolved: Position | str) -> int | None:
        """The snapshot that shows the table at this moment of the source: its newest epoch up to there."""
        moment = parse_position(resolved) if isinstance(resolved, str) else resolved
        return inspection.snapshot_at(self.assembled.parts, table, moment)

    def as_of(self, table: str, moment: Position | datetime | str) -> SourceSnapshot:
        """The snapshot that shows the table as it was at a moment of the source: a position, or a time of the source's
        clock. Raises ConfigError for a text that is neither, or if nothing that old can be read."""
        return inspection.source_snapshot(self.assembled.parts, table, AskedMoment.of(moment))

    def read(self, table: str, as_of: Position | datetime | str | None = None) -> DataFrame:
        """The rows of a target table, now or as of a moment of the source. Raises like `as_of`."""
        target = TableName.parse(table)
        name = f"`{self.assembled.places.of(target).catalog.settings.name}`.{target.sql}"
        if as_of is None:
            return self.spark.table(name)
        return self.spark.sql(f"SELECT * FROM {name} VERSION AS OF {self.as_of(table, as_of).snapshot_id}")

    def consistent(self, moment: Position | str | None = None) -> ConsistentEpoch:
        """The snapshot of every table at one moment of the source, by default the newest at which all of them agree.
        Raises ConfigError if there is none."""
        at = parse_position(moment) if isinstance(moment, str) else moment
        return inspection.consistent(self.assembled.parts, self._recorded(), at)

    def consistent_epochs(self) -> list[ConsistentEpoch]:
        """The moments at which all tables agreed, newest first: those that were recorded (`atomic: pipeline`), else
        the newest one, from the ledgers."""
        return list(self._recorded()) or [self.consistent()]

    def rewind(self, table: str) -> str:
        """Lets a table that was rolled back go on from what it holds now. Says what was done."""
        return inspection.rewind(self.assembled.parts, table)

    def request_resync(self, table: str, *, cancel: bool = False) -> None:
        """Has the pipeline load a table anew, when it starts or reloads; with `cancel` has it give that load up, so
        that readers go on to see the table as it was. Raises ConfigError if that cannot be."""
        parts, wish = self.assembled.parts, self.config.job.resync_property
        target = inspection.main_table(parts, table)
        check_rescans(self.assembled, table)
        value = self.clock.now().isoformat(timespec="seconds")
        if cancel:
            heads = None if parts.resync is None else parts.resync.committer.heads(target)
            if heads is None or (heads.branch is None and wish not in heads.main.properties):
                raise ConfigError(f"{table} is not being loaded anew", hint="`frazil status` tells what tables do.")
            value = CANCEL
        parts.tables.set_property(target, wish, value)

    def maintain(self, table: str | None = None, *, dry: bool = False) -> Iterator[MaintenanceStep]:
        """Keeps one target table, or all, small and fast to read; tells what was done, or with `dry` what would be."""
        parts = self.assembled.parts
        targets = inspection.main_tables(parts) if table is None else [inspection.main_table(parts, table)]
        there = [
            name
            for target in targets
            for name in (side_table(target, role) for role in Role)
            if parts.tables.exists(name)
        ]
        maintenance = Maintenance(self.config, self.assembled.places, self.spark, self.clock)
        return maintenance.run(there, dry=dry)

    def drop(self, table: str, *, catalog: str | None = None, force: bool = False) -> str:
        """Drops a table that the pipeline no longer fills, or with `force` any; its files go after the grace period.
        Says what was done. Raises ConfigError if there is no such table, or if the pipeline would make it again."""
        places = self.assembled.places
        return drop_table(self.config, places, self.clock, table, catalog=catalog, force=force)

    def doctor(
        self, tables: Sequence[str] = (), *, fix: bool = False, on_progress: OnProgress | None = None
    ) -> Iterator[Diagnosis]:
        """Examines these tables, of any catalog of the pipeline, or all that the pipeline fills; with `fix` repairs
        what it safely can. Raises ConfigError, before anything is examined, if there is no such table."""
        parts, assembly = self.assembled.parts, self.assembled
        doctor = Doctor(self.config, assembly.places, parts.arbiter, self.spark, self.clock)
        names = tables or [
            name.text
            for target in inspection.main_tables(parts)
            for name in (side_table(target, role) for role in Role)
            if parts.tables.exists(name)
        ]
        patients = [doctor.find(name) for name in names]
        return doctor.run(patients, fix=fix, on_progress=on_progress or (lambda progress: None))

    def quarantine(self, table: str | None = None) -> list[QuarantinedChange]:
        """What is in quarantine, of one target table or of all, each in source order."""
        parts = self.assembled.parts
        targets = inspection.main_tables(parts) if table is None else [inspection.main_table(parts, table)]
        return [change for target in targets for change in listed(parts, self.assembled.quarantined, target)]

    def replay(self, table: str) -> ReplayReport:
        """Applies what is in quarantine of a target table again, with today's configuration. May be run beside the
        pipeline, and again after a failure."""
        parts, assembly = self.assembled.parts, self.assembled
        target = inspection.main_table(parts, table)
        source = inspection.source_of(parts, target)
        return Replay(parts, assembly.quarantined, assembly.committer, source).run()

    def _recorded(self) -> Sequence[ConsistentEpoch]:
        agreement = ConsistentEpochs(self.assembled.places.default.catalog, self.clock)
        return agreement.recorded(self.config.job)

    @property
    def assembled(self) -> Assembly:
        if self._opened is None:
            raise RuntimeError("the pipeline is not open: use it inside `with`")
        return self._opened
