"""Maintains the tables of a running pipeline, beside it, without being asked.

    every naptime: each table --commits, delete files, time--> due? --lagging, or not the hour?--> later
                                                                |
                                                                v
                                                convert, compact, expire, sweep; then what is queued is deleted

One table at a time, in a thread of its own. Whether an action is worth it is for its own plan to say; here only when to
look. What goes wrong is logged and tried again the next time: maintenance never stops a pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from threading import Event, Thread

from frazil.clock import Clock
from frazil.config.maintenance import MaintenanceConfig
from frazil.daemon.maintaining import Maintenance
from frazil.daemon.tables import RunningTable
from frazil.model.names import TableName
from frazil.model.state import TableState
from frazil.observability.logs import Log

_log = Log("frazil.maintenance")


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What is known of a table without asking anybody. `seconds` since it was maintained last."""

    commits: int
    delete_files: int
    seconds: float
    state: TableState
    lag: float | None = None


def due(activity: Activity, settings: MaintenanceConfig) -> str | None:
    """Why the table should be looked at now; None if not."""
    if activity.state is not TableState.STEADY_STATE:
        return None
    if activity.lag is not None and activity.lag > settings.max_lag:
        return None
    if activity.commits >= settings.after_commits:
        return f"{activity.commits} commits"
    if activity.commits and activity.delete_files >= settings.after_delete_files:
        return f"{activity.delete_files} delete files"
    if activity.seconds >= settings.every:
        return f"{activity.seconds:.0f} s since the last time"
    return None


def is_quiet(now: datetime, hours: Sequence[tuple[time, time]]) -> bool:
    """Whether nothing may be done at this hour (UTC); a span may reach past midnight."""
    at = now.time()
    return any(begin <= at < end if begin <= end else at >= begin or at < end for begin, end in hours)


class Autovacuum:
    """At work from `start` until `stop`."""

    def __init__(
        self,
        maintenance: Maintenance,
        tables: Callable[[], Sequence[RunningTable]],
        settings: MaintenanceConfig,
        clock: Clock,
    ) -> None:
        self._maintenance = maintenance
        self._tables = tables
        self._settings = settings
        self._clock = clock
        self._stop = Event()
        self._began = clock.monotonic()
        self._last: dict[TableName, tuple[int, float]] = {}
        self._thread = Thread(target=self._run, name="frazil-autovacuum", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, patience: float) -> None:
        """What is under way may be left: files of a run that does not end are swept later."""
        self._stop.set()
        self._thread.join(patience)

    def _run(self) -> None:
        while not self._clock.wait(self._settings.naptime, self._stop):
            if is_quiet(self._clock.now(), self._settings.quiet):
                continue
            reasons = {table.target: due(self._activity(table), self._settings) for table in self._tables()}
            found = {target: reason for target, reason in reasons.items() if reason is not None}
            if found:
                self._maintain(found)

    def _activity(self, table: RunningTable) -> Activity:
        commits, at = self._last.get(table.target, (0, self._began))
        return Activity(
            commits=table.epochs - commits,
            delete_files=0 if table.files is None else table.files[1],
            seconds=self._clock.monotonic() - at,
            state=table.state,
            lag=table.lag(self._clock.now()),
        )

    def _maintain(self, found: Mapping[TableName, str]) -> None:
        epochs = {table.target: table.epochs for table in self._tables()}
        self._last |= {target: (epochs.get(target, 0), self._clock.monotonic()) for target in found}
        _log.info("maintaining", **{target.text: reason for target, reason in found.items()})
        try:
            for step in self._maintenance.run(list(found), dry=False):
                _log.info("maintained", table=step.table, action=step.action, **step.counts, seconds=step.seconds)
                if self._stop.is_set():
                    return
        except Exception as error:  # whatever it met, the stream goes on
            _log.warning("maintenance failed", reason=f"{type(error).__name__}: {error}")
