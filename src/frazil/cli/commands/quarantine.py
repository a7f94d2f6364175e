"""`frazil quarantine`: changes that could not be taken, and applying them again."""

from __future__ import annotations

from collections.abc import Sequence

import click

from frazil.cli.exit_codes import EPILOG
from frazil.cli.output import counted, position_text, print_json, print_table, stdout_kept_clean
from frazil.cli.seam import Session, json_option, on_pipeline
from frazil.config.pipeline_config import PipelineConfig
from frazil.model.results import QuarantinedChange

_SHOWN = 60


@click.group(epilog=EPILOG)
def quarantine() -> None:
    """Show changes that could not be taken (on_error: quarantine), and apply them again.

    \b
    Examples:
      frazil quarantine list shop.yaml
      frazil quarantine replay shop.yaml analytics.orders
    """


@quarantine.command("list", epilog=EPILOG)
@on_pipeline
@click.argument("table", required=False)
@json_option
def list_(session: Session, config: PipelineConfig, *, table: str | None, as_json: bool) -> None:
    """List what is in quarantine, of TABLE (a target, namespace.table) or of all tables, in source order.

    \b
    Examples:
      frazil quarantine list shop.yaml
      frazil quarantine list shop.yaml analytics.orders --json | jq '.[].reason'
    """
    with stdout_kept_clean(as_json), session.open_pipeline(config) as pipeline:
        changes = pipeline.quarantine(table)
    if as_json:
        print_json(changes)
    elif changes:
        _print(changes)
    else:
        click.echo(f"nothing in quarantine{f' of {table}' if table else ''}")


@quarantine.command(epilog=EPILOG)
@on_pipeline
@click.argument("table")
@json_option
def replay(session: Session, config: PipelineConfig, *, table: str, as_json: bool) -> None:
    """Apply the changes in quarantine of TABLE (a target, namespace.table) again, in source order, with the
    configuration as it is now.

    What can be taken is published as one snapshot and leaves the quarantine; what fails again stays, with all later
    changes of its key. The pipeline may go on running meanwhile.

    \b
    Examples:
      frazil quarantine replay shop.yaml analytics.orders
    """
    with stdout_kept_clean(as_json), session.open_pipeline(config) as pipeline:
        report = pipeline.replay(table)
    if as_json:
        print_json([report])
        return
    click.echo(f"{report.table}: {counted(report.replayed, 'change')} replayed, {len(report.left)} left in quarantine")
    if report.left:
        _print(report.left)


def _print(changes: Sequence[QuarantinedChange]) -> None:
    print_table(
        ("table", "key", "reason", "column", "waits", "op", "changed", "place", "position", "id"),
        [
            (c.table, c.key, c.reason, c.column, "yes" if c.captured else None, c.op, position_text(c.position),
             _place(c), c.position, c.id)
            for c in changes
        ],
        folds=("key", "reason", "place"),
    )  # fmt: skip


def _place(change: QuarantinedChange) -> str | None:
    return None if change.file is None else f"{change.file}:{change.line}"
