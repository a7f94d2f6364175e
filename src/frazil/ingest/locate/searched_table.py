"""A table as a lookup knows it, at one head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from frazil.data.keys.codec import KeyCodec
from frazil.data.keys.index import KeyIndex
from frazil.data.read.parquet import index_file
from frazil.model.ids import TableName
from frazil.model.metrics_modes import ALL_TOLD, MetricsModes
from frazil.model.partition import UNPARTITIONED, PartitionSpec
from frazil.model.schema import Field, Schema
from frazil.model.write import ParquetSettings, SortField


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedTable:
    """What a search must know of a table. `key` are its key fields in key order, with the current types; equality
    deletes go under `delete_spec`. `name_mapping` is the property `schema.name-mapping.default`. Where partial rows are
    completed, `schema`, `spec` and `sort` say how whole ones are written. Picklable."""

    name: TableName
    key: tuple[Field, ...]
    schema_id: int
    format_version: int
    specs: tuple[PartitionSpec, ...] = (UNPARTITIONED,)
    delete_spec: PartitionSpec = UNPARTITIONED
    parquet: ParquetSettings = field(default_factory=ParquetSettings)
    storage: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    name_mapping: str | None = None
    schema: Schema | None = None
    spec: PartitionSpec = UNPARTITIONED
    sort: tuple[SortField, ...] = ()
    sort_order_id: int | None = None
    metrics: MetricsModes = ALL_TOLD

    def index(self, path: str, size: int) -> KeyIndex:
        """Raises like `index_file`."""
        return index_file(path, size, KeyCodec(self.key), self.storage, self.name_mapping)
