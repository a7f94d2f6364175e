"""Flink's upsert sink: epochs of changes, a commit with equality deletes each, then read by Spark.

    a JVM with Flink's mini cluster and Iceberg's sink, behind Py4J --INSERT INTO--> a table of the benchmark's catalog
        --> read beside the same rows freshly written

Nobody maintains the table, for nobody does unless told to. Flink makes the changes itself, as many and as random as
ours. Its jars are fetched with the first run, some 120 MB: that is why `--quick` and `--tiny` leave it out.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from bench.comparing import asking_spark, median_seconds, write_anew
from bench.feeds import rows_sql
from bench.report import Measured, measured
from bench.stage import Bench, say, timed
from frazil.iceberg.catalogs.open_catalog import iceberg_properties
from frazil.iceberg.jvm.jars import SQLITE, fetch
from frazil.iceberg.jvm.java import find_java

LOCK = Path(__file__).with_name("flink.lock")
_TABLE = "flink_upsert"
_OF_SPARK = ("py4j-*.jar", "hadoop-client-api-*.jar", "hadoop-client-runtime-*.jar", "commons-logging-*.jar")
_OPENED = ("java.lang", "java.util", "java.time", "java.net", "java.io", "java.nio", "java.math", "java.lang.reflect")
_COLUMNS = "id BIGINT NOT NULL, name STRING, amount DECIMAL(12, 2), city STRING, `at` TIMESTAMP_LTZ(6)"
_CHANGE = (
    "id, CONCAT('customer ', CAST(id AS STRING), ' ', CAST(cents AS STRING)), CAST(cents AS DECIMAL(20, 0)) / 100, "
    "'Berlin', CURRENT_TIMESTAMP"
)

Sql = Callable[[str], None]


def flink(bench: Bench) -> list[Measured]:
    sizes, catalog, epochs = bench.sizes, bench.settings.name, bench.sizes.read_after[1]
    own = f"bench.{_TABLE}"
    with _running(bench.work) as sql:
        _create(bench, sql)
        bench.spark.sql(f"INSERT INTO {catalog}.{own} {rows_sql(sizes.read_rows)}")
        epoch = f"INSERT INTO {catalog}.{own} SELECT {_CHANGE} FROM changes"
        took = [timed(lambda: sql(epoch)) for _ in range(epochs)]
    bench.spark.sql(f"REFRESH TABLE {catalog}.{own}")
    write_anew(bench.spark, f"{catalog}.{own}", f"{catalog}.{own}_fresh", 2)
    ask = asking_spark(bench.spark, catalog)
    expected = ask(f"{own}_fresh")
    if expected[0] != sizes.read_rows:
        raise AssertionError(f"updates of {sizes.read_rows} rows left {expected[0]}")
    seconds = median_seconds(ask, (f"{own}_fresh", own), expected, sizes.read_rounds)
    say(f"  Flink: an epoch {statistics.median(took):.2f} s; read {seconds[own]:.2f} / {seconds[f'{own}_fresh']:.2f} s")
    label = f"Flink's upsert sink, {epochs} epochs of {sizes.changes:,} into {sizes.read_rows:,} rows"
    return [
        measured(f"{label}: an epoch", statistics.median(took), "s"),
        measured(f"{label}: read by Spark / freshly written", seconds[own] / seconds[f"{own}_fresh"], "x"),
    ]


def _create(bench: Bench, sql: Sql) -> None:
    """The table, in the catalog that Spark has too, and where changes come from."""
    sizes, settings = bench.sizes, bench.settings
    known = {**iceberg_properties(settings), "type": "iceberg", "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog"}
    sql(f"CREATE CATALOG {settings.name} WITH ({_options(known)})")
    sql(f"CREATE DATABASE IF NOT EXISTS {settings.name}.bench")
    upserts = {"format-version": "2", "write.upsert.enabled": "true", "write.parquet.compression-codec": "zstd"}
    sql(
        f"CREATE TABLE {settings.name}.bench.{_TABLE} ({_COLUMNS}, PRIMARY KEY (id) NOT ENFORCED) "
        f"WITH ({_options(upserts)})"
    )
    random = {
        "connector": "datagen",
        "number-of-rows": str(sizes.changes),
        "rows-per-second": "1000000000",
        **{f"fields.id.{bound}": str(value) for bound, value in (("min", 0), ("max", sizes.read_rows - 1))},
        **{f"fields.cents.{bound}": str(value) for bound, value in (("min", 0), ("max", 99_999_999))},
    }
    sql(f"CREATE TEMPORARY TABLE changes (id BIGINT, cents BIGINT) WITH ({_options(random)})")


def _options(options: dict[str, str]) -> str:
    return ", ".join(f"'{name}'='{value}'" for name, value in options.items())


@contextmanager
def _running(work: Path) -> Iterator[Sql]:
    """Statements are carried out one after the other, in batch mode: each INSERT is a commit."""
    log = work / "flink.log"
    with log.open("w") as output:
        port, process = launch_gateway(
            classpath=os.pathsep.join(map(str, _jars())),
            javaopts=["-Xmx2g", *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED)],
            die_on_exit=True,
            redirect_stdout=output,
            redirect_stderr=output,
            java_path=str(find_java().executable),
            return_proc=True,
        )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        try:
            of_flink = gateway.jvm.org.apache.flink
            configuration = of_flink.configuration.Configuration()
            configuration.setString("parallelism.default", str(os.cpu_count()))
            settings = of_flink.table.api.EnvironmentSettings.newInstance().inBatchMode()
            tables = of_flink.table.api.TableEnvironment.create(settings.withConfiguration(configuration).build())
            yield lambda text: getattr(tables.executeSql(text), "await")()
        finally:
            gateway.shutdown()
            process.terminate()
            process.wait()


def _jars() -> list[Path]:
    fetched = [fetch(*line.split()) for line in LOCK.read_text().splitlines()]
    of_spark = Path(pyspark.__file__).parent / "jars"
    return [*fetched, fetch(SQLITE.coordinate, SQLITE.sha256), *(p for name in _OF_SPARK for p in of_spark.glob(name))]
