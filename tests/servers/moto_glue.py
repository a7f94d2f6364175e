"""moto, a stand-in for AWS Glue: it speaks Glue's protocol and keeps databases and tables in memory.

It accepts any credential, knows no rights, and takes a table's new version whatever the old one was. What it proves is
the protocol: that our settings make iceberg-java ask Glue for the right things. About races it proves nothing.
"""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servers.rest_server import free_port

_START_SECONDS = 60


@contextmanager
def moto_server(directory: Path) -> Iterator[str]:
    """Gives its address."""
    port = free_port()
    uri = f"http://127.0.0.1:{port}"
    with (directory / "moto.log").open("wb") as log:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            _wait(process, uri, directory / "moto.log")
            yield uri
        finally:
            process.terminate()
            process.wait(30)


def _wait(process: subprocess.Popen[bytes], uri: str, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{uri}/moto-api/", timeout=5):
                return
        except (OSError, urllib.error.URLError):
            time.sleep(0.2)
    raise RuntimeError(f"moto did not start:\n{log.read_text()[-3000:]}")
