"""Finds the older rows of an epoch's keys in a table at one head, and writes the deletes that take them away.

    the epoch's files --index of its data, its deleted keys--> keys
    live files of the head --prune--> to search --here | tasks | join--> positions by data file
                                                                            |  minus, plus what is deleted already
                        v3: one Puffin file, one vector per data file  <----+
                        v2: one position delete file per partition     <----'
    by equality: nothing is searched; equality deletes of all keys instead
    partial rows, and the older rows that were found --completing--> data files

What was searched for an epoch is kept until the next one comes: on another head only other files are searched. Files
that were written and then lost a race are never reported; they lie below the epoch's prefix for the sweep.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
from pyroaring import BitMap64

from frazil.clock import Clock
from frazil.data import partition_values
from frazil.data.deletes.delete_files import VECTORS_FROM_VERSION, write_position_deletes, write_vectors
from frazil.data.deletes.deleted_rows import DeletedRows
from frazil.data.deletes.vectors import to_bitmap
from frazil.data.keys.codec import KeyCodec, Keys
from frazil.data.keys.index import KeyIndex
from frazil.data.keys.index_cache import FileIdentity, IndexCache
from frazil.data.parquet_writer import RollingWriter
from frazil.data.read.parquet import UnreadableFile, read_keys, unreadable
from frazil.data.transforms import bind_spec
from frazil.errors import FrazilError
from frazil.ingest.locate.completing import complete
from frazil.ingest.locate.search import (
    DeletedPositions,
    SearchMode,
    WantedKeys,
    by_partition,
    candidates,
    choose_search,
    deletion,
    prunable_by,
    unsearched,
    wanted,
)
from frazil.ingest.locate.searched_table import SearchedTable
from frazil.model.arrow import value_type
from frazil.model.files import FileClosed, FileKind, LiveFile, WrittenFile
from frazil.model.ids import key_delete_path, position_delete_path, prefix_of, vectors_path
from frazil.model.ledger import TableHead
from frazil.model.partition import PartitionSpec
from frazil.model.ports import Committer, Located
from frazil.model.schema import Schema

Found = Mapping[str, BitMap64]
_THREADS = 4
_FEW_FILES = 4


class Searches(Protocol):
    """The searches that Spark performs."""

    @property
    def local(self) -> bool:
        """Whether executors and driver share a machine."""

    def tasks(self, table: SearchedTable, files: Sequence[LiveFile], keys: Keys) -> Found:
        """The matching positions of every one of these files. Raises UnreadableFile and whatever tasks meet."""

    def join(self, table: SearchedTable, files: Sequence[WrittenFile], snapshot_id: int) -> Found:
        """The matching positions of all files of the snapshot that have any."""


@dataclass(slots=True)
class _Epoch:
    """What is known of the epoch that was asked for last. `found` has every file that was searched."""

    paths: tuple[str, ...]
    keys: Keys | None = None
    wanted: WantedKeys = field(default_factory=WantedKeys)
    found: dict[str, BitMap64] = field(default_factory=dict)


class TableLocator:
    """Implements `frazil.model.ports.Locator` for one table. Asked by one thread at a time."""

    def __init__(
        self,
        table: SearchedTable,
        committer: Committer,
        cache: IndexCache,
        deleted: DeletedRows,
        clock: Clock,
        roads: Searches | None = None,
        road: SearchMode | None = None,
    ) -> None:
        """Without `roads` everything is searched here. `road` overrides the choice. `searched` counts data files."""
        self.table = table
        self.searched = 0
        self._committer = committer
        self._cache = cache
        self._deleted = deleted
        self._clock = clock
        self._roads = roads
        self._road = road
        self._codec = KeyCodec(table.key)
        # Bounds of one column of several say little about whole keys.
        self._bounds_of = (table.key[0].id,) if len(table.key) == 1 else ()
        self._epoch = _Epoch(())

    def locate(self, files: Sequence[WrittenFile], head: TableHead, *, by_equality: bool) -> Located:
        """See the port. Raises ConfigError for key types that cannot be searched, UnreadableFile for a file that
        nobody here can read, TableChanged for one that is gone, StorageUnavailable."""
        data = tuple(file for file in files if file.kind is FileKind.DATA)
        partial = tuple(file for file in files if isinstance(file, FileClosed) and file.kind is FileKind.PARTIAL)
        if by_equality and partial:
            raise AssertionError(f"{self.table.name}: deletes by key cannot complete {partial[0].path}")
        if by_equality:
            return Located(files=(*files, *self._equality_deletes(data)))
        live = self._committer.live(self.table.name, head, self._bounds_of)
        deletions = self._deletions(files, live.files, head) if files and live.files else []
        fresh = sum(len(one.fresh) for one in deletions)
        if partial:
            data = (*data, *self._completed(partial, deletions))
        if not deletions:
            return Located(files=data)
        vectors = self.table.format_version >= VECTORS_FROM_VERSION
        written = self._vectors(files[0].path, deletions) if vectors else self._positions(files[0].path, deletions)
        return Located(
            files=(*data, *written),
            removed_deletes=tuple(old for one in deletions for old in one.replaced) if vectors else (),
            must_exist=tuple(one.file.path for one in deletions),
            found=fresh,
        )

    # search

    def _deletions(
        self, files: Sequence[WrittenFile], live: Sequence[LiveFile], head: TableHead
    ) -> list[DeletedPositions]:
        epoch = self._known(files)
        records = sum(file.records for file in files)
        readable = all(file.format == "parquet" for file in live)
        local = self._roads is None or self._roads.local
        road = self._road or choose_search(records, len(live), local=local, readable=readable)
        if road is not SearchMode.JOIN:
            try:
                if epoch.keys is None:
                    self._read_keys(epoch, files, live)
                live = candidates(live, epoch.wanted)
                self._search(epoch, live, road)
            except UnreadableFile:
                if self._roads is None:
                    raise
                road = SearchMode.JOIN
        if road is SearchMode.JOIN:
            self._join(epoch, files, live, head)
        found = [
            deletion(file, epoch.found[file.path], self._deleted.of(file, self.table.storage))
            for file in live
            if epoch.found[file.path]
        ]
        return [one for one in found if one is not None]

    def _completed(
        self, partial: Sequence[FileClosed], deletions: Sequence[DeletedPositions]
    ) -> tuple[FileClosed, ...]:
        # Beside executors of a cluster the driver has no indexes, and reads the keys of what they found instead.
        indexed = self._roads is None or self._roads.local
        return complete(self.table, partial, deletions, self._attempt(), self._index, indexed=indexed)

    def _known(self, files: Sequence[WrittenFile]) -> _Epoch:
        paths = tuple(file.path for file in files)
        if self._epoch.paths != paths:
            self._epoch = _Epoch(paths)
        return self._epoch

    def _read_keys(self, epoch: _Epoch, files: Sequence[WrittenFile], live: Sequence[LiveFile]) -> None:
        keys = [self._index(f.path, f.size).keys for f in files if f.kind is FileKind.DATA]
        keys += [self.table.index(f.path, f.size).keys for f in files if f.kind is not FileKind.DATA]
        epoch.keys = Keys.concat(keys).sorted()
        used = {file.spec_id for file in live}
        specs = [spec for spec in self.table.specs if spec.spec_id in used and prunable_by(spec, self.table.key)]
        epoch.wanted = wanted(self.table.key, epoch.keys, self._partitions(files, specs))

    def _search(self, epoch: _Epoch, live: Sequence[LiveFile], road: SearchMode) -> None:
        assert epoch.keys is not None
        todo = unsearched(live, epoch.found)
        self.searched += len(todo)
        if not todo:
            return
        for file in todo:
            if file.format != "parquet":
                raise unreadable(file.path, f"it is {file.format}")
        if road is SearchMode.TASKS and self._roads is not None:
            epoch.found.update(self._roads.tasks(self.table, todo, epoch.keys))
        else:
            epoch.found.update(self._here(todo, epoch.keys))

    def _here(self, files: Sequence[LiveFile], keys: Keys) -> Found:
        def find(file: LiveFile) -> tuple[str, BitMap64]:
            return file.path, to_bitmap(self._index(file.path, file.size).find(keys))

        if len(files) <= _FEW_FILES:
            return dict(map(find, files))
        with ThreadPoolExecutor(_THREADS) as pool:
            return dict(pool.map(find, files))

    def _join(self, epoch: _Epoch, files: Sequence[WrittenFile], live: Sequence[LiveFile], head: TableHead) -> None:
        if self._roads is None or head.snapshot_id is None:
            raise AssertionError(f"{self.table.name}: a join needs Spark and a snapshot")
        todo = unsearched(live, epoch.found)
        self.searched += len(todo)
        if todo:
            found = self._roads.join(self.table, files, head.snapshot_id)
            epoch.found.update({file.path: found.get(file.path, BitMap64()) for file in todo})

    def _index(self, path: str, size: int) -> KeyIndex:
        # No digest: manifests do not tell it, and no path is ever written twice.
        identity = FileIdentity(path, size)
        return self._cache.get_or_build(identity, self._codec.signature, lambda: self.table.index(path, size))

    def _partitions(
        self, files: Sequence[WrittenFile], specs: Sequence[PartitionSpec]
    ) -> dict[int, frozenset[tuple[Any, ...]]]:
        if not specs:
            return {}
        schema = Schema(self.table.schema.schema_id, self.table.key)
        bound = {spec.spec_id: bind_spec(self.table.name, schema, spec) for spec in specs}
        found: dict[int, set[tuple[Any, ...]]] = {spec.spec_id: set() for spec in specs}
        for batch in self._key_batches(files):
            for spec_id, fields in bound.items():
                found[spec_id].update(part.values for part, _ in partition_values.by_partition(batch, fields))
        return {spec_id: frozenset(values) for spec_id, values in found.items()}

    def _key_batches(self, files: Iterable[WrittenFile]) -> Iterable[pa.RecordBatch]:
        """The key columns of the epoch's own files, in the types in which values are handed on."""
        for file in files:
            for batch in read_keys(file.path, file.size, self.table.key, self.table.storage, self.table.name_mapping):
                columns = [
                    _plain(column).cast(value_type(field.type))
                    for column, field in zip(batch.columns, self.table.key, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(columns, names=[field.name for field in self.table.key])

    # write

    def _vectors(self, like: str, deletions: Sequence[DeletedPositions]) -> list[WrittenFile]:
        path, rows = vectors_path(prefix_of(like), self._attempt()), {one.file.path: one.all for one in deletions}
        places = {one.file.path: one.file.place for one in deletions}
        written = write_vectors(path, rows, places, self.table.storage)
        for one in written:
            assert one.vector is not None
            self._deleted.remember(path, one.vector, rows[one.vector.data_file])
        return written

    def _positions(self, like: str, deletions: Sequence[DeletedPositions]) -> list[WrittenFile]:
        prefix, attempt, parquet = prefix_of(like), self._attempt(), self.table.parquet
        return [
            write_position_deletes(
                position_delete_path(prefix, attempt, number),
                {one.file.path: one.fresh for one in group},
                place,
                parquet,
                self.table.storage,
            )
            for number, (place, group) in enumerate(by_partition(deletions).items())
        ]

    def _equality_deletes(self, data: Sequence[WrittenFile]) -> list[WrittenFile]:
        if not data:
            return []
        prefix, attempt = prefix_of(data[0].path), self._attempt()
        table = self.table
        writer = RollingWriter(
            table.key,
            lambda number: key_delete_path(prefix, attempt, number),
            table.parquet,
            table.storage,
            metrics=table.metrics,
        )
        try:
            for batch in self._key_batches(data):
                columns = [
                    _extended(column, one.type) for column, one in zip(batch.columns, writer.schema, strict=True)
                ]
                writer.write(pa.RecordBatch.from_arrays(columns, schema=writer.schema))
            closed = writer.close()
        except FrazilError:
            writer.abandon()
            raise
        return [
            WrittenFile(
                kind=FileKind.EQUALITY_DELETE,
                spec_id=table.delete_spec.spec_id,
                partition=(None,) * len(table.delete_spec.fields),
                equality_ids=tuple(field.id for field in table.key),
                **one.facts,
            )
            for one in closed
        ]

    def _attempt(self) -> str:
        return self._clock.new_uuid().hex


def _plain(column: pa.Array) -> pa.Array:
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def _extended(column: pa.Array, type_: pa.DataType) -> pa.Array:
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, column)
    return column
