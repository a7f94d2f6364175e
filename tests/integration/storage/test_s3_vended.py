"""Credentials that a real REST catalog vends for one table: workers write with them there, nowhere else, and fetch new
ones before they end.

The real catalog hands them out with a table and has no address to renew them at. That address is a stub of this test,
a local HTTP server, which asks the real catalog for the table again and passes on what it vends.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from servers.seaweedfs import SeaweedFS

from frazil.errors import CatalogRefused
from frazil.storage.files.open_file import open_input, open_output

pytestmark = pytest.mark.servers


class Catalog:
    """As much of the REST protocol as these tests need."""

    def __init__(self, server: SeaweedFS) -> None:
        self.uri = server.catalog_uri
        form = {
            "grant_type": "client_credentials",
            "client_id": server.access_key_id,
            "client_secret": server.secret_access_key,
            "scope": "catalog",
        }
        body = urllib.parse.urlencode(form).encode()
        with urllib.request.urlopen(f"{self.uri}/v1/oauth/tokens", body) as answer:
            self.token = json.load(answer)["access_token"]

    def ask(self, path: str, body: Any = None) -> Any:
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Content-Type": "application/json",
            "X-Iceberg-Access-Delegation": "vended-credentials",
        }
        request = urllib.request.Request(
            f"{self.uri}/v1/tables/{path}", None if body is None else json.dumps(body).encode(), headers
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)


@pytest.fixture(scope="module")
def catalog(seaweedfs: SeaweedFS) -> Catalog:
    made = Catalog(seaweedfs)
    made.ask("namespaces", {"namespace": ["vended"], "properties": {}})
    schema = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "a", "required": False, "type": "long"}]}
    for name in ("mine", "other"):
        made.ask("namespaces/vended/tables", {"name": name, "schema": schema})
    return made


def vended(catalog: Catalog) -> tuple[str, dict[str, str]]:
    """A table's location and the options that come with it."""
    loaded = catalog.ask("namespaces/vended/tables/mine")
    options = {**loaded["config"], "s3.path-style-access": "true", "client.region": "us-east-1"}
    return loaded["metadata"]["location"], options


def write(path: str, options: dict[str, str], data: bytes = b"rows") -> None:
    output = open_output(path, options)
    try:
        output.write(memoryview(data))
        output.sync()
    finally:
        output.close()


def test_a_worker_writes_with_what_the_catalog_vended(catalog: Catalog, seaweedfs: SeaweedFS) -> None:
    location, options = vended(catalog)
    assert options["s3.access-key-id"] != seaweedfs.access_key_id
    assert options["s3.session-token"]
    write(f"{location}/data/one.parquet", options)
    with open_input(f"{location}/data/one.parquet", options) as source:
        assert source.read() == b"rows"


def test_vended_credentials_open_their_table_alone(catalog: Catalog) -> None:
    location, options = vended(catalog)
    with pytest.raises(CatalogRefused, match="AccessDenied"):
        write(f"{location.replace('mine', 'other')}/data/one.parquet", options)


@contextmanager
def renewing(catalog: Catalog) -> Iterator[tuple[str, list[str]]]:
    """The stub: its address, and the access keys it passed on."""
    passed_on: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            loaded = catalog.ask("namespaces/vended/tables/mine")
            passed_on.append(loaded["config"]["s3.access-key-id"])
            body = json.dumps({"storage-credentials": loaded["storage-credentials"]}).encode()
            self.send_response(200 if self.headers["Authorization"] == f"Bearer {catalog.token}" else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", passed_on
    finally:
        server.shutdown()
        server.server_close()


def test_credentials_that_end_are_renewed_under_way(catalog: Catalog) -> None:
    location, options = vended(catalog)
    with renewing(catalog) as (address, passed_on):
        ending = {
            **options,
            # Ended as the storage sees it, too: these keys were never valid.
            "s3.access-key-id": "ASIAENDED",
            "s3.secret-access-key": "ended",
            "s3.session-token": "ended",
            "s3.session-token-expires-at-ms": str(int(time.time() * 1000) + 30_000),
            "client.refresh-credentials-endpoint": "v1/credentials",
            "uri": address,
            "token": catalog.token,
        }
        write(f"{location}/data/renewed.parquet", ending)
        assert len(passed_on) == 1
        write(f"{location}/data/renewed-2.parquet", ending)
        assert len(passed_on) == 1, "what was renewed holds for an hour"
    with open_input(f"{location}/data/renewed.parquet", options) as source:
        assert source.read() == b"rows"


def test_a_renewal_that_is_refused_is_said_by_its_name(catalog: Catalog) -> None:
    location, options = vended(catalog)
    with renewing(catalog) as (address, _):
        ended = {
            **options,
            "s3.session-token-expires-at-ms": str(int(time.time() * 1000) - 1000),
            "client.refresh-credentials-endpoint": "v1/credentials",
            "uri": address,
            "token": "a token that ended",
        }
        with pytest.raises(CatalogRefused, match="does not renew the credentials") as caught:
            write(f"{location}/data/never.parquet", ended)
    assert "a token that ended" not in f"{caught.value} {caught.value.hint}"
