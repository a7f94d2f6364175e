"""A table under examination: what its manifests register, what its files turn out to be, and what was found.

    Registered     every entry of every manifest of one head, a file twice if it is there twice
    FileLook       one file as the storage has it: its size, its rows, those that lie in another partition than theirs
    DuplicateKeys  keys that more than one live row has
    Finding        one thing that is wrong, in words, and whether it can be repaired

The lake reads, workers look, maintenance decides; nobody of them knows the other two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import UUID

from frazil.model.compaction import RewrittenTable
from frazil.model.conversion import Marked
from frazil.model.files import LiveDelete, LiveFile, WrittenFile
from frazil.model.schema import Field
from frazil.model.write import ParquetSettings

SAMPLES = 5
"""Of files, rows and keys that a finding shows."""


class Trouble(StrEnum):
    """What can be wrong with a table."""

    REGISTERED_TWICE = "registered twice"
    WRONG_PARTITION = "wrong partition"
    DUPLICATE_KEYS = "duplicate keys"
    DANGLING_DELETES = "dangling deletes"
    TWO_VECTORS = "two vectors"
    UNREADABLE_DELETES = "unreadable deletes"
    METADATA = "metadata"
    LEDGER = "ledger"
    MISSING_FILES = "missing files"
    DIFFERENT_FILES = "different files"
    NOT_EXAMINED = "not examined"


class Severity(StrEnum):
    """`INFO` needs nobody; `WARNING` will become a problem; `ERROR`: readers see wrong rows, or nothing."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`what` is wrong and `where` (files, partitions, keys: samples), what it `means` to a reader, and what to do
    `next`. `fixable` if a repair is known to be safe; `fixed` once a second look did not find it any more; `error` is
    why a repair failed."""

    trouble: Trouble
    severity: Severity
    what: str
    where: tuple[str, ...] = ()
    means: str
    next: str
    fixable: bool = False
    fixed: bool = False
    error: str = ""

    def __post_init__(self) -> None:
        if self.fixed and not self.fixable:
            raise ValueError(f"{self.what}: what cannot be repaired was not")

    @property
    def remains(self) -> bool:
        """Whether somebody has to do something."""
        return not self.fixed and self.severity is not Severity.INFO


@dataclass(frozen=True, slots=True)
class Registered:
    """Every live entry of a head, each data file with the deletes that reach it. A path that is registered twice is
    there twice."""

    snapshot_id: int | None
    data: tuple[LiveFile, ...] = ()
    deletes: tuple[LiveDelete, ...] = ()

    @property
    def by_path(self) -> dict[str, tuple[LiveFile, ...]]:
        """The registrations of each file, the oldest first."""
        found: dict[str, list[LiveFile]] = {}
        for file in self.data:
            found.setdefault(file.path, []).append(file)
        return {path: tuple(sorted(files, key=_age)) for path, files in found.items()}

    @property
    def first(self) -> tuple[LiveFile, ...]:
        """Each file once: its oldest registration."""
        return tuple(files[0] for files in self.by_path.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataFacts:
    """The size of what a reader loads before it knows any file. `properties` are the sizes of the table's properties by
    name; `expirable` are the snapshots that the configured expiry would remove now."""

    bytes: int
    snapshots: int
    references: int
    schemas: int
    specs: int
    log: int
    properties: Mapping[str, int] = field(default_factory=dict, hash=False)
    expirable: int = 0


@dataclass(frozen=True, slots=True)
class ExaminedTable:
    """What tasks must know of a table. `columns` are all top-level columns it ever had, and `table.defaults` those of
    all of them; `key` are its identifier fields, or the configured key."""

    table: RewrittenTable
    columns: tuple[Field, ...]
    key: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A row of a file, and the partition that its columns give it."""

    position: int
    partition: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLook:
    """What became of a look at one file. `size` is None if it is not there. `told` are columns, by field id, that the
    file lacks and its partition tells. `names` are the data files that a position delete file names. `damage` is why
    nobody can read it, `trouble` why its rows could not be looked at here."""

    path: str
    size: int | None
    records: int | None = None
    misplaced: int = 0
    samples: tuple[Misplaced, ...] = ()
    told: frozenset[int] = frozenset()
    names: frozenset[str] | None = None
    damage: str = ""
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class KeySample:
    """One key with the places of its rows: file and position."""

    key: str
    rows: tuple[tuple[str, int], ...]
    equal: bool


@dataclass(frozen=True, slots=True)
class DuplicateKeys:
    """`keys` have `rows` live rows altogether; of `equal` keys all rows are the same in every column."""

    keys: int = 0
    rows: int = 0
    equal: int = 0
    samples: tuple[KeySample, ...] = ()


@dataclass(frozen=True, slots=True)
class Surplus:
    """Rows that others are equal to, marked as deleted; `kept` are the data files of those others."""

    marked: tuple[Marked, ...] = ()
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Placed:
    """What came of one data file: all its live rows, in files of the partitions that their columns give them. `failure`
    is why nothing came of it."""

    path: str
    files: tuple[WrittenFile, ...] = ()
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """Where a repair writes; nobody has used it before."""

    run: UUID
    path: str
    parquet: ParquetSettings = field(default_factory=ParquetSettings)


def _age(file: LiveFile) -> tuple[int, int, str]:
    return file.sequence_number, file.spec_id, repr(file.partition)
