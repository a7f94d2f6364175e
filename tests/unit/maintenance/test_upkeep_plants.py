"""Each fault is planted once: the histories of maintenance must find it, in a seed that passes without it."""

from __future__ import annotations

from itertools import chain

import pytest
from test_upkeep_histories import SEEDS
from upkeep_plants import PLANTS
from upkeep_world import SeedFailed, run_seed


def failing_seed(plant: str) -> int | None:
    """The seed that the plant names, or the first other one."""
    chosen = PLANTS[plant]
    with chosen.planted():
        for seed in chain([chosen.seed], range(SEEDS)):
            try:
                run_seed(seed)
            except SeedFailed as failed:
                return seed if f"seed {seed}:" in str(failed) else None
    return None


@pytest.mark.parametrize("plant", PLANTS)
def test_a_fault_planted_in_maintenance_is_found(plant: str) -> None:
    assert failing_seed(plant) is not None, PLANTS[plant].what


def test_the_seeds_that_find_faults_in_maintenance_pass_without_them() -> None:
    for plant in PLANTS.values():
        assert plant.seed in range(SEEDS), "one that is run with all histories"
        run_seed(plant.seed)
