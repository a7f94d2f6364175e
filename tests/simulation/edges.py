"""All that one run of a pipeline meets of the world: catalogs, register, clock, workers; with faults.

Each call first gives the turn back, so that anything may happen before it takes effect, and again before its
answer is heard. A process may die at each of these points. Once the run's session is lost, as with a JVM that died,
every call of it breaks; what was under way may still arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from frazil import errors
from frazil.commit.machine import EpochCommit, Outcome
from frazil.config.pipeline_config import PipelineConfig
from frazil.iceberg.system.checkpoints import Checkpoint
from frazil.iceberg.tables.tables import LoadedTable
from frazil.ingest.loop.components import Components, Resync
from frazil.ingest.write.window_writer import Executors
from frazil.model.change import PartitionReport, Report
from frazil.model.commit import Accepted, CommitAnswer, CommitPlan, Conflicted, Unknown
from frazil.model.files import LiveFiles, Message
from frazil.model.frontier import Frontier
from frazil.model.ids import JobId, TableName
from frazil.model.ledger import Fence, TableHead
from frazil.model.partition import PartitionSpec
from frazil.model.position import Position, is_before
from frazil.model.schema import LONG, STRING, Field, Schema, SourceSchema
from frazil.model.write import DeleteMode, TableOptions, WriteJob
from frazil.observability.metrics import Metrics
from frazil.sources.base import Cut, InputPartition

from .branches import BranchEdges
from .feed import Change
from .fibers import Crash, Fibers
from .locating import SimulatedLocator, live_files, unavailable
from .source import ReloadableSource, SimulatedSource
from .tables import Metadata
from .workers import TableWork, run_job

if TYPE_CHECKING:
    from .world import World

DAWN = datetime(2024, 1, 1, tzinfo=UTC)
SLOW_SECONDS = 90.0


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
        return DAWN + timedelta(seconds=self.world.time)

    def monotonic(self) -> float:
        return self.world.time

    def wait(self, seconds: float, until: Event | None = None) -> bool:
        return False

    def new_uuid(self) -> UUID:
        return UUID(int=self.world.chance.getrandbits(128), version=4)

    def jitter(self) -> float:
        return self.world.chance.random()


class FiberClock(CalmClock):
    """Waiting is a turn for the others."""

    def __init__(self, world: World, threads: Fibers) -> None:
        super().__init__(world)
        self._threads = threads

    def wait(self, seconds: float, until: Event | None = None) -> bool:
        if seconds > 0 and not (until is not None and until.is_set()):
            self._threads.pause(None if until is None else until.is_set, self._threads.after(seconds))
        return until is not None and until.is_set()


class CalmArbiter:
    """For the operator, whose commands are not what is under test."""

    def __init__(self, world: World) -> None:
        self.world = world

    def newest(self, job: JobId) -> tuple[Fence | None, object]:
        return self.world.register.fence, self.world.register.fence

    def take(self, job: JobId, fence: Fence, read: object) -> CommitAnswer:
        return Accepted(0) if self.world.register.take(fence, read) else Conflicted("the row has changed")


class RunEdges:
    """`name` is the process. `lost` once its session is gone."""

    FAULTS: ClassVar = {
        "crash before": (0.0, 0.0, 0.0, 0.01),
        "crash after": (0.0, 0.0, 0.0, 0.01),
        "request lost": (0.0, 0.1, 0.4),
        "request late": (0.0, 0.1, 0.4),
        "answer lost": (0.0, 0.1, 0.4),
        "answer broken": (0.0, 0.0, 0.1),
        "conflict after effect": (0.0, 0.1, 0.4),
        "head unavailable": (0.0, 0.02, 0.2),
        "source unavailable": (0.0, 0.0, 0.02, 0.1),
        "register unavailable": (0.0, 0.0, 0.95),
        "file unavailable": (0.0, 0.1, 0.3),
        "overtaken": (0.0, 0.0, 0.1, 0.95),
        "partly landed": (0.0, 0.2, 0.6),
    }

    def __init__(self, world: World, name: str, threads: Fibers, config: PipelineConfig) -> None:
        self.world = world
        self.name = name
        self.threads = threads
        self.config = config
        self.known: Callable[[], Collection[str]] = tuple
        """The tables that the run knows."""
        self.lost = self._has_taken = False
        self.began, self.seen = dict(world.tampered), dict(world.tampered)
        """How often each table had been tampered with when the run began, and when its ledger was last read."""
        self.excuses: set[tuple[TableName, type[errors.FrazilError]]] = set()
        """Tables that the world gave reason to stop with such an error."""
        self._locators: dict[TableName, SimulatedLocator] = {}

    @property
    def config_text(self) -> str:
        limits, tables = self.config.limits, [f"{one.source} {one.deletes}" for one in self.config.tables]
        return f"{tables}, {limits.epochs_per_job} epochs a job, {limits.epochs_in_flight} in flight"

    @property
    def components(self) -> Components:
        clock = FiberClock(self.world, self.threads)
        parts: Any = self
        branches: Any = BranchEdges(self)
        together = self.world.together
        return Components(
            config=self.config,
            config_hash="simulated",
            source=ReloadableSource(self) if self.world.can_reload else SimulatedSource(self),
            committer=parts,
            tables=parts,
            arbiter=parts,
            executors=Executors(write=self.write, cores=self.world.cores),
            observer=parts,
            metrics=Metrics(clock),
            clock=clock,
            locators=parts,
            resync=Resync(committer=branches, locators=parts),
            together=together,
            agreement=Agreements(self) if together and self.world.records_agreement else None,
            checkpoints=CheckpointTable(self) if self.config.checkpoints else None,
            threads=self.threads,
        )

    # Committer

    def head(self, table: TableName) -> TableHead:
        self.look(table)
        return self.metadata(table).head()

    def metadata(self, table: TableName) -> Metadata:
        found = self.world.catalog.tables.get(table)
        if found is None:
            raise errors.TableChanged("there is no such table", hint="restart", table=table.text, what="gone")
        return found

    def live(self, table: TableName, head: TableHead, bounds_of: Sequence[int] = ()) -> LiveFiles:
        metadata = head.base
        assert isinstance(metadata, Metadata)
        snapshot = None if head.snapshot_id is None else metadata.retained[head.snapshot_id]
        return live_files(self.world.storage, snapshot)

    def commit(self, table: TableName, head: TableHead, plan: CommitPlan) -> CommitAnswer:
        if self.by_chance("overtaken"):
            self.world.append_to(table)

        def effect() -> int | None:
            snapshot = self.world.land(table, head.base, plan)
            return None if snapshot is None else snapshot.id

        return self.conditional_write(effect, table)

    def commit_many(self, commits: Sequence[tuple[TableName, TableHead, CommitPlan]]) -> list[CommitAnswer]:
        """All or nothing, says the server; one that stops in the middle keeps what it had done."""
        landed: dict[TableName, int] = {}

        def effect() -> int | None:
            tables = self.world.catalog.tables
            if any(tables[table] is not head.base for table, head, _ in commits):
                return None
            for table, head, plan in commits:
                if landed and self.by_chance("partly landed"):
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

    # Tables

    def exists(self, table: TableName) -> bool:
        self.look(table)
        return table in self.world.catalog.tables

    def load(self, table: TableName) -> LoadedTable:
        self.look(table)
        self.seen[table] = self.world.tampered[table]
        return self._loaded(table)

    def ensure(self, table: TableName, shape: SourceSchema, options: TableOptions) -> LoadedTable:
        self.look(table)
        if table not in self.world.catalog.tables:
            self.world.catalog.create(table)
            self.seen[table] = self.world.tampered[table]
            self.tell(f"creates {table}")
            self.enter()
        return self._loaded(table)

    def set_property(self, table: TableName, name: str, value: str | None) -> None:
        self.look(table)
        self.world.catalog.set_property(table, name, value)

    def _loaded(self, table: TableName) -> LoadedTable:
        metadata = self.metadata(table)
        return LoadedTable(
            name=table,
            uuid=metadata.uuid,
            location=f"lake/{table}",
            data_location=f"lake/{table}/data",
            schema=Schema(
                metadata.value_id,
                (Field(1, "key", LONG, required=True), Field(metadata.value_id, "value", STRING)),
                (1,),
            ),
            spec=PartitionSpec(0),
            specs=(PartitionSpec(0),),
            format_version=3,
            properties=metadata.properties,
            is_unused=metadata.last_sequence == 0,
            form=metadata.form,
        )

    # Arbiter

    def newest(self, job: JobId) -> tuple[Fence | None, object]:
        self.enter()
        if self.by_chance("register unavailable" if self._has_taken else "head unavailable"):
            raise errors.CatalogUnavailable("no answer")
        return self.world.register.fence, self.world.register.fence

    def take(self, job: JobId, fence: Fence, read: object) -> CommitAnswer:
        answer = self.conditional_write(lambda: 0 if self.world.register.take(fence, read) else None)
        self._has_taken = isinstance(answer, Accepted)
        return answer

    # Executors

    def write(
        self,
        partitions: Sequence[InputPartition],
        cuts: Mapping[int, Cut],
        reader: Any,
        decoder: Any,
        job: WriteJob,
        epochs: tuple[Position, ...],
        *,
        small: bool,
    ) -> tuple[list[Message], list[Report]]:
        self.enter()
        self._perhaps_die("crash before")
        for task in job.tables:
            self._fail_by_sickness(task.name)
        changes: dict[int, list[Change]] = {}
        reports: list[Report] = []
        for partition in partitions:
            rows = self.world.feed.read(partition)
            changes.setdefault(partition.table, []).extend(rows)
            inside = sum(not is_before(epochs[-1], row.position) for row in rows)
            reports.append(
                PartitionReport(partition.table, partition.name, inside, 0, max(row.position for row in rows))
            )
        work = [
            TableWork(
                task.name,
                replace(cuts[task.index], lower=task.lower),
                changes.get(task.index, []),
                task.epochs,
                task.mode is DeleteMode.VECTORS,
                task.schema.schema_id,
            )
            for task in job.tables
        ]
        world = self.world
        attempt = "0" if world.planted.paths_are_reused else job.attempt
        with world.judged():
            messages = run_job(world.chance, world.storage, work, job.shards, attempt)
        self.enter()
        self._perhaps_die("crash after")
        self._handed_out(reader, epochs)
        return messages, reports

    def _handed_out(self, source: SimulatedSource, epochs: tuple[Position, ...]) -> None:
        """What a loop has written once it hands to its lanes: it goes on behind it, always."""
        if not is_before(source.written_to, epochs[0]):
            self.world.violated(
                f"{self.name} writes up to {epochs[0]} once more; it had written to {source.written_to}"
            )
        source.written_to = epochs[-1]

    def _fail_by_sickness(self, table: TableName) -> None:
        match self.world.sick.get(table):
            case "bad input":
                self.excuse(table, errors.BadInput)
                raise errors.BadInput(f"{table}: this cannot be read", hint="mend it", table=table.text)
            case "storage":
                raise errors.StorageUnavailable(f"{table}: no answer", table=table.text)
            case "unexplained":
                self.excuse(table, errors.Unexplained)
                raise RuntimeError(f"a worker that met {table} is gone")

    def excuse(self, table: TableName, error: type[errors.FrazilError]) -> None:
        self.excuses.add((table, error))

    # Observer

    def answered(self, epoch_commit: EpochCommit, answer: CommitAnswer, seconds: float) -> None:
        self.tell(f"{epoch_commit.table} ({epoch_commit.lower}, {epoch_commit.upper}]: {answer}")

    def finished(self, epoch_commit: EpochCommit, outcome: Outcome) -> None:
        self.tell(f"{epoch_commit.table} up to {epoch_commit.upper}: {type(outcome).__name__}")

    # Locators

    def of(self, table: TableName) -> SimulatedLocator:
        return self._locators.setdefault(table, SimulatedLocator(self, table))

    def before_locating(self) -> None:
        self.enter()
        self._perhaps_die("crash before")
        if self.by_chance("file unavailable"):
            raise unavailable()

    # The source

    def acknowledged(self, position: Position) -> None:
        self.tell(f"acknowledges {position}")
        with self.world.judged():
            self.world.acknowledged(self, position)

    # Faults

    def enter(self) -> None:
        """What comes before anything of the world is met."""
        self.threads.pause()
        if self.lost:
            raise ConnectionResetError("the JVM is gone")

    def look(self, table: TableName) -> None:
        """What comes before any look at the catalog."""
        self.enter()
        self._perhaps_die("crash before")
        if self.by_chance("head unavailable") or self.world.sick.get(table) == "catalog":
            raise errors.CatalogUnavailable("no answer", table=table.text)
        if table in self.world.broken:
            self.excuse(table, errors.TableChanged)

    def conditional_write(self, effect: Callable[[], int | None], table: TableName | None = None) -> CommitAnswer:
        self.enter()
        self._perhaps_die("crash before")
        if table is not None and self.world.sick.get(table) == "slow":
            self.threads.pause(deadline=self.threads.after(SLOW_SECONDS))
        if self.by_chance("request lost"):
            return Unknown("timeout; the request never arrived")
        if self.by_chance("request late"):
            self.world.delayed.append(effect)
            return Unknown("timeout; the request is still under way")
        with self.world.judged():
            landed = effect()
        self.enter()
        self._perhaps_die("crash after")
        if self.by_chance("answer broken"):
            raise ConnectionResetError("the connection broke")
        if self.by_chance("answer lost"):
            return Unknown("timeout; the answer was lost")
        if landed is None or self.by_chance("conflict after effect"):
            return Conflicted("409")
        return Accepted(landed)

    def by_chance(self, fault: str) -> bool:
        return self.world.faults and self.world.chance.random() < self.world.rates[fault]

    def _perhaps_die(self, fault: str) -> None:
        if self.by_chance(fault):
            self.tell(f"dies ({fault})")
            self.threads.dead = True
            raise Crash

    def tell(self, what: str) -> None:
        self.world.tell(f"{self.name} {what}")


class Agreements:
    """Where the moments are recorded at which all tables agree."""

    def __init__(self, edges: RunEdges) -> None:
        self._edges = edges

    def record(self, job: JobId, resolved: Frontier, snapshots: Mapping[TableName, int | None]) -> bool:
        self._edges.enter()
        with self._edges.world.judged():
            self._edges.world.agreed(resolved.position, snapshots)
        return not self._edges.by_chance("request lost")


class CheckpointTable:
    """The mirror of the ledgers for people; stops nothing, whatever it meets."""

    def __init__(self, edges: RunEdges) -> None:
        self._edges = edges

    def record(self, job: JobId, rows: Collection[Checkpoint]) -> bool:
        self._edges.enter()
        if self._edges.by_chance("answer broken"):
            raise ConnectionResetError("the connection broke")
        return True
