"""Where commands meet the pipeline.

    frazil COMMAND CONFIG --set a=b ...
        on_pipeline: load the configuration, know its secrets, set up logs
            command: session.open_pipeline(config) -> Pipeline -> print

The pipeline starts Spark and is imported only when a command needs it, so that help and mistakes answer at once.
"""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from frazil.config.load import load_config
from frazil.config.pipeline_config import PipelineConfig
from frazil.config.secrets import Redactor
from frazil.observability.logs import LogFormat, configured

if TYPE_CHECKING:
    from frazil.app.pipeline import Pipeline

_LEVELS = ("debug", "info", "warning", "error")


Reread = Callable[[], PipelineConfig]


class OpenPipeline(Protocol):
    def __call__(self, config: PipelineConfig, *, reread: Reread | None = None) -> AbstractContextManager[Pipeline]: ...


def open_real_pipeline(config: PipelineConfig, *, reread: Reread | None = None) -> AbstractContextManager[Pipeline]:
    pipeline = importlib.import_module("frazil.app.pipeline").Pipeline
    opened: AbstractContextManager[Pipeline] = pipeline(config, reread=reread)
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
