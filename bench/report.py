"""What was measured, as a table for people and as bench/results.json for scripts."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Measured:
    """`target` is what DESIGN asks for, None where a row is only context; `load` is the machine's at that moment."""

    name: str
    value: float
    unit: str
    target: str | None
    holds: bool | None
    load: float


def measured(
    name: str, value: float, unit: str, *, at_most: float | None = None, at_least: float | None = None
) -> Measured:
    target = f"<= {at_most:g}" if at_most is not None else f">= {at_least:g}" if at_least is not None else None
    holds = None
    if at_most is not None:
        holds = value <= at_most
    elif at_least is not None:
        holds = value >= at_least
    return Measured(name, round(value, 4), unit, target, holds, round(os.getloadavg()[0], 2))


def publish(rows: list[Measured], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    table = Table()
    for heading in ("what", "value", "unit", "target", "holds", "load"):
        table.add_column(heading, justify="right" if heading in ("value", "load") else "left")
    for row in rows:
        holds = "" if row.holds is None else "yes" if row.holds else "no"
        table.add_row(row.name, f"{row.value:,.3f}", row.unit, row.target or "", holds, f"{row.load:.1f}")
    Console(width=140).print(table)
