"""SeaweedFS, started for real: an S3 server that checks signatures, and an Iceberg REST catalog over it.

    weed mini --> S3            endpoint, access_key_id, secret_access_key; buckets made by `bucket`
              `-> Iceberg REST  catalog_uri, OAuth2 `credential`, warehouse s3://tables

All of its ports are free ones on loopback, and it reports to nobody. A second identity that may only read comes from
`reader`, so that a refused write is refused by the server.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from servers.processes import answers, free_port, running

_SHELL_SECONDS = 60
_GRPC_OFFSET = 10_000  # a part of the server looks for the admin's gRPC port there, whatever the setting says
_VOLUMES_MAX = 10_000  # else free disk sets it; a bucket takes several, each no larger than what is in it
TABLE_BUCKET = "tables"
_ROLE = "arn:aws:iam::role/TableRole"
_ROLES = {
    "sts": {
        "tokenDuration": "1h",
        "maxSessionLength": "12h",
        "issuer": "seaweedfs-sts",
        "signingKey": base64.b64encode(b"a signing key that tests alone use").decode(),
    },
    "policy": {"defaultEffect": "Deny", "storeType": "memory"},
    "roles": [
        {
            "roleName": "TableRole",
            "roleArn": _ROLE,
            "trustPolicy": {
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Effect": "Allow",
                        "Principal": {"Federated": "iceberg-catalog"},
                        "Action": ["sts:AssumeRoleWithCredentials"],
                    }
                ],
            },
            "attachedPolicies": ["TablePolicy"],
        }
    ],
    "policies": [
        {
            "name": "TablePolicy",
            "document": {
                "Version": "2012-10-17",
                "Statement": [{"Effect": "Allow", "Action": ["s3:*"], "Resource": ["*"]}],
            },
        }
    ],
}
"""What the catalog vends: temporary credentials of this role, narrowed by the server to one table's location."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeaweedFS:
    """A running server."""

    endpoint: str
    catalog_uri: str
    master: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    warehouse: str = f"s3://{TABLE_BUCKET}"

    @property
    def credential(self) -> str:
        """OAuth2 client credentials of the Iceberg REST catalog."""
        return f"{self.access_key_id}:{self.secret_access_key}"

    @property
    def fileio(self) -> dict[str, str]:
        """Iceberg's names for this storage, as tables' options have them."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": self.access_key_id,
            "s3.secret-access-key": self.secret_access_key,
            "s3.path-style-access": "true",
            "client.region": "us-east-1",
        }

    @property
    def catalog_properties(self) -> dict[str, str]:
        """Properties of a catalog of type rest at `catalog_uri`, beside its uri."""
        return {"warehouse": self.warehouse, "credential": self.credential, **self.fileio}

    def bucket(self, name: str) -> str:
        """Makes a bucket, if there is none of that name, and gives its URL."""
        self.shell(f"s3.bucket.create -name {name}")
        return f"s3://{name}"

    def reader(self, bucket: str) -> dict[str, str]:
        """`fileio` of an identity that may list and read one bucket, and nothing else."""
        key, secret = f"READER{bucket.upper()}", f"reader-secret-{bucket}"
        self.shell(
            f"s3.configure -user reader-{bucket} -access_key {key} -secret_key {secret} -buckets {bucket}"
            " -actions Read,List -apply"
        )
        return {**self.fileio, "s3.access-key-id": key, "s3.secret-access-key": secret}

    def shell(self, command: str) -> str:
        """Runs one command of the server's own shell, and gives what it printed."""
        done = subprocess.run(
            [str(_program()), "shell", "-master", self.master],
            input=f"{command}\nexit\n",
            capture_output=True,
            text=True,
            timeout=_SHELL_SECONDS,
            check=True,
        )
        return done.stdout


@contextmanager
def seaweedfs_server(
    directory: Path, *, access_key_id: str = "AKIAFRAZILTESTS", secret_access_key: str = "seaweed-secret-of-tests"
) -> Iterator[SeaweedFS]:
    """Runs a server with its files in this directory."""
    data = directory / "data"
    data.mkdir(parents=True)
    s3, catalog, master, admin = free_port(), free_port(), free_port(), _port_with_grpc()
    roles = directory / "roles.json"
    roles.write_text(json.dumps(_ROLES))
    settings = {
        "dir": data,
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "master.telemetry": "false",
        "webdav": "false",
        "admin.ui": "false",
        "s3.autoCreateBucket": "false",
        "tableBucket": TABLE_BUCKET,
        "s3.iam.config": roles,
        "s3.iceberg.credentialRole": _ROLE,
        "s3.port": s3,
        "s3.port.grpc": free_port(),
        "s3.port.iceberg": catalog,
        "s3.port.lance": 0,
        "master.port": master,
        "master.port.grpc": free_port(),
        "volume.max": _VOLUMES_MAX,
        "volume.port": free_port(),
        "volume.port.grpc": free_port(),
        "filer.port": free_port(),
        "filer.port.grpc": free_port(),
        "admin.port": admin,
        "admin.port.grpc": admin + _GRPC_OFFSET,
    }
    server = SeaweedFS(
        endpoint=f"http://127.0.0.1:{s3}",
        catalog_uri=f"http://127.0.0.1:{catalog}",
        master=f"127.0.0.1:{master}.{settings['master.port.grpc']}",
        access_key_id=access_key_id,
        secret_access_key=secret_access_key,
    )
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": access_key_id,
        "AWS_SECRET_ACCESS_KEY": secret_access_key,
    }
    command = [str(_program()), "mini", *(f"-{name}={value}" for name, value in settings.items())]
    log = directory / "server.log"

    def is_ready() -> bool:
        """The last part is up: the catalog answers, and the table bucket is there."""
        return answers(server.endpoint) and answers(server.catalog_uri) and b"ready to use" in log.read_bytes()

    try:
        with running(command, log, ready=is_ready, environment=environment):
            yield server
    finally:
        # They are named after the ports and lie in the temporary directory: they go with ours.
        _remove_sockets(settings)


def _remove_sockets(settings: dict[str, object]) -> None:
    ports = {str(value) for name, value in settings.items() if ".port" in name}
    for path in Path("/tmp").glob("seaweedfs-*.sock"):
        if path.stem.rpartition("-")[2] in ports:
            path.unlink(missing_ok=True)


def _port_with_grpc() -> int:
    while True:
        port = free_port()
        if port + _GRPC_OFFSET <= 65_535:
            with socket.socket() as probe:
                try:
                    probe.bind(("127.0.0.1", port + _GRPC_OFFSET))
                    return port
                except OSError:
                    continue


def _program() -> Path:
    return Path(sys.executable).parent / "weed"
