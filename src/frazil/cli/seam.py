"""Where commands meet the pipeline.

    frazil COMMAND CONFIG --set a=b ...
        on_pipeline: load the configuration, know its secrets, set up logs
            command: session.open_pipeline(config) -> PipelineApi -> print

Commands know the pipeline by `PipelineApi` alone. The real one starts Spark and is imported only when a command
needs it, so that help and mistakes answer at once.
"""

from __future__ import annotations

import functools
import importlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import click

from frazil.config.load import load_config
from frazil.config.pipeline_config import PipelineConfig
from frazil.config.secrets import Redactor
from frazil.doctor.diagnosis import Diagnosis, ExaminationProgress
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
from frazil.observability.logs import LogFormat, configured

_LEVELS = ("debug", "info", "warning", "error")


class PipelineApi(Protocol):
    """An open pipeline, as `frazil.app.pipeline.Pipeline` is inside its `with`."""

    def run(
        self,
        once: bool = False,
        on_progress: Callable[[RunProgress], None] | None = None,
        stop: threading.Event | None = None,
        reload: threading.Event | None = None,
        take_over: bool = False,
    ) -> RunSummary: ...
    def check(self) -> CheckReport: ...
    def status(self) -> Sequence[TableStatus]: ...
    def epochs(self, table: str) -> Sequence[EpochRow]: ...
    def as_of(self, table: str, moment: str) -> SourceSnapshot: ...
    def consistent(self, moment: str | None = None) -> ConsistentEpoch: ...
    def consistent_epochs(self) -> Sequence[ConsistentEpoch]: ...
    def rewind(self, table: str) -> str: ...
    def request_resync(self, table: str, *, cancel: bool = False) -> None: ...
    def maintain(self, table: str | None = None, *, dry: bool = False) -> Iterator[MaintenanceStep]: ...
    def drop(self, table: str, *, catalog: str | None = None, force: bool = False) -> str: ...
    def doctor(
        self,
        tables: Sequence[str] = (),
        *,
        fix: bool = False,
        on_progress: Callable[[ExaminationProgress], None] | None = None,
    ) -> Iterator[Diagnosis]: ...
    def quarantine(self, table: str | None = None) -> Sequence[QuarantinedChange]: ...
    def replay(self, table: str) -> ReplayReport: ...


Reread = Callable[[], PipelineConfig]


class OpenPipeline(Protocol):
    def __call__(
        self, config: PipelineConfig, *, reread: Reread | None = None
    ) -> AbstractContextManager[PipelineApi]: ...


def open_real_pipeline(config: PipelineConfig, *, reread: Reread | None = None) -> AbstractContextManager[PipelineApi]:
    pipeline = importlib.import_module("frazil.app.pipeline").Pipeline
    opened: AbstractContextManager[PipelineApi] = pipeline(config, reread=reread)
    return opened


def _to_stderr(line: str) -> None:
    click.echo(line, err=True)


@dataclass(slots=True)
class Session:
    """One call of the program. `write_line` is where log lines go; a live display takes it over for a while."""

    open_pipeline: OpenPipeline = open_real_pipeline
    write_line: Callable[[str], None] = _to_stderr
    redact: Redactor = field(default_factory=Redactor)
    debug: bool = False
    reread: Reread | None = None

    def log_line(self, line: str) -> None:
        """Looks up `write_line` anew for each line, since a live display may have taken it over."""
        self.write_line(line)


def on_pipeline(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command CONFIG and the options all commands share; it is called with the session and the loaded
    configuration."""

    @click.argument("config", metavar="CONFIG", type=click.Path(path_type=Path))
    @click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        help="Override one key of the configuration: --set source.feed=./other, --set tables.0.target=lake.orders.",
    )
    @click.option(
        "--log-format", type=click.Choice([form.value for form in LogFormat]), default="logfmt", show_default=True,
        help="How log lines on stderr look.",
    )  # fmt: skip
    @click.option("--log-level", type=click.Choice(_LEVELS), default="info", show_default=True, help="What is logged.")
    @click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
    @click.pass_context
    @functools.wraps(command)
    def prepared(
        ctx: click.Context,
        /,
        config: Path,
        overrides: Sequence[str],
        log_format: str,
        log_level: str,
        debug: bool,
        **rest: Any,
    ) -> None:
        session = ctx.ensure_object(Session)
        session.debug = debug
        session.reread = functools.partial(load_config, config, overrides)
        loaded = session.reread()
        session.redact = Redactor(loaded)
        ctx.with_resource(
            configured(
                session.log_line,
                form=LogFormat(log_format),
                level=logging.getLevelNamesMapping()[log_level.upper()],
                redact=session.redact,
                tracebacks=debug,
            )
        )
        command(session, loaded, **rest)

    return prepared


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON array on stdout, and nothing else there."
)
