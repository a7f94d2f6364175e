"""Epochs located in real files, without a catalog: many random sequences equal a model after every step.

epochs --TableEpochWriter, TableLocator--> files --the listing's own arithmetic--> the next head
others append keys that are there, rewrite files and delete rows in between
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID as Uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from frazil.clock import SystemClock
from frazil.data.deletes.deleted_rows import DeletedRows
from frazil.data.deletes.positions import write_positions
from frazil.data.deletes.vectors import read_vector, to_positions
from frazil.data.keys.index_cache import IndexCache
from frazil.errors import StorageUnavailable, TableChanged
from frazil.iceberg.tables.file_listing import Listing, advanced, applied, changed
from frazil.ingest.locate.locator import TableLocator
from frazil.ingest.locate.searched_table import SearchedTable
from frazil.ingest.write.table_writer import TableEpochWriter, TaskOutput
from frazil.model.commit import CommitPlan
from frazil.model.files import FileClosed, FileKind, LiveDelete, LiveFile, LiveFiles
from frazil.model.ids import JobId, TableName, batch_id, epoch_prefix
from frazil.model.ledger import Fence, LedgerEntry, SnapshotFacts, TableHead
from frazil.model.partition import UNPARTITIONED, PartitionField, PartitionSpec, Transform
from frazil.model.ports import Located
from frazil.model.schema import INT, LONG, STRING, Field, Schema
from frazil.model.write import DeleteMode, EpochTarget, ParquetSettings, TableTask
from frazil.sources.cockroachdb.position import Hlc

NAME, JOB, FENCE = TableName(("shop",), "orders"), JobId("shop"), Fence(1, Uuid(int=1))
FIELDS = (Field(1, "id", LONG, True), Field(2, "code", STRING, True), Field(3, "value", INT))
SCHEMA = Schema(0, FIELDS, (1, 2))
BY_BUCKET = PartitionSpec(1, (PartitionField(1000, 1, "id_bucket", Transform("bucket", 3)),))
BY_VALUE = PartitionSpec(2, (PartitionField(1001, 3, "value_bucket", Transform("bucket", 2)),))
SPECS = (UNPARTITIONED, BY_BUCKET, BY_VALUE)
NUMBERS = 12
Rows = Counter[tuple[int, str, int]]


class FakeLake:
    """A table whose heads are listings of real files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.listing = Listing(1, {}, {}, frozenset([0]))
        self.deleted = DeletedRows()

    def head(self, table: TableName = NAME) -> TableHead:
        number = self.listing.snapshot_id or 0
        return TableHead(uuid="u", ancestry=(SnapshotFacts(number, None, number, 0, {}),), properties={})

    def live(self, table: TableName, head: TableHead, bounds_of: Sequence[int] = ()) -> LiveFiles:
        return applied(self.listing)

    def land(self, located: Located, epoch: Hlc) -> None:
        live = set(self.listing.data)
        assert set(located.must_exist) <= live, "a delete points into a file that is gone"
        plan = CommitPlan(entry=entry(epoch), files=located.files, removed_deletes=located.removed_deletes)
        number = (self.listing.snapshot_id or 0) + 1
        after = advanced(self.listing, plan, number, number, (1,))
        assert after is not None
        self.listing = after

    def delete_at(self, file: LiveFile, position: int) -> None:
        """Somebody deletes a row by its position, with a position delete file of version 2."""
        number = (self.listing.snapshot_id or 0) + 1
        path = f"{self.folder}/foreign-{number}.parquet"
        closed = write_positions(path, {file.path: BitMap64([position])}, ParquetSettings(), {})
        foreign = LiveDelete(
            path=path,
            kind=FileKind.POSITION_DELETE,
            format="parquet",
            size=closed.size,
            records=1,
            sequence_number=number,
            spec_id=file.spec_id,
            partition=file.partition,
            data_file=file.path,
        )
        self.listing = changed(self.listing, number, (), [foreign], frozenset())

    def rows(self) -> Rows:
        found: Rows = Counter()
        for file in applied(self.listing).files:
            assert sum(delete.is_vector for delete in file.deletes) <= 1, "H23"
            gone = set(to_positions(self.deleted.of(file, {})).tolist())
            keys = self._deleted_keys(file.deletes)
            table = pq.read_table(file.path)
            columns = (table.column(name).to_pylist() for name in ("id", "code", "value"))
            for position, row in enumerate(zip(*columns, strict=True)):
                if position not in gone and row[:2] not in keys:
                    found[row] += 1
        return found

    def _deleted_keys(self, deletes: Sequence[LiveDelete]) -> set[tuple[int, str]]:
        keys: set[tuple[int, str]] = set()
        for delete in deletes:
            if delete.kind is FileKind.EQUALITY_DELETE:
                table = pq.read_table(delete.path)
                keys.update(zip(table.column("id").to_pylist(), table.column("code").to_pylist(), strict=True))
        return keys


def entry(epoch: Hlc) -> LedgerEntry:
    return LedgerEntry(
        job=JOB,
        batch_id=batch_id(JOB, NAME, epoch),
        lower=None,
        resolved=epoch,
        notes="",
        fence=FENCE,
        incarnation="",
        config_hash="",
        operation="",
        data_files=0,
        delete_files=0,
        rows=0,
        deletes=0,
    )


class World:
    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.committer = FakeLake(folder)
        self.version = self.chance.choice((2, 3))
        self.spec = self.chance.choice(SPECS)
        self.cache = IndexCache(folder / "index", 1 << 28)
        self.model: Rows = Counter()
        self.numbers = itertools.count(1)
        self.locator = self.new_locator()

    def new_locator(self) -> TableLocator:
        table = SearchedTable(
            name=NAME, schema=SCHEMA, key=FIELDS[:2], format_version=self.version, data_location="d", specs=SPECS
        )
        return TableLocator(table, self.committer, self.cache, self.committer.deleted, SystemClock())  # type: ignore[arg-type]

    def write(self, rows: Mapping[tuple[int, str], int], deletes: Sequence[tuple[int, str]] = ()) -> list[FileClosed]:
        self.epoch = Hlc(next(self.numbers))
        prefix = epoch_prefix(f"{self.committer.folder}/data", JOB, self.epoch, FENCE.label)
        target = EpochTarget(self.epoch, batch_id(JOB, NAME, self.epoch), prefix)
        task = TableTask(
            index=0,
            format_version=3,
            data_location="d",
            name=NAME,
            schema=SCHEMA,
            spec=self.spec,
            key=("id", "code"),
            mode=DeleteMode.VECTORS,
            epochs=(target,),
        )
        writer = TableEpochWriter(task, target, TaskOutput(shard=0, attempt="a", parquet=ParquetSettings()))
        if rows:
            writer.upserts(batch(list(rows), list(rows.values())))
        if deletes:
            writer.deletes(batch(deletes, [0] * len(deletes)).select(["id", "code"]))
        return list(writer.close())

    def act(self) -> None:
        acts = [self.publish, self.append, self.rewrite, self.delete, self.upgrade, self.repartition]
        self.chance.choices(acts, (10, 2, 2, 2, 0.5, 1))[0]()

    def publish(self) -> None:
        keys = self.keys(self.chance.randint(1, 6))
        cut = self.chance.randint(0, len(keys))
        rows = {key: self.chance.randrange(100) for key in keys[:cut]}
        files = self.write(rows, keys[cut:])
        epoch = self.epoch
        lost = self.chance.choice((0, 0, 0, 1, 2, 3))
        for _ in range(lost):
            self.locator.locate(files, self.committer.head(), by_equality=False)
            self.chance.choice([self.append, self.rewrite, self.delete])()
        self.committer.land(self.locator.locate(files, self.committer.head(), by_equality=lost == 3), epoch)
        self.model = Counter({row: count for row, count in self.model.items() if row[:2] not in keys})
        self.model.update((*key, value) for key, value in rows.items())

    def append(self) -> None:
        """Somebody adds rows of keys that may be there."""
        rows = {key: self.chance.randrange(100) for key in self.keys(2)}
        self.committer.land(Located(files=tuple(self.write(rows))), self.epoch)
        self.model.update((*key, value) for key, value in rows.items())

    def rewrite(self) -> None:
        """Somebody compacts everything."""
        before = self.committer.rows()
        gone = [*self.committer.listing.data.values(), *self.committer.listing.deletes.values()]
        number = (self.committer.listing.snapshot_id or 0) + 1
        self.committer.listing = changed(self.committer.listing, number, gone, (), frozenset())
        while before:
            # Rows of one key must not fold into one: they are written in several files.
            layer = {row[:2]: row[2] for row in before}
            self.committer.land(Located(files=tuple(self.write(layer))), self.epoch)
            before -= Counter((*key, value) for key, value in layer.items())

    def delete(self) -> None:
        files = [
            file
            for file in applied(self.committer.listing).files
            if file.records > len(self.committer.deleted.of(file, {}))
        ]
        if self.version > 2 or not files:
            return
        file = self.chance.choice(files)
        position = self.chance.choice(sorted(set(range(file.records)) - set(self.committer.deleted.of(file, {}))))
        before = self.committer.rows()
        self.committer.delete_at(file, position)
        self.model -= before - self.committer.rows()

    def upgrade(self) -> None:
        self.version = 3
        self.locator = self.new_locator()

    def repartition(self) -> None:
        self.spec = self.chance.choice(SPECS)

    def keys(self, count: int) -> list[tuple[int, str]]:
        return [(n % 4, f"k{n // 4}") for n in self.chance.sample(range(NUMBERS), count)]


def batch(keys: Sequence[tuple[int, str]], values: Sequence[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array([key[0] for key in keys], pa.int64()),
            "code": pa.array([key[1] for key in keys], pa.string()),
            "value": pa.array(values, pa.int32()),
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 40, 10))
def test_random_sequences_equal_the_model_after_every_step(tmp_path: Path, first: int) -> None:
    """H1, H22, H23, H24: epochs, lost races, others' rows, deletes and rewrites, an upgrade, other partitions."""
    for seed in range(first, first + 10):
        world = World(tmp_path / str(seed), seed)
        for step in range(12):
            world.act()
            assert world.committer.rows() == world.model, f"seed {seed}, step {step}"


@pytest.mark.parametrize("names_its_file", [True, False])
def test_the_first_vector_of_a_file_holds_its_older_position_deletes(tmp_path: Path, names_its_file: bool) -> None:
    """H24: readers look at no position deletes of a file that has a vector; what is not in it would live again."""
    world = World(tmp_path, 0)
    world.spec, world.version = UNPARTITIONED, 2
    world.committer.land(Located(files=tuple(world.write({(1, f"k{n}"): n for n in range(5)}))), world.epoch)
    (data,) = applied(world.committer.listing).files
    world.committer.delete_at(data, 0)
    world.committer.delete_at(data, 3)
    if not names_its_file:
        loose = {key: replace(delete, data_file=None) for key, delete in world.committer.listing.deletes.items()}
        world.committer.listing = replace(world.committer.listing, deletes=loose)
    world.upgrade()
    located = world.locator.locate(world.write({}, [(1, "k1")]), world.committer.head(), by_equality=False)
    (vector,) = (file for file in located.files if file.vector is not None)
    assert vector.vector is not None
    assert vector.vector.data_file == data.path
    assert sorted(read_vector(vector.path, vector.vector.offset, vector.vector.length, {})) == [0, 1, 3]
    assert (located.found, vector.records) == (1, 3)
    assert len(located.removed_deletes) == (2 if names_its_file else 0), "others may need what names no file"


def test_a_second_look_searches_only_what_came(tmp_path: Path) -> None:
    world = World(tmp_path, 0)
    world.spec = UNPARTITIONED
    for n in range(4):
        world.committer.land(Located(files=tuple(world.write({(1, f"k{n}"): n}))), world.epoch)
    files = world.write({(1, "k1"): 9})
    world.locator.locate(files, world.committer.head(), by_equality=False)
    assert world.locator.searched == 4
    epoch = world.epoch
    world.committer.land(Located(files=tuple(world.write({(1, "k1"): 5}))), world.epoch)
    located = world.locator.locate(files, world.committer.head(), by_equality=False)
    assert world.locator.searched == 5
    assert located.found == 2
    world.committer.land(located, epoch)
    assert world.committer.rows()[1, "k1", 9] == 1
    assert sum(count for row, count in world.committer.rows().items() if row[1] == "k1") == 1


def test_partitions_that_the_key_decides_spare_a_search(tmp_path: Path) -> None:
    world = World(tmp_path, 0)
    world.spec = BY_BUCKET
    world.committer.land(Located(files=tuple(world.write({(n, "k"): n for n in range(12)}))), world.epoch)
    assert len(world.committer.listing.data) == 3
    located = world.locator.locate(world.write({(1, "k"): 7}, [(2, "k")]), world.committer.head(), by_equality=False)
    assert located.found == 2
    assert world.locator.searched < 3


def test_a_data_file_that_is_gone_is_named(tmp_path: Path) -> None:
    world = World(tmp_path, 0)
    files = world.write({(1, "k"): 1})
    world.committer.land(Located(files=tuple(files)), world.epoch)
    world.cache = IndexCache(tmp_path / "other", 1 << 20)
    Path(files[0].path).unlink()
    with pytest.raises(TableChanged, match="gone"):
        world.new_locator().locate(world.write({(1, "k"): 2}), world.committer.head(), by_equality=False)


def test_a_lookup_that_fails_half_way_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, 0)
    world.spec, world.version = UNPARTITIONED, 3
    locator = world.new_locator()
    world.committer.land(Located(files=tuple(world.write({(1, "k"): 1}))), world.epoch)
    files = world.write({(1, "k"): 2})

    def full(*_: object) -> object:
        raise StorageUnavailable("no space left")

    with monkeypatch.context() as patched:
        patched.setattr("frazil.data.deletes.delete_files.write_puffin", full)
        with pytest.raises(StorageUnavailable):
            locator.locate(files, world.committer.head(), by_equality=False)
    located = locator.locate(files, world.committer.head(), by_equality=False)
    again = locator.locate(files, world.committer.head(), by_equality=False)
    assert located.found == again.found == 1
    assert located.files[-1].path != again.files[-1].path, "no path is written twice (H46)"
    assert replace(again, files=()) == replace(located, files=())
