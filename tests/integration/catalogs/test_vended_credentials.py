"""Credentials that a catalog gives out with each table, on an S3 server that checks signatures.

Neither the catalog's settings nor the environment holds a key, so whatever is read or written was signed with what was
vended: by the server itself, or, in the forms that it does not use, by a proxy that adds them to its answers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from catalog_builders import plan, source_schema
from integration.vectors.vector_builders import Stage
from pyspark.sql import SparkSession
from servers.faulty_proxy import FaultyProxy, faulty_proxy
from servers.seaweedfs import SeaweedFS

from frazil.errors import ConfigError
from frazil.iceberg.catalogs.open_catalog import Catalog, CatalogSettings, CatalogType, open_catalog
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.jvm.session import open_session
from frazil.iceberg.tables.tables import Tables
from frazil.model.commit import Accepted
from frazil.model.ids import TableName
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
def vending(spark: SparkSession, seaweedfs: SeaweedFS) -> Catalog:
    """The server vends."""
    asking = {"header.X-Iceberg-Access-Delegation": "vended-credentials"}
    return opened(spark, "vending", seaweedfs.catalog_uri, {**split(seaweedfs)[1], **asking})


@pytest.fixture(scope="module")
def adding(spark: SparkSession, seaweedfs: SeaweedFS, proxy: FaultyProxy) -> Catalog:
    """The server is not asked to; the proxy vends."""
    return opened(spark, "adding", proxy.uri, split(seaweedfs)[1])


def opened(spark: SparkSession, name: str, uri: str, properties: dict[str, str]) -> Catalog:
    settings = CatalogSettings(name=name, type=CatalogType.REST, uri=uri, properties=properties)
    open_session("frazil-tests", [settings], active=spark)
    return open_catalog(spark, settings)


def in_config(keys: dict[str, str]) -> dict[str, Any]:
    return {"config": keys}


def by_prefix(keys: dict[str, str]) -> dict[str, Any]:
    wrong = dict.fromkeys(keys, "of-another-place")
    return {"storage-credentials": [{"prefix": "s3", "config": wrong}, {"prefix": "s3://tables", "config": keys}]}


def test_credentials_vended_by_the_server_reach_the_workers(
    vending: Catalog, seaweedfs: SeaweedFS, namespace: str, tmp_path: Path
) -> None:
    stage = Stage(vending, TableName((namespace,), "vended"), tmp_path, format_version=2)
    assert stage.loaded.storage["s3.access-key-id"] not in ("", seaweedfs.access_key_id)
    assert stage.loaded.storage["s3.session-token"]
    assert stage.loaded.storage["s3.secret-access-key"] not in repr(stage.loaded)
    stage.epoch({n: f"{n}@0" for n in range(10)})
    stage.epoch({1: "1@1"}, [2])
    stage.check(pyiceberg=False)


@pytest.mark.parametrize("form", [in_config, by_prefix])
def test_both_forms_of_vending_are_understood(
    adding: Catalog, proxy: FaultyProxy, seaweedfs: SeaweedFS, namespace: str, form: Any
) -> None:
    keys, _ = split(seaweedfs)
    proxy.vend = lambda: form(keys)
    made = Tables(adding).create(TableName((namespace,), "added"), source_schema(), EQUALITY)
    assert {name: made.storage[name] for name in _KEYS} == keys
    committer = IcebergCommitter(adding)
    assert isinstance(committer.commit(made.name, committer.head(made.name), plan(made, 10, {1: "Ann"})), Accepted)


def test_every_head_brings_the_newest_credentials(
    adding: Catalog, proxy: FaultyProxy, seaweedfs: SeaweedFS, namespace: str
) -> None:
    keys, _ = split(seaweedfs)
    numbers = itertools.count(1)
    proxy.vend = lambda: in_config({**keys, "s3.session-token-expires-at-ms": str(next(numbers))})
    made = Tables(adding).create(TableName((namespace,), "rotating"), source_schema(), EQUALITY)
    committer = IcebergCommitter(adding)
    seen = []
    for resolved in (10, 20):
        head = committer.head(made.name)
        loaded = committer.loaded(made.name, head)
        seen.append(int(loaded.storage["s3.session-token-expires-at-ms"]))
        assert isinstance(committer.commit(made.name, head, plan(loaded, resolved, {resolved: "x"})), Accepted)
    assert seen[0] < seen[1]


def test_a_catalog_that_only_signs_itself_is_refused(
    adding: Catalog, proxy: FaultyProxy, seaweedfs: SeaweedFS, namespace: str
) -> None:
    keys, _ = split(seaweedfs)
    proxy.vend = lambda: in_config(keys)
    made = Tables(adding).create(TableName((namespace,), "signed"), source_schema(), EQUALITY)
    proxy.vend = lambda: in_config({"s3.remote-signing-enabled": "true"})
    with pytest.raises(ConfigError, match="signs requests") as caught:
        Tables(adding).load(made.name)
    assert "vended-credentials" in caught.value.hint
