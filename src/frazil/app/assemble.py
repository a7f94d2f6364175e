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
from frazil.config.load import config_hash
from frazil.config.model import Atomic, OnError, PipelineConfig, Reader
from frazil.config.mongo import MongoSource
from frazil.config.routing import entry_for, is_pattern, names_family, target_of, wants
from frazil.config.secrets import mask_text
from frazil.config.source import CockroachSource
from frazil.daemon.locating import Locators, LocatorSettings
from frazil.daemon.observing import PublishObserver
from frazil.daemon.parts import Parts, Resync
from frazil.daemon.places import (
    Place,
    Places,
    RoutedLake,
    RoutedLocators,
    RoutedQuarantined,
    RoutedTables,
    settings_of,
    used_catalogs,
)
from frazil.daemon.quarantine import SparkQuarantined
from frazil.daemon.resyncing import BranchLocators, RoutedBranches
from frazil.daemon.shaping import ShapingSource
from frazil.daemon.sinkless import SinklessFeed
from frazil.daemon.windows import Executors
from frazil.errors import ConfigError
from frazil.lake.arbiter import IcebergArbiter
from frazil.lake.cache import cache_home
from frazil.lake.catalogs import CatalogSettings, open_catalog
from frazil.lake.checkpoints import Checkpoints
from frazil.lake.commits import IcebergLake
from frazil.lake.consistent import ConsistentEpochs
from frazil.lake.rest import declares_transactions
from frazil.lake.session import open_session
from frazil.lake.tables import Tables
from frazil.model.names import TableName
from frazil.model.ports import Split
from frazil.model.position import ClusterTime, Hlc
from frazil.model.write import DeleteMode, SchemaConflict
from frazil.observability.metrics import Metrics
from frazil.sources.cockroachdb.describe import SqlDescriber
from frazil.sources.cockroachdb.envelope import BareDeletes, Envelope, EnvelopeOptions
from frazil.sources.cockroachdb.families import table_of
from frazil.sources.cockroachdb.profile import Profile, merged, profile_split
from frazil.sources.cockroachdb.shapes import Pinned
from frazil.sources.cockroachdb.source import CloudFeed, TableSettings
from frazil.sources.cockroachdb.sql import FeedOptions
from frazil.sources.cockroachdb.storage import FeedLocation
from frazil.sources.cockroachdb.types import TypeRules
from frazil.workers.job import run_on_executors, run_write_job
from frazil.workers.travel import PositionOf

PROFILE_HERE_BYTES = 4 << 20
"""Below this a look at the rows is not worth a Spark job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """A pipeline's parts and what they stand on. `close` leaves the session running, whoever opened it."""

    spark: SparkSession
    parts: Parts
    places: Places
    lake: RoutedLake
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
    places = Places(config, default, opened)
    source = make_source(config, session, clock)
    lake, quarantined = RoutedLake(places.of), RoutedQuarantined(places.of)
    branches = RoutedBranches(places.of, config.job)
    wants_all = config.atomic is Atomic.PIPELINE
    parts = Parts(
        config=config,
        config_hash=config_hash(config),
        source=source,
        lake=lake,
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
        resync=Resync(lake=branches, locators=BranchLocators(places, branches)),
        together=wants_all and all(declares_transactions(place.catalog) for place in places.all),
        agreement=ConsistentEpochs(default.catalog, clock) if wants_all else None,
        checkpoints=Checkpoints(default.catalog, clock) if config.checkpoints else None,
    )

    return Assembly(
        spark=session,
        parts=parts,
        places=places,
        lake=lake,
        quarantined=quarantined,
        described_feed=mask_text(config.source.address),
        close=source.close,
        opened_session=not was_running,
    )


def _open_place(config: PipelineConfig, session: SparkSession, settings: CatalogSettings, clock: Clock) -> Place:
    catalog = open_catalog(session, settings)
    lake, key_of = IcebergLake(catalog), partial(_configured_key, config)
    return Place(
        catalog=catalog,
        lake=lake,
        tables=Tables(catalog),
        locators=Locators(lake, session, settings.name, clock, _index(config), key_of=key_of),
        quarantined=SparkQuarantined(session, settings.name),
    )


def _index(config: PipelineConfig) -> LocatorSettings:
    directory = config.index.directory or cache_home() / "index" / config.pipeline
    return LocatorSettings(directory=Path(directory), size=config.index.size, parquet=config.parquet.settings)


def _configured_key(config: PipelineConfig, table: TableName) -> tuple[str, ...]:
    """The key that an entry gives a table which may name no identifier fields of its own."""
    named = [entry for entry in config.tables if entry.key and not is_pattern(entry.source)]
    targets = {target_of(entry.target, entry.source, entry.source, config.pipeline): entry.key for entry in named}
    return targets.get(table, ())


def _position_of(config: PipelineConfig) -> PositionOf:
    return ClusterTime if isinstance(config.source, MongoSource) else Hlc


def make_source(config: PipelineConfig, spark: SparkSession, clock: Clock) -> ShapingSource:
    source = config.source
    if isinstance(source, MongoSource):
        try:
            room: Any = import_module("frazil.daemon.mongo")
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"a MongoDB source needs a library that is not installed: {error.name}",
                hint="pip install 'frazil[mongodb]'",
            ) from error
        made: ShapingSource = room.make_mongo_source(config, source, spark, clock)
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
            table_of=partial(
                table_of, is_named=partial(names_family, config.tables), is_wanted=partial(wants, config.tables)
            ),
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
        entry = entry_for(self._config.tables, table)
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
                time_as="long" if Reader.SPARK in self._config.readers else "time",
                json_as="string" if entry is None else entry.json_as,
            ),
            new_columns=entry is not None and entry.on_schema_conflict is SchemaConflict.NEW_COLUMN,
        )

    def __iter__(self) -> Iterator[str]:
        return (entry.source for entry in self._config.tables)

    def __len__(self) -> int:
        return len(self._config.tables)


def _profile(spark: SparkSession, location: FeedLocation, options: EnvelopeOptions, splits: Sequence[Split]) -> Profile:
    """Looks at every row of the splits, in tasks if there is much to look at."""
    look = partial(_look, location, options)
    if sum(split.size for split in splits) <= PROFILE_HERE_BYTES:
        return merged(map(look, splits))
    return merged(run_on_executors(spark, look, splits))


def _look(location: FeedLocation, options: EnvelopeOptions, split: Split) -> Profile:
    return profile_split(location, split.name, options)
