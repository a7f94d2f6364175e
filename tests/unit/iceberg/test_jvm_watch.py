from __future__ import annotations

import pytest

from frazil.iceberg.jvm.watchdog import silence


def test_an_answer_ends_the_silence() -> None:
    assert silence(59.0, 0.5, answered=True) == 0.0


def test_silence_adds_up_look_by_look() -> None:
    silent = 0.0
    for _ in range(10):
        silent = silence(silent, 0.5, answered=False)
    assert silent == pytest.approx(5.0)


def test_a_process_that_was_stopped_for_an_hour_does_not_blame_the_jvm() -> None:
    assert silence(0.5, 3600.0, answered=False) < 2.0
