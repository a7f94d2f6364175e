"""A small server of the PostgreSQL wire protocol that plays recorded changefeeds, on loopback, in threads.

    client --startup, auth--> session --CREATE CHANGEFEED--> feed(statement) --> steps, played one after another
                                 ^                              Row | Resolved | Gate | Fail | Drop | End
    second client --CancelRequest+                              after the last step: silence, as of an idle table

It stands for a CockroachDB server, which cannot be had here: the sinkless road was not run against a real
cluster. What it says follows the documented form of a sinkless feed: columns table STRING, key BYTES, value BYTES;
a resolved timestamp has NULL for table and key. It knows just enough of the protocol for a real libpq to talk to
it: SSLRequest (refused), trust or cleartext password, simple and extended queries, cancel, terminate.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

_TEXT, _BYTEA = 25, 17
_SSL_REQUEST, _GSS_REQUEST, _CANCEL_REQUEST = 80877103, 80877104, 80877102


@dataclass(frozen=True, slots=True)
class Row:
    table: str | None
    key: bytes | None
    value: bytes


def resolved(text: str) -> Row:
    return Row(None, None, f'{{"resolved":"{text}"}}'.encode())


@dataclass(frozen=True, slots=True)
class Gate:
    """Says nothing until the test opens it."""

    open: threading.Event


@dataclass(frozen=True, slots=True)
class Fail:
    """An ErrorResponse, as when the feed dies on the server."""

    message: str
    sqlstate: str = "XXUUU"
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Drop:
    """The connection breaks without a word; `halfway` leaves a torn row on the wire."""

    halfway: bool = False


@dataclass(frozen=True, slots=True)
class End:
    """The feed ends by itself, as nobody expects it to."""


Step = Row | Gate | Fail | Drop | End
Feed = Callable[[str], Iterable[Step]]


class RecordedServer:
    """Plays `feed(statement)` to every CREATE CHANGEFEED. `text_only` ignores the client's wish for binary. `now` is
    what the cluster's clock says; without one it does not tell. `empty` are tables without a row, as they are quoted;
    of others it does not tell."""

    def __init__(
        self,
        feed: Feed,
        *,
        password: str | None = None,
        text_only: bool = False,
        deaf: bool = False,
        now: str | None = None,
        empty: Collection[str] = (),
    ) -> None:
        self.feed = feed
        self.now = now
        self.empty = empty
        self.password = password
        self.text_only = text_only
        self.deaf = deaf  # to cancel requests
        self.statements: list[str] = []
        self.cancels = 0
        self.ended = threading.Event()  # some session with a changefeed is over
        self._sessions: dict[tuple[int, int], _Session] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept, daemon=True)

    def url(self, *, user: str = "relay", password: str | None = None, database: str = "shop") -> str:
        login = user if password is None else f"{user}:{password}"
        return f"postgresql://{login}@127.0.0.1:{self.port}/{database}"

    def __enter__(self) -> RecordedServer:
        self._acceptor.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for session in list(self._sessions.values()):
            session.hang_up()

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._greet, args=(line,), daemon=True).start()

    def _greet(self, line: socket.socket) -> None:
        try:
            while True:
                (length,) = struct.unpack("!I", _exactly(line, 4))
                body = _exactly(line, length - 4)
                (code,) = struct.unpack("!I", body[:4])
                if code in (_SSL_REQUEST, _GSS_REQUEST):
                    line.sendall(b"N")
                elif code == _CANCEL_REQUEST:
                    self._cancel(struct.unpack("!II", body[4:12]))
                    line.close()
                    return
                else:
                    break
            session = _Session(self, line, (len(self._sessions) + 1, 4711))
            self._sessions[session.identity] = session
            session.serve()
        except (OSError, EOFError):
            line.close()

    def _cancel(self, identity: tuple[int, ...]) -> None:
        self.cancels += 1
        for known, session in self._sessions.items():
            if known == identity and not self.deaf:
                session.cancel()


class _Session:
    def __init__(self, server: RecordedServer, line: socket.socket, identity: tuple[int, int]) -> None:
        self.identity = identity
        self._server = server
        self._line = line
        self._inbox: queue.Queue[tuple[bytes, bytes] | None] = queue.Queue()
        self._wake = threading.Event()
        self._cancelled = False
        self._gone = False
        self._statement = ""
        self._binary = False

    def cancel(self) -> None:
        self._cancelled = True
        self._wake.set()

    def hang_up(self) -> None:
        self._gone = True
        self._wake.set()
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)

    def serve(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        if not self._admitted():
            self._line.close()
            return
        self._send(b"R", struct.pack("!I", 0))
        for name, value in (("server_version", "13.0.0"), ("client_encoding", "UTF8"), ("integer_datetimes", "on")):
            self._send(b"S", name.encode() + b"\0" + value.encode() + b"\0")
        self._send(b"K", struct.pack("!II", *self.identity))
        self._ready()
        try:
            while (message := self._inbox.get()) is not None:
                if not self._answer(*message):
                    break
        finally:
            self.hang_up()  # or the client of a session that failed would wait for ever
            self._line.close()

    def _listen(self) -> None:
        # Reads ahead of what is answered, so that a client that leaves in the middle of a feed is noticed.
        try:
            while True:
                kind = _exactly(self._line, 1)
                (length,) = struct.unpack("!I", _exactly(self._line, 4))
                self._inbox.put((kind, _exactly(self._line, length - 4)))
        except (OSError, EOFError):
            self._gone = True
            self._wake.set()
            self._inbox.put(None)

    def _admitted(self) -> bool:
        if self._server.password is None:
            return True
        self._send(b"R", struct.pack("!I", 3))
        message = self._inbox.get()
        if message is not None and message[1].rstrip(b"\0").decode() == self._server.password:
            return True
        self._error(Fail("password authentication failed for user relay", "28P01"), b"FATAL")
        return False

    def _answer(self, kind: bytes, body: bytes) -> bool:
        match kind:
            case b"Q":
                self._statement = body.rstrip(b"\0").decode()
                self._binary = False
                alive = self._execute(describe=True)
                if alive:
                    self._ready()
                return alive
            case b"P":
                self._statement = body.split(b"\0")[1].decode()
                self._send(b"1")
            case b"B":
                self._binary = _wants_binary(body)
                self._send(b"2")
            case b"D":
                if body[:1] == b"S":
                    self._send(b"t", struct.pack("!H", 0))
                self._describe()
            case b"E":
                return self._execute(describe=False)
            case b"S":
                self._ready()
            case b"C":
                self._send(b"3")
            case b"X":
                return False
            case b"H":
                pass
        return True

    @property
    def _told(self) -> list[str] | None:
        """The rows of one column that answer a question; None if it is none, or is not answered."""
        if "cluster_logical_timestamp()" in self._statement:
            return None if self._server.now is None else [self._server.now]
        return [] if any(f" {table} AS OF " in self._statement for table in self._server.empty) else None

    def _describe(self) -> None:
        if self._told is not None:
            self._send(b"T", struct.pack("!H", 1) + b"time\0" + struct.pack("!IHIhih", 0, 0, _TEXT, -1, -1, 0))
            return
        if not _is_changefeed(self._statement):
            self._send(b"n")
            return
        source_schema = int(self._binary and not self._server.text_only)
        columns = b"".join(
            name + b"\0" + struct.pack("!IHIhih", 0, 0, oid, -1, -1, source_schema)
            for name, oid in ((b"table", _TEXT), (b"key", _BYTEA), (b"value", _BYTEA))
        )
        self._send(b"T", struct.pack("!H", 3) + columns)

    def _execute(self, *, describe: bool) -> bool:
        """False if the connection is over."""
        self._server.statements.append(self._statement)
        if (told := self._told) is not None:
            if describe:
                self._describe()
            for text in told:
                self._send(b"D", struct.pack("!Hi", 1, len(text)) + text.encode())
            self._send(b"C", f"SELECT {len(told)}".encode() + b"\0")
            return True
        if self._statement.startswith("SELECT"):
            self._error(Fail("unsupported in READ COMMITTED isolation", "0A000"))
            return True
        if not _is_changefeed(self._statement):
            self._send(b"C", self._statement.split()[0].encode() + b"\0")
            return True
        if describe:
            self._describe()
        try:
            return self._play(self._server.feed(self._statement))
        finally:
            self._server.ended.set()

    def _play(self, steps: Iterable[Step]) -> bool:
        for step in steps:
            match step:
                case Row():
                    self._send(b"D", self._data_row(step))
                case Gate(gate):
                    while not gate.wait(0.02) and not self._wake.is_set():
                        pass
                case Fail():
                    self._error(step)
                    return True
                case Drop(halfway):
                    if halfway:
                        self._line.sendall(b"D" + struct.pack("!IH", 4000, 3) + b"torn")
                    self.hang_up()
                    return False
                case End():
                    self._send(b"C", b"SELECT 0\0")
                    return True
            if self._wake.is_set():
                break
        self._wake.wait()
        if self._cancelled and not self._gone:
            self._error(Fail("query execution canceled", "57014"))
            return True
        return False

    def _data_row(self, row: Row) -> bytes:
        cells = [None if row.table is None else row.table.encode()]
        for octets in (row.key, row.value):
            hexed = not self._binary or self._server.text_only
            cells.append(None if octets is None else b"\\x" + octets.hex().encode() if hexed else octets)
        packed = (struct.pack("!i", -1) if c is None else struct.pack("!i", len(c)) + c for c in cells)
        return struct.pack("!H", 3) + b"".join(packed)

    def _error(self, fail: Fail, severity: bytes = b"ERROR") -> None:
        fields = [(b"S", severity), (b"V", severity), (b"C", fail.sqlstate.encode()), (b"M", fail.message.encode())]
        if fail.hint:
            fields.append((b"H", fail.hint.encode()))
        self._send(b"E", b"".join(code + text + b"\0" for code, text in fields) + b"\0")

    def _ready(self) -> None:
        self._send(b"Z", b"I")

    def _send(self, kind: bytes, body: bytes = b"") -> None:
        try:
            self._line.sendall(kind + struct.pack("!I", len(body) + 4) + body)
        except OSError:
            self._gone = True
            self._wake.set()


def _is_changefeed(statement: str) -> bool:
    return statement.lstrip().upper().startswith("CREATE CHANGEFEED")


def _wants_binary(bind: bytes) -> bool:
    """Reads the result formats at the end of a Bind message that has no parameters."""
    rest = bind.split(b"\0", 2)[2]
    (formats,) = struct.unpack("!H", rest[:2])
    rest = rest[2 + 2 * formats :]
    (parameters,) = struct.unpack("!H", rest[:2])
    assert parameters == 0, "a changefeed's statement takes no parameters"
    (results,) = struct.unpack("!H", rest[2:4])
    return results == 1 and rest[4:6] == b"\0\1"


def _exactly(line: socket.socket, count: int) -> bytes:
    parts = b""
    while len(parts) < count:
        part = line.recv(count - len(parts))
        if not part:
            raise EOFError
        parts += part
    return parts
