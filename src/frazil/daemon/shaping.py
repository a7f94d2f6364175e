"""What each table looks like, kept while the pipeline runs, and the executors' roads that follow from it.

first splits of a table --> configuration, SQL, enriched schema, target table, inference --> TableShape
a column nobody announced --> look at the rows of this window --> a wider TableShape
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from frazil.config.routing import Route
from frazil.daemon.tables import RunningTable
from frazil.epochs.cut import assign
from frazil.lake.schemas import source_schema
from frazil.lake.tables import LoadedTable
from frazil.model.columns import Schema, TableShape
from frazil.model.ports import Decoder, Reader, Source, Split
from frazil.sources.cockroachdb.reader import Assign
from frazil.sources.cockroachdb.shapes import pin_block


class ShapingSource(Source, Protocol):
    """A source that can say what its tables look like, and hand out the roads to them."""

    def shapes(
        self, splits: Sequence[Split], targets: Mapping[str, Schema], *, look: bool = False
    ) -> Mapping[str, TableShape]:
        """Tables of which columns or key cannot be told are left out. `look` reads the rows anyway."""

    def preview(self, table: str, target: Schema | None) -> TableShape | None:
        """What the table looks like judging by a few of its rows, resolved or not."""

    def close(self) -> None:
        """Ends what `open` began."""

    def reader(self, index: Mapping[str, int], shapes: Mapping[str, TableShape], assign: Assign) -> Reader: ...

    def decoder(self, index: Mapping[str, int], shapes: Mapping[str, TableShape]) -> Decoder: ...


class Shaper:
    def __init__(self, source: ShapingSource) -> None:
        self._source = source

    def shape_of(self, table: RunningTable, splits: Sequence[Split]) -> TableShape | None:
        """The shape known so far, or found out now; None while the splits hold no row that tells it."""
        return table.shape or self._found(table, splits, look=False)

    def learn(self, table: RunningTable, splits: Sequence[Split]) -> TableShape | None:
        """The shape after looking at every row of the splits."""
        return self._found(table, splits, look=True)

    def roads(self, tables: Sequence[RunningTable]) -> tuple[Reader, Decoder]:
        shapes = {table.source: table.shape for table in tables if table.shape is not None}
        index = {table.source: table.index for table in tables}
        return self._source.reader(index, shapes, assign), self._source.decoder(index, shapes)

    def preview(self, taken: Route, loaded: LoadedTable | None) -> TableShape | None:
        """What a run would find, judging by a few rows."""
        return self._source.preview(taken.source, _known(taken, loaded))

    def pins(self, found: Sequence[tuple[Route, TableShape]]) -> str:
        """The block of the configuration that pins these shapes; empty if there are none."""
        if not found:
            return ""
        targets = {taken.source: taken.target.text for taken, _ in found}
        return pin_block({taken.source: shape for taken, shape in found}, targets)

    def _found(self, table: RunningTable, splits: Sequence[Split], look: bool) -> TableShape | None:
        known = _known(table.route, table.loaded)
        targets = {} if known is None else {table.source: known}
        return self._source.shapes(splits, targets, look=look).get(table.source)


def _known(taken: Route, loaded: LoadedTable | None) -> Schema | None:
    """What the target table tells about the source's columns."""
    return None if loaded is None else source_schema(loaded.schema, taken.entry.deletes)
