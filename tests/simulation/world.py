"""One seeded world: real protocol code, fake edges, and everything that can go wrong between them.

    every tick, by chance:   a coordinator runs up to its next call into the world
                             the feed grows, another coordinator starts, one stalls (and returns a zombie) or dies
                             somebody else appends, rewrites, compacts, expires, rolls main back, recreates the table
                             a table is to be loaded anew
                             a commit that was long lost arrives after all
    at the end:              no more faults; what runs may finish, the operator repairs, the oracle judges

A failing seed is the whole bug report: `python -m tests.simulation --seed N --trace`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from frazil import errors
from frazil.commit.fence import take_fence
from frazil.commit.recovery import rewind_plan
from frazil.commit.resync_machine import CANCEL
from frazil.config.pipeline_config import PipelineConfig
from frazil.model.commit import ClearPlan, CommitPlan
from frazil.model.ids import TableName
from frazil.model.ledger import TableHead
from frazil.model.position import Position

from .configuration import JOB, configuration
from .edges import CalmArbiter, CalmClock, Register, RunEdges
from .feed import Feed, Mark
from .oracle import FOREIGN_KEYS, Oracle
from .process import Process
from .tables import Catalog, Metadata, Rows, Snapshot, Storage, Violation
from .told import logged

STALL_SECONDS = 60.0
REST_SECONDS_MAX = 1800.0
REST_STEPS_MAX = 20_000
PROCESSES_MAX = 3
SICKNESSES = ("catalog", "storage", "bad input", "unexplained", "slow")


class SeedFailed(AssertionError):
    """The seed, what went wrong in it, and how to see it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """Faults of the edges that a test plants to see the oracle find them."""

    catalog_checks_base: bool = True
    paths_are_reused: bool = False
    clear_keeps_rows: bool = False


SOUND = Planted()


class World:
    def __init__(self, seed: int, trace: Callable[[str], None] | None = None, planted: Planted = SOUND) -> None:
        chance = self.chance = random.Random(seed)
        self.trace = trace
        self.planted = planted
        self.tick = 0
        self.time = 0.0
        self.pace = chance.choice((0.005, 0.05, 0.3))
        self.faults = True
        self.violations: list[Violation] = []
        self.tables = tuple(TableName(("shop",), name) for name in ("orders", "items", "users")[: chance.randint(1, 3)])
        self.joined = self.tables[: chance.randint(1, len(self.tables))]
        self.rates = {name: chance.choice(rates) for name, rates in RunEdges.FAULTS.items()}
        self.by_pattern = chance.random() < 0.3
        self.together = chance.random() < 0.4
        self.records_agreement = chance.random() < 0.5
        self.can_reload = chance.random() < 0.5
        self.alters = chance.random() < 0.2
        self.cores = chance.randint(1, 3)
        self.ended = dict.fromkeys(self.tables, 0)
        self.losses: dict[str, int] = {}
        self.lost_at: dict[str, Position] = {}
        self.anew: set[TableName] = set()
        self.sick: dict[TableName, str] = {}
        self.storage = Storage()
        self.catalog = Catalog(JOB, planted.catalog_checks_base)
        self.register = Register(checks=chance.random() < 0.8)
        self.feed = Feed(chance, random.Random(f"late {seed}"), self.tables, chance.randint(2, 7), chance.randint(1, 5))
        self.mode = chance.choice(("every-resolved", "every-resolved", "latest"))
        self.heartbeat = chance.choice((5, 40, 100_000))
        self.oracle = Oracle(JOB, self.catalog, self.storage, self.feed, self.mode == "every-resolved")
        self.vectors = chance.choice((0.0, 0.5, 1.0, 1.0))
        self.running: list[Process] = []
        self.delayed: list[Callable[[], object]] = []
        self.tampered = dict.fromkeys(self.tables, 0)
        self.broken: dict[TableName, None] = {}
        self.rested = False

    def run(self) -> None:
        """Lives through the seed. Raises Violation."""
        try:
            budget = self.chance.randint(200, 1000)
            while self.tick < budget:
                self._pass_time()
                self._happen()
            self._come_to_rest()
            self.oracle.at_rest(self.tables)
            self.rested = True
        finally:
            for process in self.running:
                process.threads.kill()

    @contextmanager
    def judged(self) -> Iterator[None]:
        """What is wrong in here fails the seed, whatever handler of the production code meets it first."""
        try:
            yield
        except Violation as violation:
            self.violations.append(violation)
            raise

    def violated(self, what: str) -> None:
        with self.judged():
            raise Violation(what)

    def acknowledged(self, edges: RunEdges, position: Position) -> None:
        """What is or was to be loaded anew, and what will have a first load, the source needs to keep nothing for."""
        known = self.tables if self.by_pattern else tuple(TableName.parse(one.source) for one in edges.config.tables)
        if self.can_reload:
            known = tuple(table for table in known if table.text in edges.known())
        self.oracle.on_acknowledge(
            position, tuple(table for table in known if not self.tampered[table] and table not in self.anew)
        )

    def agreed(self, resolved: Position, snapshots: Mapping[TableName, int | None]) -> None:
        untouched = {table: shown for table, shown in snapshots.items() if not self.tampered[table]}
        self.oracle.on_agreement(resolved, untouched)

    def tell(self, what: str) -> None:
        if self.trace is not None:
            self.trace(f"{self.tick:5} {self.time:8.1f}  {what}")

    def land(self, table: TableName, base: object, plan: CommitPlan) -> Snapshot | None:
        """The only door for our own commits."""
        assert isinstance(base, Metadata)
        snapshot = self.catalog.land(table, base, plan)
        if snapshot is not None:
            self.tell(f"  landed {table} {plan.entry.operation} at {plan.entry.resolved} as snapshot {snapshot.id}")
            self.oracle.on_landing(table, base, snapshot, plan)
        return snapshot

    def clear(self, table: TableName, base: Metadata, plan: ClearPlan) -> int | None:
        snapshot = self.catalog.clear(table, base, plan, self.planted.clear_keeps_rows)
        if snapshot is None:
            return None
        self.tell(f"  {table} is cleared on its branch as snapshot {snapshot.id}")
        self.oracle.on_clear(table, base, snapshot, plan)
        return snapshot.id

    def load(self, table: TableName, base: Metadata, plan: CommitPlan) -> int | None:
        snapshot = self.catalog.load(table, base, plan)
        if snapshot is None:
            return None
        operation, resolved = plan.entry.operation, plan.entry.resolved
        self.tell(f"  landed {table} {operation} on its branch at {resolved} as snapshot {snapshot.id}")
        self.oracle.on_load(table, base, snapshot, plan)
        return snapshot.id

    def adopt(self, table: TableName, base: Metadata, plan: CommitPlan) -> int | None:
        snapshot = self.catalog.adopt(table, base, plan)
        if snapshot is None:
            return None
        self.tell(f"  {table} is adopted at {plan.entry.resolved} as snapshot {snapshot.id}")
        self.oracle.on_adopt(table, base, snapshot, plan)
        self._ended(table)
        return snapshot.id

    def drop(self, table: TableName, base: Metadata) -> int | None:
        if not self.catalog.drop(table, base):
            return None
        self.tell(f"  the branch of {table} is dropped")
        self._ended(table)
        return 0

    def _ended(self, table: TableName) -> None:
        self.ended[table] += 1

    def _pass_time(self) -> None:
        self.tick += 1
        self.time += self.pace

    def _happen(self) -> None:
        alive = [process for process in self.running if process.stalled_until <= self.time]
        made = [table for table in self.tables if table in self.catalog.tables]
        happenings: list[tuple[float, Callable[[], None]]] = [
            (60.0 if alive else 0.0, lambda: self._step(alive)),
            (0.0 if self.feed.complete else 3.0, self._grow),
            (0.5 if alive else 6.0, self._start),
            (0.3 if alive else 0.0, lambda: self._stall(self.chance.choice(alive))),
            (0.2 if alive else 0.0, lambda: self._die(self.chance.choice(alive))),
            (0.2 if alive else 0.0, lambda: self._lose_session(self.chance.choice(alive))),
            (0.2 if alive else 0.0, lambda: self._reload(self.chance.choice(alive))),
            (0.4, self._sicken),
            (0.6 if self.sick else 0.0, self._heal),
            (0.2 if self.can_reload else 0.0, self._lose),
            (0.3 if self.can_reload and made else 0.0, lambda: self._want(self.chance.choice(made))),
            (0.1 if self.can_reload and made else 0.0, lambda: self._cancel(self.chance.choice(made))),
            (0.4 if made else 0.0, lambda: self.append_to(self.chance.choice(made))),
            (0.3 if made else 0.0, lambda: self._compact(self.chance.choice(made))),
            (0.5 if made else 0.0, lambda: self._rewrite_one(self.chance.choice(made))),
            (0.25 if made else 0.0, lambda: self._expire(self.chance.choice(made))),
            (0.35 if made else 0.0, lambda: self._roll_back(self.chance.choice(made))),
            (0.07 if made else 0.0, lambda: self._replace(self.chance.choice(made))),
            (0.6 if made and self.alters else 0.0, lambda: self._replace_column(self.chance.choice(made))),
            (1.0 if self.broken else 0.0, lambda: self._repair(self.broken)),
            (1.0 if self.delayed else 0.0, self._deliver),
            (0.3 if self.joined != self.tables else 0.0, self._join),
        ]
        weights = [weight for weight, _ in happenings]
        self.chance.choices(happenings, weights)[0][1]()

    # Processes.

    def _start(self, once: bool = False) -> None:
        if len(self.running) < PROCESSES_MAX:
            process = Process(self, f"p{self.register.names()}", self._configuration, once)
            self.running.append(process)
            self.tell(f"{process.name} starts{' once' if once else ''}")

    def _configuration(self) -> PipelineConfig:
        """Whoever begins to run knows the tables of today; how they are written is another's choice each time."""
        chance = self.chance
        names = ("*",) if self.by_pattern else tuple(table.text for table in self.joined)
        deletes = tuple((name, "vectors" if chance.random() < self.vectors else "equality") for name in names)
        return configuration(
            deletes,
            self.mode,
            self.heartbeat,
            self.together,
            chance.randint(1, 4),
            chance.choice((1, 3, 4)),
            chance.choice((1, 4)),
            chance.random() < 0.2,
        )

    def _step(self, processes: Sequence[Process]) -> None:
        """One of them goes on; if all wait for a time to come, it comes."""
        able = [process for process in processes if process.threads.ready]
        if not able:
            times = [process.threads.next_deadline for process in processes]
            self.time = max(self.time, min((time for time in times if time is not None), default=self.time))
            return
        process = self.chance.choice(able)
        process.threads.step()
        if self.violations:
            raise self.violations[0]
        if process.is_over:
            process.threads.kill()
            self.running.remove(process)
            self._is_over(process)

    def _is_over(self, process: Process) -> None:
        error = process.error
        self.tell(f"{process.name} is gone{'' if error is None else f': {type(error).__name__}: {error}'}")
        if isinstance(error, errors.Fenced):
            if error.facts["by"] == error.facts["fence"] or self.register.fence is None:
                raise Violation(f"{process.name} was fenced, but nobody else had taken the fence") from error
        elif error is not None and not isinstance(error, errors.FrazilError) and not process.lost_a_session:
            # One of ours is that of a table that stopped, and was judged then.
            raise Violation(f"{process.name} ended with {type(error).__name__}: {error}") from error

    def table_stopped(self, process: Process, edges: RunEdges, table: TableName, error: errors.FrazilError) -> None:
        """A person is called: there must be something for a person to mend."""
        self.tell(f"{process.name} stops {table}: {type(error).__name__}: {error}")
        if isinstance(error, errors.TableChanged):
            # A branch that nobody ended would have been told where it was missed.
            is_gone = error.facts.get("what") in ("gone", "branch gone")
            # What was begun before the ledger was read again may meet that, too.
            before = edges.began if error.facts.get("what") == "recreated" else edges.seen
            if is_gone or table in self.broken or self.tampered[table] > before[table]:
                self.broken[table] = None
                return
        if edges.lost or any(table == one and isinstance(error, kind) for one, kind in edges.excuses):
            self.broken[table] = None
            return
        self.violated(f"{process.name} stopped {table} without a reason: {type(error).__name__}: {error}")

    def _stall(self, process: Process) -> None:
        process.stalled_until = self.time + self.chance.random() * STALL_SECONDS
        self.tell(f"{process.name} stalls")

    def _die(self, process: Process) -> None:
        self.tell(f"{process.name} is killed")
        process.threads.kill()
        self.running.remove(process)

    def _lose_session(self, process: Process) -> None:
        if process.edges is not None and not process.edges.lost:
            process.edges.lost = True
            self.tell(f"{process.name} loses its session")

    def _reload(self, process: Process) -> None:
        process.reload = True
        self.tell(f"{process.name} is reloaded")

    def _join(self) -> None:
        """The next to begin a run knows one more table; those that run don't."""
        self.joined = self.tables[: len(self.joined) + 1]

    # Tables in trouble, and what is done about it.

    def _sicken(self) -> None:
        table = self.chance.choice(self.tables)
        self.sick[table] = self.chance.choice(SICKNESSES)
        self.tell(f"{table} is sick: {self.sick[table]}")

    def _heal(self) -> None:
        table = self.chance.choice(list(self.sick))
        self.tell(f"{table} is well again")
        del self.sick[table]

    def _lose(self) -> None:
        """The source does not keep what it had of a table so far."""
        table = self.chance.choice(self.tables)
        reached = [item.resolved for item in self.feed.items[: self.feed.visible] if isinstance(item, Mark)]
        if reached:
            self.anew.add(table)
            self.losses[table.text] = self.losses.get(table.text, 0) + 1
            self.lost_at[table.text] = reached[-1]
            self.tell(f"the source loses {table}")

    def _want(self, table: TableName) -> None:
        """`frazil resync`: asked of whoever runs the pipeline, or noted on the table."""
        self.anew.add(table)
        self.tell(f"{table} is to be loaded anew")
        for process in self.running:
            if (run := process.run) is not None and table.text in run.tables:
                process.threads.start(partial(run.resync, table.text), "http")
                return
        self.catalog.set_property(table, JOB.resync_property, "true")

    def _cancel(self, table: TableName) -> None:
        """`frazil resync --cancel`, for whoever begins to run next."""
        self.tell(f"{table} is not to be loaded anew")
        self.catalog.set_property(table, JOB.resync_property, CANCEL)

    # The source, and others who write to the tables.

    def _grow(self) -> None:
        self.feed.visible += 1

    def _deliver(self) -> None:
        self.tell("a request arrives late")
        self.delayed.pop(self.chance.randrange(len(self.delayed)))()

    def append_to(self, table: TableName) -> None:
        key = FOREIGN_KEYS + len(self.storage.files)
        path = f"foreign/{key}"
        self.storage.write(path, Rows(values=((key, "foreign"),)))
        metadata = self.catalog.tables[table]
        live = () if metadata.main is None else metadata.retained[metadata.main].files
        self.catalog.foreign(table, (*live, (path, 0)), "append")
        self.oracle.foreign.setdefault(table, set()).add(key)
        self.tell(f"somebody appends {key} to {table}")

    def _compact(self, table: TableName) -> None:
        """Rewrites all live rows into one file that keeps the data's sequence number (H15)."""
        metadata = self.catalog.tables[table]
        if metadata.main is None:
            return
        head = metadata.retained[metadata.main]
        rows = tuple(sorted(self.storage.contents(head).items()))
        path = f"compacted/{len(self.storage.files)}"
        self.storage.write(path, Rows(values=rows))
        self.catalog.foreign(table, ((path, head.sequence),), "replace")
        self.tell(f"somebody compacts {table}")

    def _rewrite_one(self, table: TableName) -> None:
        """Replaces one data file by one with its live rows; its vector goes with it, all other deletes stay."""
        metadata = self.catalog.tables[table]
        head = None if metadata.main is None else metadata.retained[metadata.main]
        paths = [path for path, _ in head.files if self.storage.files[path].values] if head else []
        if head is None or not paths:
            return
        old = self.chance.choice(paths)
        values = tuple((key, value) for path, _, key, value in self.storage.rows(head) if path == old)
        gone = {old, *(path for path, _ in head.files if (self.storage.files[path].vector or ("",))[0] == old)}
        left = [entry for entry in head.files if entry[0] not in gone]
        if values:
            new = f"rewritten/{len(self.storage.files)}"
            self.storage.write(new, Rows(values=values))
            left.append((new, head.sequence))
        self.catalog.foreign(table, tuple(left), "replace")
        self.tell(f"somebody rewrites {old} of {table}")

    def _expire(self, table: TableName) -> None:
        # A rollback that nobody saw before its history expired cannot be told from expiry: see docs/simulation.md.
        if table not in self.oracle.unresolved:
            self.catalog.expire(table, self.chance.randint(1, 3))
            self.tell(f"somebody expires {table}")

    def _roll_back(self, table: TableName) -> None:
        metadata = self.catalog.tables[table]
        ancestors = list(metadata.ancestry())[1:]
        if not ancestors:
            return
        to = self.chance.choice(ancestors)
        before, _ = self.oracle.newest_mark(metadata.main)
        after, _ = self.oracle.newest_mark(to.id)
        self.catalog.roll_back(table, to.id)
        if before != after:
            self.tampered[table] += 1
            if JOB.ledger_property in metadata.properties:
                self.oracle.unresolved.add(table)
                self.broken[table] = None
        left = {path for path, _ in to.files}
        keys = {key for path in left for key, _ in self.storage.files[path].values if key >= FOREIGN_KEYS}
        self.oracle.foreign[table] = keys
        self.tell(f"somebody rolls {table} back to snapshot {to.id}")

    def _replace_column(self, table: TableName) -> None:
        """Drops the column of values and adds it again. The rows that are there have lost theirs: that is what the
        person wanted; those that are published from now on must not."""
        self.catalog.replace_column(table)
        self.tampered[table] += 1
        self.tell(f"somebody drops the column of {table} and adds it again")

    def _replace(self, table: TableName) -> None:
        self.catalog.create(table)
        self._ended(table)
        self.tampered[table] += 1
        self.oracle.foreign.pop(table, None)
        self.oracle.unresolved.discard(table)
        self.broken.pop(table, None)
        self.tell(f"somebody recreates {table}")

    def _repair(self, tables: Collection[TableName]) -> None:
        """What the operator does about a table that stopped: `frazil rewind`, or else load it anew."""
        table = self.chance.choice(list(tables))
        fence = take_fence(JOB, CalmArbiter(self), CalmClock(self))
        if table not in self.catalog.tables:
            del self.broken[table]
            return
        head: TableHead = self.catalog.tables[table].head()
        match rewind_plan(head, table, JOB, fence):
            case CommitPlan() as plan:
                if self.land(table, head.base, plan) is None:
                    raise Violation("a rewind on the newest head conflicted")
            case errors.Terminal() as error:
                self.tell(f"no rewind: {error}")
                self._replace(table)
            case None if table in self.oracle.unresolved:
                raise Violation(f"{table} was rolled back, and there is nothing to rewind")
        self.broken.pop(table, None)

    def _come_to_rest(self) -> None:
        self.tell("no more faults")
        self.faults = False
        self.joined = self.tables
        self.feed.visible = len(self.feed.items)
        self.sick.clear()
        for process in self.running:
            process.stalled_until = 0
            process.reload = True
        while self.delayed:
            self._deliver()
        if not self.together and len(self.tables) > 1:
            ill = self.chance.choice(self.tables)
            self.sick[ill] = self.chance.choice(SICKNESSES)
            self.tell(f"{ill} is sick: {self.sick[ill]}")
            others = [table for table in self.tables if table != ill]
            self._go_on(lambda: all(map(self.oracle.rests, others)), f"{ill} holds the others up")
            self.sick.clear()
            for process in self.running:
                process.reload = True
        self._go_on(lambda: all(map(self.oracle.rests, self.tables)), "the world does not come to rest")
        for process in self.running:
            process.stop.set()
        self._go_on(lambda: not self.running, "a process does not end", starts=False)
        # One more starts and must find nothing left to do, or do it.
        self._start(once=True)
        self._go_on(lambda: not self.running, "`run --once` does not end", starts=False)

    def _go_on(self, is_done: Callable[[], bool], otherwise: str, starts: bool = True) -> None:
        until = self.time + REST_SECONDS_MAX
        for step in range(REST_STEPS_MAX):
            self._pass_time()
            if step % 16 == 0 and is_done():
                return
            while mendable := [table for table in self.broken if table not in self.sick]:
                self._repair(mendable)
            if self.running:
                self._step(self.running)
            elif starts:
                self._start()
            if self.time > until:
                break
        if not is_done():
            raise Violation(otherwise)


def simulate(seed: int, trace: Callable[[str], None] | None = None, planted: Planted = SOUND) -> World:
    """Runs one seed. Raises SeedFailed naming it."""
    world = World(seed, trace, planted)
    try:
        with logged(world.tell if trace else None):
            world.run()
    except (Exception, Violation) as error:
        how = f"python -m tests.simulation --seed {seed} --trace"
        raise SeedFailed(f"seed {seed}: {type(error).__name__}: {error}\n  reproduce: {how}") from error
    return world
