"""A configuration's MongoDB becomes a source; imported only where one is used, since it needs frazil[mongodb].

entries of `tables:` --> which collections, how mapped
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from frazil.config.routing import is_pattern
from frazil.model.write import DeleteMode
from frazil.observability.logs import Log
from frazil.paths import cache_home
from frazil.sources.mongodb.config import MongoSource
from frazil.sources.mongodb.schema.mapping import MappedField
from frazil.sources.mongodb.schema.profile import joined, look_at
from frazil.sources.mongodb.schema.schema import CollectionSettings
from frazil.sources.mongodb.source import MongoDatabase, WantedCollections
from frazil.sources.mongodb.stream.stream import SegmentLimits
from frazil.sources.registry import PipelineFacts

_log = Log("frazil.mongodb")


def open_source(source: MongoSource, facts: PipelineFacts) -> MongoDatabase:
    entries = [entry.source for entry in facts.tables]
    return MongoDatabase(
        source.uri,
        WantedCollections(
            named=tuple(name for name in entries if not is_pattern(name)),
            matches=facts.entries.wants,
            has_patterns=any(is_pattern(name) for name in entries),
        ),
        settings=_Settings(facts, source.sample),
        look=lambda partitions: joined(facts.look(partial(look_at, source.uri), partitions)),
        limits=SegmentLimits(
            max_records=source.max_records, max_bytes=source.max_bytes, flush_interval=source.flush_interval
        ),
        spool=Path(source.spool) if source.spool else cache_home() / "spool" / facts.pipeline,
        clock=facts.clock,
        tell=_log.info,
        warn=_log.warning,
    )


class _Settings(Mapping[str, CollectionSettings]):
    """What the configuration says of any collection, also of one that appears later."""

    def __init__(self, facts: PipelineFacts, sample: int) -> None:
        self._facts = facts
        self._sample = sample

    def __getitem__(self, name: str) -> CollectionSettings:
        entry = self._facts.entries.taking(name)
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
        return (entry.source for entry in self._facts.tables)

    def __len__(self) -> int:
        return len(self._facts.tables)
