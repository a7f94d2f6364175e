"""A source that lives outside the package, and that an entry point alone makes known, runs through the CLI."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.spark

HOME = Path(__file__).parents[1] / "toy"
# Several commands in one process, so that they share one Java: prints the exit code and output of each. `read` is no
# command: it is what the Python API reads of a table at a moment.
COMMANDS = """
import json, sys
from click.testing import CliRunner
from frazil import Pipeline
from frazil.cli.main import cli
def read(config, table, moment):
    with Pipeline.from_file(config) as pipeline:
        return sorted(list(row) for row in pipeline.read(table, moment).collect())
for arguments in json.loads(sys.argv[1]):
    if arguments[0] == "read":
        print("TOLD", json.dumps([0, json.dumps(read(*arguments[1:])), ""]))
        continue
    result = CliRunner().invoke(cli, arguments)
    print("TOLD", json.dumps([result.exit_code, result.stdout, result.stderr]))
"""


@dataclass(frozen=True)
class Told:
    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Toy:
    """A folder with a journal, and the toy source installed for commands that run there."""

    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "toy.yaml"

    def frazil(self, *commands: Sequence[str]) -> list[Told]:
        path = [str(self.folder / "site"), str(HOME), *filter(None, [os.environ.get("PYTHONPATH")])]
        done = subprocess.run(
            [sys.executable, "-c", COMMANDS, json.dumps([[str(word) for word in words] for words in commands])],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path), "FRAZIL_HOME": str(self.folder / "home")},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        found = [
            Told(*json.loads(line.removeprefix("TOLD "))) for line in done.stdout.splitlines() if line[:5] == "TOLD "
        ]
        assert len(found) == len(commands), done.stderr[-4000:]
        return found

    def journal(self, *lines: Mapping[str, Any]) -> None:
        with (self.folder / "journal.jsonl").open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)


def put(tick: int, key: int, **row: Any) -> dict[str, Any]:
    return {"tick": tick, "table": "shop.things", "op": "put", "id": key, "row": row}


def change(tick: int, key: int, **row: Any) -> dict[str, Any]:
    return {"tick": tick, "table": "shop.things", "op": "set", "id": key, "row": row}


def resolved(tick: int) -> dict[str, Any]:
    return {"tick": tick, "op": "resolved"}


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    installed = tmp_path / "site" / "toy_source-1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-source\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[frazil.sources]\ntoy = toy_source.kind:KIND\n")
    return Toy(tmp_path)


def test_a_source_from_outside_is_written_checked_run_and_told(toy: Toy) -> None:
    (written,) = toy.frazil(["init", "--source", "toy", "-o", toy.config])
    assert written.code == 0, written
    config = yaml.safe_load(toy.config.read_text())
    assert (config["source"]["type"], config["source"]["journal"]) == ("toy", "./journal.jsonl")

    toy.journal(put(1, 1, name="a", note="x"), put(1, 2, name="b"), resolved(1))
    toy.journal(put(2, 1, name="c"), {"tick": 2, "table": "shop.things", "op": "del", "id": 2}, resolved(2))
    checked, ran, status, epochs, read = toy.frazil(
        ["check", toy.config],
        ["run", "--once", toy.config],
        ["status", toy.config, "--json"],
        ["epochs", toy.config, "analytics.orders", "--json"],
        ["as-of", toy.config, "analytics.orders", "tick:1"],
    )
    assert checked.code == 0, checked
    assert "shop.things" in checked.stdout
    assert ran.code == 0, ran
    (table,) = json.loads(status.stdout)
    assert (table["resolved"], table["table_rows"]) == ("tick:2", 1)
    assert [epoch["resolved"] for epoch in json.loads(epochs.stdout)] == ["tick:2", "tick:1"]
    assert read.code == 0, read
    assert "analytics.orders" in read.stdout


def test_cells_that_were_not_sent_are_what_they_were(toy: Toy) -> None:
    """Within the epoch, and in the row that was published before."""
    toy.journal(put(1, 1, name="a", note="x"), put(1, 2, name="b", note="y"), put(1, 3, name="c"), resolved(1))
    toy.journal(change(2, 1, name="d"), put(3, 4, name="e", note="z"), change(4, 4, note="w"), change(5, 4, name="f"))
    toy.journal(
        {"tick": 4, "table": "shop.things", "op": "del", "id": 3}, change(5, 2), change(5, 1, note=None), resolved(6)
    )
    toy.frazil(["init", "--source", "toy", "-o", toy.config])
    ran, before, after = toy.frazil(
        ["run", "--once", toy.config],
        ["read", toy.config, "analytics.orders", "tick:1"],
        ["read", toy.config, "analytics.orders", "tick:6"],
    )
    assert ran.code == 0, ran
    assert json.loads(before.stdout) == [[1, "a", "x"], [2, "b", "y"], [3, "c", None]]
    assert json.loads(after.stdout) == [[1, "d", None], [2, "b", "y"], [4, "f", "w"]]


def test_what_its_block_says_wrongly_is_told_with_the_line(toy: Toy) -> None:
    toy.config.write_text(
        "pipeline: shop\nsource:\n  type: toy\n  jurnal: x\n  journal: y\n"
        "catalog: {type: builtin, warehouse: w}\ntables: [{source: shop.things, key: [name]}]\n"
    )
    (misspelt,) = toy.frazil(["check", toy.config])
    assert misspelt.code == 2
    assert "line 4: source.jurnal: unknown key; did you mean 'journal'?" in misspelt.stderr
    toy.config.write_text(toy.config.read_text().replace("  jurnal: x\n", ""))
    (wrong,) = toy.frazil(["check", toy.config])
    assert "tables[0].key: a toy's key is its id" in wrong.stderr


def test_a_kind_that_nobody_installed_is_refused_with_those_there_are(tmp_path: Path) -> None:
    config = Toy(tmp_path).config
    config.write_text(
        "pipeline: shop\nsource: {type: toy, journal: x}\ncatalog: {type: builtin, warehouse: w}\n"
        "tables: [{source: shop.things}]\n"
    )
    (refused,) = Toy(tmp_path).frazil(["check", config])
    assert refused.code == 2
    assert "source.type: 'toy' is not available in this version; use cockroachdb or mongodb" in refused.stderr
