"""`frazil run` as a supervisor runs it: a process of its own, fed while it works, ended by a signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from feed_builders import Feed, at, delete, table, upsert
from pyiceberg.catalog.sql import SqlCatalog

from frazil.paths import cache_home

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
    home = tmp_path / "home"
    home.mkdir()
    (home / "jars").symlink_to(cache_home() / "jars")
    environment = {**os.environ, "FRAZIL_HOME": str(home)}
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
        )
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


def test_a_daemon_outlives_its_jvm_and_takes_a_new_configuration(
    daemon: subprocess.Popen[str], feed: Feed, tmp_path: Path
) -> None:
    """H56: nothing is lost with the JVM. Then `frazil reload` adds a table, and a mistake in it changes nothing."""
    log = tmp_path / "log"
    wait_for(daemon, log, at(2).text)
    os.kill(jvm_of(daemon.pid), signal.SIGKILL)
    feed.data(at(3), [upsert([2], at(3), a=2, b="after")])
    feed.resolved(at(4))
    wait_for(daemon, log, at(4).text)
    assert "Spark is started anew" in log.read_text()

    config = yaml.safe_load((tmp_path / "daemon.yaml").read_text())
    config["tables"].append(table("u", target="lake.u"))
    (tmp_path / "daemon.yaml").write_text(yaml.safe_dump(config))
    assert frazil(tmp_path, "reload").returncode == 0
    feed.data(at(5), [upsert([7], at(5), a=7, b="new")], topic="u")
    feed.resolved(at(6))
    wait_for(daemon, log, at(6).text)

    (note,) = (tmp_path / "home" / "run").glob("daemon-*.json")
    url = json.loads(note.read_text())["url"]
    with urllib.request.urlopen(f"{url}/status", timeout=30) as answer:
        status = json.load(answer)
    assert {one["table"]: one["state"] for one in status["tables"]}["lake.u"] == "STEADY_STATE"

    (tmp_path / "daemon.yaml").write_text(yaml.safe_dump({**config, "tabels": []}))
    refused = frazil(tmp_path, "reload")
    assert refused.returncode == 2
    assert "tabels" in refused.stderr
    daemon.send_signal(signal.SIGHUP)
    wait_for_line(daemon, log, "the new configuration is not taken")

    # The new Spark has not taken the handler of Ctrl-C away.
    daemon.send_signal(signal.SIGINT)
    daemon.communicate(timeout=_PATIENCE_SECONDS)
    assert daemon.returncode == 0, log.read_text()[-3000:]
    assert not note.exists()
    catalog = SqlCatalog("frazil", uri=f"sqlite:///{tmp_path}/warehouse/catalog.db", warehouse=f"{tmp_path}/warehouse")
    assert sorted(catalog.load_table("lake.t").scan().to_arrow()["a"].to_pylist()) == [1, 2]
    assert catalog.load_table("lake.u").scan().to_arrow()["a"].to_pylist() == [7]
    checkpoints = catalog.load_table("_frazil.checkpoints").scan().to_arrow().to_pylist()
    assert {row["sync_id"]: row["resolved"] for row in checkpoints}["lake.u"] == at(6).text


def test_commands_ask_the_daemon_and_do_not_end_it(daemon: subprocess.Popen[str], feed: Feed, tmp_path: Path) -> None:
    """A table that the daemon has stopped is told stopped; a run beside it is refused, and it goes on."""
    log = tmp_path / "log"
    wait_for(daemon, log, at(2).text)
    config = yaml.safe_load((tmp_path / "daemon.yaml").read_text())
    config["tables"].append(table("u", target="lake.u"))
    (tmp_path / "daemon.yaml").write_text(yaml.safe_dump(config))
    assert frazil(tmp_path, "reload").returncode == 0
    feed.data(at(3), [upsert([1], at(3), a=1, b="good")], topic="u")
    feed.resolved(at(4))
    wait_for(daemon, log, at(4).text)
    feed.data(at(5), [upsert([2], at(5), a="no number", b="bad")], topic="u")
    feed.data(at(5), [upsert([2], at(5), a=2, b="x")])
    feed.resolved(at(6))
    wait_for_line(daemon, log, "stopped; other tables go on")
    wait_for(daemon, log, at(6).text)

    asked = frazil(tmp_path, "status", "--json")
    told = {one["table"]: one for one in json.loads(asked.stdout)}
    assert asked.returncode == 3, asked.stderr
    assert {name: (one["state"], one["told_by"]) for name, one in told.items()} == {
        "lake.t": ("STEADY_STATE", "daemon"),
        "lake.u": ("STOPPED", "daemon"),
    }
    assert "no number" in told["lake.u"]["error"]
    assert told["lake.u"]["resolved"] == at(4).text
    assert (told["lake.t"]["resolved"], told["lake.t"]["table_rows"]) == (at(6).text, 2)
    assert told["lake.t"]["snapshot_id"] == told["lake.t"]["epoch_snapshot_id"]

    refused = frazil(tmp_path, "run", "--once")
    assert refused.returncode == 2
    assert f"the daemon on this machine (process {daemon.pid}) publishes the pipeline daemon" in refused.stderr
    feed.data(at(7), [upsert([3], at(7), a=3, b="z")])
    feed.resolved(at(8))
    wait_for(daemon, log, at(8).text)
    assert daemon.poll() is None


def jvm_of(pid: int) -> int:
    """The Java process that a Python process started."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                name = (folder / "comm").read_text().strip()
            except OSError:
                continue
            if parent == pid and name == "java":
                return int(folder.name)
    raise AssertionError("no JVM was found")


def frazil(directory: Path, command: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A command beside the daemon."""
    call = [sys.executable, "-m", "frazil.cli.main", command, "daemon.yaml", *options]
    environment = {**os.environ, "FRAZIL_HOME": str(directory / "home")}
    return subprocess.run(call, cwd=directory, env=environment, capture_output=True, text=True, check=False)


def wait_for_line(process: subprocess.Popen[str], log: Path, text: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while text not in log.read_text():
        assert process.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.1)
