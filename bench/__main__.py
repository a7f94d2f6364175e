"""`python -m bench [--quick]`: everything in one session, one process, one run."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from bench.epochs import catch_up, epoch_against_merge, small_epoch
from bench.report import publish
from frazil.lake.catalogs import CatalogSettings
from frazil.lake.session import open_session

RESULTS = Path(__file__).parent / "results.json"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure Frazil beside its peers.")
    parser.add_argument("--quick", action="store_true", help="smaller tables: a smoke test of the benchmark itself")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="frazil-bench-"))
    spark = open_session("bench", [CatalogSettings(warehouse=str(work / "warehouse"))], driver_memory="4g")
    try:
        sizes = (20_000,) if arguments.quick else (100_000, 1_000_000)
        rows = small_epoch(spark, work)
        for size in sizes:
            rows += epoch_against_merge(spark, work, size)
        rows += catch_up(spark, work, *((100_000, 4) if arguments.quick else (2_000_000, 8)))
        publish(rows, arguments.results)
    finally:
        spark.stop()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
