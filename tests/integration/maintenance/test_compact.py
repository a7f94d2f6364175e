"""Small files become large ones while the table is written: nothing is lost, nothing comes back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from compact_builders import EAGER, InTheWay, Yard, check_lineage, evolve
from convert_builders import JOB

from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.maintenance.compact.planner import CompactSettings
from frazil.model.commit import Conflicted, Unknown
from frazil.model.ids import TableName

pytestmark = pytest.mark.spark
LAYOUTS = [(2, ()), (3, ()), (2, ("part",)), (3, ("bucket(2, id)", "part"))]
MakeYard = Callable[..., Yard]


@pytest.fixture
def make(catalog: Catalog, namespace: str, tmp_path: Path) -> MakeYard:
    def make(version: int = 3, partition: tuple[str, ...] = ()) -> Yard:
        return Yard(catalog, TableName((namespace,), "orders"), tmp_path, version=version, partition=partition)

    return make


def upserted(yard: Yard, epochs: int = 4) -> Yard:
    """Epochs that update, delete, and move rows between partitions."""
    yard.epoch({n: f"{n}@0" for n in range(40)})
    for number in range(1, epochs):
        yard.epoch({n: f"{n}@{number}" for n in range(number, 40, number + 2)}, [number * 7, number * 7 + 1])
    return yard


def by_place(yard: Yard) -> Counter[tuple[int, tuple[object, ...]]]:
    return Counter((file.spec_id, file.partition) for file in yard.live.files)


@pytest.mark.parametrize(("version", "partition"), LAYOUTS, ids=str)
def test_many_files_become_one_of_each_partition(make: MakeYard, version: int, partition: tuple[str, ...]) -> None:
    """And the pipeline goes on: the ledger is as it was, and keys are found in the new files."""
    yard = upserted(make(version, partition))
    head = yard.committer.head(yard.name)
    frontier, tag, files = yard.frontier, head.tags[JOB.tag], len(yard.live.files)
    base = head.ancestry[0].sequence_number
    done = yard.compact()
    yard.check()
    assert set(by_place(yard).values()) == {1}
    assert yard.live.deletes == ()
    assert {file.sequence_number for file in yard.live.files} == {base}
    head = yard.committer.head(yard.name)
    assert (yard.frontier, head.tags[JOB.tag]) == (frontier, tag)
    assert head.ancestry[0].summary["operation"] == "replace", "readers of changes pass over it"
    assert head.ancestry[0].summary["frazil.maintenance"] == "compact"
    assert done.snapshot_ids == (head.snapshot_id,)
    assert (done.removed_files, done.added_files) == (files, len(yard.live.files))
    assert yard.compaction() is None
    yard.epoch({n: f"{n}@9" for n in range(0, 60, 3)}, [1, 2])
    yard.check()
    yard.compact()
    yard.check()


@pytest.mark.parametrize("partition", [(), ("part",)], ids=str)
def test_a_row_keeps_its_id_and_the_number_of_its_last_change(make: MakeYard, partition: tuple[str, ...]) -> None:
    check_lineage(upserted(make(3, partition)))


@pytest.mark.parametrize(("version", "partition"), LAYOUTS, ids=str)
def test_rows_that_an_epoch_deletes_meanwhile_stay_deleted(
    make: MakeYard, version: int, partition: tuple[str, ...]
) -> None:
    """H15, H16: the rewrite is not repeated, and is published nevertheless."""
    yard = upserted(make(version, partition))
    done = yard.compact(lambda: yard.epoch({3: "3@new", 4: "4@new", 90: "90@new"}, [5, 6, 39]))
    yard.check()
    assert len(yard.rewriting.rewrites) == 1
    assert done.snapshot_ids
    assert done.reprojected_rows == 5
    assert not done.dropped
    yard.epoch({n: f"{n}@last" for n in range(0, 40, 2)}, [3, 90])
    yard.check()
    yard.compact()
    yard.check()


@pytest.mark.parametrize("version", [2, 3])
def test_several_epochs_meanwhile_and_one_right_before_the_commit(
    catalog: Catalog, make: MakeYard, version: int
) -> None:
    """H16: the head that the commit is made on is the one whose deletes were followed."""
    yard = upserted(make(version))

    def epochs() -> None:
        yard.epoch({1: "1@a"}, [8, 9])
        yard.epoch({1: "1@b", 10: "10@b"}, [11])

    committer = InTheWay(catalog, [lambda: yard.epoch({12: "12@c"}, [13])])
    done = yard.compact(epochs, committer=committer)
    yard.check()
    assert isinstance(committer.given[0], Conflicted)
    assert len(yard.rewriting.reprojections) == 2
    assert done.reprojected_rows > yard.rewriting.reprojections[0].rows
    assert done.snapshot_ids == (yard.committer.head(yard.name).snapshot_id,)


@pytest.mark.parametrize("version", [2, 3])
def test_a_commit_without_an_answer_is_found_and_not_made_twice(catalog: Catalog, make: MakeYard, version: int) -> None:
    yard = upserted(make(version))
    committer = InTheWay(catalog, [], [Unknown("the line went dead")])
    done = yard.compact(committer=committer)
    yard.check()
    assert len(committer.given) == 1
    assert done.snapshot_ids == (yard.committer.head(yard.name).snapshot_id,)


@pytest.mark.parametrize(("version", "partition"), [(2, ()), (2, ("part",)), (3, ())], ids=str)
def test_deletes_of_files_that_stay_are_carried_along(make: MakeYard, version: int, partition: tuple[str, ...]) -> None:
    """A position delete file of a whole partition is for rewritten files and for others at once."""
    yard = make(version, partition)
    yard.epoch({n: f"large {n * 7919}" for n in range(20_000)})
    for number in range(4):
        yard.epoch({30_000 + number * 10 + n: f"small {n}" for n in range(6)})
    settings = CompactSettings(target_file_bytes=30_000, min_input_files=2, delete_ratio=0.9)
    large = {file.path for file in yard.live.files if file.size > 30_000}
    gone = [*range(0, 600, 5), 30_001, 30_012, 30_023]
    done = yard.compact(lambda: yard.epoch({30_002: "small 0", 7: "large 1"}, gone), settings)
    yard.check()
    assert done.reprojected_rows == 4
    assert large <= {file.path for file in yard.live.files}
    yard.epoch(dict.fromkeys(range(3, 300, 7), "last"), [30_031])
    yard.check()


@pytest.mark.parametrize(("version", "partition"), LAYOUTS, ids=str)
def test_an_equality_delete_meanwhile_reaches_the_new_files(
    make: MakeYard, version: int, partition: tuple[str, ...]
) -> None:
    """H15: their sequence number is that of the head they were read at."""
    yard = upserted(make(version, partition))
    yard.compact(lambda: yard.delete_by(["id"], [(12,), (13,), (99,)]))
    del yard.rows[12], yard.rows[13]
    yard.check()
    yard.convert()
    yard.check()


@pytest.mark.parametrize(("version", "partition"), LAYOUTS, ids=str)
def test_equality_deletes_of_a_stream_that_never_rests_stay_and_reach_what_they_reached(
    make: MakeYard, version: int, partition: tuple[str, ...]
) -> None:
    """H15: a row that is deleted and inserted again lives, whatever is put together around it."""
    yard = upserted(make(version, partition))
    yard.delete_by(["id"], [(12,), (13,)])
    del yard.rows[12]
    yard.epoch({13: "13@again"})
    done = yard.compact(lambda: yard.delete_by(["id"], [(14,)]))
    del yard.rows[14]
    assert done.snapshot_ids
    assert not done.dropped
    yard.check()
    yard.convert()
    yard.check()
    yard.compact()
    yard.check()


@pytest.mark.parametrize("version", [2, 3])
def test_a_conversion_meanwhile_is_followed(make: MakeYard, version: int) -> None:
    yard = upserted(make(version))

    def meanwhile() -> None:
        yard.delete_by(["id"], [(12,), (16,)])
        yard.convert()

    done = yard.compact(meanwhile)
    del yard.rows[12], yard.rows[16]
    yard.check()
    assert done.reprojected_rows == 2
    assert yard.equality == set()


@pytest.mark.parametrize("version", [2, 3])
def test_what_somebody_else_rewrote_is_dropped_and_planned_anew(make: MakeYard, version: int) -> None:
    """H47"""
    yard = upserted(make(version, ("part",)))

    def rewrite() -> None:
        yard.run(
            "CALL {catalog}.system.rewrite_data_files(table => '{name}', where => 'part = 1', "
            "options => map('rewrite-all', 'true'))"
        )
        yard.epoch({2: "2@new"}, [3])

    done = yard.compact(rewrite)
    yard.check()
    assert len(done.dropped) == 1
    assert done.snapshot_ids, "the other partitions are published"
    yard.epoch({5: "5@later"}, [6, 7])
    yard.compact()
    yard.check()


@pytest.mark.parametrize("version", [2, 3])
def test_rows_that_a_rollback_brings_back_are_not_lost(make: MakeYard, version: int) -> None:
    yard = make(version)
    yard.epoch({n: f"{n}@0" for n in range(20)})
    yard.epoch({n: f"{n}@1" for n in range(20, 40)})
    snapshot, rows = yard.committer.head(yard.name).snapshot_id, dict(yard.rows)
    yard.run("DELETE FROM {table} WHERE id IN (1, 2, 25)")

    def rollback() -> None:
        yard.run(f"CALL {{catalog}}.system.rollback_to_snapshot('{{name}}', {snapshot})")

    done = yard.compact(rollback)
    assert yard.rows == rows
    yard.check()
    assert len(done.dropped) == 1
    assert done.snapshot_ids == ()


@pytest.mark.parametrize("version", [2, 3])
def test_appends_and_deletes_of_others_meanwhile(make: MakeYard, version: int) -> None:
    yard = upserted(make(version))

    def others() -> None:
        yard.append([(100, "100@f", 2), (101, "c", 0)])
        yard.run("DELETE FROM {table} WHERE id IN (4, 5, 100)")

    yard.compact(others)
    yard.rows = {n: text for n, text in yard.rows.items() if n not in (4, 5)}
    assert {row[0] for row in yard.seen_by_spark()} == {*yard.rows, 101}


@pytest.mark.parametrize("version", [2, 3])
def test_files_without_a_live_row_just_go(make: MakeYard, version: int) -> None:
    yard = make(version)
    yard.epoch({n: f"{n}@0" for n in range(10)})
    yard.epoch({n: f"{n}@1" for n in range(10)})
    done = yard.compact(settings=CompactSettings(delete_ratio=0.5, min_input_files=9))
    yard.check()
    assert (done.removed_files, done.added_files, yard.live.deletes) == (1, 0, ())
    yard.epoch({}, range(10))
    done = yard.compact(settings=CompactSettings(delete_ratio=0.5, min_input_files=9))
    yard.check()
    assert (done.added_files, yard.live.files) == (0, ())
    yard.epoch({1: "again"})
    yard.check()


@pytest.mark.parametrize("version", [2, 3])
def test_a_table_that_is_upgraded_meanwhile_is_planned_anew(make: MakeYard, version: int) -> None:
    """H24: position deletes of version 2 are left out as well, once they are read with version 3."""
    yard = upserted(make(2))
    if version == 2:
        done = yard.compact(lambda: yard.run("ALTER TABLE {table} SET TBLPROPERTIES ('format-version' = '3')"))
        assert done.snapshot_ids == ()
    else:
        yard.run("ALTER TABLE {table} SET TBLPROPERTIES ('format-version' = '3')")
    yard.check()
    yard.epoch({1: "1@v3"}, [2])
    before = yard.lineage()
    yard.compact()
    yard.check()
    assert yard.lineage() == before


def test_a_damaged_file_keeps_only_its_own_group_small(make: MakeYard) -> None:
    yard = upserted(make(2, ("part",)))
    damaged = next(file for file in yard.live.files if file.partition == (1,))
    path = Path(damaged.path.removeprefix("file:"))
    content = path.read_bytes()
    path.write_bytes(b"PAR1" + bytes(damaged.size - 8) + b"PAR1")
    done = yard.compact()
    assert [damaged.path in one.why for one in done.dropped] == [True]
    assert sorted(place[1] for place, count in by_place(yard).items() if count == 1) == [(0,), (2,)]
    path.write_bytes(content)
    yard.check()


@pytest.mark.parametrize("mapped", [True, False])
def test_imported_files_without_ids_need_a_name_mapping(make: MakeYard, tmp_path: Path, mapped: bool) -> None:
    """Without one, readers count columns, and what is written here would say otherwise for ever."""
    yard = make(2)
    for number in range(2):
        rows = pa.table({"id": pa.array([number]), "name": ["a"], "part": pa.array([1], pa.int32())})
        folder = tmp_path / f"import{number}"
        folder.mkdir()
        pq.write_table(rows, folder / "data.parquet")
        yard.run(f"CALL {{catalog}}.system.add_files(table => '{{name}}', source_table => '`parquet`.`{folder}`')")
    yard.run("ALTER TABLE {table} RENAME COLUMN name TO title")
    if not mapped:
        yard.run("ALTER TABLE {table} UNSET TBLPROPERTIES ('schema.name-mapping.default')")
    before = yard.seen_by_spark()
    done = yard.compact()
    assert yard.seen_by_spark() == before
    assert bool(done.snapshot_ids) is mapped
    assert len(yard.live.files) == (1 if mapped else 2)
    if mapped:
        assert {row[1] for row in before} == {"a"}


def test_batches_are_published_one_by_one(make: MakeYard) -> None:
    yard = upserted(make(3, ("part",)))
    done = yard.compact(settings=replace(EAGER, commit_bytes=1))
    yard.check()
    assert len(done.snapshot_ids) == 3
    assert set(by_place(yard).values()) == {1}


@pytest.mark.parametrize("version", [2, 3])
def test_files_of_older_schemas_are_read_by_field_id(catalog: Catalog, make: MakeYard, version: int) -> None:
    """H30: nested columns too; and columns that a file does not have get what a reader would see."""
    yard = make(version)
    place = evolve(catalog, yard, version)
    more = f"(3, 3, 5000000000, {place}, array(struct('k', 1, 2)), map('r', struct(1, 'b')), 7, 'n'"
    yard.run(f"INSERT INTO {{table}} VALUES {more}{', 9' if version == 3 else ''})")
    columns = "id, part, n, place, tags, to_json(m), price, name" + (", extra" if version == 3 else "")
    query = f"SELECT {columns} FROM {{}} ORDER BY id"
    before = yard.spark.sql(query.format(yard.sql)).collect()
    assert before[0]["name"] is None
    if version == 3:
        assert [row["extra"] for row in before] == [5, 5, 9]
        assert before[0]["place"]["d"] == 5
    by_pyiceberg = yard.rows_of_pyiceberg()
    yard.compact()
    assert len(yard.live.files) == 1
    assert yard.spark.sql(query.format(yard.sql)).collect() == before
    assert yard.rows_of_pyiceberg() == by_pyiceberg
