"""Small files become large ones whose rows lie in order, while the table is written: nothing is lost or comes back."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from compact_builders import EAGER, InTheWay, Yard, check_lineage, evolve
from retention_builders import Clock

from frazil.errors import BadInput
from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.system.deletion_queue import IcebergDeletionQueue
from frazil.iceberg.tables.storage_files import TableFiles
from frazil.maintenance.compact.planner import CompactSettings
from frazil.maintenance.compact.sort.in_memory import SortLimits
from frazil.maintenance.orphans import Sweep
from frazil.model.commit import Conflicted
from frazil.model.files import LiveFile
from frazil.model.ids import TableName
from frazil.model.schema import BINARY, BOOLEAN, DOUBLE, LONG, TIME, UUID, Primitive
from frazil.model.sort import parse_sort, run_of

pytestmark = pytest.mark.spark
LAYOUTS = [(2, ()), (3, ("bucket(2, id)", "part"))]
SHUFFLED = SortLimits(one_task=0, packed=30_000, bucket=10_000, sample=300)
ROADS = [pytest.param(SortLimits(), id="one task"), pytest.param(SHUFFLED, id="shuffled")]
NARROW = replace(EAGER, target_file_bytes=15_000)
MakeYard = Callable[..., Yard]
ALL_TYPES = {
    "id": LONG,
    "u": UUID,
    "t": TIME,
    "b": BINARY,
    "ok": BOOLEAN,
    "f": Primitive("fixed[3]"),
    "d": DOUBLE,
}


@pytest.fixture(params=ROADS)
def make(request: pytest.FixtureRequest, catalog: Catalog, namespace: str, tmp_path: Path) -> MakeYard:
    def make(version: int = 3, partition: tuple[str, ...] = (), order: str | None = "name") -> Yard:
        yard = Yard(catalog, TableName((namespace,), "orders"), tmp_path, version=version, partition=partition)
        yard.limits = request.param
        if order is not None:
            yard.run(f"ALTER TABLE {{table}} WRITE LOCALLY ORDERED BY {order}")
        return yard

    return make


def text_of(number: int, epoch: object) -> str:
    """In no order that a file could have by chance."""
    return hashlib.sha256(str(number).encode()).hexdigest()[:32] + f"@{epoch}"


def upserted(yard: Yard, epochs: int = 6) -> Yard:
    """Epochs that insert, update, delete, and move rows between partitions."""
    for number in range(epochs):
        updated, inserted = range(number, 200 * number, 30), range(200 * number, 200 * number + 200)
        yard.epoch({n: text_of(n, number) for n in (*updated, *inserted)}, [number * 7, number * 7 + 1][: 2 * number])
    return yard


def rows_of(file: LiveFile, *columns: str) -> list[tuple[Any, ...]]:
    found = pq.read_table(file.path.removeprefix("file:"), columns=list(columns)).to_pylist()
    return [tuple(row[column] for column in columns) for row in found]


def check_order(yard: Yard, column: str = "name") -> None:
    """Every file lies in order, and no two of a partition reach into each other."""
    places: dict[Any, list[list[tuple[Any, ...]]]] = {}
    for file in yard.live.files:
        values = rows_of(file, column)
        assert values == sorted(values), file.path
        places.setdefault((file.spec_id, file.partition), []).append(values)
    for ranges in places.values():
        for one, other in itertools.pairwise(sorted(ranges)):
            assert one[-1] <= other[0]


def order_ids(yard: Yard) -> set[int | None]:
    return {row[0] for row in yard.spark.sql(f"SELECT sort_order_id FROM {yard.sql}.files WHERE content = 0").collect()}


def matched(yard: Yard, column: str, value: Any) -> int:
    """Files that a query for this value opens."""
    where = yard.catalog.iceberg.expressions.Expressions.equal(column, value)
    table = yard.catalog.java.loadTable(yard.catalog.identifier(yard.name))
    tasks = table.newScan().filter(where).planFiles().iterator()
    count = 0
    while tasks.hasNext():
        tasks.next()
        count += 1
    return count


@pytest.mark.parametrize(("version", "partition"), LAYOUTS, ids=str)
def test_files_of_a_table_with_a_sort_order_are_sorted(
    make: MakeYard, version: int, partition: tuple[str, ...]
) -> None:
    """And say so; and they are left alone from then on, while the pipeline goes on."""
    yard = upserted(make(version, partition), epochs=8)
    frontier = yard.frontier
    done = yard.compact(settings=NARROW)
    yard.check()
    check_order(yard)
    assert yard.live.deletes == ()
    assert order_ids(yard) == {1}
    assert yard.frontier == frontier
    assert done.added_files == len(yard.live.files)
    if not partition:
        assert len(yard.live.files) > 2
    rebased = {file.path for file in yard.live.files if (run := run_of(file.path)) and run.files > 1}
    yard.epoch({n: text_of(n, 9) for n in range(0, 600, 30)}, [1, 2])
    yard.check()
    again = yard.compaction(replace(NARROW, delete_ratio=1.0))
    assert again is None or not rebased & {file.path for group in again.groups for file in group.files}
    yard.compact(settings=replace(NARROW, target_file_bytes=EAGER.target_file_bytes))
    yard.check()
    assert order_ids(yard) == {1}


@pytest.mark.parametrize("partition", [(), ("part",)], ids=str)
def test_a_row_keeps_its_id_and_the_number_of_its_last_change(make: MakeYard, partition: tuple[str, ...]) -> None:
    check_lineage(upserted(make(3, partition)), NARROW)


@pytest.mark.parametrize(("version", "partition"), LAYOUTS, ids=str)
def test_rows_that_an_epoch_deletes_meanwhile_stay_deleted(
    make: MakeYard, version: int, partition: tuple[str, ...]
) -> None:
    """H15, H16: rows are found where they were sorted to; the rewrite is not repeated."""
    yard = upserted(make(version, partition))
    done = yard.compact(lambda: yard.epoch({3: "3@new", 4: "4@new", 2000: "new"}, [5, 6, 39, 333]), NARROW)
    yard.check()
    assert len(yard.rewriting.rewrites) == 1
    assert done.snapshot_ids
    assert done.reprojected_rows == 6
    assert not done.dropped
    yard.epoch({n: f"{n}@last" for n in range(0, 400, 2)}, [3, 2000])
    yard.check()
    yard.compact()
    yard.check()


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("here", [True, False], ids=["driver", "tasks"])
def test_several_epochs_meanwhile_and_one_right_before_the_commit(
    catalog: Catalog, make: MakeYard, version: int, here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H16: the head that the commit is made on is the one whose deletes were followed."""
    monkeypatch.setattr("frazil.maintenance.compact.tasks.FOLLOWED_HERE", 1 << 20 if here else 0)
    yard = upserted(make(version))

    def epochs() -> None:
        yard.epoch({1: "1@a"}, [8, 9])
        yard.epoch({1: "1@b", 10: "10@b"}, [11])

    committer = InTheWay(catalog, [lambda: yard.epoch({12: "12@c"}, [13])])
    done = yard.compact(epochs, NARROW, committer=committer)
    yard.check()
    assert isinstance(committer.given[0], Conflicted)
    assert len(yard.rewriting.reprojections) == 2
    assert done.reprojected_rows > yard.rewriting.reprojections[0].rows
    assert done.snapshot_ids == (yard.committer.head(yard.name).snapshot_id,)


@pytest.mark.parametrize(("version", "partition"), LAYOUTS, ids=str)
def test_an_equality_delete_meanwhile_reaches_the_sorted_files(
    make: MakeYard, version: int, partition: tuple[str, ...]
) -> None:
    """H15"""
    yard = upserted(make(version, partition))
    yard.compact(lambda: yard.delete_by(["id"], [(12,), (13,), (9999,)]), NARROW)
    del yard.rows[12], yard.rows[13]
    yard.check()
    yard.convert()
    yard.check()


@pytest.mark.parametrize("version", [2, 3])
def test_a_rollback_and_a_rewrite_of_others_drop_the_group(make: MakeYard, version: int) -> None:
    """H47"""
    yard = upserted(make(version, ("part",)))
    done = yard.compact(
        lambda: yard.run(
            "CALL {catalog}.system.rewrite_data_files(table => '{name}', where => 'part = 1', "
            "options => map('rewrite-all', 'true'))"
        ),
        NARROW,
    )
    yard.check()
    assert len(done.dropped) == 1
    yard.epoch({n: f"{n}@n" for n in range(20)})
    yard.epoch({n: f"{n}@m" for n in range(20, 40)})
    snapshot, rows = yard.committer.head(yard.name).snapshot_id, dict(yard.rows)
    yard.run("DELETE FROM {table} WHERE id IN (1, 2, 25)")
    done = yard.compact(lambda: yard.run(f"CALL {{catalog}}.system.rollback_to_snapshot('{{name}}', {snapshot})"))
    assert yard.rows == rows
    yard.check()
    assert done.dropped


@pytest.mark.parametrize("version", [2, 3])
def test_files_without_a_live_row_just_go(make: MakeYard, version: int) -> None:
    yard = make(version)
    yard.epoch({n: f"{n}@0" for n in range(10)})
    yard.epoch({}, range(10))
    done = yard.compact()
    yard.check()
    assert (done.added_files, yard.live.files) == (0, ())


def test_a_damaged_file_keeps_only_its_own_group_small(make: MakeYard) -> None:
    yard = upserted(make(2, ("part",)))
    damaged = next(file for file in yard.live.files if file.partition == (1,))
    path = Path(damaged.path.removeprefix("file:"))
    content = path.read_bytes()
    path.write_bytes(b"PAR1" + bytes(damaged.size - 8) + b"PAR1")
    done = yard.compact()
    assert [damaged.path in one.why for one in done.dropped] == [True]
    assert {file.partition for file in yard.live.files if file.sort_order_id == 1} >= {(0,), (2,)}
    path.write_bytes(content)
    yard.check()


def test_a_column_that_is_damaged_where_nobody_looked_first_ends_its_group_too(make: MakeYard) -> None:
    """The order's own column can be read; another one cannot, which the shuffle meets in the middle of its work."""
    yard = upserted(make(2, ("part",)))
    damaged = next(file for file in yard.live.files if file.partition == (1,))
    path = Path(damaged.path.removeprefix("file:"))
    content = path.read_bytes()
    chunk = next(
        column
        for column in (pq.ParquetFile(path).metadata.row_group(0).column(place) for place in range(3))
        if column.path_in_schema == "id"
    )
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    path.write_bytes(
        content[:start] + bytes(chunk.total_compressed_size) + content[start + chunk.total_compressed_size :]
    )
    done = yard.compact()
    assert [damaged.path in one.why for one in done.dropped] == [True]
    path.write_bytes(content)
    yard.check()


@pytest.mark.parametrize("version", [2, 3])
def test_files_of_older_schemas_are_sorted_by_what_their_columns_are_now(
    catalog: Catalog, make: MakeYard, version: int
) -> None:
    """H30: by field id; a column that a file lacks is what a reader would see, also in the order."""
    yard = make(version, order=None)
    place = evolve(catalog, yard, version)
    for number in range(3, 7):
        more = f"({number}, 3, {5_000_000_000 - number}, {place}, array(struct('k', 1, 2)), map('r', struct(1, 'b'))"
        yard.run(f"INSERT INTO {{table}} VALUES {more}, {10 - number}, 'n'{f', {number}' if version == 3 else ''})")
    columns = "id, part, n, place, tags, to_json(m), price, name" + (", extra" if version == 3 else "")
    query = f"SELECT {columns} FROM {{}} ORDER BY id"
    before = yard.spark.sql(query.format(yard.sql)).collect()
    by_pyiceberg = yard.rows_of_pyiceberg()
    by = [parse_sort("extra desc" if version == 3 else "price desc"), parse_sort("place.y"), parse_sort("n")]
    yard.compact(settings=replace(EAGER, order_by=tuple(by)))
    (file,) = yard.live.files
    assert yard.spark.sql(query.format(yard.sql)).collect() == before
    assert yard.rows_of_pyiceberg() == by_pyiceberg
    ids = [row[0] for row in rows_of(file, "id")]
    assert ids == ([6, 2, 1, 5, 4, 3] if version == 3 else [3, 4, 5, 6, 1, 2])
    yard.compact(settings=replace(EAGER, target_file_bytes=file.size, zorder_by=("n", "price", "place.z")))
    assert yard.spark.sql(query.format(yard.sql)).collect() == before
    assert yard.rows_of_pyiceberg() == by_pyiceberg


def test_an_order_of_transforms_and_directions_is_kept(make: MakeYard) -> None:
    yard = make(3, order="bucket(4, id), truncate(2, name) DESC NULLS FIRST, id DESC")
    for number in range(4):
        yard.epoch({n: f"{n % 7}{n}" for n in range(number, 80, 4)})
    buckets = {
        row[0]: row[1]
        for row in yard.spark.sql(
            f"SELECT id, {yard.catalog.settings.name}.system.bucket(4, id) FROM {yard.sql}"
        ).collect()
    }
    yard.compact()
    yard.check()
    (file,) = yard.live.files
    found = [(buckets[id_], [-ord(c) for c in name[:2]], -id_) for id_, name in rows_of(file, "id", "name")]
    assert found == sorted(found)
    assert order_ids(yard) == {1}


@pytest.mark.parametrize("version", [2, 3])
def test_a_query_opens_few_of_the_files_it_opened_before(make: MakeYard, version: int) -> None:
    """What sorting is for."""
    yard = make(version, order=None)
    for number in range(6):
        yard.epoch({n: f"{n * 7919 % 6000:05}" for n in range(number, 6000, 6)})
    size = sum(file.size for file in yard.live.files)
    settings = replace(EAGER, target_file_bytes=size // 12, sorted_files=20)
    assert matched(yard, "name", "03000") == matched(yard, "id", 3000) == 6
    yard.compact(settings=replace(settings, order_by=(parse_sort("name"),)))
    yard.check()
    check_order(yard)
    files = len(yard.live.files)
    assert files >= 10
    assert matched(yard, "name", "03000") == 1
    assert matched(yard, "id", 3000) == files
    assert order_ids(yard) <= {None, 0}, "it is not the table's own order"
    both = replace(settings, zorder_by=("id", "name"))
    yard.compact(settings=both)
    yard.check()
    files = len(yard.live.files)
    assert files >= 10
    for column, value in (("name", "03100"), ("id", 3100)):
        assert matched(yard, column, value) <= 0.6 * files, column
    assert yard.compaction(both) is None, "its paths tell that it is sorted"


def test_the_table_gets_an_order_and_its_full_files_are_sorted_once(make: MakeYard) -> None:
    yard = make(3, order=None)
    yard.epoch({n: f"{n * 7919 % 100:02}" for n in range(100)})
    (full,) = yard.live.files
    settings = CompactSettings(target_file_bytes=full.size)
    assert yard.compaction(settings) is None
    yard.run("ALTER TABLE {table} WRITE ORDERED BY name")
    yard.compact(settings=settings)
    yard.check()
    check_order(yard)
    assert yard.compaction(settings) is None


def test_more_rows_than_one_task_may_hold_are_shuffled(catalog: Catalog, namespace: str, tmp_path: Path) -> None:
    yard = Yard(catalog, TableName((namespace,), "orders"), tmp_path)
    yard.limits = SortLimits(held=1, bucket=3000)
    yard.run("ALTER TABLE {table} WRITE ORDERED BY name")
    upserted(yard)
    yard.compact(settings=NARROW)
    yard.check()
    check_order(yard)


def test_trails_are_swept_and_what_was_committed_beside_them_is_not(own: Catalog, tmp_path: Path) -> None:
    """H18, H19"""
    yard = Yard(own, TableName(("shop",), "orders"), tmp_path)
    yard.run("ALTER TABLE {table} WRITE ORDERED BY name")
    upserted(yard)
    yard.compact(settings=NARROW)
    row_maps = {f"file:{path}" if path else "" for path in trail_files(yard)}
    assert row_maps
    clock = Clock()
    queue = IcebergDeletionQueue(own, clock)
    sweep = Sweep(TableFiles(own, queue.name), queue, timedelta(hours=1), clock)
    assert sweep.perform(yard.name).queued == 0, "young ones may be needed yet"
    clock.ahead = timedelta(days=1)
    _, found = sweep.plan(yard.name)
    paths = {file.path for file in found}
    assert {path.removeprefix("file:") for path in paths} >= {path.removeprefix("file:") for path in row_maps}
    assert not paths & {file.path for file in yard.live.files}
    sweep.perform(yard.name)
    for path in paths:
        Path(path.removeprefix("file:")).unlink()
    assert {row[0]: row[1] for row in yard.seen_by_spark()} == yard.rows


@pytest.mark.parametrize("version", [2, 3])
def test_a_row_that_cannot_be_followed_stops_the_commit(make: MakeYard, version: int) -> None:
    """H16: to go on would bring it back."""
    yard = upserted(make(version))

    def meanwhile() -> None:
        yard.epoch({}, [333])
        for path in trail_files(yard):
            rows = pq.read_table(path)
            elsewhere = pa.array(rows.column("position").to_numpy() + 1_000_000)
            pq.write_table(rows.set_column(1, "position", elsewhere), path)

    head = yard.committer.head(yard.name).snapshot_id
    with pytest.raises(BadInput, match="0 rows of 1"):
        yard.compact(meanwhile, NARROW)
    yard.check()
    ancestry = [snapshot.snapshot_id for snapshot in yard.committer.head(yard.name).ancestry]
    assert ancestry[1] == head, "nothing but the epoch was published"


def trail_files(yard: Yard) -> Sequence[str]:
    folder = yard.tables.load(yard.name).data_location.removeprefix("file:")
    return [str(path) for path in Path(folder).rglob("trail-*.parquet")]


def test_uuids_times_and_binaries_are_sorted_too(catalog: Catalog, namespace: str, tmp_path: Path) -> None:
    """Through the shuffle they are Arrow's, which has types that Spark does not."""
    yard = Yard(catalog, TableName((namespace,), "orders"), tmp_path, columns=ALL_TYPES)
    yard.limits = SHUFFLED
    rows = [
        (n, bytes([n * 7 % 20]) * 16, n * 7 % 20, bytes([255 - n, 0]), n % 2 == 0, bytes([n, 1, 2]), float(-n))
        for n in range(20)
    ]
    for start in range(0, 20, 4):
        yard.add_file(list(ALL_TYPES), rows[start : start + 4], ())
    before = yard.rows_of_pyiceberg()
    for by in list(ALL_TYPES)[1:]:
        size = sum(file.size for file in yard.live.files)
        yard.compact(settings=replace(EAGER, target_file_bytes=size, order_by=(parse_sort(by),)))
        (file,) = yard.live.files
        found = pq.read_table(file.path.removeprefix("file:"), columns=[by]).column(by)
        values = found.cast(pa.binary(16)).to_pylist() if by == "u" else found.to_pylist()
        assert values == sorted(values), by
        assert yard.rows_of_pyiceberg() == before
