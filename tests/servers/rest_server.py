"""Iceberg's REST reference server, started for real: a SQLite file and a directory behind HTTP.

    jars (cache, checked) + Spark's own jars --> java RESTCatalogServer --> answers /v1/config --> uri

The server listens on all interfaces and offers no setting for it; the port is free and lives as long as the tests.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import quick_java
from servers.processes import free_port, running, succeeds

from frazil.iceberg.jvm.jars import SQLITE, fetch
from frazil.iceberg.jvm.java import find_java

_MAIN = "org.apache.iceberg.rest.RESTCatalogServer"
_START_SECONDS = 120
_PINNED = Path(__file__).with_suffix(".jars")  # lines of: sha256 coordinate
# Hadoop, Jackson, Avro and logging come with Spark; its servlet API is too old for this Jetty.
_FROM_SPARK = ("jackson-", "avro-1", "slf4j-api", "hadoop-client-", "RoaringBitmap", "zstd-jni", "log4j-", "commons-")


@contextmanager
def rest_server(directory: Path) -> Iterator[str]:
    """Runs a server on this directory and gives its URI."""
    port = free_port()
    uri = f"http://127.0.0.1:{port}"
    environment = {
        **os.environ,
        "CATALOG_WAREHOUSE": str(directory),
        "CATALOG_URI": f"jdbc:sqlite:{directory}/rest.db",
        "CATALOG_REST_PORT": str(port),
    }
    with running(
        [str(find_java().executable), "-Xmx256m", *quick_java.PLAIN.split(), "-cp", _class_path(), _MAIN],
        directory / "server.log",
        ready=lambda: succeeds(f"{uri}/v1/config"),
        seconds=_START_SECONDS,
        environment=environment,
    ):
        yield uri


def _class_path() -> str:
    pinned = (line.split() for line in _PINNED.read_text().splitlines())
    own = [str(fetch(coordinate, sha256)) for sha256, coordinate in pinned]
    sqlite = str(fetch(SQLITE.coordinate, SQLITE.sha256))
    spark = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    return os.pathsep.join([*own, sqlite, *(str(jar) for jar in spark if jar.name.startswith(_FROM_SPARK))])
