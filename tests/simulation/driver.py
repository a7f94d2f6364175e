"""A coordinator process: the production code from fence to acknowledgement, in one loop.

    take_fence -> start (each table) -> plan_window -> read, write -> EpochBuffer -> chain -> publish -> acknowledge
                     ^                                                                 |
                     `--------------------------- re-cut, gave up ---------------------'

Up to three windows are written ahead of the one being published. A table that is to be loaded anew is loaded on its
branch first, by the same loop, and adopted once it has caught up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from frazil import errors
from frazil.clock import Clock
from frazil.commit import publisher
from frazil.commit.admission import Coordinator
from frazil.commit.buffer import EpochBuffer
from frazil.commit.fence import take_fence
from frazil.commit.machine import (
    AlreadyPublished,
    EpochCommit,
    GaveUp,
    Outcome,
    Published,
    Recut,
    failure,
    make_epoch_commit,
)
from frazil.commit.recovery import StartPoint, newest_generation, start
from frazil.commit.resync_machine import Adopted, Behind, Loading, NotUnderWay, highest_generation, resync_stage
from frazil.commit.resync_runner import abandon_resync, adopt_resync, begin_resync
from frazil.model.change import PartitionReport
from frazil.model.commit import CommitAnswer
from frazil.model.files import Message
from frazil.model.frontier import (
    EpochProgress,
    Frontier,
    SnapshotMode,
    Window,
    acknowledgeable,
    chain,
    epochs_to_publish,
    heartbeat_due,
    plan_window,
    resume_after,
)
from frazil.model.ids import JobId, TableName, batch_id, epoch_prefix
from frazil.model.ledger import LedgerEntry, TableHead
from frazil.model.ports import Arbiter, Locator, TransactionalCommitter
from frazil.model.position import Position
from frazil.model.table import TableForm
from frazil.model.write import EpochTarget
from frazil.sources.cutting_reader import cut_of

from .branches import BranchEdges
from .feed import Change, Feed
from .workers import TableWork

IN_FLIGHT_MAX = 3
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    job: JobId
    incarnation: str
    mode: SnapshotMode
    max_epochs: int
    heartbeat: timedelta
    together: bool
    """All tables of an epoch in one commit."""
    resyncs: bool = False
    """Whether a table may be loaded anew on a branch."""


class Edges(Protocol):
    """What a process meets of the world."""

    committer: TransactionalCommitter
    arbiter: Arbiter
    clock: Clock

    def write(self, work: Sequence[TableWork]) -> tuple[int, list[Message]]: ...
    def acknowledge(self, position: Position | None, tables: tuple[TableName, ...]) -> None: ...
    def resumed(self, fence_generation: int) -> None: ...
    def idle(self) -> None: ...
    def writes_ahead(self) -> bool: ...
    def locator(self, table: TableName) -> Locator: ...
    def branch(self, table: TableName) -> BranchEdges: ...
    def resync_wanted(self, table: TableName) -> bool: ...
    def by_chance_anew(self) -> bool: ...
    def tell(self, what: str) -> None: ...


class Process:
    def __init__(
        self,
        settings: Settings,
        tables: tuple[TableName, ...],
        feed: Feed,
        edges: Edges,
        vectors: frozenset[TableName] = frozenset(),
    ) -> None:
        """`vectors` are the tables that this process publishes with vectors, the others with equality deletes."""
        self.settings = settings
        self.tables = tables
        self.vectors = vectors
        self.locators = {table: edges.locator(table) for table in vectors}
        self.feed = feed
        self.source = feed.source()
        self.edges = edges
        self.index = {table.text: at for at, table in enumerate(tables)}
        self.progress: dict[TableName, EpochProgress] = {}
        self.uuids: dict[TableName, str] = {}
        self.forms: dict[TableName, TableForm] = {}
        self.published_at: dict[TableName, datetime] = {}
        self.planned: Position | None = None
        self.written: list[list[EpochCommit]] = []

    def run(self) -> None:
        """Until the feed has ended and all of it is published. Raises the error it stops with."""
        floor = max(self.generation(table) for table in self.tables)
        fence = take_fence(self.settings.job, self.edges.arbiter, self.edges.clock, floor)
        self.me = Coordinator(
            job=self.settings.job, fence=fence, incarnation=self.settings.incarnation, config_hash="simulated"
        )
        self.edges.tell(f"took fence {fence.label}")
        self.resume()
        while True:
            if not self.written and any(self.edges.resync_wanted(table) for table in self.tables):
                self.resume()
            window = None
            if len(self.written) < IN_FLIGHT_MAX and (not self.written or self.edges.writes_ahead()):
                window = plan_window(self.source.latest(), self.planned, self.settings.mode, self.settings.max_epochs)
            if window is not None:
                self.write(window)
            elif self.written:
                self.publish(self.written[0])
            elif self.feed.complete:
                return
            else:
                self.edges.idle()

    def generation(self, table: TableName) -> int:
        if not self.settings.resyncs:
            return newest_generation(self.head(table), self.settings.job)
        edges = self.edges.branch(table)
        return highest_generation(self.patiently(lambda: edges.heads(table)), self.settings.job)

    def resume(self) -> None:
        """Goes on from what the ledgers say, whatever was in flight."""
        self.written.clear()
        self.edges.resumed(self.me.fence.generation)
        for table in self.tables if self.settings.resyncs else ():
            self.resync(table)
        for table in self.tables:
            head = self.head(table)
            match start(head, table, self.me):
                case StartPoint(frontier, _):
                    self.uuids[table] = head.uuid
                    assert head.form is not None
                    self.forms[table] = head.form
                    self.progress[table] = EpochProgress(frontier)
                    self.published_at[table] = self.edges.clock.now()
                case errors.Terminal() as error:
                    raise error
        self.source.initial({table.text: self.progress[table].published for table in self.tables})
        self.planned = resume_after(self.progress.values())
        self.edges.tell(f"resumes after {self.planned}")

    def resync(self, table: TableName) -> None:
        """Loads the table anew if that is wanted or under way, whoever began it."""
        edges = self.edges.branch(table)
        match resync_stage(self.patiently(lambda: edges.heads(table)), table, self.me):
            case errors.Terminal() as error:
                raise error
            case NotUnderWay() if not self.edges.resync_wanted(table):
                return
        anew = self.edges.by_chance_anew()
        self.edges.tell(f"loads {table} {'anew' if anew else 'on its branch'}")
        self.patiently(lambda: begin_resync(table, edges, self.me, edges.clock, anew=anew))
        alone = replace(self.settings, resyncs=False, together=False)
        loader = Process(alone, (table,), self.feed, edges, self.vectors & {table})
        loader.me = self.me
        loader.load(table, edges)
        self.edges.resumed(self.me.fence.generation)

    def load(self, table: TableName, edges: BranchEdges) -> None:
        """Publishes on the branch until all of the feed that there is is there; then main becomes the branch."""
        self.resume()
        while True:
            window = plan_window(self.source.latest(), self.planned, self.settings.mode, self.settings.max_epochs)
            if window is not None:
                self.write(window)
            if self.written:
                self.publish(self.written[0])
                continue
            if window is not None:
                continue
            match resync_stage(self.patiently(lambda: edges.heads(table)), table, self.me):
                case errors.Terminal() as error:
                    raise error
                case Loading(_, LedgerEntry() as loaded):
                    outcome = self.patiently(lambda: adopt_resync(table, edges, self.me, edges.clock, loaded))
                    self.edges.tell(f"{table}: {type(outcome).__name__}")
                    if isinstance(outcome, Adopted):
                        return
                    if isinstance(outcome, Behind):
                        # Nothing may have changed since: only an empty epoch says that it was read.
                        self.settings = replace(self.settings, heartbeat=timedelta(0))
                    self.edges.idle()
                    self.resume()
                case _:
                    self.edges.tell(f"gives the load of {table} up: it has nothing yet")
                    self.patiently(lambda: abandon_resync(table, edges, self.me, edges.clock))
                    return

    def head(self, table: TableName) -> TableHead:
        return self.patiently(lambda: self.edges.committer.head(table))

    def patiently(self, ask: Callable[[], T]) -> T:
        while True:
            try:
                return ask()
            except (errors.CatalogUnavailable, errors.OutcomeUnknown):
                self.edges.idle()

    def write(self, window: Window) -> None:
        """Reads a window of all tables, writes its files, and makes the intents to publish them."""
        work, reports = [], {}
        empty = {table for table in self.tables if self.progress[table].tip is None and self.is_empty(table)}
        tips = {table.text: self.progress[table].tip for table in self.tables}
        changes: dict[int, list[Change]] = {at: [] for at in self.index.values()}
        for partition in self.source.partitions(window, tips, self.index):
            rows = self.feed.read(partition)
            changes[partition.table] += rows
            inside = sum(row.position <= window.upper for row in rows)
            report = PartitionReport(partition.table, partition.name, inside, 0, max(row.position for row in rows))
            reports.setdefault(partition.table, []).append(report)
        for table in self.tables:
            targets = tuple(
                EpochTarget(
                    upper,
                    batch_id(self.settings.job, table, upper),
                    epoch_prefix(f"lake/{table}", self.settings.job, upper, self.me.fence.label),
                    deletes=at > 0 or table not in empty,
                )
                for at, upper in enumerate(window.uppers)
            )
            cut = cut_of(window, self.progress[table].tip_position)
            work.append(
                TableWork(
                    table,
                    cut,
                    changes[self.index[table.text]],
                    targets,
                    table in self.vectors,
                    max(self.forms[table].fields),
                )
            )
        workers, messages = self.edges.write(work)
        buffer = EpochBuffer(workers)
        for message in messages:
            buffer.take(message)
        if not buffer.ready(window.upper):
            raise AssertionError("a finished job left its last epoch unresolved")
        self.written.append(
            [
                epoch_commit
                for table in self.tables
                for epoch_commit in self.epoch_commits(
                    table, window, buffer, reports.get(self.index[table.text], []), table in empty
                )
            ]
        )
        self.planned = window.upper

    def epoch_commits(
        self, table: TableName, window: Window, buffer: EpochBuffer, reports: Sequence[PartitionReport], empty: bool
    ) -> list[EpochCommit]:
        met_changes = any(report.rows for report in reports)
        progress = self.progress[table]
        lower = progress.tip_position
        with_files = {upper for upper in window.uppers if buffer.files(table, upper)}
        heartbeat = heartbeat_due(self.published_at[table], self.edges.clock.now(), self.settings.heartbeat)
        epoch_commits = []
        uppers = epochs_to_publish(window, with_files, lower, heartbeat, met_changes)
        for below, upper in chain(lower, uppers):
            frontier = Frontier(upper, self.source.resume_state(table.text, upper, reports))
            files = buffer.files(table, upper)
            requires_empty = empty and upper == window.uppers[0]
            vectors = table in self.vectors
            epoch_commits.append(
                make_epoch_commit(
                    self.me,
                    table,
                    self.uuids[table],
                    below,
                    frontier,
                    files,
                    requires_empty,
                    vectors=vectors,
                    written=self.forms[table],
                )
            )
            progress = progress.handed_over(frontier)
        self.progress[table] = progress.read_through(window.upper, any(report.holds_changes for report in reports))
        return epoch_commits

    def is_empty(self, table: TableName) -> bool:
        return self.head(table).is_empty

    def publish(self, epoch_commits: list[EpochCommit]) -> None:
        for group in self.groups(epoch_commits):
            outcomes = self.publish_group(group)
            for epoch_commit, outcome in zip(group, outcomes, strict=True):
                if isinstance(outcome, Published | AlreadyPublished):
                    self.progress[epoch_commit.table] = self.progress[epoch_commit.table].landed(epoch_commit.upper)
                    self.published_at[epoch_commit.table] = self.edges.clock.now()
            for epoch_commit, outcome in zip(group, outcomes, strict=True):
                if (error := failure(outcome, epoch_commit)) is not None and not isinstance(outcome, GaveUp):
                    raise error
            if any(isinstance(outcome, Recut | GaveUp) for outcome in outcomes):
                return self.resume()
        self.written.pop(0)
        settled = acknowledgeable(self.progress.values())
        if settled is not None:
            self.source.commit(settled)
        return self.edges.acknowledge(settled, self.tables)

    def groups(self, epoch_commits: list[EpochCommit]) -> list[list[EpochCommit]]:
        if not self.settings.together:
            return [[epoch_commit] for epoch_commit in epoch_commits]
        uppers = sorted({epoch_commit.upper for epoch_commit in epoch_commits}, key=lambda upper: upper.order)
        return [[epoch_commit for epoch_commit in epoch_commits if epoch_commit.upper == upper] for upper in uppers]

    def publish_group(self, group: list[EpochCommit]) -> tuple[Outcome, ...]:
        if len(group) > 1:
            return publisher.publish_together(group, self.edges.committer, self.edges.clock, self, self.locators)
        (epoch_commit,) = group
        locator = self.locators.get(epoch_commit.table)
        return (publisher.publish(epoch_commit, self.edges.committer, self.edges.clock, self, locator),)

    # What the production port `Observer` is told.

    def answered(self, epoch_commit: EpochCommit, answer: CommitAnswer, seconds: float) -> None:
        self.edges.tell(f"{epoch_commit.table} ({epoch_commit.lower}, {epoch_commit.upper}]: {answer}")

    def finished(self, epoch_commit: EpochCommit, outcome: Outcome) -> None:
        self.edges.tell(f"{epoch_commit.table} up to {epoch_commit.upper}: {type(outcome).__name__}")
