"""`frazil demo`: everything embedded, from a shop's first sale to time travel, with the proof."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from frazil.app.pipeline import Pipeline
from frazil.cli.commands.run import progress_table as run_table
from frazil.demo.run import Moment, prepare, prove, run_while_trading
from frazil.model.results import RunProgress

_QUERY = """
SELECT c.name, count(*) AS orders, sum(o.total) AS revenue
FROM {catalog}.shop.orders o JOIN {catalog}.shop.customers c ON o.customer_id = c.id
GROUP BY c.name ORDER BY revenue DESC LIMIT 5
""".strip()


@click.command()
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo-out"),
    show_default=True,
    help="Where feed, configuration and warehouse go. An earlier demo there is deleted; anything else is refused.",
)
def demo(directory: Path) -> None:
    """Show Frazil at work: no database, no cloud, about a minute.

    A small shop trades; its CockroachDB changefeed is written to files, untidy as the real one is: duplicates,
    replays after a restart, rows beyond the resolved timestamp, a primary-key change, a new column. A pipeline
    turns it into Iceberg tables while it is being written. Then the tables are queried, and two earlier moments
    and the newest are compared with the shop's own log.

    \b
    Examples:
      frazil demo
      frazil demo --dir ./my-demo
    \b
    Exit codes: 0 every moment equals the workload; 1 it does not; others as in `frazil run`.
    """
    out = Console()
    config, shop = prepare(directory)
    out.print(f"[bold]1.[/] A shop opens. Its changefeed goes to [cyan]{directory / 'feed'}[/]; starting Spark ...")
    with Pipeline.from_file(config) as pipeline:
        out.print(f"[bold]2.[/] [cyan]frazil run {config}[/] while the shop is trading:")
        with Live(console=out, refresh_per_second=4) as live:
            run_while_trading(
                pipeline, shop, lambda progress: live.update(progress_table(progress, len(shop.log), out.width))
            )
        query = _QUERY.format(catalog=pipeline.catalog_name)
        out.print(f"\n[bold]3.[/] Spark SQL on the result:\n[dim]{query}[/]")
        out.print(_rows_table(["name", "orders", "revenue"], pipeline.spark.sql(query).collect()))
        out.print("[bold]4.[/] Time travel: each moment against the shop's own log")
        moments = prove(pipeline, shop)
    for moment in moments:
        _show_moment(out, moment)
    if any(moment.differences for moment in moments):
        sys.exit(1)
    out.print(_next_steps(config), soft_wrap=True, highlight=False)


def _next_steps(config: Path) -> str:
    """Commands to copy, with the program as this shell can call it."""
    program = "frazil" if shutil.which("frazil") else os.path.relpath(sys.argv[0])
    steps = (
        (f"{program} status {config}", "table, state, last epoch, snapshot id, lag"),
        (f"{program} epochs {config} shop.orders", "what was published, epoch by epoch"),
        (f"{program} run {config} --once", "nothing new: nothing is published twice"),
        (f"{program} init --source cockroachdb", "a commented configuration for your own feed"),
    )
    width = max(len(command) for command, _ in steps)
    return "\nTry next:\n" + "\n".join(f"  {command:<{width}}   {what}" for command, what in steps)


def progress_table(progress: RunProgress, changes: int, width: int = 240) -> Table:
    """While the shop is trading; `changes` is how many it has made."""
    table = run_table(progress, width=width)
    table.title, table.title_justify = f"{changes:,} changes made", "left"
    table.caption = "rows written: one for each insert and each update that is left of an epoch's changes"
    table.caption_justify = "left"
    return table


def _rows_table(headings: list[str], rows: list[tuple[object, ...]]) -> Table:
    table = Table()
    for heading in headings:
        table.add_column(heading)
    for row in rows:
        table.add_row(*(str(value) for value in row))
    return table


def _show_moment(out: Console, moment: Moment) -> None:
    sizes = ", ".join(f"{name} {count:,}" for name, count in moment.rows.items())
    verdict = "[red]differs[/]" if moment.differences else "[green]equal, row by row[/]"
    when = f"{moment.resolved.source_time:%H:%M:%S.%f} (R={moment.resolved.text})"
    out.print(f"   {when}: {sizes}: {verdict}", soft_wrap=True)
    for difference in moment.differences[:10]:
        out.print(f"     [red]{difference}[/]")
