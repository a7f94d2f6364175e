"""The builtin catalog: other engines open it, and several processes commit to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import quick_java
from iceberg_builders import SHOP, plan, source_schema
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from frazil.errors import CatalogRefused
from frazil.iceberg.catalogs.open_catalog import Catalog, CatalogSettings, open_catalog
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.tables.tables import Tables
from frazil.model.commit import Accepted
from frazil.model.ids import TableName
from frazil.model.write import DeleteMode, TableOptions

pytestmark = pytest.mark.spark
HERE = Path(__file__).parent

COMMITTER = """
import sys
from concurrent.futures import ThreadPoolExecutor
sys.path.insert(0, {here!r})
from iceberg_builders import plan
from frazil.iceberg.catalogs.open_catalog import CatalogSettings, open_catalog
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.jvm.session import open_session
from frazil.iceberg.tables.tables import Tables
from frazil.model.commit import Accepted
from frazil.model.ids import TableName

settings = CatalogSettings(warehouse={warehouse!r})
spark = open_session("other-process", [settings], master="local[1]", jvm_memory="512m")
catalog = open_catalog(spark, settings)
lake, name = IcebergCommitter(catalog), TableName.parse({table!r})
table = Tables(catalog).load(name)
landed = 0
print("ready", flush=True)
sys.stdin.readline()
for attempt in range(40):
    if landed == 5:
        break
    answer = lake.commit(name, lake.head(name), plan(table, 1000 + attempt, {{5000 + attempt: "theirs"}}))
    landed += isinstance(answer, Accepted)
print("landed", landed, flush=True)
"""


def test_pyiceberg_opens_the_same_tables(catalog: Catalog, warehouse: Path, namespace: str) -> None:
    table = Tables(catalog).create(
        TableName((namespace,), "people"), source_schema(), TableOptions(mode=DeleteMode.EQUALITY, format_version=2)
    )
    committer = IcebergCommitter(catalog)
    answer = committer.commit(table.name, committer.head(table.name), plan(table, 10, {1: "Ann", 2: "Bob"}))
    assert isinstance(answer, Accepted)
    other = SqlCatalog("frazil", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=str(warehouse))
    found = other.load_table((namespace, "people"))
    assert found.scan().to_arrow().sort_by("id").to_pylist() == [{"id": 1, "name": "Ann"}, {"id": 2, "name": "Bob"}]
    assert json.loads(found.properties[SHOP.ledger_property])["frazil.resolved"] == "10.0000000000"
    assert (namespace,) in other.list_namespaces()


def test_two_processes_commit_to_one_table_and_no_row_is_lost(
    catalog: Catalog, warehouse: Path, namespace: str
) -> None:
    """H12: SQLite's lock makes them wait, the head's compare-and-set makes one of two lose."""
    table = Tables(catalog).create(
        TableName((namespace,), "shared"), source_schema(), TableOptions(mode=DeleteMode.EQUALITY, format_version=2)
    )
    script = COMMITTER.format(here=str(HERE), warehouse=str(warehouse), table=table.name.text)
    committer, landed = IcebergCommitter(catalog), 0
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "ready\n"
        other.stdin.write("go\n")
        other.stdin.flush()
        for attempt in range(40):
            if landed == 5:
                break
            answer = committer.commit(table.name, committer.head(table.name), plan(table, attempt, {attempt: "ours"}))
            landed += isinstance(answer, Accepted)
        theirs = other.stdout.readline().split()
    assert (landed, theirs) == (5, ["landed", "5"])
    assert len(committer.head(table.name).ancestry) == 10
    rows = catalog.spark.sql(f"SELECT name, count(*) AS n FROM frazil.{table.name.sql} GROUP BY name").collect()
    assert {row.name: row.n for row in rows} == {"ours": 5, "theirs": 5}


def test_a_database_that_cannot_be_written_is_an_error_with_its_path(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "catalog.db").mkdir()
    with pytest.raises(CatalogRefused, match=r"catalog\.db"):
        open_catalog(catalog.spark, CatalogSettings(name="broken", warehouse=str(tmp_path)))


def test_the_bundled_java_runs_a_session_and_commits(tmp_path: Path) -> None:
    """Without JAVA_HOME and without java on the PATH; many files, so that method handles are used on Java 21 too."""
    script = f"""
import sys
from concurrent.futures import ThreadPoolExecutor
sys.path.insert(0, {str(HERE)!r})
from iceberg_builders import plan, source_schema
from frazil.iceberg.catalogs.open_catalog import CatalogSettings, open_catalog
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.jvm.session import open_session
from frazil.iceberg.tables.tables import Tables
from frazil.model.ids import TableName
from frazil.model.write import DeleteMode, TableOptions

settings = CatalogSettings(warehouse={str(tmp_path / "wh")!r})
spark = open_session("bundled", [settings], master="local[1]", jvm_memory="512m")
catalog = open_catalog(spark, settings)
lake, name = IcebergCommitter(catalog), TableName(("a",), "people")
table = Tables(catalog).create(name, source_schema(), TableOptions(mode=DeleteMode.EQUALITY, format_version=2))
answer = lake.commit(name, lake.head(name), plan(table, 10, {{n: "x" for n in range(25)}}, files=25))
print(spark._jvm.java.lang.System.getProperty("java.version").split(".")[0], type(answer).__name__,
      spark.table("frazil.a.people").count())
"""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in (*Path("/usr/bin").iterdir(), *Path("/bin").iterdir()):
        if tool.name != "java" and not (tools / tool.name).is_symlink():
            (tools / tool.name).symlink_to(tool)
    environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    environment |= {"PATH": str(tools), quick_java.VARIABLE: quick_java.PLAIN}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.split() == ["21", "Accepted", "25"], done.stderr
    assert done.stderr == "", "a session starts without a word on stderr"


def test_an_empty_warehouse_may_be_opened_by_many_at_the_same_moment(spark: SparkSession, tmp_path: Path) -> None:
    """Two daemons that start at once: only one of them makes the catalog's own tables."""
    for number in range(5):
        warehouse = str(tmp_path / f"warehouse{number}")
        settings = [CatalogSettings(name=f"at_once_{number}_{one}", warehouse=warehouse) for one in range(6)]
        with ThreadPoolExecutor(6) as pool:
            opened = list(pool.map(lambda one: open_catalog(spark, one), settings))
        assert len(opened) == 6
