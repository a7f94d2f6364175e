"""A catalog of its own for each test: its deletion queue holds nothing of others. And tables for the doctor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from doctor_builders import Make, Ward
from pyspark.sql import SparkSession
from retention_builders import Stage

from frazil.iceberg.catalogs.open_catalog import Catalog, CatalogSettings, open_catalog
from frazil.iceberg.jvm.session import open_session
from frazil.model.ids import TableName


@pytest.fixture
def own(spark: SparkSession, tmp_path: Path, namespace: str) -> Catalog:
    settings = CatalogSettings(name=f"retention_{namespace}", warehouse=str(tmp_path / "warehouse"))
    open_session("frazil-tests", [settings], active=spark)
    return open_catalog(spark, settings)


@pytest.fixture
def stage(own: Catalog) -> Stage:
    return Stage(own, TableName(("shop",), "orders"))


@pytest.fixture
def make(catalog: Catalog, namespace: str, tmp_path: Path) -> Make:
    def made(**options: Any) -> Ward:
        return Ward(catalog, TableName((namespace,), "t"), tmp_path, **options)

    return made
