"""The running pipeline: reads windows, has them written, hands them to the commit line.

    take the fence --> read every ledger --> open the source behind it
        |
        v
    poll --> plan a window --> WindowWriter --> IntentMaker --> commit line --> acknowledge
      ^                                                             |
      +-- wait ------------------- cut again, transient: -----------+--> read the ledgers again

Everything in memory here is a guess about the ledger; after any doubt it is thrown away and read again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from typing import Protocol

from frazil import errors
from frazil.clock import Clock
from frazil.config.model import OnError, PipelineConfig
from frazil.coordinator.admission import Coordinator
from frazil.coordinator.fence import take_fence
from frazil.coordinator.publish import AlreadyPublished, Intent, Outcome, Published, Recut, failure, wait_before
from frazil.coordinator.publisher import Observer, publish, publish_together
from frazil.daemon.capturing import Capturing, ReadsKeys
from frazil.daemon.committing import TABLES_AT_ONCE, CommitLine, Group
from frazil.daemon.discovery import Discovery
from frazil.daemon.intents import IntentMaker
from frazil.daemon.shaping import Shaper
from frazil.daemon.succession import Succession
from frazil.daemon.tables import KeepsTables, RunningTable
from frazil.daemon.windows import Executors, Targets, WindowWriter, WrittenWindow
from frazil.epochs.progress import acknowledgeable, plan_window, resume_after
from frazil.lake.history import as_of
from frazil.model.epoch import Window
from frazil.model.ledger import LedgerEntry
from frazil.model.names import JobId, TableName
from frazil.model.ports import Arbiter, Locator, Source, Split, TransactionalLake
from frazil.model.position import Position, is_before
from frazil.model.state import TableState
from frazil.model.write import Role
from frazil.observability.logs import Log
from frazil.observability.metrics import Metrics
from frazil.workers.lookup.tally import IndexTally

TROUBLE_MAX_ONCE = 6
_log = Log("frazil.pipeline")


class _CutAgain(Exception):
    """The table holds something else than this coordinator thought; its ledger must be read again."""


class Locators(Protocol):
    def of(self, table: TableName) -> Locator:
        """Who finds the older rows of this table's keys; the same one every time."""

    @property
    def index(self) -> IndexTally:
        """The key index they share."""


class RecordsAgreement(Protocol):
    def record(self, job: JobId, resolved: Position, snapshots: Mapping[TableName, int | None]) -> bool:
        """Lets readers know that all tables agree at this position, each in this snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """All that a pipeline is made of; `assemble` is the one place that knows how each is made. `locators` serve
    `deletes: vectors`, `quarantined` tells what is in quarantine. `together` if all tables of an epoch are one commit;
    only for a catalog that offers it. With `agreement`, the moments at which all tables agree are recorded, and the
    source may forget nothing that they do not show."""

    config: PipelineConfig
    config_hash: str
    source: Source
    lake: TransactionalLake
    tables: KeepsTables
    arbiter: Arbiter
    shaper: Shaper
    executors: Executors
    observer: Observer
    metrics: Metrics
    clock: Clock
    locators: Locators | None = None
    quarantined: ReadsKeys | None = None
    together: bool = False
    agreement: RecordsAgreement | None = None


class Run:
    """One run of a pipeline, from taking the fence to giving it up."""

    def __init__(self, parts: Parts, on_change: Callable[[Run], None], stop: Event) -> None:
        self._parts = parts
        self._config = parts.config
        self._on_change = on_change
        self._stop = stop
        self._fence_taken: Coordinator | None = None
        self._succession: Succession | None = None
        self._after: Position | None = None
        self._postponed: tuple[Position, ...] = ()
        self._agreed: Position | None = None
        if parts.config.on_error is OnError.QUARANTINE and parts.quarantined is None:
            raise AssertionError("a quarantine must be read, or its keys would not capture what follows (H49)")
        self._found = Discovery(parts.config, parts.source, parts.lake, parts.tables, parts.clock)
        self._capturing = (
            None
            if parts.quarantined is None
            else Capturing(parts.lake, parts.quarantined, parts.config.job, self._count_quarantined)
        )
        self._windows = WindowWriter(
            parts.config, parts.tables, parts.shaper, parts.executors, parts.clock, self._capturing
        )
        self._intents = IntentMaker(parts.config, parts.source, parts.clock, parts.together)
        self._line = self._new_line()

    @property
    def tables(self) -> dict[str, RunningTable]:
        """All targets by name, mirrors and their companions."""
        return {table.name: table for table in self._found.targets}

    def until_stopped(self, once: bool) -> None:
        """Publishes until `stop` is set, or with `once` until everything resolved is published."""
        trouble, in_doubt, epochs = 0, False, 0
        try:
            self._take_over()
            while not self._stop.is_set():
                try:
                    if in_doubt:
                        self._read_ledgers()
                        in_doubt = False
                    if self._step():
                        # A window that was read proves nothing about a catalog that takes no commits.
                        if self._epochs > epochs or not self._in_flight:
                            trouble, epochs = 0, self._epochs
                    elif once:
                        self._line.drain()
                        self._acknowledge()
                        self._tell()
                        return
                    else:
                        self._parts.clock.wait(self._config.source.poll_interval, self._stop)
                except (_CutAgain, errors.Transient, errors.OutcomeUnknown) as error:
                    trouble += 1
                    if once and trouble > TROUBLE_MAX_ONCE:
                        raise
                    self._let_go(error, trouble)
                    in_doubt = True
        finally:
            self._line.close()
        if isinstance(failure := self._line.failure, errors.Terminal):
            raise failure

    @property
    def _epochs(self) -> int:
        """How many have landed since the start."""
        return sum(table.epochs for table in self._found.targets)

    @property
    def _in_flight(self) -> bool:
        return any(table.progress.in_flight for table in self._found.targets)

    @property
    def resolved(self) -> Position | None:
        """Every table is published up to here, as far as there was anything to publish."""
        done = [table.done_through for table in self._found.targets]
        if not done or None in done:
            return None
        return min((position for position in done if position is not None), key=lambda position: position.order)

    # start

    def _take_over(self) -> None:
        """The fence first, then the frontiers: what an older coordinator still publishes is seen by the next look."""
        self._found.recall()
        floor = self._found.newest_generation()
        fence = take_fence(self._config.job, self._parts.arbiter, self._parts.clock, floor=floor)
        self._fence_taken = Coordinator(
            job=self._config.job,
            fence=fence,
            incarnation=self._parts.source.incarnation,
            config_hash=self._parts.config_hash,
        )
        self._succession = Succession(self._parts.arbiter, self._parts.clock, self._fence_taken)
        _log.info("took over", pipeline=self._config.pipeline, fence=fence.label)
        self._read_ledgers()

    def _read_ledgers(self) -> None:
        self._found.read_ledgers(self._coordinator)
        if self._capturing is not None:
            self._capturing.forget()
        mirrors = self._found.mirrors
        self._parts.source.open({mirror.source: mirror.progress.published for mirror in mirrors})
        self._after = resume_after(mirror.progress for mirror in mirrors)
        self._postponed = ()
        self._tell()

    def _let_go(self, error: Exception, trouble: int) -> None:
        """Forgets everything that was only thought: after a while the ledgers are read again."""
        _log.warning("reading the ledgers again", reason=str(error) or type(error).__name__, attempt=trouble)
        for table in self._found.targets:
            table.state = TableState.BACKOFF
        self._tell()
        self._line.close()
        self._line = self._new_line()
        self._parts.clock.wait(wait_before(trouble + 1, self._parts.clock.jitter()), self._stop)

    def _new_line(self) -> CommitLine:
        return CommitLine(self._publish, self._config.limits.epochs_in_flight - 1 or 1)

    @property
    def _coordinator(self) -> Coordinator:
        if self._fence_taken is None:
            raise AssertionError("nothing is decided before the fence is taken")
        return self._fence_taken

    # one window

    def _step(self) -> bool:
        """Reads and writes the next window; False if nothing new is resolved."""
        self._line.check()
        if self._succession is not None:
            self._succession.check()
        resolved = (*self._postponed, *self._parts.source.poll())
        self._found.notice(self._coordinator)
        window = plan_window(resolved, self._after, self._config.snapshot.value, self._config.limits.epochs_per_job)
        if window is None:
            return False
        self._postponed = ()
        written, concerned = self._written(window)
        self._count(written, concerned)
        chains = self._intents.chains(self._coordinator, written, concerned)
        if chains.first or chains.then:
            self._line.submit(chains.then, first=chains.first)
        self._after = written.window.upper
        self._acknowledge()
        self._tell()
        self._parts.clock.wait(self._config.epoch_interval, self._stop)
        return True

    def _written(self, window: Window) -> tuple[WrittenWindow, Sequence[Targets]]:
        """The window, or if a change in it cannot be taken, an earlier part: what lies before that change is still
        published, and columns that change between two epochs are met one after the other."""
        while True:
            behind = [mirror for mirror in self._found.mirrors if is_before(mirror.progress.tip_position, window.upper)]
            concerned = [self._found.beside(mirror) for mirror in behind]
            try:
                splits = self._splits(window, behind)
                return self._windows.write(self._coordinator, window, concerned, splits), concerned
            except errors.BadInput:
                if len(window.uppers) == 1:
                    raise
                window, rest = window.halved()
                self._postponed = (*rest, *self._postponed)

    def _splits(self, window: Window, mirrors: Sequence[RunningTable]) -> Sequence[Split]:
        frontiers = {mirror.source: mirror.progress.tip for mirror in mirrors}
        return self._parts.source.splits(window, frontiers, {mirror.source: mirror.index for mirror in mirrors})

    def _count(self, written: WrittenWindow, concerned: Sequence[Targets]) -> None:
        for targets in concerned:
            mirror = targets[-1]
            mirror.dropped += (dropped := sum(report.dropped for report in written.found(mirror.index)))
            self._parts.metrics.changes_dropped(mirror.name, dropped)
            quarantine = next((table for table in targets if table.role is Role.QUARANTINE), None)
            captured = written.captured(mirror.index)
            if quarantine is not None and self._capturing is not None and captured:
                self._capturing.sent(quarantine, written.window.upper, captured)
                rows = sum(report.rows for report in captured)
                _log.warning("changes put in quarantine", table=mirror.name, changes=rows)

    # publishing, in the threads of the commit line

    def _publish(self, group: Group) -> None:
        parts, locators = self._parts, self._parts.locators
        searching = {
            intent.table: locators.of(intent.table)
            for intent in group
            if locators is not None and intent.needs_locating
        }
        outcomes: Sequence[Outcome]
        if len(group) == 1:
            (intent,) = group
            outcomes = (publish(intent, parts.lake, parts.clock, parts.observer, searching.get(intent.table)),)
        else:
            with ThreadPoolExecutor(TABLES_AT_ONCE) as pool:
                outcomes = publish_together(
                    group, parts.lake, parts.clock, parts.observer, searching, side_by_side=pool.map
                )
        # All that landed is noted before anything is raised: a group may have landed in part.
        for intent, outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, Published):
                self._landed(intent, outcome.plan.entry, outcome.snapshot_id)
            elif isinstance(outcome, AlreadyPublished):
                self._landed(intent, intent.plan.entry, outcome.entry.snapshot_id)
        for intent, outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, Recut):
                raise _CutAgain(f"{intent.table} is at {outcome.position}, not at {intent.lower}")
            if (error := failure(outcome, intent)) is not None:
                raise error
        self._tell()

    def _landed(self, intent: Intent, entry: LedgerEntry, snapshot_id: int | None) -> None:
        table = self._found.target(intent.table)
        table.landed(entry, snapshot_id, self._parts.clock.now())
        if table.role is Role.QUARANTINE and self._capturing is not None:
            self._capturing.landed(table, entry)

    def _acknowledge(self) -> None:
        """The mirrors speak for their companions, which are published before them."""
        settled = acknowledgeable(mirror.progress for mirror in self._found.mirrors)
        if self._parts.agreement is not None:
            self._agree(self._parts.agreement)
            settled = settled if not is_before(self._agreed, settled) else self._agreed
        if settled is not None:
            self._parts.source.acknowledge(settled)

    def _agree(self, agreement: RecordsAgreement) -> None:
        """Looks whether every table shows what was published to it, and records the moment at which all of them agree.

        A commit of several tables may land in part, or be answered and lost: only tables prove what they hold."""
        resolved, job = self.resolved, self._config.job
        if resolved is None or not is_before(self._agreed, resolved):
            return
        snapshots: dict[TableName, int | None] = {}
        for mirror in self._found.mirrors:
            published = mirror.progress.published
            head = self._parts.lake.head(mirror.target) if published is not None else None
            newest = None if head is None else head.newest(job)
            if published is not None and (newest is None or is_before(newest.resolved, published.position)):
                raise _CutAgain(f"{mirror.name} does not show the epoch up to {published.position} any more")
            shown = None if head is None else as_of(head, job, resolved)
            snapshots[mirror.target] = None if shown is None else shown.snapshot_id
        if not agreement.record(job, resolved, snapshots):
            _log.warning("the moment at which all tables agree was not recorded", resolved=resolved.text)
        self._agreed = resolved

    def _count_quarantined(self, table: RunningTable, rows: int) -> None:
        self._parts.metrics.quarantined(table.route.target.text, rows)

    def _tell(self) -> None:
        for table in self._found.targets:
            self._parts.metrics.table_is(table.name, table.state)
        self._on_change(self)
