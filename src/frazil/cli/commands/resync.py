"""`frazil resync`: load a table anew from its source."""

from __future__ import annotations

import sys

import click

from frazil.cli.commands.reload import signal_daemon
from frazil.cli.exit_codes import EPILOG
from frazil.cli.seam import Session, on_pipeline
from frazil.config.pipeline_config import PipelineConfig


@click.command(epilog=EPILOG)
@on_pipeline
@click.argument("table")
@click.option("--yes", is_flag=True, help="Do not ask on a terminal.")
def resync(session: Session, config: PipelineConfig, *, table: str, yes: bool) -> None:
    """Load TABLE (a target, namespace.table) anew from its source, beside what the other tables do.

    The rows are loaded on a branch. Readers see the table as it was until all of it is there, and then all of it at
    once: what the source no longer holds is gone. A daemon on this machine begins at once, any other one when it
    starts or reloads.

    \b
    Examples:
      frazil resync shop.yaml analytics.orders
    """
    if not yes and sys.stdin.isatty():
        click.confirm(f"Load {table} anew from its source?", abort=True)
    with session.open_pipeline(config) as pipeline:
        pipeline.request_resync(table)
    began = signal_daemon(config)
    click.echo(f"{table} will be loaded anew " + ("now" if began else "when the pipeline runs, or reloads"))
