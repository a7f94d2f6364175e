"""A driver and its JVM are killed at once, as a machine that runs out of memory does it: the next start tidies up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

_OPENS = """
import sys
from frazil.iceberg.catalogs.open_catalog import CatalogSettings, CatalogType, open_catalog
from frazil.iceberg.jvm.watchdog import stop_session
from frazil.iceberg.jvm.session import open_session
settings = CatalogSettings(name="mem", type=CatalogType.MEMORY)
spark = open_session("killed", [settings], "local[1]")
open_catalog(spark, settings)
spark.sql("CREATE NAMESPACE mem.a")
spark.range(10).writeTo("mem.a.t").create()
spark.sparkContext.parallelize(range(2), 2).map(lambda n: (n, n)).groupByKey().collect()
print("open", flush=True)
if sys.argv[1] == "ends":
    stop_session(spark)
else:
    sys.stdin.read()
"""


def opened(temporary: Path, then: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _OPENS, then],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "open"
    return process


def left_in(temporary: Path) -> list[str]:
    return sorted(str(path.relative_to(temporary)) for path in temporary.iterdir())


def test_a_driver_that_is_killed_with_its_jvm_leaves_nothing_for_long(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    killed = opened(temporary, "waits")
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=60)
    (left,) = left_in(temporary)
    assert any((temporary / left / "local").iterdir()), "Spark's own folders"
    ended = opened(temporary, "ends")
    ended.communicate(timeout=60)
    assert (ended.returncode, left_in(temporary)) == (0, [])
