"""A configuration's CockroachDB becomes a source: files in cloud storage, or a sinkless feed.

entries of `tables:` --> what is said of each table, also of one that appears later
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from frazil.config.table_entries import HistoryMode, Rescan
from frazil.model.write import DeleteMode, SchemaConflict
from frazil.paths import cache_home
from frazil.sources.base import InputPartition
from frazil.sources.cockroachdb.beginning import FeedMemory
from frazil.sources.cockroachdb.config import CockroachSource, LateFiles
from frazil.sources.cockroachdb.decode.envelope import Envelope, EnvelopeOptions
from frazil.sources.cockroachdb.feed.location import FeedLocation
from frazil.sources.cockroachdb.latecomers import Latecomers
from frazil.sources.cockroachdb.schema.describe_sql import SqlDescriber
from frazil.sources.cockroachdb.schema.families import table_of
from frazil.sources.cockroachdb.schema.profile import Profile, merged, profile_partition
from frazil.sources.cockroachdb.schema.schema import Pinned
from frazil.sources.cockroachdb.schema.types import TypeRules
from frazil.sources.cockroachdb.sinkless.sinkless_source import SinklessFeed
from frazil.sources.cockroachdb.source import CloudFeed, TableSettings
from frazil.sources.registry import PipelineFacts


def open_source(source: CockroachSource, facts: PipelineFacts) -> CloudFeed | SinklessFeed:
    sql_url = source.feed if source.sinkless else source.schema_from
    settings = _Settings(facts, source)

    def make_feed(location: FeedLocation) -> CloudFeed:
        def profile(partitions: Sequence[InputPartition]) -> Profile:
            return merged(facts.look(partial(_look, location, settings.options), partitions))

        return CloudFeed(
            location,
            tables=settings,
            complete=source.complete,
            describe=SqlDescriber(sql_url) if sql_url else None,
            # Who names no `schema_from` and pins all columns wants no questions asked beside the feed's own statement.
            describe_pinned=bool(source.schema_from),
            profile=profile,
            table_of=partial(table_of, is_named=facts.entries.names_family, is_wanted=facts.entries.wants),
            memory=None if source.sinkless else FeedMemory(facts.memory, location.digest),
            latecomers=None
            if source.sinkless or source.late_files is LateFiles.IGNORE
            else Latecomers(facts.clock, cache_home() / "feeds" / f"{facts.pipeline}-{location.digest}.json"),
        )

    if source.sinkless:
        tables = [entry.source for entry in facts.tables]
        spool = cache_home() / "spool" / facts.pipeline
        return SinklessFeed(source.feed, tables, source.sinkless_options, spool, make_feed, facts.clock)
    return make_feed(FeedLocation(source.feed, source.options))


class _Settings(Mapping[str, TableSettings]):
    """What the configuration says of any table, also of one that appears later."""

    def __init__(self, facts: PipelineFacts, source: CockroachSource) -> None:
        self._facts = facts
        self._source = source
        self.options = EnvelopeOptions(
            envelope=Envelope(source.envelope),
            op_column=source.op_column,
            prev_column=source.prev_column,
            bare_deletes=source.bare_deletes,
            quarantine=facts.quarantines,
        )

    def __getitem__(self, table: str) -> TableSettings:
        entry = self._facts.entries.taking(table)
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
                time_as="long" if self._facts.spark_reads else "time",
                json_as="string" if entry is None else entry.json_as,
            ),
            new_columns=entry is not None and entry.on_schema_conflict is SchemaConflict.NEW_COLUMN,
            # A spool begins with each connection, and the server scans what has no frontier.
            takes_part=self._source.sinkless or (entry is not None and entry.history is HistoryMode.PARTIAL),
            merges_scans=self._source.sinkless or (entry is not None and entry.rescan is Rescan.MERGE),
        )

    def __iter__(self) -> Iterator[str]:
        return (entry.source for entry in self._facts.tables)

    def __len__(self) -> int:
        return len(self._facts.tables)


def _look(location: FeedLocation, options: EnvelopeOptions, partition: InputPartition) -> Profile:
    return profile_partition(location, partition.name, options)
