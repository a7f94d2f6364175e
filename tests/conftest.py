"""Fixtures of the whole suite: one Spark session with a builtin catalog, and a fresh namespace for each test.

warehouse --> catalog_settings --> spark --> catalog --> tables, lake          once per run
                                     |
                 namespace ----------+--> a name no other test uses; tables are `<namespace>.<name>`

rest_uri: Iceberg's REST reference server, started when a test asks for it, stopped at the end of the run
mongodb: a MongoDB server of one member as a replica set, likewise; `database` is a fresh one of it
seaweedfs: an S3 server with an Iceberg REST catalog, likewise; `bucket` is a fresh one of it
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import campaigns
import pytest
import quick_java
from hypothesis import settings
from pymongo import MongoClient
from pymongo.database import Database
from pyspark.sql import SparkSession
from servers.mongod import Mongod, mongod_server
from servers.rest_server import rest_server
from servers.seaweedfs import SeaweedFS, seaweedfs_server

from frazil.iceberg.catalogs.open_catalog import Catalog, CatalogSettings, CatalogType, open_catalog
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.jvm.jars import AWS, POSTGRESQL
from frazil.iceberg.jvm.session import open_session
from frazil.iceberg.tables.tables import Tables

_counter = itertools.count(1)
# A busy machine is no fault of what is tested.
settings.register_profile("frazil", deadline=None)
settings.load_profile("frazil")
QUICK_QUERIES = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""To compile a query for some rows takes longer than to run it as it is."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow ones first: where several processes share the files among them (`make test`), small files fill what is
    left at the end."""
    campaigns.thin(items)
    items.sort(key=lambda item: not campaigns.SLOW & {marker.name for marker in item.iter_markers()})


def pytest_collection_finish(session: pytest.Session) -> None:
    """Before any JVM starts, the suite's own or one that a test starts."""
    cache = session.config.cache.mkdir("java") if hasattr(session.config, "cache") else None
    with_spark = sum(item.get_closest_marker("spark") is not None for item in session.items)
    if session.config.option.collectonly or not with_spark:
        return
    if cache is not None and with_spark >= quick_java.WORTH_AN_ARCHIVE:
        with tempfile.TemporaryDirectory() as scratch:
            quick_java.make_archive(cache, Path(scratch))
    os.environ.setdefault(quick_java.VARIABLE, quick_java.options(cache))


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the builtin catalog that Spark SQL knows as `frazil`."""
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture(scope="session")
def catalog_settings(warehouse: Path) -> CatalogSettings:
    return CatalogSettings(type=CatalogType.BUILTIN, warehouse=str(warehouse))


@pytest.fixture(scope="session")
def spark(catalog_settings: CatalogSettings) -> Iterator[SparkSession]:
    """One session for the whole run; `open_session(..., active=spark)` adds further catalogs to it."""
    session = open_session(
        "frazil-tests",
        [catalog_settings],
        master="local[2]",
        extra=QUICK_QUERIES,
        jars=(AWS, POSTGRESQL),
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def catalog(spark: SparkSession, catalog_settings: CatalogSettings) -> Catalog:
    return open_catalog(spark, catalog_settings)


@pytest.fixture(scope="session")
def tables(catalog: Catalog) -> Tables:
    return Tables(catalog)


@pytest.fixture(scope="session")
def committer(catalog: Catalog) -> IcebergCommitter:
    return IcebergCommitter(catalog)


@pytest.fixture
def namespace() -> str:
    """A namespace no other test of this run uses; it is made when the first table is."""
    return f"ns{next(_counter)}"


@pytest.fixture(scope="session")
def rest_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with rest_server(tmp_path_factory.mktemp("rest")) as uri:
        yield uri


@pytest.fixture(scope="session")
def mongodb() -> Iterator[Mongod]:
    with mongod_server() as server:
        yield server


@pytest.fixture
def database(mongodb: Mongod) -> Iterator[Database[dict[str, Any]]]:
    """A database that no other test of this run uses."""
    with MongoClient[dict[str, Any]](mongodb.uri, uuidRepresentation="standard") as client:
        yield client[f"db{next(_counter)}"]


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFS]:
    with seaweedfs_server(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture
def bucket(seaweedfs: SeaweedFS) -> str:
    """The URL of a bucket that no other test of this run uses."""
    return seaweedfs.bucket(f"bucket{next(_counter)}")
