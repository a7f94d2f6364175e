"""MongoDB, as a kind of source."""

from __future__ import annotations

from frazil.sources.mongodb.config import MongoSource
from frazil.sources.mongodb.position import ClusterTime
from frazil.sources.mongodb.schema.types import name_of
from frazil.sources.registry import InitTemplate, SourceKind

KIND = SourceKind(
    config=MongoSource,
    position=ClusterTime,
    opened_by="frazil.sources.mongodb.opening:open_source",
    needs="pip install 'pymongo>=4.9'",
    template=InitTemplate(
        on={
            "source.uri": "mongodb://frazil:${MONGO_PASSWORD:-}@localhost:27017/?replicaSet=rs0",
            "tables.source": "shop.orders",
        },
        left_out=frozenset(f"tables.{name}" for name in ("changelog", "history", "json_as", "key", "rescan")),
        examples={"tables.columns": {"total": "decimal(12, 2)"}},
    ),
    preloaded=("frazil.sources.mongodb.source", "frazil.sources.mongodb.schema.profile", "pandas"),
    type_name=lambda column: name_of(column.type, column.source_type),
)
