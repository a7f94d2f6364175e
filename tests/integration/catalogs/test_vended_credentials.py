"""Credentials that a catalog gives out with each table, on an S3 server that checks signatures.

The proxy adds to a real catalog's answers what a catalog that vends would: neither the catalog's settings nor the
environment holds a key, so whatever is read or written was signed with what was vended.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from catalog_builders import plan, shape
from integration.vectors.vector_builders import Stage
from pyspark.sql import SparkSession
from servers.faulty_proxy import FaultyProxy, faulty_proxy
from servers.seaweedfs import SeaweedFS

from frazil.errors import ConfigError
from frazil.lake.catalogs import Catalog, CatalogSettings, CatalogType, open_catalog
from frazil.lake.commits import IcebergLake
from frazil.lake.session import open_session
from frazil.lake.tables import Tables
from frazil.model.commit import Accepted
from frazil.model.names import TableName
from frazil.model.write import DeleteMode, TableOptions

pytestmark = [pytest.mark.spark, pytest.mark.servers]
EQUALITY = TableOptions(mode=DeleteMode.EQUALITY, format_version=2)
_KEYS = ("s3.access-key-id", "s3.secret-access-key")


def split(server: SeaweedFS) -> tuple[dict[str, str], dict[str, str]]:
    """The keys of the storage, and everything else."""
    keys = {name: server.fileio[name] for name in _KEYS}
    return keys, {name: value for name, value in server.catalog_properties.items() if name not in _KEYS}


@pytest.fixture(scope="module")
def proxy(seaweedfs: SeaweedFS) -> Iterator[FaultyProxy]:
    with faulty_proxy(seaweedfs.catalog_uri) as made:
        yield made


@pytest.fixture(scope="module")
def vending(spark: SparkSession, seaweedfs: SeaweedFS, proxy: FaultyProxy) -> Catalog:
    _, rest = split(seaweedfs)
    properties = {**rest, "header.X-Iceberg-Access-Delegation": "vended-credentials"}
    settings = CatalogSettings(name="vending", type=CatalogType.REST, uri=proxy.uri, properties=properties)
    open_session("frazil-tests", [settings], active=spark)
    return open_catalog(spark, settings)


def in_config(keys: dict[str, str]) -> dict[str, Any]:
    return {"config": keys}


def by_prefix(keys: dict[str, str]) -> dict[str, Any]:
    wrong = dict.fromkeys(keys, "of-another-place")
    return {"storage-credentials": [{"prefix": "s3", "config": wrong}, {"prefix": "s3://tables", "config": keys}]}


@pytest.mark.parametrize("form", [in_config, by_prefix])
def test_vended_credentials_reach_the_workers(
    vending: Catalog, proxy: FaultyProxy, seaweedfs: SeaweedFS, namespace: str, tmp_path: Path, form: Any
) -> None:
    keys, _ = split(seaweedfs)
    proxy.vend = lambda: form(keys)
    stage = Stage(vending, TableName((namespace,), "vended"), tmp_path, format_version=2)
    assert {name: stage.loaded.storage[name] for name in _KEYS} == keys
    stage.epoch({n: f"{n}@0" for n in range(10)})
    stage.epoch({1: "1@1"}, [2])
    stage.check(pyiceberg=False)
    assert seaweedfs.secret_access_key not in repr(stage.loaded)


def test_every_head_brings_the_newest_credentials(
    vending: Catalog, proxy: FaultyProxy, seaweedfs: SeaweedFS, namespace: str
) -> None:
    keys, _ = split(seaweedfs)
    numbers = itertools.count(1)
    proxy.vend = lambda: in_config({**keys, "s3.session-token-expires-at-ms": str(next(numbers))})
    made = Tables(vending).create(TableName((namespace,), "rotating"), shape(), EQUALITY)
    lake = IcebergLake(vending)
    seen = []
    for resolved in (10, 20):
        head = lake.head(made.name)
        loaded = lake.loaded(made.name, head)
        seen.append(int(loaded.storage["s3.session-token-expires-at-ms"]))
        assert isinstance(lake.commit(made.name, head, plan(loaded, resolved, {resolved: "x"})), Accepted)
    assert seen[0] < seen[1]


def test_a_catalog_that_only_signs_itself_is_refused(
    vending: Catalog, proxy: FaultyProxy, seaweedfs: SeaweedFS, namespace: str
) -> None:
    keys, _ = split(seaweedfs)
    proxy.vend = lambda: in_config(keys)
    made = Tables(vending).create(TableName((namespace,), "signed"), shape(), EQUALITY)
    proxy.vend = lambda: in_config({"s3.remote-signing-enabled": "true"})
    with pytest.raises(ConfigError, match="signs requests") as caught:
        Tables(vending).load(made.name)
    assert "vended-credentials" in caught.value.hint
