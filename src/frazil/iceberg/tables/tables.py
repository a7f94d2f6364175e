"""Tables of one catalog: made, read, evolved.

    ensure --no such table?--> create (namespaces first) --raced?--> load
       |                                                              |
       +---- load --> difference --nothing?--> LoadedTable <----------+
                          | columns to add, types to widen
                          v
                      one commit of its own --conflict or no answer?--> load, difference again
    then the same for partitioning and sort order (`layout`)

Evolving is a commit of its own and comes before any file is written under the new ids, so a column that somebody else
added meanwhile keeps its id and ours gets another one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

from frazil.clock import Clock, SystemClock
from frazil.errors import BadInput, CatalogUnavailable, ClockBehind, ConfigError, FrazilError, TableChanged
from frazil.iceberg.catalogs.capabilities import by_type, check_deletes, check_version, learn
from frazil.iceberg.catalogs.open_catalog import Catalog, iceberg_properties
from frazil.iceberg.commits.transaction import too_early
from frazil.iceberg.jvm.errors import (
    ALREADY_EXISTS,
    COMMIT_FAILED,
    FORBIDDEN,
    JAVA_ERRORS,
    NO_SUCH_TABLE,
    NOT_AUTHORIZED,
    UNSUPPORTED,
    JavaFailure,
    as_error,
    failure_of,
)
from frazil.iceberg.tables.column_match import matched_columns
from frazil.iceberg.tables.create import CREATED_PROPERTY, create_table, uuid_properties
from frazil.iceberg.tables.encryption import check_plain
from frazil.iceberg.tables.head import Base, read_metadata
from frazil.iceberg.tables.layout import (
    LayoutChange,
    check_identifiers,
    check_layout,
    layout_change,
    parse_layout,
    preserved_order,
    stage_layout,
)
from frazil.iceberg.tables.new_schema import check_required, first_memory, new_schema, numbered, target_columns
from frazil.iceberg.tables.schema_diff import difference
from frazil.iceberg.tables.schema_steps import Add, Drop, MakeOptional, Move, Rename, SchemaChange, Step, Widen, dotted
from frazil.iceberg.tables.storage import table_location
from frazil.model.commit import Conflicted
from frazil.model.ids import TableName
from frazil.model.metrics_modes import MetricsModes
from frazil.model.schema import (
    COLUMNS_PROPERTY,
    STRING,
    BadType,
    Column,
    Schema,
    SourceSchema,
    Type,
    columns_property,
    remembered,
)
from frazil.model.table import Table, TableForm
from frazil.model.write import TableOptions
from frazil.retry import Attempt, Done, commit_with_retry
from frazil.storage.table_locations import DATA_PATH

Stage = Callable[[Any], None]
"""Stages a change in a Java transaction."""
Plan = Callable[[Base, Mapping[str, Any]], tuple[Done, Stage | None]]
"""What a table is like, and what must be staged so that it is as it should be; None if nothing must."""
_NAME_MAPPING = "schema.name-mapping.default"
_NO_OPTIONS = TableOptions()
_NO_STORAGE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTable(Table):
    """A table as the catalog has it at one moment."""

    uuid: str
    location: str
    properties: Mapping[str, str]
    is_unused: bool = False
    """Frazil made it, and nothing was ever published to it: nobody misses it as it is."""
    form: TableForm | None = field(default=None, repr=False, compare=False)
    """What files that are written for it now rest on."""


class Tables:
    """The tables of one catalog in one session."""

    def __init__(self, catalog: Catalog, clock: Clock | None = None) -> None:
        self._catalog = catalog
        self._clock = clock or SystemClock()

    def exists(self, table: TableName) -> bool:
        with self._explained("look for the table", table):
            return bool(self._catalog.java.tableExists(self._catalog.identifier(table)))

    def load(self, table: TableName) -> LoadedTable:
        """Raises TableChanged if there is none, ConfigError if it has a type this product does not know or is
        encrypted."""
        base, metadata = read_metadata(self._catalog, table)
        return parse_table(table, metadata, base.storage)

    def ensure(self, table: TableName, source_schema: SourceSchema, options: TableOptions) -> LoadedTable:
        """The table, made if it does not exist, evolved if the source schema has more or wider columns, and cut and
        sorted as configured. A table that somebody else made is taken as it is, if its rules allow for the source
        schema. One that we made for another source schema, and never published to, is made anew.

        Raises ConfigError or BadInput, naming table and column, if they do not.
        """
        if not self.exists(table):
            self.create(table, source_schema, options)
        try:
            loaded = self._fitted(table, source_schema, options)
        except (BadInput, ConfigError, TableChanged):
            if not self.load(table).is_unused:
                raise
        else:
            too_new = loaded.format_version > options.format_version
            if not loaded.is_unused or (not too_new and _keeps_names(loaded, source_schema, options)):
                return loaded
        _planned(table, source_schema, options)  # what cannot be made leaves what is there
        self.drop(table)
        self.create(table, source_schema, options)
        return self._fitted(table, source_schema, options)

    def _fitted(self, table: TableName, source_schema: SourceSchema, options: TableOptions) -> LoadedTable:
        columns = target_columns(table, source_schema, options.mode)
        schema = self.evolve(table, columns, options)
        check_required(table, columns, schema)
        check_identifiers(table, schema, source_schema, options)
        return self._arrange(table, options)

    def create(self, table: TableName, source_schema: SourceSchema, options: TableOptions) -> LoadedTable:
        """Makes the table, and its namespaces where they are missing. A table that another process made first is
        loaded; whether the source schema fits it is for `evolve` to say.

        Raises ConfigError, before anything is made, for a key, a partition or a sort field that cannot be.
        """
        schema = _planned(table, source_schema, options)
        self.ensure_namespace(table.namespace)
        failure = create_table(self._catalog, table, schema, source_schema, options)
        if failure is not None and not self._exists_after(failure, table):
            raise self._error(failure, "create the table", table.text)
        loaded = self._arrange(table, options) if failure is None else self.load(table)
        if failure is None:
            learn(self._catalog.settings, options.format_version, loaded.format_version)
            try:
                check_version(table, options, loaded.format_version)
            except ConfigError:
                self.drop(table)
                raise
        return loaded

    def ensure_namespace(self, levels: tuple[str, ...]) -> None:
        """Creates each level that is missing. Raises ConfigError if the catalog has no namespaces inside others."""
        if len(levels) > 1 and not by_type(self._catalog.settings).nested_namespaces:
            raise ConfigError(
                f"a catalog of type {self._catalog.settings.type} has no namespaces inside others: {'.'.join(levels)}",
                hint=f"name targets <namespace>.<table>, e.g. {levels[0]}_{levels[-1]}.<table>",
            )
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
                    raise self._error(failure, "create the namespace", name) from None

    def evolve(self, table: TableName, columns: Sequence[Column], options: TableOptions = _NO_OPTIONS) -> Schema:
        """Makes the columns fit, by whatever `schema_diff` plans, in one commit of its own.

        Returns the schema that has them all. Raises BadInput or ConfigError if a column contradicts the table, and
        CatalogUnavailable if the catalog kept refusing.
        """

        def plan(_base: Base, metadata: Mapping[str, Any]) -> tuple[Schema, Stage | None]:
            change = planned(table, columns, options, metadata)
            return parse_table(table, metadata).schema, partial(self._stage, change=change) if change else None

        return self._commit_until(f"cannot evolve the table {table}", table, plan)

    def _arrange(self, table: TableName, options: TableOptions) -> LoadedTable:
        """Brings partitioning and sort order to what is configured, in one commit of its own. Raises like `evolve`."""

        def plan(base: Base, metadata: Mapping[str, Any]) -> tuple[LoadedTable, Stage | None]:
            loaded = parse_table(table, metadata, base.storage)
            layout = parse_layout(table, loaded.schema, metadata)
            change = layout_change(table, loaded.schema, layout, options, remembered(loaded.properties))
            return loaded, partial(stage_layout, self._catalog, change=change) if change else None

        return self._commit_until(f"cannot change the partitioning of the table {table}", table, plan)

    def set_property(self, table: TableName, name: str, value: str | None) -> None:
        """In a commit of its own, if it is another one by now; None removes it. Raises like `evolve`."""

        def stage(transaction: Any) -> None:
            update = transaction.updateProperties()
            (update.remove(name) if value is None else update.set(name, value)).commit()

        def plan(_base: Base, metadata: Mapping[str, Any]) -> tuple[None, Stage | None]:
            return None, None if parse_table(table, metadata).properties.get(name) == value else stage

        self._commit_until(f"cannot set {name} of the table {table}", table, plan)

    def _commit_until(self, what: str, table: TableName, plan: Plan[Done]) -> Done:
        """Commits what `plan` wants staged until it wants nothing more. Raises CatalogUnavailable, and like `plan`."""

        def once(_lost: int) -> Attempt[Done]:
            failure: JavaFailure | None = None
            for _ in ("change it", "see that it fits"):
                base, metadata = read_metadata(self._catalog, table)
                done, stage = plan(base, metadata)
                if stage is None:
                    return Attempt(done)
                if (failure := self._once(table, base, stage)) is not None:
                    break
            return Attempt(done, Conflicted(str(failure or "it keeps changing")))

        hint = "another writer may be changing the same table: let it finish, then start again"
        return commit_with_retry(f"{what} at {self._endpoint}", once, self._clock, table=table.text, hint=hint)[0]

    def plan(self, table: TableName, columns: Sequence[Column], options: TableOptions) -> SchemaChange:
        """What `evolve` would do. Raises like it."""
        return planned(table, columns, options, read_metadata(self._catalog, table)[1])

    def plan_layout(self, table: TableName, options: TableOptions) -> LayoutChange:
        """How partitioning and sort order would change, of a table that has its columns. Raises like `ensure`."""
        _, metadata = read_metadata(self._catalog, table)
        loaded = parse_table(table, metadata)
        layout = parse_layout(table, loaded.schema, metadata)
        return layout_change(table, loaded.schema, layout, options, remembered(loaded.properties))

    def drop(self, table: TableName, *, purge: bool = False) -> bool:
        """Removes the table from the catalog, with its files only if asked. False if there was none."""
        with self._explained("drop the table", table):
            return bool(self._catalog.java.dropTable(self._catalog.identifier(table), purge))

    def rename(self, table: TableName, to: TableName) -> None:
        """Gives the table another name, in the same catalog. Raises ConfigError if the catalog cannot rename."""
        try:
            self._catalog.java.renameTable(self._catalog.identifier(table), self._catalog.identifier(to))
        except JAVA_ERRORS as error:
            failure = self._failure(error)
            if failure.is_a(UNSUPPORTED):
                raise ConfigError(
                    f"a catalog of type {self._catalog.settings.type} cannot rename {table} to {to}: {failure}",
                    hint="publish to a table of the new name, then drop the old one",
                ) from None
            raise self._error(failure, "rename the table", table.text) from None

    def _once(self, table: TableName, base: Base, stage: Callable[[Any], None]) -> JavaFailure | None:
        """Tries once, on exactly this base. Returns a failure after which looking again makes sense, raises others.

        iceberg-java stages, and its own retries are not used: they would apply the same steps to another schema.
        """
        try:
            transaction = base.table.newTransaction()
            start = transaction.startMetadata()
            if not start.equals(base.metadata):
                return None
            if (early := too_early(self._catalog, base)) is not None:
                raise ClockBehind(f"cannot change {table}: {early.reason}", hint=early.hint, table=table.text)
            stage(transaction)
            transaction.underlyingOps().commit(start, transaction.currentMetadata())
        except JAVA_ERRORS as error:
            failure = self._failure(error)
            if failure.is_a(FORBIDDEN, NOT_AUTHORIZED, NO_SUCH_TABLE):
                raise self._error(failure, "evolve the table", table.text) from None
            return failure
        return None

    def _stage(self, transaction: Any, change: SchemaChange) -> None:
        """Drops, then what changes existing columns, then additions: each with the names that are valid by then."""
        for steps in change.stages:
            update = transaction.updateSchema()
            for step, java_type in self._with_java_types(steps):
                match step:
                    case Drop(path):
                        update.deleteColumn(dotted(path))
                    case Widen(path):
                        update.updateColumn(dotted(path), java_type)
                    case MakeOptional(path):
                        update.makeColumnOptional(dotted(path))
                    case Rename(path, to):
                        update.renameColumn(dotted(path), to)
                    case Add(parent, column):
                        update.addColumn(
                            dotted(parent) if parent else None, column.name, java_type, column.source_type or None
                        )
                    case Move(name, None):
                        update.moveFirst(name)
                    case Move(name, after):
                        update.moveAfter(name, after)
            update.commit()
        schema = Schema.from_json(json.loads(self._catalog.iceberg.SchemaParser.toJson(transaction.table().schema())))
        properties = transaction.updateProperties()
        properties.set(COLUMNS_PROPERTY, columns_property(change.memory_of(schema)))
        new = {add.column.name for add in change.added if not add.parent}
        for key, value in uuid_properties(Schema(0, tuple(f for f in schema if f.name in new))).items():
            properties.set(key, value)
        properties.commit()

    def _with_java_types(self, steps: Sequence[Step]) -> Iterator[tuple[Step, Any]]:
        """Each step with the type it needs in iceberg-java, through the JSON of a schema that has them all."""
        typed = [Column(f"c{place}", _type_of(step), "", "") for place, step in enumerate(steps)]
        java_columns = self._catalog.iceberg.SchemaParser.fromJson(json.dumps(Schema(0, numbered(typed)).to_json()))
        for place, step in enumerate(steps):
            yield step, java_columns.columns().get(place).type()

    def _has_namespace(self, namespace: Any) -> bool:
        try:
            return bool(self._catalog.java.namespaceExists(namespace))
        except JAVA_ERRORS:
            return False

    def _exists_after(self, failure: JavaFailure, table: TableName) -> bool:
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
            raise self._error(self._failure(error), doing, table.text) from None

    @property
    def _endpoint(self) -> str:
        return self._catalog.settings.endpoint

    def _failure(self, error: BaseException) -> JavaFailure:
        return failure_of(error, iceberg_properties(self._catalog.settings))

    def _error(self, failure: JavaFailure, doing: str, what: str) -> FrazilError:
        return as_error(failure, doing, self._endpoint, what, who=self._catalog.settings.identity)


def planned(
    table: TableName, columns: Sequence[Column], options: TableOptions, metadata: Mapping[str, Any]
) -> SchemaChange:
    """Pure: what must change in a table with this metadata for the columns to fit. Raises ConfigError for a table that
    cannot be mirrored to."""
    loaded = parse_table(table, metadata)
    check_deletes(table, options, loaded.format_version)
    orders = [field["source-id"] for order in metadata.get("sort-orders", ()) for field in order["fields"]]
    partitions = [field.source_id for spec in loaded.specs for field in spec.fields]
    known = remembered(loaded.properties)
    return difference(
        table, columns, loaded.schema, known=known, options=options, kept=frozenset((*orders, *partitions))
    )


def _type_of(step: Step) -> Type:
    match step:
        case Add(_, column):
            return column.type
        case Widen(_, _, to):
            return to
        case _:
            return STRING


def _planned(table: TableName, source_schema: SourceSchema, options: TableOptions) -> Schema:
    """Raises ConfigError for a key, a partition or a sort field that cannot be."""
    schema = new_schema(table, source_schema, options.mode)
    check_layout(table, schema, options, first_memory(source_schema.columns, schema))
    return schema


def _keeps_names(loaded: LoadedTable, source_schema: SourceSchema, options: TableOptions) -> bool:
    """Whether every column of the source schema has its field under its own name, not in one that took over from
    another."""
    memory = remembered(loaded.properties)
    matched = matched_columns(loaded.name, source_schema.columns, loaded.schema, memory, options, source_schema.key)
    return all(one.column.name == column.name for one, column in zip(matched, source_schema.columns, strict=True))


def parse_table(table: TableName, metadata: Mapping[str, Any], storage: Mapping[str, str] = _NO_STORAGE) -> LoadedTable:
    """Pure: `metadata` is a metadata file's JSON. Raises ConfigError if a column has a type or the table a
    partitioning that we do not know, or if it is encrypted."""
    check_plain(table, metadata)
    current = next(s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"])
    try:
        schema = Schema.from_json(current)
    except BadType as error:
        raise ConfigError(
            f"table {table} has a column that cannot be written: {error}",
            hint=f"publish to another table than {table}, or drop that column from it",
            table=table.text,
        ) from error
    layout, properties = parse_layout(table, schema, metadata), metadata.get("properties", {})
    location = table_location(metadata["location"])
    return LoadedTable(
        name=table,
        uuid=metadata["table-uuid"],
        location=location,
        data_location=properties.get(DATA_PATH, f"{location.rstrip('/')}/data").rstrip("/"),
        schema=schema,
        spec=layout.spec,
        specs=layout.specs,
        sort=layout.sort,
        sort_order_id=layout.sort_order_id,
        format_version=metadata["format-version"],
        name_mapping=properties.get(_NAME_MAPPING),
        properties=properties,
        is_unused=not metadata.get("snapshots") and CREATED_PROPERTY in properties,
        storage=storage,
        metrics=MetricsModes.told(properties, schema, preserved_order(metadata)),
        form=TableForm.of(metadata),
    )
