"""S3Proxy, started for real: a second S3 server, over a local directory, that checks signatures too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from servers.processes import answers, free_port, running

from frazil.iceberg.jvm.jars import fetch
from frazil.iceberg.jvm.java import find_java

_PINNED = Path(__file__).with_suffix(".jars")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Proxy:
    endpoint: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    directory: Path

    @property
    def fileio(self) -> dict[str, str]:
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": self.access_key_id,
            "s3.secret-access-key": self.secret_access_key,
            "s3.path-style-access": "true",
            "client.region": "us-east-1",
        }

    def bucket(self, name: str) -> str:
        """A bucket is a directory there."""
        (self.directory / name).mkdir(exist_ok=True)
        return f"s3://{name}"


@contextmanager
def s3proxy_server(directory: Path) -> Iterator[S3Proxy]:
    data = directory / "data"
    data.mkdir(parents=True)
    server = S3Proxy(
        endpoint=f"http://127.0.0.1:{free_port()}",
        access_key_id="AKIASECONDSTORE",
        secret_access_key="s3proxy-secret-of-tests",
        directory=data,
    )
    settings = {
        "s3proxy.endpoint": server.endpoint,
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": server.access_key_id,
        "s3proxy.credential": server.secret_access_key,
        "jclouds.provider": "filesystem",
        "jclouds.filesystem.basedir": str(data),
    }
    properties = directory / "s3proxy.conf"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    sha256, coordinate = _PINNED.read_text().split()
    command = [str(find_java().executable), "-Xmx256m", "-jar", str(fetch(coordinate, sha256))]
    command += ["--properties", str(properties)]
    with running(command, directory / "server.log", ready=lambda: answers(server.endpoint)):
        yield server
