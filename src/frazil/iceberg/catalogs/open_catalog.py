"""Catalogs of a session: made ready, told to Spark SQL, and opened as iceberg-java Catalogs.

    CatalogSettings --prepare--> directories made; memory becomes a builtin catalog in a temporary directory
          |
          +-- iceberg_properties --+--> spark_conf:   spark.sql.catalog.<name>.*
                                   +--> open_catalog: CatalogUtil.buildIcebergCatalog, once per session

Properties that start with `hadoop.` are laid over the session's Hadoop settings, as Spark does it for its own.
The catalog's name is also the name inside a database, so that every reader finds the tables under one name.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from frazil.errors import CatalogRefused, FrazilError
from frazil.iceberg.catalogs.settings import CatalogSettings as CatalogSettings
from frazil.iceberg.catalogs.settings import CatalogType as CatalogType
from frazil.iceberg.catalogs.settings import iceberg_properties as iceberg_properties
from frazil.iceberg.catalogs.settings import is_remote, local_path
from frazil.iceberg.catalogs.settings import without_credentials as without_credentials
from frazil.iceberg.jvm.drivers import load_driver
from frazil.iceberg.jvm.errors import JAVA_ERRORS, as_error, failure_of
from frazil.iceberg.jvm.jars import jars_of
from frazil.iceberg.jvm.tls import install
from frazil.model.ids import TableName
from frazil.paths import scratch

# Hadoop's usual local file system starts two `chmod` processes for each file, one of them for a file of checksums: a
# third of a local commit. Spark shares file systems by their scheme, so that of a catalog is kept apart.
_PLAIN_FILES = {"fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem", "fs.file.impl.disable.cache": "true"}
_SPARK_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
_HADOOP = "hadoop."


@dataclass(frozen=True, slots=True)
class Catalog:
    """An open iceberg-java Catalog (`java`) of a session."""

    spark: SparkSession = field(repr=False)
    settings: CatalogSettings
    java: Any = field(repr=False)

    @property
    def iceberg(self) -> Any:
        """iceberg-java's root package."""
        return self.spark._jvm.org.apache.iceberg

    def namespace(self, levels: tuple[str, ...]) -> Any:
        jvm = self.spark._jvm
        array = self.spark.sparkContext._gateway.new_array(jvm.java.lang.String, len(levels))
        for place, level in enumerate(levels):
            array[place] = level
        return jvm.org.apache.iceberg.catalog.Namespace.of(array)

    def identifier(self, table: TableName) -> Any:
        return self.iceberg.catalog.TableIdentifier.of(self.namespace(table.namespace), table.name)

    def java_map(self, entries: Mapping[str, str]) -> Any:
        return _java_map(self.spark, entries)


def spark_conf(settings: CatalogSettings) -> dict[str, str]:
    """The entries that make the catalog known to Spark SQL under its name.

    Spark's own table cache is off: it would show tables as they were up to half a minute ago.
    """
    prefix = f"spark.sql.catalog.{settings.name}"
    entries = {"cache-enabled": "false", **iceberg_properties(settings)}
    return {prefix: _SPARK_CATALOG, **{f"{prefix}.{key}": value for key, value in entries.items()}}


def prepare(settings: CatalogSettings) -> CatalogSettings:
    """Makes what must exist before anything opens the catalog: directories, and the home of a memory catalog.

    Settling twice gives the same catalog. Raises CatalogRefused if the warehouse cannot be written.
    """
    match settings.type:
        case CatalogType.MEMORY:
            return replace(
                settings, type=CatalogType.BUILTIN, warehouse=str(scratch(f"catalog-{settings.name}")), uri=None
            )
        case CatalogType.BUILTIN:
            _ensure_writable(settings.database.parent, settings)
            if not is_remote(settings.warehouse):
                _ensure_writable(Path(local_path(settings.warehouse or "")), settings)
        case CatalogType.HADOOP if not is_remote(settings.warehouse):
            _ensure_writable(Path(local_path(settings.warehouse or "")), settings)
        case _:
            pass
    return settings


def open_catalog(spark: SparkSession, settings: CatalogSettings) -> Catalog:
    """The iceberg-java Catalog, built once per session and settings.

    Raises CatalogUnavailable if it does not answer, CatalogRefused if it says no.
    """
    settings = prepare(settings)
    properties = iceberg_properties(settings)
    for last in (False, False, True):
        try:
            key = spark.sparkContext.applicationId, settings.name, json.dumps(properties, sort_keys=True)
            if (known := _open.get(key)) is not None:
                return known
            if settings.tls is not None:
                install(spark, settings.tls)
            opened = Catalog(spark, settings, _java_catalog(spark, settings, properties))
            break
        except JAVA_ERRORS as error:
            # Of two that find an empty database, one makes the catalog's tables, and the other is told that they exist.
            if settings.type in (CatalogType.BUILTIN, CatalogType.JDBC) and not last:
                continue
            failure = failure_of(error, properties)
            jars = [jar.coordinate for jar in jars_of([settings])]
            raise as_error(failure, "open the catalog", settings.endpoint, who=settings.identity, jars=jars) from None
    _open[key] = opened
    return opened


def forget_catalogs() -> None:
    """Of a session that is gone. A memory catalog keeps its place: it lives as long as this process."""
    _open.clear()


def catalog_error(catalog: Catalog, error: BaseException, doing: str, table: str | None = None) -> FrazilError:
    """A Java exception as an error that says what failed, against which endpoint, as whom, and what to do."""
    failure = failure_of(error, iceberg_properties(catalog.settings))
    return as_error(failure, doing, catalog.settings.endpoint, table, who=catalog.settings.identity)


def _java_map(spark: SparkSession, entries: Mapping[str, str]) -> Any:
    result = spark._jvm.java.util.HashMap()
    for key, value in entries.items():
        result.put(key, value)
    return result


def _java_catalog(spark: SparkSession, settings: CatalogSettings, properties: Mapping[str, str]) -> Any:
    load_driver(spark, properties.get("uri", ""))
    return spark._jvm.org.apache.iceberg.CatalogUtil.buildIcebergCatalog(
        settings.name, _java_map(spark, properties), _hadoop_conf(spark, settings, properties)
    )


def _hadoop_conf(spark: SparkSession, settings: CatalogSettings, properties: Mapping[str, str]) -> Any:
    conf = spark._jvm.org.apache.hadoop.conf.Configuration(spark.sparkContext._jsc.hadoopConfiguration())
    if settings.type is not CatalogType.HADOOP:  # which overwrites a file, whose old checksum others would trust
        for key, value in _PLAIN_FILES.items():
            conf.set(key, value)
    for key, value in properties.items():
        if key.startswith(_HADOOP):
            conf.set(key.removeprefix(_HADOOP), value)
    return conf


_open: dict[tuple[str, str, str], Catalog] = {}


def _ensure_writable(directory: Path, settings: CatalogSettings) -> None:
    hint = f"make {directory} writable for this user, or set catalog.warehouse to a directory that is"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise CatalogRefused(
            f"catalog {settings.name}: the directory {directory} cannot be written: {error.strerror}",
            hint=hint,
            endpoint=settings.endpoint,
        ) from error
