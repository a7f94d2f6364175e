"""`frazil run`: the daemon, with a live view on a terminal and log lines elsewhere.

SIGINT, SIGTERM --first--> stop event: what is under way is finished, exit 0
                --second-> exit at once (what was not committed is written again by the next run)
SIGHUP          ---------> the configuration is read again; `frazil reload` sends it
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from types import FrameType, TracebackType
from typing import Any

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from frazil.app.pidfile import check_alone
from frazil.cli.exit_codes import EPILOG
from frazil.cli.output import (
    counted,
    fitting_table,
    position_text,
    print_json,
    seconds_text,
    stdout_kept_clean,
)
from frazil.cli.seam import Session, json_option, on_pipeline
from frazil.clock import SystemClock
from frazil.config.pipeline_config import PipelineConfig
from frazil.model.results import RunProgress, RunSummary, TableProgress
from frazil.observability.logs import Log

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_BAR = 12
_log = Log("frazil.cli.commands.run")


@click.command(epilog=EPILOG)
@on_pipeline
@click.option("--once", is_flag=True, help="Publish up to the newest resolved position, then exit.")
@click.option("--take-over", is_flag=True, help="With --once: also beside a daemon, which then ends.")
@json_option
def run(session: Session, config: PipelineConfig, *, once: bool, take_over: bool, as_json: bool) -> None:
    """Publish the source's changes as Iceberg snapshots, until stopped.

    Ctrl-C or SIGTERM finishes what is under way and exits with 0; a second one exits at once. Nothing is lost
    either way: a run begins where the tables' own ledger ends. SIGHUP or `frazil reload` reads CONFIG again.

    A run takes the pipeline over from one that is still going, which ends with 6. With --once nobody would be left, so
    that is refused while a daemon is found: one of this user on this machine, or one that answers at http.host and
    http.port of CONFIG. Others cannot be seen from here.

    \b
    Examples:
      frazil run shop.yaml
      frazil run shop.yaml --once --json
      frazil run shop.yaml --once --take-over
      frazil run shop.yaml --set http.port=9464 --log-format json
    """
    if take_over and not once:
        raise click.UsageError("--take-over is for --once: a daemon takes over anyway")
    if once and not take_over:
        check_alone(config)
    stop, reload = threading.Event(), threading.Event()
    with (
        stdout_kept_clean(as_json),
        StopSignals(stop, reload) as signals,
        session.open_pipeline(config, reread=session.reread) as pipeline,
        _view(session) as on_progress,
    ):
        # Starting Spark installs a handler for SIGINT of its own.
        signals.install()
        summary = pipeline.run(once=once, on_progress=on_progress, stop=stop, reload=reload, take_over=take_over)
    if as_json:
        print_json([summary])
    else:
        click.echo(_sentence(summary))


def _sentence(summary: RunSummary) -> str:
    at = f", resolved at {position_text(summary.resolved, summary.source_time)}" if summary.resolved else ""
    dropped = f", {counted(summary.dropped, 'duplicate or late change')} dropped" if summary.dropped else ""
    published = f"{counted(summary.epochs, 'epoch')} published to {counted(summary.tables, 'table')}"
    return f"{published}: {counted(summary.rows, 'row')}, {counted(summary.deletes, 'delete')}{dropped}{at}"


class StopSignals:
    """While open, the first signal sets `stop` and the second ends the process; SIGHUP sets `reload`."""

    def __init__(self, stop: threading.Event, reload: threading.Event) -> None:
        self._stop = stop
        self._reload = reload
        self._stopping = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in _SIGNALS}
        self.install()
        return self

    def install(self) -> None:
        for number in self._before:
            signal.signal(number, self._received)

    def _received(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            _set_beside(self._reload)
            return
        if self._stopping or self._stop.is_set():
            os._exit(128 + number)
        self._stopping = True
        _set_beside(self._stop)
        # A signal may interrupt a write to the same stream, so this one goes around its buffer.
        os.write(2, b"stopping after the work under way; once more to exit at once\n")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _set_beside(event: threading.Event) -> None:
    """In a thread of its own: a handler runs in the main thread, which may just hold the lock of the event to wait."""
    threading.Thread(target=event.set, name="frazil-signal", daemon=True).start()


@contextmanager
def _view(session: Session) -> Iterator[Callable[[RunProgress], None]]:
    if not sys.stderr.isatty():
        yield _LoggedProgress()
        return
    console = Console(file=sys.stderr, highlight=False)
    plain, session.write_line = session.write_line, lambda line: console.print(line, markup=False, soft_wrap=True)
    try:
        pace = LoadPace()
        with Live(progress_table(RunProgress(())), console=console, refresh_per_second=4) as live:
            yield lambda progress: live.update(progress_table(progress, pace, width=console.width))
    finally:
        session.write_line = plain


class LoadPace:
    """How long the first loads will still take, judging by how fast they were so far."""

    def __init__(self) -> None:
        self._began: dict[str, tuple[datetime, int]] = {}

    def seconds_left(self, table: TableProgress, now: datetime) -> float | None:
        """None while nothing can be told."""
        if table.load is None:
            self._began.pop(table.name, None)
            return None
        began, done = self._began.setdefault(table.name, (now, table.load.done))
        rows, seconds = table.load.done - done, (now - began).total_seconds()
        left = max(0, table.load.total - table.load.done)
        return left * seconds / rows if rows > 0 and seconds > 0 else None


def progress_table(
    progress: RunProgress, pace: LoadPace | None = None, now: datetime | None = None, width: int = 240
) -> Table:
    """The live view: a line for each table, as much of it as fits; what is held up says why below."""
    pace, now = pace or LoadPace(), now or SystemClock().now()
    rows = [
        (
            t.name,
            t.state.value,
            seconds_text(t.lag_seconds),
            load_text(t, pace.seconds_left(t, now)) or position_text(t.resolved, t.source_time),
            f"{t.epochs:,}",
            f"{t.rows:,}",
        )
        for t in progress.tables
    ]
    headings = ("table", "state", "lag", "resolved, or first load", "epochs", "rows written")
    view, _ = fitting_table(headings, rows, width, numbers=("epochs", "rows written", "lag"))
    troubles = [f"{t.name}: {t.error}" for t in progress.tables if t.error]
    view.caption = "\n".join(troubles) or None
    return view


def load_text(table: TableProgress, seconds_left: float | None) -> str:
    """A bar, the share that is done, and how long the rest will take."""
    if table.load is None:
        return ""
    share = min(1.0, table.load.done / table.load.total) if table.load.total else 0.0
    bar = "█" * round(share * _BAR) + "░" * (_BAR - round(share * _BAR))
    left = "" if seconds_left is None else f", {seconds_text(seconds_left)} left"
    return f"{bar} {share:.0%}{left}"


class _LoggedProgress:
    """Logs a table when it is in another state, or its first load has come further. What is published, and why a table
    is held up, is logged where it happens."""

    def __init__(self) -> None:
        self._shown: dict[str, tuple[Any, ...]] = {}

    def __call__(self, progress: RunProgress) -> None:
        for table in progress.tables:
            facts = (table.state, table.load)
            if self._shown.get(table.name) != facts:
                self._shown[table.name] = facts
                _log_progress(table)


def _log_progress(table: TableProgress) -> None:
    _log.info(
        "progress",
        table=table.name,
        state=table.state.value,
        lag_seconds=table.lag_seconds,
        **({} if table.load is None else {"loaded": table.load.done, "to_load": table.load.total}),
    )
