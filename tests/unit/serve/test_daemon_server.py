"""What the daemon answers over HTTP, asked over real sockets of loopback."""

from __future__ import annotations

import dataclasses
import json
import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from threading import Event
from typing import Any

import pytest
from observability_builders import NOON, TOKEN, Recorded, SetClock, after, progress, server, table

from frazil.errors import ConfigError, SourceUnavailable
from frazil.model.frontier import LoadProgress
from frazil.model.results import RunProgress, TableProgress, TableStatus
from frazil.model.state import TableState
from frazil.serve.http.health import PATIENCE_SECONDS, Health, Pulse
from frazil.serve.http.server import CONNECTIONS_MAX, DEFAULT_PORT, REQUEST_BYTES_MAX, DaemonServer
from frazil.serve.http.timeseries import Timeseries


@dataclasses.dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(daemon: DaemonServer, path: str, method: str = "GET", **headers: str) -> Answer:
    connection = HTTPConnection("127.0.0.1", daemon.port, timeout=30)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return Answer(answer.status, dict(answer.getheaders()), answer.read().decode())
    finally:
        connection.close()


def raw(daemon: DaemonServer, request: bytes) -> bytes:
    """Sent as it is, whatever the answer."""
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=30) as connection:
        connection.sendall(request)
        answer = b""
        while chunk := connection.recv(1 << 16):
            answer += chunk
        return answer


@pytest.fixture
def daemon() -> Iterator[DaemonServer]:
    with server() as running:
        yield running


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def test_metrics_are_told_as_prometheus_wants_them(daemon: DaemonServer) -> None:
    answer = ask(daemon, "/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    assert "# TYPE frazil_lag_seconds gauge" in answer.body


def test_status_tells_everything_that_is_known_of_each_table() -> None:
    load = LoadProgress(250, 1000)
    stopped = table(state=TableState.STOPPED, error="it broke", hint="mend it", load=load, source_time=NOON)
    with server(seen=lambda: progress(stopped)) as daemon:
        told = ask(daemon, "/status").json
    assert (told["pipeline"], told["resolved"], told["started_at"]) == ("shop", "1.0", "2026-03-01T12:00:00.000Z")
    assert (told["alive"], told["ready"], told["reason"], told["actions"]) == (True, True, "", False)
    (line,) = told["tables"]
    assert line["table"] == "lake.orders"
    assert (line["state"], line["error"], line["hint"]) == ("STOPPED", "it broke", "mend it")
    assert line["snapshot_id"] == 8_211_034_567_891_234_567
    assert line["load"] == {"done": 250, "total": 1000, "eta_seconds": None}
    assert line["rows_per_second"] is None
    assert line["source_time"] == "2026-03-01T12:00:00.000Z", "as the ledger has it, whatever the position tells"
    names = {field.name for field in dataclasses.fields(TableProgress)} - {"name"} | {"table"}
    assert names <= set(line)


def test_status_says_table_as_the_command_does() -> None:
    named = {field.name for field in dataclasses.fields(TableStatus)}
    with server() as daemon:
        told = ask(daemon, "/status").json
    assert {"table", "state", "resolved", "snapshot_id", "lag_seconds", "epochs", "rows"} <= named & set(
        told["tables"][0]
    )


def test_errors_and_reasons_are_redacted_and_bounded() -> None:
    told = "mongodb://frazil:hunter2@db " + "x" * 10_000
    held = progress(table(error=told, hint=told))
    sick = Health(True, False, told)
    with server(seen=lambda: held, health=lambda: sick, redact=lambda text: text.replace("hunter2", "***")) as daemon:
        bodies = [ask(daemon, path).body for path in ("/status", "/readyz")]
    assert [("hunter2" in body, "***" in body) for body in bodies] == [(False, True)] * 2
    assert max(map(len, bodies)) < 15_000


def test_history_tells_the_series_of_one_table() -> None:
    history = Timeseries()
    for number in range(3):
        history.record(after(-60 + number * 5), progress(table("a&b <c>", rows=number * 10)))
    with server(history=history, seen=lambda: progress(table("a&b <c>", rows=50))) as daemon:
        told = ask(daemon, "/history?table=a%26b%20%3Cc%3E").json
        assert ask(daemon, "/history?table=lake.none").status == 404
        assert ask(daemon, "/history").status == 400
    assert told["table"] == "a&b <c>"
    assert told["rows"][:3] == [0, 10, 20]
    assert told["rows_per_second"][:3] == [None, 2.0, 2.0]
    assert len({len(column) for name, column in told.items() if name != "table"}) == 1


def test_the_server_itself_takes_the_points_of_the_history() -> None:
    history, asked = Timeseries(), Event()

    def seen() -> RunProgress:
        asked.set()
        return progress()

    with server(history=history, seen=seen):
        assert asked.wait(30)
    series = history.series("lake.orders")
    assert series is not None
    assert series.at == (NOON.timestamp(),)


def test_a_progress_that_cannot_be_told_is_a_500_and_the_rest_goes_on() -> None:
    def broken() -> RunProgress:
        raise SourceUnavailable("secret-laden text")

    with server(seen=broken) as daemon:
        answer = ask(daemon, "/status")
        assert (answer.status, answer.json) == (500, {"error": "the daemon failed to answer: SourceUnavailable"})
        assert ask(daemon, "/healthz").status == 200


@pytest.mark.parametrize(
    ("health", "healthz", "readyz"),
    [
        (Health(True, True), (200, "ok\n"), (200, "ok\n")),
        (Health(True, False, "2 of 3 tables are open"), (200, "ok\n"), (503, "2 of 3 tables are open\n")),
        (Health(False, False, "it hangs"), (503, "it hangs\n"), (503, "it hangs\n")),
        (Health(False, True, "it hangs"), (503, "it hangs\n"), (503, "it hangs\n")),
    ],
)
def test_probes_are_answered(health: Health, healthz: tuple[int, str], readyz: tuple[int, str]) -> None:
    with server(health=lambda: health) as daemon:
        found = [(answer.status, answer.body) for answer in (ask(daemon, "/healthz"), ask(daemon, "/readyz"))]
    assert found == [healthz, readyz]


def test_a_loop_that_stands_still_is_not_alive_until_it_turns_again() -> None:
    clock = SetClock()
    pulse = Pulse(clock)
    clock.seconds = PATIENCE_SECONDS
    assert pulse.health(True) == Health(True, True)
    assert pulse.health(False, "tables are opened") == Health(True, False, "tables are opened")
    clock.seconds += 1
    assert pulse.health(True) == Health(False, False, "the main loop has not turned for 121 s")
    pulse.beat()
    assert pulse.health(True).alive


def test_what_does_not_work_has_a_reason() -> None:
    with pytest.raises(ValueError, match="reason"):
        Health(True, False)


@pytest.mark.parametrize(
    ("path", "kind"), [("/", "text/html"), ("/page.js", "text/javascript"), ("/page.css", "text/css")]
)
def test_the_page_is_served_with_headers_that_keep_it_apart(daemon: DaemonServer, path: str, kind: str) -> None:
    answer = ask(daemon, path)
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith(kind)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_the_page_needs_nothing_from_elsewhere(daemon: DaemonServer) -> None:
    for path in ("/", "/page.js", "/page.css"):
        body = ask(daemon, path).body.replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in body, path
        assert "https://" not in body, path
        assert "innerHTML" not in body, path


def test_refusals_have_the_same_headers_and_say_why(daemon: DaemonServer) -> None:
    for answer in (ask(daemon, "/nothing"), ask(daemon, "/", "BREW"), ask(daemon, "/page.css/../index.html")):
        assert answer.status in (404, 501)
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.json["error"]


def test_head_has_no_body(daemon: DaemonServer) -> None:
    answer = ask(daemon, "/status", "HEAD")
    assert (answer.status, answer.body) == (200, "")
    assert int(answer.headers["Content-Length"]) > 10


@pytest.mark.parametrize("path", ["/reload", "/resync?table=lake.orders"])
def test_without_a_token_nothing_can_be_asked_and_the_option_is_named(path: str) -> None:
    actions = Recorded()
    with server(actions=actions) as daemon:
        answers = [ask(daemon, path, "POST"), ask(daemon, path, "POST", Authorization="Bearer None")]
        assert ask(daemon, "/status").json["actions"] is False
    assert [answer.status for answer in answers] == [403, 403]
    assert all("http.token" in answer.json["error"] for answer in answers)
    assert actions.asked == []


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer ", TOKEN, f"bearer{TOKEN}", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer ü"]
)
def test_a_wrong_token_is_refused(given: str) -> None:
    actions = Recorded()
    with server(token=TOKEN, actions=actions) as daemon:
        answer = ask(daemon, "/reload", "POST", Authorization=given)
    assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert TOKEN not in answer.body
    assert actions.asked == []


def test_the_right_token_lets_actions_through() -> None:
    actions = Recorded()
    with server(token=TOKEN, actions=actions) as daemon:
        assert ask(daemon, "/status").json["actions"] is True
        reloaded = ask(daemon, "/reload", "POST", Authorization=f"Bearer {TOKEN}")
        resynced = ask(daemon, "/resync?table=lake.orders", "POST", Authorization=f"Bearer {TOKEN}")
        unknown = ask(daemon, "/resync?table=lake.x", "POST", Authorization=f"Bearer {TOKEN}")
        unnamed = ask(daemon, "/resync", "POST", Authorization=f"Bearer {TOKEN}")
        got = ask(daemon, "/reload", Authorization=f"Bearer {TOKEN}")
    assert (reloaded.status, reloaded.json) == (200, {"done": "the configuration is read again"})
    assert (resynced.status, resynced.json) == (200, {"done": "lake.orders is loaded anew"})
    assert (unknown.status, unknown.json["hint"]) == (400, "its tables are: lake.orders")
    assert (unnamed.status, got.status, got.headers["Allow"]) == (400, 405, "POST")
    assert actions.asked == ["reload", "resync lake.orders"]


def test_a_run_that_can_do_nothing_says_so() -> None:
    with server(token=TOKEN) as daemon:
        assert ask(daemon, "/reload", "POST", Authorization=f"Bearer {TOKEN}").status == 503
        assert ask(daemon, "/status").json["actions"] is False


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:9464", "127.8.8.8", "[::1]", "[::1]:9464", ""])
def test_names_of_loopback_are_answered(daemon: DaemonServer, host: str) -> None:
    assert ask(daemon, "/status", Host=host).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:9464", "localhost.evil.example", "127.0.0.1.evil.example", "[::2]", "10.0.0.1"],
)
def test_a_name_that_somebody_let_point_to_loopback_is_refused(daemon: DaemonServer, host: str) -> None:
    for path in ("/", "/status", "/metrics"):
        answer = ask(daemon, path, Host=host)
        assert answer.status == 403
        assert "shop" not in answer.body
    assert ask(daemon, "/reload", "POST", Host=host).status == 403


def test_bound_to_all_addresses_every_name_is_answered() -> None:
    with server(host="0.0.0.0") as daemon:
        assert ask(daemon, "/healthz", Host="frazil.internal:9464").status == 200


def test_requests_are_bounded(daemon: DaemonServer) -> None:
    assert b"Line too long" in raw(daemon, b"GET /" + b"x" * REQUEST_BYTES_MAX)
    assert b" 431 " in raw(daemon, b"GET / HTTP/1.1\r\n" + b"X-A: b\r\n" * (REQUEST_BYTES_MAX // 8))
    head = b"POST /reload HTTP/1.1\r\nHost: localhost\r\n"
    for body in (
        b"Content-Length: 99999999\r\n\r\n",
        b"Content-Length: -1\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n",
    ):
        assert b" 413 " in raw(daemon, head + body)
    assert b" 403 " in raw(daemon, head + b"Content-Length: 5\r\n\r\nhello")
    fields = "&".join(f"a{number}=1" for number in range(100))
    assert ask(daemon, f"/history?{fields}").status == 400
    assert ask(daemon, "/healthz").status == 200


@pytest.mark.slow
def test_connections_are_bounded_and_come_free_again(daemon: DaemonServer) -> None:
    with ExitStack() as held:
        idle = [
            held.enter_context(socket.create_connection(("127.0.0.1", daemon.port), timeout=30))
            for _ in range(CONNECTIONS_MAX)
        ]
        with socket.create_connection(("127.0.0.1", daemon.port), timeout=30) as surplus:
            assert surplus.recv(1) == b""
        for connection in idle:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert all(b" 200 " in connection.makefile("rb").read() for connection in idle)
    with ThreadPoolExecutor(4) as pool:
        assert {answer.status for answer in pool.map(lambda _: ask(daemon, "/status"), range(64))} == {200}


def test_the_usual_port_is_taken_if_it_is_free_and_another_one_if_not() -> None:
    with server() as one, server() as other:
        assert one.port != other.port
        assert other.port != DEFAULT_PORT
        assert one.url == f"http://127.0.0.1:{one.port}"
        assert ask(other, "/healthz").status == 200


def test_a_port_that_was_asked_for_is_had_or_refused_with_the_option_named() -> None:
    with taken_port() as port, pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}") as caught:
        server(port=port)
    assert "http.port" in caught.value.hint
    with server(port=port) as daemon:
        assert daemon.port == port


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.name.invalid"])
def test_an_address_that_is_not_ours_names_its_option(host: str) -> None:
    with pytest.raises(ConfigError, match="cannot listen on") as caught:
        server(host=host)
    assert "http.host" in caught.value.hint


def test_the_page_is_reachable_over_ipv6() -> None:
    with server(host="::1") as daemon:
        assert daemon.url == f"http://[::1]:{daemon.port}"
        connection = HTTPConnection("::1", daemon.port, timeout=30)
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        connection.close()


def test_nothing_answers_after_stop_which_may_be_called_twice() -> None:
    with server() as daemon:
        pass
    daemon.stop()
    with pytest.raises(OSError):
        ask(daemon, "/healthz")
