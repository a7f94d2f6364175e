"""How commands find the daemon of a pipeline on this machine.

frazil run     --announce--> <cache>/run/<pipeline>.json   {"pid": ..., "url": ...}     removed when it ends
frazil reload  --find------> alive? --> SIGHUP

A note for convenience: nothing is decided from it. A daemon elsewhere, or of another user, is not found.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from frazil.lake.cache import cache_home
from frazil.observability.logs import Log

_log = Log("frazil.daemon")


@dataclass(frozen=True, slots=True)
class Announced:
    pid: int
    url: str = ""


def announce(pipeline: str, url: str) -> None:
    """Never raises: a daemon works without being found."""
    path = _path(pipeline)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(asdict(Announced(os.getpid(), url))), encoding="utf-8")
        part.replace(path)
    except OSError as error:
        _log.warning("`frazil reload` will not find this daemon", reason=str(error))


def withdraw(pipeline: str) -> None:
    """Only what this process has announced."""
    found = find(pipeline)
    if found is not None and found.pid == os.getpid():
        with suppress(OSError):
            _path(pipeline).unlink()


def find(pipeline: str) -> Announced | None:
    """The daemon that was announced last, if it still runs."""
    try:
        found = Announced(**json.loads(_path(pipeline).read_text(encoding="utf-8")))
        os.kill(found.pid, 0)
    except (OSError, ValueError, TypeError):
        return None
    return found


def _path(pipeline: str) -> Path:
    return cache_home() / "run" / f"{pipeline}.json"
