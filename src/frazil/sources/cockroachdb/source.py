"""A changefeed in cloud storage, as a Source: what is resolved, which files a window needs, what to remember.

    open(frontiers) -> poll() -> partitions(window) -> [tasks read] -> notes(upper, reports) -> acknowledge(published)

    frontier R0                     R1                              R2
    -----|-- f1 --- f2(beyond R1) ---|-- f3 -------------------------|
         window (R0, R1]: f1, f2; notes of R1: [f2], because its newest row lies beyond R1
         window (R1, R2]: f3 and, carried, f2

The topics t+f1, t+f2 of a table with column families are one table t, see `families`.

A feed that is `complete` (initial_scan='only') has no resolved files: all its files are one epoch, whose position
is the newest file name's. What was read is remembered in the notes, so that a file that comes later is noticed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from frazil.errors import BadInput, ConfigError, SourceLost, SourceUnavailable
from frazil.model.change import PartitionReport
from frazil.model.frontier import Frontier, Window
from frazil.model.position import Position, is_before
from frazil.model.schema import KnownTable, SourceSchema, families
from frazil.sources.base import InputPartition, SourceTable
from frazil.sources.cockroachdb.beginning import Beginnings, FeedMemory, is_scanned_still
from frazil.sources.cockroachdb.decode.decoder import DecodedTable, FeedDecoder
from frazil.sources.cockroachdb.decode.envelope import EnvelopeOptions
from frazil.sources.cockroachdb.feed.file_names import (
    Format,
    data_file,
    hlc_of,
    resolved_paths,
    stem_of,
    topic_in,
    weight_of,
)
from frazil.sources.cockroachdb.feed.listing import FeedListing, Names, lister_of
from frazil.sources.cockroachdb.feed.location import ANEW, FeedLocation
from frazil.sources.cockroachdb.latecomers import Latecomers
from frazil.sources.cockroachdb.position import Hlc
from frazil.sources.cockroachdb.reader import FeedReader, TableReading
from frazil.sources.cockroachdb.resume_state import Notes, check_unchanged, digest, inventory, notes_at, sessions_of
from frazil.sources.cockroachdb.schema.families import (
    FamilyRows,
    combined,
    enriched,
    families_of,
    family_of,
    family_rows,
    is_of,
    named_families,
    with_families,
)
from frazil.sources.cockroachdb.schema.profile import Profile, merged, profile_partition
from frazil.sources.cockroachdb.schema.resolve import heard_by_rows, resolve_schema, without_dropped
from frazil.sources.cockroachdb.schema.schema import (
    TABLE,
    Knowledge,
    Pinned,
    check_enough,
    configured,
    for_family,
    from_target,
    inferred,
    retired_columns,
    ruled,
)
from frazil.sources.cockroachdb.schema.trial import try_rows
from frazil.sources.cockroachdb.schema.types import DEFAULT_RULES, TypeRules
from frazil.sources.net import of_table

Describe = Callable[[str], Knowledge | None]
TableOf = Callable[[str], str]
ProfileOf = Callable[[Sequence[InputPartition]], Profile]
_PREVIEW_FILES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """What the configuration says of one source table. `wants_before` if a target keeps rows as they were,
    `key_optional` if its targets need no key; `follow_drops` if a column that is dropped at the source is dropped in
    its targets, `new_columns` if one whose type changes beyond widening goes on in a new column; `takes_part` if
    it may begin with what is left of a feed, `merges_scans` if with another feed's scan it goes on."""

    pinned: Pinned = field(default_factory=Pinned)
    options: EnvelopeOptions = field(default_factory=EnvelopeOptions)
    csv_header: bool = False
    wants_before: bool = False
    key_optional: bool = False
    follow_drops: bool = False
    new_columns: bool = False
    takes_part: bool = False
    merges_scans: bool = False
    rules: TypeRules = DEFAULT_RULES


class CloudFeed:
    """`describe` asks the source over SQL; `profile` looks at partitions, by default here and now, and may be handed
    in to do it in tasks. Tables with all columns pinned are asked about only with `describe_pinned`.
    `cluster_id` is the incarnation where somebody knows it; else it is the feed's place. `table_of` says which source
    table a topic belongs to; by default each is one of its own. `latecomers` notice another feed in the prefix."""

    def __init__(
        self,
        location: FeedLocation,
        *,
        tables: Mapping[str, TableSettings] | None = None,
        complete: bool = False,
        cluster_id: str | None = None,
        describe: Describe | None = None,
        describe_pinned: bool = True,
        profile: ProfileOf | None = None,
        table_of: TableOf | None = None,
        latecomers: Latecomers | None = None,
        memory: FeedMemory | None = None,
    ) -> None:
        self.location = location
        self.listing = FeedListing(lister_of(location), latecomers)
        self._tables = tables or {}
        self._complete = complete
        self._cluster_id = cluster_id
        self._describe = describe
        self._describe_pinned = describe_pinned
        self._profile = profile or self.profile
        self._table_of = table_of or (lambda topic: topic)
        self._families: dict[str, set[str]] = {}
        self._described: dict[str, Knowledge | None] = {}
        self._versions: dict[str, int] = {}
        self._enriched: set[str] = set()
        self._reached: Position | None = None
        self._present: dict[str, dict[str, Names]] = {}
        self._frontiers: dict[str, Frontier | None] = {}
        self._memory = memory
        self._beginnings = Beginnings(self.listing.table_scan, self._is_resolved, self._memory)
        self._index: dict[str, int] = {}
        self._unchecked: set[str] = set()
        self._sessions: dict[str, tuple[str, ...]] = {}
        self._is_open = False
        self._handed_out_to = self._read_to = ""

    @property
    def incarnation(self) -> str:
        return f"cockroachdb:{self._cluster_id or self.location.normalised}"

    def tables(self) -> Sequence[SourceTable]:
        """The tables of the topics met so far. Before `open` this lists the whole feed once."""
        if not self._is_open and not self.listing.topics:
            self.listing.look()
        return [SourceTable(table) for table in sorted(self._topics())]

    def initial(self, frontiers: Mapping[str, Frontier | None]) -> None:
        """Raises SourceLost if a frontier's resolved file, or a file still to be read from, is gone."""
        self._is_open = True
        self._handed_out_to = self._read_to = ""
        known = {table: frontier for table, frontier in frontiers.items() if frontier is not None}
        started = all(frontier is not None for frontier in frontiers.values()) and bool(frontiers)
        positions = sorted({frontier.position for frontier in known.values()}, key=lambda p: p.order)
        self._reached = positions[0] if started else None
        self._frontiers = dict(frontiers)
        self._beginnings = Beginnings(self.listing.table_scan, self._is_resolved, self._memory, known.values())
        if self._complete:
            self._reread(known)
            return
        paths = [self._resolved_path(position) for position in positions]
        for table, frontier in known.items():
            self._carried(table, frontier)  # raises if one is gone
        self.listing.begin(min(paths) if started else "")

    def latest(self) -> tuple[Position, ...]:
        """Raises SourceUnavailable, SourceLost, or BadInput for a resolved file without timestamp in its name."""
        # Whoever asks for more has written what was handed out.
        self._read_to = self._handed_out_to
        resolved: Sequence[Position]
        if self._complete:
            self._present = self._surveyed()
            newest = max((names.paths[-1] for own in self._present.values() for names in own.values()), default=None)
            resolved = [] if newest is None else [data_file(newest).stamp]
        else:
            resolved = self.listing.advance()
        return tuple(position for position in resolved if is_before(self._reached, position))

    @property
    def is_caught_up(self) -> bool:
        """Each look lists all there is."""
        return True

    def partitions(
        self, window: Window, frontiers: Mapping[str, Frontier | None], index: Mapping[str, int]
    ) -> Sequence[InputPartition]:
        """One partition for each file that may hold changes of these tables within the window."""
        self._reached = window.upper
        self._frontiers.update(frontiers)
        self._index.update(index)
        self._unchecked = set(index)
        if self._complete:
            facts = json.dumps({"complete_at": window.upper.text})
            return [
                InputPartition(number, path, facts, weight_of(path, size))
                for table, number in index.items()
                for names in self._present.get(table, {}).values()
                for path, size in names
            ]
        upper, topics = self._resolved_path(window.upper), self._topics()
        self._handed_out_to = upper
        found: list[InputPartition] = []
        for table, number in index.items():
            frontier = frontiers.get(table)
            own, after = topics.get(table, ()), self._resolved_path(frontier.position) if frontier else ""
            files = self._between(own, after, upper)
            with of_table(table):
                in_midst = self.listing.begins_before(upper)
                if frontier is None and is_scanned_still(files, upper, self.location, in_midst):
                    continue
            carried, late = self._carried(table, frontier), self._late(own, after, frontier)
            found += [self._partition(number, path, size, again=path < self._read_to) for path, size in files.items()]
            found += [self._partition(number, path, size, again=True) for path, size in carried.items()]
            found += [
                self._partition(number, path, size, again=True, late=True)
                for path, size in late.items()
                if path not in carried
            ]
        return found

    def _between(self, topics: Sequence[str], after: str, before: str) -> dict[str, int]:
        return {path: size for topic in topics for path, size in self.listing.between(topic, after, before)}

    def _late(self, topics: Sequence[str], after: str, frontier: Frontier | None) -> dict[str, int]:
        """What lies under the frontier's stem, if it is not what was read when the frontier was published."""
        under = {} if frontier is None else self._between(topics, stem_of(after), after)
        return {} if digest(under) == Notes.of(frontier).seen else under

    def _partition(self, number: int, path: str, size: int, **facts: bool) -> InputPartition:
        """A file that was read before is read `again` for what lies beyond; what it drops was counted then."""
        told = {name: True for name, holds in facts.items() if holds}
        return InputPartition(number, path, json.dumps(told), weight_of(path, size))

    def resume_state(self, table: str, upper: Position, reports: Sequence[PartitionReport]) -> str:
        """What is to be remembered of the table's files, see `notes`; of a complete feed, all that were read. The
        reports are those of the window that was asked for last."""
        own = [report for report in reports if report.table == self._index[table]]
        if self._complete:
            return json.dumps(inventory([report.partition for report in own]))
        if table in self._unchecked:
            self._check(table, own)
            self._unchecked.discard(table)
            self._sessions[table] = sessions_of(own, Notes.of(self._frontiers.get(table)))
        border, since, sessions = self._resolved_path(upper), self._beginnings.since, self._sessions[table]
        begins = self._frontiers.get(table) is None and self.listing.begins_before(border)
        return notes_at(upper, border, own, since, sessions, begins=begins).text

    def _check(self, table: str, reports: Sequence[PartitionReport]) -> None:
        """Raises SourceLost if what was read does not follow from a beginning, or begins anew."""
        settings, frontier = self._settings(table), self._frontiers.get(table)
        reached = None if frontier is None else self._resolved_path(frontier.position)
        self._beginnings.check_scans(table, reports, reached, Notes.of(frontier), settings.merges_scans)
        if frontier is None and reports:
            self._beginnings.check_first(table, reports, settings.takes_part)

    def schemas(
        self,
        partitions: Sequence[InputPartition],
        targets: Mapping[str, KnownTable] | None = None,
        *,
        look: bool = False,
        ask: bool = False,
    ) -> Mapping[str, SourceSchema]:
        """The tables of these partitions. A table of which nothing but deletes was seen so far is left out. `look`
        reads the rows anyway: to learn of columns that nobody announced. `ask` asks those again who describe the table.

        Raises BadInput if the key cannot be told, ConfigError for an impossible pin or for CSV files without pins.
        """
        by_table: dict[str, list[InputPartition]] = {}
        for partition in partitions:
            by_table.setdefault(self._table(partition.name), []).append(partition)
        found: dict[str, SourceSchema] = {}
        for table, own in by_table.items():
            looks = look or (ask and table in self._enriched)
            if (schema := self._schema_of(table, own, (targets or {}).get(table), looks, ask)) is not None:
                found[table] = schema
            # With rows of two versions in one window, the older one may hide what the newer one tells.
            self._versions[table] = min(data_file(partition.name).schema_version for partition in own)
            self._families.setdefault(table, set()).update(named_families(table, own))
        return found

    def schema_changed(self, table: str, partitions: Sequence[InputPartition]) -> bool:
        """Whether the source changed the table's schema since its source schema was last asked for, and somebody can
        tell; or whether there are files of a column family that nobody has looked at."""
        if named_families(table, partitions) - self._families.get(table, set()):
            return True
        versions = [data_file(partition.name).schema_version for partition in partitions]
        tells = self._describe is not None or table in self._enriched or self._settings(table).follow_drops
        return tells and max(versions, default=0) > self._versions.get(table, 0)

    def _schema_of(
        self, table: str, own: Sequence[InputPartition], target: KnownTable | None, look: bool, ask: bool
    ) -> SourceSchema | None:
        settings, is_family = self._settings(table), "+" in table
        optional = settings.key_optional
        pinned = ruled(configured(settings.pinned), settings.rules)
        is_pinned = resolve_schema([pinned]) is not None
        told = [pinned, self._asked(table, again=look or ask, needed=look or not is_pinned)]
        by_target = from_target(target) if target is not None else Knowledge()
        source_schema, seen = resolve_schema([*told, by_target]), None
        rows: list[FamilyRows] = []
        if source_schema is None or look or is_family or not named_families(table, own) <= set(families(source_schema)):
            rows = family_rows(table, own, partial(self._seen, table))
            seen = combined(rows)
            if seen.schema is not None:
                self._enriched.add(table)
            told = [for_family(place, seen) for place in told] if is_family else told
            places = [*told, ruled(enriched(rows), settings.rules), by_target]
            key_is_known = any(place.key for place in places)
            guess = ruled(self._guess(table, seen.without_key() if key_is_known else seen), settings.rules)
            source_schema = resolve_schema([*places, guess], key_optional=optional)
            if source_schema is None:
                is_csv = any(data_file(partition.name).format is Format.CSV for partition in own)
                check_enough(table, [*places, guess], seen, is_csv=is_csv)
        if source_schema is None:
            return None
        if look and seen is not None and target is not None:
            of_table = (*by_target.columns, *retired_columns(target))
            source_schema = heard_by_rows(source_schema, seen, of_table, new_columns=settings.new_columns)
        if settings.follow_drops and any(known.origin == TABLE for known in source_schema.columns):
            source_schema = without_dropped(source_schema, self._seen(table, own) if seen is None else seen)
        return with_families(table, source_schema, families_of(table, own), rows, lambda: self._taken_out(table))

    def _taken_out(self, table: str) -> list[str]:
        topics = [topic for topic in self.listing.topics if is_of(topic, table)]
        return [family_of(topic, table) for topic in topics if self._table_of(topic) != table]

    def _topics(self) -> dict[str, list[str]]:
        """By table, the topics met so far."""
        found: dict[str, list[str]] = {}
        for topic in sorted(self.listing.topics):
            found.setdefault(self._table_of(topic), []).append(topic)
        return found

    def _table(self, path: str) -> str:
        topic = topic_in(path)
        assert topic is not None, path
        return self._table_of(topic)

    def _guess(self, table: str, seen: Profile) -> Knowledge:
        """Where no key is needed, one that cannot be told is none."""
        try:
            return inferred(seen, table)
        except BadInput:
            if not self._settings(table).key_optional:
                raise
            return inferred(seen.without_key(), table)

    def try_rows(self, table: str, source_schema: SourceSchema) -> None:
        """Of a few of its newest files, the first rows. Raises BadInput for one that does not fit."""
        index, schemas = {table: 0}, {table: source_schema}
        try_rows(self.reader(index, schemas), self.decoder(index, schemas), self._newest(table))

    def _newest(self, table: str) -> list[InputPartition]:
        by_topic = self._surveyed().get(table, {})
        newest = [file for names in by_topic.values() for file in list(names)[-_PREVIEW_FILES:]]
        facts = json.dumps({"complete_at": Hlc(1).text}) if self._complete else "{}"
        return [InputPartition(0, path, facts, weight_of(path, size)) for path, size in newest]

    def preview(self, table: str, target: KnownTable | None) -> SourceSchema | None:
        """What the table looks like judging by a few of its newest files, resolved or not."""
        partitions = self._newest(table)
        if partitions:
            return self.schemas(partitions, {} if target is None else {table: target}, look=True).get(table)
        places = [configured(self._settings(table).pinned), self._asked(table)]
        if target is not None:
            places.append(from_target(target))
        return resolve_schema(places, key_optional=self._settings(table).key_optional)

    def for_tables(self, tables: Collection[str]) -> CloudFeed:
        """The whole feed once more: its files tell of all tables anyway."""
        return CloudFeed(
            self.location,
            tables=self._tables,
            complete=self._complete,
            cluster_id=self._cluster_id,
            describe=self._describe,
            describe_pinned=self._describe_pinned,
            profile=self._profile,
            table_of=self._table_of,
            memory=self._memory,
        )

    def stop(self) -> None:
        """Nothing is held open."""

    def commit(self, published: Position) -> None:
        """Drops what is known of files behind `published`; nothing in the feed is touched."""
        path = self.listing.path_of(hlc_of(published))
        if path is not None:
            self.listing.forget(path)

    def reader(self, index: Mapping[str, int], schemas: Mapping[str, SourceSchema]) -> FeedReader:
        """What tasks read partitions with. Raises ConfigError for a key that cannot identify rows."""
        readings = {number: self._reading(table, schemas[table]) for table, number in index.items() if table in schemas}
        return FeedReader(self.location, readings)

    def decoder(self, index: Mapping[str, int], schemas: Mapping[str, SourceSchema]) -> FeedDecoder:
        return FeedDecoder({n: DecodedTable(table, schemas[table]) for table, n in index.items() if table in schemas})

    def profile(self, partitions: Sequence[InputPartition]) -> Profile:
        """Looks at partitions of one table in this process."""
        return merged(
            profile_partition(self.location, s.name, self._settings(self._table(s.name)).options) for s in partitions
        )

    def _seen(self, table: str, partitions: Sequence[InputPartition]) -> Profile:
        with of_table(table):
            return self._profile(partitions)

    def _settings(self, table: str) -> TableSettings:
        return self._tables.get(table) or TableSettings()

    def _reading(self, table: str, source_schema: SourceSchema) -> TableReading:
        settings = self._settings(table)
        return TableReading(
            table=table,
            source_schema=source_schema,
            options=settings.options,
            csv_header=settings.csv_header,
            wants_before=settings.wants_before,
        )

    def _asked(self, table: str, again: bool = False, needed: bool = True) -> Knowledge:
        """What the source says over SQL. If it does not answer, what it said before; if nothing else tells the columns,
        that it does not answer."""
        if self._describe is None:
            return Knowledge()
        if (again or table not in self._described) and (needed or self._describe_pinned):
            try:
                self._described[table] = self._describe(table)
            except (SourceUnavailable, ConfigError):
                if needed:
                    raise
        return ruled(self._described.get(table) or Knowledge(), self._settings(table).rules)

    def _find_resolved(self, position: Hlc) -> str | None:
        there = (path for path in resolved_paths(position) if self.location.size(path) is not None)
        return self.listing.path_of(position) or next(there, None)

    def _is_resolved(self, position: Hlc) -> bool:
        return self._find_resolved(position) is not None

    def _resolved_path(self, position: Position) -> str:
        if path := self._find_resolved(hlc_of(position)):
            return path
        self.listing.reach()
        raise SourceLost(
            f"overcompacted: {self.location.normalised} no longer holds the resolved file of {position}, "
            "where a table was published up to",
            hint="Files behind the frontier were deleted too early, or the prefix holds another feed now. "
            f"Restore them. If they cannot be: {ANEW}",
            position=position.text,
        )

    def _carried(self, table: str, frontier: Frontier | None) -> dict[str, int]:
        found = {}
        for path in Notes.of(frontier).carried:
            with of_table(table):
                size = self.location.size(path)
            if size is None:
                raise SourceLost(
                    f"{table}: the file {path} is gone, and it still holds rows beyond the published position "
                    f"{frontier.position if frontier else ''}",
                    hint="Restore the file. Delete only files behind the frontier that are not listed in its notes. If "
                    f"it cannot be restored: {ANEW}",
                    table=table,
                    file=path,
                )
            found[path] = size
        return found

    def _surveyed(self) -> dict[str, dict[str, Names]]:
        """By table and topic, all files that are there."""
        found: dict[str, dict[str, Names]] = {}
        for topic, names in self.listing.survey().items():
            found.setdefault(self._table_of(topic), {})[topic] = names
        return found

    def _reread(self, known: Mapping[str, Frontier]) -> None:
        """A complete feed must not have changed since it was read."""
        self.listing.begin("")
        present = self._surveyed()
        for table, frontier in known.items():
            check_unchanged(
                table, frontier, [path for names in present.get(table, {}).values() for path in names.paths]
            )
