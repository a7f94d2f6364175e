"""`frazil drop`: a table goes, and its files later."""

from __future__ import annotations

import sys

import click

from frazil.cli.exit_codes import EPILOG
from frazil.cli.seam import Session, on_pipeline
from frazil.config.pipeline_config import PipelineConfig
from frazil.errors import ConfigError


@click.command(epilog=EPILOG)
@on_pipeline
@click.argument("table")
@click.option("--catalog", metavar="NAME", help="The catalog that has it, if it is not the pipeline's default one.")
@click.option("--force", is_flag=True, help="Drop it although the configuration lists it.")
@click.option("--yes", is_flag=True, help="Do not ask. Needed where there is no terminal.")
def drop(session: Session, config: PipelineConfig, *, table: str, catalog: str | None, force: bool, yes: bool) -> None:
    """Drop TABLE (namespace.table) from a catalog of the pipeline.

    For a table that the pipeline no longer fills: take it out of the configuration first. Its files stay for the grace
    period (maintenance.queue.grace), for queries that are still reading them, and are then deleted by maintenance. A
    table that is registered again from its last metadata file before that keeps them.

    \b
    Examples:
      frazil drop shop.yaml analytics.old_orders
      frazil drop shop.yaml analytics.old_orders__changelog --yes
    """
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigError(f"{table} is not dropped without a word", hint="Say --yes where there is no terminal.")
        click.confirm(f"Drop {table}, and delete its files later?", abort=True)
    with session.open_pipeline(config) as pipeline:
        click.echo(session.redact(pipeline.drop(table, catalog=catalog, force=force)))
