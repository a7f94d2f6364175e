"""The fixed cost of an epoch: what is left when there is next to nothing to write."""

from __future__ import annotations

import statistics

from bench.report import Measured, measured
from bench.stage import Bench, say

AT_MOST = 0.35
_ROWS = 10_000


def small(bench: Bench) -> list[Measured]:
    return [_small(bench, mode) for mode in bench.modes]


def _small(bench: Bench, mode: str) -> Measured:
    name, changes = f"small_{mode}", bench.sizes.small_changes
    feed = bench.feed(name)
    with bench.running(feed, name, mode) as run:
        run.seconds(lambda: feed.scan(_ROWS))
        took = [run.seconds(lambda: feed.updates(changes, _ROWS)) for _ in range(2 + bench.sizes.small_rounds)]
    say(f"  {mode}: " + " ".join(f"{seconds:.3f}" for seconds in took))
    label = f"fixed cost of a small epoch ({changes:,} changes): Frazil {mode}"
    return measured(label, statistics.median(took[2:]), "s", at_most=AT_MOST)
