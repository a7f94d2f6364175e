"""A pipeline's state as /status tells it: plain values for JSON.

RunProgress + Health + Timeseries --> {"pipeline", ..., "tables": [{"table", "state", "lag_seconds", ...}]}

Names are those of `frazil status --json` where both tell the same thing. Texts that somebody else wrote (messages of
drivers, hints with addresses) pass `redact` and are cut to a bound.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from frazil.serve.http.health import Health
from frazil.serve.http.timeseries import Timeseries

if TYPE_CHECKING:
    from frazil.model.results import RunProgress, TableProgress

TEXT_MAX = 4_000


def status_of(
    progress: RunProgress, health: Health, history: Timeseries, *, actions: bool, redact: Callable[[str], str]
) -> dict[str, Any]:
    """`actions` says whether the daemon takes requests that change something."""
    return {
        "pipeline": progress.pipeline,
        "started_at": moment_text(progress.started_at),
        "resolved": progress.resolved,
        "source_time": moment_text(progress.source_time),
        "index_bytes": progress.index_bytes,
        "index_hit_rate": progress.index_hit_rate,
        "alive": health.alive,
        "ready": health.ready,
        "reason": shown(health.reason, redact),
        "actions": actions,
        "tables": [_table(table, history, redact) for table in progress.tables],
    }


def _table(table: TableProgress, history: Timeseries, redact: Callable[[str], str]) -> dict[str, Any]:
    facts = dataclasses.asdict(table)
    load = facts.pop("load")
    if table.load is not None:
        load["eta_seconds"] = history.load_ends_in(table.name, table.load.total - table.load.done)
    return {
        "table": facts.pop("name"),
        **facts,
        "source_time": moment_text(table.source_time),
        "maintained_at": moment_text(table.maintained_at),
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


def moment_text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
