"""Commands beside a daemon: it is found, asked, and not ended by accident."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from cli_builders import RESOLVED, FakePipeline, config_file, frazil, status_of
from click.testing import CliRunner, Result

from frazil.app.pidfile import announced, ask, find
from frazil.cli.main import cli
from frazil.clock import SystemClock
from frazil.config.load import load_config
from frazil.config.pipeline_config import PipelineConfig
from frazil.model.results import RunProgress, TableProgress
from frazil.model.state import TableState
from frazil.observability.metrics import Metrics
from frazil.serve.http.health import Health
from frazil.serve.http.server import DaemonServer
from frazil.serve.http.timeseries import Timeseries

CONFIG = """\
pipeline: shop
source: {type: cockroachdb, feed: ./feed}
catalog: {type: builtin, warehouse: ./warehouse}
tables:
  - {source: orders, target: analytics.orders, key: [id]}
"""
STOPPED = TableProgress(
    "analytics.orders",
    TableState.STOPPED,
    RESOLVED,
    3,
    1200,
    4.2,
    snapshot_id=9,
    epoch_snapshot_id=7,
    table_rows=1000,
    quarantined=2,
    data_files=12,
    delete_files=3,
    error="line 7 of f.ndjson: 'x' is no number",
    hint="Correct the row at the source.",
    exit_code=3,
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_HOME", str(tmp_path / "home"))


@pytest.fixture
def file(tmp_path: Path) -> str:
    return config_file(tmp_path, CONFIG)


def loaded(file: str) -> PipelineConfig:
    return load_config(file)


@contextmanager
def serving(*tables: TableProgress, pipeline: str = "shop") -> Iterator[str]:
    progress = RunProgress(tables, RESOLVED, pipeline, index_bytes=3 << 20, index_hit_rate=0.75)
    with DaemonServer(
        "127.0.0.1",
        None,
        None,
        metrics=Metrics(SystemClock()),
        progress=lambda: progress,
        health=lambda: Health(True, True) if tables else Health(True, False, "the pipeline is starting"),
        history=Timeseries(),
    ) as server:
        yield server.url


def told(result: Result) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(result.stdout)
    return found


def test_a_table_that_the_daemon_has_stopped_is_shown_stopped_with_the_reason(file: str) -> None:
    pipeline = FakePipeline()
    with serving(STOPPED) as url, announced(loaded(file), url):
        result = frazil("status", file, pipeline=pipeline)
    assert pipeline.calls == [], "nothing is opened to ask a daemon"
    assert result.exit_code == 3
    assert f"told by the daemon on this machine (process {os.getpid()})" in result.stderr
    (line,) = [line.split() for line in result.stdout.splitlines() if line.startswith(" analytics.orders ")]
    assert line == [
        "analytics.orders", "STOPPED", "4.2s", "2023-11-27", "16:24:56.662", "Z", "1,000", "2", "3", "1,200", "12", "3",
        "9",
    ]  # fmt: skip
    assert "analytics.orders: line 7 of f.ndjson: 'x' is no number" in result.stdout
    assert "hint: Correct the row at the source." in result.stdout
    assert "key index: 3.0 MB, 75% of lookups hit it" in result.stdout


def test_json_says_who_told_and_has_the_head_beside_the_last_epoch(file: str) -> None:
    with serving(STOPPED) as url, announced(loaded(file), url):
        result = frazil("status", file, "--json")
    (table,) = told(result)
    assert result.exit_code == 3
    assert (table["told_by"], table["state"], table["error"]) == ("daemon", "STOPPED", STOPPED.error)
    assert (table["snapshot_id"], table["epoch_snapshot_id"]) == (9, 7)
    assert (table["epochs"], table["rows"], table["table_rows"], table["quarantined"]) == (3, 1200, 1000, 2)
    assert (table["resolved"], table["lag_seconds"]) == (RESOLVED, 4.2)


def test_without_a_daemon_the_tables_tell_and_that_is_said(file: str) -> None:
    result = frazil("status", file)
    assert result.exit_code == 0
    assert "no daemon of shop was found from here: this is what its tables tell" in result.stderr
    assert "epochs" not in result.stdout, "tables do not tell what a run has written"
    assert [table["told_by"] for table in told(frazil("status", file, "--json"))] == ["tables"]


def test_a_daemon_that_serves_nothing_is_said_to_and_the_tables_tell(file: str) -> None:
    with announced(loaded(file), ""):
        result = frazil("status", file)
    assert result.exit_code == 0
    assert "tells nothing (it serves nothing over HTTP (http.port is 0)): this is what the tables tell" in result.stderr
    assert "STEADY_STATE" in result.stdout


def test_a_daemon_that_is_starting_is_said_to_and_the_tables_tell(file: str) -> None:
    with serving() as url, announced(loaded(file), url):
        result = frazil("status", file)
    assert "tells nothing (the pipeline is starting)" in result.stderr
    assert "STEADY_STATE" in result.stdout


def test_a_daemon_is_found_by_the_http_block_where_there_is_no_note_of_it(file: str) -> None:
    with serving(STOPPED) as url:
        port = url.rpartition(":")[2]
        result = frazil("status", file, "--set", f"http.port={port}", "--set", "http.host=0.0.0.0")
    assert f"told by the daemon at {url}" in result.stderr
    assert result.exit_code == 3


def test_whoever_else_answers_at_the_port_is_not_taken_for_the_daemon(file: str) -> None:
    with serving(STOPPED, pipeline="other") as url:
        result = frazil("status", file, "--set", f"http.port={url.rpartition(':')[2]}")
    assert "no daemon of shop was found from here" in result.stderr
    assert result.exit_code == 0


def test_a_proxy_of_the_environment_is_not_asked(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with serving(STOPPED) as url, announced(loaded(file), url):
        assert frazil("status", file).exit_code == 3


def test_a_rolled_back_table_has_an_exit_code_also_without_a_daemon(file: str) -> None:
    stopped = replace(status_of(), state=TableState.STOPPED, error="it was rolled back", hint="rewind", exit_code=5)
    result = frazil("status", file, pipeline=FakePipeline(statuses=[status_of("a.b"), stopped]))
    assert result.exit_code == 5
    assert "it was rolled back" in result.stdout


def test_a_run_once_beside_a_daemon_is_refused_before_anything_is_opened(file: str) -> None:
    pipeline = FakePipeline()
    with announced(loaded(file), ""):
        result = frazil("run", file, "--once", pipeline=pipeline)
    assert result.exit_code == 2
    assert pipeline.calls == []
    assert f"the daemon on this machine (process {os.getpid()}) publishes the pipeline shop" in result.stderr
    assert "--take-over" in result.stderr


def test_a_run_once_takes_over_where_that_is_asked_for(file: str) -> None:
    pipeline = FakePipeline()
    with announced(loaded(file), ""):
        result = frazil("run", file, "--once", "--take-over", pipeline=pipeline)
    assert result.exit_code == 0
    assert pipeline.calls == ["open", "run once=True take_over", "close"]


def test_a_daemon_takes_over_by_itself(file: str) -> None:
    pipeline = FakePipeline()
    with announced(loaded(file), ""):
        assert frazil("run", file, pipeline=pipeline).exit_code == 0
    assert pipeline.calls == ["open", "run once=False", "close"]
    refused = frazil("run", file, "--take-over")
    assert refused.exit_code == 2
    assert "--take-over is for --once" in refused.stderr


def test_a_run_once_is_refused_beside_a_daemon_that_answers_at_the_http_block(file: str) -> None:
    with serving(STOPPED) as url:
        result = frazil("run", file, "--once", "--set", f"http.port={url.rpartition(':')[2]}")
    assert result.exit_code == 2
    assert f"the daemon at {url} publishes the pipeline shop" in result.stderr


def test_a_daemon_that_ended_without_a_word_is_not_taken_for_one(file: str, tmp_path: Path) -> None:
    """Also if its number is another process's by now: here it is that of this very process's parent."""
    config = loaded(file)
    with announced(config, ""):
        (note,) = (tmp_path / "home" / "run").glob("shop-*.json")
        left_behind = note.read_text()
    note.write_text(left_behind.replace(str(os.getpid()), str(os.getppid())))
    assert find(config) is None
    assert frazil("run", file, "--once").exit_code == 0


def test_a_killed_daemon_is_gone_at_once(file: str) -> None:
    code = (
        "import sys, time; from frazil.config.load import load_config; from frazil.app.pidfile import announced\n"
        "with announced(load_config(sys.argv[1]), ''):\n    print('here', flush=True)\n    time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, file], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    found = ask(loaded(file))
    assert found is not None
    assert str(process.pid) in found.described
    process.kill()
    process.communicate()
    assert ask(loaded(file)) is None


def test_a_note_of_a_newer_daemon_stays_when_an_older_one_ends(file: str) -> None:
    config = loaded(file)
    older = announced(config, "http://127.0.0.1:1")
    older.__enter__()
    with announced(config, "http://127.0.0.1:2"):
        older.__exit__(None, None, None)
        found = find(config)
        assert found is not None
        assert found.url == "http://127.0.0.1:2"
    assert find(config) is None


def test_pipelines_of_one_name_in_two_catalogs_are_two(file: str) -> None:
    with announced(loaded(file), ""):
        assert find(load_config(file, ["catalog.warehouse=./other"])) is None
        assert find(load_config(file, ["heartbeat=1h"])) is not None


def test_help_says_what_can_be_told_of_daemons() -> None:
    assert "Others cannot be seen from here" in " ".join(CliRunner().invoke(cli, ["run", "--help"]).output.split())
    assert "STOPPED or NEEDS_RESYNC" in " ".join(CliRunner().invoke(cli, ["status", "--help"]).output.split())
