"""CockroachDB, as a kind of source."""

from __future__ import annotations

from frazil.sources.cockroachdb.config import CockroachSource
from frazil.sources.cockroachdb.position import Hlc
from frazil.sources.registry import InitTemplate, SourceKind

_SQL = "postgresql://frazil:${CRDB_PASSWORD:-}@localhost:26257/shop?sslmode=verify-full"
_OF_FILES = (
    *("complete", "late_files", "schema_from", "options", "envelope"),
    *("op_column", "prev_column", "bare_deletes", "csv_header"),
)
"""What only a feed of files needs to be told."""
_TABLES = {"tables.source": "shop.public.orders", "tables.key": ["id"]}

KIND = SourceKind(
    config=CockroachSource,
    position=Hlc,
    opened_by="frazil.sources.cockroachdb.opening:open_source",
    template=InitTemplate(
        on={"source.feed": "s3://feeds/shop", **_TABLES}, left_out=frozenset({"source.changefeed_options"})
    ),
    sinkless=InitTemplate(
        on={"source.feed": _SQL, **_TABLES}, left_out=frozenset(f"source.{name}" for name in _OF_FILES)
    ),
    preloaded=("frazil.sources.cockroachdb.source",),
)
