"""A pipeline of the real source schema at the seam of the command line, without Spark behind it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from click.testing import CliRunner, Result

from frazil.cli.main import cli
from frazil.cli.seam import Session
from frazil.config.pipeline_config import PipelineConfig
from frazil.model.results import (
    CheckedCatalog,
    CheckedColumn,
    CheckedTable,
    CheckReport,
    ConsistentEpoch,
    EpochRow,
    MadeAs,
    QuarantinedChange,
    ReplayReport,
    RunProgress,
    RunSummary,
    SourceSnapshot,
    TableAction,
    TableProgress,
    TableStatus,
)
from frazil.model.state import TableState

CONFIG = """\
pipeline: shop
source:
  type: cockroachdb
  feed: s3://feeds/shop
  options: {aws_secret_access_key: hunter22}
  schema_from: postgresql://root:pass4word@db:26257/shop
catalog:
  type: memory
tables:
  - source: shop.public.orders
    target: analytics.orders
    key: [id]
"""
RESOLVED = "1701102296662969433.0000000001"


def status_of(
    table: str = "analytics.orders", resolved: str | None = RESOLVED, lag: float | None = 1.25
) -> TableStatus:
    return TableStatus(
        table=table, state=TableState.STEADY_STATE, resolved=resolved,
        snapshot_id=None if resolved is None else 2**62, lag_seconds=lag,
    )  # fmt: skip


def epoch_of(resolved: str = RESOLVED) -> EpochRow:
    return EpochRow(
        table="analytics.orders", resolved=resolved, snapshot_id=2**62, batch_id="6d1f", rows=5, deletes=1,
        committed_at=datetime(2026, 3, 1, 12, 0, 0, 123456, UTC), data_files=2, delete_files=1,
    )  # fmt: skip


def progress_of(epochs: int, lag: float = 0.5) -> RunProgress:
    return RunProgress(
        (TableProgress("analytics.orders", TableState.STEADY_STATE, RESOLVED, epochs, epochs * 10, lag),)
    )


def change_of(reason: str = "1 does not fit", *, captured: bool = False, line: int | None = None) -> QuarantinedChange:
    return QuarantinedChange(
        table="analytics.orders",
        id="0b1c",
        reason=reason,
        column="amount",
        key="[7]",
        op="upsert",
        position=RESOLVED,
        captured=captured,
        file=None if line is None else "feed/f.ndjson",
        line=line,
        payload='{"id": 7}',
    )


@dataclass
class FakePipeline:
    """Answers as told. `raises` comes out of every call; `while_running` is called inside run."""

    raises: BaseException | None = None
    progress: Sequence[RunProgress] = ()
    statuses: Sequence[TableStatus] = field(default_factory=lambda: [status_of()])
    published: Sequence[EpochRow] = field(default_factory=lambda: [epoch_of()])
    put_away: Sequence[QuarantinedChange] = ()
    reached: bool = True
    while_running: Callable[[threading.Event], None] = lambda stop: None
    on_open: Callable[[], None] = lambda: None
    config: PipelineConfig | None = None
    calls: list[str] = field(default_factory=list)

    def open(self, config: PipelineConfig, *, reread: Callable[[], PipelineConfig] | None = None) -> FakePipeline:
        self.config = config
        self.reread = reread
        return self

    def __enter__(self) -> FakePipeline:
        self.calls.append("open")
        self.on_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.calls.append("close")

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.raises is not None:
            raise self.raises

    def run(
        self,
        once: bool = False,
        on_progress: Callable[[RunProgress], None] | None = None,
        stop: threading.Event | None = None,
        reload: threading.Event | None = None,
        take_over: bool = False,
    ) -> RunSummary:
        self._called(f"run once={once}" + (" take_over" if take_over else ""))
        assert on_progress is not None
        assert stop is not None
        assert reload is not None
        self.reload = reload
        for progress in self.progress:
            on_progress(progress)
        self.while_running(stop)
        return RunSummary(epochs=3, rows=1200, deletes=1, dropped=2, tables=1, resolved=RESOLVED)

    def check(self) -> CheckReport:
        self._called("check")
        table = CheckedTable(
            source="shop.public.orders", target="analytics.orders", action=TableAction.CREATE, key=("id",),
            key_origin="configuration", notes=("amount was inferred",),
            made=MadeAs(
                deletes="vectors", format_version=3, partition=("day(at)",),
                side_tables=("analytics.orders__changelog",)
            ),
            columns=(
                CheckedColumn("id", "long", "INT8", "sql"),
                CheckedColumn("tags", "list<string>", "STRING[]", "sql"),
            ),
        )  # fmt: skip
        return CheckReport(
            tables=(table,),
            catalogs=(
                CheckedCatalog(
                    name="frazil",
                    described="builtin",
                    abilities={"rename": True, "one commit for several tables": False},
                    notes=("all writers must be on one machine",),
                ),
            ),
            feed="postgresql://root:pass4word@db/shop",
            pin_yaml="tables:\n  - a\n",
        )

    def status(self) -> Sequence[TableStatus]:
        self._called("status")
        return self.statuses

    def epochs(self, table: str) -> Sequence[EpochRow]:
        self._called(f"epochs {table}")
        return self.published

    def as_of(self, table: str, moment: str) -> SourceSnapshot:
        self._called(f"as_of {table} {moment}")
        return SourceSnapshot(
            table=table, asked=moment, snapshot_id=2**62, resolved=RESOLVED, source_time=None, reached=self.reached,
            sql=f"SELECT * FROM frazil.{table} VERSION AS OF {2**62}",
        )  # fmt: skip

    def consistent(self, moment: str | None = None) -> ConsistentEpoch:
        self._called(f"consistent {moment}")
        return ConsistentEpoch(resolved=RESOLVED, snapshots={"analytics.orders": 2**62, "analytics.items": None})

    def consistent_epochs(self) -> Sequence[ConsistentEpoch]:
        return [self.consistent()]

    def request_resync(self, table: str, *, cancel: bool = False) -> None:
        self._called(f"resync {table}" + (" --cancel" if cancel else ""))

    def rewind(self, table: str) -> str:
        self._called(f"rewind {table}")
        return f"{table} goes on from {RESOLVED}"

    def drop(self, table: str, *, catalog: str | None = None, force: bool = False) -> str:
        self._called(f"drop {table} from {catalog}, force={force}")
        return f"{table} is dropped"

    def quarantine(self, table: str | None = None) -> Sequence[QuarantinedChange]:
        self._called(f"quarantine {table}")
        return self.put_away

    def replay(self, table: str) -> ReplayReport:
        self._called(f"replay {table}")
        return ReplayReport(table=table, replayed=3, left=tuple(self.put_away))


def frazil(*arguments: str, pipeline: FakePipeline | None = None) -> Result:
    """Calls the program in this process; stdout and stderr are kept apart."""
    session = Session(open_pipeline=(pipeline or FakePipeline()).open)
    return CliRunner().invoke(cli, list(arguments), obj=session)


def config_file(directory: Path, text: str = CONFIG) -> str:
    file = directory / "shop.yaml"
    file.write_text(text, encoding="utf-8")
    return str(file)
