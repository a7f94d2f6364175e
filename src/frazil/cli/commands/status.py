"""`frazil status`: what SHOW CHANGEFEED shows, told by the running daemon, or else by the tables' own ledger.

a daemon was found --> asked over HTTP          states, errors, lag and counts as they are now
none, or silent    --> Spark, catalog, ledgers  what was published; nobody says what is done with the tables now
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from frazil.app.pidfile import Daemon, ask
from frazil.cli.exit_codes import EPILOG
from frazil.cli.output import position_text, print_json, print_table, seconds_text, stdout_kept_clean
from frazil.cli.seam import Session, json_option, on_pipeline
from frazil.config.pipeline_config import PipelineConfig
from frazil.model.position import time_text
from frazil.model.results import TableStatus
from frazil.model.state import TableState

_NEEDS_A_PERSON = (TableState.STOPPED, TableState.NEEDS_RESYNC)
_HEADINGS = (
    "table",
    "state",
    "lag",
    "resolved",
    "rows",
    "quarantined",
    "epochs",
    "written",
    "files",
    "deletes",
    "snapshot",
    "maintained",
)
_NUMBERS = ("lag", "rows", "quarantined", "epochs", "written", "files", "deletes")


@click.command(epilog=EPILOG)
@on_pipeline
@json_option
def status(session: Session, config: PipelineConfig, *, as_json: bool) -> None:
    """Show each table's state, lag, the position up to which it is published, what it holds, and what maintenance last
    made of it.

    A running daemon is asked: one of this user on this machine, or one that answers at http.host and http.port of
    CONFIG. Where none is found, the tables tell what was published last, and a line says so; --json has it in
    `told_by`: daemon or tables. Epochs and rows written count since the daemon started or
    was reloaded.

    Exits with 0 if every table goes on. If some are STOPPED or NEEDS_RESYNC, the answer is printed all the same, and
    the exit code is that of what stopped the first of them.

    \b
    Examples:
      frazil status shop.yaml
      frazil status shop.yaml --json | jq '.[] | select(.lag_seconds > 60)'
    """
    found = ask(config)
    if found is not None and found.tables:
        tables: Sequence[TableStatus] = found.tables
    else:
        with stdout_kept_clean(as_json), session.open_pipeline(config) as pipeline:
            tables = pipeline.status()
    if as_json:
        print_json(tables)
    else:
        click.echo(_who_tells(config, found), err=True)
        _print(session, tables)
    stopped = [table for table in tables if table.state in _NEEDS_A_PERSON]
    if stopped:
        click.get_current_context().exit(stopped[0].exit_code or 1)


def _who_tells(config: PipelineConfig, found: Daemon | None) -> str:
    if found is None:
        return (
            f"no daemon of {config.pipeline} was found from here: this is what its tables tell, not what is done with "
            "them now; lag counts from the last epoch"
        )
    if found.silent:
        return f"{found.described} tells nothing ({found.silent}): this is what the tables tell"
    return f"told by {found.described}"


def _print(session: Session, tables: Sequence[TableStatus]) -> None:
    rows = [
        (
            t.table,
            t.state.value,
            seconds_text(t.lag_seconds),
            position_text(t.resolved, t.source_time),
            _number(t.table_rows),
            _number(t.quarantined),
            _number(t.epochs),
            _number(t.rows),
            _number(t.data_files),
            _number(t.delete_files),
            t.snapshot_id,
            _maintained(t),
        )
        for t in tables
    ]
    # What nobody can tell of any table is not worth a column.
    known = [at for at in range(len(_HEADINGS)) if at < 4 or any(row[at] is not None for row in rows)]
    shown = [[row[at] for at in known] for row in rows]
    print_table([_HEADINGS[at] for at in known], shown, numbers=_NUMBERS, folds=("table",))
    for table in tables:
        if table.error:
            click.echo(f"{table.table}: {session.redact(table.error)}")
            if table.hint:
                click.echo(f"  hint: {session.redact(table.hint)}")
    _tell_index(tables)


def _number(number: int | None) -> str | None:
    return None if number is None else f"{number:,}"


def _maintained(status: TableStatus) -> str | None:
    return None if status.maintained_at is None else f"{time_text(status.maintained_at)} {status.maintenance}"


def _tell_index(tables: Sequence[TableStatus]) -> None:
    """One line about the key index that the tables share."""
    known = next((table for table in tables if table.index_bytes is not None), None)
    if known is not None:
        rate = "" if known.index_hit_rate is None else f", {known.index_hit_rate:.0%} of lookups hit it"
        click.echo(f"key index: {(known.index_bytes or 0) / (1 << 20):.1f} MB{rate}")
