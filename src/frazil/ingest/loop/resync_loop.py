"""Loads a table anew beside the others, on a branch that main becomes at once (H27).

    source lost, or asked for --> begin: branch, cleared --> Cursor on the branch --caught up--> adopt --> CaughtUp
                                     ^                            |
                                     `--- source lost again ------'   anew

A crash in between leaves the branch: the next start finds it and goes on behind what is published there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Event

from frazil import errors
from frazil.coordinator.admission import Coordinator
from frazil.coordinator.resync import Adopted, Loading, NotUnderWay, resync_stage
from frazil.coordinator.resyncer import ResyncLake, adopt_resync, begin_resync
from frazil.daemon.cursor import CaughtUp, Cursor, CutAgain, Ending, Failed
from frazil.daemon.parts import Locators, Parts
from frazil.daemon.places import Place, Places, RoutedLake
from frazil.daemon.tables import RunningTable, companion_of
from frazil.lake.branches import BranchLake
from frazil.model.commit import ClearPlan, CommitAnswer, CommitPlan
from frazil.model.epoch import Frontier
from frazil.model.ledger import BranchedHead, TableHead
from frazil.model.names import JobId, TableName
from frazil.model.ports import Locator, TransactionalLake
from frazil.observability.logs import Log
from frazil.workers.lookup.tally import IndexTally

_log = Log("frazil.resync")


class RoutedBranches(RoutedLake):
    """The branches of mirrors, over several places; companions are published as ever."""

    def __init__(self, place_of: Callable[[TableName], Place], job: JobId) -> None:
        super().__init__(place_of)
        self._job = job
        self._branches: dict[str, BranchLake] = {}

    def lake_of(self, table: TableName) -> TransactionalLake:
        return super().lake_of(table) if companion_of(table) != table else self.branches_of(table)

    def branches_of(self, table: TableName) -> BranchLake:
        place = self._place_of(table)
        name = place.catalog.settings.name
        if name not in self._branches:
            self._branches[name] = BranchLake(place.lake, self._job)
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

    def __init__(self, places: Places, branches: RoutedBranches) -> None:
        self._places = places
        self._branches = branches
        self._made: dict[str, Locators] = {}

    def of(self, table: TableName) -> Locator:
        place = self._places.of(table)
        name = place.catalog.settings.name
        if name not in self._made:
            self._made[name] = place.locators.on(self._branches.branches_of(table))
        return self._made[name].of(table)

    @property
    def index(self) -> IndexTally:
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


class ResyncCursor:
    """A cursor of one table on its branch, from the first look to its adoption. `anew` clears what was begun before."""

    def __init__(
        self,
        parts: Parts,
        branches: ResyncLake,
        coordinator: Coordinator,
        mirror: RunningTable,
        make_cursor: Callable[[], Cursor],
        *,
        anew: bool,
    ) -> None:
        self._parts = parts
        self._branches = branches
        self._coordinator = coordinator
        self._mirror = mirror
        self._make_cursor = make_cursor
        self._anew = anew
        self._end = Event()
        self._cursor: Cursor | None = None
        self.has_begun = False

    @property
    def tables(self) -> tuple[str, ...]:
        return (self._mirror.source,)

    @property
    def has_progressed(self) -> bool:
        return self._cursor is not None and self._cursor.has_progressed

    def end(self) -> None:
        self._end.set()
        if self._cursor is not None:
            self._cursor.end()

    def run(self) -> Ending:
        """Like a cursor's. CaughtUp if main shows what was loaded."""
        table, clock = self._mirror.target, self._parts.clock
        try:
            begun = begin_resync(
                table,
                self._branches,
                self._coordinator,
                clock,
                anew=self._anew,
                source=self._mirror.source,
                stop=self._end,
            )
            self.has_begun = True
            self._parts.tables.set_property(table, self._coordinator.job.resync_property, None)
            _log.warning("loading anew on a branch", table=table.text, resumed=begun.entry is not None)
            self._cursor = self._make_cursor()
            if self._end.is_set():
                self._cursor.end()
            ending = self._cursor.run()
            return self._adopted() if isinstance(ending, CaughtUp) else ending
        except BaseException as error:
            return Failed({self._mirror.source: error})

    def _adopted(self) -> Ending:
        table = self._mirror.target
        branch = self._branches.heads(table).branch
        entry = None if branch is None else branch.newest(self._coordinator.job)
        if entry is None or not self._parts.source.is_loaded(Frontier(entry.resolved, entry.notes)):
            raise CutAgain(f"{table} is not loaded to its end yet", table=table.text)
        done = adopt_resync(table, self._branches, self._coordinator, self._parts.clock, entry, stop=self._end)
        if not isinstance(done, Adopted):
            raise CutAgain(f"{table}: main or the branch has moved on: {done}", table=table.text)
        _log.warning("loaded anew; readers see it from now on", table=table.text, resolved=entry.resolved.text)
        return CaughtUp()


def on_branches(parts: Parts) -> Parts:
    """The parts of a cursor that publishes to branches. Raises AssertionError if there are none."""
    if parts.resync is None:
        raise AssertionError("this pipeline cannot load tables anew")
    return replace(parts, lake=parts.resync.lake, locators=parts.resync.locators, together=False, agreement=None)
