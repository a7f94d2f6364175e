"""Reading after many epochs: how far a table is from the same rows freshly written, in Spark and in PyIceberg.

    feed --> Frazil in each mode: 1, 20, 100 epochs --> count, sum   \\
                        `--> the same rows, written anew --> count, sum   > ratio; all must answer what the feed says

No maintenance runs here: nothing is compacted or converted between the epochs and the read. What readers meet with it
is measured by `bench.upkeep`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import ExitStack
from decimal import Decimal
from typing import Any

import pyarrow.compute as pc
from pyiceberg.catalog.sql import SqlCatalog

from bench.peers import create_empty
from bench.report import Measured, measured, unmeasured
from bench.stage import EQUALITY, Bench, Running, say, timed

_SLOW_SECONDS = 10.0
Answer = tuple[int, Decimal]


def reads(bench: Bench) -> list[Measured]:
    sizes = bench.sizes
    found: list[Measured] = []
    with ExitStack() as open_pipelines:
        feeds = {mode: bench.feed(f"reads_{mode}") for mode in bench.modes}
        runs = {
            mode: open_pipelines.enter_context(bench.running(feeds[mode], f"reads_{mode}", mode))
            for mode in bench.modes
        }
        for mode, run in runs.items():
            run.seconds(lambda feed=feeds[mode]: feed.scan(sizes.read_rows))  # type: ignore[misc]
        published = 0
        for epochs in sizes.read_after:
            for mode, run in runs.items():
                _publish(bench, run, feeds[mode], epochs - published, mode)
            published = epochs
            clean = _rewritten(bench, f"reads_{bench.modes[0]}", f"clean_{epochs}")
            found += _read_all(bench, epochs, clean, feeds[bench.modes[0]].answer)
    return found


def _publish(bench: Bench, run: Running, feed: Any, epochs: int, mode: str) -> None:
    def behind() -> Any:
        for _ in range(epochs):
            resolved = feed.updates(bench.sizes.changes, bench.sizes.read_rows)
        return resolved

    say(f"  {mode}: {epochs} epochs in {run.seconds(behind):.1f} s")


def _rewritten(bench: Bench, source: str, name: str) -> str:
    create_empty(
        bench.spark,
        bench.table(name),
        {"format-version": "2", "write.parquet.compression-codec": "zstd"},
    )
    bench.spark.table(bench.table(source)).repartition(2).writeTo(bench.table(name)).append()
    return name


def _read_all(bench: Bench, epochs: int, clean: str, expected: Answer) -> list[Measured]:
    def checked(answer: Answer, of: str) -> None:
        if answer != expected:
            raise AssertionError(f"{of} after {epochs} epochs is read as {answer}, not as {expected}")

    found = []
    for engine, ask in (("Spark", bench.answer), ("PyIceberg", _pyiceberg(bench))):
        answer, at_best = _median(bench, ask, clean)
        checked(answer, f"the table written anew, by {engine},")
        label = f"read after {epochs} epochs of {bench.sizes.changes:,}, {bench.sizes.read_rows:,} rows, {engine}"
        found.append(measured(f"{label}: freshly written", at_best, "s"))
        for mode in bench.modes:
            try:
                answer, seconds = _median(bench, ask, f"reads_{mode}")
            except (ValueError, NotImplementedError) as error:  # how PyIceberg refuses: either, by where it meets them
                if mode != EQUALITY:
                    raise
                found.append(unmeasured(f"{label}: Frazil {mode}: refused: {str(error).partition(':')[0]}"))
                continue
            checked(answer, f"{mode}, by {engine},")
            name = f"{label}: Frazil {mode} (not maintained) / freshly written"
            found.append(measured(name, seconds / at_best, "x"))
            say(f"  {name}: {seconds:.3f} / {at_best:.3f} s")
    return found


def _median(bench: Bench, ask: Callable[[str], Answer], table: str) -> tuple[Answer, float]:
    answers: list[Answer] = []
    took = [timed(lambda: answers.append(ask(table)))]
    # The first read warms up, unless waiting for another one tells nothing new.
    while len(took) <= bench.sizes.read_rounds and took[-1] < _SLOW_SECONDS:
        took.append(timed(lambda: answers.append(ask(table))))
    return answers[-1], statistics.median(took[1:] or took)


def _pyiceberg(bench: Bench) -> Callable[[str], Answer]:
    settings = bench.settings
    catalog = SqlCatalog(settings.name, uri=f"sqlite:///{settings.database}", warehouse=str(settings.warehouse))

    def ask(table: str) -> Answer:
        rows = catalog.load_table(f"bench.{table}").scan(selected_fields=("amount",)).to_arrow()
        return rows.num_rows, pc.sum(rows.column("amount")).as_py()

    return ask
