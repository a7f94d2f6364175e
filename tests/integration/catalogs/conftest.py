"""One home for tables per kind of catalog, and another process to race with.

    home(kind) --> a catalog, what it is expected to be able to, and the proxy before it where it speaks HTTP
    rival      --> a process of its own that commits when told to

What is quick to start runs with every `make test`; the others are marked `more_servers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from contract_homes import Home, Rival
from pyspark.sql import SparkSession
from servers.faulty_proxy import FaultyProxy, faulty_proxy
from servers.hive import hive_metastore
from servers.moto_glue import moto_server
from servers.nessie import nessie_server
from servers.postgres import postgres_server
from servers.seaweedfs import SeaweedFS

from frazil.iceberg.catalogs.capabilities import Capabilities
from frazil.iceberg.catalogs.open_catalog import CatalogSettings, CatalogType, open_catalog, prepare
from frazil.iceberg.jvm.session import open_session

QUICK = ("builtin", "hadoop", "rest", "seaweedfs", "postgresql")
"""A memory catalog is a builtin one in a directory of its own; the contract of the lake has it too."""
MORE = ("hive", "nessie", "glue")


@pytest.fixture(scope="session")
def rival() -> Iterator[Rival]:
    other = Rival()
    yield other
    other.stop()


@pytest.fixture(
    scope="module",
    params=[*QUICK, *(pytest.param(kind, marks=pytest.mark.more_servers) for kind in MORE)],
)
def home(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Home]:
    directory = tmp_path_factory.mktemp(request.param)
    with ExitStack() as stack:
        made = _MAKE[request.param](request, directory, stack.enter_context)
        settings = prepare(made.settings)
        open_session("frazil-tests", [settings], active=spark)
        yield Home(request.param, open_catalog(spark, settings), made.can, made.proxy, request.param != "glue")


@dataclass(frozen=True)
class _Made:
    settings: CatalogSettings
    can: Capabilities
    proxy: FaultyProxy | None = None


Enter = Callable[[AbstractContextManager[object]], object]


def _builtin(request: pytest.FixtureRequest, directory: Path, enter: Enter) -> _Made:
    return _Made(CatalogSettings(name="c_builtin", warehouse=str(directory)), Capabilities(views=True))


def _hadoop(request: pytest.FixtureRequest, directory: Path, enter: Enter) -> _Made:
    settings = CatalogSettings(name="c_hadoop", type=CatalogType.HADOOP, warehouse=str(directory))
    return _Made(settings, Capabilities(rename=False, several_writers=False))


def _rest(request: pytest.FixtureRequest, directory: Path, enter: Enter) -> _Made:
    proxy = enter(faulty_proxy(request.getfixturevalue("rest_uri")))
    assert isinstance(proxy, FaultyProxy)
    settings = CatalogSettings(name="c_rest", type=CatalogType.REST, uri=proxy.uri)
    return _Made(settings, Capabilities(multi_table=True, views=True), proxy)


def _seaweedfs(request: pytest.FixtureRequest, directory: Path, enter: Enter) -> _Made:
    server = request.getfixturevalue("seaweedfs")
    assert isinstance(server, SeaweedFS)
    proxy = enter(faulty_proxy(server.catalog_uri))
    assert isinstance(proxy, FaultyProxy)
    settings = CatalogSettings(
        name="c_seaweedfs", type=CatalogType.REST, uri=proxy.uri, properties=server.catalog_properties
    )
    # Its table buckets take no Puffin files, which deletion vectors are.
    return _Made(settings, Capabilities(v3=False), proxy)


def _postgresql(request: pytest.FixtureRequest, directory: Path, enter: Enter) -> _Made:
    uri = enter(postgres_server())
    settings = CatalogSettings(name="c_postgresql", type=CatalogType.JDBC, uri=f"jdbc:{uri}", warehouse=str(directory))
    return _Made(settings, Capabilities(views=True))


def _hive(request: pytest.FixtureRequest, directory: Path, enter: Enter) -> _Made:
    uri = enter(hive_metastore(directory / "metastore"))
    settings = CatalogSettings(
        name="c_hive", type=CatalogType.HIVE, uri=str(uri), warehouse=str(directory / "warehouse")
    )
    return _Made(settings, Capabilities(nested_namespaces=False, views=True))


def _nessie(request: pytest.FixtureRequest, directory: Path, enter: Enter) -> _Made:
    uri = enter(nessie_server(directory))
    settings = CatalogSettings(
        name="c_nessie", type=CatalogType.NESSIE, uri=str(uri), warehouse=str(directory / "warehouse")
    )
    return _Made(settings, Capabilities(views=True))


def _glue(request: pytest.FixtureRequest, directory: Path, enter: Enter) -> _Made:
    """moto: a stand-in that accepts any credential, with tables on SeaweedFS."""
    server = request.getfixturevalue("seaweedfs")
    assert isinstance(server, SeaweedFS)
    endpoint = enter(moto_server(directory))
    enter(_aws_keys(request.getfixturevalue("spark")))
    settings = CatalogSettings(
        name="c_glue",
        type=CatalogType.GLUE,
        uri=str(endpoint),
        warehouse=f"{server.bucket('glue-tables')}/warehouse",
        properties=server.fileio,
    )
    return _Made(settings, Capabilities(nested_namespaces=False))


@contextmanager
def _aws_keys(spark: SparkSession) -> Iterator[None]:
    """Glue's client finds keys in the machine's own chain alone; the driver's JVM gets some for as long as it needs."""
    system = spark._jvm.java.lang.System
    for name, value in _ANY_KEYS.items():
        system.setProperty(name, value)
    yield
    for name in _ANY_KEYS:
        system.clearProperty(name)


_ANY_KEYS = {"aws.accessKeyId": "AKIASTANDIN", "aws.secretAccessKey": "any will do"}


_MAKE = {
    "builtin": _builtin,
    "hadoop": _hadoop,
    "rest": _rest,
    "seaweedfs": _seaweedfs,
    "postgresql": _postgresql,
    "hive": _hive,
    "nessie": _nessie,
    "glue": _glue,
}
