"""The JVM is killed or hangs under a running process, which notices, starts another one and goes on (H56)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark
SCRIPT = Path(__file__).with_name("lost_jvm.py")
SECONDS = 300


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process of its own went through; three JVMs of 512 MB, one after the other."""
    command = [sys.executable, str(SCRIPT), str(tmp_path_factory.mktemp("warehouse"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "stderr": done.stderr}


def test_a_killed_jvm_is_noticed_and_told_of_once(lived: dict[str, Any]) -> None:
    started, itself = lived["pid"]
    assert started == itself, "the process that PySpark started is the JVM"
    assert lived["told of the kill"] == f"the JVM (process {started}) ended with signal 9"
    assert lived["asked of the kill"] == lived["told of the kill"]
    assert not lived["told again"]


def test_a_busy_jvm_that_answers_is_left_alone(lived: dict[str, Any]) -> None:
    assert lived["lost while busy"] is None
    assert "told nobody" not in lived


@pytest.mark.parametrize("when", ["questions to a dead JVM", "questions after it was abandoned"])
def test_questions_to_a_lost_jvm_may_be_asked_again(lived: dict[str, Any], when: str) -> None:
    assert set(lived[when].values()) == {"CatalogUnavailable"}, lived[when]


def test_a_commit_to_a_lost_jvm_has_an_unknown_outcome(lived: dict[str, Any]) -> None:
    assert lived["commit to a dead JVM"] == "Unknown"
    assert lived["checkpoint to a dead JVM"] is False


def test_the_same_process_goes_on_in_another_jvm(lived: dict[str, Any]) -> None:
    assert lived["abandoned"] == [True, True, 0]
    assert lived["another application"]
    assert len(lived["caches after"]) == 1, "nothing of the old session is taken for the new one's"
    assert [lived[f"epoch {resolved}"] for resolved in (10, 20, 30)] == ["Accepted"] * 3
    assert (lived["works after a kill"], lived["works after a hang"]) == (10, 10)
    assert lived["checkpoints"] is True


def test_a_hung_jvm_is_killed_so_that_blocked_calls_return(lived: dict[str, Any]) -> None:
    assert lived["blocked"] == [True, True, True]
    assert "did not answer" in lived["told of the hang"]
    assert "was killed" in lived["told of the hang"]
    assert lived["hung process is gone"]
    assert lived["commit in a hung JVM"] == "Unknown"
    assert lived["question in a hung JVM"] == "CatalogUnavailable"
    assert lived["a job in a hung JVM failed"] != "int"
    assert {10, 20, 30} <= set(lived["rows"]) <= {10, 20, 25, 30}, "of the commit in doubt, all or nothing"


def test_a_jvm_that_somebody_else_started_is_told_of_and_never_killed(lived: dict[str, Any]) -> None:
    assert "did not answer" in lived["told of somebody's hang"]
    assert "killed" not in lived["told of somebody's hang"]
    assert lived["somebody's process"] is None, "it runs"


def test_a_jvm_that_hangs_while_it_is_stopped_is_killed(lived: dict[str, Any]) -> None:
    assert lived["stopped"] == [True, True]


def test_a_lost_jvm_leaves_neither_files_nor_tracebacks(lived: dict[str, Any]) -> None:
    assert lived["left on disk"] == [True, False]
    assert "Traceback" not in lived["stderr"], lived["stderr"]
