"""Commits whose answer is lost or wrong, over HTTP against a real REST server."""

from __future__ import annotations

import pytest
from iceberg_builders import SHOP, column, plan, source_schema
from pyspark.sql import SparkSession
from servers.faulty_proxy import Fault, FaultyProxy

from frazil.errors import CatalogRefused, CatalogUnavailable
from frazil.iceberg.catalogs.open_catalog import Catalog, CatalogSettings, CatalogType, open_catalog
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.tables.tables import LoadedTable, Tables
from frazil.model.commit import Accepted, Conflicted, Refused, Unknown
from frazil.model.ids import TableName
from frazil.model.write import DeleteMode, TableOptions
from frazil.sources.cockroachdb.position import Hlc

pytestmark = [pytest.mark.spark, pytest.mark.servers]


@pytest.fixture
def people(behind_proxy: Catalog, namespace: str) -> LoadedTable:
    return Tables(behind_proxy).create(
        TableName((f"lost_{namespace}",), "people"),
        source_schema(),
        TableOptions(mode=DeleteMode.EQUALITY, format_version=2),
    )


@pytest.mark.parametrize(
    ("fault", "answer_type"), [(Fault.DROP, Unknown), (Fault.BROKEN, Unknown), (Fault.CONFLICT, Conflicted)]
)
def test_a_commit_that_landed_is_found_on_the_head(
    behind_proxy: Catalog, proxy: FaultyProxy, people: LoadedTable, fault: Fault, answer_type: type
) -> None:
    """H6, H43: the answer is lost or says conflict; the head shows our entry, whole, and nothing was sent twice."""
    committer = IcebergCommitter(behind_proxy)
    prepared = plan(people, 10, {1: "Ann"})
    sent = proxy.commits
    proxy.fail_next(fault)
    answer = committer.commit(people.name, committer.head(people.name), prepared)
    assert isinstance(answer, answer_type), answer
    assert proxy.commits == sent + 1, "exactly one commit was sent"
    head = committer.head(people.name)
    assert head.newest(SHOP) == head.in_property(SHOP)
    assert head.newest(SHOP).batch_id == prepared.entry.batch_id  # type: ignore[union-attr]
    refs = head.base.metadata.refs()  # type: ignore[attr-defined]
    assert refs["frazil_shop"].snapshotId() == head.snapshot_id
    rows = behind_proxy.spark.sql(f"SELECT * FROM {behind_proxy.settings.name}.{people.name.sql}").collect()
    assert [(row.id, row.name) for row in rows] == [(1, "Ann")], "manifests of the landed commit are still there"


def test_a_foreign_commit_after_a_lost_answer_stays_on_main(
    behind_proxy: Catalog, proxy: FaultyProxy, people: LoadedTable
) -> None:
    """H43: nothing of ours re-applies a commit by itself, so a foreign one on top is not rolled off."""
    committer = IcebergCommitter(behind_proxy)
    proxy.fail_next(Fault.CONFLICT)
    committer.commit(people.name, committer.head(people.name), plan(people, 10, {1: "Ann"}))
    behind_proxy.spark.sql(f"INSERT INTO {behind_proxy.settings.name}.{people.name.sql} VALUES (2, 'foreign')")
    answer = committer.commit(people.name, committer.head(people.name), plan(people, 20, {3: "Cy"}, lower=10))
    assert isinstance(answer, Accepted)
    ids = {
        row.id
        for row in behind_proxy.spark.sql(f"SELECT id FROM {behind_proxy.settings.name}.{people.name.sql}").collect()
    }
    assert ids == {1, 2, 3}


def test_a_forbidden_commit_is_refused_with_a_hint(
    behind_proxy: Catalog, proxy: FaultyProxy, people: LoadedTable
) -> None:
    committer = IcebergCommitter(behind_proxy)
    proxy.fail_next(Fault.REFUSE)
    answer = committer.commit(people.name, committer.head(people.name), plan(people, 10, {1: "Ann"}))
    assert isinstance(answer, Refused)
    assert "grant" in answer.hint
    assert committer.head(people.name).newest(SHOP) is None


@pytest.mark.parametrize("fault", [Fault.DROP, Fault.BROKEN, Fault.CONFLICT])
def test_an_evolution_whose_answer_is_lost_is_found_and_not_repeated(
    behind_proxy: Catalog, proxy: FaultyProxy, people: LoadedTable, fault: Fault
) -> None:
    sent = proxy.commits
    proxy.fail_next(fault)
    evolved = Tables(behind_proxy).evolve(people.name, source_schema(column("more")).columns)
    assert [field.name for field in evolved] == ["id", "name", "more"]
    assert proxy.commits == sent + 1


def test_a_forbidden_evolution_is_an_error_that_names_the_table(
    behind_proxy: Catalog, proxy: FaultyProxy, people: LoadedTable
) -> None:
    proxy.fail_next(Fault.REFUSE)
    with pytest.raises(CatalogRefused, match=people.name.text):
        Tables(behind_proxy).evolve(people.name, source_schema(column("more")).columns)


def test_a_catalog_that_does_not_answer_is_named_without_its_credential(spark: SparkSession) -> None:
    settings = CatalogSettings(
        name="nowhere",
        type=CatalogType.REST,
        uri="http://me:hunter2@127.0.0.1:9/catalog",
        properties={"credential": "me:hunter2", "token": "t0psecret"},
    )
    with pytest.raises(CatalogUnavailable) as caught:
        open_catalog(spark, settings)
    text = f"{caught.value} {caught.value.hint} {caught.value.facts}"
    assert "http://127.0.0.1:9/catalog" in text
    assert "hunter2" not in text
    assert "t0psecret" not in text


def test_the_order_of_entries_survives_a_lost_answer(
    behind_proxy: Catalog, proxy: FaultyProxy, people: LoadedTable
) -> None:
    committer = IcebergCommitter(behind_proxy)
    for number, fault in enumerate([None, Fault.DROP, None], start=1):
        if fault is not None:
            proxy.fail_next(fault)
        committer.commit(
            people.name, committer.head(people.name), plan(people, number, {number: "x"}, lower=number - 1)
        )
    entries = committer.head(people.name).entries(SHOP)
    assert [entry.resolved for entry in entries] == [Hlc(3), Hlc(2), Hlc(1)]
