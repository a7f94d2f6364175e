"""Column families of a feed: which topics are one table, which columns each family has, and what cannot be told."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cockroach_feed import Feed, at, delete, upsert

from frazil.config.routing import Entries
from frazil.config.table_entries import TableEntry
from frazil.errors import BadInput, ConfigError
from frazil.model.change import REPORT_EPOCH, PartitionReport
from frazil.model.frontier import Frontier, Window
from frazil.model.schema import (
    LONG,
    PRIMARY,
    STRING,
    Field,
    KnownTable,
    Remembered,
    Schema,
    SourceSchema,
    families,
    part_number,
    parts_of,
    primary_family,
)
from frazil.sources.cockroachdb.feed.location import FeedLocation
from frazil.sources.cockroachdb.position import Hlc
from frazil.sources.cockroachdb.resume_state import Notes
from frazil.sources.cockroachdb.schema.families import table_of
from frazil.sources.cockroachdb.schema.schema import Pinned
from frazil.sources.cockroachdb.source import CloudFeed, TableSettings
from frazil.sources.cutting_reader import cut_of

_TYPES = {"a": LONG, "b": STRING, "c": LONG, "d": STRING}
PINNED = Pinned(columns={"a": "INT8", "b": "STRING", "c": "INT8", "d": "STRING"}, key=("a",))


def grouping(*sources: str) -> Any:
    entries = Entries([TableEntry(source=source, target="ns.{table}") for source in sources], "shop")
    return partial(table_of, is_named=entries.names_family, is_wanted=entries.wants)


@pytest.mark.parametrize(
    ("entries", "tables"),
    [
        (["t"], {"t+f1": "t", "t+f2": "t", "u": "u"}),
        (["*"], {"t+f1": "t", "t+f2": "t", "u": "u"}),
        (["shop.public.t"], {"t+f1": "t", "t+f2": "t"}),
        (["shop.public.*"], {"shop.public.t+f1": "shop.public.t", "hr.public.t+f1": "hr.public.t+f1"}),
        (["t", "t+f2"], {"t+f1": "t", "t+f2": "t+f2"}),
        (["*", "t+f2"], {"t+f1": "t", "t+f2": "t+f2", "u+f2": "u"}),
        (["t+*"], {"t+f1": "t+f1", "t+f2": "t+f2"}),
        (["t", "t+*"], {"t": "t", "t+f1": "t+f1"}),
        (["t+f1", "t+f2"], {"t+f1": "t+f1", "t+f2": "t+f2", "t+f3": "t+f3"}),
        (["u"], {"t+f1": "t+f1"}),
        (["t"], {"t+odd+name": "t"}),
    ],
)
def test_topics_of_families_are_one_table_unless_an_entry_names_them(
    entries: list[str], tables: dict[str, str]
) -> None:
    found = grouping(*entries)
    assert {topic: found(topic) for topic in tables} == tables


def source(feed: Feed, *entries: str, pinned: Pinned | None = PINNED) -> CloudFeed:
    settings = {} if pinned is None else {"t": TableSettings(pinned=pinned)}
    return CloudFeed(FeedLocation(str(feed.root)), tables=settings, table_of=grouping(*(entries or ("t",))))


def schema_of(
    feed: Feed, *entries: str, pinned: Pinned | None = PINNED, known: KnownTable | None = None
) -> SourceSchema:
    found = source(feed, *entries, pinned=pinned)
    source_schema = found.preview("t", known)
    assert source_schema is not None
    return source_schema


def told(source_schema: SourceSchema) -> dict[str, str | None]:
    return {column.name: column.family for column in source_schema.columns}


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path)


def test_one_table_reads_the_files_of_all_its_families(feed: Feed) -> None:
    """A row beyond R is carried over, whichever family it belongs to; each row travels as a part of its family."""
    feed.data(at(1), [upsert([1], at(1), a=1, b="x")], topic="t+f1")
    path = feed.data(at(1), [upsert([1], at(1), c=1, d="y"), delete([1], at(9))], topic="t+f2")
    feed.resolved(at(2))
    found = source(feed)
    assert [table.name for table in found.tables()] == ["t"]
    found.initial({"t": None})
    (upper,) = found.latest()
    window, index = Window((upper,)), {"t": 0}
    partitions = found.partitions(window, {"t": None}, index)
    assert [partition.name for partition in partitions] == [feed.files[0], path]
    schemas = found.schemas(partitions)
    parts, reports = [], []
    for partition in partitions:
        for batch in found.reader(index, schemas).read(partition, cut_of(window, None)):
            for row in batch.to_pylist():
                if row["epoch"] == REPORT_EPOCH:
                    newest = Hlc(row["major"], row["minor"])
                    reports.append(PartitionReport(0, row["key"], json.loads(row["payload"])["rows"], 0, newest))
                else:
                    parts.append(row["part"])
    assert parts == [PRIMARY, part_number("f2", "f1")]
    notes = found.resume_state("t", upper, reports)
    assert Notes.parse(notes).carried == (path,)
    feed.resolved(at(10))
    found = source(feed)
    found.initial({"t": Frontier(upper, notes)})
    (upper,) = found.latest()
    assert [
        partition.name for partition in found.partitions(Window((upper,)), {"t": Frontier(at(2), notes)}, index)
    ] == [path]


@pytest.mark.parametrize("pinned", [PINNED, Pinned(key=("a",)), None])
def test_rows_tell_the_family_of_each_column(feed: Feed, pinned: Pinned | None) -> None:
    feed.data(at(1), [upsert([n], at(1), a=n, b="x") for n in (5, 6)], topic="t+f1")
    feed.data(at(1), [upsert([n], at(1), c=1, d="y") for n in (5, 6)], topic="t+f2")
    source_schema = schema_of(feed, pinned=pinned)
    assert told(source_schema) == {"a": "f1", "b": "f1", "c": "f2", "d": "f2"}
    assert (source_schema.key, primary_family(source_schema)) == (("a",), "f1")


def test_a_column_that_no_row_has_belongs_to_no_family(feed: Feed) -> None:
    feed.data(at(1), [upsert([5], at(1), a=5, b="x")], topic="t+f1")
    feed.data(at(1), [upsert([5], at(1), c=None)], topic="t+f2")
    source_schema = schema_of(feed)
    assert told(source_schema) == {"a": "f1", "b": "f1", "c": "f2", "d": None}
    assert all("d" not in part.columns for part in parts_of(source_schema))


def test_a_key_that_two_families_seem_to_own_must_be_named(feed: Feed) -> None:
    """By chance c equals the key in every row."""
    feed.data(at(1), [upsert([5], at(1), a=5, b="x")], topic="t+f1")
    feed.data(at(1), [upsert([5], at(1), c=5)], topic="t+f2")
    with pytest.raises(BadInput, match="equals each of the columns a, c"):
        schema_of(feed, pinned=None)
    assert primary_family(schema_of(feed, pinned=Pinned(key=("a",)))) == "f1"


def known(*families_: str | None) -> KnownTable:
    fields = tuple(Field(i, name, _TYPES[name], name == "a") for i, name in enumerate(("a", "b", "c", "d"), start=1))
    memory = {f.id: Remembered(None, (f.name,), family=of) for f, of in zip(fields, families_, strict=True)}
    return KnownTable(Schema(0, fields, (1,)), memory)


def test_a_table_tells_the_families_that_these_rows_do_not(feed: Feed) -> None:
    """Nothing but deletes of f2: its columns, and that it is not the primary family, are remembered."""
    feed.data(at(1), [delete([5], at(1))], topic="t+f2")
    source_schema = schema_of(feed, known=known("f1", "f1", "f2", "f2"))
    assert told(source_schema) == {"a": "f1", "b": "f1", "c": "f2", "d": "f2"}


def test_a_family_that_appears_later_is_looked_at(feed: Feed) -> None:
    feed.data(at(1), [upsert([5], at(1), a=5, b="x")], topic="t+f1")
    feed.resolved(at(2))
    found = source(feed)
    found.initial({"t": None})
    (upper,) = found.latest()
    partitions = found.partitions(Window((upper,)), {"t": None}, {"t": 0})
    assert families(found.schemas(partitions)["t"]) == ("f1",)
    assert not found.schema_changed("t", partitions)
    feed.data(at(3), [upsert([5], at(3), c=1, d=None)], topic="t+f2")
    feed.resolved(at(4))
    (upper,) = found.latest()
    partitions = found.partitions(Window((upper,)), {"t": Frontier(at(2))}, {"t": 0})
    assert found.schema_changed("t", partitions)
    assert told(found.schemas(partitions, {"t": known("f1", "f1", None, None)})["t"]) == {
        "a": "f1", "b": "f1", "c": "f2", "d": "f2",
    }  # fmt: skip
    assert not found.schema_changed("t", partitions)


def test_a_plain_topic_is_the_primary_family_before_it_had_a_name(feed: Feed) -> None:
    feed.data(at(1), [upsert([5], at(1), a=5, b="x")], topic="t")
    assert told(schema_of(feed)) == dict.fromkeys(("a", "b", "c", "d"))
    feed.data(at(2), [upsert([5], at(2), c=1, d="y")], topic="t+f2")
    source_schema = schema_of(feed)
    assert told(source_schema) == {"a": "", "b": "", "c": "f2", "d": "f2"}
    assert parts_of(source_schema)[0].columns == ("a", "b")


def test_deletes_alone_do_not_tell_whether_a_row_is_gone(feed: Feed) -> None:
    feed.data(at(1), [upsert([5], at(1), c=1, d="y")], topic="t+f2")
    assert primary_family(schema_of(feed)) is None
    feed.data(at(1), [delete([5], at(1))], topic="t+f1")
    with pytest.raises(BadInput, match="of f1 only deletes were seen") as refused:
        schema_of(feed)
    assert "t+f1" in refused.value.hint


def test_deletes_of_the_family_that_is_called_primary_are_deletes_of_rows(feed: Feed) -> None:
    feed.data(at(1), [upsert([5], at(1), c=1, d="y")], topic="t+f2")
    feed.data(at(1), [delete([5], at(1))], topic="t+primary")
    assert primary_family(schema_of(feed)) == "primary"


def test_rows_of_all_families_hold_the_key_in_a_parquet_feed(feed: Feed) -> None:
    """There the name must tell."""
    feed.data(at(1), [upsert([5], at(1), a=5, b="x")], topic="t+f1")
    feed.data(at(1), [upsert([5], at(1), a=5, c=1)], topic="t+f2")
    with pytest.raises(ConfigError, match="which of its column families f1, f2 owns the key") as refused:
        schema_of(feed)
    assert "t+f1, t+f2" in refused.value.hint
    assert primary_family(schema_of(feed, known=known("f2", None, None, None))) == "f2"
    feed.data(at(1), [upsert([5], at(1), a=5, d="y")], topic="t+primary")
    assert primary_family(schema_of(feed)) == "primary"


def test_csv_files_of_families_are_refused(feed: Feed) -> None:
    feed.data(at(1), b"5,x\n", topic="t+f1", extension="csv")
    with pytest.raises(ConfigError, match="CSV files do not tell which columns the family f1 has"):
        schema_of(feed)
