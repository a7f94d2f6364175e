"""Each fault is planted once: the simulation must find it, and docs/simulation.md must say in which seed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .plants import PLANTS
from .world import SeedFailed, simulate

DOCUMENT = Path(__file__).parents[2] / "docs" / "simulation.md"


def documented_seed(plant: str) -> int:
    row = re.search(rf"^\| `{re.escape(plant)}` \|.*\| (\d+) \|$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert row is not None, f"{DOCUMENT.name} has no row for {plant}"
    return int(row[1])


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_fault_is_found(plant: str) -> None:
    with PLANTS[plant].planted() as edges, pytest.raises(SeedFailed):
        simulate(documented_seed(plant), planted=edges)


def test_the_seeds_that_find_faults_pass_without_them() -> None:
    for plant in PLANTS:
        assert simulate(documented_seed(plant)).rested
