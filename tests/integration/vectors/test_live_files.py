"""Live files of a head: what is derived from an older head equals what is read anew and what iceberg-java plans."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from vector_builders import PARTS, Meddling, Stage, comparable

from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.tables.file_index import LiveReader
from frazil.model.files import LiveFiles
from frazil.model.ids import TableName

pytestmark = pytest.mark.spark
MERGE_ON_READ = {"write.delete.mode": "merge-on-read"}


def planned(stage: Stage, snapshot_id: int) -> dict[str, set[tuple[str, int | None]]]:
    """The deletes of each data file, as iceberg-java plans a scan."""
    table = stage.catalog.java.loadTable(stage.catalog.identifier(stage.name))
    tasks = table.newScan().useSnapshot(snapshot_id).planFiles()
    found: dict[str, set[tuple[str, int | None]]] = {}
    iterator = tasks.iterator()
    while iterator.hasNext():
        task = iterator.next()
        deletes = task.deletes()
        found[task.file().location()] = {
            (deletes.get(n).location(), deletes.get(n).contentOffset()) for n in range(deletes.size())
        }
    tasks.close()
    return found


def listed(live: LiveFiles) -> dict[str, set[tuple[str, int | None]]]:
    return {file.path: {(delete.path, delete.offset) for delete in file.deletes} for file in live.files}


class Watch:
    """Looks at every head through one reader, which derives, and through a new one."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def __call__(self) -> LiveFiles:
        stage = self.stage
        head = stage.committer.head(stage.name)
        derived = stage.committer.live(stage.name, head, (1,))
        anew = LiveReader(stage.catalog).live(stage.name, head, (1,))
        assert comparable(derived) == comparable(anew)
        assert head.snapshot_id is not None
        ours, theirs = listed(derived), planned(stage, head.snapshot_id)
        assert ours.keys() == theirs.keys()
        for path, deletes in theirs.items():
            # By bounds a reader may leave deletes out that hold nothing for a file; vectors have none.
            assert deletes <= ours[path]
            assert {one for one in ours[path] if one[1] is not None} <= deletes
        return derived


def manifests_read(stage: Stage) -> int:
    return stage.committer._live.manifests_read


@pytest.mark.parametrize(
    ("version", "partition", "part"),
    [
        (3, (), "int"),
        (3, ("bucket(2, id)", "part"), "int"),
        (2, (), "int"),
        (2, ("part",), "int"),
        (2, ("part",), "float"),
        (3, ("part",), "double"),
        (2, ("part",), "timestamp"),
    ],
    ids=str,
)
def test_what_is_derived_equals_what_is_read_after_every_kind_of_commit(
    catalog: Catalog, namespace: str, tmp_path: Path, version: int, partition: tuple[str, ...], part: str
) -> None:
    name, properties = TableName((namespace,), "live"), MERGE_ON_READ
    stage = Stage(
        catalog, name, tmp_path, part=part, format_version=version, partition=partition, properties=properties
    )
    look = Watch(stage)
    stage.epoch({n: f"{n}@0" for n in range(12)})
    before_own = look().snapshot_id
    read = manifests_read(stage)
    stage.epoch({1: "1@1", 2: "2@1"}, [3])
    stage.epoch({2: "2@2", 5: "5@2"})
    assert manifests_read(stage) == read, "our own commits are derived from their plans"
    look()
    conflicts: list[Callable[[], None]] = [lambda: stage.append({30: "30@f"})] * 3
    stage.epoch({4: "4@3"}, [6], Meddling(stage.locator, list(conflicts)))
    assert any(delete.equality_ids for file in look().files for delete in file.deletes), "published by equality"
    stage.append({7: "7@f", 31: "31@f"})
    look()
    stage.delete(["7@f", "8@0"])
    look()
    catalog.spark.sql(f"ALTER TABLE {stage.sql} SET TBLPROPERTIES ('write.delete.mode' = 'copy-on-write')")
    stage.delete(["9@0"])
    look()
    stage.rewrite()
    assert look().files
    stage.epoch({1: "1@4"})
    look()
    table = catalog.java.loadTable(catalog.identifier(name))
    table.manageSnapshots().setCurrentSnapshot(before_own).commit()
    assert look().snapshot_id == before_own
    stage.append({40: "40@f"})
    table = catalog.java.loadTable(catalog.identifier(name))
    table.expireSnapshots().expireOlderThan(2**62).retainLast(1).commit()
    look()


@pytest.mark.parametrize("part", PARTS)
def test_deletes_that_several_files_share_outlive_rewritten_data_manifests(
    catalog: Catalog, namespace: str, tmp_path: Path, part: str
) -> None:
    """H15: a partition is one place, however its values are spelled; else the next compaction brings rows back."""
    name = TableName((namespace,), "shared")
    stage = Stage(catalog, name, tmp_path, part=part, format_version=2, partition=("part",))
    for n in range(4):
        stage.epoch({3 * n: f"a{n}", 3 * n + 1: f"b{n}", 3 * n + 2: f"c{n}"})
    stage.epoch({}, [0, 1, 2, 3, 4, 5])
    assert any(delete.data_file is None for file in Watch(stage)().files for delete in file.deletes)
    table: Any = catalog.java.loadTable(catalog.identifier(name))
    merge = catalog.spark._jvm.java.util.function.Function.identity()
    table.rewriteManifests().clusterBy(merge).commit()
    assert all(file.deletes for file in Watch(stage)().files)
    stage.epoch({6: "again"})
    # PyIceberg takes every NaN for another partition, and 0.0 and -0.0 for one.
    stage.check(pyiceberg=part in ("int", "timestamp"))


def test_a_kept_head_whose_manifests_are_deleted_is_read_anew(catalog: Catalog, namespace: str, tmp_path: Path) -> None:
    stage = Stage(catalog, TableName((namespace,), "expired"), tmp_path)
    look = Watch(stage)
    stage.epoch({1: "1@0", 2: "2@0"})
    look()
    stage.append({3: "3@f"})
    stage.rewrite()
    table: Any = catalog.java.loadTable(catalog.identifier(stage.name))
    table.manageSnapshots().removeTag("frazil_shop").commit()
    table.expireSnapshots().expireOlderThan(2**62).retainLast(1).cleanExpiredFiles(True).commit()
    assert len(look().files) == 1


def test_an_empty_table_has_no_files(catalog: Catalog, namespace: str, tmp_path: Path) -> None:
    stage = Stage(catalog, TableName((namespace,), "empty"), tmp_path)
    assert stage.committer.live(stage.name, stage.committer.head(stage.name)) == LiveFiles(snapshot_id=None)


def test_what_is_kept_is_bounded(catalog: Catalog, namespace: str, tmp_path: Path) -> None:
    reader = LiveReader(catalog, entries_kept=3)
    stages = [Stage(catalog, TableName((namespace,), f"kept{n}"), tmp_path) for n in range(3)]
    for stage in stages:
        stage.epoch({1: "1@0"})
        stage.append({2: "2@0"})
        head = stage.committer.head(stage.name)
        assert len(reader.live(stage.name, head, ()).files) == 2
    assert len(reader._kept) == 1
