"""Where columns and keys come from, and what may be inferred."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from cockroach_feed import Feed, at, delete, upsert
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import BadInput, ConfigError
from frazil.model.frontier import Window
from frazil.model.schema import LONG, STRING, Decimal, Field, KnownTable, Remembered, Schema, SourceSchema
from frazil.sources.cockroachdb.decode.exact_json import Number, loads
from frazil.sources.cockroachdb.feed.location import FeedLocation
from frazil.sources.cockroachdb.schema.describe_sql import SqlColumn, from_sql, in_one_schema, split_topic
from frazil.sources.cockroachdb.schema.profile import ColumnProfile, Profile, merged, of_value, profile_partition
from frazil.sources.cockroachdb.schema.schema import Knowledge, Pinned, from_target, inferred_key, inferred_type
from frazil.sources.cockroachdb.source import CloudFeed, TableSettings


def shapes_of(feed: Feed, targets: Any = None, look: bool = False, **kwargs: Any) -> dict[str, SourceSchema]:
    source = CloudFeed(FeedLocation(str(feed.root)), **kwargs)
    tables = [table.name for table in source.tables()]
    source.initial(dict.fromkeys(tables))
    window = Window(source.latest()[-1:])
    partitions = source.partitions(window, {}, {table: i for i, table in enumerate(tables)})
    return dict(source.schemas(partitions, targets, look=look))


def known(*fields: Field, memory: Mapping[int, Remembered] | None = None) -> KnownTable:
    """A target table keyed by its first field."""
    return KnownTable(Schema(0, fields, (fields[0].id,)), memory or {})


def types(found: SourceSchema) -> dict[str, str]:
    return {column.name: column.source_type for column in found.columns}


def feed_of(root: Path, lines: Sequence[str], topic: str = "t") -> Feed:
    feed = Feed(root)
    feed.data(at(0), lines, topic=topic)
    feed.resolved(at(10**4))
    return feed


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "-9223372036854775808"], "INT8"),
        (["9223372036854775808"], "DECIMAL(38,10)"),
        (["1", "1.5"], "DECIMAL(38,10)"),
        (["1E+1"], "DECIMAL(38,10)"),
        (["0.123456789012345"], "DECIMAL(38,15)"),
        (["1E+30"], "FLOAT8"),
        (["12345678901234567890123456789.5"], "DECIMAL"),
        (["1E+400"], "DECIMAL"),
        (["1.5", '"NaN"'], "FLOAT8"),
        (["12345678901234567890.5", '"NaN"'], "DECIMAL"),
        (["true", "null"], "BOOL"),
        (['"2020-01-01T00:00:00Z"', '"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"'], "STRING"),
        (['"NaN"'], "STRING"),
        (['{"a": 1}'], "JSONB"),
        (["[1]", '"x"'], "JSONB"),
        (["1", '"x"'], "JSONB"),
        (["true", "1"], "JSONB"),
        (["null"], None),
    ],
)
def test_types_are_inferred_by_the_stated_rules(values: list[str], expected: str | None) -> None:
    from_text = [ColumnProfile.merge(ColumnProfile(), of_value(loads(value))) for value in values]
    seen = from_text[0]
    for other in from_text[1:]:
        seen = seen.merge(other)
    assert inferred_type(seen) == expected


profiles = st.builds(
    Profile,
    st.dictionaries(st.sampled_from("abc"), st.integers(-(10**30), 10**30).map(lambda i: of_value(Number(i)))),
    st.one_of(st.none(), st.lists(st.frozensets(st.sampled_from("abc")), max_size=3).map(tuple)),
    st.integers(0, 9),
)


@given(st.lists(profiles, max_size=4))
def test_profiles_merge_in_any_order(some: list[Profile]) -> None:
    forward, backward = merged(some), merged(reversed(some))
    assert forward.columns == backward.columns
    assert forward.key_places == backward.key_places
    assert forward.rows == backward.rows


def test_a_shape_is_inferred_from_rows(tmp_path: Path) -> None:
    feed = feed_of(
        tmp_path,
        [upsert([1], at(0), a=1, b="x", n=None), upsert([2], at(0), a=2, b=None, c=1.25), delete([9], at(0))],
    )
    found = shapes_of(feed)["t"]
    assert types(found) == {"a": "INT8", "b": "STRING", "c": "DECIMAL(38,10)"}
    assert (found.key, found.key_origin) == (("a",), "inferred")
    assert {column.origin for column in found.columns} == {"inferred"}


def test_a_key_of_several_columns_behind_a_hidden_one_is_inferred(tmp_path: Path) -> None:
    feed = feed_of(tmp_path, [upsert([7, "s", 1], at(0), a=1, c="s", q=5), upsert([6, "t", 2], at(0), a=2, c="t", q=5)])
    assert shapes_of(feed)["t"].key == ("c", "a")


def test_an_ambiguous_key_asks_for_a_pin(tmp_path: Path) -> None:
    feed = feed_of(tmp_path, [upsert([1], at(0), a=1, b=1)])
    with pytest.raises(BadInput) as caught:
        shapes_of(feed)
    assert caught.value.facts["candidates"] == ["a", "b"]
    assert "key:" in caught.value.hint
    pinned = {"t": TableSettings(pinned=Pinned(key=("a",)))}
    assert shapes_of(feed, tables=pinned)["t"].key == ("a",)


def test_a_key_that_no_column_holds_asks_for_a_pin() -> None:
    with pytest.raises(BadInput, match="key cannot be told"):
        inferred_key(Profile({}, (frozenset(),), 3), "t")


def test_numbers_and_strings_are_not_the_same_key(tmp_path: Path) -> None:
    feed = feed_of(tmp_path, [upsert([1], at(0), a=1, b="1")])
    assert shapes_of(feed)["t"].key == ("a",)


def test_deletes_alone_tell_no_shape(tmp_path: Path) -> None:
    assert shapes_of(feed_of(tmp_path, [delete([1], at(0))])) == {}


def test_each_column_is_known_from_the_first_place_that_knows(tmp_path: Path) -> None:
    feed = feed_of(tmp_path, [upsert([1], at(0), a=1, b="x", c="y", d="z")])
    sql = from_sql([SqlColumn("public", "a", "INT4", False), SqlColumn("public", "b", "STRING")], ["a"])
    target = known(Field(1, "a", LONG), Field(2, "c", STRING, doc="UUID"), Field(3, "d", STRING, doc="ENUM"))
    pinned = {"t": TableSettings(pinned=Pinned(columns={"b": "VARCHAR(5)"}))}
    found = shapes_of(feed, {"t": target}, look=True, tables=pinned, describe=lambda _: sql)["t"]
    assert {column.name: (column.source_type, column.origin) for column in found.columns} == {
        "a": ("INT4", "sql"),
        "b": ("VARCHAR(5)", "configuration"),
        "c": ("STRING", "table"),
        "d": ("ENUM", "table"),
    }
    assert found.key_origin == "sql"


def test_a_pinned_table_is_not_looked_at(tmp_path: Path) -> None:
    feed = feed_of(tmp_path, ["this is not JSON"])
    pinned = {"t": TableSettings(pinned=Pinned(columns={"a": "INT8"}, key=("a",)))}
    assert types(shapes_of(feed, tables=pinned)["t"]) == {"a": "INT8"}


def test_looking_finds_columns_that_nobody_announced(tmp_path: Path) -> None:
    feed = feed_of(tmp_path, [upsert([1], at(0), a=1, new=True)])
    target = known(Field(1, "a", LONG))
    assert types(shapes_of(feed, {"t": target})["t"]) == {"a": "INT8"}
    assert types(shapes_of(feed, {"t": target}, look=True)["t"]) == {"a": "INT8", "new": "BOOL"}


def test_a_family_has_its_own_columns_only(tmp_path: Path) -> None:
    feed = feed_of(tmp_path, [upsert([1], at(0), c="x"), upsert([2], at(0), c="y")], topic="t+f2")
    sql = from_sql([SqlColumn("public", name, "STRING" if name != "a" else "INT8") for name in "abc"], ["a"])
    found = shapes_of(feed, describe=lambda _: sql)["t+f2"]
    assert types(found) == {"a": "INT8", "c": "STRING"}


def test_the_enriched_schema_tells_types_and_key(tmp_path: Path) -> None:
    samples = Path(__file__).parents[2] / "fixtures" / "cockroachdb" / "samples.ndjson"
    wanted = "envelope=enriched, enriched_properties='source,schema', diff, mvcc_timestamp, updated, key_in_value"
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    text = next(s["sample"] for s in lines if wanted in s["options"])
    found = shapes_of(feed_of(tmp_path, [text]))["t"]
    assert types(found) == {
        "id": "STRING",
        "name": "STRING",
        "description": "STRING",
        "price": "DECIMAL(10,2)",
        "in_stock": "BOOL",
        "category": "STRING",
        "created_at": "TIMESTAMP",
    }
    assert (found.key, found.key_origin) == (("id",), "enriched")


def test_hidden_columns_leave_a_key_that_has_visible_ones() -> None:
    columns = [
        SqlColumn("public", "crdb_internal_a_shard_16", "INT4", False, True),
        SqlColumn("public", "crdb_region", "public.crdb_internal_region", False, True, True),
        SqlColumn("public", "a", "INT8", False),
        SqlColumn("public", "state", "public.state[]", True, False, True),
    ]
    found = from_sql(columns, ["crdb_region", "crdb_internal_a_shard_16", "a"])
    assert found.key == ("a",)
    assert [(column.name, column.source_type) for column in found.columns] == [("a", "INT8"), ("state", "ENUM[]")]


def test_a_table_without_primary_key_is_keyed_by_its_rowid() -> None:
    columns = [SqlColumn("public", "x", "STRING"), SqlColumn("public", "rowid", "INT8", False, True)]
    found = from_sql(columns, ["rowid"])
    assert found.key == ("rowid",)
    assert [column.name for column in found.columns] == ["x", "rowid"]


def test_postgresql_words_mean_what_postgresql_means() -> None:
    columns = [SqlColumn("public", "a", "integer", False), SqlColumn("public", "b", "numeric(12,2)")]
    assert [str(column.type) for column in from_sql(columns, ["a"]).columns] == ["int", "decimal(12, 2)"]


def test_a_name_in_two_schemas_is_refused() -> None:
    columns = [SqlColumn("a", "x", "INT8"), SqlColumn("b", "x", "INT8"), SqlColumn("pg_catalog", "x", "INT8")]
    with pytest.raises(ConfigError, match="a, b"):
        in_one_schema(columns, None, "t")
    assert in_one_schema(columns, "b", "db.b.t") == [columns[1]]


@pytest.mark.parametrize(
    ("topic", "expected"),
    [("t", (None, "t")), ("d.s.t", ("s", "t")), ("d.s.my.t+f", ("s", "my.t")), ("t+f", (None, "t"))],
)
def test_topics_name_schema_and_table(topic: str, expected: tuple[str | None, str]) -> None:
    assert split_topic(topic) == expected


def test_a_target_without_docs_stands_for_plain_types() -> None:
    target = Schema(0, (Field(1, "a", LONG), Field(2, "d", Decimal(9, 2)), Field(3, "s", STRING, doc="a note")), ())
    found = from_target(KnownTable(target))
    assert [column.source_type for column in found.columns] == ["INT8", "DECIMAL(9,2)", "STRING"]
    assert found.key == ()


def test_a_profile_may_stop_early(tmp_path: Path) -> None:
    feed = feed_of(tmp_path, [upsert([i], at(0), a=i) for i in range(10)])
    assert profile_partition(FeedLocation(str(tmp_path)), feed.files[0], rows_max=3).rows == 3


def test_a_profile_names_the_line_it_cannot_read(tmp_path: Path) -> None:
    feed = feed_of(tmp_path, [upsert([1], at(0), a=1), "nonsense"])
    with pytest.raises(BadInput) as caught:
        profile_partition(FeedLocation(str(tmp_path)), feed.files[0])
    assert caught.value.facts["line"] == 2


def test_knowledge_of_nothing_is_no_shape(tmp_path: Path) -> None:
    feed = feed_of(tmp_path, [delete([1], at(0))])
    assert shapes_of(feed, describe=lambda _: Knowledge()) == {}
