"""Loads a table anew beside the others, on a branch that main becomes at once (H27).

    source lost, or asked for --> begin: branch, cleared --> ReaderLoop on the branch --caught up--> adopt --> CaughtUp
                                     ^                            |
                                     `--- source lost again ------'   anew

A crash in between leaves the branch: the next start finds it and goes on behind what is published there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Event

from frazil import errors
from frazil.commit.admission import Coordinator
from frazil.commit.resync_machine import CANCEL, Adopted, Loading, NotUnderWay, resync_stage
from frazil.commit.resync_runner import ResyncCommitter, abandon_resync, adopt_resync, begin_resync
from frazil.data.keys.index_cache import CacheStats
from frazil.iceberg.commits.branches import BranchCommitter
from frazil.ingest.catalog_handles import CatalogHandle, Catalogs, RoutedCommitter
from frazil.ingest.loop.components import Components, LocatorProvider
from frazil.ingest.loop.reader_loop import CaughtUp, CutAgain, Ending, Failed, ReaderLoop
from frazil.ingest.loop.target_tables import TargetTable
from frazil.model.commit import ClearPlan, CommitAnswer, CommitPlan
from frazil.model.ids import JobId, TableName
from frazil.model.ledger import BranchedHead, TableHead
from frazil.model.ports import Locator, TransactionalCommitter
from frazil.model.write import main_table_of
from frazil.observability.logs import Log
from frazil.sources.base import LoadsTables

_log = Log("frazil.resync")


class RoutedBranches(RoutedCommitter):
    """The branches of main tables, over several places; side tables are published as ever."""

    def __init__(self, place_of: Callable[[TableName], CatalogHandle], job: JobId) -> None:
        super().__init__(place_of)
        self._job = job
        self._branches: dict[str, BranchCommitter] = {}

    def committer_of(self, table: TableName) -> TransactionalCommitter:
        return super().committer_of(table) if main_table_of(table) != table else self.branches_of(table)

    def branches_of(self, table: TableName) -> BranchCommitter:
        place = self._place_of(table)
        name = place.catalog.settings.name
        if name not in self._branches:
            self._branches[name] = BranchCommitter(place.committer, self._job)
        return self._branches[name]

    def heads(self, table: TableName) -> BranchedHead:
        return self.branches_of(table).heads(table)

    def begin(self, table: TableName, head: TableHead, plan: ClearPlan) -> CommitAnswer:
        return self.branches_of(table).begin(table, head, plan)

    def adopt(self, table: TableName, head: TableHead, plan: CommitPlan) -> CommitAnswer:
        return self.branches_of(table).adopt(table, head, plan)

    def abandon(self, table: TableName, head: TableHead) -> CommitAnswer:
        return self.branches_of(table).abandon(table, head)


class BranchLocators:
    """Search the branches, with the key index that all share."""

    def __init__(self, places: Catalogs, branches: RoutedBranches) -> None:
        self._places = places
        self._branches = branches
        self._made: dict[str, LocatorProvider] = {}

    def of(self, table: TableName) -> Locator:
        place = self._places.of(table)
        name = place.catalog.settings.name
        if name not in self._made:
            self._made[name] = place.locators.on(self._branches.branches_of(table))
        return self._made[name].of(table)

    @property
    def index(self) -> CacheStats:
        return self._places.default.locators.index


def is_under_way(heads: BranchedHead, table: TableName, coordinator: Coordinator) -> bool:
    """Whether a load of the table on its branch was begun and not finished. Raises the error to stop with."""
    match resync_stage(heads, table, coordinator):
        case Loading():
            return True
        case NotUnderWay():
            return False
        case errors.Terminal() as error:
            raise error


def as_asked_for(
    parts: Components, committer: ResyncCommitter, table: TableName, coordinator: Coordinator
) -> BranchedHead:
    """Main and the branch; a load that somebody no longer wants is given up first. Raises like `abandon_resync`."""
    heads, wish = committer.heads(table), coordinator.job.resync_property
    if heads.main.properties.get(wish) != CANCEL:
        return heads
    abandon_resync(table, committer, coordinator, parts.clock)
    parts.tables.set_property(table, wish, None)
    _log.warning("its load is given up as asked for; readers see no change", table=table.text)
    return committer.heads(table)


class ResyncLoop:
    """A reader loop of one table on its branch, from the first look to its adoption. `anew` clears what was begun
    before."""

    def __init__(
        self,
        parts: Components,
        branches: ResyncCommitter,
        coordinator: Coordinator,
        main_table: TargetTable,
        make_loop: Callable[[], ReaderLoop],
        *,
        anew: bool,
    ) -> None:
        self._parts = parts
        self._branches = branches
        self._coordinator = coordinator
        self._main_table = main_table
        self._make_loop = make_loop
        self._anew = anew
        self._end = Event()
        self._loop: ReaderLoop | None = None
        self.has_begun = False

    @property
    def tables(self) -> tuple[str, ...]:
        return (self._main_table.source,)

    @property
    def has_progressed(self) -> bool:
        return self._loop is not None and self._loop.has_progressed

    def end(self) -> None:
        self._end.set()
        if self._loop is not None:
            self._loop.end()

    def run(self) -> Ending:
        """Like a loop's. CaughtUp if main shows what was loaded."""
        table, clock = self._main_table.target, self._parts.clock
        try:
            begun = begin_resync(
                table,
                self._branches,
                self._coordinator,
                clock,
                anew=self._anew,
                source=self._main_table.source,
                stop=self._end,
            )
            self.has_begun = True
            self._parts.tables.set_property(table, self._coordinator.job.resync_property, None)
            _log.warning("loading anew on a branch", table=table.text, resumed=begun.entry is not None)
            self._loop = self._make_loop()
            if self._end.is_set():
                self._loop.end()
            ending = self._loop.run()
            return self._adopted() if isinstance(ending, CaughtUp) else ending
        except BaseException as error:
            return Failed({self._main_table.source: error})

    def _adopted(self) -> Ending:
        table, source = self._main_table.target, self._parts.source
        branch = self._branches.heads(table).branch
        entry = None if branch is None else branch.newest(self._coordinator.job)
        frontier = None if entry is None else entry.frontier
        if entry is None or (isinstance(source, LoadsTables) and not source.is_loaded(frontier)):
            raise CutAgain(f"{table} is not loaded to its end yet", table=table.text)
        done = adopt_resync(table, self._branches, self._coordinator, self._parts.clock, entry, stop=self._end)
        if not isinstance(done, Adopted):
            raise CutAgain(f"{table}: main or the branch has moved on: {done}", table=table.text)
        _log.warning("loaded anew; readers see it from now on", table=table.text, resolved=entry.resolved.text)
        return CaughtUp()


def on_branches(parts: Components) -> Components:
    """The parts of a loop that publishes to branches. Raises AssertionError if there are none."""
    if parts.resync is None:
        raise AssertionError("this pipeline cannot load tables anew")
    return replace(
        parts, committer=parts.resync.committer, locators=parts.resync.locators, together=False, agreement=None
    )
