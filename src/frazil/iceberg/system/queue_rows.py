"""Files that nothing refers to any more, on their way out: the rows of `_frazil.deletion_queue`.

    orphaned --grace period--> due --still unreferenced?--> deleted
                                `--it did not work--> retry_count + 1, due again at retry_at

A row of type `metadata` names the last metadata file of a dropped table. Once due it is expanded into one row for each
file that this metadata reaches.

    dropping: somebody is about to drop the table --the catalog has dropped it--> dropped --due--> its files
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from frazil.model.ids import TableName
from frazil.model.ledger import TableHead

ONE_NAME = "drop one of the two names, which leaves the files to the other, or set gc.enabled=false on both"
"""What to do about a table that a catalog has twice."""


class DeletionType(StrEnum):
    FILE = "file"
    METADATA = "metadata"


class Why(StrEnum):
    """What made a file an orphan. `DROPPING` is an intent: nobody knows whether the table was dropped after it."""

    EXPIRED = "expired"
    UNCOMMITTED = "uncommitted"
    DROPPING = "dropping"
    DROPPED = "dropped"

    @property
    def takes_all(self) -> bool:
        """Whether the whole table is to go."""
        return self in (Why.DROPPING, Why.DROPPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedDeletion:
    """One path to be deleted. `table_uuid` tells the table from a later one of the same name."""

    path: str
    table: TableName
    table_uuid: str
    orphaned_at: datetime
    type: DeletionType = DeletionType.FILE
    why: Why = Why.EXPIRED
    retry_count: int = 0
    retry_at: datetime | None = None

    def __post_init__(self) -> None:
        if not self.path or not self.table_uuid:
            raise ValueError(f"a deletion needs a path and the uuid of its table: {self.path!r}, {self.table_uuid!r}")
        if self.orphaned_at.tzinfo is None or self.retry_count < 0:
            raise ValueError(f"{self.path}: orphaned_at needs a time zone, and retries are counted from 0")
        if self.type is DeletionType.METADATA and not self.why.takes_all:
            raise ValueError(f"{self.path}: only a dropped table is deleted by its metadata")
        if self.type is DeletionType.FILE and self.why is Why.DROPPING:
            raise ValueError(f"{self.path}: files of a table are queued once it is gone")


@dataclass(frozen=True, slots=True)
class DeletionBatch:
    """Rows that are read, deleted and removed from the queue together; all of one table."""

    name: str
    rows: tuple[QueuedDeletion, ...]

    def __post_init__(self) -> None:
        if len({(row.table, row.table_uuid, row.type, row.why) for row in self.rows}) > 1:
            raise ValueError(f"batch {self.name} mixes tables or kinds")


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file as the storage lists it."""

    path: str
    size: int
    modified_at: datetime


@dataclass(frozen=True, slots=True)
class TableStanding:
    """What became of the table that a batch belongs to. `uuid` is None if there is none of that name. `locations` are
    where its own files lie."""

    uuid: str | None
    may_be_cleaned: bool = True
    locations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Remains:
    """What a dropped table has left: all files that its last metadata reaches, and where its own lie."""

    files: Sequence[str] = ()
    locations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlace:
    """A table at one moment: where its files go, and who may still be writing. A location is None if it does not lie
    below the table's own, and so may be shared with others. `branches` are by name, main is not among them."""

    uuid: str
    data_location: str | None
    metadata_location: str | None
    main: TableHead
    branches: Mapping[str, TableHead] = field(default_factory=dict)
    may_be_cleaned: bool = True
