"""Walks through the README in a process of its own, as a reader with an empty directory would.

    python readme_walk.py STEPS     STEPS: a JSON file of [kind, text] pairs, in the order of the page

Commands and Python blocks run in the current directory, in one process so that Java starts once. Each step prints one
JSON line: what it was, its exit code, what it printed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import frazil
from frazil.app.pipeline import Pipeline
from frazil.cli.main import cli
from frazil.demo.run import prepare, prove, trade
from frazil.iceberg.jvm.session import open_session


def command(text: str) -> tuple[int, str]:
    """A line `frazil ...`. The daemon is told to stop at the newest resolved timestamp."""
    arguments = shlex.split(text, comments=True)[1:]
    if arguments[0] == "run":
        arguments.append("--once")
    result = CliRunner().invoke(cli, arguments)
    return result.exit_code, result.output


def block(text: str) -> tuple[int, str]:
    names: dict[str, Any] = {"frazil": frazil}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if "writeStream" in text:
            _stream(text, names)
        else:
            exec(compile(text, "README.md", "exec"), names)
    return 0, printed.getvalue()


def _stream(text: str, names: dict[str, Any]) -> None:
    """`changes` is a stream of JSON files: two versions of one key and a deleted one. They go to a table of their own,
    since the page's other blocks have filled theirs."""
    os.makedirs("in")
    rows = [{"id": 1, "version": 1, "op": "c", "name": "old"}, {"id": 1, "version": 2, "op": "u", "name": "new"},
            {"id": 2, "version": 3, "op": "d", "name": None}]  # fmt: skip
    Path("in/0.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    session = open_session("readme")
    names["changes"] = session.readStream.schema("id long, version long, op string, name string").json("in")
    exec(compile(text.replace('"analytics.orders"', '"analytics.streamed"'), "README.md", "exec"), names)
    for query in session.streams.active:
        query.processAllAvailable()
        query.stop()
    catalog = SqlCatalog("frazil", uri="sqlite:///warehouse/catalog.db", warehouse="warehouse")
    print(
        json.dumps(catalog.load_table("analytics.streamed").scan(selected_fields=("id", "name")).to_arrow().to_pylist())
    )
    session.stop()


def demo(_: str) -> tuple[int, str]:
    """The parts of `frazil demo`, without its pauses."""
    config, shop = prepare(Path("demo-out"))
    trade(shop, rounds=4)
    with Pipeline.from_file(config) as pipeline:
        pipeline.run(once=True)
        moments = prove(pipeline, shop)
    wrong = [text for moment in moments for text in moment.differences]
    return len(wrong), json.dumps({"moments": len(moments), "wrong": wrong[:5]})


def main() -> None:
    kinds = {"sh": command, "python": block, "demo": demo}
    for kind, text in json.loads(Path(sys.argv[1]).read_text()):
        code, printed = kinds[kind](text)
        print(json.dumps({"step": text, "exit_code": code, "printed": printed}), flush=True)
        running = SparkSession.getActiveSession()
        assert running is None, f"{text!r} left a Spark session behind"


if __name__ == "__main__":
    main()
