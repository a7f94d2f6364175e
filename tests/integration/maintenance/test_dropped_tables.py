"""Tables that are dropped by way of the queue, and tables that only seem to be: what lives on loses no file."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from retention_builders import GRACE, Crash, Stage

from frazil.errors import CatalogRefused
from frazil.iceberg.catalogs.open_catalog import CatalogSettings, CatalogType, open_catalog
from frazil.iceberg.jvm.session import open_session
from frazil.iceberg.system.queue_rows import Why
from frazil.iceberg.tables.tables import Tables
from frazil.maintenance.queue import DeletionWorker, QueueSettings
from frazil.model.ids import TableName

pytestmark = pytest.mark.spark

REST = pytest.param("rest", marks=pytest.mark.servers)


def a_stage(kind: str, request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, namespace: str) -> Stage:
    name = f"drops_{kind}_{namespace}"
    match kind:
        case "rest":
            settings = CatalogSettings(name=name, type=CatalogType.REST, uri=request.getfixturevalue("rest_uri"))
        case "hadoop":
            settings = CatalogSettings(name=name, type=CatalogType.HADOOP, warehouse=str(tmp_path / "warehouse"))
        case _:
            settings = CatalogSettings(name=name, warehouse=str(tmp_path / "warehouse"))
    open_session("frazil-tests", [settings], active=spark)
    made = Stage(open_catalog(spark, settings), TableName((namespace,), "orders"), batch_files=4)
    made.epoch({1: "a", 2: "b"})
    made.delete(1)
    made.epoch({3: "c"})
    return made


@pytest.fixture(params=["builtin", REST])
def stage(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, namespace: str) -> Stage:
    return a_stage(request.param, request, spark, tmp_path, namespace)


@pytest.fixture
def on_hadoop(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, namespace: str) -> Stage:
    return a_stage("hadoop", request, spark, tmp_path, namespace)


def own_rows(stage: Stage) -> list[Why]:
    """The queue of a shared server holds rows of other tests too."""
    return [row.why for batch in stage.queue.batches() for row in batch.rows if row.table_uuid == stage.table.uuid]


def crash_in_drop(stage: Stage, monkeypatch: pytest.MonkeyPatch, *, before: bool) -> None:
    real = Tables.drop

    def dying(self: Tables, table: TableName, **more: Any) -> bool:
        if not before:
            real(self, table, **more)
        raise Crash("drop")

    with monkeypatch.context() as patched:
        patched.setattr(Tables, "drop", dying)
        with pytest.raises(Crash):
            stage.queue.drop(stage.name)
    assert own_rows(stage) == [Why.DROPPING]


def moved_to(stage: Stage, name: TableName) -> None:
    stage.name = name
    stage.sql = f"{stage.catalog.settings.name}.{name.sql}"


def register_again(stage: Stage, name: TableName, metadata_file: str) -> None:
    Tables(stage.catalog).ensure_namespace(name.namespace)
    stage.catalog.java.registerTable(stage.catalog.identifier(name), metadata_file)
    moved_to(stage, name)


def metadata_file(stage: Stage) -> str:
    return str(
        stage.catalog.java.loadTable(stage.catalog.identifier(stage.name)).operations().current().metadataFileLocation()
    )


def clean_up(stage: Stage, rounds: int = 3) -> None:
    stage.clock.ahead += 2 * GRACE
    for _ in range(rounds):
        stage.clean()
    assert own_rows(stage) == []


def test_a_table_that_was_renamed_after_a_crash_before_its_drop_keeps_its_files(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is to be found under the old name, and all of it is in use; deep in another namespace, too."""
    needed = stage.needed()
    crash_in_drop(stage, monkeypatch, before=True)
    elsewhere = TableName((stage.name.namespace[0], "archive"), "renamed")
    Tables(stage.catalog).ensure_namespace(elsewhere.namespace)
    Tables(stage.catalog).rename(stage.name, elsewhere)
    moved_to(stage, elsewhere)
    clean_up(stage)
    assert needed <= stage.on_disk()
    stage.read_all()


def test_a_crash_after_the_drop_leaves_nothing_behind(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = stage.needed()
    crash_in_drop(stage, monkeypatch, before=False)
    clean_up(stage)
    assert needed.isdisjoint(stage.on_disk())


def test_a_dropped_table_that_is_registered_again_under_another_name_keeps_its_files(stage: Stage) -> None:
    needed, last = stage.needed(), metadata_file(stage)
    assert stage.queue.drop(stage.name)
    assert own_rows(stage) == [Why.DROPPED]
    register_again(stage, TableName(stage.name.namespace, "again"), last)
    clean_up(stage)
    assert needed <= stage.on_disk()
    stage.read_all()


class Registering:
    """Somebody registers the table again right before its files are deleted."""

    def __init__(self, stage: Stage, name: TableName, last: str) -> None:
        self._stage, self._name, self._last = stage, name, last
        self.batches = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage.files, name)

    def delete(self, table: TableName, paths: Any) -> Any:
        self.batches += 1
        if self.batches == 2:
            raise AssertionError("a batch of a table that is there again was deleted")
        done = self._stage.files.delete(table, paths)
        register_again(self._stage, self._name, self._last)
        return done


def test_every_batch_of_a_dropped_table_asks_whether_it_is_still_gone(stage: Stage) -> None:
    """H46: between two batches somebody registers it again; what is left of it stays."""
    last = Path(metadata_file(stage).removeprefix("file:"))
    kept = shutil.copy(last, last.with_name(f"kept-{last.name}"))
    name = TableName(stage.name.namespace, "again")
    assert stage.queue.drop(stage.name)
    stage.clock.ahead += 2 * GRACE
    assert stage.clean().expanded > 4, "more than a batch"
    before = stage.on_disk()
    committer = Registering(stage, name, str(kept))
    stage.clean(committer=committer)
    assert committer.batches == 1
    assert 0 < len(before - stage.on_disk()) <= 4, "one batch"
    assert own_rows(stage) == []


def test_a_worker_that_is_faster_than_a_drop_does_not_make_it_forgotten(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds the intent, and the table still there."""
    needed, real = stage.needed(), Tables.drop

    def slow(self: Tables, table: TableName, **more: Any) -> bool:
        stage.clock.ahead += 2 * GRACE
        stage.clean()
        assert own_rows(stage) == []
        return real(self, table, **more)

    with monkeypatch.context() as patched:
        patched.setattr(Tables, "drop", slow)
        assert stage.queue.drop(stage.name)
    clean_up(stage)
    assert needed.isdisjoint(stage.on_disk())


def test_files_of_a_dropped_table_go_whoever_maintains_tables_of_the_catalog(stage: Stage) -> None:
    needed = stage.needed()
    stage.queue.drop(stage.name)
    stage.clock.ahead += 2 * GRACE
    worker = DeletionWorker(stage.queue, stage.files, QueueSettings(grace=GRACE), stage.clock)
    for _ in range(2):
        worker.perform([TableName(("shop",), "another")])
    assert needed.isdisjoint(stage.on_disk())


class Closed:
    """A catalog in which some table cannot be asked."""

    def __init__(self, stage: Stage) -> None:
        self._inner = stage.files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def table_scan(self) -> Any:
        return self

    def holder(self, table_uuid: str) -> str | None:
        raise CatalogRefused("secret.table must not be read", hint="ask its owner")

    def other_table_with_uuid(self, table: TableName, table_uuid: str) -> str | None:
        return None


def test_while_some_table_cannot_be_asked_nothing_of_a_dropped_one_is_deleted(stage: Stage) -> None:
    needed = stage.needed()
    stage.queue.drop(stage.name)
    stage.clock.ahead += 2 * GRACE
    assert stage.clean(committer=Closed(stage)).failed >= 1
    assert own_rows(stage) == [Why.DROPPED]
    assert needed <= stage.on_disk()


def test_a_table_whose_files_are_shared_is_dropped_without_them(stage: Stage) -> None:
    stage.catalog.spark.sql(f"ALTER TABLE {stage.sql} SET TBLPROPERTIES ('gc.enabled'='false')")
    needed = stage.needed()
    assert stage.queue.drop(stage.name)
    assert own_rows(stage) == []
    assert needed <= stage.on_disk()


def test_a_hadoop_catalog_deletes_the_folder_itself_and_at_once(on_hadoop: Stage) -> None:
    folder = Path(on_hadoop.table.location.removeprefix("file:"))
    assert on_hadoop.queue.drop(on_hadoop.name)
    assert not folder.exists()
    assert own_rows(on_hadoop) == []
    assert not on_hadoop.queue.drop(on_hadoop.name)


def test_a_hadoop_folder_that_others_need_is_not_deleted(on_hadoop: Stage) -> None:
    original, last = on_hadoop.name, metadata_file(on_hadoop)
    register_again(on_hadoop, TableName(original.namespace, "copy"), last)
    with pytest.raises(CatalogRefused, match="copy was registered") as caught:
        on_hadoop.queue.drop(original)
    assert caught.value.hint == f"drop {on_hadoop.name} first"
    on_hadoop.read_all()
    assert on_hadoop.queue.drop(on_hadoop.name), "the copy has metadata alone in its folder"
    moved_to(on_hadoop, original)
    on_hadoop.read_all()
    on_hadoop.catalog.spark.sql(f"ALTER TABLE {on_hadoop.sql} SET TBLPROPERTIES ('gc.enabled'='false')")
    with pytest.raises(CatalogRefused, match=r"gc\.enabled"):
        on_hadoop.queue.drop(original)
