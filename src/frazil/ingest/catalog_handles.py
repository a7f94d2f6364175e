"""The catalogs of a pipeline, opened, and which of them has a table.

    tables: orders -> hot, *__archive -> cold, all else -> the default
    Catalogs.of(table) --> CatalogHandle: catalog, lake, tables, locators, quarantined
    RoutedCommitter, RoutedTables, ...: the same seams, each call handed to the place of its table

Iceberg reaches all tables of one catalog with one set of storage settings, so those of all its volumes are put
together; where two volumes contradict each other, they need two catalogs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from frazil.config.catalogs import CatalogConfig
from frazil.config.pipeline_config import Atomic, PipelineConfig
from frazil.config.volumes import VolumeConfig
from frazil.data.keys.index_cache import CacheStats
from frazil.errors import ConfigError
from frazil.iceberg.catalogs.capabilities import capabilities
from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.catalogs.settings import CatalogSettings, Tls
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.tables.layout import LayoutChange
from frazil.iceberg.tables.schema_steps import SchemaChange
from frazil.iceberg.tables.tables import LoadedTable, Tables
from frazil.ingest.locate.locators import Locators
from frazil.ingest.quarantine.held_keys import Order
from frazil.ingest.quarantine.store import SparkQuarantined
from frazil.model.commit import Accepted, CommitAnswer, CommitPlan, Conflicted, ReplaceFiles
from frazil.model.files import LiveFiles
from frazil.model.ids import TableName
from frazil.model.ledger import TableHead
from frazil.model.ports import Locator, TransactionalCommitter
from frazil.model.results import CheckedCatalog
from frazil.model.schema import Column, SourceSchema
from frazil.model.write import TableOptions, main_table_of
from frazil.storage.credentials import with_credentials

_IO = "io-impl"
_ANY_IO = "org.apache.iceberg.io.ResolvingFileIO"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CatalogHandle:
    """One catalog, and all that works on its tables."""

    catalog: Catalog
    committer: IcebergCommitter
    tables: Tables
    locators: Locators
    quarantined: SparkQuarantined


class Catalogs:
    def __init__(self, config: PipelineConfig, default: CatalogHandle, by_name: Mapping[str, CatalogHandle]) -> None:
        """`by_name` are the places of catalogs by the name they have in Spark."""
        self.default = default
        self.all = tuple(dict.fromkeys((default, *by_name.values())))
        self._config = config
        self._by_name = by_name
        self._known: dict[TableName, CatalogHandle] = {}

    def of(self, table: TableName) -> CatalogHandle:
        """The place of a target or of its side table; the default one for Frazil's own tables."""
        if table not in self._known:  # every look at a head asks
            entry = self._config.entries.filling(main_table_of(table))
            self._known[table] = self._by_name.get(self._config.catalog_of(entry).name, self.default)
        return self._known[table]


def used_catalogs(config: PipelineConfig) -> list[CatalogConfig]:
    """The default one first, then those that tables name."""
    named = [config.catalogs[entry.catalog] for entry in config.tables if entry.catalog is not None]
    return list({catalog.name: catalog for catalog in (config.catalog, *named)}.values())


def settings_of(config: PipelineConfig, catalog: CatalogConfig) -> CatalogSettings:
    """What a catalog is opened with: its own settings, and those of every volume that tables of it lie on. Raises
    ConfigError if two of these volumes contradict each other."""
    names = [catalog.volume] if catalog.volume else []
    names += [entry.volume for entry in config.tables if entry.volume and config.catalog_of(entry).name == catalog.name]
    storage: dict[str, str] = {}
    told: dict[str, str] = {}
    for name in dict.fromkeys(names):
        for key, value in _opened(config.volumes[name]).items():
            if key == _IO and storage.get(key, value) != value:
                storage[key] = _ANY_IO
            elif storage.setdefault(key, value) != value:
                raise ConfigError(
                    f"the volumes {told[key]} and {name} of catalog {catalog.name} contradict each other: {key}",
                    hint="Give them two catalogs: two blocks of `catalogs:` may name one server.",
                    catalog=catalog.name,
                    option=key,
                )
            told.setdefault(key, name)
    own = catalog_settings(catalog)
    first = config.volumes[names[0]].location if names else None
    warehouse = own.warehouse or (None if own.type.speaks_rest else first)
    return CatalogSettings(
        name=own.name,
        type=own.type,
        warehouse=warehouse,
        uri=own.uri,
        tls=own.tls,
        properties={**storage, **own.properties},
    )


def _opened(volume: VolumeConfig) -> dict[str, str]:
    """Iceberg's S3 client knows no profiles of ~/.aws: their keys are found here."""
    own = volume.fileio_properties()
    return with_credentials(volume.location, own) if volume.profile else own


def catalog_settings(config: CatalogConfig) -> CatalogSettings:
    tls = config.tls
    return CatalogSettings(
        name=config.name,
        type=config.type,
        warehouse=config.warehouse,
        uri=config.uri,
        tls=None if tls is None else Tls(ca=tls.ca, certificate=tls.certificate, key=tls.key),
        properties=config.iceberg_properties,
    )


def checked_catalogs(places: Catalogs, config: PipelineConfig) -> list[CheckedCatalog]:
    """What each catalog can do, and what follows for this configuration."""
    found = []
    for place in places.all:
        known, settings = capabilities(place.catalog), place.catalog.settings
        notes = list(known.notes)
        if config.atomic is Atomic.PIPELINE and not known.multi_table:
            notes.append(
                "atomic: pipeline: this catalog has no commit for several tables; they are committed one by one, and "
                "_frazil.consistent_epochs tells the moments at which all agree"
            )
        if config.atomic is Atomic.PIPELINE and len(places.all) > 1:
            notes.append("atomic: pipeline: one commit for each catalog, not one for all")
        found.append(
            CheckedCatalog(
                name=settings.name,
                described=f"{settings.type} {settings.endpoint}",
                abilities=dict(known.as_table()),
                notes=tuple(notes),
            )
        )
    return found


class RoutedCommitter:
    """Implements `TransactionalCommitter` over several places."""

    def __init__(self, place_of: Callable[[TableName], CatalogHandle]) -> None:
        self._place_of = place_of

    def committer_of(self, table: TableName) -> TransactionalCommitter:
        """Who publishes to the table."""
        return self._place_of(table).committer

    def head(self, table: TableName) -> TableHead:
        return self.committer_of(table).head(table)

    def commit(self, table: TableName, head: TableHead, plan: CommitPlan) -> CommitAnswer:
        return self.committer_of(table).commit(table, head, plan)

    def commit_many(self, commits: Sequence[tuple[TableName, TableHead, CommitPlan]]) -> list[CommitAnswer]:
        """One request for each catalog, one after the other: if one is not accepted, the rest is not sent."""
        committers = list(dict.fromkeys(self.committer_of(table) for table, _, _ in commits))
        answers: list[CommitAnswer] = [Conflicted("nothing was sent: another catalog did not accept its part")] * len(
            commits
        )
        for committer in committers:
            own = [number for number, (table, _, _) in enumerate(commits) if self.committer_of(table) is committer]
            found = committer.commit_many([commits[number] for number in own])
            for number, answer in zip(own, found, strict=True):
                answers[number] = answer
            if not all(isinstance(answer, Accepted) for answer in found):
                break
        return answers

    def live(self, table: TableName, head: TableHead, bounds_of: Sequence[int] = ()) -> LiveFiles:
        return self.committer_of(table).live(table, head, bounds_of)

    def repair(self, table: TableName, head: TableHead, plan: ReplaceFiles) -> CommitAnswer:
        return self._place_of(table).committer.repair(table, head, plan)

    def loaded(self, table: TableName, head: TableHead) -> LoadedTable:
        return self._place_of(table).committer.loaded(table, head)


class RoutedTables:
    """What of `Tables` a pipeline needs, over several places."""

    def __init__(self, place_of: Callable[[TableName], CatalogHandle]) -> None:
        self._place_of = place_of

    def exists(self, table: TableName) -> bool:
        return self._place_of(table).tables.exists(table)

    def load(self, table: TableName) -> LoadedTable:
        return self._place_of(table).tables.load(table)

    def ensure(self, table: TableName, source_schema: SourceSchema, options: TableOptions) -> LoadedTable:
        return self._place_of(table).tables.ensure(table, source_schema, options)

    def set_property(self, table: TableName, name: str, value: str | None) -> None:
        self._place_of(table).tables.set_property(table, name, value)

    def plan(self, table: TableName, columns: Sequence[Column], options: TableOptions) -> SchemaChange:
        return self._place_of(table).tables.plan(table, columns, options)

    def plan_layout(self, table: TableName, options: TableOptions) -> LayoutChange:
        return self._place_of(table).tables.plan_layout(table, options)


class RoutedLocators:
    """All of them share the key index of the default place."""

    def __init__(self, places: Catalogs) -> None:
        self._places = places

    def of(self, table: TableName) -> Locator:
        return self._places.of(table).locators.of(table)

    @property
    def index(self) -> CacheStats:
        return self._places.default.locators.index


class RoutedQuarantined:
    def __init__(self, place_of: Callable[[TableName], CatalogHandle]) -> None:
        self._place_of = place_of

    def keys(self, table: TableName, snapshot_id: int) -> tuple[Mapping[str, Order], int]:
        return self._place_of(table).quarantined.keys(table, snapshot_id)

    def lines(self, table: TableName, snapshot_id: int, after: Order | None) -> Mapping[str, Order]:
        return self._place_of(table).quarantined.lines(table, snapshot_id, after)

    def rows(self, table: TableName, snapshot_id: int) -> pa.Table:
        return self._place_of(table).quarantined.rows(table, snapshot_id)
