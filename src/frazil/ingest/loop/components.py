"""All that a running pipeline is made of, each part behind what the daemon needs of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from frazil.clock import Clock
from frazil.commit.publisher import Observer
from frazil.commit.resync_runner import ResyncCommitter
from frazil.config.pipeline_config import PipelineConfig
from frazil.data.keys.index_cache import CacheStats
from frazil.ingest.loop.checkpointing import RecordsCheckpoints
from frazil.ingest.loop.target_tables import KeepsTables
from frazil.ingest.quarantine.held_keys import ReadsKeys
from frazil.ingest.write.window_writer import Executors
from frazil.model.frontier import Frontier
from frazil.model.ids import JobId, TableName
from frazil.model.ports import Arbiter, Locator, TransactionalCommitter
from frazil.observability.metrics import Metrics
from frazil.sources.base import Source
from frazil.threads import SystemThreads, Threads


class LocatorProvider(Protocol):
    def of(self, table: TableName) -> Locator:
        """Who finds the older rows of this table's keys; the same one every time."""

    @property
    def index(self) -> CacheStats:
        """The key index they share."""


class RecordsAgreement(Protocol):
    def record(self, job: JobId, resolved: Frontier, snapshots: Mapping[TableName, int | None]) -> bool:
        """Lets readers know that all tables agree at this position, each in this snapshot."""


class BranchingCommitter(TransactionalCommitter, ResyncCommitter, Protocol):
    """Publishes to branches, and makes and adopts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resync:
    """What loads tables anew."""

    committer: BranchingCommitter
    locators: LocatorProvider


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """`assemble` is the one place that knows how each is made. `locators` serve `deletes: vectors`, `quarantined` tells
    what is in quarantine, `resync` loads tables anew. `together` if all tables of an epoch are one commit; only for a
    catalog that offers it. With `agreement`, the moments at which all tables agree are recorded, and the source may
    forget nothing that they do not show. `checkpoints` is for people."""

    config: PipelineConfig
    config_hash: str
    source: Source
    committer: TransactionalCommitter
    tables: KeepsTables
    arbiter: Arbiter
    executors: Executors
    observer: Observer
    metrics: Metrics
    clock: Clock
    locators: LocatorProvider | None = None
    quarantined: ReadsKeys | None = None
    resync: Resync | None = None
    together: bool = False
    agreement: RecordsAgreement | None = None
    checkpoints: RecordsCheckpoints | None = None
    threads: Threads = field(default_factory=SystemThreads)
