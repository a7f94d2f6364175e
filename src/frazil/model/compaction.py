"""Data files on their way to become fewer: what is put together, and what came of it.

    group      files a, b, c of one partition, in this order
    tasks      live rows of a, then of b, then of c  --> files x, y        deleted rows of a, b, c at the base: left out
               with an order: all live rows of a, b, c, sorted --> files x, y, of which neither reaches into the other
    later      a row of b is deleted while the group is on its way
                  (b, position) --arithmetic over sizes and what was left out--> (y, position)
                                --with an order: looked up in a trail---------->

A row map lies beside what was written and tells of every row where it came from; nobody commits it, and it is read only
if rows were deleted meanwhile. So whoever deletes rows never makes the work useless. Maintenance decides what is put
together; workers read, write and follow the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from uuid import UUID

from frazil.model.files import FileKind, LiveDelete, LiveFile, WrittenFile
from frazil.model.schema import LONG, Field
from frazil.model.sort import Order, OrderField
from frazil.model.table import Table
from frazil.model.write import ParquetSettings

LINEAGE_FROM_VERSION = 3
ROW_ID = Field(2147483540, "_row_id", LONG)
LAST_UPDATED = Field(2147483539, "_last_updated_sequence_number", LONG)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenTable(Table):
    """What a compaction must know of a table at one head. `defaults` are what files from before a column have in it, by
    field id, in Iceberg's JSON form of single values; nested fields have some too. `sequence_number` is that of the
    head. `order` is the table's own sort order, empty if it has none, or one that cannot be computed here."""

    sequence_number: int
    defaults: Mapping[int, Any] = field(default_factory=dict, hash=False)
    order: tuple[OrderField, ...] = ()
    order_id: int | None = None

    @property
    def has_lineage(self) -> bool:
        return self.format_version >= LINEAGE_FROM_VERSION


@dataclass(frozen=True, slots=True)
class Group:
    """Files of one partition, with their deletes by position, whose rows are written one after the other, or sorted,
    into about `outputs` files that are closed at `file_bytes`. What is written gets a sequence number from the newest
    of the files up to `sequence_until`: of the equality deletes there are, those reach it that reach every file of the
    group, and no other."""

    files: tuple[LiveFile, ...]
    reason: str
    file_bytes: int
    sequence_until: int
    outputs: int = 1

    def __post_init__(self) -> None:
        if self.outputs < 1:
            raise ValueError("a group becomes one file at least")
        if len({(file.spec_id, file.partition) for file in self.files}) != 1:
            raise ValueError("a group has files, and all of one partition")
        if self.sequence_until < self.sequence_from:
            raise ValueError("an equality delete reaches some files of the group and not all")
        for file in self.files:
            if any(delete.kind is not FileKind.POSITION_DELETE for delete in file.deletes):
                raise ValueError(f"{file.path}: equality deletes stay as they are, and do not belong to a group")

    def light(self) -> Group:
        """Without what only a commit needs."""
        return replace(self, files=tuple(file.light() for file in self.files))

    @property
    def sequence_from(self) -> int:
        return max(file.sequence_number for file in self.files)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """One run of tasks, over files of one snapshot. Everything that is written lies below `folder`, which nobody has
    used before, and gets `sequence_number`. Without an `order` rows keep theirs. Picklable."""

    table: RewrittenTable
    snapshot_id: int
    number: UUID
    folder: str
    sequence_number: int
    groups: tuple[Group, ...]
    parquet: ParquetSettings = field(default_factory=ParquetSettings)
    order: Order | None = None


@dataclass(frozen=True, slots=True)
class RowMap:
    """Where the rows of `files` files, one after the other, came from; `rows` of them."""

    path: str
    files: int
    rows: int


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """What came of a group, in order. `left_out` are the rows of each input that were deleted and not written, as
    portable 64-bit roaring bitmaps. No files if none of the rows was alive, or with a `failure`: then an input cannot
    be read here, and nothing came of the group. `row_maps` if it was sorted: of all files, in their order."""

    group: int
    files: tuple[WrittenFile, ...] = ()
    left_out: tuple[bytes, ...] = ()
    failure: str | None = None
    row_maps: tuple[RowMap, ...] = ()

    def __post_init__(self) -> None:
        if self.row_maps and sum(row_map.files for row_map in self.row_maps) != len(self.files):
            raise ValueError(
                f"row maps of {sum(row_map.files for row_map in self.row_maps)} files, and {len(self.files)} files"
            )


@dataclass(frozen=True, slots=True)
class Moved:
    """A group some of whose inputs have other deletes at `files`, the inputs as a later head has them, than they had
    when they were read."""

    result: RewriteResult
    files: tuple[LiveFile, ...]


@dataclass(frozen=True, slots=True)
class Carried:
    """A position delete file that came meanwhile and may be for inputs and for `data_files`, which stay."""

    delete: LiveDelete
    data_files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reprojected:
    """Deletes that follow the rows into the rewritten files. `replaced` are carried deletes whose rows are all in
    them. `undone` are groups of which a row that was left out is alive again: they must not be published."""

    files: tuple[WrittenFile, ...] = ()
    replaced: tuple[LiveDelete, ...] = ()
    rows: int = 0
    undone: tuple[int, ...] = ()


class Rewriting(Protocol):
    """Reads and writes on Spark."""

    def concatenate(self, rewrite: Rewrite) -> tuple[RewriteResult, ...]:
        """One result for each group, in order; rows sorted if the rewrite has an order. Raises TableChanged for a file
        that is gone, StorageUnavailable."""

    def reproject(self, rewrite: Rewrite, moved: Sequence[Moved], carried: Sequence[Carried]) -> Reprojected:
        """The deletes of a later head, on the rewritten files: vectors, or before version 3 position deletes. Those
        hold the rows of other files as well that come with them out of a `carried` one. Nothing is written if a group
        is undone. Raises alike, and BadInput for a delete that cannot be read."""
