"""Equality deletes become vectors or position deletes: whoever reads the table sees the rows that Spark saw before."""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import date
from decimal import Decimal as Number
from pathlib import Path
from typing import Any

import pytest
from convert_builders import JOB, Ground, Row, Rows
from py4j.protocol import Py4JJavaError

from frazil.errors import TableChanged
from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.maintenance.convert.planner import ConvertSettings
from frazil.maintenance.convert.tasks import SparkConverting
from frazil.model.files import FileKind
from frazil.model.ids import TableName, maintenance_folder
from frazil.model.schema import BINARY, BOOLEAN, DATE, DOUBLE, INT, LONG, STRING, Decimal

pytestmark = pytest.mark.spark
LAYOUTS = [(2, ()), (3, ()), (2, ("part",)), (3, ("bucket(2, id)", "part"))]


@pytest.fixture
def name(namespace: str) -> TableName:
    return TableName((namespace,), "orders")


def upserted(ground: Ground, epochs: int = 4) -> Rows:
    """Epochs that update, delete, and move rows between partitions. Returns what Spark sees then."""
    ground.epoch({n: f"{n}@0" for n in range(30)})
    for number in range(1, epochs):
        ground.epoch({n: f"{n}@{number}" for n in range(number, 30, number + 2)}, [number * 7, number * 7 + 1])
    return ground.seen_by_spark()


@pytest.mark.parametrize(("version", "partition"), LAYOUTS, ids=str)
def test_pyiceberg_reads_what_it_refused_before(
    catalog: Catalog, name: TableName, version: int, partition: tuple[str, ...]
) -> None:
    """And the pipeline goes on: the ledger is as it was."""
    ground = Ground(catalog, name, version=version, partition=partition)
    before = upserted(ground)
    with pytest.raises(Exception, match="equality"):
        ground.seen_by_pyiceberg()
    frontier, tag = ground.frontier, ground.committer.head(name).tags[JOB.tag]
    done = ground.convert()
    ground.check_converted(before)
    head = ground.committer.head(name)
    assert (ground.frontier, head.tags[JOB.tag]) == (frontier, tag)
    assert head.ancestry[0].summary["operation"] == "delete", "compactions under way must hear of it"
    assert head.ancestry[0].summary["frazil.maintenance"] == "convert"
    assert head.snapshot_id == done.snapshot_id
    assert (done.delete_files, done.dangling_files) == (3, 1), "the first epoch had nothing to delete"
    assert all(delete.is_vector is (version == 3) for delete in ground.live.deletes)
    ground.epoch({3: "3@9", 100: "new"}, [4])
    after = ground.seen_by_spark()
    assert after != before
    ground.convert()
    ground.check_converted(after)
    assert ground.plan() is None


@pytest.mark.parametrize("version", [2, 3])
def test_deletes_by_several_sets_of_columns_with_nulls_in_them(catalog: Catalog, name: TableName, version: int) -> None:
    """NULL equals NULL; the same values in other columns are other keys."""
    ground = Ground(catalog, name, version=version)
    ground.append([(1, "a", 1), (2, None, 1), (3, "a", None), (4, None, None), (5, "b", 5), (6, "c", 2), (9, "", 0)])
    ground.delete_by(["name"], [(None,)])
    ground.append([(7, None, 7), (8, "b", 8)])
    ground.delete_by(["part", "name"], [(None, "a"), (1, "b")])
    ground.delete_by(["id"], [(5,), (99,)])
    ground.delete_by(["part"], [(6,)])
    before = ground.seen_by_spark()
    assert sorted(row[0] for row in before) == [1, 6, 7, 8, 9]
    done = ground.convert()
    assert (done.rows, done.delete_files) == (4, 4)
    ground.check_converted(before)


def test_a_delete_of_one_partition_leaves_the_others_alone(catalog: Catalog, name: TableName) -> None:
    ground = Ground(catalog, name, partition=["part"])
    ground.append([(1, "a", 1), (1, "b", 2), (2, "c", 1), (2, "d", None)])
    spec = ground.tables.load(name).spec.spec_id
    ground.delete_by(["id"], [(1,)], part=(2,), spec_id=spec)
    ground.delete_by(["id"], [(2,)], part=(None,), spec_id=spec)
    ground.delete_by(["name"], [("c",)])
    before = ground.seen_by_spark()
    assert before == {(1, "a", 1): 1}
    assert ground.convert().rows == 3
    ground.check_converted(before)


def test_a_schema_that_evolved_in_between(catalog: Catalog, name: TableName) -> None:
    """Bound by field id: renamed, widened, added later (missing is NULL), dropped, and added again under the same name,
    after which Spark itself cannot read the table any more."""
    ground = Ground(catalog, name, columns={"id": LONG, "name": STRING, "part": INT, "code": INT})
    ground.append([(1, "a", 1, 10), (2, "b", 2, 20), (3, "c", 3, 30)])
    ground.delete_by(["code"], [(20,)])
    ground.run("ALTER TABLE {table} ALTER COLUMN part TYPE BIGINT")
    ground.run("ALTER TABLE {table} RENAME COLUMN name TO title")
    ground.run("ALTER TABLE {table} DROP COLUMN code")
    ground.run("ALTER TABLE {table} ADD COLUMN code STRING")
    ground.append([(4, "d", 1 << 40, "x"), (5, "e", 5, None), (6, "a", 6, "y")])
    ground.delete_by(["part"], [(3,), (1 << 40,)])
    ground.delete_by(["title", "code"], [("a", None)])
    with pytest.raises(Exception, match="multiple fields for name code"):
        ground.seen_by_spark()
    assert ground.convert().rows == 4
    ground.check_converted(Counter([(5, "e", 5, None), (6, "a", 6, "y")]))


def test_a_delete_by_a_column_that_was_dropped(catalog: Catalog, name: TableName) -> None:
    """It still deletes."""
    ground = Ground(catalog, name)
    ground.append([(1, "a", 1), (2, "b", 2)])
    ground.delete_by(["part"], [(2,)])
    ground.run("ALTER TABLE {table} DROP COLUMN part")
    before = ground.seen_by_spark()
    assert before == {(1, "a"): 1}
    ground.convert()
    ground.check_converted(before)


def test_a_column_with_a_default_is_compared_by_it(catalog: Catalog, name: TableName) -> None:
    """Files from before the column have its default in it, not NULL."""
    ground = Ground(catalog, name)
    ground.append([(1, "a", 1), (2, "b", 2)])
    table: Any = catalog.java.loadTable(catalog.identifier(name))
    types, expressions = catalog.iceberg.types.Types, catalog.iceberg.expressions.Expressions
    table.updateSchema().addColumn("region", types.StringType.get(), expressions.lit("eu")).commit()
    ground.append([(3, "c", 3, "us"), (4, "d", 4, "eu")])
    ground.delete_by(["region", "id"], [("eu", 1), (None, 2), ("eu", 4)])
    ground.convert()
    assert sorted(row[0] for row in ground.seen_by_spark()) == [2, 3]


def test_an_imported_file_that_lacks_the_column_it_is_partitioned_by(catalog: Catalog, name: TableName) -> None:
    """As Hive wrote them: the partition tells the column."""
    ground = Ground(catalog, name, partition=["part"])
    ground.add_file(["id", "name"], [(1, "a"), (2, "b"), (3, "c")], (5,))
    ground.delete_by(["part", "id"], [(5, 1), (None, 2), (6, 3)])
    before = ground.seen_by_spark()
    assert sorted(row[0] for row in before) == [2, 3]
    assert ground.convert().rows == 1
    ground.check_converted(before)


def test_keys_of_every_kind(catalog: Catalog, name: TableName) -> None:
    kinds = {
        "amount": Decimal(12, 2), "day": DATE, "flag": BOOLEAN, "ratio": DOUBLE, "raw": BINARY, "text": STRING
    }  # fmt: skip
    ground = Ground(catalog, name, columns={"id": LONG, **kinds})
    values: dict[str, tuple[Any, Any]] = {
        "amount": (Number("1.50"), Number("-2.00")),
        "day": (date(2024, 2, 29), date(1969, 12, 31)),
        "flag": (True, False),
        "ratio": (0.5, float("inf")),
        "raw": (b"\x00", b""),
        "text": ("", "é"),
    }
    rows: list[Row] = [(1, *(pair[0] for pair in values.values())), (2, *(pair[1] for pair in values.values()))]
    rows += [(10 + n, *(one if m == n else None for m, (one, _) in enumerate(values.values()))) for n in range(6)]
    ground.append(rows)
    for n, (column, (one, other)) in enumerate(values.items()):
        ground.delete_by([column, "id"], [(one, 10 + n), (other, 1)])
    ground.delete_by(list(values), [tuple(other for _, other in values.values())])
    before = ground.seen_by_spark()
    assert [row[0] for row in before] == [1]
    assert ground.convert().rows == 7
    ground.check_converted(before)


@pytest.mark.parametrize("version", [2, 3])
def test_what_was_deleted_by_position_before_stays_deleted(catalog: Catalog, name: TableName, version: int) -> None:
    """H23, H24: a vector replaces the previous one, and contains position deletes of version 2."""
    ground = Ground(catalog, name, version=version, partition=["part"])
    ground.append([(n, f"n{n}", n % 2) for n in range(20)])
    ground.run("DELETE FROM {table} WHERE id IN (0, 1, 2)")
    ground.run("DELETE FROM {table} WHERE id = 3")
    if version == 2:
        ground.run("ALTER TABLE {table} SET TBLPROPERTIES ('format-version' = '3')")
    ground.delete_by(["id"], [(2,), (3,), (4,), (5,)])
    before = ground.seen_by_spark()
    assert ground.convert().rows == 2, "rows that were deleted already are not counted"
    ground.check_converted(before)
    assert all(delete.is_vector for delete in ground.live.deletes if delete.data_file)


def test_deletes_that_reach_nothing_are_dropped_without_a_search(catalog: Catalog, name: TableName) -> None:
    """H17: of a partition without files. Of one that has only newer ones, too."""
    ground = Ground(catalog, name, partition=["part"])
    ground.append([(1, "a", 2)])
    spec = ground.tables.load(name).spec.spec_id
    ground.delete_by(["id"], [(1,)], part=(1,), spec_id=spec)
    ground.delete_by(["id"], [(1,)], part=(3,), spec_id=spec)
    ground.append([(1, "b", 3)])
    before = ground.seen_by_spark()
    plan = ground.plan()
    assert plan is not None
    assert (len(plan.dangling), plan.converted) == (2, ())
    assert ground.convert().dangling_files == 2
    assert not ground.live.deletes
    ground.check_converted(before)
    assert len(before) == 2


def test_a_part_of_the_deletes_at_a_time(catalog: Catalog, name: TableName) -> None:
    ground = Ground(catalog, name)
    before = upserted(ground)
    ground.convert(settings=ConvertSettings(max_keys=1))
    assert len(ground.equality) == 2, "the first one reached nothing, the second was converted"
    assert ground.seen_by_spark() == before
    while ground.plan() is not None:
        ground.convert(settings=ConvertSettings(max_keys=25))
    ground.check_converted(before)


def test_no_process_holds_all_keys(catalog: Catalog, name: TableName) -> None:
    """The join sorts and merges, which spills. Spark takes what Python makes for small and would broadcast it."""
    ground = Ground(catalog, name)
    upserted(ground)
    plan = ground.plan()
    assert plan is not None
    frame = SparkConverting(ground.spark, ground.clock).matches(plan.search(ground.clock.new_uuid()))
    joined = frame._jdf.queryExecution().executedPlan().toString()
    assert "SortMergeJoin" in joined
    assert "Broadcast" not in joined


@pytest.mark.parametrize(("version", "partition"), LAYOUTS, ids=str)
def test_duckdb_reads_it(catalog: Catalog, name: TableName, version: int, partition: tuple[str, ...]) -> None:
    """Where duckdb, duckdb-extension-iceberg and duckdb-extension-avro are installed."""
    ground = Ground(catalog, name, version=version, partition=partition)
    before = upserted(ground)
    ground.convert()
    assert ground.seen_by_duckdb() == before


@pytest.mark.parametrize(("version", "partition"), LAYOUTS, ids=str)
def test_duckdb_reads_equality_deletes_and_pyiceberg_refuses_them(
    catalog: Catalog, name: TableName, version: int, partition: tuple[str, ...]
) -> None:
    """As docs/doctor.md and docs/tables.md say of the table before it is converted."""
    ground = Ground(catalog, name, version=version, partition=partition)
    before = upserted(ground)
    with pytest.raises(ValueError, match="equality deletes"):
        ground.seen_by_pyiceberg()
    assert ground.seen_by_duckdb() == before


# others at the same time


def test_a_crash_before_the_commit_leaves_files_below_the_run_alone(catalog: Catalog, name: TableName) -> None:
    ground = Ground(catalog, name)
    before = upserted(ground)
    head, equality = ground.committer.head(name), ground.equality

    class Crash(Exception):
        pass

    def crash() -> None:
        raise Crash

    files = set(Path(ground.tables.load(name).location.removeprefix("file:")).rglob("*"))
    with pytest.raises(Crash):
        ground.convert(between=crash)
    (search,) = ground.searching.searches
    assert search.folder == maintenance_folder(ground.tables.load(name).data_location, "convert", search.number)
    new = {
        path
        for path in Path(ground.tables.load(name).location.removeprefix("file:")).rglob("*")
        if path.is_file() and path not in files
    }
    assert any(path.suffix == ".puffin" for path in new)
    assert all(str(path).startswith(search.folder.removeprefix("file:")) for path in new)
    assert ground.committer.head(name).snapshot_id == head.snapshot_id
    assert (ground.equality, ground.seen_by_spark()) == (equality, before)
    ground.convert()
    ground.check_converted(before)


@pytest.mark.parametrize("version", [2, 3])
def test_an_epoch_that_lands_meanwhile_keeps_its_deletes(catalog: Catalog, name: TableName, version: int) -> None:
    """H15, H47: nothing is searched again, and nothing comes back."""
    ground = Ground(catalog, name, version=version)
    upserted(ground)
    ground.convert(between=lambda: ground.epoch({1: "1@late", 2: "2@late"}, [3]))
    assert len(ground.searching.searches) == 1
    assert len(ground.equality) == 1
    *older, newest = sorted(ground.live.files, key=lambda file: file.sequence_number)
    assert any(file.deletes for file in older)
    assert newest.deletes == (), "whoever compacts it would take its rows for deleted"
    seen = ground.seen_by_spark()
    assert sorted((row[0], row[1]) for row in seen if row[0] in (1, 2, 3)) == [(1, "1@late"), (2, "2@late")]
    ground.convert()
    ground.check_converted(seen)
    ground.epoch({1: "1@end"})
    assert {row[1] for row in ground.seen_by_spark() if row[0] == 1} == {"1@end"}


def test_a_vector_that_lands_meanwhile_is_merged(catalog: Catalog, name: TableName) -> None:
    """H15, H23: neither its rows nor ours come back."""
    ground = Ground(catalog, name)
    ground.append([(n, f"n{n}", 0) for n in range(10)])
    ground.delete_by(["id"], [(1,), (2,)])
    ground.convert(between=lambda: ground.run("DELETE FROM {table} WHERE id IN (3, 4)"))
    assert (len(ground.searching.searches), ground.searching.merges) == (1, 1)
    ground.check_converted(ground.seen_by_spark())
    assert sorted(row[0] for row in ground.seen_by_spark()) == [0, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("version", [2, 3])
def test_a_foreign_rewrite_that_lands_meanwhile(catalog: Catalog, name: TableName, version: int) -> None:
    """H47: its files have other rows at our positions."""
    ground = Ground(catalog, name, version=version)
    before = upserted(ground)
    rewrite = "CALL {catalog}.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))"
    ground.convert(between=lambda: ground.run(rewrite))
    assert ground.seen_by_spark() == before
    while ground.plan() is not None:
        ground.convert()
    ground.check_converted(before)


@pytest.mark.parametrize("version", [2, 3])
def test_a_compaction_that_began_before_the_deletes_came_is_refused_after_the_conversion(
    catalog: Catalog, name: TableName, version: int
) -> None:
    """H15: as Spark does it, with the sequence number it began with. Equality deletes would reach what it wrote; once
    they are converted, only Iceberg's own check of new deletes stands between it and rows that come back."""
    ground = Ground(catalog, name, version=version)
    ground.append([(1, "a", 1), (2, "b", 2)])
    table = catalog.java.loadTable(catalog.identifier(name))
    (read,) = ground.live.files
    written = read.path.replace(".parquet", "-compacted.parquet")
    shutil.copy(read.path.removeprefix("file:"), written.removeprefix("file:"))
    began = table.currentSnapshot()
    tasks = table.newScan().planFiles()
    old = tasks.iterator().next().file()
    tasks.close()
    builder = getattr(catalog.spark._jvm, "org.apache.iceberg.DataFiles").builder(table.spec())
    rewrite = table.newRewrite().validateFromSnapshot(began.snapshotId()).dataSequenceNumber(began.sequenceNumber())
    rewrite = rewrite.deleteFile(old).addFile(builder.copy(old).withPath(written).build())
    ground.delete_by(["id"], [(1,)])
    ground.convert()
    with pytest.raises(Py4JJavaError, match="found new"):
        rewrite.commit()
    assert ground.seen_by_spark() == {(2, "b", 2): 1}


def test_a_rollback_meanwhile_is_respected(catalog: Catalog, name: TableName) -> None:
    ground = Ground(catalog, name)
    ground.append([(1, "a", 1), (2, "b", 2)])
    start = ground.committer.head(name).snapshot_id
    ground.delete_by(["id"], [(1,)])
    done = ground.convert(
        between=lambda: ground.run(f"CALL {{catalog}}.system.rollback_to_snapshot('{{name}}', {start})")
    )
    assert done.snapshot_id is None
    assert len(ground.seen_by_spark()) == 2


def test_a_data_file_that_is_gone_stops_it_by_name(catalog: Catalog, name: TableName) -> None:
    ground = Ground(catalog, name)
    upserted(ground)
    path = next(file.path for file in ground.live.files if file.deletes)
    Path(path.removeprefix("file:")).unlink()
    with pytest.raises(TableChanged, match="is gone") as caught:
        ground.convert()
    assert caught.value.facts["path"] == path


def test_other_kinds_of_deletes_are_told_apart(catalog: Catalog, name: TableName) -> None:
    """The listing knows every delete file of a head, whether it reaches anything or not."""
    ground = Ground(catalog, name)
    dangling = ground.delete_by(["id"], [(1,)])
    ground.append([(1, "a", 1), (2, "b", 2)])
    reaching = ground.delete_by(["id"], [(1,)])
    ground.run("DELETE FROM {table} WHERE id = 2")
    kinds = {delete.path: delete.kind for delete in ground.live.deletes}
    assert {kinds.pop(dangling), kinds.pop(reaching)} == {FileKind.EQUALITY_DELETE}
    assert set(kinds.values()) == {FileKind.POSITION_DELETE}
    derived = ground.committer.live(name, ground.committer.head(name))
    assert set(derived.deletes) == set(ground.live.deletes)
