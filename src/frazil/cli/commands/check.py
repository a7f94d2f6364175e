"""`frazil check`: what a run would do, without doing it."""

from __future__ import annotations

import sys

import click

from frazil.cli.exit_codes import EPILOG
from frazil.cli.output import counted, print_json, print_table, stdout_kept_clean
from frazil.cli.seam import Session, json_option, on_pipeline
from frazil.config.pipeline_config import PipelineConfig
from frazil.model.results import CheckedCatalog, CheckedTable, CheckReport, MadeAs, TableAction


@click.command(epilog=EPILOG)
@on_pipeline
@json_option
def check(session: Session, config: PipelineConfig, *, as_json: bool) -> None:
    """Validate the configuration, connect, and show what would be created or changed.

    Shows how each table is made (deletes, format version, partitions, tables beside it), which type each column gets
    and who said so, and ends with a block for the configuration that pins what was discovered and keeps all other
    settings. Nothing is changed. Where something would stop a table, it says `problem:`, and exits as a run would that
    stops for the first of these.

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
    sys.exit(next((table.exit_code for table in report.tables if table.exit_code), 0))


def _print_report(session: Session, report: CheckReport) -> None:
    click.echo(f"feed     {session.redact(report.feed)}")
    for catalog in report.catalogs:
        _print_catalog(session, catalog)
    for table in report.tables:
        _print_checked(session, table)
    tables = sum(table.action is not TableAction.NO_TABLE for table in report.tables)
    click.echo(f"\n{counted(tables, 'table')}; nothing was changed")
    if report.pin_yaml:
        click.echo("\nTo pin what was discovered, take `tables:` out and put this into the configuration:\n")
        click.echo(session.redact(report.pin_yaml.rstrip()))


def _print_catalog(session: Session, catalog: CheckedCatalog) -> None:
    click.echo(f"catalog  {session.redact(catalog.described)}")
    able = [name for name, can in catalog.abilities.items() if can]
    unable = [name for name, can in catalog.abilities.items() if not can]
    click.echo(f"         can: {', '.join(able) or 'nothing of this'}; cannot: {', '.join(unable) or 'nothing'}")
    for note in catalog.notes:
        click.echo(f"         note: {session.redact(note)}")


def _made(made: MadeAs) -> str:
    said = [f"deletes: {made.deletes}", f"format version {made.format_version}"]
    said += [f"partitioned by {', '.join(made.partition)}" if made.partition else "not partitioned"]
    said += [f"sorted by {', '.join(made.sort)}"] if made.sort else []
    said += [f"beside it: {', '.join(made.side_tables)}"] if made.side_tables else []
    return "; ".join(said)


def _print_checked(session: Session, table: CheckedTable) -> None:
    key = f"{', '.join(table.key)} (from {table.key_origin})" if table.key else "none"
    taken = f"{table.source} -> {table.target}: {table.action}; key: {key}"
    click.echo(f"\n{taken}" if table.target else f"\n{table.source}: {table.action}")
    if table.made is not None:
        click.echo(_made(table.made))
    if table.columns:
        print_table(
            ("column", "type", "source type", "from"),
            [(column.name, column.type, column.source_type, column.origin) for column in table.columns],
            folds=("column", "type", "source type"),
        )
    for note in table.notes:
        click.echo(f"note: {session.redact(note)}")
