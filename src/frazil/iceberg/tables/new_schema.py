"""Schemas of tables to be made, and the columns that a mode adds to the source's. Pure.

    source schema, mode --target_columns--> the source's columns [, _op, _position, _before] --new_schema--> fields
    schema, mode --without_changelog--> what the table tells about the source's columns

What an existing table's schema must become is planned in `schema_diff`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from frazil.errors import BadInput, ConfigError
from frazil.model.ids import TableName
from frazil.model.schema import (
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    UNASSIGNED,
    Column,
    Decimal,
    Field,
    ListOf,
    MapOf,
    Remembered,
    Schema,
    SourceSchema,
    StructOf,
    Type,
)
from frazil.model.table import CHANGELOG_BEFORE, CHANGELOG_OP, CHANGELOG_POSITION
from frazil.model.write import DeleteMode

OWN = "frazil"
_CHANGELOG = tuple(Column(name, STRING, "STRING", OWN) for name in (CHANGELOG_OP, CHANGELOG_POSITION))
_CHANGELOG_NAMES = (CHANGELOG_OP, CHANGELOG_POSITION, CHANGELOG_BEFORE)


def target_columns(table: TableName, source_schema: SourceSchema, mode: DeleteMode) -> tuple[Column, ...]:
    """The columns the table must have: the source's, and for a changelog what happened, when, and the row before."""
    if mode is not DeleteMode.APPEND_ONLY:
        return source_schema.columns
    names = [column.name for column in source_schema.columns]
    # Spark looks at no name's case, and `_before.b` is what Iceberg calls the b of the row before.
    own = {*_CHANGELOG_NAMES, *(f"{CHANGELOG_BEFORE}.{name}".casefold() for name in names)}
    for name in names:
        if name.casefold() in own:
            raise ConfigError(
                f"table {table}: the source has a column {name!r}, which a changelog needs for itself",
                hint=f"rename the column {name} in the source, or keep no changelog: leave out `changelog: true`, "
                "or give `deletes:` another value than append-only",
                table=table.text,
                column=name,
            )
    return (*source_schema.columns, *_CHANGELOG, before_column(source_schema.columns))


def before_column(columns: Sequence[Column]) -> Column:
    """The row as it was: every column of the source, each of which may be missing."""
    fields = tuple(Field(UNASSIGNED, c.name, optional(c.type), doc=c.source_type or None) for c in columns)
    return Column(CHANGELOG_BEFORE, StructOf(fields), "", OWN)


def without_changelog(schema: Schema, mode: DeleteMode) -> Schema:
    """The table's schema without what a changelog has added: what it tells about the source's columns."""
    if mode is not DeleteMode.APPEND_ONLY:
        return schema
    return replace(schema, fields=tuple(field for field in schema if field.name not in _CHANGELOG_NAMES))


def new_schema(table: TableName, source_schema: SourceSchema, mode: DeleteMode) -> Schema:
    """The schema of a table to be created: ids in order, key columns required and identifying.

    A changelog has no identifier: one key appears in it many times.
    """
    columns = target_columns(table, source_schema, mode)
    key = () if mode is DeleteMode.APPEND_ONLY else source_schema.key
    if mode is not DeleteMode.APPEND_ONLY:
        check_key(table, source_schema)
    fields = numbered(columns, key)
    identifiers = tuple(field.id for field in fields if field.name in key)
    return Schema(0, fields, identifiers)


def numbered(columns: Sequence[Column], required: Sequence[str] = ()) -> tuple[Field, ...]:
    """Fields with ids in order, what is nested after all columns, and optional.

    A field's doc is its source type: Iceberg's own does not tell JSON from text, or a time of day from a number.
    """
    used = len(columns)
    fields = []
    for place, column in enumerate(columns, start=1):
        column_type, used = _with_ids(optional(column.type), used)
        required_here, doc = column.name in required, column.source_type or None
        fields.append(Field(place, column.name, column_type, required=required_here, doc=doc))
    return tuple(fields)


def check_key(table: TableName, source_schema: SourceSchema) -> None:
    """Raises ConfigError for a key that cannot identify rows: none, floats (H21), anything nested."""
    if not source_schema.key:
        raise ConfigError(
            f"table {table} has no key, so a change cannot be told from a new row",
            hint=f"set tables[].key for {table}, or deletes: append-only",
            table=table.text,
        )
    for column in source_schema.key_columns:
        if column.type in (FLOAT, DOUBLE) or isinstance(column.type, (ListOf, MapOf, StructOf)):
            raise ConfigError(
                f"table {table}: key column {column.name!r} is {column.type}, which cannot identify a row",
                hint=f"set tables[].key for {table} to other columns, or cast {column.name} to DECIMAL in the source",
                table=table.text,
                column=column.name,
            )


def first_memory(columns: Sequence[Column], schema: Schema) -> dict[int, Remembered]:
    """What a table made of these columns remembers of them."""
    by_name = {c.name: Remembered(c.identity, c.carried_as, family=c.family) for c in columns if c.origin != OWN}
    return {field.id: by_name[field.name] for field in schema if field.name in by_name}


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


def optional(given: Type) -> Type:
    """The type with everything nested in it optional: no value of it is missing for want of a part."""
    match given:
        case ListOf():
            return replace(given, element=optional(given.element), element_required=False)
        case MapOf():
            return replace(given, value=optional(given.value), value_required=False)
        case StructOf(fields):
            return StructOf(tuple(replace(f, type=optional(f.type), required=False) for f in fields))
        case _:
            return given


def _with_ids(given: Type, used: int) -> tuple[Type, int]:
    """The type with ids for what is nested in it, counted on from the last used one: all fields of one level, then
    what lies below each, as iceberg-java counts."""
    match given:
        case ListOf():
            element, last = _with_ids(given.element, used + 1)
            return replace(given, element=element, element_id=used + 1), last
        case MapOf():
            key, last = _with_ids(given.key, used + 2)
            value, last = _with_ids(given.value, last)
            return replace(given, key=key, value=value, key_id=used + 1, value_id=used + 2), last
        case StructOf(fields):
            last = used + len(fields)
            numbered_fields = []
            for place, field in enumerate(fields, start=used + 1):
                field_type, last = _with_ids(field.type, last)
                numbered_fields.append(replace(field, id=place, type=field_type))
            return StructOf(tuple(numbered_fields)), last
        case _:
            return given, used
