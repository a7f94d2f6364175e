"""All that a running pipeline is made of, each part behind what the daemon needs of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from frazil.clock import Clock
from frazil.config.model import PipelineConfig
from frazil.coordinator.publisher import Observer
from frazil.coordinator.resyncer import ResyncLake
from frazil.daemon.capturing import ReadsKeys
from frazil.daemon.checkpointing import RecordsCheckpoints
from frazil.daemon.shaping import ShapingSource
from frazil.daemon.tables import KeepsTables
from frazil.daemon.windows import Executors
from frazil.model.names import JobId, TableName
from frazil.model.ports import Arbiter, Locator, TransactionalLake
from frazil.model.position import Position
from frazil.observability.metrics import Metrics
from frazil.workers.lookup.tally import IndexTally


class Locators(Protocol):
    def of(self, table: TableName) -> Locator:
        """Who finds the older rows of this table's keys; the same one every time."""

    @property
    def index(self) -> IndexTally:
        """The key index they share."""


class RecordsAgreement(Protocol):
    def record(self, job: JobId, resolved: Position, snapshots: Mapping[TableName, int | None]) -> bool:
        """Lets readers know that all tables agree at this position, each in this snapshot."""


class BranchingLake(TransactionalLake, ResyncLake, Protocol):
    """Publishes to branches, and makes and adopts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resync:
    """What loads tables anew."""

    lake: BranchingLake
    locators: Locators


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """`assemble` is the one place that knows how each is made. `locators` serve `deletes: vectors`, `quarantined` tells
    what is in quarantine, `resync` loads tables anew. `together` if all tables of an epoch are one commit; only for a
    catalog that offers it. With `agreement`, the moments at which all tables agree are recorded, and the source may
    forget nothing that they do not show. `checkpoints` is a mirror for people."""

    config: PipelineConfig
    config_hash: str
    source: ShapingSource
    lake: TransactionalLake
    tables: KeepsTables
    arbiter: Arbiter
    executors: Executors
    observer: Observer
    metrics: Metrics
    clock: Clock
    locators: Locators | None = None
    quarantined: ReadsKeys | None = None
    resync: Resync | None = None
    together: bool = False
    agreement: RecordsAgreement | None = None
    checkpoints: RecordsCheckpoints | None = None
