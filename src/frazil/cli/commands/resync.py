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
@click.option("--cancel", is_flag=True, help="Give such a load up: the table stays what readers see now.")
@click.option("--yes", is_flag=True, help="Do not ask on a terminal.")
def resync(session: Session, config: PipelineConfig, *, table: str, cancel: bool, yes: bool) -> None:
    """Load TABLE (a target, namespace.table) anew from its source, beside what the other tables do.

    The rows are loaded on a branch. Readers see the table as it was until all of it is there, and then all of it at
    once: what the source no longer holds is gone. A daemon on this machine begins at once, any other one when it
    starts or reloads.

    \b
    Examples:
      frazil resync shop.yaml analytics.orders
      frazil resync shop.yaml analytics.orders --cancel
    """
    if not (yes or cancel) and sys.stdin.isatty():
        click.confirm(f"Load {table} anew from its source?", abort=True)
    with session.open_pipeline(config) as pipeline:
        pipeline.request_resync(table, cancel=cancel)
    when = "now" if signal_daemon(config) else "when the pipeline runs, or reloads"
    click.echo(f"{table}: its load is given up {when}" if cancel else f"{table} will be loaded anew {when}")
