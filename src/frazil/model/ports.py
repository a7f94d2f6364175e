"""The seams of publishing; those of a source are in `sources.base`.

Committer  heads, live files and commits, on one table
Locator    an epoch's keys -> the deletes that take their older rows away, at one head
Arbiter    which coordinator of a pipeline is the newest
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from frazil.model.commit import CommitAnswer, CommitPlan, ReplaceFiles
from frazil.model.files import LiveDelete, LiveFiles, WrittenFile
from frazil.model.ids import JobId, TableName
from frazil.model.ledger import Fence, TableHead

if TYPE_CHECKING:
    pass


class Committer(Protocol):
    def head(self, table: TableName) -> TableHead:
        """Raises CatalogUnavailable, or TableChanged if the table is gone."""

    def commit(self, table: TableName, head: TableHead, plan: CommitPlan) -> CommitAnswer:
        """Lands on exactly this head or not at all; never retries by itself."""

    def live(self, table: TableName, head: TableHead, bounds_of: Sequence[int] = ()) -> LiveFiles:
        """The data files and deletes of exactly this head, with the bounds of these fields. Raises like `head`."""


class TransactionalCommitter(Committer, Protocol):
    def commit_many(self, commits: Sequence[tuple[TableName, TableHead, CommitPlan]]) -> Sequence[CommitAnswer]:
        """Several tables in one request, each on exactly its head; never retries by itself. One answer for each, in
        order. Of what was not accepted, any part may have landed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """What takes an epoch's place in the table at one head: all files to add, the vectors they replace, and the data
    files that must still be there. `found` counts older rows that were found."""

    files: tuple[WrittenFile, ...]
    removed_deletes: tuple[LiveDelete, ...] = ()
    must_exist: tuple[str, ...] = ()
    found: int = 0


class Locator(Protocol):
    def locate(self, files: Sequence[WrittenFile], head: TableHead, *, by_equality: bool) -> Located:
        """Turns what the workers wrote for one epoch into what is published on this head.

        `files` are the epoch's data files, its deleted keys as equality-delete files, and partial rows, of which data
        files are made: what they lack is what the older row has at this head, NULL if there is none. Every older row
        of a key among them is found in the live files of the head and deleted at its position. With `by_equality`
        nothing is searched: equality deletes of all the keys stand in (conversion makes vectors of them later); no
        partial row is among the files then. May be asked again for another head; what did not change between the two
        is not searched again. Raises Transient errors for storage that does not answer, Terminal ones for a file that
        is gone.
        """


class ReplacingCommitter(Committer, Protocol):
    def repair(self, table: TableName, head: TableHead, plan: ReplaceFiles) -> CommitAnswer:
        """As `commit`, for a snapshot that is no epoch."""


class Arbiter(Protocol):
    """The pipeline's row in `_frazil.pipelines`: one register with compare-and-set."""

    def newest(self, job: JobId) -> tuple[Fence | None, object]:
        """The newest fence and a handle to what was read."""

    def take(self, job: JobId, fence: Fence, read: object) -> CommitAnswer:
        """Writes the fence if nothing has changed since `read`."""
