"""`frazil epochs`: what was published to one table, or the moments at which all tables agree."""

from __future__ import annotations

import click

from frazil.cli.exit_codes import EPILOG
from frazil.cli.output import position_text, print_json, print_table, stdout_kept_clean
from frazil.cli.seam import Session, json_option, on_pipeline
from frazil.config.pipeline_config import PipelineConfig
from frazil.model.position import time_text


@click.command(epilog=EPILOG)
@on_pipeline
@click.argument("table", required=False)
@click.option("--consistent", is_flag=True, help="The moments at which all tables agree, with the snapshot of each.")
@json_option
def epochs(session: Session, config: PipelineConfig, *, table: str | None, consistent: bool, as_json: bool) -> None:
    """List the epochs published to TABLE (a target, namespace.table), newest first.

    \b
    Examples:
      frazil epochs shop.yaml analytics.orders
      frazil epochs shop.yaml analytics.orders --json | jq '.[0].snapshot_id'
      frazil epochs shop.yaml --consistent
    """
    if consistent == (table is not None):
        raise click.UsageError("give a TABLE, or --consistent for all of them")
    if table is None:
        _consistent(session, config, as_json)
    else:
        _of_table(session, config, table, as_json)


def _of_table(session: Session, config: PipelineConfig, table: str, as_json: bool) -> None:
    with stdout_kept_clean(as_json), session.open_pipeline(config) as pipeline:
        published = pipeline.epochs(table)
    if as_json:
        print_json(published)
        return
    if not published:
        click.echo(f"nothing published to {table} yet")
        return
    print_table(
        ("resolved", "snapshot", "rows", "deletes", "committed", "data files", "delete files", "position", "batch"),
        [
            (position_text(e.resolved, e.source_time), e.snapshot_id, e.rows, e.deletes, time_text(e.committed_at),
             e.data_files, e.delete_files, e.resolved, e.batch_id)
            for e in published
        ],
        numbers=("data files", "delete files", "rows", "deletes"),
    )  # fmt: skip


def _consistent(session: Session, config: PipelineConfig, as_json: bool) -> None:
    with stdout_kept_clean(as_json), session.open_pipeline(config) as pipeline:
        found = pipeline.consistent_epochs()
    if as_json:
        print_json(found)
        return
    print_table(
        ("resolved", "table", "snapshot", "position", "recorded"),
        [
            (position_text(epoch.resolved, epoch.source_time), table, snapshot, epoch.resolved,
             None if epoch.recorded_at is None else time_text(epoch.recorded_at))
            for epoch in found
            for table, snapshot in epoch.snapshots.items()
        ],
    )  # fmt: skip
