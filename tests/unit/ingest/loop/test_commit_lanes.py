"""The line that commits windows behind the reader's back."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

from frazil.ingest.loop.commit_lanes import CommitLanes, Late
from frazil.threads import SystemThreads


class Recorder:
    """Publishes by writing down; waits at a gate and fails where told."""

    def __init__(
        self, failing: frozenset[str] = frozenset(), gate: threading.Event | None = None, gated: str = ""
    ) -> None:
        self.published: list[str] = []
        self._failing, self._gate, self._gated = failing, gate, gated

    def __call__(self, epoch_commit: Any) -> None:
        if self._gate is not None and epoch_commit.startswith(self._gated):
            self._gate.wait(10)
        if epoch_commit in self._failing:
            raise RuntimeError(f"{epoch_commit} failed")
        self.published.append(epoch_commit)


def line(recorder: Recorder, windows: int = 2) -> CommitLanes:
    return CommitLanes(recorder, windows, SystemThreads())


def window(**lanes: list[str]) -> Any:
    return lanes


def test_epochs_of_one_table_are_committed_in_order() -> None:
    recorder = Recorder()
    commits = line(recorder, windows=3)
    for number in range(20):
        commits.submit(window(a=[f"a{2 * number}", f"a{2 * number + 1}"]))
    commits.drain()
    assert recorder.published == [f"a{n}" for n in range(40)]
    commits.close()


def test_after_a_failure_nothing_later_of_that_table_is_committed() -> None:
    """H11: an error in a parallel write must not let the lane advance. Other tables are not held back."""
    gate = threading.Event()
    recorder = Recorder(failing=frozenset({"a1"}), gate=gate)
    commits = line(recorder, windows=3)
    commits.submit(window(a=["a1", "a2"], b=["b1"]))
    commits.submit(window(a=["a3"], b=["b2"]))
    gate.set()
    commits.drain()
    assert [*commits.failures] == ["a"]
    assert str(commits.failures["a"]) == "a1 failed"
    commits.submit(window(a=["a4"], b=["b3"]))
    commits.close()
    assert recorder.published == ["b1", "b2", "b3"]


def test_the_reader_waits_when_a_lane_is_full() -> None:
    gate = threading.Event()
    recorder = Recorder(gate=gate)
    commits = line(recorder, windows=1)
    commits.submit(window(a=["a1"]))
    second = threading.Thread(target=commits.submit, args=(window(a=["a2"]),))
    second.start()
    second.join(0.2)
    assert second.is_alive(), "a second window was taken although only one may be in flight"
    gate.set()
    second.join(10)
    commits.close()
    assert recorder.published == ["a1", "a2"]


def test_a_lane_that_keeps_the_others_waiting_is_named() -> None:
    gate = threading.Event()
    recorder = Recorder(gate=gate, gated="slow")
    commits = line(recorder, windows=1)
    commits.submit(window(slow=["slow1"], quick=["quick1"]))
    commits.drain(["quick"])
    with pytest.raises(Late) as late:
        commits.submit(window(slow=["slow2"], quick=["quick2"]), patience=0.05)
    assert late.value.lanes == {"slow"}
    gate.set()
    commits.close()
    assert recorder.published == ["quick1", "slow1"], "a window that was refused is not published in part"


def test_a_line_in_which_nobody_is_quicker_has_no_laggards() -> None:
    gate = threading.Event()
    recorder = Recorder(gate=gate)
    commits = line(recorder, windows=1)
    commits.submit(window(a=["a1"]))
    second = threading.Thread(target=commits.submit, args=(window(a=["a2"]), 0.05))
    second.start()
    second.join(0.3)
    assert second.is_alive()
    gate.set()
    second.join(10)
    commits.close()
    assert recorder.published == ["a1", "a2"]


def test_closing_finishes_what_was_submitted() -> None:
    recorder = Recorder()
    commits = line(recorder)
    commits.submit(window(a=["a1"], b=["b1"], c=["c1"]))
    commits.close()
    assert sorted(recorder.published) == ["a1", "b1", "c1"]


def test_a_mirror_is_not_committed_if_a_companion_failed() -> None:
    """Its frontier would say that the side table has what it has not."""
    recorder = Recorder(failing=frozenset({"log1"}))
    commits = line(recorder)
    commits.submit(window(a=["quarantine1", "log1", "mirror1"]))
    commits.close()
    assert recorder.published == ["quarantine1"]


def test_a_commit_that_never_ends_does_not_keep_the_process_from_ending() -> None:
    script = (
        "import sys, threading\n"
        "from frazil.ingest.loop.commit_lanes import CommitLanes\n"
        "from frazil.threads import SystemThreads\n"
        "began = threading.Event()\n"
        "CommitLanes(lambda group: (began.set(), threading.Event().wait()), 2, SystemThreads()).submit({'a': ['a1']})\n"
        "began.wait()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
