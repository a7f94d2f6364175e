"""Reading after many epochs with maintenance on, as it is by default, beside a table that Spark merges and rewrites.

Frazil in each mode    epochs, autovacuum beside them, then until it says that nothing is left to do
MERGE INTO             the same number of epochs, after every twentieth `rewrite_data_files` and
                       `rewrite_position_delete_files`, as a user would schedule them
each                   --> read beside the same rows freshly written, in Spark and in PyIceberg; seconds it took
"""

from __future__ import annotations

import statistics

from bench.comparing import asking_pyiceberg, asking_spark, median_seconds, write_anew
from bench.feeds import Feed
from bench.peers import MERGE_ON_READ_V3, create_peer, merge
from bench.report import Measured, measured
from bench.soaking import NAMESPACE, Soak, Soaked, Soaking
from bench.stage import FORMAT_VERSIONS, Bench, say, timed

AT_MOST = 1.3
_MERGES_A_REWRITE = 20
_PEER = "upkeep_merge"


def upkeep(bench: Bench) -> list[Measured]:
    sizes, found = bench.sizes, list[Measured]()
    label = f"upkeep over {sizes.upkeep_epochs} epochs of {sizes.changes:,}, {sizes.read_rows:,} rows"
    for mode in bench.modes:
        soak = Soak(
            name=f"upkeep_{mode}",
            mode=mode,
            format_version=FORMAT_VERSIONS[mode],
            epochs=sizes.upkeep_epochs,
            rows=sizes.read_rows,
            changes=sizes.changes,
            delete_share=0.0,
            observations=1,
            maintenance={"naptime": sizes.upkeep_naptime},
        )
        done = Soaking(bench.spark, bench.work, bench.work / "warehouse", soak).run(reader=False)
        found += _ours(bench, f"{label}: Frazil {mode}", done)
    return found + _peer(bench, label)


def _ours(bench: Bench, label: str, done: Soaked) -> list[Measured]:
    say(f"  {done.soak.mode}: {done.at_rest}; {done.maintenance}; settled after {done.settled_after:.1f} s")
    for problem in done.problems:
        say(f"  maintenance met: {problem}")
    if not done.finished:
        raise AssertionError(f"{label}: maintenance did not come to an end")
    own = f"{NAMESPACE}.{done.soak.name}"
    return [
        *_ratios(bench, label, own, done.soak.format_version, at_most=AT_MOST),
        measured(f"{label}, an epoch", done.median_seconds, "s"),
        measured(f"{label}, maintenance in all", done.maintenance_seconds, "s"),
        measured(f"{label}, files at rest", done.at_rest.data_files + done.at_rest.delete_files, "files"),
    ]


def _peer(bench: Bench, label: str) -> list[Measured]:
    sizes, table = bench.sizes, bench.table(_PEER)
    feed: Feed = bench.feed(_PEER)
    create_peer(bench.spark, table, MERGE_ON_READ_V3, sizes.read_rows)
    took, rewrites = list[float](), list[float]()
    for number in range(1, sizes.upkeep_epochs + 1):
        feed.updates(sizes.changes, sizes.read_rows)
        took.append(timed(lambda: merge(bench.spark, table, feed.last_files)))
        if number % _MERGES_A_REWRITE == 0:
            rewrites.append(timed(lambda: _rewrite(bench)))
            say(f"  MERGE INTO: {number} epochs, {sum(took):.0f} s, and rewrites of {sum(rewrites):.1f} s")
    name = f"{label}: MERGE INTO {MERGE_ON_READ_V3.label}, rewrite_data_files every {_MERGES_A_REWRITE}"
    return [
        *_ratios(bench, name, f"bench.{_PEER}", MERGE_ON_READ_V3.format_version),
        measured(f"{name}, an epoch", statistics.median(took), "s"),
        measured(f"{name}, rewrites in all", sum(rewrites), "s"),
    ]


def _rewrite(bench: Bench) -> None:
    for procedure in ("rewrite_data_files", "rewrite_position_delete_files"):
        bench.spark.sql(f"CALL {bench.settings.name}.system.{procedure}(table => 'bench.{_PEER}')").collect()


def _ratios(bench: Bench, label: str, own: str, version: int, at_most: float | None = None) -> list[Measured]:
    catalog, fresh = bench.settings.name, f"{own}_fresh"
    write_anew(bench.spark, f"{catalog}.{own}", f"{catalog}.{fresh}", version)
    by_spark = asking_spark(bench.spark, catalog)
    expected, found = by_spark(own), list[Measured]()
    for engine, ask in (("Spark", by_spark), ("PyIceberg", asking_pyiceberg(catalog, bench.work / "warehouse"))):
        seconds = median_seconds(ask, (fresh, own), expected, bench.sizes.upkeep_rounds)
        say(f"  {own}, {engine}: {seconds[own]:.3f} / {seconds[fresh]:.3f} s")
        name = f"{label}, read by {engine} / freshly written"
        found.append(measured(name, seconds[own] / seconds[fresh], "x", at_most=at_most))
    return found
