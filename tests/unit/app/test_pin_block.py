"""What `frazil check` prints to be pasted means what the configuration meant, and pins what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import yaml

from frazil.app.pin_block import full_name, pin_block
from frazil.config.load import parse_config
from frazil.config.pipeline_config import PipelineConfig
from frazil.config.routing import Route
from frazil.model import schema as iceberg
from frazil.model.partition import parse_partition
from frazil.model.schema import Column, SourceSchema, Type
from frazil.model.sort import parse_sort
from frazil.sources.cockroachdb.schema.types import column

ORDERS = SourceSchema(
    (
        column("id", "INT8", "sql"),
        column("amount", "DECIMAL(12,2)", "configuration"),
        column("placed at", "TIMESTAMPTZ", "inferred"),
        column("on", "BOOL", "inferred"),
        column("kind", 'STRING COLLATE "de"', "sql"),
        column("${HOME}", "STRING[]", "inferred"),
    ),
    ("id",),
    "inferred",
)
ENTRY = {
    "source": "shop.public.orders",
    "target": "analytics.orders",
    "columns": {"amount": "DECIMAL(12,2)"},
    "partition": ["day(placed at)", "bucket(16, id)"],
    "sort": ["id desc"],
    "deletes": "equality",
    "changelog": True,
    "drop": True,
    "on_schema_conflict": "new-column",
    "properties": {"write.metadata.delete-after-commit.enabled": "true", "note": "a: b # ${X}"},
    "format_version": 2,
    "catalog": "cold",
    "volume": "disk",
}


def config(*tables: Mapping[str, Any], source: Mapping[str, Any] | None = None) -> PipelineConfig:
    return parsed(tables, source)


def parsed(tables: Any, source: Mapping[str, Any] | None = None) -> PipelineConfig:
    document = {
        "pipeline": "shop",
        "source": source or {"type": "cockroachdb", "feed": "s3://feeds/shop"},
        "catalogs": {"lake": {"type": "builtin", "warehouse": "/w"}, "cold": {"type": "builtin", "warehouse": "/c"}},
        "volumes": {"disk": {"location": "/data"}},
        "tables": list(tables),
    }
    text = yaml.safe_dump(document, sort_keys=False)
    return parse_config(text.replace("${", "$${"), environ={})


def route(config: PipelineConfig, names: Sequence[str]) -> list[Route]:
    return [taken for name in names if (taken := config.route_of(name)) is not None]


def pasted(before: PipelineConfig, schemas: Mapping[str, SourceSchema], source: Any = None) -> PipelineConfig:
    """The configuration with the printed block in the place of its tables, as a person would paste it."""
    routes = route(before, list(schemas))
    block = pin_block(before, [(taken, schemas[taken.source]) for taken in routes])
    document = yaml.safe_dump(
        {
            "pipeline": "shop",
            "source": source or {"type": "cockroachdb", "feed": "s3://feeds/shop"},
            "catalogs": {
                "lake": {"type": "builtin", "warehouse": "/w"},
                "cold": {"type": "builtin", "warehouse": "/c"},
            },
            "volumes": {"disk": {"location": "/data"}},
        }
    )
    return parse_config(document + block, environ={})


def same_but_pinned(before: PipelineConfig, after: PipelineConfig, names: Sequence[str]) -> None:
    """Every source table has the same target and the same settings."""
    old, new = route(before, names), route(after, names)
    assert [taken.target for taken in old] == [taken.target for taken in new]
    for one, other in zip(old, new, strict=True):
        dropped = {"source", "target", "key", "columns"}
        assert other.entry.model_dump(exclude=dropped) == one.entry.model_dump(exclude=dropped)
        assert one.volume == other.volume


def test_a_pasted_block_keeps_every_setting_and_the_whole_name_of_the_source() -> None:
    before = config(ENTRY, {"source": "shop.public.items"})
    after = pasted(
        before, {"orders": ORDERS, "shop.public.items": SourceSchema((column("a", "INT8", "sql"),), ("a",), "sql")}
    )
    same_but_pinned(before, after, ["orders", "items"])
    assert after.tables[0].source == "shop.public.orders"
    assert after.tables[0].key == ("id",)
    assert after.tables[0].columns == {
        "id": "INT8",
        "amount": "DECIMAL(12,2)",
        "placed at": "TIMESTAMPTZ",
        "on": "BOOL",
        "kind": 'STRING COLLATE "de"',
        "${HOME}": "STRING[]",
    }


def test_the_block_says_who_told_each_line() -> None:
    before = config(ENTRY)
    block = pin_block(before, [(route(before, ["orders"])[0], ORDERS)])
    assert "    key: [id]  # inferred\n" in block
    assert "      amount: DECIMAL(12,2)  # configuration\n" in block


def test_tables_of_a_pattern_get_entries_of_their_own_and_the_pattern_stays() -> None:
    before = config({"source": "shop.public.*", "target": "analytics.{table}", "deletes": "append-only"})
    after = pasted(before, {"orders": ORDERS})
    same_but_pinned(before, after, ["orders", "later"])
    assert [entry.source for entry in after.tables] == ["shop.public.orders", "shop.public.*"]
    pinned = after.entries.taking("orders")
    assert pinned is not None
    assert "amount" in pinned.columns


def test_entries_of_tables_that_were_not_found_stay_as_they_are() -> None:
    before = config(ENTRY, {"source": "shop.public.unborn", "partition": ["a"], "key": ["a"]})
    after = pasted(before, {"orders": ORDERS})
    assert after.tables[1] == before.tables[1]


def test_a_column_is_pinned_by_the_name_that_rows_carry() -> None:
    renamed = Column("total_v2", iceberg.STRING, "STRING", "inferred", carried=("total",))
    source_schema = SourceSchema((column("id", "INT8", "sql"), renamed), ("id",), "sql")
    after = pasted(config({"source": "orders"}), {"orders": source_schema})
    assert after.tables[0].columns == {"id": "INT8", "total": "STRING"}


@pytest.mark.parametrize(
    ("entry", "name", "whole"),
    [
        ("shop.public.orders", "orders", "shop.public.orders"),
        ("shop.public.*", "orders", "shop.public.orders"),
        ("shop.*.orders", "orders", "orders"),
        ("*.public.o*", "orders", "public.orders"),
        ("orders", "shop.public.orders", "shop.public.orders"),
    ],
)
def test_parts_that_a_feed_does_not_tell_are_those_of_the_entry(entry: str, name: str, whole: str) -> None:
    assert full_name(entry, name) == whole


MONGO = {"type": "mongodb", "uri": "mongodb://localhost/?replicaSet=rs0"}


def field(name: str, type_: Type, doc: str, carried: tuple[str, ...] = ()) -> Column:
    return Column(name, type_, doc, "inferred", carried=carried)


def test_types_of_documents_are_pinned_as_what_they_are_or_not_at_all() -> None:
    """A BSON date is a timestamp with a zone, and `date` in the configuration is a day."""
    source_schema = SourceSchema(
        (
            field("_id", iceberg.STRING, "objectId"),
            field("at", iceberg.TIMESTAMPTZ, "date"),
            field("price", iceberg.Decimal(38, 10), "decimal"),
            field("tags", iceberg.ListOf(iceberg.STRING), "array<string>"),
            field("pattern", iceberg.STRING, "regex"),
            field("clock", iceberg.STRING, "timestamp"),
            field("a_b", iceberg.LONG, "long", ("a.b",)),
        ),
        ("_id",),
        "_id",
    )
    before = config({"source": "shop.orders", "on_schema_conflict": "stop", "partition": ["day(at)"]}, source=MONGO)
    after = pasted(before, {"shop.orders": source_schema}, MONGO)
    same_but_pinned(before, after, ["shop.orders"])
    assert after.tables[0].columns == {"_id": "objectid", "at": "timestamp", "price": "decimal(38, 10)", "a.b": "long"}


def test_an_explicit_mapping_stays_what_tells_the_columns() -> None:
    mapping = {"mode": "explicit", "fields": [{"source": "customer.name", "target": "customer", "type": "string"}]}
    before = config({"source": "shop.orders", "mapping": mapping, "deletes": "append-only"}, source=MONGO)
    source_schema = SourceSchema(
        (field("_id", iceberg.STRING, "objectId"), field("customer", iceberg.STRING, "string", ("customer.name",))),
        ("_id",),
        "_id",
    )
    after = pasted(before, {"shop.orders": source_schema}, MONGO)
    same_but_pinned(before, after, ["shop.orders"])
    assert after.tables[0].columns == {}


@pytest.mark.parametrize("text", ["a", "day(a)", "bucket(16, a)", "truncate(4, a b)"])
def test_a_partition_is_written_as_it_is_read(text: str) -> None:
    assert parse_partition(text).text == text


@pytest.mark.parametrize("text", ["a", "a desc", "a nulls last", "a desc nulls first"])
def test_an_order_is_written_as_it_is_read(text: str) -> None:
    assert parse_sort(text).text == text
