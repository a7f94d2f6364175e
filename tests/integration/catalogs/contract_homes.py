"""A catalog under contract, and another process to race with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from servers.faulty_proxy import FaultyProxy

from frazil.iceberg.catalogs.capabilities import Capabilities
from frazil.iceberg.catalogs.open_catalog import Catalog, CatalogSettings


@dataclass(frozen=True)
class Home:
    """A catalog under contract. `can` is what it is expected to be able to; `proxy` stands before an HTTP server;
    `arbitrates` is False for a stand-in that lets both of two racing commits win."""

    kind: str
    catalog: Catalog
    can: Capabilities
    proxy: FaultyProxy | None = None
    arbitrates: bool = True


class Rival:
    """The other process."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("rival.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script)],
            env={**os.environ, "AWS_ACCESS_KEY_ID": "AKIASTANDIN", "AWS_SECRET_ACCESS_KEY": "any will do"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self.heard() == "started"

    def prepare(self, settings: CatalogSettings, table: str, resolved: int, row: int) -> None:
        """It has read the head and written its file when this returns."""
        plain = {
            "name": settings.name,
            "type": settings.type.value,
            "warehouse": settings.warehouse,
            "uri": settings.uri,
            "properties": dict(settings.properties),
        }
        self._tell(json.dumps({"settings": plain, "table": table, "resolved": resolved, "id": row}))
        assert self.heard() == "ready"

    def go(self) -> None:
        self._tell("go")

    def heard(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


def without_notes(found: Capabilities) -> Capabilities:
    return replace(found, notes=())
