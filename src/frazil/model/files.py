"""FileClosed and Resolved: the only two messages, worker to coordinator.

All FileClosed of an epoch precede its Resolved. The wire form is `messages.proto` (see `wire`).

What a table holds at one head: its live data files, and the deletes that apply to each.

    head s9 --> data file a   1,000 rows   vector in puffin p, bytes 4..60
                data file b   50 rows
                equality deletes e (sequence 7)  apply to every older file of their partition, or of all

The lake reads it out of the manifests; a lookup needs nothing else to know where to search.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any
from uuid import UUID

from frazil.model.ids import TableName
from frazil.model.position import Position

DeleteId = tuple[str, int | None]
Place = tuple[int, tuple[Any, ...]]
"""A spec's id and a partition of it."""


class FileKind(StrEnum):
    """`POSITION_DELETE` is a Parquet file of positions (v2), or with `vector` one bitmap inside a Puffin file (v3).
    `PARTIAL` rows lack columns that only the table's older rows know: a locator makes data files of them, and they
    themselves are never committed."""

    DATA = "data"
    EQUALITY_DELETE = "equality-deletes"
    POSITION_DELETE = "position-deletes"
    PARTIAL = "partial"

    @property
    def deletes(self) -> bool:
        return self in (FileKind.EQUALITY_DELETE, FileKind.POSITION_DELETE)


@dataclass(frozen=True, slots=True)
class Blob:
    """Where one deletion vector lies in its Puffin file, and which data file it is for."""

    data_file: str
    offset: int
    length: int

    def __post_init__(self) -> None:
        if self.offset < 4 or self.length <= 0:
            raise ValueError(f"a vector for {self.data_file} cannot lie at {self.offset} with {self.length} bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMetrics:
    """What a manifest keeps of one column of one file; bounds in Iceberg's single-value binary form."""

    field_id: int
    size: int | None = None
    values: int | None = None
    nulls: int | None = None
    nans: int | None = None
    lower: bytes | None = None
    upper: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """One finished file, with all that a manifest entry needs.

    Whoever commits never opens the file, so a wrong field here becomes a wrong table.
    `file_hash` covers what the manifest will say; `digest` is the SHA-256 of the bytes written.
    `partition` holds the values of the partition fields in spec order, in Iceberg's JSON single-value form.
    """

    spec_id: int
    path: str
    kind: FileKind
    records: int
    size: int
    partition: tuple[Any, ...] = ()
    metrics: tuple[ColumnMetrics, ...] = ()
    equality_ids: tuple[int, ...] = ()
    split_offsets: tuple[int, ...] = ()
    digest: str
    vector: Blob | None = None
    sort_order_id: int | None = None
    file_hash: str = ""

    def __post_init__(self) -> None:
        if self.vector is not None and self.kind is not FileKind.POSITION_DELETE:
            raise ValueError(f"{self.path}: a vector is a position delete")
        if self.records <= 0 or self.size <= 0:
            raise ValueError(f"{self.path}: a file with {self.records} records and {self.size} bytes is not closed")
        if (self.kind is FileKind.EQUALITY_DELETE) != bool(self.equality_ids):
            raise ValueError(f"{self.path}: equality ids belong to equality deletes and to nothing else")
        if not self.file_hash:
            object.__setattr__(self, "file_hash", self.expected_hash())
        elif self.file_hash != self.expected_hash():
            raise ValueError(f"{self.path}: the message was altered on its way (hash mismatch)")

    def expected_hash(self) -> str:
        facts = [
            self.path,
            self.size,
            self.records,
            [
                [m.field_id, m.size, m.values, m.nulls, m.nans, _hex(m.lower), _hex(m.upper)]
                for m in sorted(self.metrics, key=lambda m: m.field_id)
            ],
            list(self.partition),
        ]
        if self.vector is not None:
            facts.append([self.vector.data_file, self.vector.offset, self.vector.length])
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def manifest_json(self) -> dict[str, Any]:
        """The form iceberg-java's ContentFileParser reads."""

        def column(name: str) -> dict[str, Any] | None:
            pairs = [(m.field_id, getattr(m, name)) for m in self.metrics if getattr(m, name) is not None]
            if not pairs:
                return None
            values = [v.hex().upper() if isinstance(v, bytes) else v for _, v in pairs]
            return {"keys": [k for k, _ in pairs], "values": values}

        entry: dict[str, Any] = {
            "spec-id": self.spec_id,
            "content": self.kind.value,
            "file-path": self.path,
            "file-format": "parquet" if self.vector is None else "puffin",
            "partition": list(self.partition),
            "file-size-in-bytes": self.size,
            "record-count": self.records,
            "column-sizes": column("size"),
            "value-counts": column("values"),
            "null-value-counts": column("nulls"),
            "nan-value-counts": column("nans"),
            "lower-bounds": column("lower"),
            "upper-bounds": column("upper"),
            "split-offsets": list(self.split_offsets) or None,
            "equality-ids": list(self.equality_ids) or None,
            "sort-order-id": self.sort_order_id,
            "referenced-data-file": None if self.vector is None else self.vector.data_file,
            "content-offset": None if self.vector is None else self.vector.offset,
            "content-size-in-bytes": None if self.vector is None else self.vector.length,
        }
        return {key: value for key, value in entry.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileClosed(WrittenFile):
    """A file of one epoch, as the worker reports it that has written it."""

    table: TableName
    epoch: Position
    batch_id: UUID
    worker: int
    schema_id: int


@dataclass(frozen=True, slots=True)
class Resolved:
    """Worker `worker` of `workers` has reported every file of the epochs up to `epoch`."""

    epoch: Position
    worker: int
    workers: int


Message = FileClosed | Resolved


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDelete:
    """A delete file at a head. `entry` is its form for iceberg-java's ContentFileParser, with which it can be
    removed again. `data_file` if it applies to one data file alone: always for a vector."""

    path: str
    kind: FileKind
    format: str
    size: int
    records: int
    sequence_number: int
    spec_id: int
    partition: tuple[Any, ...] = ()
    equality_ids: tuple[int, ...] = ()
    data_file: str | None = None
    offset: int | None = None
    length: int | None = None
    entry: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)

    @property
    def is_vector(self) -> bool:
        return self.kind is FileKind.POSITION_DELETE and self.offset is not None

    @property
    def place(self) -> Place:
        return self.spec_id, self.partition

    @property
    def id(self) -> DeleteId:
        """What tells vectors of one Puffin file apart."""
        return self.path, self.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFile:
    """A data file at a head. `bounds` are lower and upper bounds by field id, in Iceberg's single-value binary form,
    where the manifest has them; `deletes` are those that apply to it. `first_row_id` is what its rows without an id of
    their own count from, where the manifest was read for it: a listing that our own commits kept up does not know.
    `sort_order_id` is that of the table's sort order in which all its rows lie, if its writer said so."""

    path: str
    format: str
    size: int
    records: int
    sequence_number: int
    spec_id: int
    partition: tuple[Any, ...] = ()
    bounds: Mapping[int, tuple[bytes | None, bytes | None]] = field(default_factory=dict, hash=False)
    deletes: tuple[LiveDelete, ...] = ()
    first_row_id: int | None = field(default=None, compare=False)
    sort_order_id: int | None = field(default=None, compare=False)

    @property
    def vector(self) -> LiveDelete | None:
        return next((delete for delete in self.deletes if delete.is_vector), None)

    @property
    def place(self) -> Place:
        return self.spec_id, self.partition

    @property
    def position_deletes(self) -> tuple[LiveDelete, ...]:
        return tuple(delete for delete in self.deletes if delete.kind is FileKind.POSITION_DELETE)

    def by_position(self) -> LiveFile:
        """Without its equality deletes."""
        return replace(self, deletes=self.position_deletes)

    def light(self) -> LiveFile:
        """Without what only a commit needs."""
        return replace(self, bounds={}, deletes=tuple(replace(delete, entry={}) for delete in self.deletes))


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFiles:
    """Everything live at one snapshot of a table; no snapshot means an empty table. `deletes` are all delete files,
    those that apply to no file among them."""

    snapshot_id: int | None
    files: tuple[LiveFile, ...] = ()
    deletes: tuple[LiveDelete, ...] = ()

    @property
    def by_path(self) -> dict[str, LiveFile]:
        return {file.path: file for file in self.files}


@dataclass(frozen=True, slots=True)
class LiveManifest:
    """A manifest of a head, of data files or of `deletes`; `files` are the live ones in it."""

    path: str
    size: int
    spec_id: int
    files: int
    deletes: bool = False
