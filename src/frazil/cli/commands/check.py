"""`frazil check`: what a run would do, without doing it."""

from __future__ import annotations

import click

from frazil.cli.exit_codes import EPILOG
from frazil.cli.output import counted, print_json, print_table, stdout_kept_clean
from frazil.cli.seam import Session, json_option, on_pipeline
from frazil.config.model import PipelineConfig
from frazil.daemon.results import CheckedCatalog, CheckedTable, CheckReport


@click.command(epilog=EPILOG)
@on_pipeline
@json_option
def check(session: Session, config: PipelineConfig, *, as_json: bool) -> None:
    """Validate the configuration, connect, and show what would be created or changed.

    Shows for each column which type it gets and who said so, and ends with a block for the configuration that
    pins what was discovered. Nothing is changed.

    \b
    Examples:
      frazil check shop.yaml
      frazil check shop.yaml --json
    """
    with stdout_kept_clean(as_json), session.open_pipeline(config) as pipeline:
        report = pipeline.check()
    if as_json:
        print_json(report.tables)
    else:
        _print_report(session, report)


def _print_report(session: Session, report: CheckReport) -> None:
    click.echo(f"feed     {session.redact(report.feed)}")
    for catalog in report.catalogs:
        _print_catalog(session, catalog)
    for table in report.tables:
        _print_checked(session, table)
    click.echo(f"\n{counted(len(report.tables), 'table')}; nothing was changed")
    if report.pin_yaml:
        click.echo("\nTo pin what was discovered, put this into the configuration:\n")
        click.echo(report.pin_yaml.rstrip())


def _print_catalog(session: Session, catalog: CheckedCatalog) -> None:
    click.echo(f"catalog  {session.redact(catalog.described)}")
    able = [name for name, can in catalog.abilities.items() if can]
    unable = [name for name, can in catalog.abilities.items() if not can]
    click.echo(f"         can: {', '.join(able) or 'nothing of this'}; cannot: {', '.join(unable) or 'nothing'}")
    for note in catalog.notes:
        click.echo(f"         note: {session.redact(note)}")


def _print_checked(session: Session, table: CheckedTable) -> None:
    key = f"{', '.join(table.key)} (from {table.key_origin})" if table.key else "none"
    click.echo(f"\n{table.source} -> {table.target}: {table.action}; key: {key}")
    if table.columns:
        print_table(
            ("column", "type", "source type", "from"),
            [(column.name, column.type, column.source_type, column.origin) for column in table.columns],
        )
    for note in table.notes:
        click.echo(f"note: {session.redact(note)}")
