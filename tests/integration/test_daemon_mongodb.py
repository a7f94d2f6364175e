"""Collections that come, go and are made anew under a running pipeline: loaded on a branch, beside the others (H27)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mongo_builders import Documents, config_of, plain, rows, run_once, run_while
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from servers.mongod import Mongod

from frazil.app.pipeline import Pipeline
from frazil.clock import SystemClock
from frazil.config.pipeline_config import PipelineConfig
from frazil.errors import ConfigError, FrazilError
from frazil.ingest.loop import resync_loop as resyncing

pytestmark = [pytest.mark.spark, pytest.mark.servers]


class Killed(BaseException):
    """What no part of the pipeline expects."""


class World:
    """One test's database, warehouse and namespace."""

    def __init__(self, spark: SparkSession, warehouse: Path, namespace: str, uri: str, database: Documents) -> None:
        self.spark, self.namespace, self.database = spark, namespace, database
        self._warehouse, self._uri = warehouse, uri

    def config(self, *collections: Any, **more: Any) -> PipelineConfig:
        return config_of(self._uri, self.database, self._warehouse, self.namespace, *collections, **more)

    def once(self, config: PipelineConfig) -> None:
        run_once(config, self.spark)

    def sql(self, name: str) -> str:
        return f"frazil.{self.namespace}.{name}"

    def table(self, name: str) -> dict[Any, Any] | None:
        """None if there is none yet."""
        try:
            return {key: plain(row) for key, row in rows(self.spark, self.namespace, name).items()}
        except AnalysisException:
            return None

    def documents(self, name: str) -> dict[Any, Any]:
        return {document["_id"]: document for document in self.database[name].find()}

    def agrees(self, *names: str) -> bool:
        return all(self.table(name) == self.documents(name) for name in names)

    def branches(self, name: str) -> list[str]:
        return [
            row.name
            for row in self.spark.sql(f"SELECT name FROM {self.sql(name)}.refs WHERE type = 'BRANCH'").collect()
        ]

    def counts(self, name: str) -> list[int]:
        """How many rows every snapshot showed that main was at, oldest first."""
        history = self.spark.sql(f"SELECT snapshot_id FROM {self.sql(name)}.history ORDER BY made_current_at").collect()
        return [
            self.spark.sql(f"SELECT * FROM {self.sql(name)} VERSION AS OF {row.snapshot_id}").count() for row in history
        ]


@pytest.fixture
def world(
    spark: SparkSession,
    warehouse: Path,
    namespace: str,
    mongodb: Mongod,
    database: Documents,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> World:
    monkeypatch.setattr("frazil.sources.mongodb.opening.cache_home", lambda: tmp_path / "home")
    monkeypatch.setattr("frazil.app.pidfile.cache_home", lambda: tmp_path / "home")
    world = World(spark, warehouse, namespace, mongodb.uri, database)
    for name in ("orders", "people"):
        database[name].insert_many([{"_id": n, "name": f"{name} {n}"} for n in range(30)])
    return world


def test_a_collection_that_is_dropped_and_made_again_is_loaded_anew_while_the_others_go_on(world: World) -> None:
    config = world.config("orders", "people")

    def work() -> None:
        wait_for(lambda: world.agrees("orders", "people"))
        world.database["orders"].drop()
        world.database["orders"].insert_many([{"_id": n, "name": f"anew {n}"} for n in range(20, 45)])
        world.database["people"].insert_one({"_id": 100, "name": "meanwhile"})

    run_while(
        config, world.spark, work, lambda: world.agrees("orders", "people") and world.branches("orders") == ["main"]
    )
    assert world.agrees("orders", "people")
    assert world.branches("orders") == ["main"]


def test_readers_see_the_old_table_or_the_new_one_and_nothing_in_between(world: World) -> None:
    config = world.config("orders")
    world.once(config)
    world.database["orders"].drop()
    world.database["orders"].insert_many([{"_id": n, "name": f"anew {n}"} for n in range(12)])
    world.once(config)
    assert world.agrees("orders")
    assert set(world.counts("orders")) == {30, 12}


def test_a_collection_that_is_gone_leaves_an_empty_table(world: World) -> None:
    config = world.config("orders", "people")
    world.once(config)
    world.database["orders"].drop()
    world.database["people"].delete_one({"_id": 3})
    world.once(config)
    assert world.table("orders") == {}
    assert world.agrees("people")
    world.database["orders"].insert_one({"_id": 1, "name": "back again"})
    world.once(config)
    assert world.agrees("orders", "people")


def test_a_collection_renamed_over_another_one_takes_its_place(world: World) -> None:
    config = world.config("orders", "people")
    world.once(config)
    world.database["fresh"].insert_many([{"_id": n, "name": "fresh"} for n in range(5)])
    world.database["fresh"].rename("orders", dropTarget=True)
    world.database["people"].rename("elsewhere")
    world.once(config)
    assert world.agrees("orders", "people")
    assert world.table("people") == {}


def test_a_kill_before_the_adoption_loses_nothing_and_loads_nothing_twice(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H48: the branch alone says how far the load was."""
    config = world.config("orders")
    world.once(config)
    world.database["orders"].drop()
    world.database["orders"].insert_many([{"_id": n, "name": f"anew {n}"} for n in range(12)])

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(resyncing, "adopt_resync", die)
        with pytest.raises(Killed):
            world.once(config)
    table = world.table("orders")
    assert table is not None
    assert len(table) == 30, "main shows what it showed"
    assert len(world.branches("orders")) == 2
    world.database["orders"].delete_one({"_id": 4})
    world.once(config)
    assert world.agrees("orders")
    assert world.branches("orders") == ["main"]


def test_a_resync_that_was_asked_for_mends_what_others_did_to_the_table(world: World) -> None:
    config = world.config("orders", "people")
    world.once(config)
    world.spark.sql(f"DELETE FROM {world.sql('orders')} WHERE _id = 7")
    world.spark.sql(f"INSERT INTO {world.sql('orders')} VALUES (999, 'foreign')")
    assert not world.agrees("orders")
    with Pipeline(config, spark=world.spark) as pipeline:
        pipeline.request_resync(f"{world.namespace}.orders")
    world.once(config)
    assert world.agrees("orders", "people")
    snapshots = len(world.counts("orders"))
    world.once(config)
    assert len(world.counts("orders")) == snapshots, "it was asked for once"


def test_a_load_that_was_asked_for_by_mistake_is_given_up_wherever_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = world.config("orders")
    name = f"{world.namespace}.orders"
    world.once(config)

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    with Pipeline(config, spark=world.spark) as pipeline:
        with pytest.raises(ConfigError, match="not being loaded anew"):
            pipeline.request_resync(name, cancel=True)
        pipeline.request_resync(name)
        pipeline.request_resync(name, cancel=True)
    world.once(config)
    assert world.agrees("orders")
    snapshots = len(world.counts("orders"))

    with Pipeline(config, spark=world.spark) as pipeline:
        pipeline.request_resync(name)
    with monkeypatch.context() as patch:
        patch.setattr(resyncing, "adopt_resync", die)
        with pytest.raises(Killed):
            world.once(config)
    assert len(world.branches("orders")) == 2
    with Pipeline(config, spark=world.spark) as pipeline:
        pipeline.request_resync(name, cancel=True)
    world.database["orders"].delete_one({"_id": 4})
    world.once(config)
    assert world.agrees("orders")
    assert world.branches("orders") == ["main"]
    assert len(world.counts("orders")) == snapshots + 1, "it goes on where it was, and nothing is asked for any more"


def test_a_table_is_added_to_a_running_pipeline_and_loaded_beside_the_others(world: World) -> None:
    before, after = world.config("orders"), world.config("orders", "people")
    now = [before]
    stop, reload = threading.Event(), threading.Event()
    failed: list[BaseException] = []
    with Pipeline(before, spark=world.spark, reread=lambda: now[0]) as pipeline:

        def run() -> None:
            try:
                pipeline.run(stop=stop, reload=reload)
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            wait_for(lambda: world.agrees("orders") or bool(failed))
            now[0] = after
            reload.set()
            world.database["orders"].insert_one({"_id": 200, "name": "meanwhile"})
            wait_for(lambda: world.agrees("orders", "people") or bool(failed))
            world.database["people"].delete_one({"_id": 1})
            wait_for(lambda: world.agrees("orders", "people") or bool(failed))
        finally:
            stop.set()
            thread.join(120)
    assert not failed
    assert world.agrees("orders", "people")


def test_an_impossible_mapping_stops_its_table_and_no_other(world: World) -> None:
    fields = [{"source": "_id"}, {"source": "name", "type": "int"}]
    bad = {"source": "orders", "mapping": {"mode": "explicit", "fields": fields}}
    config = world.config(bad, "people")
    world.database["people"].insert_one({"_id": 77, "name": "new"})
    with pytest.raises(Exception, match="orders") as raised:
        world.once(config)
    assert raised.value.hint  # type: ignore[attr-defined]
    assert world.agrees("people")


def test_only_so_many_first_loads_run_at_once(world: World) -> None:
    config = world.config("orders", "people", limits={"max_first_loads": 1})
    world.once(config)
    assert world.agrees("orders", "people")


def test_a_resync_of_a_table_that_is_none_is_refused(world: World) -> None:
    config = world.config("orders")
    world.once(config)
    with Pipeline(config, spark=world.spark) as pipeline, pytest.raises(ConfigError, match="nothing"):
        pipeline.request_resync(f"{world.namespace}.nothing")


def test_the_mirror_of_checkpoints_tells_where_tables_stand_and_nothing_is_decided_from_it(world: World) -> None:
    """H48."""
    config = world.config("orders", "people")
    world.once(config)
    query = (
        f"SELECT sync_id, state, source_collection FROM frazil._frazil.checkpoints WHERE pipeline = '{config.pipeline}'"
    )
    standing = {
        (f"{world.namespace}.orders", "STEADY_STATE", "orders"),
        (f"{world.namespace}.people", "STEADY_STATE", "people"),
    }
    assert {tuple(row) for row in world.spark.sql(query).collect()} == standing
    snapshots = len(world.counts("orders"))
    world.spark.sql(f"DELETE FROM frazil._frazil.checkpoints WHERE pipeline = '{config.pipeline}'")
    world.once(config)
    assert len(world.counts("orders")) == snapshots, "nothing was loaded again"
    assert {tuple(row) for row in world.spark.sql(query).collect()} == standing


def test_a_collection_with_images_has_a_changelog_beside_its_mirror(world: World) -> None:
    database = world.database
    database.create_collection("kept", changeStreamPreAndPostImages={"enabled": True})
    database["kept"].insert_one({"_id": 1, "v": 1})
    config = world.config({"source": "kept", "changelog": True}, "people")
    world.once(config)
    database["kept"].update_one({"_id": 1}, {"$set": {"v": 2}})
    database["kept"].insert_one({"_id": 2, "v": 7})
    database["kept"].delete_one({"_id": 1})
    world.once(config)
    assert world.agrees("kept", "people")
    log = world.spark.sql(
        f"SELECT _id, _op, v, _before.v AS was FROM {world.sql('kept__changelog')} ORDER BY _position"
    )
    assert [tuple(row) for row in log.collect()] == [
        (1, "upsert", 1, None),
        (1, "update", 2, 1),
        (2, "insert", 7, None),
        (1, "delete", None, 2),
    ]


def test_a_changelog_without_images_stops_its_table_and_tells_the_command(world: World) -> None:
    config = world.config({"source": "orders", "changelog": True}, "people")
    with pytest.raises(FrazilError, match="orders") as raised:
        world.once(config)
    assert "collMod" in raised.value.hint
    assert world.agrees("people")


def wait_for(holds: Callable[[], bool]) -> None:
    clock = SystemClock()
    for _ in range(600):
        if holds():
            return
        clock.wait(0.2)
    raise AssertionError("it did not come to pass")
