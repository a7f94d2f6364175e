"""Columns and keys from the source itself, over SQL (`schema_from: postgresql://...`).

    topic --SqlDescriber--> three queries: columns, identities, key --from_sql--> Knowledge

CockroachDB tells its own type text and hidden columns; a server without those answers PostgreSQL's catalog query.
A column's identity is its number in the table, which outlives a rename, and the table's own, which does not outlive the
table: another table of the same name has other columns, whatever their numbers.
Hidden columns (hash-shard buckets, the implicit region) leave the key as long as a visible one stays: what is left
identifies the row, and keeps doing so when the table becomes regional.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import psycopg

from frazil.errors import ConfigError, SourceUnavailable
from frazil.model.schema import Column
from frazil.sources.cockroachdb.schema.schema import SQL, Knowledge
from frazil.sources.cockroachdb.schema.types import column

_COCKROACHDB = """
    SELECT table_schema, column_name, crdb_sql_type, is_nullable = 'YES', is_hidden = 'YES',
           data_type = 'USER-DEFINED'
    FROM information_schema.columns WHERE table_name = %s ORDER BY table_schema, ordinal_position"""
_POSTGRESQL = """
    SELECT n.nspname, a.attname, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull, false, t.typtype = 'e'
    FROM pg_attribute a
    JOIN pg_class c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p')
    JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_type t ON t.oid = a.atttypid
    WHERE c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY n.nspname, a.attnum"""
_IDENTITIES = """
    SELECT n.nspname, a.attname, c.oid::text || '.' || a.attnum::text
    FROM pg_attribute a
    JOIN pg_class c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p')
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped"""
_KEY = """
    SELECT k.column_name FROM information_schema.table_constraints c
    JOIN information_schema.key_column_usage k
      ON k.constraint_name = c.constraint_name AND k.table_schema = c.table_schema AND k.table_name = c.table_name
    WHERE c.constraint_type = 'PRIMARY KEY' AND c.table_schema = %s AND c.table_name = %s
    ORDER BY k.ordinal_position"""
_SYSTEM_SCHEMAS = ("pg_catalog", "information_schema", "crdb_internal", "pg_extension")
# format_type's words, where they differ from what CockroachDB means by the same word.
_PG_WORDS = {"integer": "INT4", "integer[]": "INT4[]"}


@dataclass(frozen=True, slots=True)
class SqlColumn:
    """One row of the answer. `user_defined` types are enums as far as a changefeed is concerned. `identity` is what the
    server knows the column by."""

    schema: str
    name: str
    type: str
    nullable: bool = True
    hidden: bool = False
    user_defined: bool = False
    identity: str | None = None


_PATIENCE = "SET statement_timeout = '30s'"


@dataclass(frozen=True, slots=True)
class SqlDescriber:
    """Asks the source about a topic; None if it has no such table. Raises SourceUnavailable or ConfigError."""

    dsn: str

    def __call__(self, topic: str) -> Knowledge | None:
        schema, table = split_topic(topic)
        try:
            with psycopg.connect(self.dsn, autocommit=True, connect_timeout=10) as connection:
                connection.execute(_PATIENCE)
                try:
                    rows = connection.execute(_COCKROACHDB, [table]).fetchall()
                except psycopg.errors.UndefinedColumn:
                    rows = connection.execute(_POSTGRESQL, [table]).fetchall()
                told = connection.execute(_IDENTITIES, [table]).fetchall()
                known = {(space, name): identity for space, name, identity in told}
                found = [replace(SqlColumn(*row), identity=known.get((row[0], row[1]))) for row in rows]
                columns = in_one_schema(found, schema, topic)
                if not columns:
                    return None
                key = connection.execute(_KEY, [columns[0].schema, table]).fetchall()
        except psycopg.OperationalError as error:
            raise SourceUnavailable(f"`schema_from` does not answer: {error}") from error
        except psycopg.Error as error:
            raise ConfigError(f"`schema_from` cannot describe {topic}: {error}", table=topic) from error
        return from_sql(columns, [name for (name,) in key])


def split_topic(topic: str) -> tuple[str | None, str]:
    """(schema, table) of a topic; a family's part is dropped, since SQL knows the whole table only."""
    parts = topic.split(".", 2)
    schema, table = (parts[1], parts[2]) if len(parts) == 3 else (None, topic)
    return schema, table.split("+", 1)[0]


def in_one_schema(columns: Sequence[SqlColumn], schema: str | None, topic: str) -> list[SqlColumn]:
    """The columns of the one table meant. Raises ConfigError if the name stands for several."""
    found = [c for c in columns if c.schema not in _SYSTEM_SCHEMAS and schema in (None, c.schema)]
    schemas = sorted({c.schema for c in found})
    if len(schemas) > 1:
        raise ConfigError(
            f"{topic} exists in the schemas {', '.join(schemas)}",
            hint="Create the changefeed WITH full_table_name, or pin `key:` and `columns:` of the table.",
            table=topic,
        )
    return found


def from_sql(columns: Sequence[SqlColumn], key: Sequence[str]) -> Knowledge:
    hidden = {c.name for c in columns if c.hidden}
    visible = tuple(name for name in key if name not in hidden)
    kept = visible or tuple(key)
    shown = tuple(_column(c) for c in columns if not c.hidden or c.name in kept)
    return Knowledge(shown, kept, SQL)


def _column(found: SqlColumn) -> Column:
    is_list = found.type.endswith("[]")
    text = ("ENUM[]" if is_list else "ENUM") if found.user_defined else _PG_WORDS.get(found.type, found.type)
    return replace(column(found.name, text, SQL, required=not found.nullable), identity=found.identity)
