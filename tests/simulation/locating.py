"""Lookups over files of values: the production plan and index, with fake files around them.

snapshot --> Listing (production) --applied--> LiveFiles --> candidates, unsearched, deletion (production)
                                                                   |
epoch's files --> KeyCodec, KeyIndex (production) ----------------'--> vectors, each a file of values
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyroaring import BitMap64

from frazil import errors
from frazil.data.deletes.deleted_rows import union
from frazil.data.deletes.vectors import to_bitmap, to_positions
from frazil.data.keys.codec import KeyCodec, Keys
from frazil.data.keys.index import KeyIndex
from frazil.iceberg.tables import file_listing as listing
from frazil.ingest.locate import search as plan
from frazil.model.files import Blob, DeleteId, FileClosed, FileKind, LiveDelete, LiveFile, LiveFiles
from frazil.model.ids import TableName, prefix_of
from frazil.model.ledger import TableHead
from frazil.model.ports import Located
from frazil.model.schema import LONG, Field

from .tables import Rows, Snapshot, Storage
from .workers import closed_file

if TYPE_CHECKING:
    from .edges import RunEdges

KEY = (Field(1, "id", LONG, required=True),)
CODEC = KeyCodec(KEY)


def live_files(storage: Storage, snapshot: Snapshot | None) -> LiveFiles:
    """What the lake reads out of manifests."""
    if snapshot is None:
        return LiveFiles(snapshot_id=None)
    data: dict[str, LiveFile] = {}
    deletes: dict[DeleteId, LiveDelete] = {}
    for path, sequence in snapshot.files:
        rows = storage.files[path]
        common = {"path": path, "size": 1, "sequence_number": sequence, "spec_id": 0}
        if rows.values:
            keys = [key for key, _ in rows.values]
            bounds = {1: (_bound(min(keys)), _bound(max(keys)))}
            data[path] = LiveFile(**common, format="parquet", records=len(keys), bounds=bounds)
        elif rows.vector is not None:
            deletes[path, 4] = LiveDelete(
                **common,
                kind=FileKind.POSITION_DELETE,
                format="puffin",
                records=len(rows.vector[1]),
                data_file=rows.vector[0],
                offset=4,
                length=1,
            )
        else:
            deletes[path, None] = LiveDelete(
                **common, kind=FileKind.EQUALITY_DELETE, format="parquet", records=len(rows.deleted), equality_ids=(1,)
            )
    return listing.applied(listing.Listing(snapshot.id, data, deletes, frozenset([0])))


class SimulatedLocator:
    """The locator of one table in one process."""

    def __init__(self, edges: RunEdges, table: TableName) -> None:
        self._edges = edges
        self._table = table
        self._paths: tuple[str, ...] = ()
        self._found: dict[str, BitMap64] = {}

    def locate(self, files: Sequence[FileClosed], head: TableHead, *, by_equality: bool) -> Located:
        self._edges.before_locating()
        with self._edges.world.judged():
            return self._located(files, head, by_equality)

    def _located(self, files: Sequence[FileClosed], head: TableHead, by_equality: bool) -> Located:
        if by_equality:
            self._edges.tell(f"{self._table} is published by equality")
            return Located(files=(*files, *self._equality_deletes(files)))
        storage = self._edges.world.storage
        live = self._edges.live(self._table, head)
        keys = self._keys(files)
        chosen = plan.candidates(live.files, plan.wanted(KEY, keys))
        if self._paths != (paths := tuple(file.path for file in files)):
            self._paths, self._found = paths, {}
        elif len(todo := plan.unsearched(chosen, self._found)) < len(chosen):
            self._edges.tell(f"{self._table}: searches {len(todo)} of {len(chosen)} files again")
        for file in plan.unsearched(chosen, self._found):
            values = [key for key, _ in storage.files[file.path].values]
            index = KeyIndex.build(CODEC.signature, _encode(values))
            self._found[file.path] = to_bitmap(index.find(keys))
        deletions = [
            one
            for file in chosen
            if self._found[file.path]
            and (one := plan.deletion(file, self._found[file.path], self._deleted(storage, file))) is not None
        ]
        data = tuple(file for file in files if file.kind is FileKind.DATA)
        return Located(
            files=(*data, *(self._vector(files[0], one) for one in deletions)),
            removed_deletes=tuple(old for one in deletions for old in one.replaced),
            must_exist=tuple(one.file.path for one in deletions),
            found=sum(len(one.fresh) for one in deletions),
        )

    def _keys(self, files: Sequence[FileClosed]) -> Keys:
        rows = [self._edges.world.storage.files[file.path] for file in files]
        return _encode([key for one in rows for key in (*(key for key, _ in one.values), *one.deleted)]).sorted()

    def _deleted(self, storage: Storage, file: LiveFile) -> BitMap64:
        vectors = (storage.files[delete.path].vector for delete in file.deletes if delete.is_vector)
        return union(BitMap64(vector[1]) for vector in vectors if vector is not None)

    def _vector(self, like: FileClosed, deletion: plan.Deletion) -> FileClosed:
        path = self._path(like, "vector")
        rows = Rows(vector=(deletion.file.path, tuple(to_positions(deletion.all).tolist())))
        self._edges.world.storage.write(path, rows)
        closed = closed_file(like, path, FileKind.POSITION_DELETE, rows, len(deletion.all))
        return replace(closed, vector=Blob(deletion.file.path, 4, 1), file_hash="")

    def _equality_deletes(self, files: Sequence[FileClosed]) -> tuple[FileClosed, ...]:
        storage = self._edges.world.storage
        keys = tuple(
            sorted(key for file in files if file.kind is FileKind.DATA for key, _ in storage.files[file.path].values)
        )
        if not keys:
            return ()
        path, rows = self._path(files[0], "eqdel"), Rows(deleted=keys)
        storage.write(path, rows)
        return (closed_file(files[0], path, FileKind.EQUALITY_DELETE, rows, len(keys)),)

    def _path(self, like: FileClosed, what: str) -> str:
        return f"{prefix_of(like.path)}/{what}-{len(self._edges.world.storage.files)}"


def unavailable() -> errors.StorageUnavailable:
    return errors.StorageUnavailable("a file cannot be read just now")


def _encode(keys: list[int]) -> Keys:
    return CODEC.encode([pa.array(keys, pa.int64())])


def _bound(key: int) -> bytes:
    return key.to_bytes(8, "little", signed=True)
