"""Which tables a pipeline has, and how far each of them is.

    configuration --recall--> ledgers of tables that were published before --> SourceState and its targets
    source --------notice--> tables it offers now and the configuration wants ----^
                                                                              |
                                     read_ledgers: frontier of every target <-+

What the ledgers tell spares a look at the whole source.

A quarantine that is there stays a target when `on_error` is `stop` again: its keys go on to capture what follows (H49),
and a replay finds nothing newer in the main table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from threading import Lock

from frazil import errors
from frazil.clock import Clock
from frazil.commit.admission import Coordinator, other_table_error
from frazil.commit.recovery import StartPoint, newest_generation, source_table, start
from frazil.commit.resync_machine import highest_generation
from frazil.commit.resync_runner import ResyncCommitter
from frazil.config.pipeline_config import PipelineConfig
from frazil.config.routing import Route, is_pattern, matches, target_of
from frazil.config.table_entries import TableEntry
from frazil.ingest.loop.claims import claimed
from frazil.ingest.loop.mode_checks import check_mode
from frazil.ingest.loop.table_stats import TableStats
from frazil.ingest.loop.target_tables import KeepsTables, SourceState, TargetTable
from frazil.model.ids import JobId, TableName
from frazil.model.ledger import TableHead
from frazil.model.ports import Committer
from frazil.model.write import Role, side_table
from frazil.observability.logs import Log
from frazil.sources.base import Source
from frazil.threads import Threads

_log = Log("frazil.pipeline")
_LEDGER = re.compile(r"frazil\.(.+)\.ledger")


class TableRegistry:
    """The tables of one run. `targets` are all of them, `main_tables` one for each source table. Any thread may read
    it."""

    def __init__(
        self,
        config: PipelineConfig,
        source: Source,
        committer: Committer,
        tables: KeepsTables,
        clock: Clock,
        threads: Threads,
    ) -> None:
        self._config = config
        self._source = source
        self._committer = committer
        self._tables = tables
        self._clock = clock
        self._threads = threads
        self._by_source: dict[str, list[TargetTable]] = {}
        self._by_target: dict[TableName, TargetTable] = {}
        self._renamed: dict[str, str] = {}
        self._offered: tuple[str, ...] = ()
        self.refused: Mapping[str, errors.ConfigError] = {}
        """Source tables that cannot be taken, each with why."""
        self._indexes = 0
        self._unread: list[TableEntry] = []
        self._lock = Lock()

    @property
    def targets(self) -> list[TargetTable]:
        return [target for targets in self._by_source.values() for target in targets]

    @property
    def main_tables(self) -> list[TargetTable]:
        return [targets[-1] for targets in self._by_source.values()]

    @property
    def is_whole(self) -> bool:
        """Whether no table is missing only because its ledger could not be read when the run began: the source must
        keep everything for it."""
        return all(any(matches(entry.source, known) for known in self._by_source) for entry in self._unread)

    @property
    def slowest(self) -> TargetTable | None:
        """Every table is published up to where this one is, as far as there was anything to publish. None as long as
        one of them has nothing done."""
        done = [(position.order, table) for table in self.targets if (position := table.done_through)]
        return min(done, key=lambda one: one[0])[1] if done and len(done) == len(self.targets) else None

    @property
    def unmet_entries(self) -> list[str]:
        """Names and patterns under `tables:` that fit no table which the source has shown."""
        return [entry.source for entry in self._config.entries.unmet([*self._by_source, *self.refused])]

    def targets_of(self, source: str) -> list[TargetTable]:
        """All targets of a source table, the main table last; also by a name that it had before in this run, which a
        loop may still read it by."""
        while source not in self._by_source:
            source = self._renamed[source]
        return self._by_source[source]

    def knows(self, source: str) -> bool:
        """False also for a name that a table was known by before the feed was made anew."""
        return source in self._by_source

    def main_table(self, source: str) -> TargetTable:
        return self.targets_of(source)[-1]

    def target(self, name: TableName) -> TargetTable:
        return self._by_target[name]

    def recall(self) -> None:
        """Only patterns and tables that were never published need a look at the source. A table is known by its ledger
        even if all its files are gone from the source. One that cannot be read now is known once the source shows it:
        the others are not held up."""
        self._unread.clear()
        recalled = [self._recalled(entry) for entry in self._config.tables]
        self._take(taken for taken in recalled if taken is not None)
        if None in recalled:
            self._take_offered(self._source)

    def notice(self, source: Source) -> list[str]:
        """Tables the source offers now, the configuration wants, and nobody knew of."""
        known = self._by_source
        self._take_offered(source)
        return [] if known is self._by_source else [name for name in self._by_source if name not in known]

    def newest_generation(self, branches: ResyncCommitter | None) -> int:
        """What the tables and their branches have seen, in case the register of pipelines was lost. One that cannot be
        read says nothing here: its own loop meets the same, and waits or stops alone. But raises LedgerTooNew: nobody
        may take the pipeline over from a newer version, whose ledger it cannot read."""
        seen = 0
        for table in self.targets:
            try:
                seen = max(seen, self._seen_by(table.target, branches))
            except errors.LedgerTooNew:
                raise
            except (errors.Terminal, errors.Transient):
                continue
        return seen

    def _seen_by(self, name: TableName, branches: ResyncCommitter | None) -> int:
        if not self._tables.exists(name):
            return 0
        if branches is None:
            return newest_generation(self._committer.head(name), self._config.job)
        return highest_generation(branches.heads(name), self._config.job)

    def read_ledgers(
        self, coordinator: Coordinator, sources: Iterable[str], committer: Committer | None = None
    ) -> None:
        """Of these source tables; the main tables' as `committer` shows them. Raises what stops them: fenced, rolled
        back, another source."""
        for source in sources:
            self._find_quarantine(source)
            *side_tables, main_table = self._by_source[source]
            for table in side_tables:
                self._read_ledger(table, coordinator, self._committer)
            self._read_ledger(main_table, coordinator, committer or self._committer)
            for table in side_tables:
                table.begin_behind(main_table.progress.tip_position)

    def _find_quarantine(self, source: str) -> None:
        """Whenever ledgers are read, so behind the fence: one that an older coordinator has just made is seen."""
        *_, main_table = targets = self._by_source[source]
        if any(table.role is Role.QUARANTINE for table in targets):
            return
        name = side_table(main_table.target, Role.QUARANTINE)
        if self._tables.exists(name) and (not (keeper := self._keeper(name)) or matches(keeper, source)):
            found = TargetTable(main_table.origin, Role.QUARANTINE, self._threads.lock())
            with self._lock:
                self._by_target[found.target] = found
                self._by_source = {**self._by_source, source: [found, *self._by_source[source]]}

    def _read_ledger(self, table: TargetTable, coordinator: Coordinator, committer: Committer) -> None:
        name = table.target
        if not self._tables.exists(name):
            table.loaded, table.empty, table.stats = None, True, TableStats()
            table.start_at(None, None, self._clock.now())
            return
        loaded = self._tables.load(name)
        if table.loaded is not None and table.loaded.schema != loaded.schema:
            # Somebody else changed it: what its source looks like must be matched with it anew.
            table.origin.source_schema = None
        table.loaded = loaded
        head = committer.head(name)
        check_owner(head, name, self._config.job)
        table.empty = head.is_empty
        table.show(head)
        match start(head, name, coordinator):
            case StartPoint(frontier, entry):
                if error := other_table_error(entry, name, table.source):
                    raise error
                check_mode(table, entry is not None)
                table.start_at(frontier, entry, self._clock.now())
            case errors.Terminal() as stops:
                raise stops

    def _recalled(self, entry: TableEntry) -> Route | None:
        if is_pattern(entry.source):
            return None
        target = target_of(entry.target, entry.source, entry.source, self._config.pipeline)
        try:
            source = self._published_from(target)
        except errors.Transient as error:
            _log.warning("cannot be read now; other tables begin", table=target.text, reason=str(error))
            self._unread.append(entry)
            return None
        taken = self._config.routed(source, entry, target)
        return taken if source and matches(entry.source, source) else None

    def _take_offered(self, source: Source) -> None:
        offered = tuple(table.name for table in source.tables())
        if offered != self._offered:
            claims = claimed(self._config, offered, self._keeper)
            self._take(claims.routes)
            self.refused = claims.refused
            self._offered = offered

    def _keeper(self, target: TableName) -> str:
        """Whoever fills it in this run, else whoever has before."""
        known = self._by_target.get(target)
        return self._published_from(target) if known is None else known.source

    def _published_from(self, target: TableName) -> str:
        """Empty also for a table that cannot be read: whoever wants to publish to it is stopped by that."""
        with suppress(errors.Terminal):
            if self._tables.exists(target):
                return source_table(self._committer.head(target), self._config.job)
        return ""

    def _take(self, routes: Iterable[Route]) -> None:
        with self._lock:
            # Others may be walking over the old one in their threads.
            known = dict(self._by_source)
            for taken in routes:
                if taken.source not in known:
                    self._take_in(taken, known)
            if known.keys() != self._by_source.keys():
                self._by_source = known

    def _take_in(self, taken: Route, known: dict[str, list[TargetTable]]) -> None:
        main_table = self._by_target.get(taken.target)
        if main_table is not None and main_table.is_main:
            # The same table under its other name, with or without database and schema: the feed was made anew.
            targets = known.pop(main_table.source)
            self._renamed[main_table.source] = taken.source
            main_table.origin.route = taken
        else:
            origin = SourceState(taken, self._indexes)
            self._indexes += 1
            targets = [TargetTable(origin, role, self._threads.lock()) for role in self._config.roles(taken)]
            self._by_target.update((target.target, target) for target in targets)
        known[taken.source] = targets
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
