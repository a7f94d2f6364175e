"""What one commit does to a table, as small values in order; `transaction` alone performs them.

    an epoch        WriteSnapshot(AddFiles, RemoveFiles), RecordLedger, SetTag
    a repair        WriteSnapshot(RemoveFiles, AddFiles), `same_rows` if files only take each other's place
    a load anew     WriteSnapshot(RemoveRows) on the branch ...  WriteSnapshot, RecordLedger, SetTag, AdoptBranch
    retention       SetTag, RemoveTag, ExpireSnapshots
    manifests       RewriteManifests

Files are in the form of iceberg-java's ContentFileParser. One snapshot takes any of the changes together: rows that
come, rows that are deleted in files that stay, and files that go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from frazil.model.ledger import LedgerEntry

File = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AddFiles:
    """Data files and delete files. With a `sequence_number` they are as old as that: data files that take the place of
    others are reached by newer equality deletes, deletes reach no newer file. All data files of a snapshot have one."""

    files: Sequence[File]
    sequence_number: int | None = None


@dataclass(frozen=True, slots=True)
class RemoveFiles:
    """Data files and delete files, which must be there."""

    files: Sequence[File]


@dataclass(frozen=True, slots=True)
class RemoveRows:
    """All rows whose files lie in the partition with this value of a column; without one, all rows."""

    column: str | None = None
    value: str = ""


FileChange = AddFiles | RemoveFiles | RemoveRows


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSnapshot:
    """A new snapshot on the base's branch, empty without changes. `same_rows` says that no row changes, which readers
    of changes pass over. `must_exist` are data files that the deletes point into."""

    changes: tuple[FileChange, ...] = ()
    summary: Mapping[str, str] = field(default_factory=dict)
    same_rows: bool = False
    must_exist: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class RewriteManifests:
    """A new snapshot with the same files, those of these manifests in fewer of them."""

    paths: Sequence[str]
    summary: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RecordLedger:
    """The entry's property, with id and sequence number of the snapshot, known once it is staged."""

    entry: LedgerEntry


@dataclass(frozen=True, slots=True)
class SetProperties:
    """None removes a property."""

    values: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class SetTag:
    """On the snapshot that was written before, if none is named."""

    name: str
    snapshot_id: int | None = None


@dataclass(frozen=True, slots=True)
class RemoveTag:
    """If it is there."""

    name: str


@dataclass(frozen=True, slots=True)
class AdoptBranch:
    """Main becomes what the base's branch is, and the branch is removed."""


@dataclass(frozen=True, slots=True)
class RemoveBranch:
    """The base's. What was only on it is left to expiry."""


@dataclass(frozen=True, slots=True)
class ExpireSnapshots:
    """Exactly these, and no file."""

    ids: frozenset[int]


Operation = (
    WriteSnapshot
    | RewriteManifests
    | RecordLedger
    | SetProperties
    | SetTag
    | RemoveTag
    | AdoptBranch
    | RemoveBranch
    | ExpireSnapshots
)


@dataclass(frozen=True, slots=True)
class TableTransaction:
    """One commit. `unmoved` are branches and tags that must still be where the base has them, though the commit does
    not touch them."""

    operations: tuple[Operation, ...]
    unmoved: Sequence[str] = ()
