"""What was measured: a table for people, bench/results.json for scripts, docs/benchmarks.md for readers.

Measured rows --> console
          |-----> results.json     one object a row: name, value, unit, target, holds, load
          `-----> benchmarks.md    only what stands between the two marks; the rest is written by hand
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

BEGIN = "<!-- measured: written by `make bench`, do not edit below -->"
END = "<!-- measured: end -->"
SOAK_BEGIN = "<!-- soak: written by `make soak`, do not edit below -->"
SOAK_END = "<!-- soak: end -->"
_VERSIONS = ("frazil", "pyspark", "pyarrow", "pyiceberg")


@dataclass(frozen=True)
class Measured:
    """`value` is None where there is no number, and `name` says why. `target` is what the design asks for, None
    where a row is only context; `load` is the machine's at that moment."""

    name: str
    value: float | None
    unit: str
    target: str | None
    holds: bool | None
    load: float


def measured(
    name: str, value: float, unit: str, *, at_most: float | None = None, at_least: float | None = None
) -> Measured:
    target = f"<= {at_most:g}" if at_most is not None else f">= {at_least:g}" if at_least is not None else None
    value = round(float(value), 4)
    holds = None
    if at_most is not None:
        holds = value <= at_most
    elif at_least is not None:
        holds = value >= at_least
    return Measured(name, value, unit, target, holds, _load())


def unmeasured(name: str, *, failed: bool = False) -> Measured:
    """A row without a number: the reason stands in its name. `failed` if there should have been one."""
    return Measured(name, None, "", None, False if failed else None, _load())


def merged(old: Sequence[Measured], new: Sequence[Measured]) -> list[Measured]:
    """The old rows with those of the same name replaced, then the rows nobody had."""
    by_name = {row.name: row for row in new}
    known = {row.name for row in old}
    return [by_name.get(row.name, row) for row in old] + [row for row in new if row.name not in known]


def read_results(path: Path) -> list[Measured]:
    return [Measured(**row) for row in json.loads(path.read_text())] if path.exists() else []


def write_results(rows: Sequence[Measured], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


def show(rows: Sequence[Measured]) -> None:
    table = Table()
    for heading in ("what", "value", "unit", "target", "holds", "load"):
        table.add_column(heading, justify="right" if heading in ("value", "load") else "left")
    for row in rows:
        table.add_row(*_cells(row))
    Console(width=150).print(table)


def write_page(rows: Sequence[Measured], path: Path, begin_mark: str = BEGIN, end_mark: str = END) -> None:
    """Puts the table between the marks of an existing page. Raises ValueError if it has none."""
    before, begin, rest = path.read_text().partition(begin_mark)
    _, end, after = rest.partition(end_mark)
    if not begin or not end:
        raise ValueError(f"{path} has no place for the table: it needs the lines {begin_mark!r} and {end_mark!r}")
    lines = [
        "",
        machine(),
        "",
        "| what | value | unit | target | holds | load |",
        "|---|---:|---|---|---|---:|",
        *("| " + " | ".join(_cells(row)) + " |" for row in rows),
        "",
    ]
    path.write_text(before + begin_mark + "\n".join(lines) + end_mark + after)


def machine() -> str:
    """When and on what, in a line."""
    versions = ", ".join(f"{name} {version(name)}" for name in _VERSIONS)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    now = datetime.now(UTC)
    return (
        f"Last run {now:%Y-%m-%d %H:%M} UTC: {os.cpu_count()} cores, {memory:.0f} GB, {platform.system()} "
        f"{platform.machine()}, Python {platform.python_version()}, {versions}; load {_load():.1f} at the end."
    )


def _cells(row: Measured) -> tuple[str, ...]:
    value = "" if row.value is None else f"{row.value:,.0f}" if row.value >= 1000 else f"{row.value:,.3f}"
    holds = "" if row.holds is None else "yes" if row.holds else "no"
    return row.name, value, row.unit, row.target or "", holds, f"{row.load:.1f}"


def _load() -> float:
    return round(os.getloadavg()[0], 2)
