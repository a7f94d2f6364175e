"""Equality deletes on their way to become positions: what is searched for, in which files, and what was found.

    equality delete e   key columns {1, 4}   spec and partition   sequence 7
                              `-- key set --'       |
                                     `---- place ---'
    data file f         sequence 5           whose deletes, by place, may reach it
    a row of f is deleted if some place of f has the row's key in a delete with a sequence beyond that of f

Maintenance decides what is searched; workers search and write; nobody else knows both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from frazil.model.files import FileKind, LiveFile, WrittenFile
from frazil.model.ids import TableName
from frazil.model.schema import Field
from frazil.model.table import Table
from frazil.model.write import ParquetSettings


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A top-level column that some schema of the table has or had, with the widest type it ever had. `default` is what
    files from before the column have in it, in Iceberg's JSON form of single values."""

    field: Field
    default: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedTable(Table):
    """What a conversion must know of a table at one head. `columns` are by field id, those that were dropped too: a
    delete by a dropped column still deletes."""

    columns: Mapping[int, KeyColumn] = field(hash=False)


@dataclass(frozen=True, slots=True)
class DeleteKeys:
    """One equality delete file, whose rows are keys of `place`."""

    path: str
    size: int
    place: int
    sequence_number: int


@dataclass(frozen=True, slots=True)
class SearchedFile:
    """A data file with its vectors and position deletes, and the places whose deletes may reach it. `constants` are the
    values, by field id, that its partition tells of columns that may be missing in it."""

    file: LiveFile
    places: tuple[int, ...]
    constants: Mapping[int, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not self.places:
            raise ValueError(f"{self.file.path}: no delete reaches it, so nothing is to be searched")
        if any(delete.kind is not FileKind.POSITION_DELETE for delete in self.file.deletes):
            raise ValueError(f"{self.file.path}: only deletes by position are merged")


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """One run. `places` gives the number of the key set of each place; files come in the order of their partitions.
    Everything that is written lies below `folder`, which nobody has used before. Picklable."""

    table: TableName
    number: UUID
    folder: str
    schema_id: int
    format_version: int
    key_sets: tuple[tuple[KeyColumn, ...], ...]
    places: tuple[int, ...]
    deletes: tuple[DeleteKeys, ...]
    files: tuple[SearchedFile, ...]
    parquet: ParquetSettings = field(default_factory=ParquetSettings)
    storage: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    name_mapping: str | None = None

    def __post_init__(self) -> None:
        if any(not 0 <= key_set < len(self.key_sets) for key_set in self.places):
            raise ValueError(f"{self.table}: a place without key columns")


@dataclass(frozen=True, slots=True)
class Marked:
    """A vector, or a position delete file of one partition, that was written; `data_files` are those it is for, and
    `fresh` the rows in it that were not deleted by position before."""

    file: WrittenFile
    data_files: tuple[str, ...]
    fresh: int


class Converting(Protocol):
    """Searches on Spark and writes what takes the place of the equality deletes."""

    def search(self, search: Search) -> tuple[Marked, ...]:
        """Version 2: position deletes of the rows that were found and not deleted by position before. From version 3
        on: a vector for each data file with such rows, of all rows that are then deleted by position. Raises
        UnreadableFile, TableChanged for a file that is gone, StorageUnavailable."""

    def merged(self, search: Search, vector: WrittenFile, file: LiveFile) -> WrittenFile:
        """A vector of what one of this search deletes and of what the file's deletes delete by now. Raises alike."""
