"""What each table looks like, kept while the pipeline runs, and the executors' roads that follow from it.

first partitions of a table ----------------> configuration, SQL, enriched schema, target table, inference --+
a new version of its schema ------------> who describes it is asked again ----------------------------+--> SourceSchema
a column or a value nobody announced ---> the rows of this window are looked at ----------------------+      |
                                                                                                             v
                                   under the table's own names: renamed columns, columns that go on in another one
"""

from __future__ import annotations

from collections.abc import Sequence

from frazil.config.routing import Route
from frazil.errors import BadInput, DoesNotFit, UnknownColumn
from frazil.iceberg.tables.column_match import contradictions, match_columns, named
from frazil.iceberg.tables.new_schema import without_changelog
from frazil.iceberg.tables.tables import LoadedTable
from frazil.ingest.loop.target_tables import TargetTable
from frazil.model.schema import KnownTable, SourceSchema, remembered
from frazil.model.write import DeleteMode
from frazil.sources.base import Decoder, InputPartition, Reader, Source


class SchemaTracker:
    def __init__(self, source: Source) -> None:
        self._source = source

    def schema_of(self, table: TargetTable, partitions: Sequence[InputPartition]) -> SourceSchema | None:
        """The source schema known so far, or found out now; None while the partitions hold no row that tells it."""
        if table.source_schema is None:
            return self._found(table, partitions)
        if self._source.schema_changed(table.source, partitions):
            return self._found(table, partitions, ask=True) or table.source_schema
        return table.source_schema

    def learn(self, table: TargetTable, partitions: Sequence[InputPartition]) -> SourceSchema | None:
        """The source schema after looking at every row of the partitions."""
        return self._found(table, partitions, look=True)

    def roads(self, tables: Sequence[TargetTable]) -> tuple[Reader, Decoder]:
        schemas = {table.source: table.source_schema for table in tables if table.source_schema is not None}
        index = {table.source: table.index for table in tables}
        return self._source.reader(index, schemas), self._source.decoder(index, schemas)

    def preview(self, taken: Route, loaded: LoadedTable | None) -> SourceSchema | None:
        """What a run would find, judging by a few rows; under the source's names."""
        return self._source.preview(taken.source, known_by(loaded, taken.entry.deletes))

    def _found(
        self, table: TargetTable, partitions: Sequence[InputPartition], *, look: bool = False, ask: bool = False
    ) -> SourceSchema | None:
        known = known_by(table.loaded, table.options.mode)
        targets = {} if known is None else {table.source: known}
        source_schema = self._source.schemas(partitions, targets, look=look, ask=ask).get(table.source)
        if source_schema is None:
            return None
        if known is None:
            return named(table.target, source_schema, table.options)
        if not look and contradictions(source_schema, known):
            # The source describes its columns as they are now; these rows may be older than that.
            source_schema = self._source.schemas(partitions, targets, look=True).get(table.source, source_schema)
        return match_columns(table.target, source_schema, known, table.options)


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
