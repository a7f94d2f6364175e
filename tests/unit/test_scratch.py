"""The temporary files of a process that was killed go with the next start; those of nobody else do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from frazil.iceberg.jvm.session import local_directory_told
from frazil.paths import PREFIX

_USES = """
import sys
from frazil.paths import scratch
folder = scratch("local")
(folder / "spilled").write_text("rows")
(folder.parent / "library.so").write_text("code")
print(folder.parent, flush=True)
sys.stdin.read()
"""

Start = Callable[[], tuple[subprocess.Popen[str], Path]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Processes that have a scratch folder and wait for the end of their input; they are ended with the test."""
    started: list[subprocess.Popen[str]] = []

    def begin() -> tuple[subprocess.Popen[str], Path]:
        process = subprocess.Popen(
            [sys.executable, "-c", _USES],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        started.append(process)
        assert process.stdout is not None
        return process, Path(process.stdout.readline().strip())

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def end(process: subprocess.Popen[str]) -> None:
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_a_process_that_ends_leaves_nothing(start: Start, tmp_path: Path) -> None:
    process, folder = start()
    assert (folder / "local" / "spilled").exists()
    end(process)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_goes_with_the_next_start(start: Start, tmp_path: Path) -> None:
    killed, left = start()
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait(30)
    assert (left / "local" / "spilled").exists()
    process, own = start()
    assert list(tmp_path.iterdir()) == [own]
    end(process)


def test_what_belongs_to_a_process_that_lives_stays(start: Start, tmp_path: Path) -> None:
    living, its_own = start()
    end(start()[0])
    assert (its_own / "local" / "spilled").read_text() == "rows"
    assert living.poll() is None
    end(living)
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_known_to_be_ours_stays(start: Start, tmp_path: Path) -> None:
    """A folder without a lock may be one that is being made; a link leads to what somebody else has."""
    killed, left = start()
    elsewhere = tmp_path / "elsewhere"
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait(30)
    left.rename(elsewhere)
    (tmp_path / f"{PREFIX}linked").symlink_to(elsewhere)
    (tmp_path / f"{PREFIX}begun").mkdir()
    (tmp_path / f"{PREFIX}begun" / "tmpabc").write_text("")
    (tmp_path / "frazil-spark-old").mkdir()
    end(start()[0])
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"elsewhere", f"{PREFIX}linked", f"{PREFIX}begun", "frazil-spark-old"}
    assert (elsewhere / "local" / "spilled").exists()


@pytest.mark.parametrize(
    ("conf", "told"),
    [
        ({"spark.master": "local[2]"}, True),
        ({"spark.master": "local[2]", "spark.local.dir": "/large/disk"}, False),
        ({"spark.master": "yarn"}, False),
    ],
)
def test_spark_keeps_its_files_with_ours_unless_somebody_chose_another_place(
    conf: dict[str, str], told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark takes the folder in its environment even if its settings name another one."""
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    with local_directory_told(conf):
        assert ("SPARK_LOCAL_DIRS" in os.environ) == told
    assert "SPARK_LOCAL_DIRS" not in os.environ
