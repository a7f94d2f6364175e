"""A table whose last commit lies in this machine's future: Iceberg refuses, and so nothing is sent."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest
from iceberg_builders import plan, source_schema

from frazil.clock import SystemClock
from frazil.errors import ClockBehind
from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.tables.tables import Tables
from frazil.model.commit import Accepted, Early
from frazil.model.ids import TableName
from frazil.model.write import TableOptions

pytestmark = pytest.mark.spark


def committed_ahead(catalog: Catalog, name: TableName, seconds: float) -> None:
    """As if a machine whose clock is so far ahead had made the last commit."""
    identifier = catalog.identifier(name)
    now = catalog.java.loadTable(identifier).operations().current().metadataFileLocation()
    file = Path(now.removeprefix("file:"))
    document = json.loads(file.read_text())
    document["last-updated-ms"] = int((SystemClock().now().timestamp() + seconds) * 1000)
    later = file.with_name(f"90000-{uuid4()}.metadata.json")
    later.write_text(json.dumps(document))
    catalog.java.dropTable(identifier, False)
    catalog.java.registerTable(identifier, str(later))


@pytest.fixture
def name(catalog: Catalog, namespace: str) -> TableName:
    name = TableName((namespace,), "ahead")
    Tables(catalog).create(name, source_schema(), TableOptions())
    return name


def test_a_commit_from_the_past_is_not_sent_and_the_gap_is_named(catalog: Catalog, name: TableName) -> None:
    committed_ahead(catalog, name, 300)
    committer = IcebergCommitter(catalog)
    answer = committer.commit(name, committer.head(name), plan(Tables(catalog).load(name), 1, {1: "a"}))
    assert isinstance(answer, Early)
    assert 200 < answer.seconds <= 240, "a minute is allowed for"
    assert "behind" in answer.reason


def test_a_clock_that_is_less_than_a_minute_behind_is_no_harm(catalog: Catalog, name: TableName) -> None:
    committed_ahead(catalog, name, 50)
    committer = IcebergCommitter(catalog)
    assert isinstance(
        committer.commit(name, committer.head(name), plan(Tables(catalog).load(name), 1, {1: "a"})), Accepted
    )


def test_a_schema_is_not_evolved_from_the_past(catalog: Catalog, name: TableName) -> None:
    committed_ahead(catalog, name, 300)
    with pytest.raises(ClockBehind, match="behind"):
        Tables(catalog).set_property(name, "comment", "x")
