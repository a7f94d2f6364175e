"""What a daemon serves over HTTP: numbers for Prometheus, answers for probes, a page for people.

    GET  /metrics /healthz /readyz /status /history?table=T    open to whoever reaches the address
    GET  / and its two files                                   the page, which asks /status and /history
    POST /reload /resync?table=T                               only with `Authorization: Bearer <http.token>`

    connection --(at most CONNECTIONS_MAX)--> thread --> Host known? --> route --> one answer, then closed

Bound to loopback, it answers only requests that name loopback: a web page elsewhere could otherwise let its own name
point here and read what is told (DNS rebinding). Everything a request may send is bounded.
"""

from __future__ import annotations

import errno
import hmac
import ipaddress
import json
import socket
import socketserver
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.resources import files
from io import BufferedIOBase
from threading import BoundedSemaphore, Event, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CONTENT_TYPE_LATEST

from frazil.clock import Clock, SystemClock
from frazil.errors import ConfigError, FrazilError
from frazil.observability.logs import Log
from frazil.observability.metrics import Metrics
from frazil.serve.http.health import Actions, Health
from frazil.serve.http.status import shown, status_of
from frazil.serve.http.timeseries import Timeseries

if TYPE_CHECKING:
    from frazil.model.results import RunProgress

DEFAULT_PORT = 9464
CONNECTIONS_MAX = 32
REQUEST_BYTES_MAX = 16 << 10
_READ_SECONDS = 10.0
_LOOK_SECONDS = 0.05  # how long a stop may go unnoticed
_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"
_PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_log = Log("frazil.http")


@dataclass(frozen=True, slots=True)
class _Answer:
    body: bytes
    kind: str = _JSON
    status: HTTPStatus = HTTPStatus.OK
    headers: tuple[tuple[str, str], ...] = ()


class DaemonServer:
    """Listens from when it is made until `stop`. `port` None takes 9464, or any free one if that is taken; a number
    takes exactly that."""

    def __init__(
        self,
        host: str,
        port: int | None,
        token: str | None,
        *,
        metrics: Metrics,
        progress: Callable[[], RunProgress],
        health: Callable[[], Health],
        history: Timeseries,
        actions: Actions | None = None,
        redact: Callable[[str], str] = str,
        clock: Clock | None = None,
    ) -> None:
        """`progress` and `health` are asked from several threads. Raises ConfigError if the address cannot be had."""
        self._routes = _Routes(token, metrics, progress, health, history, actions, redact)
        self._server = _listen(host, port, self._routes)
        self.host = host
        self.port = int(self._server.server_address[1])
        self._history = history
        self._clock = clock or SystemClock()
        self._stopping = Event()
        self._threads = [
            Thread(target=self._server.serve_forever, args=(_LOOK_SECONDS,), name="frazil-http", daemon=True),
            Thread(target=self._sample, name="frazil-history", daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        _log.info("serving metrics, health and a page", url=self.url)

    @property
    def url(self) -> str:
        """Of the page; without a slash at its end, so that a path can be put behind it."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def stop(self) -> None:
        """Safe to call twice. Answers under way are not waited for."""
        self._stopping.set()
        self._server.shutdown()
        for thread in self._threads:
            thread.join(_READ_SECONDS)
        self._server.server_close()

    def _sample(self) -> None:
        stopped = False
        while not stopped:
            try:
                self._history.record(self._clock.now(), self._routes.progress())
            except Exception as error:
                _log.failure("no point taken for the plots", error)
            stopped = self._clock.wait(self._history.every, self._stopping)

    def __enter__(self) -> DaemonServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class _Routes:
    """What is answered to which request."""

    def __init__(
        self,
        token: str | None,
        metrics: Metrics,
        progress: Callable[[], RunProgress],
        health: Callable[[], Health],
        history: Timeseries,
        actions: Actions | None,
        redact: Callable[[str], str],
    ) -> None:
        self._token = token
        self._metrics = metrics
        self.progress = progress
        self._health = health
        self._history = history
        self._actions = actions
        self._redact = redact
        folder = files("frazil.serve.http") / "page"
        self._page = {path: _Answer((folder / name).read_bytes(), kind) for path, (name, kind) in _PAGE.items()}

    def get(self, path: str, query: Mapping[str, str]) -> _Answer:
        match path:
            case "/metrics":
                return _Answer(self._metrics.text().encode(), CONTENT_TYPE_LATEST)
            case "/healthz" | "/readyz":
                return self._probe(path)
            case "/status":
                return _json(self._status())
            case "/history":
                return self._series(query.get("table"))
            case _ if path in self._page:
                return self._page[path]
            case "/reload" | "/resync":
                return _refusal(
                    HTTPStatus.METHOD_NOT_ALLOWED, f"{path} takes POST requests only", headers=(("Allow", "POST"),)
                )
            case _:
                return _refusal(HTTPStatus.NOT_FOUND, "there is nothing here")

    def post(self, path: str, query: Mapping[str, str], authorization: str) -> _Answer:
        if path not in ("/reload", "/resync"):
            return _refusal(HTTPStatus.NOT_FOUND, "there is nothing here that takes a POST request")
        if self._token is None:
            text = "this daemon only tells: to let it be asked to do something, set http.token in its configuration"
            return _refusal(HTTPStatus.FORBIDDEN, text)
        if not hmac.compare_digest(authorization.encode(), f"Bearer {self._token}".encode()):
            text = "this needs the header `Authorization: Bearer <token>`, with the value of http.token"
            return _refusal(HTTPStatus.UNAUTHORIZED, text, headers=(("WWW-Authenticate", "Bearer"),))
        if self._actions is None:
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, "nothing can be asked of this run")
        return self._act(self._actions, path, query.get("table"))

    def _act(self, actions: Actions, path: str, table: str | None) -> _Answer:
        if path == "/resync" and table is None:
            return _refusal(HTTPStatus.BAD_REQUEST, "name the table: /resync?table=...")
        try:
            said = actions.resync(table) if path == "/resync" and table is not None else actions.reload()
        except FrazilError as error:
            status = HTTPStatus.BAD_REQUEST if isinstance(error, ConfigError) else HTTPStatus.CONFLICT
            return _refusal(status, shown(error.message, self._redact), shown(error.hint, self._redact))
        _log.info("asked over http", path=path, table=table, answer=said)
        return _json({"done": shown(said, self._redact)})

    def _probe(self, path: str) -> _Answer:
        health = self._health()
        works = health.alive and (health.ready or path == "/healthz")
        text = "ok" if works else shown(health.reason, self._redact)
        return _Answer(f"{text}\n".encode(), _TEXT, HTTPStatus.OK if works else HTTPStatus.SERVICE_UNAVAILABLE)

    def _status(self) -> dict[str, Any]:
        may_act = self._token is not None and self._actions is not None
        return status_of(self.progress(), self._health(), self._history, actions=may_act, redact=self._redact)

    def _series(self, table: str | None) -> _Answer:
        if table is None:
            return _refusal(HTTPStatus.BAD_REQUEST, "name the table: /history?table=...")
        series = self._history.series(table)
        if series is None:
            return _refusal(HTTPStatus.NOT_FOUND, "no table of this name has a history here")
        return _json({"table": table, **asdict(series)})


class _Handler(BaseHTTPRequestHandler):
    """One request for each connection."""

    timeout = _READ_SECONDS
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.rfile: Any = _Bounded(self.rfile, REQUEST_BYTES_MAX)

    def do_GET(self) -> None:
        self._answer(self.server.routes.get)

    def do_HEAD(self) -> None:
        self._answer(self.server.routes.get)

    def do_POST(self) -> None:
        authorization = self.headers.get("Authorization", "")
        self._answer(lambda path, query: self.server.routes.post(path, query, authorization))

    def _answer(self, route: Callable[[str, Mapping[str, str]], _Answer]) -> None:
        try:
            answer = self._refused() or self._routed(route)
        except Exception as error:
            _log.failure("a request failed", error, path=self.path)
            answer = _refusal(HTTPStatus.INTERNAL_SERVER_ERROR, f"the daemon failed to answer: {type(error).__name__}")
        self._send(answer)

    def _refused(self) -> _Answer | None:
        """Why this request is not even looked at."""
        if self.server.on_loopback and not _names_loopback(self.headers.get("Host", "")):
            text = "this daemon listens on loopback and answers to names of loopback only (localhost, 127.0.0.1, [::1])"
            return _refusal(HTTPStatus.FORBIDDEN, f"{text}; for other names set http.host")
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not length.isdecimal() or int(length) > REQUEST_BYTES_MAX:
            return _refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "requests carry no body here")
        # Unread bytes would make the kernel reset the connection before the answer is read.
        self.rfile.read(int(length))
        return None

    def _routed(self, route: Callable[[str, Mapping[str, str]], _Answer]) -> _Answer:
        try:
            asked = urlsplit(self.path)
            query = {name: values[-1] for name, values in parse_qs(asked.query, max_num_fields=16).items()}
        except ValueError:
            return _refusal(HTTPStatus.BAD_REQUEST, "this is no address")
        return route(asked.path, query)

    def _send(self, answer: _Answer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        for name, value in (*_HEADERS.items(), *answer.headers):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class refuses by itself, in our form: a malformed request, an unknown method."""
        self.close_connection = True
        self._send(_refusal(HTTPStatus(code), message or HTTPStatus(code).phrase))

    def version_string(self) -> str:
        return "frazil"

    def log_message(self, format: str, *args: Any) -> None:
        _log.debug("http", request=format % args)


class _Bounded:
    """A request that ends where the bound is, whatever is sent."""

    def __init__(self, stream: BufferedIOBase, left: int) -> None:
        self._stream = stream
        self._left = left

    def readline(self, size: int = -1) -> bytes:
        if self._left <= 0:
            raise LineTooLong("request")  # answered with 431
        line = self._stream.readline(min(size, self._left) if size >= 0 else self._left)
        self._left -= len(line)
        return line

    def read(self, size: int) -> bytes:
        return self._stream.read(size)

    def close(self) -> None:
        self._stream.close()


class _Server(socketserver.ThreadingMixIn, HTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, family: socket.AddressFamily, host: str, port: int, routes: _Routes) -> None:
        self.address_family = family
        self.routes = routes
        self._free = BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__((host, port), _Handler)
        self.on_loopback = _is_loopback(str(self.server_address[0]))

    def server_bind(self) -> None:
        # HTTPServer would look its own name up, which can take seconds where no name server answers.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Callers that go away while they are answered are no news."""
        _log.debug("a connection ended early", client=str(client_address))


def _listen(host: str, port: int | None, routes: _Routes) -> _Server:
    try:
        family, address = _resolved(host)
        if port is not None:
            return _Server(family, address, port, routes)
        try:
            return _Server(family, address, DEFAULT_PORT, routes)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return _Server(family, address, 0, routes)
    except OSError as error:
        place = host if port is None else f"{host}:{port}"
        option = "http.port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "http.host"
        raise ConfigError(
            f"the daemon cannot listen on {place}: {(error.strerror or str(error)).lower()}",
            hint=f"choose another {option}, or set http.port to 0 to serve nothing",
            host=host,
            port=port,
        ) from error


def _resolved(host: str) -> tuple[socket.AddressFamily, str]:
    family, _, _, _, address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
    return family, str(address[0])


def _names_loopback(header: str) -> bool:
    """Whether a Host header names this machine to itself, with or without a port."""
    name = header.rpartition("]")[0].lstrip("[") if header.startswith("[") else header.partition(":")[0]
    return name.lower().rstrip(".") in ("localhost", "") or _is_loopback(name)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _json(value: Any, status: HTTPStatus = HTTPStatus.OK, headers: tuple[tuple[str, str], ...] = ()) -> _Answer:
    return _Answer(json.dumps(value).encode(), _JSON, status, headers)


def _refusal(status: HTTPStatus, error: str, hint: str = "", headers: tuple[tuple[str, str], ...] = ()) -> _Answer:
    return _json({"error": error, "hint": hint} if hint else {"error": error}, status, headers)
