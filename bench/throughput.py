"""Rows a second: catching up with a feed, loading a table for the first time, taking rows that are decoded already.

catch_up     many epochs of JSON files --> snapshots      beside PyArrow parsing and writing the same files
first_load   one scan of JSON files --> one snapshot      beside Spark reading them and writeTo().append()
to_s3        JSON files --> tables on S3, in a REST catalog; beside the same on the local disk
decoded      a DataFrame in memory --upsert_stream--> a snapshot
"""

from __future__ import annotations

import shutil
import statistics

from pyspark import StorageLevel

import frazil
from bench.commits import on_s3
from bench.feeds import rows_sql
from bench.peers import append, create_empty, plain_load
from bench.report import Measured, measured
from bench.stage import FORMAT_VERSIONS, VECTORS, Bench, say, timed

CATCH_UP_AT_MOST, CATCH_UP_AT_LEAST = 2.0, 200_000
DECODED_AT_LEAST = 400_000
FIRST_LOAD_AT_MOST = 1.3
S3_AT_LEAST = 50_000
_DECODED_BATCHES = 3
_PLAIN = "PyArrow"
_ZSTD = {"format-version": "2", "write.parquet.compression-codec": "zstd"}


def catch_up(bench: Bench) -> list[Measured]:
    """All read the same files in turn, round after round, each time into a new table: the first epoch meets an empty
    one, the others a growing one. The first round warms up."""
    changes, epochs = bench.sizes.behind, bench.sizes.behind_epochs
    feed = bench.feed("catch_up")
    for _ in range(epochs):
        resolved = feed.updates(changes // epochs, changes)
    say(f"  a feed of {changes:,} changes is there")
    cores = bench.spark.sparkContext.defaultParallelism
    took: dict[str, list[float]] = {_PLAIN: [], **{mode: [] for mode in bench.modes}}
    for number in range(1 + bench.sizes.slow_rounds):
        to = bench.work / f"plain_load_{number}"
        took[_PLAIN].append(timed(lambda to=to: plain_load(feed.files, to, cores)))  # type: ignore[misc]
        shutil.rmtree(to)
        for mode in bench.modes:
            name = f"catch_up_{mode}_{number}"
            with bench.running(feed, name, mode) as run:
                took[mode].append(run.seconds(lambda: resolved))
            bench.check(name, feed.answer)
        say("  " + ", ".join(f"{who} {seconds[-1]:.1f} s" for who, seconds in took.items()))
    median = {who: statistics.median(seconds[1:]) for who, seconds in took.items()}
    label = f"catch-up of {changes:,} changes in {epochs} epochs"
    found = [measured(f"{label}: PyArrow parses and writes, {cores} threads", changes / median[_PLAIN], "changes/s")]
    for mode in bench.modes:
        is_default = mode == bench.modes[0]
        found += [
            measured(
                f"{label}: Frazil {mode}",
                changes / median[mode],
                "changes/s",
                at_least=CATCH_UP_AT_LEAST if is_default else None,
            ),
            measured(
                f"{label}: Frazil {mode} / PyArrow, time",
                median[mode] / median[_PLAIN],
                "x",
                at_most=CATCH_UP_AT_MOST if is_default else None,
            ),
        ]
    return found


def to_s3(bench: Bench) -> list[Measured]:
    """Half of the changes into an empty table, the rest update them: vectors, or where the catalog cannot, position
    deletes."""
    changes = bench.sizes.behind // 5
    feed = bench.feed("to_s3")
    for _ in range(2):
        resolved = feed.updates(changes // 2, changes)
    _warm_up(bench, "to_s3_warm")
    with bench.running(feed, "to_disk", VECTORS) as run:
        here = run.seconds(lambda: resolved)
    bench.check("to_disk", feed.answer)
    with on_s3(bench.work) as settings:
        with bench.running(feed, "to_s3", VECTORS, settings) as run:
            took = run.seconds(lambda: resolved)
        found = bench.spark.sql(f"SELECT count(*), sum(amount) FROM {settings.name}.bench.to_s3").collect()[0]
        if tuple(found) != feed.answer:
            raise AssertionError(f"the table on S3 holds {found}, not {feed.answer}")
    say(f"  S3: {took:.1f} s, local disk {here:.1f} s")
    label = f"{changes:,} changes in 2 epochs to tables on S3, REST catalog"
    return [
        measured(f"{label}: Frazil", changes / took, "rows/s", at_least=S3_AT_LEAST),
        measured(f"{label} / the same on the local disk, time", took / here, "x"),
    ]


def first_load(bench: Bench) -> list[Measured]:
    """Both read the same JSON files; neither has anything to delete."""
    rows, mode = bench.sizes.first_load, bench.modes[0]
    feed = bench.feed("first_load")
    resolved = feed.scan(rows)
    peer = bench.table("first_load_append")
    create_empty(bench.spark, peer, _ZSTD)
    create_empty(bench.spark, bench.table("first_load_warm"), _ZSTD)
    append(bench.spark, bench.table("first_load_warm"), feed.files)
    _warm_up(bench, "first_load_warm_ours")
    theirs = timed(lambda: append(bench.spark, peer, feed.files))
    with bench.running(feed, "first_load", mode) as run:
        ours = run.seconds(lambda: resolved)
    bench.check("first_load", feed.answer)
    label = f"first load of {rows:,} rows"
    say(f"  {label}: {ours:.1f} s, writeTo().append() {theirs:.1f} s")
    return [
        measured(f"{label}: Frazil", rows / ours, "rows/s"),
        measured(f"{label}: Spark writeTo().append()", rows / theirs, "rows/s"),
        measured(f"{label}: Frazil / Spark, time", ours / theirs, "x", at_most=FIRST_LOAD_AT_MOST),
    ]


def _warm_up(bench: Bench, name: str) -> None:
    """A catch-up that is large enough to take the road of large ones, in every mode."""
    feed = bench.feed(name)
    for _ in range(2):
        resolved = feed.updates(bench.sizes.warm_up // 2, bench.sizes.warm_up)
    for mode in bench.modes:
        with bench.running(feed, f"{name}_{mode}", mode) as run:
            run.seconds(lambda: resolved)


def decoded(bench: Bench) -> list[Measured]:
    """Batch after batch of the same keys through `upsert_stream`; the first one meets no table and warms up."""
    rows = bench.sizes.decoded
    frame = bench.spark.sql(rows_sql(rows)).persist(StorageLevel.MEMORY_ONLY)
    frame.count()
    found = []
    for mode in bench.modes:
        took = []
        for batch in range(1 + _DECODED_BATCHES):
            took.append(
                timed(
                    lambda number=batch, mode=mode: frazil.upsert_stream(  # type: ignore[misc]
                        frame,
                        number,
                        pipeline=f"decoded_{mode}",
                        target=f"bench.decoded_{mode}",
                        key="id",
                        warehouse=bench.settings.warehouse,
                        deletes=mode,
                        format_version=FORMAT_VERSIONS[mode],
                        query_id="bench",
                    )
                )
            )
        say(f"  {mode}: " + " ".join(f"{seconds:.2f}" for seconds in took))
        at_least = DECODED_AT_LEAST if mode == bench.modes[0] else None
        name = f"decoded batches of {rows:,} rows to a committed snapshot: Frazil {mode}"
        found.append(measured(name, rows / statistics.median(took[1:]), "rows/s", at_least=at_least))
    frame.unpersist()
    return found
