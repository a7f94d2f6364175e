"""The ledger: what proves which epochs of a table were published.

One commit writes it in three places: the snapshot's summary, the table property
`frazil.<job>.ledger` (the same plus snapshot id and sequence number) and the tag `frazil_<job>`.

    ancestry of main   s9 (compaction) -> s8 (job shop, R=7) -> s7 (foreign) -> s6 (job shop, R=5) ...
                                          ^ newest own entry: the frontier is 7

A table that is loaded anew is loaded on a branch of it: there neither property nor tag is written, and every summary
also names the branch (`frazil.branch`), so that nobody takes for published what main never showed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from frazil.model.names import JobId
from frazil.model.position import Position, parse_position

BRANCH_FACT = "frazil.branch"
RESYNC = "resync"
"""The operation of a snapshot that deletes every row, so that the table can be loaded anew."""


@dataclass(frozen=True, order=True, slots=True)
class Fence:
    """(generation, owner) of a pipeline's running coordinator. Two starters may take one generation;
    the owner tells them apart, and only an exact match may publish."""

    generation: int
    owner: UUID

    @property
    def text(self) -> str:
        return f"{self.generation}:{self.owner}"

    @classmethod
    def parse(cls, text: str) -> Fence:
        generation, _, owner = text.partition(":")
        return cls(int(generation), UUID(owner))

    @property
    def label(self) -> str:
        """For paths."""
        return f"{self.generation}-{self.owner.hex[:8]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One published epoch of one table, as a snapshot's summary or the table property tells it.

    `source` is the source's own name of the table, so that a restart need not search the source for it.
    """

    job: JobId
    batch_id: UUID
    lower: Position | None
    resolved: Position
    notes: str
    fence: Fence
    incarnation: str
    config_hash: str
    operation: str
    data_files: int
    delete_files: int
    rows: int
    deletes: int
    source: str = ""
    snapshot_id: int | None = None
    sequence_number: int | None = None

    def to_summary(self) -> dict[str, str]:
        facts = {
            "frazil.job-id": self.job.text,
            "frazil.batch-id": str(self.batch_id),
            "frazil.lower": "" if self.lower is None else self.lower.text,
            "frazil.resolved": self.resolved.text,
            "frazil.notes": self.notes,
            "frazil.fence": self.fence.text,
            "frazil.incarnation": self.incarnation,
            "frazil.config-hash": self.config_hash,
            "frazil.operation": self.operation,
            "frazil.data-files": str(self.data_files),
            "frazil.delete-files": str(self.delete_files),
            "frazil.rows": str(self.rows),
            "frazil.deletes": str(self.deletes),
            "frazil.source": self.source,
        }
        return {key: value for key, value in facts.items() if value}

    @classmethod
    def from_summary(
        cls, summary: Mapping[str, str], *, snapshot_id: int | None = None, sequence_number: int | None = None
    ) -> LedgerEntry | None:
        """None if no pipeline of ours wrote this summary. Raises ValueError if one did and it is damaged."""
        if "frazil.job-id" not in summary or "frazil.resolved" not in summary:
            return None
        lower = summary.get("frazil.lower", "")
        try:
            return cls(
                job=JobId(summary["frazil.job-id"]),
                batch_id=UUID(summary["frazil.batch-id"]),
                lower=parse_position(lower) if lower else None,
                resolved=parse_position(summary["frazil.resolved"]),
                notes=summary.get("frazil.notes", ""),
                fence=Fence.parse(summary["frazil.fence"]),
                incarnation=summary.get("frazil.incarnation", ""),
                config_hash=summary.get("frazil.config-hash", ""),
                operation=summary.get("frazil.operation", ""),
                data_files=int(summary.get("frazil.data-files", "0")),
                delete_files=int(summary.get("frazil.delete-files", "0")),
                rows=int(summary.get("frazil.rows", "0")),
                deletes=int(summary.get("frazil.deletes", "0")),
                source=summary.get("frazil.source", ""),
                snapshot_id=snapshot_id,
                sequence_number=sequence_number,
            )
        except KeyError as error:
            raise ValueError(f"a ledger entry lacks {error.args[0]}") from error

    def to_property(self, snapshot_id: int, sequence_number: int) -> str:
        extra = {"snapshot-id": snapshot_id, "sequence-number": sequence_number}
        return json.dumps({**self.to_summary(), **extra}, separators=(",", ":"))

    @classmethod
    def from_property(cls, text: str) -> LedgerEntry | None:
        facts: dict[str, Any] = json.loads(text)
        snapshot_id, sequence_number = facts.pop("snapshot-id"), facts.pop("sequence-number")
        return cls.from_summary(facts, snapshot_id=snapshot_id, sequence_number=sequence_number)


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """One snapshot on the ancestry of main, or of another branch."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    timestamp_ms: int
    summary: Mapping[str, str]

    @property
    def branch(self) -> str | None:
        """The branch that a snapshot of ours was made on; None for one that main showed, and for foreign ones."""
        return self.summary.get(BRANCH_FACT)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHead:
    """A table at the very moment a commit would be conditional on.

    `ancestry` runs from the head of main, or of the branch that was asked for, back to the oldest retained snapshot.
    `tags` name snapshots, which they keep when expiry cuts the ancestry off. `base` is the lake's own handle to exactly
    this metadata; a commit made with it can only land on this head.
    """

    uuid: str
    ancestry: tuple[SnapshotFacts, ...]
    properties: Mapping[str, str]
    tags: Mapping[str, SnapshotFacts] = field(default_factory=dict, compare=False, repr=False)
    base: object = field(default=None, compare=False, repr=False)

    @property
    def snapshot_id(self) -> int | None:
        return self.ancestry[0].snapshot_id if self.ancestry else None

    @property
    def history_is_whole(self) -> bool:
        """False once expiry has cut the tail of the ancestry off."""
        return not self.ancestry or self.ancestry[-1].parent_id is None

    @property
    def is_empty(self) -> bool:
        """Whether it is certain that there is no row: no snapshot at all, or the newest one is ours and deleted all."""
        return not self.ancestry or self.ancestry[0].summary.get("frazil.operation") == RESYNC

    def mark(self, job: JobId) -> SnapshotFacts | None:
        """The newest own snapshot, whether it tells a position or not."""
        return next((s for s in self.ancestry if s.summary.get("frazil.job-id") == job.text), None)

    def entries(self, job: JobId) -> tuple[LedgerEntry, ...]:
        """Own entries along the ancestry, newest first."""
        found = []
        for snapshot in self.ancestry:
            entry = LedgerEntry.from_summary(
                snapshot.summary, snapshot_id=snapshot.snapshot_id, sequence_number=snapshot.sequence_number
            )
            if entry is not None and entry.job == job:
                found.append(entry)
        return tuple(found)

    def newest(self, job: JobId) -> LedgerEntry | None:
        mark = self.mark(job)
        if mark is None:
            return None
        return LedgerEntry.from_summary(
            mark.summary, snapshot_id=mark.snapshot_id, sequence_number=mark.sequence_number
        )

    def mirror(self, job: JobId) -> LedgerEntry | None:
        text = self.properties.get(job.ledger_property)
        return None if text is None else LedgerEntry.from_property(text)


@dataclass(frozen=True, slots=True)
class BranchedHead:
    """A table at one moment, with the branch on which it is loaded anew; None if it has no such branch. The branch's
    head has no ledger property: that one speaks of main."""

    main: TableHead
    branch: TableHead | None
