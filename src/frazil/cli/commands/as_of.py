"""`frazil as-of`: which snapshot shows a table as it was at a moment of the source."""

from __future__ import annotations

import click

from frazil.cli.exit_codes import EPILOG
from frazil.cli.output import print_json, stdout_kept_clean
from frazil.cli.seam import Session, json_option, on_pipeline
from frazil.config.pipeline_config import PipelineConfig
from frazil.model.position import time_text


@click.command("as-of", epilog=EPILOG)
@on_pipeline
@click.argument("table")
@click.argument("moment")
@json_option
def as_of(session: Session, config: PipelineConfig, *, table: str, moment: str, as_json: bool) -> None:
    """Tell the snapshot that shows TABLE as it was at MOMENT: a time of the source's clock, or a position.

    It is the newest epoch up to there, along the history of the table; snapshots that only a tag keeps are found too.
    The statement is for Spark SQL; docs/reading.md says how a session of your own knows the catalog, and what other
    engines take.

    \b
    Examples:
      frazil as-of shop.yaml analytics.orders 2026-03-01T12:00:00Z
      frazil as-of shop.yaml analytics.orders 1701102296662969433.0000000001 --json
    """
    with stdout_kept_clean(as_json), session.open_pipeline(config) as pipeline:
        found = pipeline.as_of(table, moment)
    if as_json:
        print_json([found])
        return
    time = "" if found.source_time is None else f"{time_text(found.source_time)}, "
    click.echo(f"snapshot {found.snapshot_id}, resolved {time}{found.resolved}")
    click.echo(found.sql)
    if not found.reached:
        click.echo(f"note: {found.table} is not published up to {found.asked} yet; this is its newest epoch", err=True)
