"""The seams between stages. A stage implements one of these or is handed one; it never imports another stage.

Source   (driver)    lists what is resolved and hands out splits
Reader   (executor)  one split -> change rows and a report
Decoder  (executor)  keys and payloads of one table -> Arrow columns
Lake     (driver)    heads, live files and commits, on one table
Locator  (driver)    an epoch's keys -> the deletes that take their older rows away, at one head
Arbiter  (driver)    which coordinator of a pipeline is the newest
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from frazil.errors import SourceLost
from frazil.model.change import SplitReport
from frazil.model.commit import CommitAnswer, CommitPlan, ReplaceFiles
from frazil.model.files import FileClosed, LiveDelete, LiveFiles
from frazil.model.frontier import Frontier, LoadProgress, Window
from frazil.model.ids import JobId, TableName
from frazil.model.ledger import Fence, TableHead
from frazil.model.position import Position
from frazil.model.schema import SourceSchema

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Split:
    """A piece of a source that one task reads by itself. `name` is unique in the pipeline and returns in the reader's
    report; `facts` is the source's own JSON; `size`, about the bytes of its rows once they are read, balances the tasks
    and says how many there should be. `apart` if no other split of the table has a key of its, and its changes of one
    key come together, in order."""

    table: int
    name: str
    facts: str
    size: int
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """Where the epochs of one table lie in a window: (lower, uppers[0]], (uppers[0], uppers[1]], ...

    Positions as their (major, minor) order. A change at or below lower is a duplicate and is dropped;
    one beyond the last upper stays in its split for a later window.
    """

    lower: tuple[int, int] | None
    uppers: tuple[tuple[int, int], ...]


class Reader(Protocol):
    """Picklable: it crosses to the executors."""

    def read(self, split: Split, cut: Cut) -> Iterator[pa.RecordBatch]:
        """Batches of `ingest.write.change_rows.TRAVEL` rows; the last row of a split is its report.

        Raises BadInput naming file and line.
        """


@dataclass(frozen=True, slots=True)
class ReadLine:
    """What one raw line of a feed turned out to be."""

    key: str
    major: int
    minor: int
    deleted: bool
    payload: bytes | None
    before: bytes | None


@runtime_checkable
class TriesRows(Protocol):
    """A source whose rows can be tried before a table is made for them."""

    def try_rows(self, table: str, source_schema: SourceSchema) -> None:
        """Reads and decodes some of the newest rows. Raises BadInput for one that does not fit."""


@runtime_checkable
class RereadsLines(Protocol):
    """A reader of lines, which can be asked for one line again."""

    def reread(self, table: int, raw: bytes) -> ReadLine:
        """Raises BadInput if it still is no change."""


class Decoder(Protocol):
    """Picklable: it crosses to the executors."""

    def keys(self, table: int, keys: pa.Array) -> pa.RecordBatch:
        """The key columns of canonical key texts."""

    def rows(self, table: int, keys: pa.Array, payloads: pa.Array) -> pa.RecordBatch:
        """All columns of the table's source schema, and those that they have outgrown. Raises UnknownColumn or
        DoesNotFit."""


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table as the source offers it."""

    name: str


class Source(Protocol):
    """One feed. The daemon polls it, asks for splits of a window, and tells it what is published."""

    @property
    def incarnation(self) -> str:
        """What makes its positions comparable; another one than the ledger's stops the pipeline (H9)."""

    def tables(self) -> Sequence[SourceTable]:
        """What the source offers right now."""

    def open(self, frontiers: Mapping[str, Frontier | None]) -> None:
        """Takes up reading after these frontiers, by source table. Raises SourceLost if the source no longer
        holds what lies behind one of them."""

    def poll(self) -> tuple[Position, ...]:
        """Resolved positions that are not yet behind the last window, ascending."""

    @property
    def is_caught_up(self) -> bool:
        """Whether the last `poll`, with those before it, has told all that had happened when the source was opened. An
        empty one by itself says nothing: a stream may not have begun."""

    def splits(
        self, window: Window, frontiers: Mapping[str, Frontier | None], index: Mapping[str, int]
    ) -> Sequence[Split]:
        """All splits that may hold changes of these tables within the window. Asked for more than once before the next
        `poll`, the last window is the one that is written."""

    def notes(self, table: str, upper: Position, reports: Sequence[SplitReport]) -> str:
        """What must be remembered together with `upper` to go on from there."""

    def acknowledge(self, published: Position) -> None:
        """Every table is published up to here; the source may forget what lies behind."""

    def beside(self, tables: Collection[str]) -> Source:
        """Another reader of the same source, for these tables alone; opened and closed by itself."""

    @property
    def can_reload(self) -> bool:
        """Whether a table that is opened without a frontier is read with all it holds by then: a first load."""

    def is_loaded(self, frontier: Frontier | None) -> bool:
        """Whether a table at this frontier has its first load behind it. Always, for a source without first loads."""

    def lost(self) -> Mapping[str, SourceLost]:
        """Tables that this reader can no longer follow, each with why; it goes on with the others."""

    def loading(self, table: str) -> LoadProgress | None:
        """How far the first load of a table is; None if none is under way."""


@runtime_checkable
class Remarks(Protocol):
    """A source that has more to say of a table than its columns."""

    def remarks(self, table: str) -> Sequence[str]:
        """Sentences for `frazil check`."""


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

    files: tuple[FileClosed, ...]
    removed_deletes: tuple[LiveDelete, ...] = ()
    must_exist: tuple[str, ...] = ()
    found: int = 0


class Locator(Protocol):
    def locate(self, files: Sequence[FileClosed], head: TableHead, *, by_equality: bool) -> Located:
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
