"""The edges of a table that is loaded anew: its branch, as a lake to publish to, with the faults of every commit.

heads, begin, adopt, abandon     what `commit.resync_runner` asks for
head, live, commit               what `commit.publisher` asks for, on the branch
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from frazil import errors
from frazil.clock import Clock
from frazil.model.commit import ClearPlan, CommitAnswer, CommitPlan
from frazil.model.files import LiveFiles, Message
from frazil.model.ids import TableName
from frazil.model.ledger import BranchedHead, TableHead
from frazil.model.ports import Arbiter
from frazil.model.position import Position

from .locating import SimulatedLocator
from .tables import Metadata, Violation
from .workers import TableWork

if TYPE_CHECKING:
    from .edges import WorldEdges


class BranchEdges:
    """All edges of a process, with the branch of one table in place of main."""

    def __init__(self, edges: WorldEdges, table: TableName) -> None:
        self.edges, self.world, self.table = edges, edges.world, table
        self.committer = self
        self.arbiter: Arbiter = edges
        self.clock: Clock = edges
        self._seen = 0

    # ResyncCommitter

    def heads(self, table: TableName) -> BranchedHead:
        self.edges.look()
        self._seen = self.world.ended[table]
        return self.world.catalog.tables[table].heads()

    def begin(self, table: TableName, head: TableHead, plan: ClearPlan) -> CommitAnswer:
        return self.edges.conditional_write(lambda: self.world.clear(table, _metadata(head), plan))

    def adopt(self, table: TableName, head: TableHead, plan: CommitPlan) -> CommitAnswer:
        return self.edges.conditional_write(lambda: self.world.adopt(table, _metadata(head), plan))

    def abandon(self, table: TableName, head: TableHead) -> CommitAnswer:
        return self.edges.conditional_write(lambda: self.world.drop(table, _metadata(head)))

    # Lake

    def head(self, table: TableName) -> TableHead:
        self.edges.look()
        head = self.world.catalog.tables[table].heads().branch
        if head is None:
            if self.world.ended[table] == self._seen:
                raise Violation(f"{self.edges.name} loads {table} on a branch that is not there, and nobody ended it")
            raise errors.TableChanged("the branch is gone", hint="restart", table=table.text, what="branch gone")
        return head

    def live(self, table: TableName, head: TableHead, bounds_of: Sequence[int] = ()) -> LiveFiles:
        return self.edges.live(table, head, bounds_of)

    def commit(self, table: TableName, head: TableHead, plan: CommitPlan) -> CommitAnswer:
        return self.edges.conditional_write(lambda: self.world.load(table, _metadata(head), plan))

    def commit_many(self, commits: Sequence[tuple[TableName, TableHead, CommitPlan]]) -> list[CommitAnswer]:
        raise AssertionError("a table is loaded anew by itself")

    # What the driver asks for

    def write(self, work: Sequence[TableWork]) -> tuple[int, list[Message]]:
        return self.edges.write(work)

    def acknowledge(self, position: Position | None, tables: tuple[TableName, ...]) -> None:
        """What is only on a branch is not published."""

    def resumed(self, fence_generation: int) -> None:
        self.edges.resumed(fence_generation)

    def idle(self) -> None:
        self.edges.idle()

    def writes_ahead(self) -> bool:
        return self.edges.writes_ahead()

    def locator(self, table: TableName) -> SimulatedLocator:
        return SimulatedLocator(self.edges, table)

    def branch(self, table: TableName) -> BranchEdges:
        return self

    def resync_wanted(self, table: TableName) -> bool:
        return False

    def by_chance_anew(self) -> bool:
        return False

    def tell(self, what: str) -> None:
        self.edges.tell(f"(branch) {what}")


def _metadata(head: TableHead) -> Metadata:
    assert isinstance(head.base, Metadata)
    return head.base
