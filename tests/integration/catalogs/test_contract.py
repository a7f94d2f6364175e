"""What every catalog must do, in one suite. A flag says what one of them cannot, and then it must say so itself."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from catalog_builders import SHOP, column, plan, source_schema
from contract_homes import Home, Rival, without_notes
from integration.vectors.vector_builders import Stage
from pyspark.sql import functions as F
from servers.faulty_proxy import Fault

from frazil.clock import SystemClock
from frazil.errors import ConfigError, TableChanged
from frazil.iceberg.catalogs.capabilities import capabilities
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.system.checkpoints import Checkpoint, Checkpoints
from frazil.iceberg.tables.tables import LoadedTable, Tables
from frazil.model.commit import Accepted, Conflicted, Unknown
from frazil.model.ids import JobId, TableName
from frazil.model.schema import INT, LONG, STRING
from frazil.model.state import TableState
from frazil.model.write import DeleteMode, TableOptions
from frazil.sources.cockroachdb.position import Hlc

pytestmark = [pytest.mark.spark, pytest.mark.servers]
EQUALITY = TableOptions(mode=DeleteMode.EQUALITY, format_version=2)
PLAIN_NAMES = ("seaweedfs",)


@pytest.fixture
def people(home: Home, namespace: str) -> LoadedTable:
    return Tables(home.catalog).create(TableName((namespace,), "people"), source_schema(), EQUALITY)


def read(home: Home, table: TableName) -> dict[int, str]:
    rows = home.catalog.spark.sql(f"SELECT id, name FROM {home.catalog.settings.name}.{table.sql}").collect()
    assert len({row.id for row in rows}) == len(rows), f"a key lives twice: {rows}"
    return {row.id: row.name for row in rows}


def test_a_table_is_made_loaded_and_dropped(home: Home, namespace: str) -> None:
    tables, name = Tables(home.catalog), TableName((namespace,), "short_lived")
    assert not tables.exists(name)
    made = tables.create(name, source_schema(), EQUALITY)
    assert tables.exists(name)
    assert tables.load(name) == made
    assert [field.name for field in made.schema.identifiers] == ["id"]
    assert not made.location.endswith((".json", "/"))
    assert tables.drop(name)
    assert not tables.exists(name)
    assert not tables.drop(name)
    with pytest.raises(TableChanged, match=name.text):
        tables.load(name)


def test_a_table_of_version_three_is_made_or_the_catalog_is_known_to_lack_it(home: Home, namespace: str) -> None:
    made = Tables(home.catalog).create(TableName((namespace,), "newest"), source_schema(), TableOptions())
    assert made.format_version == (3 if home.can.v3 else 2)
    assert without_notes(capabilities(home.catalog)) == home.can, "it says what it can, once it was tried"


def test_columns_are_added_and_widened(home: Home, namespace: str) -> None:
    tables, name = Tables(home.catalog), TableName((namespace,), "growing")
    first = tables.create(name, source_schema(column("n", INT)), EQUALITY)
    grown = tables.evolve(name, [column("n", LONG), column("more", STRING)])
    assert [(field.name, str(field.type)) for field in grown][2:] == [("n", "long"), ("more", "string")]
    assert [field.id for field in grown][:3] == [field.id for field in first.schema]
    assert tables.load(name).schema == grown


def test_namespaces_are_made_as_deep_as_the_catalog_can(home: Home, namespace: str) -> None:
    tables, deep = Tables(home.catalog), TableName((namespace, "inner"), "people")
    if home.can.nested_namespaces:
        assert tables.create(deep, source_schema(), EQUALITY).name == deep
        return
    with pytest.raises(ConfigError, match="inner"):
        tables.create(deep, source_schema(), EQUALITY)


def test_a_table_is_renamed_or_the_refusal_says_why(home: Home, people: LoadedTable) -> None:
    tables, other = Tables(home.catalog), TableName(people.name.namespace, "persons")
    if not home.can.rename:
        with pytest.raises(ConfigError, match="cannot rename"):
            tables.rename(people.name, other)
        return
    tables.rename(people.name, other)
    assert tables.load(other).uuid == people.uuid
    assert not tables.exists(people.name)


def test_an_epoch_is_published_and_read_back(home: Home, people: LoadedTable) -> None:
    committer = IcebergCommitter(home.catalog)
    answer = committer.commit(people.name, committer.head(people.name), plan(people, 10, {1: "Ann", 2: "Bob"}))
    assert isinstance(answer, Accepted), answer
    head = committer.head(people.name)
    assert head.snapshot_id == answer.snapshot_id
    assert head.newest(SHOP).resolved == Hlc(10)  # type: ignore[union-attr]
    assert read(home, people.name) == {1: "Ann", 2: "Bob"}


def test_updates_and_deletes_by_position_are_read_back(home: Home, namespace: str, tmp_path: Path) -> None:
    """By vectors, or by position deletes where version 3 is not to be had."""
    stage = Stage(home.catalog, TableName((namespace,), "located"), tmp_path)
    stage.epoch({n: f"{n}@0" for n in range(20)})
    stage.epoch({n: f"{n}@1" for n in range(5)}, [7, 8])
    stage.epoch({3: "3@2", 30: "30@2"}, [9])
    stage.check(pyiceberg=False)


def test_checkpoints_are_replaced_by_newer_ones(home: Home, namespace: str) -> None:
    """In a namespace that begins with a letter where the catalog takes no other."""
    checkpoints, job, other = Checkpoints(home.catalog, SystemClock()), JobId(f"a_{namespace}"), JobId(f"b_{namespace}")
    for documents in (1, 2):
        for pipeline in (job, other):
            row = Checkpoint(sync_id="shop.orders", state=TableState.STEADY_STATE, source_collection="orders")
            assert checkpoints.record(pipeline, [replace(row, documents_processed=documents)])
    assert [row.documents_processed for row in checkpoints.recorded(job)] == [2]
    name = "frazil_system" if home.kind in PLAIN_NAMES else "_frazil"
    rows = home.catalog.spark.table(f"{home.catalog.settings.name}.{name}.checkpoints.files")
    assert rows.where(F.col("partition.pipeline") == job.text).count() == 1


def test_a_stale_head_conflicts_and_changes_nothing(home: Home, people: LoadedTable) -> None:
    """H44, H47"""
    committer = IcebergCommitter(home.catalog)
    stale = committer.head(people.name)
    assert isinstance(committer.commit(people.name, stale, plan(people, 10, {1: "Ann"})), Accepted)
    answer = committer.commit(people.name, stale, plan(people, 20, {2: "Bob"}))
    assert isinstance(answer, Conflicted), answer
    assert read(home, people.name) == {1: "Ann"}


def test_of_two_racing_commits_exactly_one_wins(home: Home, people: LoadedTable) -> None:
    """H12, H45"""
    if not home.arbitrates:
        pytest.skip("the stand-in compares no versions of a table: it proves nothing about races")
    committer = IcebergCommitter(home.catalog)
    for round_ in range(3):
        contenders = [
            (committer.head(people.name), plan(people, 10 + round_, {10 * round_ + n: f"{n}"})) for n in (0, 1)
        ]
        gate = threading.Barrier(2)

        def commit(n: int, contenders: list = contenders, gate: threading.Barrier = gate) -> str:  # type: ignore[type-arg]
            gate.wait()
            return type(committer.commit(people.name, *contenders[n])).__name__

        with ThreadPoolExecutor(2) as pool:
            answers = sorted(pool.map(commit, (0, 1)))
        assert answers[0] == "Accepted", answers
        assert answers[1] in ("Conflicted", "Unknown"), answers
        assert len(committer.head(people.name).ancestry) == round_ + 1
        assert len(read(home, people.name)) == round_ + 1


def test_of_two_racing_processes_exactly_one_wins(home: Home, people: LoadedTable, rival: Rival) -> None:
    """H12, H45: two writers that share nothing but the catalog."""
    if not home.arbitrates:
        pytest.skip("the stand-in compares no versions of a table: it proves nothing about races")
    if not home.can.several_writers:
        pytest.skip(f"{home.kind} is for one writer process: {by_reason(home)}")
    committer = IcebergCommitter(home.catalog)
    for round_ in range(3):
        head, ours = committer.head(people.name), plan(people, 10 + round_, {2 * round_: "ours"})
        rival.prepare(home.catalog.settings, people.name.text, 10 + round_, 2 * round_ + 1)
        rival.go()
        answers = sorted([type(committer.commit(people.name, head, ours)).__name__, rival.heard()])
        assert answers[0] == "Accepted", answers
        assert answers[1] in ("Conflicted", "Unknown"), answers
        assert len(committer.head(people.name).ancestry) == round_ + 1
    assert len(read(home, people.name)) == 3


def by_reason(home: Home) -> str:
    return "; ".join(capabilities(home.catalog).notes)


@pytest.mark.parametrize("fault", [Fault.DROP, Fault.BROKEN, Fault.CONFLICT])
def test_a_commit_whose_answer_is_lost_is_found_by_looking_again(home: Home, people: LoadedTable, fault: Fault) -> None:
    """H6, H43: nothing lost, nothing doubled, and the table stays readable."""
    if home.proxy is None:
        pytest.skip("no HTTP server whose answer could be lost")
    committer = IcebergCommitter(home.catalog)
    sent = home.proxy.commits
    home.proxy.fail_next(fault)
    answer = committer.commit(people.name, committer.head(people.name), plan(people, 10, {1: "Ann"}))
    assert isinstance(answer, Conflicted if fault is Fault.CONFLICT else Unknown), answer
    assert home.proxy.commits == sent + 1, "nobody but us decides about a second try"
    head = committer.head(people.name)
    assert head.newest(SHOP).resolved == Hlc(10)  # type: ignore[union-attr]
    assert read(home, people.name) == {1: "Ann"}
    after = committer.commit(people.name, head, plan(people, 20, {2: "Bob"}, lower=10))
    assert isinstance(after, Accepted), after
    assert read(home, people.name) == {1: "Ann", 2: "Bob"}


def test_a_recreated_table_is_not_taken_for_the_old_one(home: Home, people: LoadedTable) -> None:
    """H10"""
    committer = IcebergCommitter(home.catalog)
    head, prepared = committer.head(people.name), plan(people, 10, {1: "Ann"})
    Tables(home.catalog).drop(people.name)
    Tables(home.catalog).create(people.name, source_schema(), EQUALITY)
    answer = committer.commit(people.name, head, prepared)
    assert not isinstance(answer, Accepted), answer
    assert committer.head(people.name).uuid != head.uuid
    assert read(home, people.name) == {}
