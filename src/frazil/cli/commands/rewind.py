"""`frazil rewind`: go on from where a table was rolled back to."""

from __future__ import annotations

import sys

import click

from frazil.cli.exit_codes import EPILOG
from frazil.cli.seam import Session, on_pipeline
from frazil.config.pipeline_config import PipelineConfig


@click.command(epilog=EPILOG)
@on_pipeline
@click.argument("table")
@click.option("--yes", is_flag=True, help="Do not ask on a terminal.")
def rewind(session: Session, config: PipelineConfig, *, table: str, yes: bool) -> None:
    """Take what TABLE (a target, namespace.table) holds now as the truth, and publish again from there.

    For a table that was rolled back to an earlier snapshot: a run refuses it (exit code 5), since publishing on
    top would leave a gap. The source must still hold the changes since then. The pipeline is taken over for it: a
    daemon that runs meanwhile ends with 6, and is to be started again.

    \b
    Examples:
      frazil rewind shop.yaml analytics.orders
    """
    if not yes and sys.stdin.isatty():
        click.confirm(f"Publish {table} again from where it stands now?", abort=True)
    with session.open_pipeline(config) as pipeline:
        click.echo(session.redact(pipeline.rewind(table)))
