"""The running pipeline: reads windows, has them written, hands them to the commit line.

    take the fence --> read every ledger --> open the source behind it
        |
        v
    poll --> plan a window --> shapes, schema first --> one Spark job --> buffer --> commit line --> acknowledge
      ^                                                   |                             |
      +-- wait ----------------- unknown column: learn ---+      cut again, transient: -+--> read the ledgers again

Everything in memory here is a guess about the ledger; after any doubt it is thrown away and read again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from threading import Event
from typing import Protocol

from frazil import errors
from frazil.clock import Clock
from frazil.config.model import PipelineConfig, TableEntry
from frazil.config.routing import Route, is_pattern, matches, route, target_of
from frazil.coordinator.admission import Coordinator
from frazil.coordinator.buffer import EpochBuffer
from frazil.coordinator.fence import take_fence
from frazil.coordinator.publish import AlreadyPublished, Intent, Published, Recut, failure, make_intent, wait_before
from frazil.coordinator.publisher import Observer, publish
from frazil.coordinator.recovery import Start, newest_generation, source_table, start
from frazil.daemon.committing import CommitLine
from frazil.daemon.shaping import Shaper
from frazil.daemon.succession import Succession
from frazil.daemon.tables import RunningTable
from frazil.epochs.cut import cut_of
from frazil.epochs.progress import acknowledgeable, chain, epochs_to_publish, heartbeat_due, plan_window, resume_after
from frazil.lake.tables import Tables
from frazil.model.change import SplitReport
from frazil.model.columns import TableShape
from frazil.model.epoch import Frontier, Window
from frazil.model.files import Message
from frazil.model.names import batch_id, epoch_prefix
from frazil.model.ports import Arbiter, Cut, Decoder, Lake, Reader, Source, Split
from frazil.model.position import Position, is_before
from frazil.model.state import TableState
from frazil.model.write import EpochTarget, TableTask, WriteJob
from frazil.observability.logs import Log
from frazil.observability.metrics import Metrics

SHARD_BYTES = 256 << 20
LESSONS_MAX = 8
TROUBLE_MAX_ONCE = 6
_log = Log("frazil.pipeline")


class _CutAgain(Exception):
    """The table holds something else than this coordinator thought; its ledger must be read again."""


class WritesWindows(Protocol):
    def __call__(
        self,
        splits: Sequence[Split],
        cuts: Mapping[int, Cut],
        reader: Reader,
        decoder: Decoder,
        job: WriteJob,
        epochs: tuple[Position, ...],
        *,
        small: bool,
    ) -> tuple[list[Message], list[SplitReport]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Executors:
    """What the stages run on executors, with Spark already inside."""

    write: WritesWindows
    cores: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """All that a pipeline is made of; `assemble` is the one place that knows how each is made."""

    config: PipelineConfig
    config_hash: str
    source: Source
    lake: Lake
    tables: Tables
    arbiter: Arbiter
    shaper: Shaper
    executors: Executors
    observer: Observer
    metrics: Metrics
    clock: Clock


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
        self.tables: dict[str, RunningTable] = {}
        self._line = self._new_line()

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
        return sum(table.epochs for table in self.tables.values())

    @property
    def _in_flight(self) -> bool:
        return any(table.progress.in_flight for table in self.tables.values())

    @property
    def resolved(self) -> Position | None:
        """Every table is published up to here, as far as there was anything to publish."""
        done = [table.done_through for table in self.tables.values()]
        if not done or None in done:
            return None
        return min((position for position in done if position is not None), key=lambda position: position.order)

    # start

    def _take_over(self) -> None:
        """The fence first, then the frontiers: what an older coordinator still publishes is seen by the next look."""
        self._recall_tables()
        fence = take_fence(self._config.job, self._parts.arbiter, self._parts.clock, floor=self._newest_generation())
        self._fence_taken = Coordinator(
            job=self._config.job,
            fence=fence,
            incarnation=self._parts.source.incarnation,
            config_hash=self._parts.config_hash,
        )
        self._succession = Succession(self._parts.arbiter, self._parts.clock, self._fence_taken)
        _log.info("took over", pipeline=self._config.pipeline, fence=fence.label)
        self._read_ledgers()

    def _newest_generation(self) -> int:
        """What the tables have seen, in case the register of pipelines was lost."""
        names = [table.route.target for table in self.tables.values()]
        heads = [self._parts.lake.head(name) for name in names if self._parts.tables.exists(name)]
        return max((newest_generation(head, self._config.job) for head in heads), default=0)

    def _read_ledgers(self) -> None:
        for table in self.tables.values():
            self._read_ledger(table)
        self._parts.source.open({table.source: table.progress.published for table in self.tables.values()})
        self._after = resume_after(table.progress for table in self.tables.values())
        self._tell()

    def _read_ledger(self, table: RunningTable) -> None:
        name = table.route.target
        if not self._parts.tables.exists(name):
            table.loaded, table.empty = None, True
            table.start_at(None, None, self._parts.clock.now())
            return
        table.loaded = self._parts.tables.load(name)
        head = self._parts.lake.head(name)
        table.empty = head.snapshot_id is None
        match start(head, name, self._coordinator):
            case Start(frontier, entry):
                table.start_at(frontier, entry, self._parts.clock.now())
            case errors.Terminal() as error:
                raise error

    def _let_go(self, error: Exception, trouble: int) -> None:
        """Forgets everything that was only thought: after a while the ledgers are read again."""
        _log.warning("reading the ledgers again", reason=str(error) or type(error).__name__, attempt=trouble)
        for table in self.tables.values():
            table.state = TableState.BACKOFF
        self._tell()
        self._line.close()
        self._line = self._new_line()
        self._parts.clock.wait(wait_before(trouble + 1, self._parts.clock.jitter()), self._stop)

    def _new_line(self) -> CommitLine:
        return CommitLine(self._publish, self._config.limits.epochs_in_flight - 1 or 1)

    def _recall_tables(self) -> None:
        """What the ledgers tell spares a look at the whole source; only patterns and tables that were never published
        need one. A table is known by its ledger even if all its files are gone from the source."""
        recalled = [self._recalled(entry) for entry in self._config.tables]
        for taken in recalled:
            if taken is not None:
                self._notice(taken)
        if None in recalled:
            self._notice_tables()

    def _recalled(self, entry: TableEntry) -> Route | None:
        if is_pattern(entry.source):
            return None
        target = target_of(entry.target, entry.source, entry.source, self._config.pipeline)
        if not self._parts.tables.exists(target):
            return None
        source = source_table(self._parts.lake.head(target), self._config.job)
        return Route(source, entry, target) if source and matches(entry.source, source) else None

    def _notice_tables(self) -> None:
        """Tables the source offers now and the configuration wants."""
        for taken in route(self._config, [table.name for table in self._parts.source.tables()]):
            self._notice(taken)

    def _notice(self, taken: Route) -> None:
        if taken.source in self.tables:
            return
        known = next((table for table in self.tables.values() if table.route.target == taken.target), None)
        if known is not None:
            # The same table under its other name, with or without database and schema: the feed was made anew.
            del self.tables[known.source]
            known.route = taken
        self.tables[taken.source] = known or RunningTable(taken, index=len(self.tables))
        _log.info("table", source=taken.source, table=taken.target.text)

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
        resolved = self._parts.source.poll()
        known = set(self.tables)
        self._notice_tables()
        for source in self.tables.keys() - known:
            self._read_ledger(self.tables[source])
        window = plan_window(resolved, self._after, self._config.snapshot.value, self._config.limits.epochs_per_job)
        if window is None:
            return False
        concerned = [t for t in self.tables.values() if is_before(t.progress.tip_position, window.upper)]
        splits = self._splits(window, concerned)
        buffer, reports = self._write(window, concerned, splits)
        chains = [chain for table in concerned if (chain := self._chain(window, table, buffer, reports))]
        if chains:
            self._line.submit(chains)
        self._after = window.upper
        self._acknowledge()
        self._tell()
        self._parts.clock.wait(self._config.epoch_interval, self._stop)
        return True

    def _splits(self, window: Window, concerned: Sequence[RunningTable]) -> Sequence[Split]:
        frontiers = {table.source: table.progress.tip for table in concerned}
        return self._parts.source.splits(window, frontiers, {table.source: table.index for table in concerned})

    def _write(
        self, window: Window, concerned: Sequence[RunningTable], splits: Sequence[Split]
    ) -> tuple[EpochBuffer, Sequence[SplitReport]]:
        """One Spark job for all tables. A change with a column nobody knew of is a lesson: the table's schema
        evolves, and the window is written again under new paths."""
        by_table: dict[int, list[Split]] = {}
        for split in splits:
            by_table.setdefault(split.table, []).append(split)
        concerned = [table for table in concerned if table.index in by_table]
        for table in concerned:
            self._shape(table, self._parts.shaper.shape_of(table, by_table[table.index]))
        for _ in range(LESSONS_MAX + len(concerned)):
            shaped = [table for table in concerned if table.shape is not None]
            try:
                return self._write_once(window, shaped, [s for table in shaped for s in by_table[table.index]])
            except errors.UnknownColumn as unknown:
                pupil = next(table for table in shaped if table.source == unknown.facts["table"])
                known = pupil.shape
                self._shape(pupil, self._parts.shaper.learn(pupil, by_table[pupil.index]))
                if pupil.shape == known:
                    raise
        raise errors.BadInput(
            f"the columns of {[t.name for t in concerned]} kept changing while one window was read",
            hint="Pin the columns of these tables in the configuration (frazil check prints them).",
        )

    def _write_once(
        self, window: Window, concerned: Sequence[RunningTable], splits: Sequence[Split]
    ) -> tuple[EpochBuffer, Sequence[SplitReport]]:
        if not splits:
            return EpochBuffer(1), ()
        size = sum(split.size for split in splits)
        small = size <= self._config.limits.small_epoch_bytes
        job = WriteJob(
            tables=tuple(self._task(window, table) for table in concerned),
            attempt=self._parts.clock.new_uuid().hex[:8],
            shards=1 if small else max(self._parts.executors.cores, -(-size // SHARD_BYTES)),
            parquet=self._config.parquet.settings,
        )
        cuts = {table.index: cut_of(window, table.progress.tip_position) for table in concerned}
        reader, decoder = self._parts.shaper.roads(concerned)
        messages, reports = self._parts.executors.write(splits, cuts, reader, decoder, job, window.uppers, small=small)
        buffer = EpochBuffer(job.shards)
        for message in messages:
            buffer.take(message)
        return buffer, reports

    def _shape(self, table: RunningTable, shape: TableShape | None) -> None:
        """Schema first: the table is created or evolved in a commit of its own, before files are written for it.

        A table whose rows have not told its shape yet (only deletes so far) waits: it has nothing to lose."""
        if shape is None or shape == table.shape:
            return
        table.loaded = self._parts.tables.ensure(table.route.target, shape, table.route.entry.options)
        table.shape = shape

    def _task(self, window: Window, table: RunningTable) -> TableTask:
        loaded, shape, job = table.loaded, table.shape, self._config.job
        if loaded is None or shape is None:
            raise AssertionError(f"{table.name} is written before it has a shape")
        starts_empty = self._starts_empty(table)
        return TableTask(
            index=table.index,
            table=table.route.target,
            schema=loaded.schema,
            spec=loaded.spec,
            key=shape.key,
            mode=table.route.entry.deletes,
            epochs=tuple(
                EpochTarget(
                    upper,
                    batch_id(job, table.route.target, upper),
                    epoch_prefix(loaded.location, job, upper, self._coordinator.fence.label),
                    deletes=not (starts_empty and place == 0),
                )
                for place, upper in enumerate(window.uppers)
            ),
        )

    def _starts_empty(self, table: RunningTable) -> bool:
        return table.empty and table.progress.tip is None

    def _chain(
        self, window: Window, table: RunningTable, buffer: EpochBuffer, reports: Sequence[SplitReport]
    ) -> list[Intent]:
        """The epochs of this table to be published, each following the one before."""
        own = [report for report in reports if report.table == table.index]
        table.dropped += (dropped := sum(report.dropped for report in own))
        self._parts.metrics.changes_dropped(table.name, dropped)
        target = table.route.target
        files = {upper: buffer.files(target, upper) for upper in window.uppers if target in buffer.tables(upper)}
        clock, interval = self._parts.clock, timedelta(seconds=self._config.heartbeat)
        beat = heartbeat_due(table.published_at, clock.now(), interval)
        starts_empty, tip = self._starts_empty(table), table.progress.tip_position
        uuid = "" if table.loaded is None else table.loaded.uuid
        intents = []
        met = any(report.rows for report in own)
        for lower, upper in chain(tip, epochs_to_publish(window, files, tip, beat, met)):
            frontier = Frontier(upper, self._parts.source.notes(table.source, upper, own))
            bare = starts_empty and upper == window.uppers[0]
            own_files = files.get(upper, ())
            intents.append(
                make_intent(self._coordinator, target, uuid, lower, frontier, own_files, bare, source=table.source)
            )
            table.hand_over(frontier)
        table.read_through(window.upper, any(report.holds_changes for report in own))
        return intents

    # publishing, in the threads of the commit line

    def _publish(self, intent: Intent) -> None:
        table = next(table for table in self.tables.values() if table.route.target == intent.table)
        outcome = publish(intent, self._parts.lake, self._parts.clock, self._parts.observer)
        match outcome:
            case Published(snapshot_id):
                table.landed(intent.plan.entry, snapshot_id, self._parts.clock.now())
            case AlreadyPublished(entry):
                table.landed(intent.plan.entry, entry.snapshot_id, self._parts.clock.now())
            case Recut(position):
                raise _CutAgain(f"{intent.table} is at {position}, not at {intent.lower}")
        if (error := failure(outcome, intent)) is not None:
            raise error
        self._tell()

    def _acknowledge(self) -> None:
        settled = acknowledgeable(table.progress for table in self.tables.values())
        if settled is not None:
            self._parts.source.acknowledge(settled)

    def _tell(self) -> None:
        for table in self.tables.values():
            self._parts.metrics.table_is(table.name, table.state)
        self._on_change(self)
