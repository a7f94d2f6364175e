"""Which tables a pipeline has, and how far each of them is.

    configuration --recall--> ledgers of tables that were published before --> Origin and its targets
    source --------notice--> tables it offers now and the configuration wants ----^
                                                                              |
                                     read_ledgers: frontier of every target <-+

What the ledgers tell spares a look at the whole source.

A quarantine that is there stays a target when `on_error` is `stop` again: its keys go on to capture what follows (H49),
and a replay finds nothing newer in the mirror.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from threading import Lock

from frazil import errors
from frazil.clock import Clock
from frazil.config.model import PipelineConfig
from frazil.config.routing import Route, is_pattern, matches, route, target_of, volume_of
from frazil.config.tables import TableEntry
from frazil.coordinator.admission import Coordinator
from frazil.coordinator.recovery import Start, newest_generation, source_table, start
from frazil.coordinator.resync import highest_generation
from frazil.coordinator.resyncer import ResyncLake
from frazil.daemon.holdings import Holdings
from frazil.daemon.modes import check_mode
from frazil.daemon.tables import KeepsTables, Origin, RunningTable, companion, roles_of
from frazil.model.ledger import TableHead
from frazil.model.names import JobId, TableName
from frazil.model.ports import Lake, Source
from frazil.model.write import Role
from frazil.observability.logs import Log

_log = Log("frazil.pipeline")
_LEDGER = re.compile(r"frazil\.(.+)\.ledger")


class Discovery:
    """The tables of one run. `targets` are all of them, `mirrors` one for each source table. Any thread may read it."""

    def __init__(self, config: PipelineConfig, source: Source, lake: Lake, tables: KeepsTables, clock: Clock) -> None:
        self._config = config
        self._source = source
        self._lake = lake
        self._tables = tables
        self._clock = clock
        self._by_source: dict[str, list[RunningTable]] = {}
        self._indexes = 0
        self._lock = Lock()

    @property
    def targets(self) -> list[RunningTable]:
        return [target for targets in self._by_source.values() for target in targets]

    @property
    def mirrors(self) -> list[RunningTable]:
        return [targets[-1] for targets in self._by_source.values()]

    def targets_of(self, source: str) -> list[RunningTable]:
        """All targets of a source table, the mirror last."""
        return self._by_source[source]

    def knows(self, source: str) -> bool:
        """False also for a name that a table was known by before the feed was made anew."""
        return source in self._by_source

    def mirror(self, source: str) -> RunningTable:
        return self._by_source[source][-1]

    def target(self, name: TableName) -> RunningTable:
        return next(target for target in self.targets if target.target == name)

    def recall(self) -> None:
        """Only patterns and tables that were never published need a look at the source. A table is known by its ledger
        even if all its files are gone from the source."""
        recalled = [self._recalled(entry) for entry in self._config.tables]
        for taken in recalled:
            if taken is not None:
                self._take(taken)
        if None in recalled:
            self._take_offered(self._source)

    def notice(self, source: Source) -> list[str]:
        """Tables the source offers now, the configuration wants, and nobody knew of."""
        known = set(self._by_source)
        self._take_offered(source)
        return [name for name in self._by_source if name not in known]

    def newest_generation(self, branches: ResyncLake | None) -> int:
        """What the tables and their branches have seen, in case the register of pipelines was lost."""
        job, names = self._config.job, [table.target for table in self.targets if self._tables.exists(table.target)]
        if branches is None:
            return max((newest_generation(self._lake.head(name), job) for name in names), default=0)
        return max((highest_generation(branches.heads(name), job) for name in names), default=0)

    def read_ledgers(self, coordinator: Coordinator, sources: Iterable[str], lake: Lake | None = None) -> None:
        """Of these source tables; the mirrors' as `lake` shows them. Raises what stops them: fenced, rolled back,
        another source."""
        for source in sources:
            self._find_quarantine(source)
            *companions, mirror = self._by_source[source]
            for table in companions:
                self._read_ledger(table, coordinator, self._lake)
            self._read_ledger(mirror, coordinator, lake or self._lake)
            for table in companions:
                table.begin_behind(mirror.progress.tip_position)

    def _find_quarantine(self, source: str) -> None:
        """Whenever ledgers are read, so behind the fence: one that an older coordinator has just made is seen."""
        *_, mirror = targets = self._by_source[source]
        if any(table.role is Role.QUARANTINE for table in targets):
            return
        if self._tables.exists(companion(mirror.target, Role.QUARANTINE)):
            found = RunningTable(mirror.origin, Role.QUARANTINE)
            with self._lock:
                self._by_source = {**self._by_source, source: [found, *self._by_source[source]]}

    def _read_ledger(self, table: RunningTable, coordinator: Coordinator, lake: Lake) -> None:
        name = table.target
        if not self._tables.exists(name):
            table.loaded, table.empty, table.holdings = None, True, Holdings()
            table.start_at(None, None, self._clock.now())
            return
        table.loaded = self._tables.load(name)
        head = lake.head(name)
        check_owner(head, name, self._config.job)
        table.empty = head.is_empty
        table.show(head)
        match start(head, name, coordinator):
            case Start(frontier, entry):
                check_mode(table, entry is not None)
                table.start_at(frontier, entry, self._clock.now())
            case errors.Terminal() as error:
                raise error

    def _recalled(self, entry: TableEntry) -> Route | None:
        if is_pattern(entry.source):
            return None
        target = target_of(entry.target, entry.source, entry.source, self._config.pipeline)
        if not self._tables.exists(target):
            return None
        source = source_table(self._lake.head(target), self._config.job)
        taken = Route(source, entry, target, volume_of(self._config, entry))
        return taken if source and matches(entry.source, source) else None

    def _take_offered(self, source: Source) -> None:
        for taken in route(self._config, [table.name for table in source.tables()]):
            self._take(taken)

    def _take(self, taken: Route) -> None:
        with self._lock:
            self._take_in(taken)

    def _take_in(self, taken: Route) -> None:
        if taken.source in self._by_source:
            return
        known = next((mirror for mirror in self.mirrors if mirror.target == taken.target), None)
        if known is not None:
            # The same table under its other name, with or without database and schema: the feed was made anew.
            targets = self._by_source[known.source]
            others = {name: each for name, each in self._by_source.items() if name != known.source}
            known.origin.route = taken
        else:
            origin = Origin(taken, self._indexes)
            self._indexes += 1
            targets = [RunningTable(origin, role) for role in roles_of(taken, self._config)]
            others = self._by_source
        # Others may be walking over it in their threads.
        self._by_source = {**others, taken.source: targets}
        _log.info("table", source=taken.source, table=taken.target.text)


def check_owner(head: TableHead, table: TableName, job: JobId) -> None:
    """Raises ConfigError if another pipeline publishes to the table: each would take the other's rows for its own."""
    owners = {name: match[1] for name in head.properties if (match := _LEDGER.fullmatch(name)) and match[1] != job.text}
    for name, owner in owners.items():
        raise errors.ConfigError(
            f"{table} belongs to the pipeline {owner}, and {job} would publish to it too",
            hint=f"Give one of the two another target. If {owner} is gone for good: ALTER TABLE {table} UNSET "
            f"TBLPROPERTIES ('{name}'), then start {job}; it loads the table from the start of its source.",
            table=table.text,
            pipeline=owner,
        )
