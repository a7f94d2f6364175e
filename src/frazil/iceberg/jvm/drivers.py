"""Database drivers in the JVM: found on the class path, or, for the builtin catalog, brought to a session without.

session of our own ----------> its class path has it
session of somebody else ----> theirs; or SQLite's from the cache, laid beside Iceberg in the driver alone: no task
                               ever opens a catalog
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from frazil.errors import ConfigError, FrazilError
from frazil.iceberg.jvm.jars import ICEBERG, SQLITE, fetch

_ICEBERG_CLASS = "org.apache.iceberg.CatalogUtil"
_SQLITE_CLASS = "org.sqlite.JDBC"
_DRIVERS = {
    "jdbc:sqlite:": _SQLITE_CLASS,
    "jdbc:postgresql:": "org.postgresql.Driver",
    "jdbc:mysql:": "com.mysql.cj.jdbc.Driver",
    "jdbc:mariadb:": "org.mariadb.jdbc.Driver",
}


def load_driver(spark: SparkSession, uri: str) -> None:
    """Java looks for database drivers once, maybe before the one of this URI was on the class path.

    Raises ConfigError if SQLite's is missing and cannot be brought, and what Java raises for others.
    """
    for prefix, driver in _DRIVERS.items():
        if uri.startswith(prefix):
            try:
                _load(spark, driver, _loader(spark))
            except Py4JError:
                if driver != _SQLITE_CLASS:
                    raise
                _load(spark, driver, _with_sqlite(spark))


def _with_sqlite(spark: SparkSession) -> Any:
    """Iceberg's class loader, which sees SQLite's driver from now on: Java lets only those use a driver who see it."""
    try:
        path = fetch(SQLITE.coordinate, SQLITE.sha256)
        loader = _load(spark, _ICEBERG_CLASS, _loader(spark)).getClassLoader()
        loader.addURL(spark._jvm.java.io.File(str(path)).toURI().toURL())
    except (FrazilError, Py4JError) as error:
        why = (
            error.message if isinstance(error, FrazilError) else "Iceberg lies on Java's own class path, which is fixed"
        )
        raise ConfigError(
            f"the running Spark session does not have {SQLITE.coordinate}, which the builtin catalog needs, and it "
            f"cannot be brought: {why}",
            hint=f"Start the session with spark.jars.packages={ICEBERG.coordinate},{SQLITE.coordinate}, or lay the jar "
            "where Iceberg's is: in spark.jars, spark.driver.extraClassPath or Spark's own jars directory.",
            jar=SQLITE.coordinate,
        ) from error
    return loader


def _load(spark: SparkSession, name: str, loader: Any) -> Any:
    return spark._jvm.java.lang.Class.forName(name, True, loader)


def _loader(spark: SparkSession) -> Any:
    return spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
