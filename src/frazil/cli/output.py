"""What commands print: tables for people, one JSON array for scripts.

stdout carries the answer, stderr everything else. While the answer is JSON, whatever a library or the JVM
prints on stdout is led to stderr.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from datetime import UTC, datetime
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

NOTHING = "-"
_WIDE = 240
"""Columns where stdout is no terminal: a pipe or a file must not cut positions."""


def print_json(items: Iterable[Any]) -> None:
    """Dataclasses as one array."""
    click.echo(json.dumps([dataclasses.asdict(item) for item in items], default=_plain, indent=2, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return moment_text(value)
    raise TypeError(f"{value!r} has no JSON form")


def print_table(headings: Sequence[str], rows: Iterable[Sequence[Any]], *, numbers: Sequence[str] = ()) -> None:
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else _WIDE, highlight=False)
    with console.capture() as captured:
        console.print(table_of(headings, rows, numbers=numbers))
    click.echo("\n".join(line.rstrip() for line in captured.get().strip("\n").splitlines()))


def table_of(headings: Sequence[str], rows: Iterable[Sequence[Any]], *, numbers: Sequence[str] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(NOTHING if cell is None else _escaped(cell) for cell in row))
    return table


def _escaped(cell: Any) -> str:
    return str(cell).replace("[", r"\[")


def seconds_text(seconds: float | None) -> str | None:
    """A lag, short: 0.4s, 12s, 3m 20s, 2h 5m."""
    if seconds is None:
        return None
    if seconds < 10:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes}m" if hours else f"{minutes}m {rest}s"


def moment_text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


@contextmanager
def stdout_kept_clean(wanted: bool) -> Iterator[None]:
    """Leads stdout to stderr, also that of child processes, until the answer is printed."""
    if not wanted:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
