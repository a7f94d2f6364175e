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
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from frazil import errors
from frazil.commit.fence import take_fence
from frazil.commit.recovery import rewind_plan
from frazil.model.commit import ClearPlan, CommitPlan
from frazil.model.ids import JobId, TableName
from frazil.model.ledger import TableHead

from .driver import Process, Settings
from .edges import CalmArbiter, CalmClock, Register, WorldEdges
from .feed import Feed
from .fibers import Fiber
from .oracle import FOREIGN_KEYS, Oracle
from .tables import Catalog, Metadata, Rows, Snapshot, Storage, Violation

JOB = JobId("shop")
STALL_TICKS = 40
DRAIN_STEPS_MAX = 5000
COORDINATORS_MAX = 3


class SeedFailed(AssertionError):
    """The seed, what went wrong in it, and how to see it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """Faults of the edges that a test plants to see the oracle find them."""

    catalog_checks_base: bool = True
    paths_are_reused: bool = False
    clear_keeps_rows: bool = False


SOUND = Planted()


@dataclass(slots=True)
class Running:
    """A process and its fiber; `seen` is how often each table had been tampered with when it last resumed."""

    fiber: Fiber
    edges: WorldEdges
    stalled_until: int = 0
    seen: dict[TableName, int] = field(default_factory=dict)


class World:
    def __init__(self, seed: int, trace: Callable[[str], None] | None = None, planted: Planted = SOUND) -> None:
        chance = self.chance = random.Random(seed)
        self.trace = trace
        self.planted = planted
        self.tick = 0
        self.faults = True
        self.tables = tuple(TableName(("shop",), name) for name in ("orders", "items", "users")[: chance.randint(1, 3)])
        self.joined = self.tables[: chance.randint(1, len(self.tables))]
        self.rates = {name: chance.choice(rates) for name, rates in WorldEdges.FAULTS.items()}
        together = random.Random(f"together {seed}")
        self.rates |= {name: together.choice(rates) for name, rates in WorldEdges.FAULTS_TOGETHER.items()}
        self.resyncing = random.Random(f"resync {seed}")
        self.altering = random.Random(f"alter {seed}")
        self.alters = self.altering.random() < 0.2
        self.wanted: set[TableName] = set()
        self.ended = dict.fromkeys(self.tables, 0)
        self.storage = Storage()
        self.catalog = Catalog(JOB, planted.catalog_checks_base)
        self.register = Register(checks=chance.random() < 0.8)
        self.feed = Feed(chance, random.Random(f"late {seed}"), self.tables, chance.randint(2, 7), chance.randint(1, 5))
        self.settings = Settings(
            job=JOB,
            incarnation="cluster-1",
            mode=chance.choice(("every-resolved", "every-resolved", "latest")),
            max_epochs=chance.randint(1, 4),
            heartbeat=timedelta(seconds=chance.choice((5, 40, 100_000))),
            together=together.random() < 0.4,
            resyncs=self.resyncing.random() < 0.4,
        )
        self.oracle = Oracle(JOB, self.catalog, self.storage, self.feed, self.settings.mode == "every-resolved")
        self.vectors = chance.choice((0.0, 0.5, 1.0, 1.0))
        self.running: list[Running] = []
        self.delayed: list[Callable[[], object]] = []
        self.tampered = dict.fromkeys(self.tables, 0)
        self.broken: dict[TableName, None] = {}
        self.rested = False
        for table in self.tables:
            self.catalog.create(table)

    def run(self) -> None:
        """Lives through the seed. Raises Violation."""
        try:
            budget = self.chance.randint(40, 180)
            while self.tick < budget:
                self.tick += 1
                self._happen()
            self._come_to_rest()
            self.oracle.at_rest(self.tables)
            self.rested = True
        finally:
            for running in self.running:
                running.fiber.kill()

    def tell(self, what: str) -> None:
        if self.trace is not None:
            self.trace(f"{self.tick:5}  {what}")

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
        self.wanted.discard(table)

    def _happen(self) -> None:
        if self.settings.resyncs and self.resyncing.random() < 0.02:
            self._want()
        if self.alters and self.altering.random() < 0.02:
            self._replace_column()
        alive = [r for r in self.running if r.stalled_until <= self.tick]
        happenings: list[tuple[float, Callable[[], None]]] = [
            (12.0 if alive else 0.0, lambda: self._step(self.chance.choice(alive))),
            (0.0 if self.feed.complete else 3.0, self._grow),
            (0.6 if alive else 6.0, self._start),
            (0.5 if alive else 0.0, lambda: self._stall(self.chance.choice(alive))),
            (0.2 if alive else 0.0, lambda: self._die(self.chance.choice(alive))),
            (0.4, self._foreign_append),
            (0.3, self._compact),
            (0.5, self._rewrite_one),
            (0.25, self._expire),
            (0.35, self._roll_back),
            (0.07, self._recreate),
            (1.0 if self.broken else 0.0, self._repair),
            (1.0 if self.delayed else 0.0, self._deliver),
            (0.3 if self.joined != self.tables else 0.0, self._join),
        ]
        weights = [weight for weight, _ in happenings]
        self.chance.choices(happenings, weights)[0][1]()

    # Coordinators.

    def _start(self) -> None:
        if len(self.running) >= COORDINATORS_MAX:
            return
        edges = WorldEdges(self, f"p{self.register.names()}")
        vectors = frozenset(table for table in self.joined if self.chance.random() < self.vectors)
        process = Process(self.settings, self.joined, self.feed, edges, vectors)
        running = Running(Fiber(edges.name, process.run), edges, seen=dict(self.tampered))
        edges.attach(running.fiber, lambda: running.seen.update(self.tampered))
        self.running.append(running)
        self.tell(f"{edges.name} starts")

    def _step(self, running: Running) -> None:
        try:
            running.fiber.resume()
        except (errors.TableChanged, errors.Fenced) as error:
            self._stopped(running, error)
        except errors.Transient as error:
            self.tell(f"{running.edges.name} gives up for now: {error}")
        if running.fiber.done:
            self.running.remove(running)
            self.tell(f"{running.edges.name} is gone")

    def _stopped(self, running: Running, error: errors.Terminal) -> None:
        self.tell(f"{running.edges.name} stops: {error}")
        table = TableName.parse(error.facts["table"])
        if error.facts.get("what") == "branch gone":
            return
        if isinstance(error, errors.Fenced):
            if error.facts["by"] == error.facts["fence"] or self.register.fence is None:
                raise Violation(f"{running.edges.name} was fenced, but nobody else had taken the fence") from error
        elif table in self.broken or self.tampered[table] > running.seen[table]:
            self.broken[table] = None
        else:
            raise Violation(f"{running.edges.name} stopped, but nobody had touched {table}: {error}") from error

    def _stall(self, running: Running) -> None:
        running.stalled_until = self.tick + self.chance.randrange(STALL_TICKS)
        self.tell(f"{running.edges.name} stalls")

    def _die(self, running: Running) -> None:
        self.tell(f"{running.edges.name} is killed")
        running.fiber.kill()
        self.running.remove(running)

    def _join(self) -> None:
        """The next starter knows one more table; those that run don't."""
        self.joined = self.tables[: len(self.joined) + 1]

    def _want(self) -> None:
        table = self.resyncing.choice(self.joined)
        self.wanted.add(table)
        self.tell(f"{table} is to be loaded anew")

    # The source, and others who write to the tables.

    def _grow(self) -> None:
        self.feed.visible += 1

    def _deliver(self) -> None:
        self.tell("a request arrives late")
        self.delayed.pop(self.chance.randrange(len(self.delayed)))()

    def _foreign_append(self) -> None:
        self.append_to(self.chance.choice(self.tables))

    def append_to(self, table: TableName) -> None:
        key = FOREIGN_KEYS + len(self.storage.files)
        path = f"foreign/{key}"
        self.storage.write(path, Rows(values=((key, "foreign"),)))
        metadata = self.catalog.tables[table]
        live = () if metadata.main is None else metadata.retained[metadata.main].files
        self.catalog.foreign(table, (*live, (path, 0)), "append")
        self.oracle.foreign.setdefault(table, set()).add(key)
        self.tell(f"somebody appends {key} to {table}")

    def _compact(self) -> None:
        """Rewrites all live rows into one file that keeps the data's sequence number (H15)."""
        table = self.chance.choice(self.tables)
        metadata = self.catalog.tables[table]
        if metadata.main is None:
            return
        head = metadata.retained[metadata.main]
        rows = tuple(sorted(self.storage.contents(head).items()))
        path = f"compacted/{len(self.storage.files)}"
        self.storage.write(path, Rows(values=rows))
        self.catalog.foreign(table, ((path, head.sequence),), "replace")
        self.tell(f"somebody compacts {table}")

    def _rewrite_one(self) -> None:
        """Replaces one data file by one with its live rows; its vector goes with it, all other deletes stay."""
        table = self.chance.choice(self.tables)
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

    def _expire(self) -> None:
        table = self.chance.choice(self.tables)
        # A rollback that nobody saw before its history expired cannot be told from expiry: see docs/simulation.md.
        if table not in self.oracle.unresolved:
            self.catalog.expire(table, self.chance.randint(1, 3))
            self.tell(f"somebody expires {table}")

    def _roll_back(self) -> None:
        table = self.chance.choice(self.tables)
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
            self.oracle.unresolved.add(table)
            self.broken[table] = None
        left = {path for path, _ in to.files}
        keys = {key for path in left for key, _ in self.storage.files[path].values if key >= FOREIGN_KEYS}
        self.oracle.foreign[table] = keys
        self.tell(f"somebody rolls {table} back to snapshot {to.id}")

    def _replace_column(self) -> None:
        """Drops the column of values and adds it again. The rows that are there have lost theirs: that is what the
        person wanted; those that are published from now on must not."""
        table = self.altering.choice(self.tables)
        self.catalog.replace_column(table)
        self.tampered[table] += 1
        self.tell(f"somebody drops the column of {table} and adds it again")

    def _recreate(self) -> None:
        self._replace(self.chance.choice(self.tables))

    def _replace(self, table: TableName) -> None:
        self.catalog.create(table)
        self._ended(table)
        self.tampered[table] += 1
        self.oracle.foreign.pop(table, None)
        self.oracle.unresolved.discard(table)
        self.broken.pop(table, None)
        self.tell(f"somebody recreates {table}")

    def _repair(self) -> None:
        """What the operator does about a table that stopped: `frazil rewind`, or else load it anew."""
        table = self.chance.choice(list(self.broken))
        fence = take_fence(JOB, CalmArbiter(self), CalmClock(self))
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
        for running in self.running:
            running.stalled_until = 0
        while self.delayed:
            self._deliver()
        # Those that run may finish; then one more starts and must find nothing left to do, or do it.
        for last in (False, True):
            for _ in range(DRAIN_STEPS_MAX):
                self.tick += 1
                while self.broken:
                    self._repair()
                if not self.running:
                    if last and not self.broken:
                        break
                    self._start()
                    last = True
                self._step(self.chance.choice(self.running))
            else:
                raise Violation("the world does not come to rest")


def simulate(seed: int, trace: Callable[[str], None] | None = None, planted: Planted = SOUND) -> World:
    """Runs one seed. Raises SeedFailed naming it."""
    world = World(seed, trace, planted)
    try:
        world.run()
    except (Exception, Violation) as error:
        how = f"python -m tests.simulation --seed {seed} --trace"
        raise SeedFailed(f"seed {seed}: {type(error).__name__}: {error}\n  reproduce: {how}") from error
    return world
