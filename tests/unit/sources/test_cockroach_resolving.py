"""What several places know of a table: renamed columns, columns that changed their type, columns that are gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cockroach_feed import Feed, at, upsert

from frazil.errors import SourceUnavailable
from frazil.model.schema import INT, LONG, STRING, Decimal, Field, KnownTable, Remembered, Schema, SourceSchema, Type
from frazil.sources.base import InputPartition
from frazil.sources.cockroachdb.decode.exact_json import loads
from frazil.sources.cockroachdb.feed.location import FeedLocation
from frazil.sources.cockroachdb.schema.describe_sql import SqlColumn, from_sql
from frazil.sources.cockroachdb.schema.profile import ColumnProfile, Profile, of_value
from frazil.sources.cockroachdb.schema.resolve import fits_rows, heard_by_rows, resolve_schema, without_dropped
from frazil.sources.cockroachdb.schema.schema import (
    CONFIGURATION,
    INFERRED,
    TABLE,
    Knowledge,
    Pinned,
    configured,
    from_target,
    retired_columns,
)
from frazil.sources.cockroachdb.schema.types import column
from frazil.sources.cockroachdb.source import CloudFeed, TableSettings


def sql(*columns: tuple[str, str, str | None]) -> Knowledge:
    """Keyed by a; columns as (name, type, identity)."""
    own = [SqlColumn("public", "a", "INT8", False, identity="9.1")]
    return from_sql([*own, *(SqlColumn("public", n, t, identity=i) for n, t, i in columns)], ["a"])


def target(**fields: tuple[Type, Remembered]) -> KnownTable:
    """Keyed by a, which is field 1."""
    given = {"a": (LONG, Remembered("9.1", ("a",))), **fields}
    schema = Schema(0, tuple(Field(n, name, t) for n, (name, (t, _)) in enumerate(given.items(), 1)), (1,))
    return KnownTable(schema, {n: memory for n, (_, memory) in enumerate(given.values(), 1)})


def rows(**values: list[str]) -> Profile:
    """A profile of these values, as JSON texts."""
    seen = {}
    for name, texts in values.items():
        profile = ColumnProfile()
        for text in texts:
            profile = profile.merge(of_value(loads(text)))
        seen[name] = profile
    return Profile(seen, None, 1)


def resolved(*places: Knowledge) -> SourceSchema:
    source_schema = resolve_schema(places)
    assert source_schema is not None
    return source_schema


def names(source_schema: SourceSchema) -> dict[str, tuple[str, ...]]:
    return {known.name: known.carried_as for known in source_schema.columns}


B = {"b": (STRING, Remembered("9.2", ("b",)))}
V2 = {
    "amount": (LONG, Remembered(carried=("amount",), retired=True)),
    "amount_v2": (STRING, Remembered("9.2", ("amount",))),
}


def test_a_renamed_column_is_carried_by_both_names() -> None:
    source_schema = resolved(sql(("c", "STRING", "9.2")), from_target(target(**B)))
    assert names(source_schema) == {"a": ("a",), "c": ("c", "b")}


def test_rows_of_the_old_name_do_not_bring_the_old_column_back() -> None:
    guess = Knowledge((column("b", "STRING", INFERRED), column("new", "BOOL", INFERRED)), (), INFERRED)
    source_schema = resolved(sql(("c", "STRING", "9.2")), from_target(target(**B)), guess)
    assert names(source_schema) == {"a": ("a",), "c": ("c", "b"), "new": ("new",)}


def test_a_pin_by_the_old_name_is_a_pin_of_the_renamed_column() -> None:
    pins = configured(Pinned(columns={"a": "INT8", "b": "VARCHAR(5)"}, key=("a",)))
    source_schema = resolved(pins, sql(("c", "STRING", "9.2")), from_target(target(**B)))
    assert [(c.name, c.source_type, c.origin) for c in source_schema.columns][1] == ("c", "VARCHAR(5)", CONFIGURATION)


def test_a_renamed_key_column_is_still_the_key() -> None:
    known = from_target(target(**B))
    pins = configured(Pinned(key=("a",)))
    described = from_sql([SqlColumn("public", "ident", "INT8", False, identity="9.1")], ["ident"])
    assert resolved(described, known).key == ("ident",)
    assert resolved(pins, described, known).key == ("ident",), "the pin names it as it was called"
    assert resolved(Knowledge(described.columns, (), "sql"), known).key == ("ident",), "the table tells the key"


def test_another_table_of_the_same_name_renames_nothing() -> None:
    """Its columns have the same numbers, but not the same table."""
    source_schema = resolved(sql(("c", "STRING", "10.2")), from_target(target(**B)))
    assert names(source_schema) == {"a": ("a",), "c": ("c",), "b": ("b",)}


def test_a_column_that_goes_on_in_another_one_is_known_by_what_the_table_remembers() -> None:
    """After a restart, with nobody to ask: rows say amount, the table amount_v2."""
    guess = Knowledge((column("amount", "STRING", INFERRED),), (), INFERRED)
    assert names(resolved(from_target(target(**V2)), guess)) == {"a": ("a",), "amount_v2": ("amount",)}
    assert [c.name for c in retired_columns(target(**V2))] == ["amount"]


def test_a_name_that_moved_to_another_column_is_matched_once() -> None:
    """b was dropped and a column of another identity took its name: the table's two columns share no row."""
    both = target(b=(STRING, Remembered("9.2", ("b",))), d=(STRING, Remembered("9.3", ("d",))))
    source_schema = resolved(sql(("b", "STRING", "9.3")), from_target(both))
    assert names(source_schema) == {"a": ("a",), "b": ("b", "d")}


@pytest.mark.parametrize(
    ("values", "source_type", "fits"),
    [
        (["1"], "INT8", True),
        (["1.5"], "INT8", False),
        (["9223372036854775808"], "INT8", False),
        (['"x"'], "INT8", False),
        (["1", '"NaN"'], "DECIMAL(9,2)", True),
        (['"x"'], "TIMESTAMP", True),
        (["1"], "STRING", False),
        (["[1]"], "INT8[]", True),
        (["[1]", "1", '"x"'], "JSONB", True),
        (["true"], "BOOL", True),
        (["null"], "BOOL", True),
    ],
)
def test_rows_fit_a_type_by_their_kinds(values: list[str], source_type: str, fits: bool) -> None:
    assert fits_rows(rows(x=values).columns["x"], source_type) is fits


def test_rows_from_before_a_change_of_type_still_go_to_the_old_column() -> None:
    """The source describes its columns as they are now; a pipeline that lags behind reads older rows."""
    old = target(amount=(LONG, Remembered("9.2", ("amount",))))
    for known in (old, target(**V2)):
        of_table = (*from_target(known).columns, *retired_columns(known))
        source_schema = resolved(sql(("amount", "STRING", "9.2")), from_target(known))
        heard = heard_by_rows(source_schema, rows(amount=["1"]), of_table)
        assert [(c.name, c.type, c.origin) for c in heard.columns][1] == ("amount", LONG, TABLE)
        later = heard_by_rows(source_schema, rows(amount=['"x"']), of_table)
        assert (later.columns[1].type, later.columns[1].origin) == (STRING, "sql")
        unseen = heard_by_rows(source_schema, rows(), of_table)
        assert unseen == source_schema


@pytest.mark.parametrize(
    ("known", "values", "wider"),
    [
        (INT, ["10000000000"], LONG),
        (INT, ["7"], INT),
        (INT, ["1.5"], INT),
        (Decimal(5, 2), ["12345.25"], Decimal(38, 2)),
        (Decimal(5, 2), ["1.255"], Decimal(5, 2)),
        (LONG, ["9223372036854775808"], LONG),
        (STRING, ["1"], STRING),
    ],
)
def test_what_rows_outgrow_is_widened_if_iceberg_can(known: Type, values: list[str], wider: Type) -> None:
    place = from_target(target(n=(known, Remembered(None, ("n",)))))
    heard = heard_by_rows(resolved(place), rows(n=values), place.columns)
    assert heard.columns[1].type == wider


def test_what_cannot_be_widened_becomes_what_rows_look_like_if_it_may_go_on_in_a_new_column() -> None:
    place = from_target(target(n=(LONG, Remembered(None, ("n",))), s=(STRING, Remembered(None, ("s",)))))
    seen = rows(a=['"text"'], n=["1.5", "2"], s=["{}", '"x"'])
    heard = heard_by_rows(resolved(place), seen, place.columns, new_columns=True)
    a, n, s = heard.columns
    assert (n.type, n.origin) == (Decimal(38, 10), INFERRED)
    assert a.origin == TABLE, "a key stays what it is"
    assert s.origin == TABLE, "text that holds JSON by now would be another text in the same column"
    assert heard.outgrown == (), "each of them holds all rows, or none does"


def test_rows_from_before_and_after_a_change_of_type_have_a_column_each() -> None:
    """H14: in one epoch."""
    old = target(amount=(LONG, Remembered("9.2", ("amount",))))
    for known in (old, target(**V2)):
        of_table = (*from_target(known).columns, *retired_columns(known))
        source_schema = resolved(sql(("amount", "STRING", "9.2")), from_target(known))
        seen = rows(amount=["6", '"seven"'])
        heard = heard_by_rows(source_schema, seen, of_table, new_columns=True)
        assert (heard.columns[1].type, heard.columns[1].origin) == (STRING, "sql")
        assert [(c.name, c.type, c.origin) for c in heard.outgrown] == [("amount", LONG, TABLE)]
        assert heard_by_rows(source_schema, seen, of_table) == source_schema, "with the policy to stop"
        beyond = heard_by_rows(source_schema, rows(amount=["6", "true"]), of_table, new_columns=True)
        assert beyond == source_schema, "what neither holds is still refused"


def test_rows_of_two_types_that_nobody_describes_have_a_column_each_if_one_cannot_hold_both() -> None:
    place = from_target(target(s=(STRING, Remembered(None, ("s",)))))
    heard = heard_by_rows(resolved(place), rows(s=["1", '"x"']), place.columns, new_columns=True)
    assert (heard.columns[1].type, heard.columns[1].origin) == (LONG, INFERRED)
    assert [(c.name, c.type) for c in heard.outgrown] == [("s", STRING)]
    known = target(s=(STRING, Remembered(None, ("s",), retired=True)), s_v2=(LONG, Remembered(None, ("s",))))
    of_table = (*from_target(known).columns, *retired_columns(known))
    for values in (['"x"'], ['"x"', "1"]):
        again = heard_by_rows(resolved(from_target(known)), rows(s=values), of_table, new_columns=True)
        assert [(c.name, c.origin) for c in again.columns] == [("a", TABLE), ("s_v2", TABLE)], "no third column"
        assert [c.name for c in again.outgrown] == ["s"]


def test_only_what_a_complete_description_and_the_rows_lack_is_gone() -> None:
    source_schema = resolved(sql(), from_target(target(**B)))
    assert [c.name for c in without_dropped(source_schema, rows(a=["1"])).columns] == ["a"]
    assert without_dropped(source_schema, rows(a=["1"], b=["null"])) == source_schema, "rows still have it"
    assert without_dropped(source_schema, rows()) == source_schema, "no row was seen"
    assert without_dropped(source_schema, rows(a=["1"], x=["1"])) == source_schema, "the description is not complete"
    undescribed = resolved(from_target(target(**B)))
    assert without_dropped(undescribed, rows(a=["1"])) == undescribed


def asked(feed: Feed, source: CloudFeed, known: KnownTable | None = None, **how: Any) -> SourceSchema:
    return source.schemas(partitions(feed), {} if known is None else {"t": known}, **how)["t"]


def partitions(feed: Feed, *places: int) -> list[InputPartition]:
    return [InputPartition(0, feed.files[n], "{}", 1) for n in places or range(len(feed.files))]


def test_who_describes_a_table_is_asked_again_when_its_schema_has_a_new_version(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    feed.data(at(0), [upsert([1], at(0), a=1, b="x")], schema="1")
    feed.data(at(1), [upsert([1], at(1), a=1, c="x")], schema="a")
    answers = [sql(("b", "STRING", "9.2")), sql(("c", "STRING", "9.2"))]
    source = CloudFeed(FeedLocation(str(tmp_path)), describe=lambda _: answers[0])
    old, new, both = partitions(feed, 0), partitions(feed, 1), partitions(feed)
    source.schemas(old)
    assert not source.schema_changed("t", old)
    assert source.schema_changed("t", new)
    answers.pop(0)
    assert names(source.schemas(both, {"t": target(**B)}, ask=True)["t"]) == {"a": ("a",), "c": ("c", "b")}
    assert source.schema_changed("t", new), "rows of the old version were among them"
    source.schemas(new, {"t": target(**B)}, ask=True)
    assert not source.schema_changed("t", new)
    alone = CloudFeed(FeedLocation(str(tmp_path)))
    alone.schemas(old)
    assert not alone.schema_changed("t", new), "nobody could tell anything"


def test_a_source_that_does_not_answer_stops_only_who_needs_the_answer(tmp_path: Path) -> None:
    def silent(table: str) -> Knowledge | None:
        raise SourceUnavailable("no answer")

    feed = Feed(tmp_path)
    feed.data(at(0), [upsert([1], at(0), a=1)])
    pinned = {"t": TableSettings(pinned=Pinned(columns={"a": "INT8"}, key=("a",)))}
    source = CloudFeed(FeedLocation(str(tmp_path)), tables=pinned, describe=silent)
    assert names(asked(feed, source)) == {"a": ("a",)}
    with pytest.raises(SourceUnavailable):
        asked(feed, CloudFeed(FeedLocation(str(tmp_path)), describe=silent))


def test_drops_are_followed_only_if_asked_to(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    feed.data(at(0), [upsert([1], at(0), a=1)])
    for follow in (False, True):
        settings = {"t": TableSettings(follow_drops=follow)}
        source = CloudFeed(FeedLocation(str(tmp_path)), tables=settings, describe=lambda _: sql())
        assert list(names(asked(feed, source, target(**B)))) == (["a"] if follow else ["a", "b"])


def test_a_table_that_needs_no_key_may_have_none(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    feed.data(at(0), [upsert([1], at(0), a=1, b=1)])
    settings = {"t": TableSettings(key_optional=True)}
    source = CloudFeed(FeedLocation(str(tmp_path)), tables=settings)
    found = asked(feed, source)
    assert (found.key, [c.name for c in found.columns]) == ((), ["a", "b"])
