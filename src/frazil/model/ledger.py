"""The ledger: what proves which epochs of a table were published.

One commit writes it in three places: the snapshot's summary, the table property
`frazil.<job>.ledger` (the same plus snapshot id and sequence number) and the tag `frazil_<job>`.

    ancestry of main   s9 (compaction) -> s8 (job shop, R=7) -> s7 (foreign) -> s6 (job shop, R=5) ...
                                          ^ newest own entry: the frontier is 7

A table that is loaded anew is loaded on a branch of it: there neither property nor tag is written, and every summary
also names the branch (`frazil.branch`), so that nobody takes for published what main never showed.

Every entry says by `frazil.format` how it is to be read; one without it was written before there was such a word, and
is of format 1. One of a later format is not guessed about (docs/upgrades.md).

What a pipeline has published to a table, read from a head. Pure.

ancestry of main   s9 -> s8 (shop, R=7) -> s7 (foreign) -> s6 (shop, R=5) -> expired ...   tag daily: s2 (shop, R=2)
published("shop")        R=7, s8, when                     R=5, s6, when
retained("shop")         R=7, s8                           R=5, s6                                     R=2, s2
as_of(R=6)                                                 R=5, s6

A table that was loaded anew on a branch shows what main showed: the epochs before, then the adoption of the branch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

from frazil import errors
from frazil.model.frontier import Frontier
from frazil.model.ids import JobId, TableName
from frazil.model.position import Position, is_before, parse_position, time_text, without_login
from frazil.model.table import TableForm

FORMAT = 1
"""Of the entries that this version writes, and the latest that it reads."""
FORMAT_FACT = "frazil.format"
SOURCE_TIME_FACT = "frazil.source-time"
BRANCH_FACT = "frazil.branch"
LEDGER_PROPERTY = ("frazil.", ".ledger")
"""How the table property of a pipeline's ledger begins and ends."""
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
    `position_time` is the source's own time of `resolved`, where the position itself does not tell it.
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
    position_time: datetime | None = None
    snapshot_id: int | None = None
    sequence_number: int | None = None

    @property
    def frontier(self) -> Frontier:
        return Frontier(self.resolved, self.notes, self.position_time)

    @property
    def source_time(self) -> datetime | None:
        """When the source says it was at `resolved`; None if nothing tells."""
        return self.frontier.source_time

    @property
    def shown(self) -> str:
        """`resolved` for people: its time, or itself if nothing tells that."""
        return self.resolved.text if self.source_time is None else time_text(self.source_time)

    def to_summary(self) -> dict[str, str]:
        facts = {
            FORMAT_FACT: str(FORMAT),
            "frazil.job-id": self.job.text,
            "frazil.batch-id": str(self.batch_id),
            "frazil.lower": "" if self.lower is None else self.lower.text,
            "frazil.resolved": self.resolved.text,
            SOURCE_TIME_FACT: _time_text(self.source_time),
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
        """None if no pipeline of ours wrote this summary. Raises ValueError if one did and it is damaged, LedgerTooNew
        if a later version of ours did."""
        if (version := int(summary.get(FORMAT_FACT, "1"))) > FORMAT:
            raise too_new(version, snapshot_id)
        if "frazil.job-id" not in summary or "frazil.resolved" not in summary:
            return None
        lower = summary.get("frazil.lower", "")
        try:
            resolved = parse_position(summary["frazil.resolved"])
            return cls(
                job=JobId(summary["frazil.job-id"]),
                batch_id=UUID(summary["frazil.batch-id"]),
                lower=parse_position(lower) if lower else None,
                resolved=resolved,
                position_time=_position_time(summary.get(SOURCE_TIME_FACT, ""), resolved),
                notes=summary.get("frazil.notes", ""),
                fence=Fence.parse(summary["frazil.fence"]),
                # Earlier versions wrote the whole URL of a feed, and it is still the same feed.
                incarnation=without_login(summary.get("frazil.incarnation", "")),
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


def _time_text(time: datetime | None) -> str:
    """ISO 8601, UTC, with microseconds."""
    return "" if time is None else f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


def _position_time(text: str, resolved: Position) -> datetime | None:
    """None if the position itself says the same, or nothing is said. Raises ValueError for what is no moment."""
    if not text:
        return None
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{SOURCE_TIME_FACT} {text!r} has no time zone")
    return None if time == resolved.source_time else time


def check_formats(
    table: TableName, summaries: Iterable[tuple[int, Mapping[str, str]]], properties: Mapping[str, str]
) -> None:
    """Raises LedgerTooNew if a later version of ours has left anything in the table, by the summaries of its snapshots
    or by its properties: whichever pipeline it was for, whatever is done to the table could be wrong. What cannot be
    read is for `read_frontier` to report."""
    begin, end = LEDGER_PROPERTY
    entries: list[tuple[int | None, Mapping[str, Any]]] = [*summaries]
    for name, text in properties.items():
        if name.startswith(begin) and name.endswith(end):
            with suppress(ValueError):
                facts = json.loads(text)
                if isinstance(facts, dict):
                    entries.append((facts.get("snapshot-id"), facts))
    for snapshot_id, facts in entries:
        with suppress(ValueError, TypeError):
            if (version := int(facts.get(FORMAT_FACT, "1"))) > FORMAT:
                raise too_new(version, snapshot_id, table)


def too_new(version: int, snapshot_id: int | None, table: TableName | None = None) -> errors.LedgerTooNew:
    where = "" if snapshot_id is None else f" of snapshot {snapshot_id}"
    of = "" if table is None else f" in {table}"
    return errors.LedgerTooNew(
        f"the ledger entry{where}{of} has format {version}; this version of Frazil knows formats up to {FORMAT}",
        hint="A newer Frazil has written to this table, and nothing was changed now. Upgrade this one to the same "
        "version and start it again; docs/upgrades.md says how to go back.",
        table="" if table is None else table.text,
        snapshot_id=snapshot_id,
        format=version,
        known=FORMAT,
    )


@runtime_checkable
class SummarizesEpochs(Protocol):
    """A position whose source has more to say in the summary of an epoch's snapshot than the ledger."""

    def summary(self, entry: LedgerEntry) -> Mapping[str, str]:
        """Keys that other tools look for."""


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
    `tags` name snapshots, which they keep when expiry cuts the ancestry off. `form` is what files must fit; None where
    nobody told. `base` is the lake's own handle to exactly this metadata; a commit made with it can only land on this
    head.
    """

    uuid: str
    ancestry: tuple[SnapshotFacts, ...]
    properties: Mapping[str, str]
    tags: Mapping[str, SnapshotFacts] = field(default_factory=dict, compare=False, repr=False)
    form: TableForm | None = field(default=None, compare=False, repr=False)
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

    def in_property(self, job: JobId) -> LedgerEntry | None:
        text = self.properties.get(job.ledger_property)
        return None if text is None else LedgerEntry.from_property(text)


@dataclass(frozen=True, slots=True)
class BranchedHead:
    """A table at one moment, with the branch on which it is loaded anew; None if it has no such branch. The branch's
    head has no ledger property: that one speaks of main."""

    main: TableHead
    branch: TableHead | None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PublishedEpoch:
    entry: LedgerEntry
    snapshot_id: int
    committed_at: datetime

    def is_within(self, moment: Position | datetime) -> bool:
        """Whether the source was there already at this position, or at this time of its own clock."""
        if isinstance(moment, datetime):
            return (time := self.entry.source_time) is not None and time <= moment
        return not is_before(moment, self.entry.resolved)

    def reaches(self, moment: Position | datetime) -> bool:
        """Whether nothing up to this moment can be missing."""
        if isinstance(moment, datetime):
            return (time := self.entry.source_time) is not None and time >= moment
        return not is_before(self.entry.resolved, moment)


def published(head: TableHead, job: JobId) -> tuple[PublishedEpoch, ...]:
    """The epochs that are on main, newest first. Raises ValueError on a damaged entry."""
    return _own(head.ancestry, job)


def retained(head: TableHead, job: JobId) -> tuple[PublishedEpoch, ...]:
    """All epochs that can still be read, newest first: those on main, and older ones that a tag has kept.

    Where expiry has cut the ancestry off, nothing proves any more that a tagged snapshot was on it. What the oldest
    epoch on main follows is older than both its own `lower` and its own commit; a tag on an epoch that was rolled
    back, and published again since, is not.
    """
    on_main = published(head, job)
    if head.history_is_whole or not on_main or (border := on_main[-1].entry.lower) is None:
        return on_main
    oldest = on_main[-1].entry
    tagged = {epoch.snapshot_id: epoch for epoch in _own(head.tags.values(), job)}
    older = [
        epoch
        for epoch in tagged.values()
        if epoch.is_within(border) and (epoch.entry.sequence_number or 0) < (oldest.sequence_number or 0)
    ]
    return *on_main, *sorted(older, key=lambda epoch: epoch.entry.resolved.order, reverse=True)


def as_of(head: TableHead, job: JobId, moment: Position | datetime) -> PublishedEpoch | None:
    """The epoch that shows the table as it was at this moment of the source: the newest one up to there."""
    return next((epoch for epoch in retained(head, job) if epoch.is_within(moment)), None)


def pipelines(head: TableHead) -> tuple[JobId, ...]:
    """Every pipeline that has published to this table, the latest first."""
    return tuple(dict.fromkeys(epoch.entry.job for epoch in _all(head.ancestry)))


def _own(snapshots: Iterable[SnapshotFacts], job: JobId) -> tuple[PublishedEpoch, ...]:
    return tuple(epoch for epoch in _all(snapshots) if epoch.entry.job == job)


def _all(snapshots: Iterable[SnapshotFacts]) -> tuple[PublishedEpoch, ...]:
    found = []
    for snapshot in snapshots:
        if snapshot.branch is not None:
            # A step of a load on a branch: main showed only what came of them all.
            continue
        entry = LedgerEntry.from_summary(
            snapshot.summary, snapshot_id=snapshot.snapshot_id, sequence_number=snapshot.sequence_number
        )
        if entry is not None:
            at = _EPOCH + timedelta(milliseconds=snapshot.timestamp_ms)
            found.append(PublishedEpoch(entry, snapshot.snapshot_id, at))
    return tuple(found)
