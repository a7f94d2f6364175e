"""The same on other catalogs and storages: a REST catalog, a Hadoop catalog, and tables in an S3 bucket."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession
from retention_builders import DAY, GRACE, Stage

from frazil.iceberg.catalogs.open_catalog import CatalogSettings, CatalogType, open_catalog
from frazil.iceberg.commits import transaction
from frazil.iceberg.commits.snapshots import Expiry
from frazil.iceberg.jvm.session import open_session
from frazil.model.commit import Accepted, Conflicted
from frazil.model.ids import TableName, maintenance_folder

pytestmark = [pytest.mark.spark, pytest.mark.servers]


@pytest.fixture(params=["rest", "hadoop", "s3"])
def stage(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, namespace: str) -> Stage:
    name = f"elsewhere_{request.param}_{namespace}"
    match request.param:
        case "rest":
            uri = request.getfixturevalue("rest_uri")
            settings = CatalogSettings(name=name, type=CatalogType.REST, uri=uri)
        case "hadoop":
            settings = CatalogSettings(name=name, type=CatalogType.HADOOP, warehouse=str(tmp_path / "hadoop"))
        case _:
            settings = CatalogSettings(
                name=name,
                warehouse=f"{request.getfixturevalue('bucket')}/warehouse",
                uri=f"sqlite:///{tmp_path}/catalog.db",
                properties=request.getfixturevalue("seaweedfs").fileio,
            )
    open_session("frazil-tests", [settings], active=spark)
    return Stage(open_catalog(spark, settings), TableName((namespace,), "orders"))


def of_table(stage: Stage, paths: set[str]) -> set[str]:
    """The queue of a shared server holds rows of other tests too."""
    return {path for path in paths if path.startswith(stage.table.location.removeprefix("file:"))}


def test_snapshots_files_and_orphans_go_and_readers_see_no_difference(stage: Stage) -> None:
    stage.epoch({n: f"{n}@1" for n in range(6)})
    stage.delete(1)
    stage.rewrite()
    stage.epoch({20: "last"})
    garbage = {
        stage.write({1: "x"}, 1).path,
        stage.put(f"{maintenance_folder(stage.table.data_location, 'compact', uuid4())}/data-0.parquet"),
        stage.put(f"{stage.table.location}/metadata/{uuid4()}-m0.avro"),
    }
    open_file = stage.write({1: "x"}, 10**6).path
    before = stage.left()
    assert stage.expire(max_snapshots=2).snapshots == len(before) - 2
    stage.read_all()
    stage.clock.ahead = 2 * DAY
    assert stage.sweep().queued == len(garbage)
    waiting = of_table(stage, stage.queued())
    assert {path.removeprefix("file:") for path in garbage} < waiting <= stage.on_disk()
    stage.clock.ahead += 2 * GRACE
    assert stage.clean().failed == 0
    left = stage.on_disk()
    assert waiting.isdisjoint(left)
    assert stage.needed() | {open_file.removeprefix("file:")} <= left
    assert of_table(stage, stage.queued()) == set()
    stage.read_all()


def test_an_expiry_on_an_older_head_does_not_land(stage: Stage) -> None:
    """H47"""
    stage.epoch({1: "a"})
    stage.epoch({2: "b"})
    seen = stage.snapshots.snapshots(stage.name)
    oldest = min(seen.snapshots)
    first = min(seen.snapshots.values(), key=lambda one: one.sequence_number).snapshot_id
    stage.epoch({3: "c"})
    assert oldest in stage.left()
    answer = stage.snapshots.expire(stage.name, seen, Expiry(removed=frozenset([first])))
    assert isinstance(answer, Conflicted)
    again = stage.snapshots.snapshots(stage.name)
    assert isinstance(stage.snapshots.expire(stage.name, again, Expiry(removed=frozenset([first]))), Accepted)
    assert first not in stage.left()
    stage.read_all()


def test_an_expiry_that_is_overtaken_at_the_last_moment_does_not_land(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H47: somebody commits after everything was staged, right before it is sent."""
    first = stage.epoch({1: "a"})
    stage.epoch({2: "b"})
    acts, send = [lambda: stage.epoch({99: "meanwhile"})], transaction.send

    def sent_late(*arguments: Any) -> None:
        if acts:
            acts.pop()()
        send(*arguments)

    monkeypatch.setattr(transaction, "send", sent_late)
    seen = stage.snapshots.snapshots(stage.name)
    answer = stage.snapshots.expire(stage.name, seen, Expiry(removed=frozenset([first])))
    assert acts == []
    assert isinstance(answer, Conflicted)
    assert first in stage.left()
    stage.read_all()


def test_a_dropped_table_leaves_nothing_behind(stage: Stage) -> None:
    stage.epoch({1: "a", 2: "b"})
    stage.delete(1)
    everything = stage.needed()
    listed = stage.on_disk()
    assert stage.queue.drop(stage.name)
    stage.clock.ahead = 2 * GRACE
    stage.clean()
    done = stage.clean()
    assert done.failed == 0
    assert done.dismissed == 0
    assert everything <= listed
    assert everything.isdisjoint(stage.on_disk())
