"""moto, a stand-in for AWS Glue: it speaks Glue's protocol and keeps databases and tables in memory.

It accepts any credential, knows no rights, and takes a table's new version whatever the old one was. What it proves is
the protocol: that our settings make iceberg-java ask Glue for the right things. About races it proves nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servers.processes import free_port, running, succeeds


@contextmanager
def moto_server(directory: Path) -> Iterator[str]:
    """Gives its address."""
    port = free_port()
    uri = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with running(command, directory / "moto.log", ready=lambda: succeeds(f"{uri}/moto-api/")):
        yield uri
