"""What every catalog must do the same way: one suite for builtin, hadoop, memory and rest."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from uuid import UUID

import pytest
from iceberg_builders import FENCE, SHOP, catalog_of, column, plan, source_schema

from frazil.clock import SystemClock
from frazil.errors import BadInput, TableChanged
from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.system.fence_register import PIPELINES, IcebergArbiter
from frazil.iceberg.tables.tables import LoadedTable, Tables
from frazil.model.commit import Accepted, Conflicted, Refused
from frazil.model.ids import JobId, TableName
from frazil.model.ledger import Fence, TableHead, published
from frazil.model.partition import parse_partition
from frazil.model.schema import DOUBLE, FLOAT, INT, LONG, STRING, Decimal, ListOf
from frazil.model.sort import SortField
from frazil.model.write import DeleteMode, TableOptions
from frazil.sources.cockroachdb.position import Hlc

pytestmark = [pytest.mark.spark, pytest.mark.servers]
T = TypeVar("T")
KINDS = ("builtin", "hadoop", "memory", "rest")


@pytest.fixture(scope="module", params=KINDS)
def home(request: pytest.FixtureRequest) -> Catalog:
    return catalog_of(request)


@pytest.fixture
def people(home: Catalog, namespace: str) -> LoadedTable:
    return Tables(home).create(
        TableName((namespace,), "people"), source_schema(), TableOptions(mode=DeleteMode.EQUALITY, format_version=2)
    )


def read(home: Catalog, table: TableName) -> dict[int, str]:
    rows = home.spark.sql(f"SELECT * FROM {home.settings.name}.{table.sql}").collect()
    assert len({row.id for row in rows}) == len(rows), f"a key lives twice: {rows}"
    return {row.id: row.name for row in rows}


def commit(home: Catalog, table: LoadedTable, *arguments: object, **options: object) -> TableHead:
    """Commits on the newest head, which must succeed, and gives the head after it."""
    committer = IcebergCommitter(home)
    answer = committer.commit(table.name, committer.head(table.name), plan(table, *arguments, **options))  # type: ignore[arg-type]
    assert isinstance(answer, Accepted), answer
    return committer.head(table.name)


def at_once(count: int, do: Callable[[int], T]) -> list[T]:
    """Runs do(0), do(1), ... in threads that start together; raises what one of them raises."""
    gate = threading.Barrier(count)

    def run(n: int) -> T:
        gate.wait()
        return do(n)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def test_a_created_table_has_its_key_as_identifier_and_bounded_metadata(home: Catalog, namespace: str) -> None:
    """H31: previous metadata versions are bounded."""
    tables = Tables(home)
    name = TableName((namespace, "deep"), "people")
    assert not tables.exists(name)
    made = tables.create(
        name,
        source_schema(column("tags", ListOf(STRING)), column("amount", Decimal(12, 2))),
        TableOptions(mode=DeleteMode.EQUALITY, format_version=2),
    )
    assert tables.exists(name)
    assert made == tables.load(name)
    assert [field.name for field in made.schema.identifiers] == ["id"]
    assert [field.required for field in made.schema] == [True, False, False, False]
    assert made.schema.field("amount").type == Decimal(12, 2)  # type: ignore[union-attr]
    assert (made.format_version, made.spec.spec_id) == (2, 0)
    assert made.properties["write.metadata.delete-after-commit.enabled"] == "true"
    assert made.properties["write.metadata.previous-versions-max"] == "100"
    assert made.properties["write.parquet.compression-codec"] == "zstd"


def test_a_partitioned_table_starts_unpartitioned_so_that_deletes_can_reach_all_of_it(
    home: Catalog, namespace: str
) -> None:
    """H1."""
    tables, name = Tables(home), TableName((namespace,), "cut")
    by_name = TableOptions(
        mode=DeleteMode.EQUALITY,
        partition=(parse_partition("bucket(4, id)"), parse_partition("name")),
        sort=(SortField("name"),),
    )
    made = tables.create(name, source_schema(), by_name)
    assert [(spec.spec_id, len(spec.fields)) for spec in made.specs] == [(0, 0), (1, 2)]
    assert (made.spec.spec_id, made.delete_spec.spec_id) == (1, 0)
    assert made.sort == (SortField("name"),)
    grown = tables.ensure(
        name, source_schema(), TableOptions(mode=DeleteMode.EQUALITY, partition=by_name.partition[1:])
    )
    assert ([field.name for field in grown.spec.fields], grown.delete_spec.spec_id) == (["name"], 0)
    assert tables.ensure(name, source_schema(), TableOptions(mode=DeleteMode.EQUALITY)) == grown


def test_creating_a_table_that_exists_loads_it(home: Catalog, people: LoadedTable) -> None:
    again = Tables(home).create(
        people.name, source_schema(column("more")), TableOptions(mode=DeleteMode.EQUALITY, format_version=2)
    )
    assert again == people


def test_a_changelog_has_three_columns_more_and_no_identifier(home: Catalog, namespace: str) -> None:
    made = Tables(home).create(
        TableName((namespace,), "log"), source_schema(), TableOptions(mode=DeleteMode.APPEND_ONLY, format_version=2)
    )
    assert [field.name for field in made.schema] == ["id", "name", "_op", "_position", "_before"]
    assert str(made.schema.fields[-1].type) == "struct<id: long, name: string>"
    assert made.schema.identifiers == ()


def test_a_missing_table_is_an_error_that_names_it(home: Catalog, namespace: str) -> None:
    """H10"""
    with pytest.raises(TableChanged, match=f"{namespace}.gone"):
        IcebergCommitter(home).head(TableName((namespace,), "gone"))


def test_columns_are_added_and_types_widened_in_one_commit(home: Catalog, namespace: str) -> None:
    tables = Tables(home)
    name = TableName((namespace,), "growing")
    first = tables.create(
        name,
        source_schema(column("n", INT), column("f", FLOAT), column("d", Decimal(8, 2))),
        TableOptions(mode=DeleteMode.EQUALITY, format_version=2),
    )
    grown = tables.evolve(
        name,
        [
            column("n", LONG),
            column("f", DOUBLE),
            column("d", Decimal(12, 2)),
            column("a.b", STRING),
            column("tags", ListOf(STRING)),
        ],
    )
    assert [(f.name, str(f.type)) for f in grown][2:] == [
        ("n", "long"),
        ("f", "double"),
        ("d", "decimal(12, 2)"),
        ("a.b", "string"),
        ("tags", "list<string>"),
    ]
    assert [f.id for f in grown][:5] == [f.id for f in first.schema]
    assert tables.evolve(name, [column("a.b", STRING)]) == grown, "evolving again changes nothing"


def test_a_foreign_column_keeps_its_id_and_ours_gets_another(home: Catalog, people: LoadedTable) -> None:
    """H55"""
    home.spark.sql(f"ALTER TABLE {home.settings.name}.{people.name.sql} ADD COLUMN theirs string")
    evolved = Tables(home).evolve(people.name, [column("ours")])
    assert len({field.id for field in evolved}) == 4
    assert [field.name for field in evolved] == ["id", "name", "theirs", "ours"]


def test_two_that_evolve_at_once_both_get_their_column(home: Catalog, people: LoadedTable) -> None:
    """H55: whoever loses looks again, and its column gets another id."""
    at_once(2, lambda n: Tables(home).evolve(people.name, [column(f"by{n}")]))
    evolved = Tables(home).load(people.name).schema
    assert {field.name for field in evolved} == {"id", "name", "by0", "by1"}
    assert len({field.id for field in evolved}) == 4


def test_two_that_create_one_table_at_once_get_the_same(home: Catalog, namespace: str) -> None:
    name = TableName((namespace, "raced"), "people")
    made = at_once(
        2,
        lambda n: Tables(home).create(name, source_schema(), TableOptions(mode=DeleteMode.EQUALITY, format_version=2)),
    )
    assert made[0] == made[1] == Tables(home).load(name)


def test_a_contradicting_type_names_table_and_column(home: Catalog, people: LoadedTable) -> None:
    with pytest.raises(BadInput, match=rf"{people.name}.*'name' is string.*needs long"):
        Tables(home).evolve(people.name, [column("name", LONG)])


def test_ensure_creates_then_evolves(home: Catalog, namespace: str) -> None:
    tables = Tables(home)
    name = TableName((namespace,), "ensured")
    tables.ensure(name, source_schema(), TableOptions(mode=DeleteMode.EQUALITY, format_version=2))
    grown = tables.ensure(name, source_schema(column("more")), TableOptions(mode=DeleteMode.EQUALITY, format_version=2))
    assert [field.name for field in grown.schema] == ["id", "name", "more"]


def test_rows_and_deletes_are_read_back_by_spark(home: Catalog, people: LoadedTable) -> None:
    commit(home, people, 10, {1: "Ann", 2: "Bob", 3: "Cy"})
    commit(home, people, 20, {2: "Bert"}, [2, 3], lower=10)
    assert read(home, people.name) == {1: "Ann", 2: "Bert"}


def test_many_files_are_handed_over_in_one_go(home: Catalog, people: LoadedTable) -> None:
    rows = {i: f"n{i}" for i in range(60)}
    commit(home, people, 10, rows, files=30)
    commit(home, people, 20, dict.fromkeys(range(40), "new"), list(range(40)), lower=10, files=40)
    assert read(home, people.name) == rows | dict.fromkeys(range(40), "new")


def test_the_ledger_is_in_summary_property_and_tag(home: Catalog, people: LoadedTable) -> None:
    head = commit(home, people, 10, {1: "Ann"})
    entry = head.newest(SHOP)
    assert entry is not None
    assert entry.resolved == Hlc(10)
    assert head.in_property(SHOP) == entry
    assert entry.snapshot_id == head.snapshot_id
    assert head.ancestry[0].summary["crdb.job_id"] == "shop"
    assert tags(head) == {"frazil_shop": head.snapshot_id}
    head = commit(home, people, 20, {2: "Bob"}, lower=10)
    assert tags(head) == {"frazil_shop": head.snapshot_id}
    assert [(e.entry.resolved, e.snapshot_id) for e in published(head, SHOP)] == [
        (Hlc(20), head.ancestry[0].snapshot_id),
        (Hlc(10), head.ancestry[1].snapshot_id),
    ]


def test_an_empty_plan_publishes_an_empty_snapshot(home: Catalog, people: LoadedTable) -> None:
    commit(home, people, 10, {1: "Ann"})
    head = commit(home, people, 20, lower=10)
    assert head.newest(SHOP).resolved == Hlc(20)  # type: ignore[union-attr]
    assert read(home, people.name) == {1: "Ann"}


def test_two_pipelines_keep_their_ledgers_apart(home: Catalog, people: LoadedTable) -> None:
    commit(home, people, 10, {1: "Ann"})
    other = JobId("other")
    head = commit(home, people, 99, {2: "Bob"}, job=other)
    assert head.newest(SHOP).resolved == Hlc(10)  # type: ignore[union-attr]
    assert head.newest(other).resolved == Hlc(99)  # type: ignore[union-attr]
    assert set(tags(head)) == {"frazil_shop", "frazil_other"}


def test_a_stale_head_conflicts_and_changes_nothing(home: Catalog, people: LoadedTable) -> None:
    """H44, H47: a commit lands on the head it was made for or not at all."""
    committer = IcebergCommitter(home)
    stale = committer.head(people.name)
    before = commit(home, people, 10, {1: "Ann"})
    answer = committer.commit(people.name, stale, plan(people, 20, {2: "Bob"}))
    assert isinstance(answer, Conflicted), answer
    after = committer.head(people.name)
    assert after == before
    assert read(home, people.name) == {1: "Ann"}


def test_a_zombie_cannot_set_the_property_back(home: Catalog, people: LoadedTable) -> None:
    """H50: the property travels with a snapshot, which asserts the head of main."""
    zombie_head = commit(home, people, 10, {1: "Ann"})
    commit(home, people, 20, {2: "Bob"}, lower=10)
    answer = IcebergCommitter(home).commit(people.name, zombie_head, plan(people, 15, lower=10))
    assert isinstance(answer, Conflicted), answer
    assert IcebergCommitter(home).head(people.name).in_property(SHOP).resolved == Hlc(20)  # type: ignore[union-attr]


def test_of_two_racing_commits_on_one_head_exactly_one_wins(home: Catalog, people: LoadedTable) -> None:
    """H12, H45"""
    committer = IcebergCommitter(home)
    for round_ in range(5):
        contenders = [
            (committer.head(people.name), plan(people, 100 + round_, {1000 * round_ + n: f"by {n}"})) for n in range(2)
        ]
        answers = at_once(2, lambda n, contenders=contenders: committer.commit(people.name, *contenders[n]))
        assert sorted(type(answer).__name__ for answer in answers) == ["Accepted", "Conflicted"], answers
        assert len(committer.head(people.name).ancestry) == round_ + 1


def test_a_dropped_table_refuses_the_commit(home: Catalog, people: LoadedTable) -> None:
    """H10"""
    committer = IcebergCommitter(home)
    head, prepared = committer.head(people.name), plan(people, 10, {1: "Ann"})
    assert Tables(home).drop(people.name)
    answer = committer.commit(people.name, head, prepared)
    assert isinstance(answer, Refused | Conflicted), answer
    assert not Tables(home).exists(people.name)


def test_a_recreated_table_conflicts_and_shows_another_uuid(home: Catalog, people: LoadedTable) -> None:
    """H10"""
    committer = IcebergCommitter(home)
    head, prepared = committer.head(people.name), plan(people, 10, {1: "Ann"})
    Tables(home).drop(people.name)
    Tables(home).create(people.name, source_schema(), TableOptions(mode=DeleteMode.EQUALITY, format_version=2))
    answer = committer.commit(people.name, head, prepared)
    assert not isinstance(answer, Accepted), answer
    after = committer.head(people.name)
    assert after.uuid != head.uuid
    assert after.ancestry == ()


def test_the_ledger_survives_expiry_by_others(home: Catalog, people: LoadedTable) -> None:
    """H3: foreign snapshots on top, then everything old is expired."""
    own = commit(home, people, 10, {1: "Ann"})
    for n in range(3):
        home.spark.sql(f"INSERT INTO {home.settings.name}.{people.name.sql} VALUES ({100 + n}, 'foreign')")
    table = home.java.loadTable(home.identifier(people.name))
    table.expireSnapshots().expireOlderThan(2**62).retainLast(1).commit()
    head = IcebergCommitter(home).head(people.name)
    assert head.newest(SHOP) is None, "expiry cut the ancestry"
    assert not head.history_is_whole
    assert head.in_property(SHOP) == own.newest(SHOP)
    assert tags(head) == {"frazil_shop": own.snapshot_id}
    assert read(home, people.name)[1] == "Ann"


def test_a_rollback_shows_in_the_ancestry_and_not_in_the_property(home: Catalog, people: LoadedTable) -> None:
    """H4"""
    first = commit(home, people, 10, {1: "Ann"})
    second = commit(home, people, 20, {2: "Bob"}, lower=10)
    table = home.java.loadTable(home.identifier(people.name))
    table.manageSnapshots().rollbackTo(first.snapshot_id).commit()
    head = IcebergCommitter(home).head(people.name)
    assert head.newest(SHOP).resolved == Hlc(10)  # type: ignore[union-attr]
    assert head.in_property(SHOP) == second.newest(SHOP)
    assert head.in_property(SHOP).snapshot_id not in [s.snapshot_id for s in head.ancestry]  # type: ignore[union-attr]


def test_forgetting_removes_property_and_tag_with_a_snapshot(home: Catalog, people: LoadedTable) -> None:
    commit(home, people, 10, {1: "Ann"})
    head = commit(home, people, 10, forget=True)
    assert head.in_property(SHOP) is None
    assert tags(head) == {}
    assert head.newest(SHOP) is None
    assert len(head.ancestry) == 2
    assert isinstance(commit(home, people, 20, {2: "Bob"}).in_property(SHOP).resolved, Hlc)  # type: ignore[union-attr]


def test_of_two_that_read_one_register_exactly_one_takes_the_fence(home: Catalog) -> None:
    """H45"""
    arbiter = IcebergArbiter(home, SystemClock(), host="here")
    job = JobId(f"job{SystemClock().new_uuid().hex[:8]}")
    newest, read_head = arbiter.newest(job)
    assert newest is None
    mine, theirs = Fence(1, UUID(int=7)), Fence(1, UUID(int=8))
    assert isinstance(arbiter.take(job, mine, read_head), Accepted)
    assert isinstance(arbiter.take(job, theirs, read_head), Conflicted)
    newest, read_head = arbiter.newest(job)
    assert newest == mine
    assert isinstance(arbiter.take(job, Fence(2, theirs.owner), read_head), Accepted)
    assert arbiter.newest(job)[0] == Fence(2, theirs.owner)
    rows = home.spark.sql(
        f"SELECT * FROM {home.settings.name}.{PIPELINES.sql} WHERE pipeline = '{job}' ORDER BY generation"
    ).collect()
    assert [(row.generation, row.owner, row.host) for row in rows] == [(2, str(theirs.owner), "here")]


def test_a_fence_is_carried_by_the_summary(home: Catalog, people: LoadedTable) -> None:
    head = commit(home, people, 10, {1: "Ann"})
    assert head.ancestry[0].summary["frazil.fence"] == FENCE.text


def tags(head: TableHead) -> dict[str, int]:
    refs = head.base.metadata.refs()  # type: ignore[attr-defined]
    return {name: refs[name].snapshotId() for name in refs if refs[name].isTag()}
