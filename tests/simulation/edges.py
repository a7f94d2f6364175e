"""The edges a coordinator process meets: catalog, register of pipelines, clock, workers; with faults.

Each call first gives the turn back, so that anything may happen before it takes effect, and again before its
answer is heard. A process may die at each of these points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import TYPE_CHECKING, ClassVar
from uuid import UUID

from frazil import errors
from frazil.model.commit import Accepted, CommitAnswer, CommitPlan, Conflicted, Unknown
from frazil.model.files import LiveFiles, Message
from frazil.model.ids import JobId, TableName
from frazil.model.ledger import Fence, TableHead
from frazil.model.position import Position

from .branches import BranchEdges
from .fibers import Crash, Fiber
from .locating import SimulatedLocator, live_files, unavailable
from .tables import Metadata
from .workers import TableWork, run_job

if TYPE_CHECKING:
    from .world import World

DAWN = datetime(2024, 1, 1, tzinfo=UTC)


class Register:
    """The pipeline's row: one fence with compare-and-set. Without it (`checks` off) two starters may take one
    generation, which the owner in the fence must make up for (H45)."""

    def __init__(self, checks: bool) -> None:
        self.checks = checks
        self.fence: Fence | None = None
        self._named = 0

    def names(self) -> int:
        self._named += 1
        return self._named

    def take(self, fence: Fence, read: object) -> bool:
        if self.checks and self.fence is not read:
            return False
        self.fence = fence
        return True


class CalmClock:
    """World time, and chance from the seed."""

    def __init__(self, world: World) -> None:
        self.world = world

    def now(self) -> datetime:
        return DAWN + timedelta(seconds=self.world.tick)

    def monotonic(self) -> float:
        return float(self.world.tick)

    def wait(self, seconds: float, until: Event | None = None) -> bool:
        return False

    def new_uuid(self) -> UUID:
        return UUID(int=self.world.chance.getrandbits(128), version=4)

    def jitter(self) -> float:
        return self.world.chance.random()


class CalmArbiter:
    """For the operator, whose commands are not what is under test."""

    def __init__(self, world: World) -> None:
        self.world = world

    def newest(self, job: JobId) -> tuple[Fence | None, object]:
        return self.world.register.fence, self.world.register.fence

    def take(self, job: JobId, fence: Fence, read: object) -> CommitAnswer:
        return Accepted(0) if self.world.register.take(fence, read) else Conflicted("the row has changed")


class WorldEdges(CalmClock):
    """All edges of one process: Lake, Arbiter, Clock and the driver's own."""

    FAULTS: ClassVar = {
        "crash before": (0.0, 0.0, 0.02, 0.1),
        "crash after": (0.0, 0.0, 0.02, 0.1),
        "request lost": (0.0, 0.1, 0.5),
        "request late": (0.0, 0.1, 0.5),
        "answer lost": (0.0, 0.1, 0.5),
        "answer broken": (0.0, 0.0, 0.1),
        "conflict after effect": (0.0, 0.1, 0.5),
        "head unavailable": (0.0, 0.1, 0.8),
        "file unavailable": (0.0, 0.1, 0.3),
        "overtaken": (0.0, 0.0, 0.1, 0.95),
    }

    FAULTS_TOGETHER: ClassVar = {"partly landed": (0.0, 0.2, 0.6)}

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world)
        self.name = name
        self.committer = self.arbiter = self.clock = self

    def attach(self, fiber: Fiber, on_resumed: Callable[[], None]) -> None:
        self._fiber = fiber
        self._on_resumed = on_resumed

    # Lake

    def head(self, table: TableName) -> TableHead:
        self.look()
        return self.world.catalog.tables[table].head()

    def live(self, table: TableName, head: TableHead, bounds_of: Sequence[int] = ()) -> LiveFiles:
        metadata = head.base
        assert isinstance(metadata, Metadata)
        snapshot = None if head.snapshot_id is None else metadata.retained[head.snapshot_id]
        return live_files(self.world.storage, snapshot)

    def commit(self, table: TableName, head: TableHead, plan: CommitPlan) -> CommitAnswer:
        if self._by_chance("overtaken"):
            self.world.append_to(table)

        def effect() -> int | None:
            snapshot = self.world.land(table, head.base, plan)
            return None if snapshot is None else snapshot.id

        return self.conditional_write(effect)

    def commit_many(self, commits: Sequence[tuple[TableName, TableHead, CommitPlan]]) -> list[CommitAnswer]:
        """All or nothing, says the server; one that stops in the middle keeps what it had done."""
        landed: dict[TableName, int] = {}

        def effect() -> int | None:
            tables = self.world.catalog.tables
            if any(tables[table] is not head.base for table, head, _ in commits):
                return None
            for table, head, plan in commits:
                if landed and self._by_chance("partly landed"):
                    self.tell(f"lands {len(landed)} of {len(commits)} tables")
                    return None
                snapshot = self.world.land(table, head.base, plan)
                assert snapshot is not None
                landed[table] = snapshot.id
            return 0

        answer = self.conditional_write(effect)
        if not isinstance(answer, Accepted):
            return [answer] * len(commits)
        return [Accepted(landed[table]) for table, _, _ in commits]

    # Arbiter

    def newest(self, job: JobId) -> tuple[Fence | None, object]:
        self._fiber.pause()
        if self._by_chance("head unavailable"):
            raise errors.CatalogUnavailable("no answer")
        return self.world.register.fence, self.world.register.fence

    def take(self, job: JobId, fence: Fence, read: object) -> CommitAnswer:
        return self.conditional_write(lambda: 0 if self.world.register.take(fence, read) else None)

    # Clock: waiting is a turn for the others

    def wait(self, seconds: float, until: Event | None = None) -> bool:
        if seconds > 0:
            self._fiber.pause()
        return False

    # What the driver asks for

    def write(self, work: Sequence[TableWork]) -> tuple[int, list[Message]]:
        self._fiber.pause()
        self._perhaps_die("crash before")
        workers = self.world.chance.randint(1, 3)
        attempt = "0" if self.world.planted.paths_are_reused else f"{len(self.world.storage.files)}x{self.world.tick}"
        messages = run_job(self.world.chance, self.world.storage, work, workers, attempt)
        self._fiber.pause()
        self._perhaps_die("crash after")
        return workers, messages

    def acknowledge(self, position: Position | None, tables: tuple[TableName, ...]) -> None:
        untouched = tuple(table for table in tables if not self.world.tampered[table])
        self.world.oracle.on_acknowledge(position, untouched)

    def resumed(self, fence_generation: int) -> None:
        self._on_resumed()

    def idle(self) -> None:
        self._fiber.pause()

    def writes_ahead(self) -> bool:
        return self.world.chance.random() < 0.5

    def locator(self, table: TableName) -> SimulatedLocator:
        return SimulatedLocator(self, table)

    def before_locating(self) -> None:
        self._fiber.pause()
        self._perhaps_die("crash before")
        if self._by_chance("file unavailable"):
            raise unavailable()

    def branch(self, table: TableName) -> BranchEdges:
        return BranchEdges(self, table)

    def resync_wanted(self, table: TableName) -> bool:
        return table in self.world.wanted

    def by_chance_anew(self) -> bool:
        return self.world.faults and self.world.chance.random() < 0.1

    def look(self) -> None:
        """What comes before any look at the catalog."""
        self._fiber.pause()
        self._perhaps_die("crash before")
        if self._by_chance("head unavailable"):
            raise errors.CatalogUnavailable("no answer")

    def tell(self, what: str) -> None:
        self.world.tell(f"{self.name} {what}")

    # Faults

    def conditional_write(self, effect: Callable[[], int | None]) -> CommitAnswer:
        self._fiber.pause()
        self._perhaps_die("crash before")
        if self._by_chance("request lost"):
            return Unknown("timeout; the request never arrived")
        if self._by_chance("request late"):
            self.world.delayed.append(effect)
            return Unknown("timeout; the request is still under way")
        landed = effect()
        self._fiber.pause()
        self._perhaps_die("crash after")
        if self._by_chance("answer broken"):
            raise ConnectionResetError("the connection broke")
        if self._by_chance("answer lost"):
            return Unknown("timeout; the answer was lost")
        if landed is None or self._by_chance("conflict after effect"):
            return Conflicted("409")
        return Accepted(landed)

    def _by_chance(self, fault: str) -> bool:
        return self.world.faults and self.world.chance.random() < self.world.rates[fault]

    def _perhaps_die(self, fault: str) -> None:
        if self._by_chance(fault):
            self.tell(f"dies ({fault})")
            raise Crash
