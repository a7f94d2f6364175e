"""Tables of one catalog: made, read, evolved.

    ensure --no such table?--> create (namespaces first) --raced?--> load
       |                                                              |
       +---- load --> difference --nothing?--> LoadedTable <----------+
                          | columns to add, types to widen
                          v
                      one commit of its own --conflict or no answer?--> load, difference again

Evolving is a commit of its own and comes before any file is written under the new ids, so a column that somebody else
added meanwhile keeps its id and ours gets another one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from frazil.errors import CatalogUnavailable, ConfigError, FrazilError
from frazil.lake.catalogs import Catalog, iceberg_properties
from frazil.lake.failures import (
    ALREADY_EXISTS,
    COMMIT_FAILED,
    FORBIDDEN,
    JAVA_ERRORS,
    NO_SUCH_TABLE,
    NOT_AUTHORIZED,
    Failure,
    as_error,
    failure_of,
)
from frazil.lake.heads import Base, read_metadata
from frazil.lake.schemas import SchemaChange, check_required, difference, new_schema, numbered, target_columns
from frazil.model.columns import UUID, BadType, Column, Schema, TableShape
from frazil.model.names import TableName
from frazil.model.partitions import PartitionSpec
from frazil.model.write import TableOptions

# Bounded metadata: every epoch is a snapshot, and every snapshot writes a metadata file.
DEFAULT_PROPERTIES: Mapping[str, str] = MappingProxyType(
    {
        "write.parquet.compression-codec": "zstd",
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "100",
    }
)
_EVOLVE_ATTEMPTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTable:
    """A table as the catalog has it at one moment."""

    name: TableName
    uuid: str
    location: str
    schema: Schema
    spec: PartitionSpec
    specs: tuple[PartitionSpec, ...]
    format_version: int
    properties: Mapping[str, str]


class Tables:
    """The tables of one catalog in one session."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def exists(self, table: TableName) -> bool:
        with self._explained("look for the table", table):
            return bool(self._catalog.java.tableExists(self._catalog.identifier(table)))

    def load(self, table: TableName) -> LoadedTable:
        """Raises TableChanged if there is none, ConfigError if it has a type this product does not know."""
        _, metadata = read_metadata(self._catalog, table)
        return parse_table(table, metadata)

    def ensure(self, table: TableName, shape: TableShape, options: TableOptions) -> LoadedTable:
        """The table, made if it does not exist and evolved if the shape has more or wider columns."""
        columns = target_columns(table, shape, options.mode)
        if not self.exists(table):
            self.create(table, shape, options)
        check_required(table, columns, self.evolve(table, columns))
        loaded = self.load(table)
        if loaded.spec.partitions:
            by = ", ".join(field.name for field in loaded.spec.fields)
            raise ConfigError(
                f"table {table} is partitioned by {by}, and partitioned tables cannot be written yet",
                hint=f"publish to another table than {table}",
                table=table.text,
            )
        return loaded

    def create(self, table: TableName, shape: TableShape, options: TableOptions) -> LoadedTable:
        """Makes the table, and its namespaces where they are missing. A table that another process made first is
        loaded; whether the shape fits it is for `evolve` to say."""
        schema = new_schema(table, shape, options.mode)
        self.ensure_namespace(table.namespace)
        version = {"format-version": str(options.format_version)}
        wanted = {**DEFAULT_PROPERTIES, **uuid_properties(schema), **version, **options.properties}
        iceberg = self._catalog.iceberg
        try:
            self._catalog.java.createTable(
                self._catalog.identifier(table),
                iceberg.SchemaParser.fromJson(json.dumps(schema.to_json())),
                iceberg.PartitionSpec.unpartitioned(),
                self._catalog.java_map(wanted),
            )
        except JAVA_ERRORS as error:
            failure = self._failure(error)
            if not self._exists_after(failure, table):
                raise self._error(failure, "create the table", table) from None
        return self.load(table)

    def ensure_namespace(self, levels: tuple[str, ...]) -> None:
        """Creates each level that is missing."""
        for depth in range(1, len(levels) + 1):
            namespace = self._catalog.namespace(levels[:depth])
            try:
                if not self._catalog.java.namespaceExists(namespace):
                    self._catalog.java.createNamespace(namespace)
            except JAVA_ERRORS as error:
                failure = self._failure(error)
                # A JDBC catalog answers the loser of a race with its database's own error.
                if not failure.is_a(ALREADY_EXISTS) and not self._has_namespace(namespace):
                    name = ".".join(levels[:depth])
                    raise as_error(failure, "create the namespace", self._endpoint, name) from None

    def evolve(self, table: TableName, columns: Sequence[Column]) -> Schema:
        """Adds the columns that the table lacks and widens those that are too narrow, in one commit of its own.

        Returns the schema that has them all. Raises BadInput or ConfigError if a column contradicts the table, and
        CatalogUnavailable if the catalog kept refusing.
        """
        last: Failure | None = None
        for _ in range(_EVOLVE_ATTEMPTS + 1):
            base, metadata = read_metadata(self._catalog, table)
            schema = parse_table(table, metadata).schema
            change = difference(table, columns, schema)
            if not change:
                return schema
            last = self._apply(table, base, change)
        raise CatalogUnavailable(
            f"cannot evolve the table {table} at {self._endpoint}: {last or 'it keeps changing'}",
            hint="another writer may be changing the same table's columns: let it finish, then start again",
            table=table.text,
        )

    def drop(self, table: TableName, *, purge: bool = False) -> bool:
        """Removes the table from the catalog, with its files only if asked. False if there was none."""
        with self._explained("drop the table", table):
            return bool(self._catalog.java.dropTable(self._catalog.identifier(table), purge))

    def _apply(self, table: TableName, base: Base, change: SchemaChange) -> Failure | None:
        """Tries once, on exactly this base. Returns a failure after which looking again makes sense, raises others."""
        widened = [Column(name, to, "", "") for name, to in change.promote]
        try:
            update = base.table.updateSchema()
            for column, java_type in self._with_java_types(change.add):
                update.addColumn(None, column.name, java_type, column.source_type or None)
            for column, java_type in self._with_java_types(widened):
                update.updateColumn(column.name, java_type)
            update.commit()
        except JAVA_ERRORS as error:
            failure = self._failure(error)
            if failure.is_a(FORBIDDEN, NOT_AUTHORIZED, NO_SUCH_TABLE):
                raise self._error(failure, "evolve the table", table) from None
            return failure
        return None

    def _with_java_types(self, columns: Sequence[Column]) -> Iterator[tuple[Column, Any]]:
        """Each column with its type in iceberg-java, through the JSON of a schema that has them all."""
        if columns:
            text = json.dumps(Schema(0, numbered(columns)).to_json())
            java_columns = self._catalog.iceberg.SchemaParser.fromJson(text).columns()
            for place, column in enumerate(columns):
                yield column, java_columns.get(place).type()

    def _has_namespace(self, namespace: Any) -> bool:
        try:
            return bool(self._catalog.java.namespaceExists(namespace))
        except JAVA_ERRORS:
            return False

    def _exists_after(self, failure: Failure, table: TableName) -> bool:
        """After a creation that failed: somebody else's table, or ours whose answer was lost."""
        if failure.is_a(ALREADY_EXISTS, COMMIT_FAILED):
            return True
        try:
            return self.exists(table)
        except CatalogUnavailable:
            return False

    @contextmanager
    def _explained(self, doing: str, table: TableName) -> Iterator[None]:
        try:
            yield
        except JAVA_ERRORS as error:
            raise self._error(self._failure(error), doing, table) from None

    @property
    def _endpoint(self) -> str:
        return self._catalog.settings.endpoint

    def _failure(self, error: BaseException) -> Failure:
        return failure_of(error, iceberg_properties(self._catalog.settings))

    def _error(self, failure: Failure, doing: str, table: TableName) -> FrazilError:
        return as_error(failure, doing, self._endpoint, table.text)


def uuid_properties(schema: Schema) -> dict[str, str]:
    """iceberg-java orders uuids as signed numbers and bounds as unsigned ones, so a uuid's bounds make it skip files,
    and equality deletes, that match. Our workers write none; this asks the same of everybody else."""
    columns = [field.name for field in schema if field.type == UUID]
    return {f"write.metadata.metrics.column.{name}": "counts" for name in columns}


def parse_table(table: TableName, metadata: Mapping[str, Any]) -> LoadedTable:
    """Pure: `metadata` is a metadata file's JSON. Raises ConfigError if a column has a type we do not know."""
    current = next(s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"])
    try:
        schema = Schema.from_json(current)
    except BadType as error:
        raise ConfigError(
            f"table {table} has a column that cannot be written: {error}",
            hint=f"publish to another table than {table}, or drop that column from it",
            table=table.text,
        ) from error
    specs = tuple(PartitionSpec.from_json(spec) for spec in metadata["partition-specs"])
    return LoadedTable(
        name=table,
        uuid=metadata["table-uuid"],
        location=metadata["location"],
        schema=schema,
        spec=next(spec for spec in specs if spec.spec_id == metadata["default-spec-id"]),
        specs=specs,
        format_version=metadata["format-version"],
        properties=metadata.get("properties", {}),
    )
