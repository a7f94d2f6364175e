"""A MongoDB source in a configuration: names, mappings, and mistakes."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from frazil.config.load import parse_config
from frazil.config.pipeline_config import PipelineConfig
from frazil.config.routing import target_of
from frazil.errors import ConfigError
from frazil.model.write import SchemaConflict
from frazil.sources.mongodb.config import MongoSource

URI = "mongodb://frazil:secret@db1/?replicaSet=rs0"


def config(*tables: Any, source: dict[str, Any] | None = None) -> PipelineConfig:
    entries = [{"source": one} if isinstance(one, str) else one for one in tables or ("shop.orders",)]
    text = yaml.safe_dump(
        {
            "pipeline": "mirror",
            "source": {"type": "mongodb", "uri": URI, **(source or {})},
            "catalog": {"type": "builtin", "warehouse": "w"},
            "tables": entries,
        }
    )
    return parse_config(text, name="shop.yaml", environ={})


def target(loaded: PipelineConfig) -> str:
    entry = loaded.tables[0]
    return target_of(entry.target, entry.source, entry.source, loaded.pipeline).text


def test_a_uri_and_a_collection_are_enough() -> None:
    loaded = config()
    assert isinstance(loaded.source, MongoSource)
    assert (loaded.source.max_records, loaded.source.max_bytes) == (50_000, 128 << 20)
    assert (loaded.source.flush_interval, loaded.source.sample) == (60.0, 1000)
    assert target(loaded) == "shop.orders"
    assert loaded.tables[0].on_schema_conflict is SchemaConflict.NEW_COLUMN


def test_the_database_of_the_source_stands_in_for_the_one_an_entry_does_not_name() -> None:
    loaded = config("orders", source={"database": "shop"})
    assert loaded.tables[0].source == "shop.orders"
    assert target(loaded) == "shop.orders"
    assert target(config({"source": "shop.orders", "target": "{database}_raw.{table}"})) == "shop_raw.orders"


def test_an_explicit_mapping_names_columns_after_their_paths() -> None:
    fields = [{"source": "customer.name"}, {"source": "total", "target": "sum", "type": "decimal(12, 2)"}]
    entry = config({"source": "shop.orders", "mapping": {"mode": "explicit", "fields": fields}}).tables[0]
    assert entry.mapping is not None
    assert [field.column for field in entry.mapping.fields] == ["customer_name", "sum"]
    assert entry.on_schema_conflict is SchemaConflict.STOP


@pytest.mark.parametrize(
    ("tables", "source", "told"),
    [
        (["orders"], {}, "tables[0].source: name the collection with its database"),
        ([{"source": "a.b", "key": ["x"]}], {}, "tables[0].key: the key of a collection is its _id"),
        ([{"source": "a.b", "mapping": {"mode": "explicit"}}], {}, "tables[0].mapping.fields: explicit needs fields"),
        ([{"source": "a.b", "rescan": "merge"}], {}, "tables[0].rescan: only a changefeed needs to be told this"),
        (["a.b"], {"uri": "postgresql://x"}, "source.uri: must be a URI mongodb://"),
        (["a.b"], {"max_record": 5}, "source.max_record: unknown key; did you mean 'max_records'?"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(tables: list[Any], source: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config(*tables, source=source)
    assert told in str(refused.value)


def test_a_mapping_is_refused_where_there_are_no_documents() -> None:
    text = """
pipeline: shop
source: {type: cockroachdb, feed: s3://feeds/shop}
catalog: {type: builtin, warehouse: w}
tables: [{source: shop.public.orders, key: [id], mapping: {mode: auto}}]
"""
    with pytest.raises(ConfigError, match="cockroachdb has no documents to map"):
        parse_config(text, environ={})


def test_the_password_is_not_shown() -> None:
    assert "secret" not in repr(config())
