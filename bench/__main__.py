"""`python -m bench`: everything in one session, one process, one run.

    sections, in order --> rows --> console, results.json, docs/benchmarks.md
        `-- one that fails becomes a row that says so; the others go on, and the exit code is 1

`--only` repeats some sections and replaces their rows. `--quick` and `--tiny` test the benchmark, not Frazil: they
write no file unless `--results` or `--page` names one.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.commits import commits
from bench.epochs import epochs
from bench.flink import flink
from bench.memory import memory
from bench.mongo import mongo
from bench.reads import reads
from bench.report import Measured, machine, merged, read_results, show, unmeasured, write_page, write_results
from bench.sizes import FULL, QUICK, TINY, Sizes
from bench.small import small
from bench.stage import MODES, Bench, catalog_of, say
from bench.throughput import catch_up, decoded, first_load, to_s3
from bench.upkeep import upkeep
from frazil.iceberg.jvm.jars import AWS
from frazil.iceberg.jvm.session import open_session

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results.json"
PAGE = ROOT / "docs" / "benchmarks.md"
IN_SESSION: dict[str, Callable[[Bench], list[Measured]]] = {
    "small": small,
    "commits": commits,
    "epochs": epochs,
    "reads": reads,
    "upkeep": upkeep,
    "flink": flink,
    "catch-up": catch_up,
    "first-load": first_load,
    "s3": to_s3,
    "decoded": decoded,
    "mongodb": mongo,
}
ALONE = "memory"
SECTIONS = (*IN_SESSION, ALONE)
IF_NAMED = ("flink",)
"""Of the sections, those that a test of the benchmark runs only if it is told to."""


def main() -> int:
    arguments = _arguments()
    sizes: Sizes = TINY if arguments.tiny else QUICK if arguments.quick else FULL
    is_real = sizes is FULL
    wanted = arguments.only or [name for name in SECTIONS if is_real or name not in IF_NAMED]
    results, page = arguments.results or (RESULTS if is_real else None), arguments.page or (PAGE if is_real else None)
    known = read_results(results) if results is not None and arguments.only else []
    work = Path(tempfile.mkdtemp(prefix="frazil-bench-", dir=arguments.work))
    rows: list[Measured] = []
    try:
        for found in _sections(wanted, work, sizes, arguments.modes):
            rows += found
            if results is not None:  # after each section: a run of an hour may be interrupted
                write_results(merged(known, rows), results)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    show(rows)
    print(machine())
    if page is not None:
        write_page(merged(known, rows), page)
    return 1 if any(row.value is None and row.holds is False for row in rows) else 0


def _sections(wanted: Sequence[str], work: Path, sizes: Sizes, modes: tuple[str, ...]) -> Iterator[list[Measured]]:
    if names := [name for name in wanted if name != ALONE]:
        spark = open_session("bench", [catalog_of(work)], jvm_memory="4g", jars=(AWS,))
        bench = Bench(spark, work, sizes, modes)
        try:
            for name in names:
                yield _section(name, lambda name=name: IN_SESSION[name](bench))  # type: ignore[misc]
        finally:
            spark.stop()
    if ALONE in wanted:
        yield _section(ALONE, lambda: memory(work, sizes, modes[0]))


def _section(name: str, measure: Callable[[], list[Measured]]) -> list[Measured]:
    say(name)
    try:
        return measure()
    except Exception as error:
        traceback.print_exc()
        return [unmeasured(f"{name}: failed: {type(error).__name__}: {str(error).partition(chr(10))[0]}", failed=True)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Frazil beside its peers.")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="smaller tables, about two minutes: tests the benchmark")
    size.add_argument("--tiny", action="store_true", help="just enough to run every line")
    parser.add_argument("--only", type=_names(SECTIONS), help=f"some of {','.join(SECTIONS)}; keeps the other rows")
    parser.add_argument("--modes", type=_names(MODES), default=MODES, help="delete modes; the first is the default")
    parser.add_argument("--results", type=Path, help="default: bench/results.json")
    parser.add_argument("--page", type=Path, help="default: docs/benchmarks.md")
    parser.add_argument("--work", type=Path, help="where feeds and tables go; default: a temporary directory")
    return parser.parse_args()


def _names(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        names = tuple(text.split(","))
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
        return names

    return parse


if __name__ == "__main__":
    sys.exit(main())
