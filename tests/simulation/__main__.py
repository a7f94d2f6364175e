"""Lives through one seed, or many.

python -m tests.simulation --seeds 5000                      the first 5000 seeds
python -m tests.simulation --seed 17 --trace                 what happened in seed 17, tick by tick
python -m tests.simulation --planted no-fence                which seed finds a planted fault first
python -m tests.simulation --planted no-fence --seed 1 --trace
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import nullcontext

from .plants import PLANTS
from .world import SOUND, SeedFailed, simulate


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, help="one seed")
    parser.add_argument("--seeds", type=int, default=2000, help="how many seeds, from --first on")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--trace", action="store_true", help="print everything that happens")
    parser.add_argument("--planted", choices=sorted(PLANTS), help="a fault to find")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds) if given.seed is None else [given.seed]
    began, landed = time.monotonic(), 0
    with PLANTS[given.planted].planted() if given.planted else nullcontext(SOUND) as edges:
        for seed in seeds:
            try:
                landed += simulate(seed, print if given.trace else None, edges).oracle.landed
            except SeedFailed as failed:
                print(failed)
                return 1
    print(f"{len(seeds)} seeds, {landed} commits landed, {time.monotonic() - began:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
