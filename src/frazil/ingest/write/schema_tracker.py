"""What each table looks like, kept while the pipeline runs, and the executors' roads that follow from it.

first splits of a table ----------------> configuration, SQL, enriched schema, target table, inference --+
a new version of its schema ------------> who describes it is asked again ----------------------------+--> TableShape
a column or a value nobody announced ---> the rows of this window are looked at ----------------------+      |
                                                                                                             v
                                   under the table's own names: renamed columns, columns that go on in another one
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from frazil.config.routing import Route
from frazil.daemon.tables import RunningTable
from frazil.epochs.cut import assign
from frazil.errors import BadInput, DoesNotFit, UnknownColumn
from frazil.lake.schemas import source_schema
from frazil.lake.settling import contradictions, settle
from frazil.lake.tables import LoadedTable
from frazil.model.columns import TableShape
from frazil.model.ports import Decoder, Reader, Source, Split
from frazil.model.remembered import KnownTable, remembered
from frazil.model.write import DeleteMode
from frazil.sources.cockroachdb.reader import Assign
from frazil.sources.cockroachdb.shapes import pin_block


class ShapingSource(Source, Protocol):
    """A source that can say what its tables look like, and hand out the roads to them."""

    def shapes(
        self, splits: Sequence[Split], targets: Mapping[str, KnownTable], *, look: bool = False, ask: bool = False
    ) -> Mapping[str, TableShape]:
        """Tables of which columns or key cannot be told are left out. `look` reads the rows anyway, `ask` asks again
        who describes a table."""

    def renewed(self, table: str, splits: Sequence[Split]) -> bool:
        """Whether the source has changed the table since its shape was last asked for."""

    def preview(self, table: str, target: KnownTable | None) -> TableShape | None:
        """What the table looks like judging by a few of its rows, resolved or not."""

    def beside(self, tables: Collection[str]) -> ShapingSource: ...

    def close(self) -> None:
        """Ends what `open` began."""

    def reader(self, index: Mapping[str, int], shapes: Mapping[str, TableShape], assign: Assign) -> Reader: ...

    def decoder(self, index: Mapping[str, int], shapes: Mapping[str, TableShape]) -> Decoder: ...


class Shaper:
    def __init__(self, source: ShapingSource) -> None:
        self._source = source

    def shape_of(self, table: RunningTable, splits: Sequence[Split]) -> TableShape | None:
        """The shape known so far, or found out now; None while the splits hold no row that tells it."""
        if table.shape is None:
            return self._found(table, splits)
        if self._source.renewed(table.source, splits):
            return self._found(table, splits, ask=True) or table.shape
        return table.shape

    def learn(self, table: RunningTable, splits: Sequence[Split]) -> TableShape | None:
        """The shape after looking at every row of the splits."""
        return self._found(table, splits, look=True)

    def roads(self, tables: Sequence[RunningTable]) -> tuple[Reader, Decoder]:
        shapes = {table.source: table.shape for table in tables if table.shape is not None}
        index = {table.source: table.index for table in tables}
        return self._source.reader(index, shapes, assign), self._source.decoder(index, shapes)

    def preview(self, taken: Route, loaded: LoadedTable | None) -> TableShape | None:
        """What a run would find, judging by a few rows; under the source's names."""
        return self._source.preview(taken.source, known_by(loaded, taken.entry.deletes))

    def pins(self, found: Sequence[tuple[Route, TableShape]]) -> str:
        """The block of the configuration that pins these shapes; empty if there are none."""
        if not found:
            return ""
        targets = {taken.source: taken.target.text for taken, _ in found}
        return pin_block({taken.source: shape for taken, shape in found}, targets)

    def _found(
        self, table: RunningTable, splits: Sequence[Split], *, look: bool = False, ask: bool = False
    ) -> TableShape | None:
        known = known_by(table.loaded, table.options.mode)
        targets = {} if known is None else {table.source: known}
        shape = self._source.shapes(splits, targets, look=look, ask=ask).get(table.source)
        if shape is None or known is None:
            return shape
        if not look and contradictions(shape, known):
            # The source describes its columns as they are now; these rows may be older than that.
            shape = self._source.shapes(splits, targets, look=True).get(table.source, shape)
        return settle(table.target, shape, known, table.options)


def lesson_of(error: BadInput, concerned: Sequence[Sequence[RunningTable]]) -> Sequence[RunningTable] | None:
    """The targets whose source table may have changed its columns, if that is what the error tells; else None."""
    if not isinstance(error, (UnknownColumn, DoesNotFit)):
        return None
    name = error.facts.get("table")
    return next((targets for targets in concerned if any(name in (t.source, t.name) for t in targets)), None)


def known_by(loaded: LoadedTable | None, mode: DeleteMode) -> KnownTable | None:
    """What the target table tells about the source's columns."""
    if loaded is None:
        return None
    return KnownTable(source_schema(loaded.schema, mode), remembered(loaded.properties))
