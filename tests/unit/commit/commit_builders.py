"""Builders with defaults: positions, heads, entries, intents, and edges that answer from a script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from threading import Event
from typing import Any
from uuid import UUID

from frazil.commit.admission import Coordinator
from frazil.commit.machine import EpochCommit, make_epoch_commit
from frazil.model.commit import CommitAnswer, CommitPlan
from frazil.model.files import FileClosed, FileKind
from frazil.model.frontier import Frontier
from frazil.model.ids import JobId, TableName, batch_id
from frazil.model.ledger import Fence, LedgerEntry, SnapshotFacts, TableHead
from frazil.model.ports import Located
from frazil.sources.cockroachdb.position import Hlc

JOB = JobId("shop")
ORDERS = TableName(("shop",), "orders")
ITEMS = TableName(("shop",), "items")
ALICE, BOB = UUID(int=0xA11CE << 96), UUID(int=0xB0B << 96)
FOREIGN: Mapping[str, str] = {"operation": "append"}
REPLACE: Mapping[str, str] = {"operation": "replace"}


def at(wall: int, logical: int = 0) -> Hlc:
    return Hlc(wall, logical)


def entry(resolved: int, lower: int | None = None, **changed: Any) -> LedgerEntry:
    facts: dict[str, Any] = {
        "job": JOB,
        "batch_id": batch_id(JOB, ORDERS, at(resolved)),
        "lower": None if lower is None else at(lower),
        "resolved": at(resolved),
        "notes": "",
        "fence": Fence(1, ALICE),
        "incarnation": "cluster-1",
        "config_hash": "abc",
        "operation": "append",
        "data_files": 1,
        "delete_files": 0,
        "rows": 1,
        "deletes": 0,
    }
    return LedgerEntry(**{**facts, **changed})


def head(
    *newest_first: LedgerEntry | Mapping[str, str],
    in_property: LedgerEntry | None = None,
    cut: bool = False,
    uuid: str = "uuid-1",
    first_id: int = 1,
    properties: Mapping[str, str] | None = None,
) -> TableHead:
    """Snapshots are numbered from the oldest (`first_id`) up; ids and sequence numbers agree. `cut` says that the
    oldest has a parent which is no longer retained. `in_property` is the property, with its own id and number."""
    ancestry = []
    for place, summary in enumerate(newest_first):
        number = first_id + len(newest_first) - 1 - place
        oldest = place == len(newest_first) - 1
        parent = None if oldest and not cut else number - 1
        facts = summary.to_summary() if isinstance(summary, LedgerEntry) else dict(summary)
        ancestry.append(SnapshotFacts(number, parent, number, 0, facts))
    held = dict(properties or {})
    if in_property is not None:
        assert in_property.snapshot_id is not None
        assert in_property.sequence_number is not None
        held[JOB.ledger_property] = in_property.to_property(in_property.snapshot_id, in_property.sequence_number)
    return TableHead(uuid=uuid, ancestry=tuple(ancestry), properties=held, base=object())


def recorded(found: LedgerEntry, number: int) -> LedgerEntry:
    """The entry as the property tells it."""
    return replace(found, snapshot_id=number, sequence_number=number)


def coordinator(generation: int = 1, owner: UUID = ALICE, incarnation: str = "cluster-1") -> Coordinator:
    return Coordinator(job=JOB, fence=Fence(generation, owner), incarnation=incarnation, config_hash="abc")


def file(path: str = "data-1", kind: FileKind = FileKind.DATA, epoch: int = 10, **changed: Any) -> FileClosed:
    facts: dict[str, Any] = {
        "table": ORDERS,
        "epoch": at(epoch),
        "batch_id": batch_id(JOB, ORDERS, at(epoch)),
        "worker": 0,
        "schema_id": 0,
        "spec_id": 0,
        "path": path,
        "kind": kind,
        "records": 3,
        "size": 100,
        "equality_ids": () if kind is FileKind.DATA else (1,),
        "digest": "d",
    }
    return FileClosed(**{**facts, **changed})


def epoch_commit(
    lower: int | None = None,
    upper: int = 10,
    files: Iterable[FileClosed] | None = None,
    me: Coordinator | None = None,
    uuid: str = "uuid-1",
    requires_empty: bool = False,
    vectors: bool = False,
) -> EpochCommit:
    files = [file(epoch=upper)] if files is None else files
    below = None if lower is None else at(lower)
    frontier = Frontier(at(upper), "notes")
    return make_epoch_commit(me or coordinator(), ORDERS, uuid, below, frontier, files, requires_empty, vectors=vectors)


class ScriptedLake:
    """Answers in order; an exception in the script is raised."""

    def __init__(
        self, heads: Sequence[TableHead | Exception], answers: Sequence[CommitAnswer | Exception] = ()
    ) -> None:
        self.heads, self.answers = list(heads), list(answers)
        self.commits: list[tuple[TableHead, CommitPlan]] = []

    def head(self, table: TableName) -> TableHead:
        return _next(self.heads)

    def commit(self, table: TableName, head: TableHead, plan: CommitPlan) -> CommitAnswer:
        self.commits.append((head, plan))
        return _next(self.answers)


class ScriptedLocator:
    """Answers in order, and writes down on which head it was asked and whether by equality."""

    def __init__(self, answers: Sequence[Located | Exception]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[TableHead, bool]] = []

    def locate(self, files: Sequence[FileClosed], head: TableHead, *, by_equality: bool) -> Located:
        self.asked.append((head, by_equality))
        return _next(self.answers)


class ScriptedArbiter:
    def __init__(self, newest: Sequence[Fence | Exception | None], answers: Sequence[CommitAnswer | Exception]) -> None:
        self.script, self.answers = list(newest), list(answers)
        self.taken: list[tuple[Fence, object]] = []

    def newest(self, job: JobId) -> tuple[Fence | None, object]:
        found = _next(self.script)
        return found, ("read", found)

    def take(self, job: JobId, fence: Fence, read: object) -> CommitAnswer:
        self.taken.append((fence, read))
        return _next(self.answers)


class StillClock:
    """Time stands; waits are written down."""

    def __init__(self, stops: bool = False) -> None:
        self.waits: list[float] = []
        self.stops = stops

    def now(self) -> datetime:
        return datetime(2024, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return 5.0

    def wait(self, seconds: float, until: Event | None = None) -> bool:
        self.waits.append(seconds)
        return self.stops and seconds > 0

    def new_uuid(self) -> UUID:
        return ALICE

    def jitter(self) -> float:
        return 0.0


class Notebook:
    """An Observer that writes down what it is told."""

    def __init__(self) -> None:
        self.answers: list[CommitAnswer] = []
        self.outcomes: list[object] = []

    def answered(self, epoch_commit: EpochCommit, answer: CommitAnswer, seconds: float) -> None:
        self.answers.append(answer)

    def finished(self, epoch_commit: EpochCommit, outcome: object) -> None:
        self.outcomes.append(outcome)


def _next(script: list[Any]) -> Any:
    answer = script.pop(0)
    if isinstance(answer, Exception):
        raise answer
    return answer
