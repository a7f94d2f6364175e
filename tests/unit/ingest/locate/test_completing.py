"""Rows that come in parts, completed from real files without a catalog: random sequences equal what a slow reader says.

parts of rows --TargetsWriter, TableLocator--> files --the listing's own arithmetic--> the next head
others append, rewrite and delete in between; what a key's row is to become is told by reading every file
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_locator import FENCE, JOB, NAME, FakeLake

from frazil.clock import SystemClock
from frazil.data.deletes.vectors import to_bitmap, to_positions
from frazil.data.keys.codec import Keys
from frazil.data.keys.index_cache import IndexCache
from frazil.errors import BadInput
from frazil.iceberg.tables.file_listing import applied, changed
from frazil.ingest.locate import completing
from frazil.ingest.locate.locator import Found, TableLocator
from frazil.ingest.locate.searched_table import SearchedTable
from frazil.ingest.write.fold import fold_changes, sort_changes
from frazil.ingest.write.table_writer import TableEpochWriter, TaskOutput
from frazil.ingest.write.target_writer import TargetsWriter
from frazil.model.arrow import CHANGE_SCHEMA
from frazil.model.change import Op
from frazil.model.files import FileClosed, FileKind, LiveFile
from frazil.model.ids import batch_id, epoch_prefix
from frazil.model.partition import UNPARTITIONED, PartitionField, PartitionSpec, Transform
from frazil.model.ports import Located
from frazil.model.schema import INT, LONG, PRIMARY, STRING, ColumnFamily, Field, ListOf, Schema
from frazil.model.sort import SortField
from frazil.model.write import DeleteMode, EpochTarget, ParquetSettings, TableTask
from frazil.sources.cockroachdb.position import Hlc

Q, R = 7, 9
PARTS = (ColumnFamily(PRIMARY, ("id", "code", "p")), ColumnFamily(Q, ("q",)), ColumnFamily(R, ("r", "tags")))
COLUMNS = {PRIMARY: ("p",), Q: ("q",), R: ("r", "tags")}
FIELDS = (
    Field(1, "id", LONG, True),
    Field(2, "code", STRING, True),
    Field(3, "p", INT),
    Field(4, "q", INT),
    Field(5, "r", STRING),
    Field(6, "tags", ListOf(STRING, 7)),
)
SCHEMA = Schema(0, FIELDS, (1, 2))
BY_BUCKET = PartitionSpec(1, (PartitionField(1000, 1, "id_bucket", Transform("bucket", 3)),))
BY_Q = PartitionSpec(2, (PartitionField(1001, 4, "q_bucket", Transform("bucket", 2)),))
SPECS = (UNPARTITIONED, BY_BUCKET, BY_Q)
Key = tuple[int, str]
Row = dict[str, Any]
Change = tuple[Key, int, Row | None]
"""Key, part, and the values of the part's columns; None deletes it."""


class JsonDecoder:
    """Keys are JSON lists, payloads JSON objects."""

    def keys(self, table: int, keys: pa.Array) -> pa.RecordBatch:
        values = [json.loads(key) for key in keys.to_pylist()]
        return pa.record_batch(
            {"id": pa.array([v[0] for v in values], pa.int64()), "code": pa.array([v[1] for v in values], pa.string())}
        )

    def rows(self, table: int, keys: pa.Array, payloads: pa.Array) -> pa.RecordBatch:
        rows = [json.loads(payload) for payload in payloads.to_pylist()]
        types = {"p": pa.int32(), "q": pa.int32(), "r": pa.string(), "tags": pa.list_(pa.string())}
        given = {name: pa.array([row.get(name) for row in rows], type_) for name, type_ in types.items()}
        own = self.keys(table, keys)
        return pa.record_batch({**dict(zip(own.schema.names, own.columns, strict=True)), **given})


class PartsLake(FakeLake):
    def alive(self) -> dict[Key, list[Row]]:
        """Every live row of each key, the newest last, by reading everything."""
        found: dict[Key, list[Row]] = {}
        files = sorted(applied(self.listing).files, key=lambda file: (file.sequence_number, file.path))
        for file in files:
            gone = set(to_positions(self.deleted.of(file, {})).tolist())
            keys = self._deleted_keys(file.deletes)
            for position, row in enumerate(pq.read_table(file.path).to_pylist()):
                key = row["id"], row["code"]
                if position not in gone and key not in keys:
                    found.setdefault(key, []).append({name: row.get(name) for name in ("p", "q", "r", "tags")})
        return found


class ClusterRoads:
    """Executors on other machines: the driver has none of their indexes."""

    local = False

    def tasks(self, table: SearchedTable, files: Sequence[LiveFile], keys: Keys) -> Found:
        return {file.path: to_bitmap(table.index(file.path, file.size).find(keys)) for file in files}

    def join(self, table: SearchedTable, files: Sequence[FileClosed], snapshot_id: int) -> Found:
        raise AssertionError("nothing is that large")


@dataclass
class World:
    folder: Path
    version: int = 3
    spec: PartitionSpec = UNPARTITIONED
    cluster: bool = False
    seed: int = 0
    schema: Schema = SCHEMA

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.committer = PartsLake(self.folder)
        self.cache = IndexCache(self.folder / "index", 1 << 28)
        self.numbers = itertools.count(1)
        self.reset()

    def reset(self) -> None:
        """After somebody changed the table."""
        table = SearchedTable(
            name=NAME,
            key=FIELDS[:2],
            format_version=self.version,
            data_location="d",
            specs=SPECS,
            schema=self.schema,
            spec=self.spec,
            sort=(SortField("p"),),
        )
        roads = ClusterRoads() if self.cluster else None
        self.locator = TableLocator(table, self.committer, self.cache, self.committer.deleted, SystemClock(), roads)  # type: ignore[arg-type]

    def task(self, mode: DeleteMode = DeleteMode.VECTORS, deletes: bool = True) -> TableTask:
        self.epoch = Hlc(next(self.numbers))
        prefix = epoch_prefix(f"{self.folder}/data", JOB, self.epoch, FENCE.label)
        return TableTask(
            index=0,
            format_version=3,
            data_location="d",
            name=NAME,
            schema=self.schema,
            spec=self.spec,
            key=("id", "code"),
            mode=mode,
            epochs=(EpochTarget(self.epoch, batch_id(JOB, NAME, self.epoch), prefix, deletes),),
            parts=PARTS if mode is DeleteMode.VECTORS else (),
        )

    def write(self, changes: Sequence[Change], deletes: bool = True) -> list[FileClosed]:
        """The files of one epoch. Later changes of a part win."""
        task = self.task(deletes=deletes)
        writer = TargetsWriter([task], 0, self.place(), JsonDecoder(), Hlc.texts, None)
        rows = [
            {
                "table": 0,
                "epoch": 0,
                "key": json.dumps(key),
                "part": part,
                "major": self.epoch.wall,
                "minor": number,
                "op": int(Op.DELETE if values is None else Op.UPSERT),
                "payload": None if values is None else json.dumps(values).encode(),
            }
            for number, (key, part, values) in enumerate(changes)
        ]
        for _, _, some in fold_changes([sort_changes(pa.Table.from_pylist(rows, schema=CHANGE_SCHEMA))]):
            for at in range(some.num_rows):  # a key's parts may come in several batches
                writer.take(some.slice(at, 1))
        return list(writer.close())

    def place(self) -> TaskOutput:
        return TaskOutput(shard=0, attempt="a", parquet=ParquetSettings())

    def publish(self, *changes: Change, lost: Sequence[Any] = ()) -> Located:
        """`lost` are acts of others, each of which makes a lookup worthless."""
        files, epoch = self.write(changes), self.epoch
        for act in lost:
            self.locator.locate(files, self.committer.head(), by_equality=False)
            act()
        expected = after(self.committer.alive(), changes)
        located = self.locator.locate(files, self.committer.head(), by_equality=False)
        assert not any(file.kind is FileKind.PARTIAL for file in located.files)
        self.committer.land(located, epoch)
        assert self.committer.alive() == expected
        return located

    # what others do

    def append(self, rows: Mapping[Key, Row] | None = None) -> None:
        given = rows or {key: some_row(self.chance) for key in some_keys(self.chance, 2)}
        writer = TableEpochWriter(
            task := self.task(DeleteMode.EQUALITY), replace(task.epochs[0], deletes=False), self.place()
        )
        writer.upserts(as_batch(given))
        self.committer.land(Located(files=writer.close()), self.epoch)

    def rewrite(self) -> None:
        """Somebody compacts everything."""
        before = self.committer.alive()
        gone = [*self.committer.listing.data.values(), *self.committer.listing.deletes.values()]
        number = (self.committer.listing.snapshot_id or 0) + 1
        self.committer.listing = changed(self.committer.listing, number, gone, (), frozenset())
        for layer in range(max(map(len, before.values()), default=0)):
            self.append({key: rows[layer] for key, rows in before.items() if len(rows) > layer})

    def delete_by_key(self, keys: Sequence[Key] = ()) -> None:
        writer = TableEpochWriter(task := self.task(DeleteMode.EQUALITY), task.epochs[0], self.place())
        chosen = list(keys) or some_keys(self.chance, 2)
        writer.deletes(as_batch({key: {} for key in chosen}).select(["id", "code"]))
        self.committer.land(Located(files=writer.close()), self.epoch)

    def delete_by_position(self) -> None:
        files = [f for f in applied(self.committer.listing).files if f.records > len(self.committer.deleted.of(f, {}))]
        if self.version > 2 or not files:
            return
        file = self.chance.choice(files)
        alive = sorted(set(range(file.records)) - set(self.committer.deleted.of(file, {})))
        self.committer.delete_at(file, self.chance.choice(alive))

    def others(self) -> Any:
        return self.chance.choice([self.append, self.rewrite, self.delete_by_key, self.delete_by_position])


def after(before: Mapping[Key, list[Row]], changes: Sequence[Change]) -> dict[Key, list[Row]]:
    """What the rows are to become, one key after the other."""
    found = dict(before)
    for key in {key for key, _, _ in changes}:
        newest = {part: values for one, part, values in changes if one == key}
        old = found.pop(key, [])
        is_deleted = PRIMARY in newest and newest[PRIMARY] is None
        has_values = any(values is not None for values in newest.values())
        if is_deleted or (not old and not has_values):
            continue
        row = dict(old[-1]) if old else dict.fromkeys(("p", "q", "r", "tags"))
        for part, values in newest.items():
            row.update({name: (values or {}).get(name) for name in COLUMNS[part]})
        found[key] = [row]
    return found


def some_row(chance: random.Random) -> Row:
    return {name: value for part in COLUMNS for name, value in some_values(chance, part).items()}


def some_values(chance: random.Random, part: int) -> Row:
    number = chance.choice((None, chance.randrange(100)))
    text = None if number is None else f"r{number}"
    return {"p": number} if part == PRIMARY else {"q": number} if part == Q else {"r": text, "tags": text and [text]}


def some_keys(chance: random.Random, count: int) -> list[Key]:
    return [(n % 4, f"k{n // 4}") for n in chance.sample(range(12), count)]


def as_batch(rows: Mapping[Key, Row]) -> pa.RecordBatch:
    return JsonDecoder().rows(
        0, pa.array([json.dumps(key) for key in rows]), pa.array([json.dumps(row).encode() for row in rows.values()])
    )


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 24, 6))
def test_random_parts_equal_a_slow_reader_after_every_step(tmp_path: Path, first: int, monkeypatch: Any) -> None:
    """H1, H22, H23, H24, H47: parts in any combination, lost races, others' rows, deletes of every kind, rewrites."""
    monkeypatch.setattr(completing, "ROWS_AT_ONCE", 2)
    for seed in range(first, first + 6):
        chance = random.Random(seed)
        world = World(tmp_path / str(seed), chance.choice((2, 3)), chance.choice(SPECS), seed % 3 == 0, seed)
        for _ in range(9):
            changes = [
                (key, part, None if chance.random() < 0.3 else some_values(chance, part))
                for key in some_keys(chance, chance.randint(1, 5)) * 2
                for part in chance.sample(sorted(COLUMNS), chance.randint(1, 3))
            ]
            world.publish(*changes, lost=[world.others() for _ in range(chance.choice((0, 0, 1, 2)))])
            if chance.random() < 0.4:
                world.others()()
            if chance.random() < 0.2:
                world.spec = chance.choice(SPECS)
                world.reset()


ONE: Key = (1, "k")
WHOLE: tuple[Change, ...] = ((ONE, PRIMARY, {"p": 1}), (ONE, Q, {"q": 2}), (ONE, R, {"r": "r", "tags": ["t"]}))


@pytest.mark.parametrize("cluster", [False, True])
@pytest.mark.parametrize("version", [2, 3])
def test_the_row_that_is_alive_fills_what_is_missing(tmp_path: Path, version: int, cluster: bool) -> None:
    """Older versions of the row lie in the table still, deleted by vectors or positions."""
    world = World(tmp_path, version, cluster=cluster)
    world.publish(*WHOLE)
    world.publish((ONE, Q, {"q": 3}))
    world.publish((ONE, PRIMARY, {"p": 4}))
    assert len(world.committer.listing.data) == 3
    world.publish((ONE, R, None))
    assert world.committer.alive() == {ONE: [{"p": 4, "q": 3, "r": None, "tags": None}]}


def test_a_row_that_an_equality_delete_took_away_fills_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(*WHOLE)
    world.delete_by_key([ONE])
    world.publish((ONE, Q, {"q": 3}))
    assert world.committer.alive() == {ONE: [{"p": None, "q": 3, "r": None, "tags": None}]}


@pytest.mark.parametrize("cluster", [False, True])
def test_a_row_that_is_deleted_in_a_file_with_others_fills_nothing(tmp_path: Path, cluster: bool) -> None:
    world, two = World(tmp_path, 2, cluster=cluster), (2, "k")
    world.append({ONE: {"p": 1, "q": 1, "r": "a"}})
    world.append({ONE: {"p": 2, "q": 2, "r": "b"}, two: {"p": 3, "q": 3, "r": "c"}})
    newest = max(world.committer.listing.data.values(), key=lambda file: file.sequence_number)
    places = pq.read_table(newest.path).column("id").to_pylist()
    world.committer.delete_at(newest, places.index(1))
    world.publish((ONE, Q, {"q": 8}), (two, Q, {"q": 9}))
    assert [row["r"] for key in (ONE, two) for row in world.committer.alive()[key]] == ["a", "c"]


def test_an_equality_delete_leaves_newer_rows_alone(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.delete_by_key([ONE])
    world.publish(*WHOLE)
    world.publish((ONE, Q, {"q": 3}))
    assert world.committer.alive()[ONE][0]["p"] == 1


def test_an_equality_delete_by_other_columns_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(*WHOLE)
    world.delete_by_key([(2, "other")])
    (key, delete), *_ = world.committer.listing.deletes.items()
    by_q = replace(delete, equality_ids=(4,))
    world.committer.listing = replace(world.committer.listing, deletes={key: by_q})
    files = world.write([(ONE, Q, {"q": 3})])
    with pytest.raises(BadInput, match="not the table's key") as refused:
        world.locator.locate(files, world.committer.head(), by_equality=False)
    assert "rewrite_data_files" in refused.value.hint


def test_a_row_moves_with_a_part_that_changes_its_partition(tmp_path: Path) -> None:
    world = World(tmp_path, spec=BY_Q)
    world.publish(*WHOLE)
    (before,) = world.committer.listing.data.values()
    others = [number for number in range(50) if moved(world, number) != before.partition]
    located = world.publish((ONE, Q, {"q": others[0]}))
    assert [file.partition for file in located.files if file.kind is FileKind.DATA] != [before.partition]
    assert world.committer.alive() == {ONE: [{"p": 1, "q": others[0], "r": "r", "tags": ["t"]}]}


def moved(world: World, number: int) -> tuple[Any, ...]:
    (file,) = world.write([(ONE, PRIMARY, {"p": 1}), (ONE, Q, {"q": number}), (ONE, R, {})])
    return file.partition


def with_an_older_file(folder: Path) -> World:
    """A row with p and q, from before the table had r and tags."""
    world = World(folder, schema=Schema(0, FIELDS[:4], (1, 2)))
    writer = TableEpochWriter(task := world.task(), task.epochs[0], world.place())
    writer.upserts(as_batch({ONE: {"p": 1, "q": 2}}).select(["id", "code", "p", "q"]))
    world.committer.land(Located(files=writer.close()), world.epoch)
    world.schema = SCHEMA
    world.reset()
    return world


def test_a_column_that_came_later_is_null_in_older_files(tmp_path: Path) -> None:
    world = with_an_older_file(tmp_path)
    world.publish((ONE, Q, {"q": 3}))
    assert world.committer.alive() == {ONE: [{"p": 1, "q": 3, "r": None, "tags": None}]}


def test_a_file_from_before_the_only_columns_that_are_missing_says_null(tmp_path: Path) -> None:
    world = with_an_older_file(tmp_path)
    world.publish((ONE, PRIMARY, {"p": 5}), (ONE, Q, {"q": 3}))
    assert world.committer.alive() == {ONE: [{"p": 5, "q": 3, "r": None, "tags": None}]}


def test_a_required_column_that_nobody_knows_is_named_with_its_key(tmp_path: Path) -> None:
    fields = tuple(replace(field, required=True) if field.name == "p" else field for field in FIELDS)
    world = World(tmp_path, schema=Schema(0, fields, (1, 2)))
    files = world.write([(ONE, Q, {"q": 3})])
    with pytest.raises(BadInput, match="required column 'p' has no value in the row with key id=1, code='k'"):
        world.locator.locate(files, world.committer.head(), by_equality=False)
    world.publish(*WHOLE)
    world.publish((ONE, Q, {"q": 3}))


def test_nothing_but_deletes_of_parts_makes_no_row(tmp_path: Path) -> None:
    world = World(tmp_path)
    located = world.publish((ONE, Q, None), (ONE, R, None))
    assert located.files == ()
    world.publish(*WHOLE)
    world.publish((ONE, Q, None), (ONE, R, None))
    assert world.committer.alive() == {ONE: [{"p": 1, "q": None, "r": None, "tags": None}]}


def test_whole_rows_and_an_empty_table_need_no_lookup(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert [file.kind for file in world.write(WHOLE)] == [FileKind.DATA]
    assert [file.kind for file in world.write([(ONE, Q, {"q": 3})])] == [FileKind.PARTIAL]
    files = world.write([(ONE, Q, {"q": 3}), ((2, "k"), R, None), ((3, "k"), PRIMARY, None)], deletes=False)
    assert [(file.kind, file.records) for file in files] == [(FileKind.DATA, 1)]


def test_deletes_by_key_cannot_stand_in_for_a_search(tmp_path: Path) -> None:
    world = World(tmp_path)
    files = world.write([(ONE, Q, {"q": 3})])
    with pytest.raises(AssertionError, match="cannot complete"):
        world.locator.locate(files, world.committer.head(), by_equality=True)


def test_what_was_completed_for_a_lost_head_is_written_anew(tmp_path: Path) -> None:
    """H46: no path is written twice."""
    world = World(tmp_path)
    world.publish(*WHOLE)
    files = world.write([(ONE, Q, {"q": 3})])
    first, second = (world.locator.locate(files, world.committer.head(), by_equality=False) for _ in range(2))
    paths = [{file.path for file in located.files} for located in (first, second)]
    assert paths[0].isdisjoint(paths[1])


def test_rows_count_alike_whoever_reads_them(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.append({ONE: {"p": 1, "q": 1, "r": "a", "tags": None}})
    world.append({ONE: {"p": 2, "q": 2, "r": "b", "tags": None}})
    located = world.publish((ONE, Q, {"q": 3}))
    assert located.found == 2
    assert world.committer.alive() == {ONE: [{"p": 2, "q": 3, "r": "b", "tags": None}]}
    assert Counter(file.kind for file in located.files) == {FileKind.DATA: 1, FileKind.POSITION_DELETE: 2}
