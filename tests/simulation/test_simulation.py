"""Seeded worlds of real protocol code: every epoch is published exactly once (docs/simulation.md)."""

from __future__ import annotations

from collections import Counter

import pytest

from .world import simulate

SEEDS = 2000
CHUNK = 250
CHUNKS = [
    pytest.param(first, marks=[] if first == 0 else pytest.mark.slow, id=f"seeds-{first}-to-{first + CHUNK - 1}")
    for first in range(0, SEEDS, CHUNK)
]
MUST_HAPPEN = (
    "Published",
    "AlreadyPublished",
    "Recut",
    "FencedOut",
    "Stopped",
    "GaveUp",
    "HeldBack",
    "lands 1 of 2 tables",
    "heartbeat at",
    "append at",
    "row_delta at",
    "is published by equality",
    "files again",
    "somebody rewrites",
    "rewind at",
    "forget at",
    "was rolled back",
    "created again",
    "no rewind",
    "arrives late",
    "dies (crash before)",
    "dies (crash after)",
    "compacts",
    "expires",
    "is to be loaded anew",
    "is not to be loaded anew",
    "is cleared on its branch",
    "append on its branch",
    "row_delta on its branch",
    "take-over on its branch",
    "is adopted at",
    "is dropped",
    "the source loses",
    "drops the column",
    "column value was dropped",
    "loses its session",
    "is reloaded",
    "starts once",
    "is gone: Fenced",
    "is sick: slow",
    "reads alone from now on",
    "stopped; other tables go on",
    "will be loaded anew",
    "tried once more by itself",
    "cannot begin yet",
    "cannot be read now; other tables begin",
    "left what is under way",
    "cannot tell whether somebody has taken over",
    "acknowledges",
)


@pytest.mark.parametrize("first", CHUNKS)
def test_every_epoch_is_published_exactly_once_whatever_happens(first: int) -> None:
    """H3 to H13, H15, H23, H27, H28, H43 to H47: crashes, replays, lost and late answers, 409 after effect, zombies,
    equal fences, foreign commits, compaction, expiry, rollback, recreation, and tables that are loaded anew."""
    for seed in range(first, first + CHUNK):
        assert simulate(seed).rested


def test_a_seed_tells_the_same_story_twice() -> None:
    def story(seed: int) -> list[str]:
        lines: list[str] = []
        simulate(seed, lines.append)
        return lines

    assert all(story(seed) == story(seed) for seed in range(5))
    assert story(1) != story(2)


@pytest.mark.slow
def test_everything_that_can_go_wrong_does() -> None:
    """A simulation in which nothing happens would pass as well."""
    seen: Counter[str] = Counter()

    def count(line: str) -> None:
        seen.update(what for what in MUST_HAPPEN if what in line)

    for seed in range(CHUNK):
        simulate(seed, count)
    assert not [what for what in MUST_HAPPEN if not seen[what]]
