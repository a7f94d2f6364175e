"""A pipeline's state as /status tells it: plain values for JSON.

Progress + Health + History --> {"pipeline", ..., "tables": [{"table", "state", "lag_seconds", ...}]}

Names are those of `frazil status --json` where both tell the same thing. Texts that somebody else wrote (messages of
drivers, hints with addresses) pass `redact` and are cut to a bound.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from frazil.observability.health import Health
from frazil.observability.history import History

if TYPE_CHECKING:
    from frazil.daemon.results import Progress, TableProgress

TEXT_MAX = 4_000


def status_of(
    progress: Progress, health: Health, history: History, *, actions: bool, redact: Callable[[str], str]
) -> dict[str, Any]:
    """`actions` says whether the daemon takes requests that change something."""
    return {
        "pipeline": progress.pipeline,
        "started_at": None if progress.started_at is None else moment_text(progress.started_at),
        "resolved": progress.resolved,
        "alive": health.alive,
        "ready": health.ready,
        "reason": shown(health.reason, redact),
        "actions": actions,
        "tables": [_table(table, history, redact) for table in progress.tables],
    }


def _table(table: TableProgress, history: History, redact: Callable[[str], str]) -> dict[str, Any]:
    facts = dataclasses.asdict(table)
    load = facts.pop("load")
    if table.load is not None:
        load["eta_seconds"] = history.load_ends_in(table.name, table.load.total - table.load.done)
    return {
        "table": facts.pop("name"),
        **facts,
        "maintained_at": None if table.maintained_at is None else moment_text(table.maintained_at),
        "maintenance_waits": shown(table.maintenance_waits, redact),
        "error": shown(table.error, redact),
        "hint": shown(table.hint, redact),
        "rows_per_second": history.rows_per_second(table.name),
        "load": load,
    }


def shown(text: str, redact: Callable[[str], str]) -> str:
    """A text that may be shown to anybody."""
    safe = redact(text)
    return safe if len(safe) <= TEXT_MAX else safe[: TEXT_MAX - 1] + "…"


def moment_text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
