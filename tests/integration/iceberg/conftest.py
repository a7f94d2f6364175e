"""Catalogs of one test alone, and a REST catalog whose answers get lost when told to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from servers.faulty_proxy import FaultyProxy, faulty_proxy

from frazil.iceberg.catalogs.open_catalog import Catalog, CatalogSettings, CatalogType, open_catalog
from frazil.iceberg.jvm.session import open_session


@pytest.fixture(scope="module")
def proxy(rest_uri: str) -> Iterator[FaultyProxy]:
    with faulty_proxy(rest_uri) as running:
        yield running


@pytest.fixture(scope="module")
def behind_proxy(request: pytest.FixtureRequest, spark: SparkSession, proxy: FaultyProxy) -> Catalog:
    settings = CatalogSettings(name=f"proxied_{request.module.__name__}", type=CatalogType.REST, uri=proxy.uri)
    open_session("frazil-tests", [settings], active=spark)
    return open_catalog(spark, settings)


@pytest.fixture
def own(spark: SparkSession, tmp_path: Path, namespace: str) -> Catalog:
    """Nobody else writes to its system tables."""
    settings = CatalogSettings(name=f"own_{namespace}", warehouse=str(tmp_path / "warehouse"))
    open_session("frazil-tests", [settings], active=spark)
    return open_catalog(spark, settings)
