"""Each fault is planted once: the simulation must find it, and docs/simulation.md must say in which seed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .plants import PLANTS
from .world import SeedFailed, simulate

DOCUMENT = Path(__file__).parents[2] / "docs" / "simulation.md"
SEEDS_MAX = 2000


def documented_seed(plant: str) -> int:
    row = re.search(rf"^\| `{re.escape(plant)}` \|.*\| (\d+) \|$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert row is not None, f"{DOCUMENT.name} has no row for {plant}"
    return int(row[1])


def first_failing_seed(plant: str) -> int | None:
    with PLANTS[plant].planted() as edges:
        for seed in range(SEEDS_MAX):
            try:
                simulate(seed, planted=edges)
            except SeedFailed as failed:
                return seed if f"--seed {seed}" in str(failed) else None
    return None


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_fault_is_found(plant: str) -> None:
    assert first_failing_seed(plant) == documented_seed(plant)


def test_the_seeds_that_find_faults_pass_without_them() -> None:
    for plant in PLANTS:
        assert simulate(documented_seed(plant)).rested
