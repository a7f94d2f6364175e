"""docs/reading.md tells the truth: what it says to paste into each engine reads what was published.

The blocks run as they stand there but for the namespace, and for what they would download: jars and DuckDB's
extensions come from where this machine has them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest
from feed_builders import Lab, at, delete, table, upsert
from pyspark.sql import SparkSession

from frazil.iceberg.jvm.jars import ICEBERG, SQLITE, Coordinate
from frazil.iceberg.jvm.java import find_java
from frazil.paths import cache_home

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "reading.md"
PACKAGES = f"{ICEBERG.coordinate},{SQLITE.coordinate}"
NOW, FIRST = [(1, "z"), (3, "w")], [(1, "x"), (2, "y")]


def block(engine: str, language: str) -> str:
    """The first block of this language under the engine's heading."""
    _, found, rest = PAGE.read_text(encoding="utf-8").partition(f"\n### {engine}\n")
    assert found, f"no heading {engine}"
    match = re.search(rf"^```{language}\n(.*?)^```", rest.partition("\n### ")[0], re.MULTILINE | re.DOTALL)
    assert match is not None, f"no block of {language} for {engine}"
    return match[1]


@pytest.fixture
def lab(spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Two epochs, in a directory that has `warehouse/`."""
    lab = Lab(spark, warehouse, namespace, tmp_path, tables=[table("orders")])
    lab.feed.data(at(1), [upsert([1], at(1), a=1, b="x"), upsert([2], at(1), a=2, b="y")], topic="orders")
    lab.feed.resolved(at(2))
    changed = [upsert([1], at(3), a=1, b="z"), delete([2], at(3)), upsert([3], at(3), a=3, b="w")]
    lab.feed.data(at(3), changed, topic="orders")
    lab.feed.resolved(at(4))
    lab.run()
    (tmp_path / "warehouse").symlink_to(warehouse)
    monkeypatch.chdir(tmp_path)
    return lab


def here(lab: Lab, text: str) -> str:
    return text.replace("analytics", lab.namespace)


def jars() -> str:
    named = [Coordinate.parse(jar.coordinate).file_name for jar in (ICEBERG, SQLITE)]
    return ",".join(str(cache_home() / "jars" / name) for name in named)


def alone(command: list[str]) -> str:
    """In a process of its own, with a Java of its own; what it printed."""
    environment = {**os.environ, "JAVA_HOME": str(find_java().executable.parents[1]), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout


def pairs(rows: Any) -> list[tuple[Any, Any]]:
    return sorted((row["a"], row["b"]) for row in rows.to_pylist())


def test_the_page_names_the_jars_that_frazil_itself_uses() -> None:
    assert PACKAGES in block("Spark SQL", "sh")
    assert PACKAGES in block("PySpark", "python")


def test_spark_sql_reads_it(lab: Lab) -> None:
    home = Path(pyspark.__file__).parent
    text = here(lab, block("Spark SQL", "sh")).replace(f"--packages {PACKAGES}", f"--jars {jars()}")
    printed = alone(["bash", "-c", text.replace("spark-sql", str(home / "bin" / "spark-sql"), 1)])
    rows = [tuple(line.split("\t")) for line in printed.splitlines() if "\t" in line]
    assert sorted(rows) == [("1", "z"), ("3", "w")]


def test_the_statements_of_spark_sql_run(lab: Lab) -> None:
    statements = here(lab, block("Spark SQL", "sql")).split(";")
    count, now, snapshots = (lab.spark.sql(text).collect() for text in statements if text.strip())
    assert count[0][0] == 2
    assert sorted((row["a"], row["b"]) for row in now) == NOW
    assert {row[2] for row in snapshots} == {at(2).text, at(4).text}


def test_pyspark_reads_it(lab: Lab) -> None:
    text = here(lab, block("PySpark", "python"))
    assert "spark.jars.packages" in text
    text = text.replace("spark.jars.packages", "spark.jars").replace(PACKAGES, jars())
    text += "\nprint(sorted(map(tuple, orders.collect())), sorted(map(tuple, first.collect())), sep='\\n')"
    assert alone([sys.executable, "-c", text]).splitlines()[-2:] == [str(NOW), str(FIRST)]


def test_pyiceberg_reads_it(lab: Lab) -> None:
    names: dict[str, Any] = {}
    exec(here(lab, block("PyIceberg", "python")), names)
    assert (pairs(names["orders"]), pairs(names["first"])) == (NOW, FIRST)


def test_duckdb_reads_it(lab: Lab) -> None:
    pytest.importorskip("duckdb")
    loads = []
    for extension in ("avro", "iceberg"):
        package = pytest.importorskip(f"duckdb_extension_{extension}")
        loads.append(f"LOAD '{next(Path(package.__file__).parent.rglob('*.duckdb_extension'))}'")
    text = here(lab, block("DuckDB", "python"))
    assert "INSTALL iceberg; LOAD iceberg" in text
    names: dict[str, Any] = {}
    exec(text.replace("INSTALL iceberg; LOAD iceberg", "; ".join(loads)), names)
    assert (pairs(names["orders"]), pairs(names["first"])) == (NOW, FIRST)
