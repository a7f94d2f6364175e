"""What a table's schema must become for a source's columns to fit. Pure.

    wanted type        existing column       verdict
    -----------------  --------------------  -----------------------------------------------
    any                none                  add
    T                  T                     nothing
    long               int                   promote the column   (also float->double, decimal precision)
    int                long                  nothing: the column already holds it
    string             int                   error that names table, column and both types

Columns that the source does not have (any more) stay, and read as NULL in new rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from frazil.errors import BadInput, ConfigError, FrazilError
from frazil.model.columns import (
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    Column,
    Decimal,
    Field,
    ListOf,
    Schema,
    TableShape,
    Type,
    same_type,
)
from frazil.model.names import TableName
from frazil.model.write import CHANGELOG_OP, CHANGELOG_POSITION, DeleteMode

_CHANGELOG = tuple(Column(name, STRING, "STRING", "frazil") for name in (CHANGELOG_OP, CHANGELOG_POSITION))
_FROM_CONFIGURATION = "configuration"


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """Columns to add and columns whose type must be widened."""

    add: tuple[Column, ...] = ()
    promote: tuple[tuple[str, Type], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.add or self.promote)


def target_columns(table: TableName, shape: TableShape, mode: DeleteMode) -> tuple[Column, ...]:
    """The columns the table must have: the source's, and for a changelog what happened and when."""
    if mode is not DeleteMode.APPEND_ONLY:
        return shape.columns
    for column in _CHANGELOG:
        if shape.column(column.name) is not None:
            raise ConfigError(
                f"table {table}: the source has a column {column.name!r}, which a changelog needs for itself",
                hint=f"rename the column {column.name} in the source, or choose another mode than {mode}",
                table=table.text,
                column=column.name,
            )
    return (*shape.columns, *_CHANGELOG)


def source_schema(schema: Schema, mode: DeleteMode) -> Schema:
    """The table's schema without what a changelog has added: what it tells about the source's columns."""
    if mode is not DeleteMode.APPEND_ONLY:
        return schema
    own = {column.name for column in _CHANGELOG}
    return replace(schema, fields=tuple(field for field in schema if field.name not in own))


def new_schema(table: TableName, shape: TableShape, mode: DeleteMode) -> Schema:
    """The schema of a table to be created: ids in order, key columns required and identifying.

    A changelog has no identifier: one key appears in it many times.
    """
    columns = target_columns(table, shape, mode)
    key = () if mode is DeleteMode.APPEND_ONLY else shape.key
    if mode is not DeleteMode.APPEND_ONLY:
        check_key(table, shape)
    fields = numbered(columns, key)
    identifiers = tuple(field.id for field in fields if field.name in key)
    return Schema(0, fields, identifiers)


def numbered(columns: Sequence[Column], required: Sequence[str] = ()) -> tuple[Field, ...]:
    """Fields with ids in order, the elements of lists after all columns.

    A field's doc is its source type: Iceberg's own does not tell JSON from text, or a time of day from a number.
    """
    used = len(columns)
    fields = []
    for place, column in enumerate(columns, start=1):
        column_type, used = _with_ids(column.type, used)
        required_here, doc = column.name in required, column.source_type or None
        fields.append(Field(place, column.name, column_type, required=required_here, doc=doc))
    return tuple(fields)


def check_key(table: TableName, shape: TableShape) -> None:
    """Raises ConfigError for a key that cannot identify rows: none, floats (H21), lists."""
    if not shape.key:
        raise ConfigError(
            f"table {table} has no key, so a change cannot be told from a new row",
            hint=f"set tables[].key for {table}, or deletes: append-only",
            table=table.text,
        )
    for column in shape.key_columns:
        if column.type in (FLOAT, DOUBLE) or isinstance(column.type, ListOf):
            raise ConfigError(
                f"table {table}: key column {column.name!r} is {column.type}, which cannot identify a row",
                hint=f"set tables[].key for {table} to other columns, or cast {column.name} to DECIMAL in the source",
                table=table.text,
                column=column.name,
            )


def difference(table: TableName, columns: Sequence[Column], schema: Schema) -> SchemaChange:
    """What must change for the columns to fit. Raises BadInput, or ConfigError where configuration gave the type."""
    add: list[Column] = []
    promote: list[tuple[str, Type]] = []
    for column in columns:
        existing = schema.field(column.name)
        if existing is None:
            add.append(column)
        elif same_type(existing.type, column.type) or can_promote(column.type, existing.type):
            continue
        elif can_promote(existing.type, column.type):
            promote.append((column.name, column.type))
        else:
            raise _contradiction(table, column, existing)
    return SchemaChange(tuple(add), tuple(promote))


def check_required(table: TableName, columns: Sequence[Column], schema: Schema) -> None:
    """Raises BadInput if the table demands a column that the source does not have."""
    names = {column.name for column in columns}
    for existing in schema:
        if existing.required and existing.name not in names:
            raise BadInput(
                f"table {table}: column {existing.name!r} is required, and the source does not have it",
                hint=f"ALTER TABLE {table} ALTER COLUMN {existing.name} DROP NOT NULL, or bring the column back",
                table=table.text,
                column=existing.name,
            )


def can_promote(narrow: Type, wide: Type) -> bool:
    """Iceberg can turn a column of the first type into one of the second without rewriting files."""
    match narrow, wide:
        case Decimal(precision, scale), Decimal(wider, same_scale):
            return scale == same_scale and precision < wider
        case _:
            return (narrow, wide) in ((INT, LONG), (FLOAT, DOUBLE))


def _with_ids(given: Type, used: int) -> tuple[Type, int]:
    """The type with ids for its elements, counted on from the last used one."""
    if not isinstance(given, ListOf):
        return given, used
    own = used + 1
    element, last = _with_ids(given.element, own)
    return replace(given, element=element, element_id=own), last


def _contradiction(table: TableName, column: Column, existing: Field) -> FrazilError:
    kind = ConfigError if column.origin == _FROM_CONFIGURATION else BadInput
    return kind(
        f"table {table}: column {column.name!r} is {existing.type}, but its source type {column.source_type} "
        f"(from {column.origin}) needs {column.type}",
        hint=f"pin a source type for {column.name} in tables[].columns that fits {existing.type}, "
        f"or drop or rename the column in {table} and resync",
        table=table.text,
        column=column.name,
        existing=str(existing.type),
        wanted=str(column.type),
    )
