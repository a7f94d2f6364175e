"""Wrong addresses, credentials and rights: the error says where, as whom, and what to do, and no secret."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from catalog_builders import source_schema
from pyspark.sql import SparkSession
from servers.postgres import postgres_server
from servers.processes import free_port
from servers.seaweedfs import SeaweedFS

from frazil.errors import CatalogRefused, CatalogUnavailable, FrazilError
from frazil.iceberg.catalogs.open_catalog import CatalogSettings, CatalogType, open_catalog
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.tables.tables import Tables
from frazil.model.ids import TableName
from frazil.model.write import DeleteMode, TableOptions

pytestmark = [pytest.mark.spark, pytest.mark.servers]
EQUALITY = TableOptions(mode=DeleteMode.EQUALITY, format_version=2)
SECRET = "hunter2-secret"
QUICKLY = {"rest.client.max-retries": "1", "rest.client.connection-timeout-ms": "2000"}


class _Answers(BaseHTTPRequestHandler):
    """A server that answers everything the same way."""

    status = 200
    body = b""
    kind = "text/html"

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(self.status)
        self.send_header("Content-Type", self.kind)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(self.body)

    do_GET = do_POST = do_HEAD = do_DELETE = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


class Answering:
    """Starts such servers and stops them."""

    def __init__(self) -> None:
        self._servers: list[ThreadingHTTPServer] = []

    def __call__(self, status: int, body: bytes, kind: str = "application/json") -> str:
        handler = type("Handler", (_Answers,), {"status": status, "body": body, "kind": kind})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    def stop(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()


@pytest.fixture
def answering() -> Iterator[Answering]:
    made = Answering()
    yield made
    made.stop()


def rest(name: str, uri: str, **properties: str) -> CatalogSettings:
    named = {key.replace("_", "-"): value for key, value in properties.items()}
    return CatalogSettings(name=name, type=CatalogType.REST, uri=uri, properties={**QUICKLY, **named})


def refusal(spark: SparkSession, settings: CatalogSettings, kind: type[FrazilError]) -> FrazilError:
    with pytest.raises(kind) as caught:
        open_catalog(spark, settings)
    told = f"{caught.value} {caught.value.hint} {caught.value.facts}"
    assert SECRET not in told
    assert settings.endpoint in str(caught.value)
    assert settings.identity in str(caught.value)
    return caught.value


def error(code: int, kind: str, message: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": kind, "code": code}}).encode()


def test_an_address_where_nobody_listens(spark: SparkSession) -> None:
    found = refusal(spark, rest("nobody", f"http://127.0.0.1:{free_port()}", token=SECRET), CatalogUnavailable)
    assert "runs and is reachable" in found.hint


def test_an_address_where_something_else_listens(spark: SparkSession, answering: Answering) -> None:
    page = answering(200, b"<html>the shop's own page</html>", "text/html")
    missing = answering(404, b"<html>not here</html>", "text/html")
    for name, uri in (("page", page), ("missing", missing)):
        found = refusal(spark, rest(name, uri), CatalogRefused)
        assert "catalog.uri" in found.hint


def test_a_wrong_secret_names_the_client(spark: SparkSession, seaweedfs: SeaweedFS) -> None:
    wrong = {**seaweedfs.catalog_properties, "credential": f"{seaweedfs.access_key_id}:{SECRET}"}
    settings = CatalogSettings(name="wrong", type=CatalogType.REST, uri=seaweedfs.catalog_uri, properties=wrong)
    found = refusal(spark, settings, CatalogRefused)
    assert f"OAuth2 client {seaweedfs.access_key_id}" in found.hint
    assert "renew" in found.hint


def test_an_expired_token_is_to_be_renewed(spark: SparkSession, answering: Answering) -> None:
    uri = answering(401, error(401, "NotAuthorizedException", f"token {SECRET} expired at noon"))
    found = refusal(spark, rest("expired", uri, token=SECRET), CatalogRefused)
    assert "renew" in found.hint
    assert "expired at noon" in str(found)


def test_a_right_that_is_missing_is_to_be_granted(spark: SparkSession, answering: Answering) -> None:
    uri = answering(403, error(403, "ForbiddenException", "no right to read the catalog"))
    found = refusal(spark, rest("denied", uri, credential=f"me:{SECRET}"), CatalogRefused)
    assert "OAuth2 client me" in found.hint
    assert "docs/catalogs.md" in found.hint


def test_a_database_that_does_not_know_the_user(spark: SparkSession) -> None:
    with postgres_server() as url:
        nobody = url.replace("frazil@", f"nobody:{SECRET}@")
        settings = CatalogSettings(name="nobody_pg", type=CatalogType.JDBC, uri=nobody, warehouse="/nowhere")
        found = refusal(spark, settings, CatalogRefused)
        assert "database user nobody" in found.hint


def test_a_namespace_that_may_not_be_made_is_named(spark: SparkSession, seaweedfs: SeaweedFS) -> None:
    """The catalog is there, the table bucket is not: no namespace can be made in it."""
    wrong = {**seaweedfs.catalog_properties, "warehouse": "s3://no-such-bucket"}
    settings = CatalogSettings(name="nowhere_s3", type=CatalogType.REST, uri=seaweedfs.catalog_uri, properties=wrong)
    with pytest.raises(FrazilError, match="namespace sales") as caught:
        Tables(open_catalog(spark, settings)).create(TableName(("sales",), "orders"), source_schema(), EQUALITY)
    assert seaweedfs.catalog_uri in str(caught.value)
    assert seaweedfs.secret_access_key not in f"{caught.value} {caught.value.hint} {caught.value.facts}"


def test_storage_that_may_not_be_written_says_so(
    spark: SparkSession, seaweedfs: SeaweedFS, namespace: str, tmp_path: Path
) -> None:
    """The catalog says yes, the bucket says no: the data of a table is not where the catalog is."""
    bucket = seaweedfs.bucket("readonly")
    settings = CatalogSettings(
        name="readonly",
        uri=str(tmp_path / "catalog.db"),
        warehouse=bucket,
        properties={**seaweedfs.reader("readonly")},
    )
    with pytest.raises(CatalogRefused) as caught:
        Tables(open_catalog(spark, settings)).create(TableName((namespace,), "orders"), source_schema(), EQUALITY)
    told = f"{caught.value} {caught.value.hint} {caught.value.facts}"
    assert "reader-secret" not in told
    assert "orders" in told


def test_a_missing_bucket_is_named(spark: SparkSession, seaweedfs: SeaweedFS, namespace: str, tmp_path: Path) -> None:
    settings = CatalogSettings(
        name="no_bucket", uri=str(tmp_path / "catalog.db"), warehouse="s3://never-made", properties=seaweedfs.fileio
    )
    with pytest.raises(CatalogRefused, match=r"bucket|NoSuchBucket") as caught:
        Tables(open_catalog(spark, settings)).create(TableName((namespace,), "orders"), source_schema(), EQUALITY)
    assert "create the bucket" in caught.value.hint


def test_a_missing_table_is_named(spark: SparkSession, rest_uri: str, namespace: str) -> None:
    committer = IcebergCommitter(
        open_catalog(spark, CatalogSettings(name="plain", type=CatalogType.REST, uri=rest_uri))
    )
    with pytest.raises(FrazilError, match=f"{namespace}.gone"):
        committer.head(TableName((namespace,), "gone"))
