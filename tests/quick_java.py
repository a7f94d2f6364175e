"""Java that starts fast: most JVMs of this suite live for seconds, and spend them on starting.

    options()       no second compiler, one thread that collects garbage, and the classes of an archive if there is one
    make_archive    one session that touches what tests need --its end--> its classes, checked and laid out, in a file

A third of the processor time, start or not. The archive lies in pytest's cache and belongs to one Java and one Spark;
what does not fit it is loaded as ever.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pyspark

from frazil.iceberg.jvm.java import find_java

VARIABLE = "SPARK_SUBMIT_OPTS"
"""Spark gives these options to the driver's JVM."""
PLAIN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
WORTH_AN_ARCHIVE = 100
"""So many tests with Spark pay for making one."""
_MAKE_SECONDS = 300
_TOUCH = """
import sys
from frazil.iceberg.catalogs.open_catalog import CatalogSettings, open_catalog
from frazil.iceberg.jvm.session import open_session
settings = CatalogSettings(warehouse=sys.argv[1])
spark = open_session("archive", [settings], master="local[2]", jvm_memory="1g")
open_catalog(spark, settings)
spark.sql("CREATE NAMESPACE frazil.a")
spark.range(10).writeTo("frazil.a.t").create()
spark.sql("SELECT id % 2, count(*) FROM frazil.a.t GROUP BY 1 ORDER BY 1").collect()
spark.range(4).repartition(2).mapInArrow(lambda batches: batches, "id long").collect()
process = spark.sparkContext._gateway.proc
spark.stop()
process.stdin.close()
process.wait()
"""


def options(cache: Path | None) -> str:
    """For a driver's JVM. `cache` is the directory where an archive may lie."""
    archive = None if cache is None else _archive(cache)
    if archive is None or not archive.exists():
        return PLAIN
    # Of an archive that does not fit after all it would warn.
    return f"{PLAIN} -XX:SharedArchiveFile={archive} -Xlog:disable"


def make_archive(cache: Path, scratch: Path) -> None:
    """If it is missing. A failure costs time and nothing else, so it is left at that."""
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of processes that share the tests among them, one makes it
        if not (archive := _archive(cache)).exists():
            _make(archive, scratch)


def _make(archive: Path, scratch: Path) -> None:
    for older in archive.parent.glob("*.jsa"):
        older.unlink()
    unfinished = archive.with_suffix(f".{os.getpid()}")
    environment = {**os.environ, VARIABLE: f"{PLAIN} -XX:ArchiveClassesAtExit={unfinished} -Xlog:disable"}
    try:
        subprocess.run(
            [sys.executable, "-c", _TOUCH, str(scratch)],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_MAKE_SECONDS,
            check=True,
        )
        unfinished.rename(archive)
    except (subprocess.SubprocessError, OSError):
        unfinished.unlink(missing_ok=True)


def _archive(cache: Path) -> Path:
    jars = Path(pyspark.__file__).parent / "jars"
    java = find_java()
    facts = (str(java.home), java.version, pyspark.__version__, str(jars), jars.stat().st_mtime_ns)
    return cache / f"spark-{hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}.jsa"
