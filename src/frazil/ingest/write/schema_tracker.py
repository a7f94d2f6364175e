"""What each table looks like, kept while the pipeline runs, and the executors' roads that follow from it.

first splits of a table ----------------> configuration, SQL, enriched schema, target table, inference --+
a new version of its schema ------------> who describes it is asked again ----------------------------+--> SourceSchema
a column or a value nobody announced ---> the rows of this window are looked at ----------------------+      |
                                                                                                             v
                                   under the table's own names: renamed columns, columns that go on in another one
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from frazil.config.routing import Route
from frazil.errors import BadInput, DoesNotFit, UnknownColumn
from frazil.iceberg.tables.column_match import contradictions, named, settle
from frazil.iceberg.tables.new_schema import without_changelog
from frazil.iceberg.tables.tables import LoadedTable
from frazil.ingest.loop.target_tables import TargetTable
from frazil.model.ports import Decoder, Reader, Source, Split
from frazil.model.schema import KnownTable, SourceSchema, remembered
from frazil.model.write import DeleteMode


class SchemaSource(Source, Protocol):
    """A source that can say what its tables look like, and hand out the roads to them."""

    def schemas(
        self, splits: Sequence[Split], targets: Mapping[str, KnownTable], *, look: bool = False, ask: bool = False
    ) -> Mapping[str, SourceSchema]:
        """Tables of which columns or key cannot be told are left out. `look` reads the rows anyway, `ask` asks again
        who describes a table."""

    def schema_changed(self, table: str, splits: Sequence[Split]) -> bool:
        """Whether the source has changed the table since its source schema was last asked for."""

    def preview(self, table: str, target: KnownTable | None) -> SourceSchema | None:
        """What the table looks like judging by a few of its rows, resolved or not."""

    def beside(self, tables: Collection[str]) -> SchemaSource: ...

    def close(self) -> None:
        """Ends what `open` began."""

    def reader(self, index: Mapping[str, int], schemas: Mapping[str, SourceSchema]) -> Reader: ...

    def decoder(self, index: Mapping[str, int], schemas: Mapping[str, SourceSchema]) -> Decoder: ...


class SchemaTracker:
    def __init__(self, source: SchemaSource) -> None:
        self._source = source

    def schema_of(self, table: TargetTable, splits: Sequence[Split]) -> SourceSchema | None:
        """The source schema known so far, or found out now; None while the splits hold no row that tells it."""
        if table.source_schema is None:
            return self._found(table, splits)
        if self._source.schema_changed(table.source, splits):
            return self._found(table, splits, ask=True) or table.source_schema
        return table.source_schema

    def learn(self, table: TargetTable, splits: Sequence[Split]) -> SourceSchema | None:
        """The source schema after looking at every row of the splits."""
        return self._found(table, splits, look=True)

    def roads(self, tables: Sequence[TargetTable]) -> tuple[Reader, Decoder]:
        schemas = {table.source: table.source_schema for table in tables if table.source_schema is not None}
        index = {table.source: table.index for table in tables}
        return self._source.reader(index, schemas), self._source.decoder(index, schemas)

    def preview(self, taken: Route, loaded: LoadedTable | None) -> SourceSchema | None:
        """What a run would find, judging by a few rows; under the source's names."""
        return self._source.preview(taken.source, known_by(loaded, taken.entry.deletes))

    def _found(
        self, table: TargetTable, splits: Sequence[Split], *, look: bool = False, ask: bool = False
    ) -> SourceSchema | None:
        known = known_by(table.loaded, table.options.mode)
        targets = {} if known is None else {table.source: known}
        source_schema = self._source.schemas(splits, targets, look=look, ask=ask).get(table.source)
        if source_schema is None:
            return None
        if known is None:
            return named(table.target, source_schema, table.options)
        if not look and contradictions(source_schema, known):
            # The source describes its columns as they are now; these rows may be older than that.
            source_schema = self._source.schemas(splits, targets, look=True).get(table.source, source_schema)
        return settle(table.target, source_schema, known, table.options)


def lesson_of(error: BadInput, concerned: Sequence[Sequence[TargetTable]]) -> Sequence[TargetTable] | None:
    """The targets whose source table may have changed its columns, if that is what the error tells; else None."""
    if not isinstance(error, (UnknownColumn, DoesNotFit)):
        return None
    name = error.facts.get("table")
    return next((targets for targets in concerned if any(name in (t.source, t.name) for t in targets)), None)


def known_by(loaded: LoadedTable | None, mode: DeleteMode) -> KnownTable | None:
    """What the target table tells about the source's columns: nothing, before anything was published to it."""
    if loaded is None or loaded.is_unused:
        return None
    return KnownTable(without_changelog(loaded.schema, mode), remembered(loaded.properties))
