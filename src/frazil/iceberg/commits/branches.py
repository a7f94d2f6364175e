"""Loads a table anew on a branch of it, and lets main be that branch at once: the Lake of a re-sync (H27).

    begin      main ... s4                  property, tag: s4
                         `-- s5 clear                                         one commit: branch frazil_<job>_resync
    commit     main ... s4                  property, tag: s4
                         `-- s5 -- s6 -- s7                                   epochs, found and published as on main
    adopt      main ... s4 -- s5 -- s6 -- s7 -- s8      property, tag: s8     one commit; the branch is gone
    abandon    main ... s4                  property, tag: s4                 one commit; the branch is gone

Until `adopt`, no reader of main sees anything of it; from then on, all of it. The clear deletes every row that main
had, so that what the source no longer has is gone, whoever wrote it; snapshots up to s4 can still be read by their id.
Main may move meanwhile: whatever was done to it is then history, like s4. s8 is empty: it carries the fence of whoever
adopted, and the ledger as main has it.

Each of these commits goes by `transaction`: once, on what was read, or not at all. Which of them may be sent is for the
coordinator to say (`commit.resync_machine`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from frazil.errors import TableChanged
from frazil.iceberg.commits.committer import IcebergCommitter, base_of, snapshot_of, transaction_of
from frazil.iceberg.commits.operations import AdoptBranch, TableTransaction
from frazil.iceberg.tables.head import Base
from frazil.iceberg.tables.tables import LoadedTable
from frazil.model.commit import ClearPlan, CommitAnswer, CommitPlan
from frazil.model.files import LiveFiles
from frazil.model.ids import JobId, TableName
from frazil.model.ledger import BRANCH_FACT, BranchedHead, TableHead


class BranchCommitter:
    """Implements `frazil.model.ports.TransactionalCommitter` on the branch on which a pipeline loads tables anew. Safe
    to be used from several threads."""

    def __init__(self, committer: IcebergCommitter, job: JobId) -> None:
        self._committer = committer
        self._job = job
        self.branch = job.resync_branch

    def heads(self, table: TableName) -> BranchedHead:
        """Main and the branch at one moment. Raises CatalogUnavailable, CatalogRefused, or TableChanged if the table is
        gone."""
        main, branch = self._committer.heads(table, self.branch)
        if branch is not None:
            properties = {key: value for key, value in branch.properties.items() if key != self._job.ledger_property}
            branch = replace(branch, properties=properties)
        return BranchedHead(main, branch)

    def head(self, table: TableName) -> TableHead:
        """The branch's. Raises like `heads`, and TableChanged if there is no such branch, or it is none of ours: then
        nothing may be published there."""
        head = self.heads(table).branch
        mark = None if head is None else head.mark(self._job)
        if head is None or mark is None or mark.branch != self.branch:
            raise TableChanged(
                f"{table} is no longer being loaded anew: its branch {self.branch} "
                + ("is gone" if head is None else "is none of this pipeline"),
                hint="Another process of the pipeline has finished the load, or somebody removed the branch. Restart "
                f"the pipeline; if {table} is still wrong then, run `frazil resync CONFIG {table}`.",
                table=table.text,
                what="branch gone",
                branch=self.branch,
            )
        return head

    def commit(self, table: TableName, head: TableHead, plan: CommitPlan) -> CommitAnswer:
        """Lands on exactly this head of the branch or not at all; never retries by itself."""
        return self._committer.land(*self._landing(table, head, plan))

    def commit_many(self, commits: Sequence[tuple[TableName, TableHead, CommitPlan]]) -> tuple[CommitAnswer, ...]:
        """As `commit`, for several tables in one request. Only for a catalog that declares it."""
        return self._committer.land_many([self._landing(*commit) for commit in commits])

    def live(self, table: TableName, head: TableHead, bounds_of: Sequence[int] = ()) -> LiveFiles:
        """The data files and deletes of exactly this head. Raises CatalogUnavailable or CatalogRefused."""
        return self._committer.live(table, head, bounds_of)

    def loaded(self, table: TableName, head: TableHead) -> LoadedTable:
        """The table's schema, specs and version at exactly this head; nothing is read. Raises ConfigError."""
        return self._committer.loaded(table, head)

    def begin(self, table: TableName, head: TableHead, plan: ClearPlan) -> CommitAnswer:
        """Makes the branch, or clears it once more if it is there. `head` is main's: the commit lands if neither main
        nor the branch has moved since, or not at all; never retries by itself."""
        return self._committer.clear(table, head, self.branch, plan)

    def adopt(self, table: TableName, head: TableHead, plan: CommitPlan) -> CommitAnswer:
        """Main becomes this head of the branch, with the plan's ledger on top, and the branch is removed. Lands if
        neither main nor the branch has moved since, or not at all; never retries by itself."""
        if plan.files or plan.forget:
            raise ValueError(f"{table}: what main adopts was published on the branch before")
        transaction = TableTransaction((*transaction_of(plan).operations, AdoptBranch()))
        return self._committer.land(base_of(table, head, self.branch), head, plan, transaction)

    def abandon(self, table: TableName, head: TableHead) -> CommitAnswer:
        """Removes the branch, and nothing else. Lands if neither main nor the branch has moved since its head was read,
        or not at all; never retries by itself."""
        return self._committer.remove_branch(table, head, self.branch)

    def _landing(
        self, table: TableName, head: TableHead, plan: CommitPlan
    ) -> tuple[Base, TableHead, CommitPlan, TableTransaction]:
        snapshot = snapshot_of(plan)
        marked = replace(snapshot, summary={**snapshot.summary, BRANCH_FACT: self.branch})
        return base_of(table, head, self.branch), head, plan, TableTransaction((marked,))
