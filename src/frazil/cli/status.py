"""`frazil status`: what SHOW CHANGEFEED shows, told by the tables' own ledger."""

from __future__ import annotations

from collections.abc import Sequence

import click

from frazil.cli.exit_codes import EPILOG
from frazil.cli.output import moment_text, print_json, print_table, seconds_text, stdout_kept_clean
from frazil.cli.seam import Session, json_option, on_pipeline
from frazil.config.model import PipelineConfig
from frazil.daemon.results import TableStatus


@click.command(epilog=EPILOG)
@on_pipeline
@json_option
def status(session: Session, config: PipelineConfig, *, as_json: bool) -> None:
    """Show each table's state, newest published position, snapshot and lag, the data and delete files it holds, and
    what maintenance last made of them.

    \b
    Examples:
      frazil status shop.yaml
      frazil status shop.yaml --json | jq '.[] | select(.lag_seconds > 60)'
    """
    with stdout_kept_clean(as_json), session.open_pipeline(config) as pipeline:
        tables = pipeline.status()
    if as_json:
        print_json(tables)
        return
    print_table(
        ("table", "state", "resolved", "snapshot", "lag", "epochs", "rows", "quarantined", "files", "deletes",
         "maintained"),
        [
            (t.table, t.state.value, t.resolved, t.snapshot_id, seconds_text(t.lag_seconds), t.epochs, t.rows,
             t.quarantined, t.data_files, t.delete_files, _maintained(t))
            for t in tables
        ],
        numbers=("lag", "epochs", "rows", "quarantined", "files", "deletes"),
    )  # fmt: skip
    _tell_index(tables)


def _maintained(status: TableStatus) -> str | None:
    return None if status.maintained_at is None else f"{moment_text(status.maintained_at)} {status.maintenance}"


def _tell_index(tables: Sequence[TableStatus]) -> None:
    """One line about the key index that the tables share."""
    known = next((table for table in tables if table.index_bytes is not None), None)
    if known is not None:
        rate = "" if known.index_hit_rate is None else f", {known.index_hit_rate:.0%} of lookups hit it"
        click.echo(f"key index: {(known.index_bytes or 0) / (1 << 20):.1f} MB{rate}")
