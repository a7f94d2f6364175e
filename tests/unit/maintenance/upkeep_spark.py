"""What Spark and the workers do, as simple as can be: rows are compared one by one, and where each went is remembered.

search, merged             of a conversion (`conversion_world`), with files that may be gone
concatenate, reproject     of a compaction
write_epoch, publish       of a coordinator: rows and deleted keys of one epoch, published on the head as it is then
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from conversion_world import BY_PART, EVERYWHERE, NAME, Positions, State
from pyroaring import BitMap64
from upkeep_table import JOB, LOCATION, ROW_BYTES, SPAN, Model, UpkeepTable

from frazil.iceberg.commits.snapshots import Reference
from frazil.model.compaction import Carried, Moved, Reprojected, Rewrite, RewriteResult
from frazil.model.conversion import Marked, Search
from frazil.model.files import Blob, FileClosed, FileKind, LiveDelete, LiveFile
from frazil.model.ids import batch_id, data_path, epoch_prefix, equality_delete_path, vectors_path
from frazil.model.ledger import Fence, LedgerEntry
from frazil.model.sort import run_folder
from frazil.sources.cockroachdb.position import Hlc

Place = tuple[int, tuple[Any, ...]]


@dataclass(frozen=True)
class Epoch:
    """What a coordinator has written of an epoch, to be published on `lower`."""

    fence: Fence
    lower: int
    resolved: int
    prefix: str
    data: LiveFile | None
    keys: frozenset[int]
    by_key: LiveDelete | None

    @property
    def position(self) -> Hlc:
        return Hlc(self.resolved * SPAN)


class WorkedTable(UpkeepTable):
    """`origins` tells of each file that a compaction wrote where its rows came from."""

    def __init__(self, version: int, now: Callable[[], datetime]) -> None:
        super().__init__(version, now)
        self.origins: dict[str, tuple[tuple[str, int], ...]] = {}

    # a conversion

    def search(self, search: Search) -> tuple[Marked, ...]:
        for searched in search.files:
            self._read(searched.file)
        for keys in search.deletes:
            self.read(keys.path)
        return super().search(search)

    def merged(self, search: Search, vector: FileClosed, file: LiveFile) -> FileClosed:
        self._read(file)
        return super().merged(search, vector, file)

    def _written(self, search: Search, like: LiveFile, rows: Positions, fresh: int = 0) -> Marked:
        marked = super()._written(search, like, rows, fresh)
        self.put(marked.file.path)
        return marked

    # a compaction

    def concatenate(self, rewrite: Rewrite) -> tuple[RewriteResult, ...]:
        found = []
        for number, group in enumerate(rewrite.groups):
            origins: list[tuple[str, int]] = []
            left_out = []
            for file in group.files:
                self._read(file)
                gone = self.deleted_in(file)
                left_out.append(BitMap64(gone).serialize())
                origins += [(file.path, position) for position in range(file.records) if position not in gone]
            full, folder = max(1, group.file_bytes // ROW_BYTES), rewrite.folder
            parts = range(0, len(origins), full)
            if rewrite.order is not None:
                origins.sort(key=lambda origin: repr(self.rows[origin[0]][origin[1]]))
                folder = run_folder(folder, rewrite.order, number, max(1, len(parts)))
                self.put(f"{folder}/trail-{next(self.numbers)}")
            like = group.files[0]
            files = tuple(self._rewritten(rewrite.number, folder, like, origins[part : part + full]) for part in parts)
            found.append(RewriteResult(number, files, tuple(left_out)))
        return tuple(found)

    def _rewritten(self, run: UUID, folder: str, like: LiveFile, origins: Sequence[tuple[str, int]]) -> FileClosed:
        path = f"{folder}/data-{next(self.numbers)}.parquet"
        self.put(path)
        self.rows[path] = tuple(self.rows[source][position] for source, position in origins)
        self.origins[path] = tuple(origins)
        return _closed(run, like, path, kind=FileKind.DATA, records=len(origins), size=ROW_BYTES * len(origins))

    def reproject(self, rewrite: Rewrite, moved: Sequence[Moved], carried: Sequence[Carried]) -> Reprojected:
        found: dict[Place, dict[str, frozenset[int]]] = {}
        fresh: dict[str, frozenset[int]] = {}
        undone = []
        for one in moved:
            now = {file.path: self.deleted_in(file) for file in one.files}
            for file, left_out in zip(one.files, one.result.left_out, strict=True):
                self._read(file, itself=False)
                before = frozenset(BitMap64.deserialize(left_out))
                if not before <= now[file.path]:
                    undone.append(one.result.group)
                fresh[file.path] = now[file.path] - before
            for output in one.result.files:
                origins = enumerate(self.origins[output.path])
                rows = frozenset(place for place, (source, position) in origins if position in now[source])
                if rows:
                    found.setdefault((output.spec_id, output.partition), {})[output.path] = rows
        if undone:
            return Reprojected(undone=tuple(undone))
        replaced = []
        for one_carried in carried:
            delete = one_carried.delete
            rows_of = self.positions[delete.path, delete.offset]
            if any(rows_of.get(path, frozenset()) & rows for path, rows in fresh.items()):
                replaced.append(delete)
                mine = found.setdefault((delete.spec_id, delete.partition), {})
                for path in one_carried.data_files:
                    if path in rows_of:
                        mine[path] = mine.get(path, frozenset()) | rows_of[path]
        files = self._write_deletes(rewrite.number, rewrite.folder, found, rewrite.table.format_version)
        return Reprojected(tuple(files), tuple(replaced), sum(map(len, fresh.values())))

    def _write_deletes(
        self, run: UUID, folder: str, found: dict[Place, dict[str, frozenset[int]]], version: int
    ) -> list[FileClosed]:
        """Version 3: one vector for each data file, all of them in one file; version 2: a file for each partition."""
        written = []
        if version < 3:
            for place, rows in found.items():
                path = f"{folder}/deletes/posdel-{next(self.numbers)}.parquet"
                self.put(path)
                self.positions[path, None] = rows
                written.append(_closed(run, place, path, records=sum(map(len, rows.values()))))
            return written
        path = vectors_path(folder, str(next(self.numbers)))
        places = {file: place for place, rows in found.items() for file in rows}
        for number, (file, place) in enumerate(places.items()):
            offset = 4 + 40 * number
            self.positions[path, offset] = {file: found[place][file]}
            records = len(found[place][file])
            written.append(_closed(run, place, path, records=records, vector=Blob(file, offset, 20)))
        if written:
            self.put(path)
        return written

    # epochs

    def write_epoch(self, rows: dict[int, int], deleted: frozenset[int], part: int | None, *, by_key: bool) -> Epoch:
        """Nothing is committed by that."""
        lower = self.frontier()
        position = Hlc((lower + 1) * SPAN)
        prefix = epoch_prefix(f"{LOCATION}/data", JOB, position, self.fence.label)
        data, delete = None, None
        if rows:
            path = data_path(prefix, 0, str(next(self.numbers)), 0)
            self.put(path)
            data = self._file(path, [(key, value, next(self.numbers)) for key, value in rows.items()], part)
        keys = deleted | rows.keys()
        if by_key:
            path = equality_delete_path(prefix, 0, str(next(self.numbers)), 0)
            self.put(path)
            delete = self._by_key(path, (1,), [(key,) for key in keys], None)
        return Epoch(self.fence, lower, lower + 1, prefix, data, keys, delete)

    def publish(self, epoch: Epoch) -> bool:
        """On the head as it is now: rows of the keys are looked for in it. False if another coordinator was here."""
        if epoch.fence != self.fence or self.frontier() != epoch.lower or self.is_rolled_back():
            return False
        number, data, deletes = len(self.states), dict(self.current.data), dict(self.current.deletes)
        if epoch.by_key is None:
            self._delete_older(epoch, deletes)
        else:
            deletes[epoch.by_key.path, None] = replace(epoch.by_key, sequence_number=number)
        if epoch.data is not None:
            data[epoch.data.path] = replace(epoch.data, sequence_number=number)
        entry = LedgerEntry(
            job=JOB,
            batch_id=batch_id(JOB, NAME, epoch.position),
            lower=Hlc(epoch.lower * SPAN) if epoch.lower else None,
            resolved=epoch.position,
            notes="",
            fence=epoch.fence,
            incarnation="c",
            config_hash="",
            operation="delta",
            data_files=1,
            delete_files=1,
            rows=1,
            deletes=1,
        )

        def upserted(before: Model, state: State) -> Model:
            return self.with_new_files({key: row for key, row in before.items() if row[0] not in epoch.keys}, state)

        self.note({JOB.tag: Reference(number)}, {JOB.ledger_property: entry.to_property(number, number)})
        self.changing(upserted, lambda: self._become(data, deletes, entry.to_summary()))
        return True

    def _delete_older(self, epoch: Epoch, deletes: dict[tuple[str, int | None], LiveDelete]) -> None:
        found: dict[Place, dict[str, frozenset[int]]] = {}
        for file in self.live_at(self.current).files:
            old = self.deleted_in(file)
            rows = frozenset(p for p, row in enumerate(self.rows[file.path]) if row[0] in epoch.keys) - old
            if not rows:
                continue
            if self.version >= 3:
                rows |= old
                for one in file.deletes:
                    if one.data_file == file.path and one.kind is FileKind.POSITION_DELETE:
                        del deletes[one.path, one.offset]
            found.setdefault((file.spec_id, file.partition), {})[file.path] = rows
        for closed in self._write_deletes(UUID(int=0), epoch.prefix, found, self.version):
            made = self._delete_of(closed)
            deletes[made.path, made.offset] = made

    def _read(self, file: LiveFile, *, itself: bool = True) -> None:
        if itself:
            self.read(file.path)
        for delete in file.deletes:
            self.read(delete.path)


def _closed(run: UUID, like: LiveFile | Place, path: str, **facts: Any) -> FileClosed:
    spec_id, partition = (like.spec_id, like.partition) if isinstance(like, LiveFile) else like
    assert spec_id == (BY_PART if partition else EVERYWHERE).spec_id
    return FileClosed(
        table=NAME,
        epoch=Hlc(0),
        batch_id=run,
        worker=0,
        schema_id=0,
        spec_id=spec_id,
        partition=partition,
        path=path,
        digest="",
        **{"kind": FileKind.POSITION_DELETE, "size": 100, **facts},
    )
