"""What a table holds at one head: its live data files, and the deletes that apply to each.

    head s9 --> data file a   1,000 rows   vector in puffin p, bytes 4..60
                data file b   50 rows
                equality deletes e (sequence 7)  apply to every older file of their partition, or of all

The lake reads it out of the manifests; a lookup needs nothing else to know where to search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from frazil.model.files import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDelete:
    """A delete file at a head. `entry` is its form for iceberg-java's ContentFileParser, with which it can be
    removed again. `data_file` if it applies to one data file alone: always for a vector."""

    path: str
    kind: Kind
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
        return self.kind is Kind.POSITION_DELETE and self.offset is not None


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
