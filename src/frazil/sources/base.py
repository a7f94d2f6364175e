"""The port between a pipeline and its source, in the words of Spark's `DataSourceStreamReader`.

    driver      initial(frontiers) -> latest() -> partitions(window)          commit(published), stop()
                                         ^             |                         ^
                                         `-- next -----|--- resume_state, published with the epoch
                                                       v
    executors   Reader.read(partition, cut) -> change rows, a report;  Decoder: their keys and payloads -> Arrow columns

`Source` is what every source must do. What only some can do is a protocol of its own, which the pipeline asks for by
`isinstance`: a source that has the methods has the capability.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from frazil.errors import SourceLost
from frazil.model.change import PartitionReport
from frazil.model.frontier import Frontier, LoadProgress, Window
from frazil.model.position import Position
from frazil.model.schema import KnownTable, SourceSchema

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table as the source offers it."""

    name: str


@dataclass(frozen=True, slots=True)
class InputPartition:
    """A piece of a source that one task reads by itself. `name` is unique in the pipeline and returns in the reader's
    report; `facts` is the source's own JSON; `size`, about the bytes of its rows once they are read, balances the tasks
    and says how many there should be. `apart` if no other partition of the table has a key of its, and its changes of
    one key come together, in order."""

    table: int
    name: str
    facts: str
    size: int
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """Where the epochs of one table lie in a window: (lower, uppers[0]], (uppers[0], uppers[1]], ...

    Positions as their (major, minor) order. A change at or below lower is a duplicate and is dropped;
    one beyond the last upper stays in its partition for a later window.
    """

    lower: tuple[int, int] | None
    uppers: tuple[tuple[int, int], ...]


class Memory(Protocol):
    """A text of the source's own, kept as long as the pipeline is, whatever becomes of its tables and their ledgers.
    It must decide nothing that a ledger can tell."""

    def recall(self) -> str:
        """Empty if nothing was kept. Raises CatalogUnavailable."""

    def keep(self, text: str) -> None:
        """In place of what was kept. Raises CatalogUnavailable."""


class Reader(Protocol):
    """Picklable: it crosses to the executors."""

    def read(self, partition: InputPartition, cut: Cut) -> Iterator[pa.RecordBatch]:
        """Batches of `model.arrow.CHANGE_SCHEMA` rows; the last row of a partition is its report.

        Raises BadInput naming file and line.
        """


class Decoder(Protocol):
    """Picklable: it crosses to the executors."""

    def keys(self, table: int, keys: pa.Array) -> pa.RecordBatch:
        """The key columns of canonical key texts."""

    def rows(self, table: int, keys: pa.Array, payloads: pa.Array) -> pa.RecordBatch:
        """All columns of the table's source schema, and those that they have outgrown. Raises UnknownColumn or
        DoesNotFit."""


@runtime_checkable
class TellsSent(Protocol):
    """A decoder of changes that may come without cells (`SourceSchema.leaves_out`); their `part` is
    `model.schema.part_without` of those."""

    def sent(self, table: int, payloads: pa.Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """The mask beside `rows`: for each payload, which of its columns came with the change. The others are what
        they were before it."""


class Source(Protocol):
    """One feed. The pipeline asks it what is resolved and for the partitions of a window, and tells it what is
    published."""

    @property
    def incarnation(self) -> str:
        """What makes its positions comparable; another one than the ledger's stops the pipeline (H9)."""

    def tables(self) -> Sequence[SourceTable]:
        """What the source offers right now."""

    def for_tables(self, tables: Collection[str]) -> Source:
        """Another reader of the same source, for these tables alone; begun and stopped by itself."""

    def initial(self, frontiers: Mapping[str, Frontier | None]) -> None:
        """Takes up reading after these frontiers, by source table. Raises SourceLost if the source no longer
        holds what lies behind one of them."""

    def latest(self) -> tuple[Position, ...]:
        """Resolved positions that are not yet behind the last window, ascending."""

    @property
    def is_caught_up(self) -> bool:
        """Whether `latest`, asked until now, has told all that had happened at the time of `initial`. An empty answer
        by itself says nothing: a stream may not have begun."""

    def partitions(
        self, window: Window, frontiers: Mapping[str, Frontier | None], index: Mapping[str, int]
    ) -> Sequence[InputPartition]:
        """All partitions that may hold changes of these tables within the window. Asked for more than once before the
        next `latest`, the last window is the one that is written."""

    def resume_state(self, table: str, upper: Position, reports: Sequence[PartitionReport]) -> str:
        """What must be remembered together with `upper` to go on from there."""

    def commit(self, published: Position) -> None:
        """Every table is published up to here; the source may forget what lies behind."""

    def stop(self) -> None:
        """Ends what `initial` began."""

    def schemas(
        self,
        partitions: Sequence[InputPartition],
        targets: Mapping[str, KnownTable],
        *,
        look: bool = False,
        ask: bool = False,
    ) -> Mapping[str, SourceSchema]:
        """Tables of which columns or key cannot be told are left out. `look` reads the rows anyway, `ask` asks again
        who describes a table."""

    def schema_changed(self, table: str, partitions: Sequence[InputPartition]) -> bool:
        """Whether the source has changed the table since its source schema was last asked for."""

    def preview(self, table: str, target: KnownTable | None) -> SourceSchema | None:
        """What the table looks like judging by a few of its rows, resolved or not."""

    def reader(self, index: Mapping[str, int], schemas: Mapping[str, SourceSchema]) -> Reader: ...

    def decoder(self, index: Mapping[str, int], schemas: Mapping[str, SourceSchema]) -> Decoder: ...


@runtime_checkable
class LoadsTables(Protocol):
    """A source that reads a table which begins without a frontier with all it holds by then: a first load. So a table
    can be loaded anew."""

    def is_loaded(self, frontier: Frontier | None) -> bool:
        """Whether a table at this frontier has its first load behind it."""

    def loading(self, table: str) -> LoadProgress | None:
        """How far the first load of a table is; None if none is under way."""


@runtime_checkable
class LosesTables(Protocol):
    """A source that can lose single tables and goes on with the others."""

    def lost_tables(self) -> Mapping[str, SourceLost]:
        """Tables that this reader can no longer follow, each with why."""


@runtime_checkable
class Remarks(Protocol):
    """A source that has more to say of a table than its columns."""

    def remarks(self, table: str) -> Sequence[str]:
        """Sentences for `frazil check`."""


@runtime_checkable
class TriesRows(Protocol):
    """A source whose rows can be tried before a table is made for them."""

    def try_rows(self, table: str, source_schema: SourceSchema) -> None:
        """Reads and decodes some of the newest rows. Raises BadInput for one that does not fit."""


@runtime_checkable
class TellsTimes(Protocol):
    """A source whose positions tell no time by themselves: an LSN, an offset."""

    def time_of(self, position: Position) -> datetime | None:
        """When the source was there, by its own clock; None if it cannot tell. The ledger keeps it."""


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
class RereadsLines(Protocol):
    """A reader of lines, which can be asked for one line again."""

    def reread(self, table: int, raw: bytes) -> ReadLine:
        """Raises BadInput if it still is no change."""
