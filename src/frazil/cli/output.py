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
from contextlib import contextmanager, redirect_stdout, suppress
from datetime import UTC, datetime
from typing import Any

import click
from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table

from frazil.model.position import NotAPosition, parse_position, time_text

NOTHING = "-"
_WIDE = 10_000
"""Columns where stdout is no terminal: nothing is cut or left out in a pipe or a file."""
_FOLDED = 24
"""A name of a table beside state, lag and time fits 80 columns so."""
_BETWEEN = 3


def print_json(items: Iterable[Any]) -> None:
    """Dataclasses as one array."""
    click.echo(json.dumps([dataclasses.asdict(item) for item in items], default=_plain, indent=2, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return moment_text(value)
    raise TypeError(f"{value!r} has no JSON form")


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    numbers: Sequence[str] = (),
    folds: Sequence[str] = (),
) -> None:
    """On a terminal that is too narrow the last columns are left out, and that is said; the first two always stay.
    Long texts of columns that `folds` names go on in the next line instead."""
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else _WIDE, highlight=False)
    table, left_out = fitting_table(headings, list(rows), console.width, numbers=numbers, folds=folds)
    with console.capture() as captured:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in captured.get().strip("\n").splitlines()))
    if left_out:
        click.echo(f"a wider terminal shows more, and --json all: {', '.join(left_out)}", err=True)


def fitting_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[Any]],
    width: int,
    *,
    numbers: Sequence[str] = (),
    folds: Sequence[str] = (),
) -> tuple[Table, tuple[str, ...]]:
    """As many of the columns, from the first, as fit side by side; and the others, if there are any."""
    widths = [max(map(cell_len, (heading, *(_cell(row[at]) for row in rows)))) for at, heading in enumerate(headings)]
    needed = [min(_FOLDED, wide) if name in folds else wide for name, wide in zip(headings, widths, strict=True)]
    shown = len(headings)
    while shown > 2 and sum(needed[:shown]) + _BETWEEN * shown - 1 > width:
        shown -= 1
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings[:shown]:
        side: JustifyMethod = "right" if heading in numbers else "left"
        table.add_column(heading, justify=side, overflow="fold", no_wrap=bool(folds) and heading not in folds)
    for row in rows:
        table.add_row(*(_escaped(_cell(cell)) for cell in row[:shown]))
    return table, tuple(headings[shown:])


def _cell(cell: Any) -> str:
    return NOTHING if cell is None else str(cell)


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")


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


def position_text(resolved: str | None, moment: datetime | None = None) -> str | None:
    """For people: when it was by the source's clock, `2026-11-17 12:35:05.353 Z`, as the ledger has it (`moment`), else
    as the position tells it; the position itself if nothing does. Scripts get the exact position."""
    if resolved is None:
        return None
    with suppress(NotAPosition):
        moment = moment or parse_position(resolved).source_time
    return resolved if moment is None else time_text(moment)


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
