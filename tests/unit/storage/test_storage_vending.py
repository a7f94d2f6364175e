"""Credentials that end are renewed at the catalog before they do.

The catalog here is a stub: a local HTTP server that answers with what a test put into it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event
from typing import Any
from uuid import UUID

import pytest

from frazil.errors import CatalogRefused, CatalogUnavailable
from frazil.storage.options import store_settings
from frazil.storage.url import parse_place
from frazil.storage.vending import VendedCredentials

START = datetime(2026, 1, 1, tzinfo=UTC)
URL = "s3://lake/shop/orders/data/x.parquet"


@dataclass
class FrozenClock:
    at: datetime = START
    waited: list[float] = field(default_factory=list)

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()

    def wait(self, seconds: float, until: Event | None = None) -> bool:
        self.waited.append(seconds)
        return False

    def new_uuid(self) -> UUID:
        return UUID(int=1)

    def jitter(self) -> float:
        return 0.5


@dataclass
class StubCatalog:
    """Answers GET with `answers`, one after another (the last one stays), and POST with a token."""

    answers: list[tuple[int, Any]] = field(default_factory=list)
    seen: list[tuple[str, dict[str, str], str]] = field(default_factory=list)
    uri: str = ""

    def vend(self, key: str, ends: datetime, prefix: str = "s3://lake/") -> None:
        config = {
            "s3.access-key-id": key,
            "s3.secret-access-key": f"secret of {key}",
            "s3.session-token": f"token of {key}",
            "s3.session-token-expires-at-ms": str(int(ends.timestamp() * 1000)),
        }
        self.answers = [(200, {"storage-credentials": [{"prefix": prefix, "config": config}]})]


@pytest.fixture
def catalog() -> Iterator[StubCatalog]:
    stub = StubCatalog()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            stub.seen.append((self.path, dict(self.headers), ""))
            status, body = stub.answers.pop(0) if len(stub.answers) > 1 else stub.answers[0]
            self._say(status, body)

        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            stub.seen.append((self.path, dict(self.headers), form))
            self._say(200, {"access_token": "fresh", "token_type": "bearer"})

        def _say(self, status: int, body: Any) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    stub.uri = f"http://127.0.0.1:{server.server_address[1]}/api"
    yield stub
    server.shutdown()
    server.server_close()


def provider(catalog: StubCatalog, clock: FrozenClock, ends: datetime, **more: str) -> VendedCredentials:
    options = {
        "s3.access-key-id": "FIRST",
        "s3.secret-access-key": "secret of FIRST",
        "s3.session-token": "token of FIRST",
        "s3.session-token-expires-at-ms": str(int(ends.timestamp() * 1000)),
        "client.refresh-credentials-endpoint": "v1/namespaces/shop/tables/orders/credentials",
        "uri": catalog.uri,
        "token": "bearer-of-tests",
        **more,
    }
    place = parse_place(URL)
    return VendedCredentials(place, store_settings(place, options), clock)


def test_credentials_that_hold_are_used_as_they_are(catalog: StubCatalog) -> None:
    found = provider(catalog, FrozenClock(), START + timedelta(hours=1))()
    assert found["access_key_id"] == "FIRST"
    assert found["token"] == "token of FIRST"
    assert START < found["expires_at"] < START + timedelta(hours=1)
    assert catalog.seen == []


def test_credentials_are_renewed_shortly_before_they_end(catalog: StubCatalog) -> None:
    clock = FrozenClock()
    credentials = provider(catalog, clock, START + timedelta(hours=1), **{"header.X-Realm": "shop"})
    credentials()
    clock.at = START + timedelta(minutes=59)
    catalog.vend("SECOND", START + timedelta(hours=2))
    found = credentials()
    assert found["access_key_id"] == "SECOND"
    assert found["secret_access_key"] == "secret of SECOND"
    assert found["expires_at"] > clock.at
    path, headers, _ = catalog.seen[0]
    assert path == "/api/v1/namespaces/shop/tables/orders/credentials"
    assert headers["Authorization"] == "Bearer bearer-of-tests"
    assert headers["X-Realm"] == "shop"
    credentials()
    assert len(catalog.seen) == 1, "asked once for an hour's worth"


def test_the_entry_with_the_longest_prefix_counts(catalog: StubCatalog) -> None:
    def entry(prefix: str, key: str) -> dict[str, Any]:
        return {"prefix": prefix, "config": {"s3.access-key-id": key, "s3.secret-access-key": "s"}}

    entries = [entry("s3", "ANY"), entry("s3://lake/shop/orders/", "TABLE"), entry("s3://lake/shop/other", "OTHER")]
    catalog.answers = [(200, {"storage-credentials": entries})]
    assert provider(catalog, FrozenClock(), START)()["access_key_id"] == "TABLE"


def test_a_token_that_ended_is_replaced_by_client_credentials(catalog: StubCatalog) -> None:
    catalog.vend("SECOND", START + timedelta(hours=1))
    catalog.answers.insert(0, (401, {"error": {}}))
    found = provider(catalog, FrozenClock(), START, credential="client:s3cr3t")()
    assert found["access_key_id"] == "SECOND"
    paths = [path for path, _, _ in catalog.seen]
    assert paths[1] == "/api/v1/oauth/tokens"
    assert "client_secret=s3cr3t" in catalog.seen[1][2]
    assert catalog.seen[2][1]["Authorization"] == "Bearer fresh"


def test_an_answer_of_trouble_is_tried_again(catalog: StubCatalog) -> None:
    catalog.vend("SECOND", START + timedelta(hours=1))
    catalog.answers = [(503, {}), (500, {}), *catalog.answers]
    clock = FrozenClock()
    assert provider(catalog, clock, START)()["access_key_id"] == "SECOND"
    assert len(clock.waited) == 2


def test_what_is_at_hand_serves_to_its_end_while_the_catalog_is_away(catalog: StubCatalog) -> None:
    clock = FrozenClock()
    credentials = provider(catalog, clock, START + timedelta(minutes=1))
    catalog.answers = [(503, {})]
    assert credentials()["access_key_id"] == "FIRST"
    clock.at = START + timedelta(minutes=1)
    with pytest.raises(CatalogUnavailable) as caught:
        credentials()
    assert credentials.failure is caught.value


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusal_names_the_catalog_and_no_secret(catalog: StubCatalog, status: int) -> None:
    catalog.answers = [(status, {"error": {"message": "no"}})]
    with pytest.raises(CatalogRefused, match=str(status)) as caught:
        provider(catalog, FrozenClock(), START)()
    shown = f"{caught.value} {caught.value.hint}"
    assert catalog.uri in shown
    assert "bearer-of-tests" not in shown
    assert "secret of FIRST" not in shown


def test_an_answer_for_another_place_is_refused(catalog: StubCatalog) -> None:
    catalog.vend("SECOND", START + timedelta(hours=1), prefix="s3://elsewhere/")
    with pytest.raises(CatalogRefused, match="vended no S3 credentials"):
        provider(catalog, FrozenClock(), START)()
