"""The one place that knows all parts: a configuration becomes a pipeline.

PipelineConfig --> Spark session --> catalog --> lake, tables, arbiter
               `-> source (files, a sinkless feed, MongoDB) --> shaper
               `-> executors: the Spark jobs of the workers
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from frazil.clock import Clock
from frazil.config.cockroachdb import CockroachSource, LateFiles
from frazil.config.engines import ReaderEngine
from frazil.config.load import config_hash
from frazil.config.mongodb import MongoSource
from frazil.config.pipeline_config import Atomic, OnError, PipelineConfig
from frazil.config.secrets import mask_text
from frazil.config.table_entries import HistoryMode, Rescan
from frazil.errors import ConfigError
from frazil.iceberg.catalogs.open_catalog import CatalogSettings, open_catalog
from frazil.iceberg.catalogs.rest import declares_transactions
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.jvm.session import open_session
from frazil.iceberg.system.checkpoints import Checkpoints
from frazil.iceberg.system.consistent_epochs import ConsistentEpochs
from frazil.iceberg.system.fence_register import IcebergArbiter
from frazil.iceberg.tables.tables import Tables
from frazil.ingest.catalog_handles import (
    CatalogHandle,
    Catalogs,
    RoutedCommitter,
    RoutedLocators,
    RoutedQuarantined,
    RoutedTables,
    settings_of,
    used_catalogs,
)
from frazil.ingest.locate.locators import Locators, LocatorSettings
from frazil.ingest.loop.components import Components, Resync
from frazil.ingest.loop.observer import PublishObserver
from frazil.ingest.loop.resync_loop import BranchLocators, RoutedBranches
from frazil.ingest.quarantine.store import SparkQuarantined
from frazil.ingest.write.change_rows import PositionOf
from frazil.ingest.write.window_writer import Executors
from frazil.ingest.write.write_job import run_on_executors, run_write_job
from frazil.model.ids import TableName
from frazil.model.position import ClusterTime, Hlc
from frazil.model.write import DeleteMode, SchemaConflict
from frazil.observability.metrics import Metrics
from frazil.paths import cache_home
from frazil.sources.base import InputPartition, Source
from frazil.sources.cockroachdb.decode.envelope import BareDeletes, Envelope, EnvelopeOptions
from frazil.sources.cockroachdb.decode.types import TypeRules
from frazil.sources.cockroachdb.feed.location import FeedLocation
from frazil.sources.cockroachdb.latecomers import Latecomers
from frazil.sources.cockroachdb.schema.describe_sql import SqlDescriber
from frazil.sources.cockroachdb.schema.families import table_of
from frazil.sources.cockroachdb.schema.profile import Profile, merged, profile_partition
from frazil.sources.cockroachdb.schema.schema import Pinned
from frazil.sources.cockroachdb.sinkless.sinkless_source import SinklessFeed
from frazil.sources.cockroachdb.sinkless.sql import FeedOptions
from frazil.sources.cockroachdb.source import CloudFeed, TableSettings

PROFILE_HERE_BYTES = 4 << 20
"""Below this a look at the rows is not worth a Spark job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """A pipeline's parts and what they stand on. `close` leaves the session running, whoever opened it."""

    spark: SparkSession
    parts: Components
    places: Catalogs
    committer: RoutedCommitter
    quarantined: RoutedQuarantined
    described_feed: str
    close: Callable[[], None]
    opened_session: bool


def assemble(config: PipelineConfig, clock: Clock, metrics: Metrics, spark: SparkSession | None = None) -> Assembly:
    """Opens everything. Raises a FrazilError that names what could not be reached."""
    settings = {catalog.name: settings_of(config, catalog) for catalog in used_catalogs(config)}
    was_running = spark is not None or SparkSession.getActiveSession() is not None
    session = open_session(
        f"frazil {config.pipeline}",
        list(settings.values()),
        config.spark.master,
        config.spark.conf,
        jvm_memory=config.spark.jvm_memory,
        active=spark,
    )
    opened = {name: _open_place(config, session, one, clock) for name, one in settings.items()}
    default = opened[config.catalog.name]
    places = Catalogs(config, default, opened)
    source = make_source(config, session, clock)
    committer, quarantined = RoutedCommitter(places.of), RoutedQuarantined(places.of)
    branches = RoutedBranches(places.of, config.job)
    wants_all = config.atomic is Atomic.PIPELINE
    parts = Components(
        config=config,
        config_hash=config_hash(config),
        source=source,
        committer=committer,
        tables=RoutedTables(places.of),
        arbiter=IcebergArbiter(default.catalog, clock),
        executors=Executors(
            write=partial(run_write_job, session, position_of=_position_of(config)),
            cores=session.sparkContext.defaultParallelism,
        ),
        observer=PublishObserver(metrics),
        metrics=metrics,
        clock=clock,
        locators=RoutedLocators(places),
        quarantined=quarantined,
        resync=Resync(committer=branches, locators=BranchLocators(places, branches)),
        together=wants_all and all(declares_transactions(place.catalog) for place in places.all),
        agreement=ConsistentEpochs(default.catalog, clock) if wants_all else None,
        checkpoints=Checkpoints(default.catalog, clock) if config.checkpoints else None,
    )

    return Assembly(
        spark=session,
        parts=parts,
        places=places,
        committer=committer,
        quarantined=quarantined,
        described_feed=mask_text(config.source.address),
        close=source.stop,
        opened_session=not was_running,
    )


def _open_place(
    config: PipelineConfig, session: SparkSession, settings: CatalogSettings, clock: Clock
) -> CatalogHandle:
    catalog = open_catalog(session, settings)
    committer, key_of = IcebergCommitter(catalog), partial(_configured_key, config)
    return CatalogHandle(
        catalog=catalog,
        committer=committer,
        tables=Tables(catalog),
        locators=Locators(committer, session, settings.name, clock, _index(config), key_of=key_of),
        quarantined=SparkQuarantined(session, settings.name),
    )


def _index(config: PipelineConfig) -> LocatorSettings:
    directory = config.index.directory or cache_home() / "index" / config.pipeline
    return LocatorSettings(directory=Path(directory), size=config.index.size, parquet=config.parquet.settings)


def _configured_key(config: PipelineConfig, table: TableName) -> tuple[str, ...]:
    """The key that an entry gives a table which may name no identifier fields of its own."""
    entry = config.entries.naming(table)
    return () if entry is None else entry.key


def _position_of(config: PipelineConfig) -> PositionOf:
    return ClusterTime if isinstance(config.source, MongoSource) else Hlc


def make_source(config: PipelineConfig, spark: SparkSession, clock: Clock) -> Source:
    source = config.source
    if isinstance(source, MongoSource):
        try:
            room: Any = import_module("frazil.app.mongodb_source")
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"a MongoDB source needs a library that is not installed: {error.name}",
                hint="pip install 'pymongo>=4.9'",
            ) from error
        made: Source = room.make_mongo_source(config, source, spark, clock)
        return made
    return _make_feed(config, source, spark, clock)


def _make_feed(
    config: PipelineConfig, source: CockroachSource, spark: SparkSession, clock: Clock
) -> CloudFeed | SinklessFeed:
    sql_url = source.feed if source.sinkless else source.schema_from
    settings = _Settings(config, source)

    def make_feed(location: FeedLocation) -> CloudFeed:
        return CloudFeed(
            location,
            tables=settings,
            complete=source.complete,
            describe=SqlDescriber(sql_url) if sql_url else None,
            # Who names no `schema_from` and pins all columns wants no questions asked beside the feed's own statement.
            describe_pinned=bool(source.schema_from),
            profile=partial(_profile, spark, location, settings.options),
            table_of=partial(table_of, is_named=config.entries.names_family, is_wanted=config.entries.wants),
            latecomers=None
            if source.sinkless or source.late_files is LateFiles.IGNORE
            else Latecomers(clock, cache_home() / "feeds" / f"{config.pipeline}-{location.digest}.json"),
        )

    if source.sinkless:
        tables = [entry.source for entry in config.tables]
        spool = cache_home() / "spool" / config.pipeline
        chosen = source.sinkless_options
        options = FeedOptions(
            resolved=chosen.resolved,
            min_checkpoint_frequency=chosen.min_checkpoint_frequency,
            diff=chosen.diff,
            extra=chosen.extra,
        )
        return SinklessFeed(source.feed, tables, options, spool, make_feed, clock)
    return make_feed(FeedLocation(source.feed, source.options))


class _Settings(Mapping[str, TableSettings]):
    """What the configuration says of any table, also of one that appears later."""

    def __init__(self, config: PipelineConfig, source: CockroachSource) -> None:
        self._config = config
        self._source = source
        self.options = EnvelopeOptions(
            envelope=Envelope(source.envelope.value),
            op_column=source.op_column,
            prev_column=source.prev_column,
            bare_deletes=BareDeletes(source.bare_deletes.value),
            quarantine=config.on_error is OnError.QUARANTINE,
        )

    def __getitem__(self, table: str) -> TableSettings:
        entry = self._config.entries.taking(table)
        pinned = Pinned() if entry is None else Pinned(columns=entry.columns, key=entry.key)
        is_log = entry is not None and entry.deletes is DeleteMode.APPEND_ONLY
        return TableSettings(
            pinned=pinned,
            options=self.options,
            csv_header=self._source.csv_header,
            wants_before=is_log or (entry is not None and entry.changelog),
            key_optional=is_log,
            follow_drops=entry is not None and entry.drop,
            rules=TypeRules(
                time_as="long" if ReaderEngine.SPARK in self._config.readers else "time",
                json_as="string" if entry is None else entry.json_as,
            ),
            new_columns=entry is not None and entry.on_schema_conflict is SchemaConflict.NEW_COLUMN,
            # A spool begins with each connection, and the server scans what has no frontier.
            takes_part=self._source.sinkless or (entry is not None and entry.history is HistoryMode.PARTIAL),
            merges_scans=self._source.sinkless or (entry is not None and entry.rescan is Rescan.MERGE),
        )

    def __iter__(self) -> Iterator[str]:
        return (entry.source for entry in self._config.tables)

    def __len__(self) -> int:
        return len(self._config.tables)


def _profile(
    spark: SparkSession, location: FeedLocation, options: EnvelopeOptions, partitions: Sequence[InputPartition]
) -> Profile:
    """Looks at every row of the partitions, in tasks if there is much to look at."""
    look = partial(_look, location, options)
    if sum(partition.size for partition in partitions) <= PROFILE_HERE_BYTES:
        return merged(map(look, partitions))
    return merged(run_on_executors(spark, look, partitions))


def _look(location: FeedLocation, options: EnvelopeOptions, partition: InputPartition) -> Profile:
    return profile_partition(location, partition.name, options)
