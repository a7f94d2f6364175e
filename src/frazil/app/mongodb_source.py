"""A configuration's MongoDB becomes a source; imported only where one is used, since it needs frazil[mongodb].

entries of `tables:` --> which collections, how mapped        spark --> looks at documents in tasks
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from frazil.clock import Clock
from frazil.config.mongodb import MongoSource
from frazil.config.pipeline_config import PipelineConfig
from frazil.config.routing import is_pattern
from frazil.ingest.write.write_job import run_on_executors
from frazil.model.write import DeleteMode
from frazil.observability.logs import Log
from frazil.paths import cache_home
from frazil.sources.base import InputPartition
from frazil.sources.mongodb.client.deployment import Sample
from frazil.sources.mongodb.schema.mapping import MappedField
from frazil.sources.mongodb.schema.profile import joined, look_at
from frazil.sources.mongodb.schema.schema import CollectionSettings
from frazil.sources.mongodb.source import MongoDatabase, WantedCollections
from frazil.sources.mongodb.stream.stream import SegmentLimits

LOOK_HERE_BYTES = 4 << 20
"""Below this a look at the documents is not worth a Spark job."""
_log = Log("frazil.mongodb")


def make_mongo_source(config: PipelineConfig, source: MongoSource, spark: SparkSession, clock: Clock) -> MongoDatabase:
    entries = [entry.source for entry in config.tables]
    return MongoDatabase(
        source.uri,
        WantedCollections(
            named=tuple(name for name in entries if not is_pattern(name)),
            matches=config.entries.wants,
            has_patterns=any(is_pattern(name) for name in entries),
        ),
        settings=_Settings(config, source.sample),
        look=partial(_look, spark, source.uri),
        limits=SegmentLimits(
            max_records=source.max_records, max_bytes=source.max_bytes, flush_interval=source.flush_interval
        ),
        spool=Path(source.spool) if source.spool else cache_home() / "spool" / config.pipeline,
        clock=clock,
        tell=_log.info,
        warn=_log.warning,
    )


class _Settings(Mapping[str, CollectionSettings]):
    """What the configuration says of any collection, also of one that appears later."""

    def __init__(self, config: PipelineConfig, sample: int) -> None:
        self._config = config
        self._sample = sample

    def __getitem__(self, name: str) -> CollectionSettings:
        entry = self._config.entries.taking(name)
        if entry is None:
            return CollectionSettings(sample=self._sample)
        mapping = entry.mapping
        fields = None
        if mapping is not None and mapping.mode == "explicit":
            fields = tuple(MappedField(one.source, one.column, one.type) for one in mapping.fields)
        return CollectionSettings(
            fields=fields,
            pins=entry.columns,
            sample=self._sample,
            wants_before=entry.changelog or entry.deletes is DeleteMode.APPEND_ONLY,
        )

    def __iter__(self) -> Iterator[str]:
        return (entry.source for entry in self._config.tables)

    def __len__(self) -> int:
        return len(self._config.tables)


def _look(spark: SparkSession, uri: str, partitions: Sequence[InputPartition]) -> Sample:
    """Looks at every document of the partitions, in tasks if there is much to look at."""
    look = partial(look_at, uri)
    if sum(partition.size for partition in partitions) <= LOOK_HERE_BYTES:
        return joined(map(look, partitions))
    return joined(run_on_executors(spark, look, partitions))
