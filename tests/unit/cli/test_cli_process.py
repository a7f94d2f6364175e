"""What only a process of its own can show: signals, and who may write to stdout."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli_builders import config_file

_PROGRAM = """
import os, signal, sys, threading
sys.path.insert(0, {here!r})
from cli_builders import FakePipeline
from frazil.cli.main import cli
from frazil.cli.seam import Session

def meddle():
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # as starting Spark does with a handler of its own

def work(stop):
    os.write(1, b"a JVM speaks\\n")
    print("running", file=sys.stderr, flush=True)
    stop.wait()
    print("finishing", file=sys.stderr, flush=True)
    if {stubborn!r}:
        threading.Event().wait()

pipeline = FakePipeline(on_open=meddle, while_running=work)
cli.main(["run", {config!r}, "--json"], obj=Session(open_pipeline=pipeline.open))
"""


@contextmanager
def running(config: str, *, stubborn: bool = False) -> Iterator[subprocess.Popen[str]]:
    program = _PROGRAM.format(here=str(Path(__file__).parent), config=config, stubborn=stubborn)
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        read_until(process, "running")
        yield process
    finally:
        process.kill()
        process.communicate()


def read_until(process: subprocess.Popen[str], word: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if word in line:
            return
    raise AssertionError(f"the process ended before saying {word!r}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_finishes_the_work_and_exits_with_0(tmp_path: Path, number: signal.Signals) -> None:
    with running(config_file(tmp_path)) as process:
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "finishing" in err
    assert json.loads(out)[0]["epochs"] == 3


def test_the_second_signal_exits_at_once(tmp_path: Path) -> None:
    with running(config_file(tmp_path), stubborn=True) as process:
        process.send_signal(signal.SIGTERM)
        read_until(process, "finishing")
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert out == ""


def test_json_is_alone_on_stdout_whoever_writes_there(tmp_path: Path) -> None:
    with running(config_file(tmp_path)) as process:
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    assert isinstance(json.loads(out), list)
    assert "a JVM speaks" not in out


MID_WAIT = """
import os, signal, threading
from frazil.cli.commands.run import StopSignals

stop, reload = threading.Event(), threading.Event()
with StopSignals(stop, reload):
    for event, number in ((reload, signal.SIGHUP), (stop, signal.SIGTERM)):
        with event._cond:  # as `wait` holds it for a moment before it sleeps
            os.kill(os.getpid(), number)
        assert event.wait(30)
print("done")
"""


def test_a_signal_that_meets_the_main_thread_as_it_begins_to_wait_does_not_hang_it() -> None:
    done = subprocess.run([sys.executable, "-c", MID_WAIT], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "done\n", done.stderr
