"""An HTTP proxy before an S3 server that fails chosen requests, before or after they took effect.

client --PUT /bucket/key--> proxy --forwards, with the signed Host--> server
                              |
    BUSY         answers 503 SlowDown, and forwards nothing        TOO_MANY   likewise with 429
    CUT_UPLOAD   reads half of the body and hangs up               DENY       likewise with 403 AccessDenied
    LOSE_ANSWER  forwards all and hangs up without an answer
    LIE          answers 200, and forwards nothing
"""

from __future__ import annotations

import http.client
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive"}


class StorageFault(Enum):
    BUSY = auto()
    TOO_MANY = auto()
    DENY = auto()
    CUT_UPLOAD = auto()
    LOSE_ANSWER = auto()
    LIE = auto()


_ANSWERS = {
    StorageFault.BUSY: (503, "SlowDown"),
    StorageFault.TOO_MANY: (429, "TooManyRequests"),
    StorageFault.DENY: (403, "AccessDenied"),
}
Wanted = Callable[[str, str], bool]


class FaultyStorage:
    """`fail` arms one fault for the next `times` requests that are `wanted` (method, path with query); `requests`
    remembers all of them."""

    def __init__(self, target: str, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[tuple[str, str]] = []
        self._fault: tuple[StorageFault, int, Wanted] | None = None
        self._lock = threading.Lock()
        proxy = self

        class Handler(_Handler):
            pass

        Handler.proxy, Handler.target = proxy, target.removeprefix("http://")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._scheme = "http"
        if tls is not None:
            self._scheme = "https"
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def fail(self, fault: StorageFault, times: int = 1, wanted: Wanted = lambda method, path: method == "PUT") -> None:
        self._fault = (fault, times, wanted)

    def heal(self) -> None:
        self._fault = None

    def take_fault(self, method: str, path: str) -> StorageFault | None:
        with self._lock:
            self.requests.append((method, path))
            if self._fault is None or not self._fault[2](method, path):
                return None
            fault, times, wanted = self._fault
            self._fault = (fault, times - 1, wanted) if times > 1 else None
            return fault

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def faulty_storage(target: str, tls: ssl.SSLContext | None = None) -> Iterator[FaultyStorage]:
    """With `tls` it is reached by https."""
    proxy = FaultyStorage(target, tls)
    try:
        yield proxy
    finally:
        proxy.stop()


class _Handler(BaseHTTPRequestHandler):
    proxy: FaultyStorage
    target: str
    protocol_version = "HTTP/1.1"

    def _forward(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        fault = self.proxy.take_fault(self.command, self.path)
        if fault is StorageFault.CUT_UPLOAD:
            self.rfile.read(length // 2)
            self._hang_up()
            return
        body = self.rfile.read(length)
        if fault in _ANSWERS:
            status, code = _ANSWERS[fault]
            self._answer(status, [], f"<Error><Code>{code}</Code><Message>said the proxy</Message></Error>".encode())
            return
        if fault is StorageFault.LIE:
            self._answer(200, [("ETag", '"d41d8cd98f00b204e9800998ecf8427e"')], b"")
            return
        connection = http.client.HTTPConnection(self.target, timeout=60)
        try:
            # The signature covers the Host header, so it goes through as the client wrote it.
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if fault is StorageFault.LOSE_ANSWER:
            self._hang_up()
        else:
            size = answer.getheader("Content-Length") if self.command == "HEAD" else None
            self._answer(answer.status, answer.getheaders(), content, size)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _forward

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes, size: str | None = None) -> None:
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in _HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", size or str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""
