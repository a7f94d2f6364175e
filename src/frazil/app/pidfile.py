"""How commands find the daemon of a pipeline.

frazil run          --announced--> <cache>/run/<pipeline>-<catalog>.json  {"pid": ..., "url": ...}  locked while it runs
frazil reload       --find-------> still locked? --> SIGHUP
frazil status       --ask--------> its url, else that of the `http:` block --> GET /status --> TableStatus
frazil run --once   --ask--------> somebody there? --> refuses, since it would end that daemon and then end itself

The lock is the kernel's, and goes with the process however that ends: neither a note that was left behind nor another
process of the same number is taken for a daemon. Pipelines of one name in two catalogs are two pipelines. A daemon on
another machine, or of another user, is found only where `http.port` of the configuration leads to it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

from frazil.config.pipeline_config import CatalogType, PipelineConfig
from frazil.errors import ConfigError
from frazil.model.results import TableStatus, ToldBy
from frazil.model.state import TableState
from frazil.observability.logs import Log
from frazil.paths import cache_home

_ANSWERS_WITHIN_SECONDS = 5.0
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_AS_TOLD = (
    "epoch_snapshot_id",
    "epochs",
    "rows",
    "table_rows",
    "quarantined",
    "data_files",
    "delete_files",
    "snapshots",
    "error",
    "hint",
    "exit_code",
)
_log = Log("frazil.daemon")


@dataclass(frozen=True, slots=True)
class Announced:
    pid: int
    url: str = ""


@dataclass(frozen=True, slots=True)
class Daemon:
    """A daemon that runs. `described` says which, for people; `tables` is what it tells of them, empty if it does not:
    then `silent` says why."""

    described: str
    tables: tuple[TableStatus, ...] = ()
    silent: str = ""


@contextmanager
def announced(config: PipelineConfig, url: str) -> Iterator[None]:
    """Never fails: a daemon works without being found."""
    path = _path(config)
    part = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        note = part.open("w", encoding="utf-8")
    except OSError as error:
        _log.warning("commands on this machine will not find this daemon", reason=str(error))
        yield
        return
    with note:
        try:
            fcntl.flock(note, fcntl.LOCK_EX | fcntl.LOCK_NB)
            json.dump(asdict(Announced(os.getpid(), url)), note)
            note.flush()
            part.replace(path)
        except OSError as error:
            _log.warning("commands on this machine will not find this daemon", reason=str(error))
        try:
            yield
        finally:
            # Another daemon may have announced itself meanwhile: its note stays.
            with suppress(OSError):
                if os.path.samestat(path.stat(), os.fstat(note.fileno())):
                    path.unlink()


def find(config: PipelineConfig) -> Announced | None:
    """The daemon of this user on this machine that was announced last, if it still runs."""
    if config.catalog.type is CatalogType.MEMORY:
        return None  # each process has one of its own
    with suppress(OSError, ValueError, TypeError), _path(config).open(encoding="utf-8") as note:
        try:
            fcntl.flock(note, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return Announced(**json.load(note))
    return None


def ask(config: PipelineConfig) -> Daemon | None:
    """The daemon that publishes this pipeline now, as far as can be told from here; None if none was found."""
    found = find(config)
    if found is not None:
        described = f"the daemon on this machine (process {found.pid})"
        if not found.url:
            return Daemon(described, silent="it serves nothing over HTTP (http.port is 0)")
        return _asked(config, found.url, described) or Daemon(described, silent=f"{found.url} does not answer")
    if config.http.port:
        host = _EVERYWHERE.get(config.http.host, config.http.host)
        url = f"http://{f'[{host}]' if ':' in host else host}:{config.http.port}"
        return _asked(config, url, f"the daemon at {url}")
    return None


def check_alone(config: PipelineConfig) -> None:
    """Raises ConfigError if a daemon publishes this pipeline now: whoever takes over ends it."""
    found = ask(config)
    if found is not None:
        raise ConfigError(
            f"{found.described} publishes the pipeline {config.pipeline}; a run beside it would take over, end it with "
            "exit code 6, and leave nobody to go on",
            hint="Leave it to the daemon (`frazil status` tells how far it is), or stop that first. "
            "To take over all the same: --take-over.",
            pipeline=config.pipeline,
        )


def _asked(config: PipelineConfig, url: str, described: str) -> Daemon | None:
    """None if nobody answers there, or somebody else."""
    try:
        # No proxy: it could not reach this machine's loopback.
        with build_opener(ProxyHandler({})).open(f"{url}/status", timeout=_ANSWERS_WITHIN_SECONDS) as answer:
            told = json.load(answer)
        if told["pipeline"] != config.pipeline:
            return None
        tables = tuple(_status(facts, told) for facts in told["tables"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Daemon(described, tables, "" if tables else told.get("reason") or "it knows no table yet")


def _status(facts: Mapping[str, Any], told: Mapping[str, Any]) -> TableStatus:
    return TableStatus(
        table=facts["table"],
        state=TableState(facts["state"]),
        resolved=facts["resolved"],
        snapshot_id=facts["snapshot_id"],
        lag_seconds=facts["lag_seconds"],
        maintenance=facts.get("maintenance") or None,
        maintained_at=_moment(facts.get("maintained_at")),
        source_time=_moment(facts.get("source_time")),
        index_bytes=told.get("index_bytes"),
        index_hit_rate=told.get("index_hit_rate"),
        told_by=ToldBy.DAEMON,
        **{name: facts[name] for name in _AS_TOLD if name in facts},
    )


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _path(config: PipelineConfig) -> Path:
    catalog = config.catalog
    place = json.dumps([catalog.type, catalog.uri, catalog.warehouse], default=str)
    return cache_home() / "run" / f"{config.pipeline}-{hashlib.sha256(place.encode()).hexdigest()[:8]}.json"
