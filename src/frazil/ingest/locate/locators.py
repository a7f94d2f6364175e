"""The locators of a pipeline's tables: who finds the older rows of an epoch's keys.

    of(table) --> the table's locator, the same one every time
                    locate(files, head): schema, specs and version as they are at that head
                                           `--another than before?--> a new TableLocator

All of them share one key index on the driver's disk, one memory of deleted rows, and Spark for what is too large.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Protocol

from pyspark.sql import SparkSession

from frazil.clock import Clock
from frazil.data.deletes.deleted_rows import DeletedRows
from frazil.data.keys.index_cache import CacheStats, process_cache
from frazil.errors import ConfigError
from frazil.iceberg.tables.tables import LoadedTable
from frazil.ingest.locate.locator import Searches, TableLocator
from frazil.ingest.locate.search import SearchMode
from frazil.ingest.locate.searched_table import SearchedTable
from frazil.ingest.locate.spark_search import SparkSearch
from frazil.model.files import WrittenFile
from frazil.model.ids import TableName
from frazil.model.ledger import TableHead
from frazil.model.ports import Committer, Located
from frazil.model.schema import Field
from frazil.model.write import ParquetSettings

KeyOf = Callable[[TableName], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatorSettings:
    """`directory` is where indexes are kept, on the driver and on every executor, up to `size` bytes each. `road`
    overrides the choice of where to search."""

    directory: Path
    size: int
    parquet: ParquetSettings = field(default_factory=ParquetSettings)
    road: SearchMode | None = None


class SearchedHeads(Committer, Protocol):
    def loaded(self, table: TableName, head: TableHead) -> LoadedTable:
        """The table's schema, specs and version at exactly this head."""


class Locators:
    """One per pipeline; thread-safe. A table's own locator is asked by one thread at a time."""

    def __init__(
        self,
        committer: SearchedHeads,
        spark: SparkSession,
        catalog: str,
        clock: Clock,
        settings: LocatorSettings,
        key_of: KeyOf | None = None,
    ) -> None:
        """`catalog` is its name in Spark SQL. `key_of` tells the key columns of tables that name no identifier
        fields."""
        self._committer = committer
        self._spark = spark
        self._catalog = catalog
        self._clock = clock
        self.settings = settings
        self._key_of = key_of
        self._cache = process_cache(settings.directory, settings.size)
        self._deleted = DeletedRows()
        self._roads: Searches = SparkSearch(spark, catalog, settings.directory, settings.size)
        self._tables: dict[TableName, LocatorOf] = {}
        self._lock = Lock()

    def on(self, committer: SearchedHeads) -> Locators:
        """The same for tables as another committer shows them; the index is shared."""
        return Locators(committer, self._spark, self._catalog, self._clock, self.settings, self._key_of)

    def of(self, table: TableName) -> LocatorOf:
        with self._lock:
            if table not in self._tables:
                self._tables[table] = LocatorOf(self, table)
            return self._tables[table]

    @property
    def index(self) -> CacheStats:
        return self._cache.stats()

    def searched(self, table: TableName, head: TableHead) -> SearchedTable:
        """What a search must know of the table at this head. Raises ConfigError if it has no key."""
        loaded = self._committer.loaded(table, head)
        return SearchedTable.of(loaded, key=self._key(loaded), parquet=self.settings.parquet)

    def make(self, table: SearchedTable) -> TableLocator:
        parts = self._committer, self._cache, self._deleted, self._clock, self._roads
        return TableLocator(table, *parts, road=self.settings.road)

    def _key(self, loaded: LoadedTable) -> tuple[Field, ...]:
        names = tuple(self._key_of(loaded.name)) if self._key_of is not None else ()
        if names and all(loaded.schema.field(name) is not None for name in names):
            return loaded.schema.select(names)
        if loaded.schema.identifiers:
            return loaded.schema.identifiers
        raise ConfigError(
            f"{loaded.name} has no key by which its older rows could be found",
            hint=f"Name the key columns in the table's entry, or: ALTER TABLE {loaded.name} SET IDENTIFIER FIELDS ...",
            table=loaded.name.text,
        )


class LocatorOf:
    """Implements `frazil.model.ports.Locator` for one table, whatever becomes of its schema meanwhile."""

    def __init__(self, locators: Locators, table: TableName) -> None:
        self._locators = locators
        self._name = table
        self._current: TableLocator | None = None

    def locate(self, files: Sequence[WrittenFile], head: TableHead, *, by_equality: bool) -> Located:
        """See the port."""
        table = self._locators.searched(self._name, head)
        if self._current is None or self._current.table != table:
            self._current = self._locators.make(table)
        self._current.table = table
        return self._current.locate(files, head, by_equality=by_equality)
