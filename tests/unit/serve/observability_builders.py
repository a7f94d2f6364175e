"""A clock that stands, tables that were seen, and a server that tells about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any
from uuid import UUID

from frazil.errors import ConfigError
from frazil.model.results import RunProgress, TableProgress
from frazil.model.state import TableState
from frazil.observability.metrics import Metrics
from frazil.serve.http.health import Actions, Health
from frazil.serve.http.server import DaemonServer
from frazil.serve.http.timeseries import Timeseries

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TOKEN = "a token of sixteen or more".replace(" ", "-")


class SetClock:
    """A clock that stands where the test puts it."""

    def __init__(self) -> None:
        self.time = NOON
        self.seconds = 0.0

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.seconds

    def wait(self, seconds: float, until: Event | None = None) -> bool:
        return (until or Event()).wait(60)

    def new_uuid(self) -> UUID:
        return UUID(int=0)

    def jitter(self) -> float:
        return 0.0


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def table(name: str = "lake.orders", **facts: Any) -> TableProgress:
    known: dict[str, Any] = {
        "state": TableState.STEADY_STATE, "resolved": "1.0", "epochs": 3, "rows": 100, "lag_seconds": 1.5,
        "source": "shop.orders", "deletes": 0, "snapshot_id": 8_211_034_567_891_234_567, "data_files": 4,
        "delete_files": 1, "snapshots": 5,
    }  # fmt: skip
    return TableProgress(name, **{**known, **facts})


def progress(*tables: TableProgress) -> RunProgress:
    return RunProgress(tables or (table(),), "1.0", "shop", NOON)


@dataclass
class Recorded:
    """Actions that remember what was asked."""

    asked: list[str] = field(default_factory=list)

    def reload(self) -> str:
        self.asked.append("reload")
        return "the configuration is read again"

    def resync(self, table: str) -> str:
        if table != "lake.orders":
            raise ConfigError(f"{table} is no table of this pipeline", hint="its tables are: lake.orders")
        self.asked.append(f"resync {table}")
        return f"{table} is loaded anew"


def server(
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    token: str | None = None,
    seen: Callable[[], RunProgress] = progress,
    health: Callable[[], Health] = lambda: Health(True, True),
    history: Timeseries | None = None,
    actions: Actions | None = None,
    redact: Callable[[str], str] = str,
) -> DaemonServer:
    clock = SetClock()
    return DaemonServer(
        host, port, token, metrics=Metrics(clock), progress=seen, health=health, history=history or Timeseries(),
        actions=actions, redact=redact, clock=clock,
    )  # fmt: skip
