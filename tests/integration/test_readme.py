"""The README and the architecture page tell the truth: what they show is loaded, run or looked for."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from feed_builders import Feed, at, delete, upsert

from frazil.cli.main import cli
from frazil.config.load import load_config, parse_config
from frazil.config.pipeline_config import PipelineConfig
from frazil.iceberg.jvm.jars import ICEBERG, SQLITE, fetch
from frazil.iceberg.jvm.java import find_java, launcher_home

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"(?:^|`)frazil +([a-z-]+)\b", re.MULTILINE)
_TOP = re.compile(r"^(\w+):", re.MULTILINE)
_REST = {
    "pipeline": "pipeline: shop\n",
    "source": "source: {type: cockroachdb, feed: ./feed}\n",
    "catalog": "catalog: {type: builtin, warehouse: ./warehouse}\n",
    "tables": "tables: [{source: orders}]\n",
}
"""What a fragment of a configuration may leave out."""
_NEEDED = re.compile(r"\$\{(\w+)\}")
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)[^)]*\)")
_PATH = re.compile(r"`((?:src/frazil/|tests/|docs/)?[a-z_]+/[a-z_./]*)`")
USER = "00000000-0000-4000-8000-00000000000{}"


def blocks(page: Path, language: str) -> list[str]:
    return [body for kind, body in _FENCE.findall(page.read_text(encoding="utf-8")) if kind == language]


def lines(page: Path, program: str) -> list[str]:
    """The commands of a page's shell blocks that call this program."""
    return [line for body in blocks(page, "sh") for line in body.splitlines() if line.startswith(f"{program} ")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_configuration_shown_loads(page: Path) -> None:
    for body in blocks(page, "yaml"):
        given = set(_TOP.findall(body))
        if given and given <= set(PipelineConfig.model_fields):
            given |= {"catalog"} if "catalogs" in given else set()
            whole = body + "".join(text for key, text in _REST.items() if key not in given)
            environ = dict.fromkeys(_NEEDED.findall(body), "given")
            parse_config(whole, name=page.name, base=ROOT, environ=environ)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_shown_exists(page: Path) -> None:
    named = set(_COMMAND.findall(page.read_text(encoding="utf-8")))
    assert named <= set(cli.commands), f"{page.name} names commands that do not exist"
    makefile = (ROOT / "Makefile").read_text()
    for line in lines(page, "make"):
        target = line.split()[1]
        assert re.search(rf"^{target}:.*## ", makefile, re.MULTILINE), f"{page.name}: make {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_named_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link in _LINK.findall(text):
        assert (page.parent / link).exists(), f"{page.name} links to {link}"
    for path in _PATH.findall(text):
        places = (ROOT / path, ROOT / "src" / "frazil" / path)
        assert any(place.exists() for place in places), f"{page.name} names {path}"


def test_make_demo_runs_the_command_that_the_walk_takes_apart() -> None:
    assert re.search(r"^demo:.*\n\t@?\$\(BIN\)/frazil demo$", (ROOT / "Makefile").read_text(), re.MULTILINE)


def write_feed(root: Path) -> None:
    """What the changefeed of the README would write for two orders and a customer."""
    feed = Feed(root)

    def order(number: int, second: int, total: float) -> str:
        key = USER.format(number)
        return upsert([key], at(second), id=key, customer_id=1, total=total, details={"gift": True},
                      placed_at="2024-01-02T03:04:05.678Z")  # fmt: skip

    feed.data(at(1), [order(1, 1, 22.3), order(2, 1, 5)], topic="orders")
    feed.data(at(1), [upsert([1], at(1), id=1, name="Ada")], topic="customers")
    feed.resolved(at(2))
    feed.data(at(3), [order(1, 3, 23.3), delete([USER.format(2)], at(3))], topic="orders")
    feed.resolved(at(4))


def stream_as_printed(page: Path, directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The page's example of a streaming query, in a session that has Iceberg's runtime jar and nothing else."""
    (block,) = [body for body in blocks(page, "python") if "writeStream" in body]
    directory.mkdir(exist_ok=True)
    (directory / "block.py").write_text(block)
    script = Path(__file__).with_name("readme_stream.py")
    iceberg = fetch(ICEBERG.coordinate, ICEBERG.sha256)
    java = {
        "JAVA_HOME": str(launcher_home(find_java())),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    return subprocess.run(
        [sys.executable, str(script), "block.py", str(iceberg)],
        cwd=directory,
        env={**os.environ, **java, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.spark
@pytest.mark.parametrize("page", [README, ROOT / "docs" / "upsert_stream.md"], ids=lambda page: page.name)
def test_a_streaming_query_runs_as_printed_in_a_session_of_the_readers_own(page: Path, tmp_path: Path) -> None:
    done = stream_as_printed(page, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [{"id": 1, "name": "new"}]


@pytest.mark.spark
def test_a_session_that_cannot_get_a_jar_is_told_which_one_and_how(tmp_path: Path) -> None:
    nowhere = {"FRAZIL_HOME": str(tmp_path / "empty"), "FRAZIL_MAVEN_REPOSITORY": (tmp_path / "no").as_uri()}
    done = stream_as_printed(README, tmp_path / "work", **nowhere)
    assert done.returncode != 0
    assert f"the running Spark session does not have {SQLITE.coordinate}" in done.stderr
    assert f"spark.jars.packages={ICEBERG.coordinate},{SQLITE.coordinate}" in done.stderr
    assert "bundle" not in done.stderr


@pytest.mark.spark
@pytest.mark.slow
def test_the_readme_can_be_followed_from_top_to_bottom(tmp_path: Path) -> None:
    (config,) = [body for body in blocks(README, "yaml") if "pipeline: shop" in body]
    feed = re.search(r"feed: (\S+)", config)
    assert feed is not None
    (tmp_path / "shop.yaml").write_text(config.replace(feed[1], "./feed"))
    load_config(tmp_path / "shop.yaml")
    write_feed(tmp_path / "feed")
    commands, python = lines(README, "frazil"), blocks(README, "python")
    assert [line.split()[1] for line in commands] == ["check", "run", "status", "epochs", "as-of", "epochs"]
    assert len(python) == 3
    steps = [["sh", line] for line in commands] + [["python", body] for body in python] + [["demo", ""]]
    (tmp_path / "steps.json").write_text(json.dumps(steps))
    walk = Path(__file__).with_name("readme_walk.py")
    call = [sys.executable, str(walk), "steps.json"]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [step["exit_code"] for step in found] == [0] * len(steps), found
    check, run, status, epochs, as_of, consistent, _, from_python, streamed, demo = (step["printed"] for step in found)
    assert "analytics.orders: create; key: id (from configuration)" in check
    assert "4 epochs published to 3 tables" in run
    assert status.count("STEADY_STATE") == 3
    assert "key index: " in status
    assert at(2).text in epochs
    assert at(4).text in epochs
    assert "VERSION AS OF" in as_of
    assert at(2).text in consistent
    assert f"analytics.orders {at(4).text}" in from_python
    assert json.loads(streamed) == [{"id": 1, "name": "new"}]
    assert json.loads(demo) == {"moments": 3, "wrong": []}
