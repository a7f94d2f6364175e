"""Server processes of tests: started, waited for, and ended for sure.

running(command, log, ready=...) --Popen--> ready() again and again --> the block --> terminate, wait, kill
                                     `--ended, or not ready in time--> RuntimeError with the end of its log
"""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_END_SECONDS = 30


def free_port() -> int:
    """A port of loopback that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def answers(uri: str) -> bool:
    """Whether HTTP is spoken there; a refusal is an answer too."""
    try:
        with urllib.request.urlopen(uri, timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def succeeds(uri: str) -> bool:
    """Whether a page is given there."""
    try:
        with urllib.request.urlopen(uri, timeout=5):
            return True
    except OSError:
        return False


def listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            return True
    except OSError:
        return False


@contextmanager
def running(
    command: Sequence[str],
    log: Path,
    *,
    ready: Callable[[], bool],
    seconds: float = 60,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """The process, with its output added to `log`, once it is ready. Raises RuntimeError with the end of its log if it
    ends before, or needs longer than `seconds`."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, env=environment, cwd=directory, stdout=output, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + seconds
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{Path(command[0]).name} did not start:\n{log.read_text()[-3000:]}")
            time.sleep(0.1)
        yield process
    finally:
        process.terminate()
        end(process)


def end(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """Waits for a process that was told to end, and kills it if it does not."""
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_END_SECONDS)
