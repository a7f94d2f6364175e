"""`frazil reload`: the running daemon reads its configuration again."""

from __future__ import annotations

import os
import signal

import click

from frazil.app.pidfile import find
from frazil.cli.exit_codes import EPILOG
from frazil.cli.seam import Session, on_pipeline
from frazil.config.pipeline_config import PipelineConfig
from frazil.errors import ConfigError


@click.command(epilog=EPILOG)
@on_pipeline
def reload(session: Session, config: PipelineConfig) -> None:
    """Have the daemon of this pipeline read its configuration again: tables are added, removed and changed while the
    others go on.

    The daemon must run on this machine, as this user. CONFIG is checked first; the daemon reads the file that it was
    started with.

    \b
    Examples:
      frazil reload shop.yaml
    """
    if not signal_daemon(config):
        raise ConfigError(
            f"no daemon of the pipeline {config.pipeline} runs here",
            hint="Start it with `frazil run`. One on another machine or of another user: send it SIGHUP, or POST "
            "/reload with the token of http.token.",
        )
    click.echo(f"{config.pipeline} reads its configuration again; its log tells what became of it")


def signal_daemon(config: PipelineConfig) -> bool:
    """Whether there is one on this machine; it reads its configuration and its tables again."""
    found = find(config)
    if found is None:
        return False
    os.kill(found.pid, signal.SIGHUP)
    return True
