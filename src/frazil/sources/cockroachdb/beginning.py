"""Whether a feed tells a table from its beginning, and whether it begins anew in its midst.

    a scan       S-...  with rows at S                          all rows of the table at S: a beginning
    the prefix   everything since its first object              a beginning, of tables that had no rows then
    cut off      [deleted] ... R7 ... u's changes               none: what was deleted held the older rows of u
    a new scan   ... R7 ... X-<new session>, rows at X          another changefeed: rows that were deleted before it
                                                                began are not told, and would stay for ever
    added again  ... R7.RESOLVED, then R7-<new session>         the same feed, which did not tell of the table meanwhile
    a backfill   ... (X - 1).RESOLVED  X-..., rows at X         the same feed sends a table again in its new schema

Nobody can see what was deleted. It shows where a table's ledger, or the register of pipelines, remembers that the feed
once began with an older file; and where the oldest file is not the first of its sink, for each of them counts from 0.
A feed whose very first files are a scan began there: what is remembered of an older one in its place is forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from frazil.errors import SourceLost
from frazil.model.change import PartitionReport
from frazil.model.frontier import Frontier
from frazil.sources.base import Memory
from frazil.sources.cockroachdb.feed.file_names import data_file, is_under, session_in, stem_in
from frazil.sources.cockroachdb.feed.location import FeedLocation
from frazil.sources.cockroachdb.position import Hlc
from frazil.sources.cockroachdb.resume_state import Notes, short

_COPIES = "Of a feed that is copied, copy each .RESOLVED last, and keep the times of its files."
_FIRST_NUMBER_MAX = 1
"""Others who write such files may count from 1."""


@dataclass(frozen=True, slots=True)
class PrefixSummary:
    """What the names of a whole prefix tell: the stamp of its oldest data files, the lowest number among them, and the
    oldest stamp of each session."""

    oldest: str
    number: int
    sessions: Mapping[str, str]

    def cut_off(self, since: str) -> str:
        """How it shows that files were deleted; empty if it does not. `since` is the oldest stamp that is remembered;
        empty if none is."""
        if since and self.oldest > since:
            return f"it began with files of {since} once, and begins with {self.oldest} now"
        return f"its oldest file is a sink's number {self.number}" if self.number > _FIRST_NUMBER_MAX else ""


def table_scan(names: Iterable[tuple[str, str, int]]) -> PrefixSummary:
    """Of stamps, sessions and numbers."""
    oldest, lowest, sessions = "", 0, dict[str, str]()
    for stamp, session, number in names:
        if not oldest or stamp < oldest:
            oldest, lowest = stamp, number
        elif stamp == oldest:
            lowest = min(lowest, number)
        sessions[session] = min(sessions.get(session, stamp), stamp)
    return PrefixSummary(oldest, lowest, sessions)


def is_scanned_still(files: Collection[str], resolved_path: str, location: FeedLocation, in_midst: bool) -> bool:
    """Whether a table begins under the stem of a resolved file and was written after it: an altered changefeed scans it
    there, and may be at it still. The next resolved position says that the scan is whole. Storages know seconds: of the
    same one, what begins in the midst of a feed is taken for late, and the feed's own beginning is not."""
    first = min(files, default="")
    if not is_under(first, resolved_path):
        return False
    written, resolved = location.written_at(first), location.written_at(resolved_path)
    return written > resolved or (in_midst and written == resolved)


@dataclass(frozen=True, slots=True)
class FeedMemory:
    """The stamp of the oldest file that a feed held once, kept for when no ledger is left that tells. Another feed of
    the same pipeline has a `feed` of its own."""

    memory: Memory
    feed: str

    def since(self) -> str:
        """Empty if nothing is known. Raises CatalogUnavailable."""
        try:
            kept = json.loads(self.memory.recall() or "{}")
            return str(kept["since"]) if kept.get("feed") == self.feed else ""
        except (ValueError, KeyError, AttributeError):
            return ""

    def keep(self, since: str) -> None:
        """Raises CatalogUnavailable."""
        self.memory.keep(json.dumps({"feed": self.feed, "since": since}))


class Beginnings:
    """Of the tables of a feed. `take` takes what a prefix holds, `is_resolved` says whether a position has a resolved
    file. `since` is the stamp of the oldest file that the feed held once, as far as it is known."""

    def __init__(
        self,
        take: Callable[[], PrefixSummary],
        is_resolved: Callable[[Hlc], bool],
        memory: FeedMemory | None = None,
        known: Iterable[Frontier] = (),
    ) -> None:
        self._take = take
        self._is_resolved = is_resolved
        self._memory = memory
        self._kept: str | None = None
        self._table_scan: PrefixSummary | None = None
        self.since = min({_since(frontier) for frontier in known} - {""}, default="")

    def check_first(self, table: str, reports: Sequence[PartitionReport], takes_part: bool) -> None:
        """Of a table without a frontier. Raises SourceLost if it has no beginning, unless it `takes_part`."""
        taken = self._taken
        first = stem_in(min(report.partition for report in reports))
        is_scan = any(report.scanned for report in reports if report.partition.startswith(first))
        follows = is_scan and first.rpartition("/")[2] > taken.oldest
        if not self.since:
            self.since = taken.oldest if is_scan and not follows else self._recalled()
        why = "" if follows or takes_part else taken.cut_off("" if is_scan else self.since)
        if why:
            raise SourceLost(
                f"{table}: the feed no longer tells it from its beginning: {why}",
                hint=f"Restore the files that were deleted; or scan the table again (ALTER CHANGEFEED ... DROP {table}"
                f", then ADD {table} WITH initial_scan) and delete its files that sort before those of the scan; or "
                "set `history: partial` for the table, to publish what there is.",
                table=table,
                file=min(report.partition for report in reports),
            )
        self.since = self.since or taken.oldest
        if self._memory is not None and self._recalled() != self.since:
            self._memory.keep(self.since)
            self._kept = self.since

    def _recalled(self) -> str:
        if self._kept is None:
            self._kept = "" if self._memory is None else self._memory.since()
        return self._kept

    def check_scans(
        self, table: str, reports: Sequence[PartitionReport], reached: str | None, noted: Notes, merges: bool
    ) -> None:
        """Raises SourceLost for a scan of another changefeed than the one that was read so far, or of a table that was
        taken out of it meanwhile. `reached` is the resolved file of the frontier; without one, the table begins with
        the first of the files. `noted` is what the frontier remembers. With `merges` a scan is taken for changes, but
        for one at the very frontier: its rows would be dropped."""
        begins = stem_in(min((report.partition for report in reports), default=""))
        under = [report for report in reports if reached is not None and is_under(report.partition, reached)]
        if 0 < noted.scanned < sum(report.scanned for report in under):
            raise SourceLost(
                f"{table}: its scan went on after {reached} was read: files of it came late, or their times said "
                "that they had not",
                hint=f"Stop the pipeline, drop the target, and start again: the scan is whole now. {_COPIES}",
                table=table,
                file=max(report.partition for report in under),
            )
        for report in reports:
            path = report.partition
            is_at_it = reached is not None and is_under(path, reached) and bool(noted.sessions) and not noted.seen
            is_known = path.startswith(begins) if reached is None else path < reached and not is_at_it
            if not report.scanned or is_known or (merges and not is_at_it):
                continue
            if short(session_in(path)) in noted.sessions:
                continue
            file = data_file(path)
            if self._is_resolved(file.stamp.previous()) or self._began(file.session) != file.stamp.file_stamp:
                continue
            merging = "" if is_at_it else " If no row was deleted in between, set `rescan: merge` for the table."
            raise SourceLost(
                f"{table}: {path} scans a table that was read from {begins if reached is None else reached} already: "
                "another changefeed writes to the same prefix, or the table was taken out of this one and added again; "
                "it is not told which rows were deleted before",
                hint="Give every changefeed a prefix of its own. To go on with this one: stop the pipeline, drop the "
                f"target, delete the table's files that sort before {path}, and start again.{merging}",
                table=table,
                file=path,
            )

    @property
    def _taken(self) -> PrefixSummary:
        """Taken once for all tables: what is deleted later was there to be read."""
        self._table_scan = self._table_scan or self._take()
        return self._table_scan

    def _began(self, session: str) -> str:
        if session not in self._taken.sessions:
            self._table_scan = None
        return self._taken.sessions.get(session, "")


def _since(frontier: Frontier) -> str:
    return Notes.parse(frontier.notes).since
