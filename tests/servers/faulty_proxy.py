"""An HTTP proxy before a REST catalog that records commits, and loses or falsifies the answer of the next one.

client --POST .../tables/t--> proxy --forwards--> server (the commit takes effect)
                                |
    NEXT: DROP       closes the connection, no answer
          CONFLICT   answers 409
          BROKEN     answers 500
          BUSY       answers 503
          TWICE      forwards the request a second time, and answers what that one was told
          LATE       closes the connection at once, and forwards the request half a second later
          REFUSE     answers 403, and forwards nothing
"""

from __future__ import annotations

import json
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Fault(Enum):
    DROP = "drop"
    CONFLICT = 409
    BROKEN = 500
    BUSY = 503
    TWICE = "twice"
    LATE = "late"
    REFUSE = 403


class FaultyProxy:
    """`fail_next` arms one fault; `before_next` is done once, right before the next commit is forwarded; `only` says
    which commits these two are for, by the end of their path. While `away` is set nothing is answered at all. `commits`
    counts the commits that came through, `requests` are their paths and bodies, `headers` those of the newest request
    of any kind. `vend` gives what is added to every answer that describes a table: the credentials of a catalog that
    gives them out."""

    def __init__(self, target: str, tls: ssl.SSLContext | None = None) -> None:
        self.commits = 0
        self.requests: list[tuple[str, Any]] = []
        self.headers: dict[str, str] = {}
        self.vend: Callable[[], dict[str, Any]] | None = None
        self.before_next: Callable[[], object] | None = None
        self.only = ""
        self.away = False
        self._fault: Fault | None = None
        self._lock = threading.Lock()
        proxy = self

        class Handler(_Handler):
            pass

        Handler.proxy, Handler.target = proxy, target
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def uri(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def fail_next(self, fault: Fault) -> None:
        self._fault = fault

    def take_fault(self) -> Fault | None:
        with self._lock:
            self.commits += 1
            fault, self._fault = self._fault, None
        return fault

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def faulty_proxy(target: str, tls: ssl.SSLContext | None = None) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(target, tls)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()


_OWN_TO_A_HOP = ("host", "connection", "content-length", "transfer-encoding", "accept-encoding", "expect")


class _Handler(BaseHTTPRequestHandler):
    proxy: FaultyProxy
    target: str
    protocol_version = "HTTP/1.1"

    def _forward(self) -> None:
        if self.proxy.away:
            self._hang_up()
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        names_a_table = "/tables/" in self.path and not self.path.endswith(("/metrics", "/tables/rename"))
        is_commit = self.command == "POST" and (names_a_table or self.path.endswith("/transactions/commit"))
        self.proxy.headers = dict(self.headers)
        if is_commit:
            self.proxy.requests.append((self.path, json.loads(body)))
        chosen = is_commit and self.path.endswith(self.proxy.only)
        if chosen:
            act, self.proxy.before_next = self.proxy.before_next, None
            if act is not None:
                act()
        fault = self.proxy.take_fault() if chosen else None
        if fault is Fault.REFUSE:
            self._answer(403, _error(403, "ForbiddenException"))
            return
        if fault is Fault.LATE:
            threading.Timer(0.5, self._ask, [body]).start()
            self._hang_up()
            return
        status, answer = self._ask(body)
        match fault:
            case None:
                self._answer(status, answer)
            case Fault.DROP:
                self._hang_up()
            case Fault.CONFLICT:
                self._answer(409, _error(409, "CommitFailedException"))
            case Fault.BROKEN:
                self._answer(500, _error(500, "InternalServerError"))
            case Fault.BUSY:
                self._answer(503, _error(503, "ServiceUnavailable"))
            case Fault.TWICE:
                self._answer(*self._ask(body))

    do_GET = do_POST = do_DELETE = do_HEAD = _forward

    def _ask(self, body: bytes) -> tuple[int, bytes]:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _OWN_TO_A_HOP}
        request = urllib.request.Request(self.target + self.path, body or None, headers, method=self.command)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, self._with_vended(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.close()

    def _with_vended(self, content: bytes) -> bytes:
        if self.proxy.vend is None or b'"metadata"' not in content:
            return content
        described = json.loads(content)
        given = self.proxy.vend()
        config = {**described.get("config", {}), **given.get("config", {})}
        return json.dumps({**described, **given, "config": config}).encode()

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(0 if status == 204 else len(body)))
        self.end_headers()
        if self.command != "HEAD" and status != 204:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def _error(code: int, kind: str) -> bytes:
    return json.dumps({"error": {"message": "said the proxy", "type": kind, "code": code}}).encode()
