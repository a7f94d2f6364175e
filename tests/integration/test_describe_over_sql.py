"""`schema_from` against a real PostgreSQL, whose catalog a CockroachDB server imitates. Not a real cluster."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from servers.postgres import postgres_server

from frazil.errors import ConfigError, SourceUnavailable
from frazil.sources.cockroachdb.schema.describe_sql import SqlDescriber

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with postgres_server() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TYPE mood AS ENUM ('good', 'bad')")
            connection.execute(
                "CREATE TABLE orders (line int4, id uuid, total numeric(12,2) NOT NULL, note text, tags text[], "
                "at timestamptz, on_day date, raw bytea, doc jsonb, feeling mood, ratio float8, PRIMARY KEY (id, line))"
            )
            connection.execute("CREATE TABLE keyless (a int8)")
            connection.execute("CREATE SCHEMA other")
            connection.execute("CREATE TABLE other.twice (a int8 PRIMARY KEY)")
            connection.execute("CREATE TABLE twice (a int8 PRIMARY KEY)")
        yield url


def test_types_and_key_are_told_by_the_source(url: str) -> None:
    known = SqlDescriber(url)("orders")
    assert known is not None
    assert known.key == ("id", "line"), "in key order, not in column order"
    assert {column.name: str(column.type) for column in known.columns} == {
        "line": "int",
        "id": "uuid",
        "total": "decimal(12, 2)",
        "note": "string",
        "tags": "list<string>",
        "at": "timestamptz",
        "on_day": "date",
        "raw": "binary",
        "doc": "string",
        "feeling": "string",
        "ratio": "double",
    }
    assert {column.origin for column in known.columns} == {"sql"}
    assert [column.name for column in known.columns if column.required] == ["line", "id", "total"]


def test_a_columns_identity_outlives_its_name_and_not_its_table(url: str) -> None:
    def identities() -> dict[str, str | None]:
        known = SqlDescriber(url)("changing")
        assert known is not None
        return {column.name: column.identity for column in known.columns}

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE changing (a int8 PRIMARY KEY, gone text, b int4)")
        before = identities()
        assert None not in before.values()
        assert len(set(before.values())) == 3
        connection.execute("ALTER TABLE changing DROP COLUMN gone")
        connection.execute("ALTER TABLE changing RENAME COLUMN b TO c")
        connection.execute("ALTER TABLE changing ALTER COLUMN c TYPE int8")
        connection.execute("ALTER TABLE changing ADD COLUMN b text")
        after = identities()
        assert (after["a"], after["c"]) == (before["a"], before["b"])
        assert after["b"] not in before.values()
        connection.execute("DROP TABLE changing")
        connection.execute("CREATE TABLE changing (a int8 PRIMARY KEY, x text, y text)")
        assert not set(identities().values()) & set(after.values())


def test_a_table_without_a_key_tells_none(url: str) -> None:
    known = SqlDescriber(url)("keyless")
    assert known is not None
    assert known.key == ()


def test_an_unknown_table_is_not_made_up(url: str) -> None:
    assert SqlDescriber(url)("nowhere") is None


def test_a_name_in_two_schemas_is_not_guessed(url: str) -> None:
    with pytest.raises(ConfigError, match="other, public"):
        SqlDescriber(url)("twice")
    known = SqlDescriber(url)("postgres.other.twice")
    assert known is not None


def test_a_server_that_does_not_answer_may_be_tried_again() -> None:
    with pytest.raises(SourceUnavailable, match="schema_from"):
        SqlDescriber("postgresql://nobody@127.0.0.1:1/none")("orders")
