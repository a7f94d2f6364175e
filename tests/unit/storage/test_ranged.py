"""A remote file read by ranges says the same as the whole of it, whatever is asked in whatever order."""

from __future__ import annotations

import os
import random

import pytest

from frazil.storage.files import ranged
from frazil.storage.files.ranged import RangedInput

DATA = random.Random(5).randbytes(5_000)


class Remote(RangedInput):
    """Counts what is fetched of `DATA`."""

    def __init__(self, tail: int) -> None:
        super().__init__(len(DATA), len(DATA) - tail, DATA[len(DATA) - tail :])
        self.fetched: list[tuple[int, int]] = []

    def fetch(self, start: int, end: int) -> bytes:
        assert 0 <= start < end <= len(DATA)
        self.fetched.append((start, end))
        return DATA[start:end]


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranged, "READ_AHEAD_BYTES", 64)


@pytest.mark.parametrize("tail", [0, 1, 100, len(DATA)])
@pytest.mark.parametrize("seed", range(5))
def test_any_reads_in_any_order_are_exact(tail: int, seed: int) -> None:
    chance = random.Random(seed)
    file = Remote(tail)
    for _ in range(500):
        start = chance.choice([chance.randrange(len(DATA) + 10), len(DATA) - tail, file.tell()])
        size = chance.choice([0, 1, 63, 64, 65, chance.randrange(400), -1])
        file.seek(start)
        expected = DATA[start:] if size < 0 else DATA[start : start + size]
        assert file.read(size) == expected
        assert file.tell() == start + len(expected)


def test_reads_one_after_the_other_are_read_ahead() -> None:
    file = Remote(tail=8)
    assert b"".join(file.read(8) for _ in range(8)) == DATA[:64]
    assert file.fetched == [(0, 64)]


def test_the_end_costs_nothing() -> None:
    file = Remote(tail=100)
    file.seek(-8, os.SEEK_END)
    assert file.read() == DATA[-8:]
    assert file.fetched == []
