"""A table in memory, with all kinds of deletes, and what Iceberg's specification says of its rows.

    State        data files with their rows, delete files with what they delete, one sequence number
    World        the history of states; a Lake for `Convert`, and Spark's part by brute force
    meddling     between any two looks of a conversion somebody else may commit, rewrite, convert or roll back

Every commit of a conversion is checked where it lands: the rows before and after it are the same ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from random import Random
from threading import Event
from typing import Any
from uuid import UUID

from frazil.iceberg.tables.file_listing import Listing, applied
from frazil.maintenance.convert.planner import Ready, plan_conversion, rebase
from frazil.model.commit import Accepted, CommitAnswer, CommitPlan, Conflicted, ReplaceFiles, Unknown
from frazil.model.conversion import ConvertedTable, KeyColumn, Marked, Search
from frazil.model.files import Blob, FileClosed, FileKind, LiveDelete, LiveFile, LiveFiles
from frazil.model.ids import TableName
from frazil.model.ledger import SnapshotFacts, TableHead
from frazil.model.partition import PartitionField, PartitionSpec, Transform
from frazil.model.schema import LONG, Field, Schema
from frazil.sources.cockroachdb.position import Hlc

NAME = TableName(("shop",), "orders")
EVERYWHERE, BY_PART = PartitionSpec(0), PartitionSpec(1, (PartitionField(1000, 3, "part", Transform("identity")),))
A, B, PART = Field(1, "a", LONG), Field(2, "b", LONG), Field(3, "part", LONG)
KEY_SETS = ((1,), (2,), (1, 2), (2, 1))
VALUES = (None, 0, 1, 2)
Row = tuple[int | None, int | None, int]
"""The values of a and b, and a number that no other row has."""
Keys = frozenset[tuple[int | None, ...]]
Positions = Mapping[str, frozenset[int]]


@dataclass(frozen=True)
class State:
    """`parent` is the number of the state it was made on."""

    number: int
    parent: int | None = None
    data: Mapping[str, LiveFile] = field(default_factory=dict)
    deletes: Mapping[tuple[str, int | None], LiveDelete] = field(default_factory=dict)
    summary: Mapping[str, str] = field(default_factory=dict)


class World:
    """One table. `rows` by data file, `keys` by equality delete and `positions` by any other never change."""

    def __init__(self, version: int = 3) -> None:
        self.version = version
        self.rows: dict[str, tuple[Row, ...]] = {}
        self.keys: dict[str, Keys] = {}
        self.key_ids: dict[str, tuple[int, ...]] = {}
        self.positions: dict[tuple[str, int | None], Positions] = {}
        self.unnoticed: set[tuple[str, int | None]] = set()
        self.states = [State(0)]
        self.current = self.states[0]
        self.numbers = itertools.count(1)
        self.meddle: Callable[[], None] = lambda: None
        self.searches = 0
        self.conversions: list[tuple[State, State]] = []
        self.answers: Callable[[], str] = lambda: "lands"

    # what others do

    def append(self, rows: Iterable[tuple[int | None, int | None]], part: int | None = None) -> str:
        """One data file, in a partition or in none."""
        path = f"data-{next(self.numbers)}.parquet"
        self._commit(data=[self._file(path, [(a, b, next(self.numbers)) for a, b in rows], part)])
        return path

    def delete_keys(self, ids: tuple[int, ...], keys: Iterable[tuple[int | None, ...]], part: int | None = None) -> str:
        """`part` None deletes everywhere."""
        path = f"eq-{next(self.numbers)}.parquet"
        self._commit(deletes=[self._by_key(path, ids, keys, part)])
        return path

    def delete_rows(self, path: str, rows: Iterable[int]) -> None:
        """A vector in place of the one there was, or position deletes."""
        file = applied(self._listing()).by_path[path]
        wanted = frozenset(rows)
        if self.version < 3:
            name = f"pos-{next(self.numbers)}.parquet"
            self.positions[name, None] = {path: wanted}
            self._commit(deletes=[self._like(file, name, None, len(wanted), data_file=path)])
            return
        old = [delete for delete in file.deletes if delete.kind is FileKind.POSITION_DELETE]
        for delete in old:
            wanted |= self.positions[delete.path, delete.offset].get(path, frozenset())
        name = f"vectors-{next(self.numbers)}.puffin"
        self.positions[name, 4] = {path: wanted}
        own = [delete for delete in old if delete.data_file == path]
        self._commit(deletes=[self._like(file, name, 4, len(wanted), data_file=path)], removed=own)

    def upgrade(self) -> None:
        self.version = 3

    def rewrite(self, start: State, paths: Iterable[str]) -> bool:
        """A compaction that read the table at `start`. As Iceberg has it: not if a file is gone or was given deletes by
        position meanwhile, other than by a snapshot that says it changes no row; the new file is as old as what was
        read."""
        paths = sorted(paths)
        then, now = applied(self._listing(start)).by_path, applied(self._listing()).by_path
        if not paths or any(path not in then or path not in now for path in paths):
            return False
        if len({(then[path].spec_id, then[path].partition) for path in paths}) > 1:
            return False
        for path in paths:
            came = self._by_position(now[path], after=start.number) - self._by_position(then[path])
            if came - self.unnoticed:
                return False
        kept = [row for path in paths for row in self.seen_in(path, start)]
        part = then[paths[0]].partition[0] if then[paths[0]].partition else None
        data = dict(self.current.data)
        for path in paths:
            del data[path]
        if kept:
            name = f"rewritten-{next(self.numbers)}.parquet"
            data[name] = replace(self._file(name, kept, part), sequence_number=start.number)
        own = {key for key, delete in self.current.deletes.items() if delete.data_file in paths}
        deletes = {key: delete for key, delete in self.current.deletes.items() if key not in own}
        before = self.current
        self._become(data, deletes)
        self._must_show_the_same(before)
        return True

    def convert(self) -> None:
        """Another conversion, from plan to commit at once."""
        table, live = self.converted_table(NAME, self.head(NAME)), applied(self._listing())
        plan = plan_conversion(table, live)
        if plan is None:
            return
        marked = self._search(plan.search(UUID(int=next(self.numbers))))
        ready = rebase(plan, marked, live, self.version)
        assert isinstance(ready, Ready), ready
        assert not ready.merges
        self._land(
            ReplaceFiles(
                files=ready.added,
                summary={},
                removed_deletes=ready.removed,
                rewrites=not ready.added,
                deletes_sequence=plan.deletes_sequence,
            )
        )

    def roll_back(self, number: int) -> None:
        self.current = self.states[number]

    # what everybody sees

    def seen(self, state: State | None = None) -> list[Row]:
        state = state or self.current
        return sorted((row for path in state.data for row in self.seen_in(path, state)), key=lambda row: row[2])

    def seen_in(self, path: str, state: State) -> list[Row]:
        """The rows of a data file that no delete of the state deletes."""
        file = state.data[path]
        gone: set[int] = set()
        vectors = [d for d in state.deletes.values() if d.is_vector and d.data_file == path]
        if vectors:
            for vector in vectors:
                gone |= self.positions[vector.path, vector.offset][path]
        else:
            for delete in state.deletes.values():
                same = (delete.spec_id, delete.partition) == (file.spec_id, file.partition)
                named = delete.kind is FileKind.POSITION_DELETE and not delete.is_vector and same
                if named and delete.sequence_number >= file.sequence_number:
                    gone |= self.positions[delete.path, None].get(path, frozenset())
        for delete in state.deletes.values():
            same = (delete.spec_id, delete.partition) == (file.spec_id, file.partition)
            if delete.kind is not FileKind.EQUALITY_DELETE or not (same or delete.spec_id == EVERYWHERE.spec_id):
                continue
            if delete.sequence_number > file.sequence_number:
                for position, row in enumerate(self.rows[path]):
                    if tuple(row[id_ - 1] for id_ in delete.equality_ids) in self.keys[delete.path]:
                        gone.add(position)
        return [row for position, row in enumerate(self.rows[path]) if position not in gone]

    @property
    def equality(self) -> set[str]:
        return {d.path for d in self.current.deletes.values() if d.kind is FileKind.EQUALITY_DELETE}

    # the lake, as a conversion knows it

    def head(self, table: TableName) -> TableHead:
        self.meddle()
        ancestry, state = [], self.current
        while state.number:
            facts = SnapshotFacts(state.number, state.parent or None, state.number, state.number, state.summary)
            ancestry.append(facts)
            state = self.states[state.parent or 0]
        return TableHead(uuid="u", ancestry=tuple(ancestry), properties={}, base=self.current)

    def live(self, table: TableName, head: TableHead, bounds_of: Iterable[int] = ()) -> LiveFiles:
        assert isinstance(head.base, State)
        return applied(self._listing(head.base))

    def converted_table(self, table: TableName, head: TableHead) -> ConvertedTable:
        return ConvertedTable(
            name=NAME,
            schema=Schema(0, (A, B, PART)),
            format_version=self.version,
            data_location="table/data",
            columns={column.id: KeyColumn(column) for column in (A, B, PART)},
            specs=(EVERYWHERE, BY_PART),
        )

    def commit(self, table: TableName, head: TableHead, plan: CommitPlan) -> CommitAnswer:
        raise AssertionError("a conversion is no epoch")

    def repair(self, table: TableName, head: TableHead, plan: ReplaceFiles) -> CommitAnswer:
        self.meddle()
        answer = self.answers()
        if head.base is not self.current:
            return Unknown("no answer") if answer == "is lost" else Conflicted("the head has moved")
        if answer == "is lost":
            return Unknown("no answer")
        self._land(plan)
        return Unknown("no answer") if answer == "lands without a word" else Accepted(self.current.number)

    # Spark's part

    def search(self, search: Search) -> tuple[Marked, ...]:
        self.searches += 1
        return self._search(search)

    def merged(self, search: Search, vector: FileClosed, file: LiveFile) -> FileClosed:
        assert vector.vector is not None
        rows = self.positions[vector.path, vector.vector.offset][file.path]
        for delete in file.deletes:
            rows |= self.positions[delete.path, delete.offset].get(file.path, frozenset())
        return self._written(search, file, {file.path: rows}).file

    def _search(self, search: Search) -> tuple[Marked, ...]:
        """By brute force: every row against every key."""
        found: dict[str, frozenset[int]] = {}
        old: dict[str, frozenset[int]] = {}
        for searched in search.files:
            path = searched.file.path
            old[path] = frozenset().union(
                *(self.positions[d.path, d.offset].get(path, frozenset()) for d in searched.file.deletes)
            )
            matched = {
                position
                for position, row in enumerate(self.rows[path])
                for delete in search.deletes
                if delete.place in searched.places
                and delete.sequence_number > searched.file.sequence_number
                and self._matches(search, delete.place, delete.path, row)
            }
            if matched - old[path]:
                found[path] = frozenset(matched)
        files = {searched.file.path: searched.file for searched in search.files}
        if search.format_version >= 3:
            return tuple(
                self._written(search, files[path], {path: rows | old[path]}, len(rows - old[path]))
                for path, rows in found.items()
            )
        marked = []
        by_place = itertools.groupby(found, key=lambda path: (files[path].spec_id, files[path].partition))
        for _, group in by_place:
            rows = {path: found[path] - old[path] for path in group}
            marked.append(self._written(search, files[next(iter(rows))], rows, sum(map(len, rows.values()))))
        return tuple(marked)

    def _matches(self, search: Search, place: int, path: str, row: Row) -> bool:
        ids = [column.field.id for column in search.key_sets[search.places[place]]]
        for key in self.keys[path]:
            by_id = dict(zip(self.key_ids[path], key, strict=True))
            if all(by_id[id_] == row[id_ - 1] for id_ in ids):
                return True
        return False

    def _written(self, search: Search, like: LiveFile, rows: Positions, fresh: int = 0) -> Marked:
        vector = search.format_version >= 3
        path = f"{search.folder}/{next(self.numbers)}.{'puffin' if vector else 'parquet'}"
        self.positions[path, 4 if vector else None] = dict(rows)
        message = FileClosed(
            table=NAME,
            epoch=Hlc(0),
            batch_id=search.number,
            worker=0,
            schema_id=0,
            spec_id=like.spec_id,
            partition=like.partition,
            path=path,
            kind=FileKind.POSITION_DELETE,
            records=sum(map(len, rows.values())),
            size=100,
            digest="",
            vector=Blob(like.path, 4, 20) if vector else None,
        )
        return Marked(message, tuple(rows), fresh)

    # states

    def _land(self, plan: ReplaceFiles) -> None:
        """As Iceberg has it: what is removed must be there, deletes come in exchange for others, new data files are as
        old as the plan says."""
        assert plan.removed_deletes or not any(file.kind.deletes for file in plan.files), "deletes for no others"
        data, deletes = dict(self.current.data), dict(self.current.deletes)
        for file in plan.removed_data:
            del data[file.path]
        for delete in plan.removed_deletes:
            del deletes[delete.path, delete.offset]
        before = self.current
        for closed in plan.files:
            if closed.kind is FileKind.DATA:
                assert plan.keeps_sequence is not None
                data[closed.path] = self._data_of(closed, plan.keeps_sequence)
            else:
                one = self._delete_of(closed)
                if plan.deletes_sequence is not None:
                    one = replace(one, sequence_number=plan.deletes_sequence)
                assert one.data_file is None or one.data_file in data or not one.is_vector, "a vector of nothing"
                deletes[one.path, one.offset] = one
                if plan.rewrites:
                    self.unnoticed.add((one.path, one.offset))
        vectors = [d.data_file for d in deletes.values() if d.is_vector]
        assert len(vectors) == len(set(vectors)), "H23: two vectors for one data file"
        self._become(data, deletes, plan.summary)
        self.conversions.append((before, self.current))
        self._must_show_the_same(before)

    def _must_show_the_same(self, before: State) -> None:
        assert self.seen() == self.seen(before), "a rewrite changed the rows"

    def _data_of(self, file: FileClosed, sequence_number: int) -> LiveFile:
        return LiveFile(
            path=file.path,
            format="parquet",
            size=file.size,
            records=file.records,
            sequence_number=sequence_number,
            spec_id=file.spec_id,
            partition=file.partition,
        )

    def _delete_of(self, file: FileClosed) -> LiveDelete:
        blob = file.vector
        named = self.positions[file.path, blob.offset if blob else None]
        return LiveDelete(
            path=file.path,
            kind=file.kind,
            format="puffin" if blob else "parquet",
            size=file.size,
            records=file.records,
            sequence_number=len(self.states),
            spec_id=file.spec_id,
            partition=file.partition,
            data_file=blob.data_file if blob else (next(iter(named)) if len(named) == 1 else None),
            offset=blob.offset if blob else None,
            length=blob.length if blob else None,
        )

    def _commit(
        self, data: Iterable[LiveFile] = (), deletes: Iterable[LiveDelete] = (), removed: Iterable[LiveDelete] = ()
    ) -> None:
        left = dict(self.current.deletes)
        for delete in removed:
            del left[delete.path, delete.offset]
        left.update({(delete.path, delete.offset): delete for delete in deletes})
        self._become({**self.current.data, **{file.path: file for file in data}}, left)

    def _become(
        self,
        data: Mapping[str, LiveFile],
        deletes: Mapping[tuple[str, int | None], LiveDelete],
        summary: Mapping[str, str] | None = None,
    ) -> None:
        self.current = State(len(self.states), self.current.number, data, deletes, summary or {})
        self.states.append(self.current)

    def _listing(self, state: State | None = None) -> Listing:
        state = state or self.current
        return Listing(state.number or None, state.data, state.deletes, frozenset([EVERYWHERE.spec_id]))

    def _file(self, path: str, rows: list[Row], part: int | None) -> LiveFile:
        self.rows[path] = tuple(rows)
        return LiveFile(
            path=path,
            format="parquet",
            size=100,
            records=len(rows),
            sequence_number=len(self.states),
            spec_id=EVERYWHERE.spec_id if part is None else BY_PART.spec_id,
            partition=() if part is None else (part,),
        )

    def _by_key(
        self, path: str, ids: tuple[int, ...], keys: Iterable[tuple[int | None, ...]], part: int | None
    ) -> LiveDelete:
        self.keys[path], self.key_ids[path] = frozenset(keys), ids
        return LiveDelete(
            path=path,
            kind=FileKind.EQUALITY_DELETE,
            format="parquet",
            size=100,
            records=len(self.keys[path]),
            sequence_number=len(self.states),
            spec_id=EVERYWHERE.spec_id if part is None else BY_PART.spec_id,
            partition=() if part is None else (part,),
            equality_ids=ids,
        )

    def _like(self, file: LiveFile, path: str, offset: int | None, records: int, data_file: str) -> LiveDelete:
        return LiveDelete(
            path=path,
            kind=FileKind.POSITION_DELETE,
            format="parquet" if offset is None else "puffin",
            size=100,
            records=records,
            sequence_number=len(self.states),
            spec_id=file.spec_id,
            partition=file.partition,
            data_file=data_file,
            offset=offset,
            length=None if offset is None else 20,
        )

    @staticmethod
    def _by_position(file: LiveFile, after: int = -1) -> set[tuple[str, int | None]]:
        deletes = [d for d in file.deletes if d.kind is FileKind.POSITION_DELETE and d.sequence_number > after]
        return {(d.path, d.offset) for d in deletes}


def random_step(world: World, random: Random) -> None:
    """Something that somebody does."""
    part = random.choice((None, None, 1, 2))
    match random.choice(("append", "append", "keys", "keys", "keys", "rows", "rewrite", "convert", "upgrade")):
        case "append":
            rows = [(random.choice(VALUES), random.choice(VALUES)) for _ in range(random.randint(1, 6))]
            world.append(rows, part)
        case "keys":
            ids = random.choice(KEY_SETS)
            keys = [tuple(random.choice(VALUES) for _ in ids) for _ in range(random.randint(1, 3))]
            world.delete_keys(ids, keys, part)
        case "rows" if world.current.data:
            path = random.choice(sorted(world.current.data))
            world.delete_rows(path, random.sample(range(len(world.rows[path])), 1))
        case "rewrite" if world.current.data:
            start = world.current
            for _ in range(random.randint(0, 4)):
                start = world.states[start.parent or 0]
            paths = sorted(world.current.data.keys() & start.data.keys())
            world.rewrite(start, random.sample(paths, random.randint(min(1, len(paths)), len(paths))))
        case "convert":
            world.convert()
        case "upgrade" if random.random() < 0.2:
            world.upgrade()


class InstantClock:
    """Waits for nothing; its names are numbers."""

    def __init__(self) -> None:
        self._names = itertools.count(1 << 64)
        self.waits: list[float] = []

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return 0.0

    def wait(self, seconds: float, until: Event | None = None) -> bool:
        self.waits.append(seconds)
        return False

    def new_uuid(self) -> UUID:
        return UUID(int=next(self._names))

    def jitter(self) -> float:
        return 0.0


def facts(**columns: Any) -> dict[int, KeyColumn]:
    """Columns by name and type, numbered from 1."""
    return {n: KeyColumn(Field(n, name, type_)) for n, (name, type_) in enumerate(columns.items(), 1)}
