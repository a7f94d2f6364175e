"""The branches on which tables are loaded anew, as a lake to publish to, with the faults of every commit.

heads, begin, adopt, abandon     what `commit.resync_runner` asks for
head, live, commit               what `commit.publisher` asks for, on the branch
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from frazil import errors
from frazil.model.commit import ClearPlan, CommitAnswer, CommitPlan
from frazil.model.files import LiveFiles
from frazil.model.ids import TableName
from frazil.model.ledger import BranchedHead, TableHead

from .tables import Metadata

if TYPE_CHECKING:
    from .edges import RunEdges


class BranchEdges:
    def __init__(self, edges: RunEdges) -> None:
        self.edges, self.world = edges, edges.world
        self._seen: dict[TableName, int] = {}

    # ResyncCommitter

    def heads(self, table: TableName) -> BranchedHead:
        self.edges.look(table)
        self._seen[table] = self.world.ended[table]
        return self.edges.metadata(table).heads()

    def begin(self, table: TableName, head: TableHead, plan: ClearPlan) -> CommitAnswer:
        return self.edges.conditional_write(lambda: self.world.clear(table, _metadata(head), plan), table)

    def adopt(self, table: TableName, head: TableHead, plan: CommitPlan) -> CommitAnswer:
        return self.edges.conditional_write(lambda: self.world.adopt(table, _metadata(head), plan), table)

    def abandon(self, table: TableName, head: TableHead) -> CommitAnswer:
        return self.edges.conditional_write(lambda: self.world.drop(table, _metadata(head)), table)

    # Committer

    def head(self, table: TableName) -> TableHead:
        self.edges.look(table)
        head = self.edges.metadata(table).heads().branch
        if head is None:
            if self.world.ended[table] == self._seen.get(table):
                self.world.violated(f"{self.edges.name} loads {table} on a branch that is not there: nobody ended it")
            raise errors.TableChanged("the branch is gone", hint="restart", table=table.text, what="branch gone")
        return head

    def live(self, table: TableName, head: TableHead, bounds_of: Sequence[int] = ()) -> LiveFiles:
        return self.edges.live(table, head, bounds_of)

    def commit(self, table: TableName, head: TableHead, plan: CommitPlan) -> CommitAnswer:
        return self.edges.conditional_write(lambda: self.world.load(table, _metadata(head), plan), table)

    def commit_many(self, commits: Sequence[tuple[TableName, TableHead, CommitPlan]]) -> list[CommitAnswer]:
        raise AssertionError("a table is loaded anew by itself")


def _metadata(head: TableHead) -> Metadata:
    assert isinstance(head.base, Metadata)
    return head.base
