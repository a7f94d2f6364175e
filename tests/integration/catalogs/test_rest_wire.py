"""What goes over the wire to a REST catalog, recorded by a proxy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from catalog_builders import SHOP, column, plan, source_schema
from pyspark.sql import SparkSession
from servers.faulty_proxy import Fault, FaultyProxy, faulty_proxy
from servers.seaweedfs import SeaweedFS

from frazil.iceberg.catalogs.open_catalog import Catalog, CatalogSettings, CatalogType, open_catalog
from frazil.iceberg.catalogs.rest import declares_transactions
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.jvm.session import open_session
from frazil.iceberg.tables.tables import LoadedTable, Tables
from frazil.model.commit import Accepted, Conflicted, Unknown
from frazil.model.ids import TableName
from frazil.model.sort import SortField
from frazil.model.write import DeleteMode, TableOptions
from frazil.sources.cockroachdb.position import Hlc

pytestmark = [pytest.mark.spark, pytest.mark.servers]
EQUALITY = TableOptions(mode=DeleteMode.EQUALITY, format_version=2, sort=(SortField("name"),))
ALL = {
    "assert-table-uuid",
    "assert-ref-snapshot-id",
    "assert-current-schema-id",
    "assert-default-spec-id",
    "assert-default-sort-order-id",
}


@pytest.fixture(scope="module")
def proxy(rest_uri: str) -> Iterator[FaultyProxy]:
    with faulty_proxy(rest_uri) as made:
        yield made


@pytest.fixture(scope="module")
def wired(spark: SparkSession, proxy: FaultyProxy) -> Catalog:
    settings = CatalogSettings(
        name="wired",
        type=CatalogType.REST,
        uri=proxy.uri,
        properties={"header.X-Iceberg-Access-Delegation": "vended-credentials", "header.X-Team": "shop"},
    )
    open_session("frazil-tests", [settings], active=spark)
    return open_catalog(spark, settings)


@pytest.fixture
def people(wired: Catalog, namespace: str) -> LoadedTable:
    return Tables(wired).create(TableName((namespace,), "people"), source_schema(), EQUALITY)


@pytest.fixture
def orders(wired: Catalog, namespace: str) -> LoadedTable:
    return Tables(wired).create(TableName((namespace,), "orders"), source_schema(), EQUALITY)


def by_type(requirements: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    assert len({entry["type"] for entry in requirements}) >= len(ALL)
    refs = [entry for entry in requirements if entry["type"] == "assert-ref-snapshot-id" and entry["ref"] == "main"]
    return {**{entry["type"]: entry for entry in requirements}, "assert-ref-snapshot-id": refs[0]}


def test_a_commit_asserts_table_branch_schema_spec_and_order(
    wired: Catalog, proxy: FaultyProxy, people: LoadedTable
) -> None:
    committer = IcebergCommitter(wired)
    first = committer.commit(people.name, committer.head(people.name), plan(people, 10, {1: "Ann"}))
    assert isinstance(first, Accepted), first
    second = committer.commit(people.name, committer.head(people.name), plan(people, 20, {2: "Bob"}, lower=10))
    assert isinstance(second, Accepted), second
    path, body = proxy.requests[-1]
    assert path.endswith(f"/namespaces/{people.name.namespace[0]}/tables/people")
    sent = by_type(body["requirements"])
    assert set(sent) >= ALL
    assert sent["assert-table-uuid"]["uuid"] == people.uuid
    assert sent["assert-ref-snapshot-id"]["snapshot-id"] == first.snapshot_id
    assert sent["assert-current-schema-id"]["current-schema-id"] == people.schema.schema_id
    assert sent["assert-default-spec-id"]["default-spec-id"] == people.spec.spec_id
    assert sent["assert-default-sort-order-id"]["default-sort-order-id"] == people.sort_order_id
    assert {update["action"] for update in body["updates"]} >= {"add-snapshot", "set-snapshot-ref", "set-properties"}


def test_a_schema_that_changes_on_the_way_conflicts(
    wired: Catalog, proxy: FaultyProxy, rest_uri: str, people: LoadedTable
) -> None:
    """H55: the branch has not moved, so only the schema's own assertion can refuse, and only on the server."""
    others = open_catalog(wired.spark, CatalogSettings(name="others", type=CatalogType.REST, uri=rest_uri))
    committer = IcebergCommitter(wired)
    head, prepared = committer.head(people.name), plan(people, 10, {1: "Ann"})
    proxy.before_next = lambda: Tables(others).evolve(people.name, [column("theirs")])
    answer = committer.commit(people.name, head, prepared)
    assert isinstance(answer, Conflicted), answer
    assert "schema" in answer.reason
    assert committer.head(people.name).ancestry == ()


def test_headers_of_the_configuration_are_sent(wired: Catalog, proxy: FaultyProxy, people: LoadedTable) -> None:
    IcebergCommitter(wired).head(people.name)
    sent = {name.lower(): value for name, value in proxy.headers.items()}
    assert sent["x-iceberg-access-delegation"] == "vended-credentials"
    assert sent["x-team"] == "shop"


def test_the_server_itself_declares_transactions(wired: Catalog, catalog: Catalog) -> None:
    assert declares_transactions(wired)
    assert not declares_transactions(catalog), "a builtin catalog commits one by one"


def test_a_server_that_declares_nothing_is_not_believed_to_have_transactions(
    spark: SparkSession, seaweedfs: SeaweedFS
) -> None:
    """iceberg-java takes them for granted of such a server."""
    settings = CatalogSettings(
        name="undeclared", type=CatalogType.REST, uri=seaweedfs.catalog_uri, properties=seaweedfs.catalog_properties
    )
    assert not declares_transactions(open_catalog(spark, settings))


def test_several_tables_land_in_one_request(
    wired: Catalog, proxy: FaultyProxy, people: LoadedTable, orders: LoadedTable
) -> None:
    committer, sent = IcebergCommitter(wired), proxy.commits
    commits = [(t.name, committer.head(t.name), plan(t, 10, {n: "x"})) for n, t in enumerate((people, orders))]
    answers = committer.commit_many(commits)
    assert all(isinstance(answer, Accepted) for answer in answers), answers
    assert proxy.commits == sent + 1
    path, body = proxy.requests[-1]
    assert path.endswith("/transactions/commit")
    for table, change in zip((people, orders), body["table-changes"], strict=True):
        requirements = by_type(change["requirements"])
        assert set(requirements) >= ALL
        assert requirements["assert-table-uuid"]["uuid"] == table.uuid
        assert committer.head(table.name).newest(SHOP).resolved == Hlc(10)  # type: ignore[union-attr]
    ids = [committer.head(t.name).snapshot_id for t in (people, orders)]
    assert ids == [answer.snapshot_id for answer in answers if isinstance(answer, Accepted)]


def test_one_stale_table_keeps_all_of_them_back(wired: Catalog, people: LoadedTable, orders: LoadedTable) -> None:
    committer = IcebergCommitter(wired)
    heads = {table.name: committer.head(table.name) for table in (people, orders)}
    assert isinstance(
        committer.commit(orders.name, committer.head(orders.name), plan(orders, 5, {5: "early"})), Accepted
    )
    answers = committer.commit_many([(t.name, heads[t.name], plan(t, 10, {1: "x"})) for t in (people, orders)])
    assert all(isinstance(answer, Conflicted) for answer in answers), answers
    assert committer.head(people.name).ancestry == ()


@pytest.mark.parametrize("fault", [Fault.DROP, Fault.BROKEN])
def test_the_lost_answer_to_several_tables_proves_nothing_of_any(
    wired: Catalog, proxy: FaultyProxy, people: LoadedTable, orders: LoadedTable, fault: Fault
) -> None:
    """H6"""
    committer = IcebergCommitter(wired)
    commits = [(t.name, committer.head(t.name), plan(t, 10, {1: "x"})) for t in (people, orders)]
    proxy.fail_next(fault)
    answers = committer.commit_many(commits)
    assert all(isinstance(answer, Unknown) for answer in answers), answers
    for table in (people, orders):
        assert committer.head(table.name).newest(SHOP).resolved == Hlc(10)  # type: ignore[union-attr]
