"""The line that commits windows behind the reader's back."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from frazil.daemon.committing import CommitLine


class Recorder:
    """Publishes by writing down; waits at a gate and fails where told."""

    def __init__(self, failing: set[str] = frozenset(), gate: threading.Event | None = None) -> None:  # type: ignore[assignment]
        self.published: list[str] = []
        self._failing, self._gate = failing, gate

    def __call__(self, intent: Any) -> None:
        if self._gate is not None:
            self._gate.wait(10)
        if intent in self._failing:
            raise RuntimeError(f"{intent} failed")
        self.published.append(intent)


def line(recorder: Recorder, windows: int = 2) -> CommitLine:
    return CommitLine(recorder, windows)


def test_epochs_of_one_table_are_committed_in_order() -> None:
    recorder = Recorder()
    commits = line(recorder, windows=3)
    for number in range(20):
        commits.submit([[f"a{2 * number}", f"a{2 * number + 1}"]])  # type: ignore[list-item]
    commits.drain()
    assert recorder.published == [f"a{n}" for n in range(40)]
    commits.close()


def test_after_a_failure_nothing_later_is_committed() -> None:
    """H11: an error in a parallel write must not let the line advance."""
    gate = threading.Event()
    recorder = Recorder(failing={"a1"}, gate=gate)
    commits = line(recorder, windows=3)
    commits.submit([["a1", "a2"], ["b1"]])  # type: ignore[list-item]
    commits.submit([["a3"], ["b2"]])  # type: ignore[list-item]
    gate.set()
    with pytest.raises(RuntimeError, match="a1 failed"):
        commits.drain()
    commits.close()
    assert recorder.published == ["b1"]


def test_the_next_window_is_refused_with_what_failed() -> None:
    recorder = Recorder(failing={"a1"})
    commits = line(recorder)
    commits.submit([["a1"]])  # type: ignore[list-item]
    with pytest.raises(RuntimeError, match="a1 failed"):
        commits.drain()
    with pytest.raises(RuntimeError, match="a1 failed"):
        commits.submit([["a2"]])  # type: ignore[list-item]
    commits.close()
    assert recorder.published == []


def test_the_reader_waits_when_the_line_is_full() -> None:
    gate = threading.Event()
    recorder = Recorder(gate=gate)
    commits = line(recorder, windows=1)
    commits.submit([["a1"]])  # type: ignore[list-item]
    second = threading.Thread(target=commits.submit, args=([["a2"]],))
    second.start()
    second.join(0.2)
    assert second.is_alive(), "a second window was taken although only one may be in flight"
    gate.set()
    second.join(10)
    commits.close()
    assert recorder.published == ["a1", "a2"]


def test_closing_finishes_what_was_submitted() -> None:
    recorder = Recorder()
    commits = line(recorder)
    commits.submit([["a1"], ["b1"], ["c1"]])  # type: ignore[list-item]
    commits.close()
    assert sorted(recorder.published) == ["a1", "b1", "c1"]


def test_mirrors_are_committed_after_all_of_their_companions() -> None:
    gate = threading.Event()
    recorder = Recorder(gate=gate)
    commits = line(recorder)
    commits.submit([["mirror1", "mirror2"]], first=[["log1", "log2"], ["quarantine1"]])  # type: ignore[list-item]
    gate.set()
    commits.drain()
    commits.close()
    assert recorder.published[-2:] == ["mirror1", "mirror2"]


def test_a_mirror_is_not_committed_if_a_companion_failed() -> None:
    """Its frontier would say that the companion has what it has not."""
    recorder = Recorder(failing={"log1"})
    commits = line(recorder)
    commits.submit([["mirror1"]], first=[["log1"], ["quarantine1"]])  # type: ignore[list-item]
    with pytest.raises(RuntimeError, match="log1 failed"):
        commits.drain()
    commits.close()
    assert recorder.published == ["quarantine1"]
