"""A table as a lookup knows it, at one head."""

from __future__ import annotations

from dataclasses import dataclass, field

from frazil.data.keys.codec import KeyCodec
from frazil.data.keys.index import KeyIndex
from frazil.data.read.parquet import index_file
from frazil.model.schema import Field
from frazil.model.table import Table
from frazil.model.write import ParquetSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedTable(Table):
    """What a search must know of a table. `key` are its key fields in key order, with the current types. Picklable."""

    key: tuple[Field, ...]
    parquet: ParquetSettings = field(default_factory=ParquetSettings)

    def index(self, path: str, size: int) -> KeyIndex:
        """Raises like `index_file`."""
        return index_file(path, size, KeyCodec(self.key), self.storage, self.name_mapping)
