"""`make soak`: hundreds of upsert epochs with autovacuum on, in each delete mode; exit code 1 if a bound does not hold.

    each mode: Soaking (writer, daemon, time traveller) --> at rest --> read beside the same rows freshly written
        --> files, manifests, snapshots, bytes of metadata, lag, read time: each with its bound --> bench/soak.json, the
            table "Soak" of docs/benchmarks.md

Naps are shorter and fewer snapshots stay than by default, so that all of maintenance happens many times. EPOCHS, ROWS
and CHANGES in the environment, or options, make it shorter or longer.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench.comparing import asking_pyiceberg, asking_spark, median_seconds, write_anew
from bench.report import (
    SOAK_BEGIN,
    SOAK_END,
    Measured,
    machine,
    measured,
    show,
    unmeasured,
    write_page,
    write_results,
)
from bench.soaking import NAMESPACE, Soak, Soaked, Soaking
from bench.stage import catalog_of, say
from frazil.iceberg.jvm.session import open_session

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "soak.json"
PAGE = ROOT / "docs" / "benchmarks.md"
MODES = {
    "vectors_v3": ("vectors", 3),
    "vectors_v2": ("vectors", 2),
    "equality_v3": ("equality", 3),
    "equality_v2": ("equality", 2),
}
READ_AT_MOST = 1.3
MAX_SNAPSHOTS, AFTER_SNAPSHOTS = 100, 20
MAINTENANCE: Mapping[str, Any] = {
    "naptime": "5s",
    "after_snapshots": AFTER_SNAPSHOTS,
    "expire": {"max_snapshots": MAX_SNAPSHOTS},
    "queue": {"grace": "60s"},
}
FILES_AT_MOST = 200
"""Of data and of deletes, at any moment: what comes during a look and in the pause after it."""
FILES_AT_REST = 4
MANIFESTS_AT_MOST = 200
SNAPSHOTS_AT_MOST = MAX_SNAPSHOTS + 10 * AFTER_SNAPSHOTS
METADATA_BYTES_AT_MOST = 3_000 * SNAPSHOTS_AT_MOST + 100_000
LAG_AT_MOST = 30.0


def main() -> int:
    chosen = _arguments()
    work = Path(tempfile.mkdtemp(prefix="frazil-soak-", dir=chosen.work))
    spark = open_session("soak", [catalog_of(work)], jvm_memory="4g")
    rows: list[Measured] = []
    try:
        for name in chosen.modes:
            mode, version = MODES[name]
            soak = Soak(
                name=name,
                mode=mode,
                format_version=version,
                epochs=chosen.epochs,
                rows=chosen.rows,
                changes=chosen.changes,
                maintenance=MAINTENANCE,
            )
            rows += _soaked(spark, work, soak)
            if chosen.results is not None:
                write_results(rows, chosen.results)
    finally:
        spark.stop()
        shutil.rmtree(work, ignore_errors=True)
    show(rows)
    print(machine())
    if chosen.page is not None:
        write_page(rows, chosen.page, SOAK_BEGIN, SOAK_END)
    return 1 if any(row.holds is False for row in rows) else 0


def _soaked(spark: SparkSession, work: Path, soak: Soak) -> list[Measured]:
    label = f"{soak.mode}, format {soak.format_version}: {soak.epochs} epochs of {soak.changes:,}, {soak.rows:,} rows"
    say(label)
    try:
        done = Soaking(spark, work, work / "warehouse", soak).run()
        return [*_bounds(label, done), *_reads(spark, work, label, done)]
    except Exception as error:  # the other modes are measured all the same
        traceback.print_exc()
        return [unmeasured(f"{label}: failed: {type(error).__name__}: {error}", failed=True)]


def _bounds(label: str, done: Soaked) -> list[Measured]:
    for one in done.observed:
        say(f"  {one}")
    for failure in done.failures[:5]:
        say(f"  a reader met: {failure}")
    for problem in done.problems[:5]:
        say(f"  maintenance met: {problem}")
    say(f"  maintenance: {done.maintenance}")
    spent = ", ".join(f"{action} {seconds:.0f}" for action, seconds in done.maintenance.items())
    took = sum(done.took)
    half = len(done.took) // 2
    first, second = sorted(done.took[:half])[half // 2], sorted(done.took[half:])[half // 2]
    return [
        measured(f"{label}: reads of the time traveller", done.reads, "reads", at_least=1),
        measured(f"{label}: of which failed", len(done.failures), "reads", at_most=0),
        measured(f"{label}: actions of maintenance that failed", len(done.problems), "actions", at_most=0),
        measured(f"{label}: data files, at most", done.most(lambda o: o.data_files), "files", at_most=FILES_AT_MOST),
        measured(
            f"{label}: delete files, at most", done.most(lambda o: o.delete_files), "files", at_most=FILES_AT_MOST
        ),
        measured(
            f"{label}: files of both kinds, at rest",
            done.at_rest.data_files + done.at_rest.delete_files,
            "files",
            at_most=FILES_AT_REST,
        ),
        measured(
            f"{label}: manifests, at most", done.most(lambda o: o.manifests), "manifests", at_most=MANIFESTS_AT_MOST
        ),
        measured(
            f"{label}: snapshots, at most", done.most(lambda o: o.snapshots), "snapshots", at_most=SNAPSHOTS_AT_MOST
        ),
        measured(
            f"{label}: metadata.json, at most",
            done.most(lambda o: o.metadata_bytes),
            "bytes",
            at_most=METADATA_BYTES_AT_MOST,
        ),
        measured(f"{label}: epoch, resolved to published, median", done.median_seconds, "s"),
        measured(f"{label}: the same, longest", max(done.took), "s", at_most=LAG_AT_MOST),
        measured(f"{label}: the same, second half / first half", second / first, "x"),
        measured(f"{label}: maintenance ({spent}) / publishing, time", done.maintenance_seconds / took, "x"),
        measured(f"{label}: from the last epoch to nothing left to do", done.settled_after, "s"),
    ]


def _reads(spark: SparkSession, work: Path, label: str, done: Soaked) -> list[Measured]:
    own, fresh = f"{NAMESPACE}.{done.soak.name}", f"{NAMESPACE}.{done.soak.name}_fresh"
    catalog = catalog_of(work).name
    write_anew(spark, f"{catalog}.{own}", f"{catalog}.{fresh}", done.soak.format_version)
    found = []
    for engine, ask in (
        ("Spark", asking_spark(spark, catalog)),
        ("PyIceberg", asking_pyiceberg(catalog, work / "warehouse")),
    ):
        seconds = median_seconds(ask, (fresh, own), done.answer)
        found.append(measured(f"{label}: freshly written, read by {engine}", seconds[fresh], "s"))
        name = f"{label}: read by {engine} / freshly written"
        found.append(measured(name, seconds[own] / seconds[fresh], "x", at_most=READ_AT_MOST))
        say(f"  {engine}: {seconds[own]:.3f} / {seconds[fresh]:.3f} s")
    return found


def _arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    def number(name: str, default: int) -> int:
        return int(os.environ.get(name, default))

    parser = argparse.ArgumentParser(prog="python -m bench.soak", description="Upsert for long, and stay fast to read.")
    parser.add_argument("--epochs", type=int, default=number("EPOCHS", 500))
    parser.add_argument("--rows", type=int, default=number("ROWS", 1_000_000))
    parser.add_argument("--changes", type=int, default=number("CHANGES", 10_000), help="of an epoch")
    parser.add_argument("--modes", type=lambda text: text.split(","), default=list(MODES), help=",".join(MODES))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--work", type=Path, help="where feeds and tables go; default: a temporary directory")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
