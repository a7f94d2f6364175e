"""`frazil run` as a supervisor runs it: a process of its own, fed while it works, ended by a signal."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from feed_builders import Feed, at, delete, table, upsert
from pyiceberg.catalog.sql import SqlCatalog

pytestmark = pytest.mark.spark

_PATIENCE_SECONDS = 240


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    entry = table("t", target="lake.t", deletes="append-only")
    config = {
        "pipeline": "daemon",
        "source": {"type": "cockroachdb", "feed": "./feed", "poll_interval": "100ms"},
        "catalog": {"type": "builtin", "warehouse": "./warehouse"},
        "tables": [entry],
    }
    (tmp_path / "daemon.yaml").write_text(yaml.safe_dump(config))
    feed = Feed(tmp_path / "feed")
    feed.data(at(1), [upsert([1], at(1), a=1, b="x")])
    feed.resolved(at(2))
    return feed


@pytest.fixture
def daemon(feed: Feed, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "frazil.cli.main", "run", "daemon.yaml", "--json", "--log-format", "json"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=log, text=True)
        yield process
        process.kill()
        process.communicate()


def wait_for(process: subprocess.Popen[str], log: Path, epoch: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        published = [line for line in log.read_text().splitlines() if '"published"' in line and epoch in line]
        if published:
            return
        assert process.poll() is None, log.read_text()[-3000:]
        time.sleep(0.1)
    pytest.fail(f"{epoch} was not published:\n{log.read_text()[-3000:]}")


def test_a_daemon_follows_its_feed_and_ends_with_0_on_a_signal(
    daemon: subprocess.Popen[str], feed: Feed, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    wait_for(daemon, log, at(2).text)
    feed.data(at(3), [upsert([1], at(3), a=1, b="y"), delete([9], at(4))])
    feed.resolved(at(5))
    wait_for(daemon, log, at(5).text)
    daemon.send_signal(signal.SIGTERM)
    stdout, _ = daemon.communicate(timeout=_PATIENCE_SECONDS)
    assert daemon.returncode == 0, log.read_text()[-3000:]
    (summary,) = json.loads(stdout)
    assert (summary["epochs"], summary["resolved"]) == (2, at(5).text)
    catalog = SqlCatalog("frazil", uri=f"sqlite:///{tmp_path}/warehouse/catalog.db", warehouse=f"{tmp_path}/warehouse")
    rows = catalog.load_table("lake.t").scan().to_arrow().to_pylist()
    assert sorted((row["_position"], row["_op"], row["a"], row["b"]) for row in rows) == [
        (at(1).text, "upsert", 1, "x"),
        (at(3).text, "upsert", 1, "y"),
        (at(4).text, "delete", 9, None),
    ]
