"""The one place that knows all parts: a configuration becomes a pipeline.

PipelineConfig --> Spark session --> catalog --> lake, tables, arbiter
               `-> the source of its kind
               `-> executors: the Spark jobs of the workers
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from pyspark.sql import SparkSession

from frazil.clock import Clock
from frazil.config.engines import ReaderEngine
from frazil.config.load import config_hash
from frazil.config.pipeline_config import Atomic, OnError, PipelineConfig
from frazil.config.secrets import mask_text
from frazil.iceberg.catalogs.open_catalog import CatalogSettings, open_catalog
from frazil.iceberg.catalogs.rest import declares_transactions
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.jvm.session import open_session
from frazil.iceberg.system.checkpoints import Checkpoints
from frazil.iceberg.system.consistent_epochs import ConsistentEpochs
from frazil.iceberg.system.fence_register import IcebergArbiter, SourceMemory
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
from frazil.ingest.write.window_writer import Executors
from frazil.ingest.write.write_job import run_on_executors, run_write_job
from frazil.model.ids import TableName
from frazil.observability.metrics import Metrics
from frazil.paths import cache_home
from frazil.sources.base import InputPartition, Memory, Source
from frazil.sources.registry import PipelineFacts, kind_of

LOOK_HERE_BYTES = 4 << 20
"""Below this a look at the rows is not worth a Spark job."""
T = TypeVar("T")


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
    source = open_source(config, session, clock, SourceMemory(default.catalog, config.job, clock))
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
            write=partial(run_write_job, session, position_of=kind_of(config.source).position),
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


def open_source(config: PipelineConfig, spark: SparkSession, clock: Clock, memory: Memory) -> Source:
    def look(function: Callable[[InputPartition], T], partitions: Sequence[InputPartition]) -> Iterable[T]:
        if sum(partition.size for partition in partitions) <= LOOK_HERE_BYTES:
            return map(function, partitions)
        return run_on_executors(spark, function, partitions)

    facts = PipelineFacts(
        pipeline=config.pipeline,
        entries=config.entries,
        tables=config.tables,
        spark_reads=ReaderEngine.SPARK in config.readers,
        quarantines=config.on_error is OnError.QUARANTINE,
        clock=clock,
        memory=memory,
        look=look,
    )
    return kind_of(config.source).open(config.source, facts)
