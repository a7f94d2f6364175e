"""An epoch of upserts into tables that have rows already, beside Spark's MERGE INTO and beside the bare floor.

    for each table size     Frazil in each mode, also append-only; MERGE INTO in three: a table each, the same rows
    round after round       every contestant takes the same changes in turn, so that all meet the same machine
                            the first round warms up; the rest count, by their median

Spark ends Python workers that were idle for a minute, and merges take longer than that. Whoever of us came first after
them would pay for new workers, always the same one: so a table that does not count goes first in every round. What
such an epoch costs after a pause is a row of its own.

Rows get into our tables as another writer's: the pipeline makes the table with its first row, Spark inserts the
others. So `vectors` also pays for the index of files it did not write, once, which is a row of its own.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.feeds import rows_sql
from bench.peers import COPY_ON_WRITE, MERGE_MODES, MERGE_ON_READ_V3, MergeMode, create_peer, decoded, floor, merge
from bench.report import Measured, measured
from bench.sizes import Sizes
from bench.stage import APPEND_ONLY, EQUALITY, Bench, say, timed

FASTER_THAN_MERGE = {MERGE_ON_READ_V3: 5.0, COPY_ON_WRITE: 20.0}
FLAT_AT_MOST = 1.2
FLOOR_AT_MOST = 8.0
_SEED = 7


@dataclass
class _Contestant:
    """`epoch` takes the next changes and tells the seconds."""

    label: str
    table: str
    rows: int
    rounds: int
    epoch: Callable[[], float]
    took: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return statistics.median(self.took[1:])


def epochs(bench: Bench) -> list[Measured]:
    sizes = bench.sizes
    with ExitStack() as open_pipelines:
        ours = {
            (mode, rows): _frazil(bench, open_pipelines, mode, rows) for rows in sizes.tables for mode in bench.modes
        }
        logs = {rows: _frazil(bench, open_pipelines, APPEND_ONLY, rows) for rows in sizes.tables}
        peers = {(mode, rows): _merge(bench, mode, rows) for rows in sizes.tables for mode in MERGE_MODES}
        bare = _floor(bench)
        after_pause = _frazil(bench, open_pipelines, bench.modes[0], sizes.tables[0], "epochs_after_pause")
        contestants = [after_pause, *ours.values(), *logs.values(), *peers.values(), bare]
        for turn in range(1 + max(sizes.rounds, sizes.slow_rounds)):
            for contestant in contestants:
                if turn <= contestant.rounds:
                    contestant.took.append(contestant.epoch())
                    say(f"  {contestant.label} into {contestant.rows:,}: {contestant.took[-1]:.3f} s")
    for (mode, rows), contestant in ours.items():
        if (left := bench.answer(contestant.table)[0]) != rows:
            raise AssertionError(f"{mode}: updates of {rows:,} rows have left {left:,}")
    for rows, contestant in logs.items():
        if (held := bench.answer(contestant.table)[0]) != rows + sizes.changes * len(contestant.took):
            raise AssertionError(f"{contestant.label}: {held:,} rows after {len(contestant.took)} epochs into {rows:,}")
    found = [*_rows(bench, ours, peers, bare), *_log_rows(sizes, logs)]
    name = f"{sizes.changes:,} changes into {sizes.tables[0]:,} rows: {after_pause.label}, after the peers' turn"
    return [*found, measured(name, after_pause.seconds, "s")]


def _rows(
    bench: Bench,
    ours: dict[tuple[str, int], _Contestant],
    peers: dict[tuple[MergeMode, int], _Contestant],
    bare: _Contestant,
) -> list[Measured]:
    smallest, largest, default = bench.sizes.tables[0], bench.sizes.tables[-1], bench.modes[0]
    found = []
    for rows in bench.sizes.tables:
        label = f"{bench.sizes.changes:,} changes into {rows:,} rows"
        found += [measured(f"{label}: Frazil {mode}", ours[mode, rows].seconds, "s") for mode in bench.modes]
        found += [measured(f"{label}: MERGE INTO {mode.label}", peers[mode, rows].seconds, "s") for mode in MERGE_MODES]
        for merging in MERGE_MODES:
            at_least = FASTER_THAN_MERGE.get(merging) if rows == largest else None
            ratio = peers[merging, rows].seconds / ours[default, rows].seconds
            found.append(
                measured(f"{label}: MERGE INTO {merging.label} / Frazil {default}", ratio, "x", at_least=at_least)
            )
    for mode in bench.modes:
        flat = ours[mode, largest].seconds / ours[mode, smallest].seconds
        at_most = FLAT_AT_MOST if mode == default else None
        name = f"flat: Frazil {mode}, into {largest:,} rows / into {smallest:,} rows"
        found.append(measured(name, flat, "x", at_most=at_most))
        if mode != EQUALITY:
            first = ours[mode, largest].took[0]
            found.append(measured(f"first epoch into {largest:,} rows of another writer: Frazil {mode}", first, "s"))
    found.append(measured(f"floor: PyArrow dedupes, writes, syncs {bench.sizes.changes:,} changes", bare.seconds, "s"))
    for mode in bench.modes:
        name = f"floor: Frazil {mode} into {largest:,} rows / PyArrow"
        at_most = FLOOR_AT_MOST if mode == default else None
        found.append(measured(name, ours[mode, largest].seconds / bare.seconds, "x", at_most=at_most))
    return found


def _log_rows(sizes: Sizes, logs: dict[int, _Contestant]) -> list[Measured]:
    found = [
        measured(f"{sizes.changes:,} changes into {rows:,} rows: {log.label}", log.seconds, "s")
        for rows, log in logs.items()
    ]
    smallest, largest = sizes.tables[0], sizes.tables[-1]
    name = f"flat: {logs[largest].label}, into {largest:,} rows / into {smallest:,} rows"
    return [*found, measured(name, logs[largest].seconds / logs[smallest].seconds, "x")]


def _frazil(bench: Bench, open_pipelines: ExitStack, mode: str, rows: int, name: str = "") -> _Contestant:
    name = name or f"epochs_{mode.replace('-', '_')}_{rows}"
    feed = bench.feed(name, _SEED)
    run = open_pipelines.enter_context(bench.running(feed, name, mode))
    say(f"  a table of {rows:,} rows for Frazil {mode}")
    run.seconds(lambda: feed.epoch(np.arange(1)))
    bench.spark.sql(
        f"INSERT INTO {bench.table(name)} (id, name, amount, city, at) SELECT * FROM ({rows_sql(rows)}) WHERE id > 0"
    )
    return _Contestant(
        f"Frazil {mode}",
        name,
        rows,
        bench.sizes.rounds,
        lambda: run.seconds(lambda: feed.updates_of(bench.sizes.changes, rows)),
    )


def _merge(bench: Bench, mode: MergeMode, rows: int) -> _Contestant:
    name = f"epochs_{mode.label.replace('-', '_').replace(' ', '_')}_{rows}"
    feed = bench.feed(name, _SEED)
    feed.epoch(np.arange(1))
    say(f"  a table of {rows:,} rows for MERGE INTO {mode.label}")
    create_peer(bench.spark, bench.table(name), mode, rows)

    def epoch() -> float:
        feed.updates_of(bench.sizes.changes, rows)
        return timed(lambda: merge(bench.spark, bench.table(name), feed.last_files))

    rounds = bench.sizes.slow_rounds if mode is COPY_ON_WRITE else bench.sizes.rounds
    return _Contestant(f"MERGE INTO {mode.label}", name, rows, rounds, epoch)


def _floor(bench: Bench) -> _Contestant:
    feed = bench.feed("epochs_floor", _SEED)
    to: Path = bench.work / "floor"
    to.mkdir()

    def epoch() -> float:
        feed.updates_of(bench.sizes.changes, bench.sizes.tables[-1])
        changes = decoded(feed)
        return timed(lambda: floor(changes, to / f"{feed.now}.parquet"))

    return _Contestant("PyArrow's floor", "", bench.sizes.tables[-1], bench.sizes.rounds, epoch)
