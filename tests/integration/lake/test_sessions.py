"""Sessions: quiet, with their catalogs, and with executors that share nothing with the driver."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from frazil.errors import ConfigError
from frazil.lake.catalogs import CatalogSettings, CatalogType
from frazil.lake.session import open_session, session_conf

SECRET = "hunter2-of-the-catalog"
pytestmark = pytest.mark.spark


def test_a_running_session_is_reused_and_gets_the_catalog(spark: SparkSession, tmp_path: Path) -> None:
    settings = CatalogSettings(name="added_later", type=CatalogType.HADOOP, warehouse=str(tmp_path))
    assert open_session("again", [settings]) is spark
    assert spark.sql("SHOW NAMESPACES IN added_later").collect() == []


def test_the_session_speaks_utc_and_binds_to_loopback(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.conf.get("spark.ui.enabled") == "false"


def test_a_cluster_keeps_its_own_addresses() -> None:
    conf = session_conf("spark://head:7077")
    assert "spark.driver.bindAddress" not in conf
    assert "spark.driver.memory" not in conf
    assert session_conf("spark://head:7077", driver_memory="4g")["spark.driver.memory"] == "4g"
    assert session_conf("local[2]")["spark.driver.memory"] == "2g"


def test_a_session_without_iceberg_is_refused_with_the_coordinate() -> None:
    script = """
from pyspark.sql import SparkSession
from frazil.errors import ConfigError
from frazil.lake.session import open_session
from frazil.lake.java import find_java, launcher_home
import os
os.environ["JAVA_HOME"] = str(launcher_home(find_java()))
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    open_session("x", [], active=spark)
except ConfigError as error:
    print(error.hint)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert "iceberg-spark-runtime" in done.stdout, done.stderr


def test_separate_executors_run_python_and_read_iceberg(tmp_path: Path) -> None:
    script = f"""
from frazil.lake.catalogs import CatalogSettings
from frazil.lake.session import open_session
spark = open_session("cluster", [CatalogSettings(warehouse={str(tmp_path)!r})], master="local-cluster[2,1,1024]")
spark.sql("CREATE NAMESPACE frazil.a")
spark.range(10).writeTo("frazil.a.t").create()
def double(batches):
    for batch in batches:
        yield from (batch, batch)
print(spark.table("frazil.a.t").repartition(2).mapInArrow(double, "id long").count())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.strip() == "20", done.stderr


def test_an_impossible_catalog_is_refused_before_java_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        open_session("x", [CatalogSettings(type=CatalogType.HADOOP)])


def test_a_python_worker_begins_with_our_modules_and_without_archives_on_its_path(spark: SparkSession) -> None:
    """Spark invalidates the import caches before each task: an archive would be read again every time."""

    def look(_: Iterator[int]) -> list[object]:
        return [
            [entry for entry in sys.path if "pyspark.zip" in entry or entry.endswith(".jar")],
            "frazil.workers.task" in sys.modules,
        ]

    assert spark.sparkContext.parallelize([0], 1).mapPartitions(look).collect() == [[], True]


def test_no_secret_of_a_catalog_stands_on_the_command_line_of_java(tmp_path: Path) -> None:
    """Every user of a machine can read the command lines of all processes."""
    script = f"""
from pathlib import Path
from frazil.lake.session import open_session
from frazil.lake.catalogs import CatalogSettings, CatalogType
settings = CatalogSettings(type=CatalogType.REST, uri="http://127.0.0.1:9", properties={{"credential": "me:{SECRET}"}})
spark = open_session("secretive", [settings], master="local[1]")
lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
assert any(b"secretive" in line for line in lines), "the JVM of this session must be among them"
assert not [line for line in lines if b"{SECRET}" in line]
assert spark.conf.get("spark.sql.catalog.frazil.credential") == "me:{SECRET}"
spark.stop()
print("kept")
"""
    (tmp_path / "script.py").write_text(script)
    command = [sys.executable, str(tmp_path / "script.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.strip().endswith("kept"), done.stderr[-2000:]
