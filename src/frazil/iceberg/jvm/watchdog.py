"""Notices that the JVM ended or hangs, and lets PySpark begin anew in the same Python process.

    JvmWatch --every moment--> process ended? --------------------------------+
             --a call that costs nothing, every few seconds--> answered?      v
                                     silent for too long: killed --------> on_lost(reason), once
    abandon(session) --> PySpark and we forget everything of it --> open_session starts another JVM

A call into a JVM that hangs waits forever. Killing the process ends the wait: every blocked call returns with an error
that proves nothing of a commit (H56), and the next session finds out from the tables.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from threading import Event, Lock, Thread
from typing import Any

from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER
from pyspark import SparkContext, SparkFiles
from pyspark.sql import SparkSession, SQLContext

from frazil.clock import Clock, SystemClock
from frazil.iceberg.catalogs.open_catalog import forget_catalogs
from frazil.iceberg.jvm.errors import JAVA_ERRORS
from frazil.iceberg.jvm.method_handles import forget_handles
from frazil.iceberg.jvm.session import clear_local_directory
from frazil.iceberg.jvm.tls import forget_certificates
from frazil.iceberg.system.system_table import forget_namespaces

PING_EVERY = 2.0
PATIENCE = 60.0
_LOOK_EVERY = 0.5
_REAPED_WITHIN = 10.0


class JvmWatch:
    """Watches the JVM of a session from now on, in threads of its own, until `stop` or until it is lost."""

    def __init__(
        self,
        session: SparkSession,
        on_lost: Callable[[str], None],
        *,
        ping_every: float = PING_EVERY,
        patience: float = PATIENCE,
        may_kill: bool = True,
        clock: Clock | None = None,
    ) -> None:
        """`on_lost` is told why, once, in a thread of the watch. A JVM that is silent for `patience` seconds is killed
        if PySpark started it in this process; with `may_kill` False, or if somebody else started it, it is only told
        of."""
        gateway = session.sparkContext._gateway
        self._process = _process_of(gateway)
        self._may_kill = may_kill
        self._on_lost = on_lost
        self._ping_every, self._patience = ping_every, patience
        self._clock = clock or SystemClock()
        self._system = gateway.jvm.java.lang.System
        self._ended = Event()
        self._lock = Lock()
        self._reason: str | None = None
        self._answered = Event()
        self._refused: str | None = None
        _be_quiet_about_its_end(session.sparkContext)
        for name, run in (("jvm-ping", self._keep_pinging), ("jvm-watch", self._keep_looking)):
            Thread(target=run, name=name, daemon=True).start()

    @property
    def lost(self) -> str | None:
        """Why it is lost, or None. Looks at the process itself: an error of a moment ago may be older than the watch's
        last look."""
        return self._reason or self._why_gone()

    def stop(self) -> None:
        """Ends the watch; nobody is told anything any more."""
        with self._lock:
            self._ended.set()

    def _keep_pinging(self) -> None:
        while not self._ended.is_set():
            try:
                self._system.nanoTime()
            except JAVA_ERRORS as error:
                self._refused = f"{type(error).__name__}: {error}"
            else:
                self._refused = None
                self._answered.set()
            self._clock.wait(self._ping_every, self._ended)

    def _keep_looking(self) -> None:
        silent, looked = 0.0, self._clock.monotonic()
        while not self._clock.wait(min(_LOOK_EVERY, self._patience / 4), self._ended):
            now = self._clock.monotonic()
            silent, looked = silence(silent, now - looked, self._answered.is_set()), now
            self._answered.clear()
            if (reason := self._why_gone()) is None and silent > self._patience + self._ping_every:
                reason = self._given_up(silent)
            if reason is not None:
                self._tell(reason)
                return

    def _why_gone(self) -> str | None:
        if self._process is None:
            return None if self._refused is None else f"the JVM can no longer be reached: {self._refused}"
        code = self._process.poll()
        return None if code is None else f"the JVM (process {self._process.pid}) ended with {_ending(code)}"

    def _given_up(self, silent: float) -> str:
        reason = f"the JVM did not answer for {silent:.0f} seconds"
        if self._process is None or not self._may_kill:
            return reason
        _kill(self._process)
        return f"{reason}; its process {self._process.pid} was killed"

    def _tell(self, reason: str) -> None:
        with self._lock:
            if self._ended.is_set():
                return
            self._reason = reason
            self._ended.set()
        self._on_lost(reason)


def silence(so_far: float, elapsed: float, answered: bool) -> float:
    """How long the JVM has not answered, after one more look. Whoever stops this process for a while stops the watch
    too: such a time is not the JVM's silence."""
    return 0.0 if answered else so_far + min(elapsed, 2 * _LOOK_EVERY)


def abandon(session: SparkSession) -> None:
    """Makes PySpark and this package forget the session, its context and its JVM, so that `open_session` starts anew.

    For a JVM that is lost. If PySpark started it here and it still runs, it is killed: nobody could reach it any more.
    Never waits for an answer of it. What still holds something of the old session gets a lost connection from it.
    """
    context = session.sparkContext
    gateway = context._gateway
    if (process := _process_of(gateway)) is not None:
        _kill(process)
    _be_quiet_about_its_end(context)
    _disconnect(gateway)
    server, context._accumulatorServer = context._accumulatorServer, None
    if server is not None:
        server.shutdown()
    with SparkContext._lock:
        if SparkContext._active_spark_context is context:
            SparkContext._active_spark_context = None
            SparkContext._gateway = SparkContext._jvm = None
            SparkSession._instantiatedSession = SparkSession._activeSession = None
            SQLContext._instantiatedContext = None
            SparkFiles._sc = None
    # PySpark put a directory of the JVM there, which ends with it.
    sys.path[:] = [entry for entry in sys.path if not ("userFiles-" in entry and not Path(entry).exists())]
    forget_catalogs()
    forget_handles()
    forget_certificates()
    forget_namespaces()


def stop_session(session: SparkSession, patience: float = PATIENCE) -> None:
    """Stops it, or abandons it if its JVM does not take part any more, or not for so many seconds."""
    stopped = Event()

    def stop() -> None:
        with contextlib.suppress(*JAVA_ERRORS):
            session.stop()
            stopped.set()

    stopping = Thread(target=stop, name="jvm-stop", daemon=True)
    stopping.start()
    stopping.join(patience)
    if not stopped.is_set():
        abandon(session)


def _process_of(gateway: Any) -> Popen[bytes] | None:
    """The JVM, if PySpark started it in this process; its scripts make way for it, so that the process is the same."""
    process = gateway.__dict__.get("proc")
    return process if isinstance(process, Popen) else None


def _kill(process: Popen[bytes]) -> None:
    process.kill()
    # One that waits for a broken disk ends when the disk lets it; nobody waits for that.
    with contextlib.suppress(TimeoutExpired):
        process.wait(_REAPED_WITHIN)


def _disconnect(gateway: Any) -> None:
    """No thread that still holds an old object may connect to whoever gets the JVM's port next."""
    gateway.gateway_parameters.port = 0
    client = gateway._gateway_client
    client.is_connected = False
    client.finalizer_deque.appendleft(SHUTDOWN_FINALIZER_WORKER)
    with contextlib.suppress(*JAVA_ERRORS):
        gateway.close()
    clear_local_directory()


def _be_quiet_about_its_end(context: SparkContext) -> None:
    """Py4J logs a traceback for every call that a lost JVM breaks off, and PySpark's server for accumulators prints one
    when it hangs up. Callers get the error anyway, and the end is told once, by the watch."""
    logging.getLogger().addFilter(_is_news)
    if context._accumulatorServer is not None:
        context._accumulatorServer.handle_error = lambda request, address: None


def _is_news(record: logging.LogRecord) -> bool:
    return record.msg != "Exception while sending command."


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
