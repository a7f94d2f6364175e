"""Neither workers nor coordinator list or read a data object: all that manifests say travels in the messages.

garbage     every file is overwritten the moment its writer closes it; later epochs must not notice
audit       a hook in the driver and in every Python worker writes down what they open and list
strace      the same for native code and the JVM, where strace is allowed
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from failure_stage import Stage, a_stage, assert_whole
from pyspark.sql import SparkSession

from frazil.ingest.loop.components import Components
from frazil.model.files import FileClosed
from frazil.model.write import DeleteMode

pytestmark = pytest.mark.spark

BOTH_MODES = {"orders": DeleteMode.EQUALITY, "products": DeleteMode.APPEND_ONLY}

AUDIT_HOOK = """
import json, os, sys
_log = os.open(os.environ["AUDIT_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
_below = os.environ["AUDIT_BELOW"]
def _heard(event, args):
    if event in ("open", "os.listdir", "os.scandir", "shutil.copyfile", "os.walk", "glob.glob"):
        path = args[0]
        text = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else str(path)
        if _below in text:
            flags = args[2] if event == "open" else 0
            line = {"pid": os.getpid(), "event": event, "path": text, "flags": flags}
            os.write(_log, (json.dumps(line) + "\\n").encode())
sys.addaudithook(_heard)
"""


class Spoiler:
    """Overwrites every file with as many other bytes as soon as it is reported, and can put them all right again."""

    def __init__(self) -> None:
        self.kept: dict[Path, bytes] = {}

    def between(self, parts: Components) -> Components:
        def write(*arguments: Any, **named: Any) -> Any:
            messages, reports = parts.executors.write(*arguments, **named)
            for message in messages:
                if isinstance(message, FileClosed):
                    self.spoil(Path(message.path.removeprefix("file:")))
            return messages, reports

        return replace(parts, executors=replace(parts.executors, write=write))

    def spoil(self, path: Path) -> None:
        content = path.read_bytes()
        self.kept[path] = content
        path.write_bytes(b"\xee" * len(content))

    def put_right(self) -> None:
        for path, content in self.kept.items():
            path.write_bytes(content)


def test_epochs_publish_although_every_data_file_is_garbage(tmp_path: Path, spark: SparkSession) -> None:
    """Files are spoilt between the writing job and the commit, and stay so over a restart."""
    stage, spoiler = a_stage(tmp_path, BOTH_MODES), Spoiler()
    stage.trade(2)
    stage.drain(spark, spoiler.between)
    stage.trade(2)
    stage.drain(spark, spoiler.between)
    assert len(spoiler.kept) > 8
    for table in stage.tables:
        with pytest.raises(Exception, match=r"(?i)parquet"):
            spark.sql(f"SELECT * FROM {stage.sql(table)}").collect()
    spoiler.put_right()
    assert_whole(stage, spark, moments=3)


@dataclass(frozen=True)
class Watched:
    """What a run did below the folders of data files."""

    stage: Stage
    driver: int
    heard: Sequence[dict[str, Any]]
    trace: Path | None


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Watched]:
    """A run over several windows on tables that hold data already, in a process of its own."""
    directory = tmp_path_factory.mktemp("watched")
    stage = a_stage(directory, BOTH_MODES)
    stage.trade(2)
    stage.drain(spark)
    stage.write_config(limits={"epochs_per_job": 2, "small_epoch_bytes": 0})
    stage.trade(4)
    hooks, log, trace = directory / "hooks", directory / "audit.jsonl", directory / "trace"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(AUDIT_HOOK)
    under = ["strace", "-f", "--seccomp-bpf", "-qq", "-y", "-e", "trace=open,openat,getdents64", "-o", str(trace)]
    process = stage.start(
        *("-m", "frazil.cli.main", "run", str(stage.config), "--once"),
        under=under if can_trace() else (),
        PYTHONPATH=os.pathsep.join([str(hooks), os.environ.get("PYTHONPATH", "")]),
        AUDIT_LOG=str(log),
        AUDIT_BELOW="/data/",
    )
    assert stage.finished(process) == 0, stage.said(process)
    heard = [json.loads(line) for line in log.read_text().splitlines()]
    yield Watched(stage, process.pid, heard, trace if can_trace() else None)
    stage.end_all()


def test_no_python_process_opens_or_lists_data_files(watched: Watched, spark: SparkSession) -> None:
    data = [event for event in watched.heard if str(watched.stage.warehouse) in event["path"]]
    written = [event for event in data if event["event"] == "open" and event["flags"] & os.O_CREAT]
    assert len({event["path"] for event in written}) >= 8, "the hook was not there where files are written"
    assert all(event["flags"] & os.O_EXCL for event in written)
    # Opening a folder by itself is how its entry is synced to the disk; listing it is another event.
    read = [event for event in data if event not in written and not event["flags"] & os.O_DIRECTORY]
    assert read == []
    assert_whole(watched.stage, spark)


def test_no_native_code_and_no_jvm_opens_or_lists_data_files(watched: Watched) -> None:
    if watched.trace is None:
        pytest.skip("strace may not be used here")
    opened, listed = traced(watched.trace, str(watched.stage.warehouse))
    made = [path for path, flags in opened if "O_CREAT" in flags]
    assert len([path for path in made if path.endswith(".parquet")]) >= 9, "the workers' files and the fence's row"
    assert [path for path, flags in opened if "O_CREAT" not in flags and "O_DIRECTORY" not in flags] == []
    assert listed == []


def can_trace() -> bool:
    found = shutil.which("strace")
    return bool(found) and subprocess.run([str(found), "-qq", "-o", "/dev/null", "true"], check=False).returncode == 0


_OPEN = re.compile(r'open(?:at)?\([^"]*"([^"]+)", ([A-Z_|0-9x]+)')
_LIST = re.compile(r"getdents64\(\d+<([^>]+)>")


def traced(trace: Path, warehouse: str) -> tuple[list[tuple[str, str]], list[str]]:
    """What was opened, with its flags, and what was listed, below a folder `data` of the warehouse."""
    opened, listed = [], []
    with trace.open(errors="replace") as lines:
        for line in lines:
            if warehouse in line:
                if found := _OPEN.search(line):
                    opened.append((found[1], found[2]))
                elif found := _LIST.search(line):
                    listed.append(found[1])
    inside = re.compile(re.escape(warehouse) + r"/.*/data(/|$)")
    return [(p, f) for p, f in opened if inside.match(p)], [p for p in listed if inside.match(p)]
