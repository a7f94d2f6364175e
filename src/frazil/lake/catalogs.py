"""Catalogs: what the configuration says, as Spark's settings and as an iceberg-java Catalog.

    CatalogSettings --settle--> memory becomes a builtin catalog in a temporary directory
          |
          +-- iceberg_properties --+--> spark_conf:   spark.sql.catalog.<name>.*
                                   +--> open_catalog: CatalogUtil.buildIcebergCatalog, once per session

| type    | is                                                                                              |
|---------|-------------------------------------------------------------------------------------------------|
| builtin | JdbcCatalog, schema V1, on SQLite: `<warehouse>/catalog.db`; PyIceberg's SqlCatalog opens it too |
| memory  | builtin in a temporary directory that is removed at exit                                        |
| hadoop  | HadoopCatalog: one writer process, or HDFS                                                      |
| rest    | any server that speaks Iceberg's REST protocol                                                  |

The catalog's name is also the name inside the SQLite file, so that every reader finds the tables under one name.
"""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pyspark.sql import SparkSession

from frazil.errors import CatalogRefused, ConfigError
from frazil.lake.failures import JAVA_ERRORS, as_error, failure_of
from frazil.model.names import TableName

DEFAULT_NAME = "frazil"
_BUSY_TIMEOUT_MS = 60_000
_REMOTE = ("s3", "s3a", "gs", "abfs", "abfss", "hdfs", "wasbs", "http", "https")
_SPARK_CATALOG = "org.apache.iceberg.spark.SparkCatalog"


class CatalogType(StrEnum):
    BUILTIN = "builtin"
    HADOOP = "hadoop"
    MEMORY = "memory"
    REST = "rest"


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSettings:
    """One configured catalog. `properties` go to Iceberg untouched and win over everything derived here.

    `uri` is the endpoint of a REST server; for builtin, the SQLite file if it lies outside the warehouse.
    """

    name: str = DEFAULT_NAME
    type: CatalogType = CatalogType.BUILTIN
    warehouse: str | None = None
    uri: str | None = field(default=None, repr=False)
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not self.name.replace("_", "").isalnum():
            raise ConfigError(
                f"catalog name {self.name!r} must consist of letters, digits and '_'", hint="rename the catalog"
            )
        if self.type is CatalogType.REST and not self.uri:
            raise ConfigError(
                f"catalog {self.name}: type rest needs a uri", hint="set catalog.uri to the REST endpoint"
            )
        if self.type in (CatalogType.BUILTIN, CatalogType.HADOOP) and not self.warehouse:
            raise ConfigError(
                f"catalog {self.name}: type {self.type} needs a warehouse",
                hint="set catalog.warehouse to a directory, e.g. ./warehouse",
            )
        if self.type is CatalogType.BUILTIN and not self.uri and _is_remote(self.warehouse):
            raise ConfigError(
                f"catalog {self.name}: the warehouse {self.warehouse} is remote, and SQLite needs a local file",
                hint="set catalog.uri to the path of a local catalog.db, or use a rest catalog",
            )

    @property
    def endpoint(self) -> str:
        """Where the catalog is, to be shown to people: without user names, passwords or tokens."""
        match self.type:
            case CatalogType.REST:
                return without_credentials(self.uri or "")
            case CatalogType.BUILTIN:
                return str(self.database)
            case CatalogType.HADOOP:
                return without_credentials(str(self.warehouse))
            case CatalogType.MEMORY:
                return "memory"

    @property
    def database(self) -> Path:
        """The SQLite file of a builtin catalog."""
        if self.uri:
            return Path(self.uri.removeprefix("jdbc:").removeprefix("sqlite:///").removeprefix("sqlite:")).absolute()
        return Path(_local_path(self.warehouse or "")) / "catalog.db"


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
        result = self.spark._jvm.java.util.HashMap()
        for key, value in entries.items():
            result.put(key, value)
        return result


def iceberg_properties(settings: CatalogSettings) -> dict[str, str]:
    """What iceberg-java is told. A memory catalog must be settled first."""
    match settings.type:
        case CatalogType.BUILTIN:
            derived = {
                "type": "jdbc",
                "uri": f"jdbc:sqlite:{settings.database}",
                "jdbc.schema-version": "V1",
                "jdbc.busy_timeout": str(_BUSY_TIMEOUT_MS),
                "warehouse": _local_path(settings.warehouse or ""),
            }
        case CatalogType.HADOOP:
            derived = {"type": "hadoop", "warehouse": _local_path(settings.warehouse or "")}
        case CatalogType.REST:
            derived = {"type": "rest", "uri": settings.uri or ""}
            if settings.warehouse:
                derived["warehouse"] = settings.warehouse
        case CatalogType.MEMORY:
            raise AssertionError("a memory catalog has no properties before it is settled")
    return {**derived, **settings.properties}


def spark_conf(settings: CatalogSettings) -> dict[str, str]:
    """The entries that make the catalog known to Spark SQL under its name.

    Spark's own table cache is off: it would show tables as they were up to half a minute ago.
    """
    prefix = f"spark.sql.catalog.{settings.name}"
    entries = {"cache-enabled": "false", **iceberg_properties(settings)}
    return {prefix: _SPARK_CATALOG, **{f"{prefix}.{key}": value for key, value in entries.items()}}


def settle(settings: CatalogSettings) -> CatalogSettings:
    """Makes what must exist before anything opens the catalog: directories, and the home of a memory catalog.

    Settling twice gives the same catalog. Raises CatalogRefused if the warehouse cannot be written.
    """
    match settings.type:
        case CatalogType.MEMORY:
            return replace(settings, type=CatalogType.BUILTIN, warehouse=_temporary_warehouse(settings.name), uri=None)
        case CatalogType.BUILTIN:
            _ensure_writable(settings.database.parent, settings)
            if not _is_remote(settings.warehouse):
                _ensure_writable(Path(_local_path(settings.warehouse or "")), settings)
        case CatalogType.HADOOP if not _is_remote(settings.warehouse):
            _ensure_writable(Path(_local_path(settings.warehouse or "")), settings)
        case _:
            pass
    return settings


def open_catalog(spark: SparkSession, settings: CatalogSettings) -> Catalog:
    """The iceberg-java Catalog, built once per session and settings.

    Raises CatalogUnavailable if it does not answer, CatalogRefused if it says no.
    """
    settings = settle(settings)
    properties = iceberg_properties(settings)
    key = spark.sparkContext.applicationId, settings.name, json.dumps(properties, sort_keys=True)
    if key in _open:
        return _open[key]
    jvm = spark._jvm
    java_properties = jvm.java.util.HashMap()
    for name, value in properties.items():
        java_properties.put(name, value)
    try:
        java = jvm.org.apache.iceberg.CatalogUtil.buildIcebergCatalog(
            settings.name, java_properties, spark.sparkContext._jsc.hadoopConfiguration()
        )
    except JAVA_ERRORS as error:
        raise as_error(failure_of(error, properties), "open the catalog", settings.endpoint) from None
    _open[key] = Catalog(spark, settings, java)
    return _open[key]


def without_credentials(uri: str) -> str:
    """A URI as it may be shown: no user, no password, no query."""
    parts = urlsplit(uri)
    if not parts.netloc:
        return uri
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


_open: dict[tuple[str, str, str], Catalog] = {}
_temporary: dict[str, str] = {}


def _temporary_warehouse(name: str) -> str:
    if name not in _temporary:
        _temporary[name] = tempfile.mkdtemp(prefix=f"frazil-{name}-")
        atexit.register(shutil.rmtree, _temporary[name], ignore_errors=True)
    return _temporary[name]


def _is_remote(warehouse: str | None) -> bool:
    return urlsplit(warehouse or "").scheme in _REMOTE


def _local_path(warehouse: str) -> str:
    """An absolute path for a local directory; anything remote stays as it is written."""
    if _is_remote(warehouse):
        return warehouse.rstrip("/")
    path = warehouse.removeprefix("file:")
    if path.startswith("//"):
        path = "/" + path.lstrip("/")
    return str(Path(path).expanduser().absolute())


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
