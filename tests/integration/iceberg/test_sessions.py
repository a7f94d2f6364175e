"""Sessions: quiet, with their catalogs, and with executors that share nothing with the driver."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import quick_java
from pyspark.sql import SparkSession

from frazil.errors import ConfigError
from frazil.iceberg.catalogs.open_catalog import CatalogSettings, CatalogType
from frazil.iceberg.jvm.session import open_session, session_conf

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
    assert session_conf("spark://head:7077", jvm_memory="4g")["spark.driver.memory"] == "4g"
    assert session_conf("local[2]")["spark.driver.memory"] == "2g"


@pytest.mark.parametrize("name", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"])
def test_java_gets_one_collector_and_the_one_of_whoever_has_chosen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses to start with two."""
    for known in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(known, raising=False)
    assert "UseParallelGC" in session_conf("local[2]")["spark.driver.extraJavaOptions"]
    monkeypatch.setenv(name, "-Xss1m -XX:+UseG1GC")
    options = session_conf("local[2]")["spark.driver.extraJavaOptions"]
    assert "UseParallelGC" not in options
    assert "Tier4" in options


def test_a_session_without_the_jars_of_a_catalog_is_refused_with_their_coordinates(spark: SparkSession) -> None:
    settings = CatalogSettings(
        name="other", type=CatalogType.JDBC, uri="jdbc:mysql://127.0.0.1/x", warehouse="/nowhere"
    )
    with pytest.raises(ConfigError, match="mysql-connector") as caught:
        open_session("x", [settings], active=spark)
    assert "iceberg-spark-runtime" in caught.value.hint
    assert "mysql-connector" in caught.value.hint


def test_separate_executors_read_iceberg_and_no_secret_stands_on_a_command_line(tmp_path: Path) -> None:
    """Every user of a machine can read the command lines of all processes, those of executors too."""
    script = f"""
from pathlib import Path
from frazil.iceberg.catalogs.open_catalog import CatalogSettings, CatalogType
from frazil.iceberg.jvm.session import open_session
secretive = CatalogSettings(
    name="secretive", type=CatalogType.REST, uri="http://127.0.0.1:9", properties={{"credential": "me:{SECRET}"}}
)
spark = open_session(
    "cluster-{tmp_path.name}",
    [CatalogSettings(warehouse={str(tmp_path)!r}), secretive],
    master="local-cluster[2,1,1024]",
    extra={{"spark.executor.extraJavaOptions": {quick_java.PLAIN!r}}},
)
spark.sql("CREATE NAMESPACE frazil.a")
spark.range(10).writeTo("frazil.a.t").create()
def double(batches):
    for batch in batches:
        yield from (batch, batch)
print(spark.table("frazil.a.t").repartition(2).mapInArrow(double, "id long").count())
lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
own = [line for line in lines if spark.sparkContext.applicationId.encode() in line]
print(len(own), sum(b"cluster-{tmp_path.name}" in line for line in lines))
print(sum(b"{SECRET}" in line for line in lines), spark.conf.get("spark.sql.catalog.secretive.credential"))
spark.stop()
"""
    (tmp_path / "script.py").write_text(script)
    command = [sys.executable, str(tmp_path / "script.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    rows, processes, secrets = done.stdout.splitlines()
    assert rows == "20", done.stderr
    assert processes == "2 1", "two executors and one driver must be among those that were looked at"
    assert secrets == f"0 me:{SECRET}"


def test_an_impossible_catalog_is_refused_before_java_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        open_session("x", [CatalogSettings(type=CatalogType.HADOOP)])


def test_a_python_worker_begins_with_our_modules_and_without_archives_on_its_path(spark: SparkSession) -> None:
    """Spark invalidates the import caches before each task: an archive would be read again every time."""

    def look(_: Iterator[int]) -> list[object]:
        return [
            [entry for entry in sys.path if "pyspark.zip" in entry or entry.endswith(".jar")],
            "frazil.ingest.write.write_task" in sys.modules,
        ]

    assert spark.sparkContext.parallelize([0], 1).mapPartitions(look).collect() == [[], True]
