"""A sinkless changefeed over the PostgreSQL wire protocol, relayed into a spool of files.

    CockroachDB ==one connection, one endless result==> thread --> FeedSpool --> the cloud storage source
       (table, key, value)                                row
       (NULL,  NULL, {"resolved": R})                     promise

    begin() --> connecting --> streaming --stop()--> ended
                    |              |
                    +--- failure --+--> kept, and raised by check() in the caller's thread

A relay is one connection. When it is lost, a new relay with the published frontier as its cursor loses nothing:
the server sends again all that came after it. Nothing is asked of the clock; the caller names the session.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from types import TracebackType
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from frazil.errors import FrazilError, SourceUnavailable, StorageUnavailable
from frazil.model.position import NotAPosition, Position, is_before
from frazil.sources.cockroachdb.position import Hlc
from frazil.sources.cockroachdb.sinkless.spool import ROLL_BYTES, FeedSpool, topic_of
from frazil.sources.cockroachdb.sinkless.sql import (
    CLUSTER_TIME,
    FeedOptions,
    FeedStart,
    create_changefeed,
    explain,
    first_row,
    server_of,
    table_parts,
    without_password,
)

_CANCEL_SECONDS = 1.0
_JOIN_SECONDS = 10.0
# A feed says something every second or so. A peer that has vanished without a word is noticed by the kernel.
_CONNECTION_DEFAULTS = {
    "application_name": "frazil",
    "connect_timeout": "10",
    "keepalives": "1",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
}


class Relay:
    """Turns the feed of `tables` into files below `spool`, which belongs to this pipeline alone.

    `session` is 16 lowercase hex digits that no earlier run had. Raises ConfigError for names or options that
    cannot be written as a statement.
    """

    def __init__(
        self,
        url: str,
        tables: Sequence[str],
        spool: Path,
        *,
        session: str,
        start: FeedStart | None = None,
        options: FeedOptions | None = None,
        roll_bytes: int = ROLL_BYTES,
    ) -> None:
        self._url = url
        self._tables = tuple(tables)
        self._topics = frozenset(".".join(table_parts(table)) for table in tables)
        self._start = start or FeedStart()
        self._statement = create_changefeed(tables, self._start, options or FeedOptions())
        self._spool = FeedSpool(spool, session=session, start=self._start, roll_bytes=roll_bytes)
        self._thread = Thread(target=self._run, name=f"frazil-relay-{session}", daemon=True)
        self._line = Lock()  # guards the connection and the wish to stop
        self._connection: psycopg.Connection[Any] | None = None
        self._stopping = False
        self._goal: Hlc | None = None
        self._failure: FrazilError | None = None

    @property
    def feed(self) -> Path:
        """The directory to hand to the cloud storage source. Executors must be able to read it."""
        return self._spool.feed

    @property
    def start(self) -> FeedStart:
        return self._start

    @property
    def resolved(self) -> Hlc | None:
        """The newest promise in the spool."""
        return self._spool.resolved

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def begin(self) -> None:
        """Empties the spool and starts to stream into it. Raises StorageUnavailable."""
        try:
            self._spool.prepare()
        except OSError as error:
            raise self._disk(error) from error
        self._thread.start()

    def check(self) -> None:
        """Raises what ended the stream, if anything did: SourceLost, ConfigError, BadInput, SourceUnavailable or
        StorageUnavailable."""
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    def has_told_all(self, promised: Position | None) -> bool:
        """Whether this promise covers all that had happened when the feed was asked for."""
        return self._goal is not None and not is_before(promised, self._goal)

    def forget(self, before: Hlc, keep: Collection[str] = ()) -> int:
        """Every table is published up to `before`: deletes the files wholly behind it, but for those in `keep`,
        which the frontiers' notes still name. Returns how many were deleted."""
        return self._spool.forget(before, keep)

    def stop(self) -> None:
        """Ends the feed and its connection, also while the server is silent. What was not yet promised is left to
        the next run."""
        with self._line:
            self._stopping = True
            connection = self._connection
            if connection is not None:
                # The server frees the feed at once if it hears the cancel; closing the line ends it in any case.
                with suppress(psycopg.Error):
                    connection.cancel_safe(timeout=_CANCEL_SECONDS)
                _hang_up(connection)
        if self._thread.ident is not None:
            self._thread.join(_JOIN_SECONDS)

    def __enter__(self) -> Relay:
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        failure: FrazilError | None
        try:
            self._relay()
            failure = SourceUnavailable(
                f"{server_of(self._url)} ended the changefeed without an error",
                hint="Frazil resumes from the published frontier; if this repeats, look for CANCEL QUERY in the "
                "cluster's audit or for a proxy with a time limit",
            )
        except FrazilError as error:
            failure = error
        except psycopg.Error as error:
            failure = self._explained(error)
        except OSError as error:
            failure = self._disk(error)
        except Exception as error:  # a dead thread nobody hears of would look like a silent source
            failure = SourceUnavailable(
                f"the relay failed: {type(error).__name__}: {without_password(str(error), self._url)}",
                hint="Frazil resumes from the published frontier; please report this with the log",
            )
        finally:
            with suppress(OSError):
                self._spool.abandon()
        if not self._stopping:
            self._failure = failure

    def _relay(self) -> None:
        connection = _connected(self._url)
        try:
            with self._line:
                if self._stopping:
                    return
                self._connection = connection
            # A default time limit for statements would end the feed in its midst.
            connection.execute("SET statement_timeout = 0")
            self._goal = self._time_of(connection)
            # One row at a time: chunks would hold a promise back until they are full.
            rows = connection.cursor().stream(self._statement, binary=True)
            for table, key, value in rows:
                if self._stopping:  # a broken line still delivers what the kernel had received
                    return
                if table is None:
                    self._spool.resolve(octets(value))
                else:
                    self._spool.add(self._topic(table), None if key is None else octets(key), octets(value))
        finally:
            # Before `rows` is closed: with a connection, psycopg would read on to the end of the endless result.
            self._let_go(connection)

    def _time_of(self, connection: psycopg.Connection[Any]) -> Hlc:
        """The cluster's clock. One that is not told, as where transactions read committed, is behind the first promise
        that follows the cursor: a scan is over with its first promise, and a feed with a cursor promises anew only when
        it has told what lay between."""
        try:
            row = connection.execute(CLUSTER_TIME).fetchone()
            return Hlc.parse(str(row and row[0]))
        except (psycopg.Error, NotAPosition):
            return Hlc(0) if self._start.cursor is None else self._start.cursor.next()

    def _let_go(self, connection: psycopg.Connection[Any]) -> None:
        with self._line:
            self._connection = None
            connection.close()

    def _topic(self, table: Any) -> str:
        return topic_of(table if isinstance(table, str) else octets(table).decode("utf-8"), self._topics)

    def _explained(self, error: psycopg.Error) -> FrazilError:
        said = [error.diag.message_primary or str(error), error.diag.message_detail, error.diag.message_hint]
        return explain(
            "; ".join(text for text in said if text),
            error.sqlstate,
            url=self._url,
            start=self._start,
            tables=self._tables,
        )

    def _disk(self, error: OSError) -> StorageUnavailable:
        return StorageUnavailable(
            f"the spool {self._spool.run} cannot be written: {error}",
            hint="give it room and permission: it holds the initial scan whole, and later what is not yet published. "
            "No two pipelines may share a spool directory",
            path=str(self._spool.run),
        )


def are_empty(url: str, tables: Collection[str], at: Hlc) -> bool:
    """Whether none of these tables had a row then. False also if the cluster does not say."""
    try:
        with _connected(url) as connection:
            return all(connection.execute(first_row(table, at)).fetchone() is None for table in tables)
    except psycopg.Error:
        return False


def _connected(url: str) -> psycopg.Connection[Any]:
    given = conninfo_to_dict(url)
    defaults = {name: value for name, value in _CONNECTION_DEFAULTS.items() if name not in given}
    return psycopg.connect(make_conninfo(url, **defaults), autocommit=True)


def octets(cell: Any) -> bytes:
    """A BYTES value, however it came: binary, or as text in PostgreSQL's hex form."""
    match cell:
        case bytes():
            return cell
        case str() if cell.startswith("\\x"):
            return bytes.fromhex(cell[2:])
        case str():
            return cell.encode("utf-8")
        case None:
            return b""
        case _:
            return bytes(cell)


def _hang_up(connection: psycopg.Connection[Any]) -> None:
    """Ends the conversation below libpq, which must not be closed under the thread that reads from it."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)
