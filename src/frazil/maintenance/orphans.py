"""Finds files that were written and never committed, and gives them to the deletion queue (H18, H19).

    <data>/frazil_job=<job>/epoch=<R>/fence=<f>/...    of a closed epoch: f is older than the newest fence the table
                                                       has seen of the pipeline, or R is not beyond its frontier
    <data>/frazil_job=<job>/replay=<id>/...            none of that replay's files is young
    <data>/frazil_maintenance/<action>=<id>/...        none of that run's files is young
    <metadata>/*.avro, *.metadata.json, *.stats        manifests, lists and metadata of commits that did not land

        listed --closed, older than `older_than`?--> candidates --no snapshot, log or statistics refer to it?--> queue

Anything else below the table's location is not ours to judge. An epoch under way is open, which the table itself tells,
so its files stay however old they are. Of all else that is under way, by whatever process, age alone tells: `QUIET` is
the least, however short `older_than` is. The queue asks once more before it deletes. Files are listed before the table
is asked what it refers to, so what was committed in between is found referred to.

A table's folder may hold another one's files: renamed tables stay where they are, and the name is used again. So if
there is metadata of another table in it, nothing is swept, also if that table is still empty: what it is about to
commit may lie there already. Planning is pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from frazil.clock import Clock
from frazil.iceberg.system.queue_rows import DeletionBatch, ListedFile, QueuedDeletion, TablePlace, Why
from frazil.maintenance.expire.planner import Enqueues
from frazil.model.ids import JobId, TableName
from frazil.model.ledger import LEDGER_PROPERTY, Fence, SnapshotFacts, TableHead
from frazil.model.position import NotAPosition, Position, is_before, parse_position

QUIET = timedelta(hours=1)
"""How long a rewrite, a replay or a commit may write nothing and still be under way. One that is tried again lasts for
half an hour in iceberg-java, and a rewrite closes a file every few minutes."""
_EPOCH = re.compile(r"frazil_job=(?P<job>[^/]+)/epoch=(?P<epoch>[^/]+)/fence=(?P<generation>\d+)-(?P<owner>[^/]+)/.+")
_RUN = re.compile(r"(?P<folder>frazil_job=[^/]+/replay=[^/]+|frazil_maintenance/[^/=]+=[^/]+)/.+")
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_METADATA = re.compile(
    rf"{_UUID}-m\d+\.avro|optimized-m-{_UUID}\.avro|snap-\d+-\d+-{_UUID}\.avro|[^/]+\.stats"
    rf"|(?:(?:\d+-)?{_UUID}|v\d+)(?:\.gz)?\.metadata\.json(?:\.gz)?"
)
_METADATA_FILE = re.compile(r"[^/]+\.metadata\.json(?:\.gz)?")


@dataclass(frozen=True, slots=True)
class PipelineProgress:
    """How far a pipeline is with a table: the newest fence that the table has seen, and up to where it is published,
    wherever it may publish; None if nothing is certain."""

    fence: Fence | None
    frontier: Position | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a sweep did; `skipped` says why it did not look, or not everywhere."""

    listed: int = 0
    queued: int = 0
    bytes: int = 0
    skipped: str = ""


def progress_of(main: TableHead, branches: Mapping[str, TableHead]) -> dict[str, PipelineProgress]:
    """By pipeline. A pipeline that loads the table anew is only as far as that load is. Pure; entries that cannot be
    read count as nothing certain."""
    heads = (main, *branches.values())
    jobs = {snapshot.summary.get("frazil.job-id", "") for head in heads for snapshot in head.ancestry} - {""}
    found = {}
    for text in jobs | _jobs_of_properties(main):
        try:
            job = JobId(text)
            fences = [Fence.parse(mark.summary["frazil.fence"]) for mark in _marks(heads, text)]
            frontier = _frontier(main, job)
            if (
                not main.history_is_whole
                and main.mark(job) is None
                and (in_property := main.in_property(job)) is not None
            ):
                # Its newest epoch is kept, but what led to it from main has expired.
                fences, frontier = [*fences, in_property.fence], in_property.resolved
            if (branch := branches.get(job.resync_branch)) is not None:
                loaded = _frontier(branch, job)
                frontier = loaded if is_before(loaded, frontier) else frontier
            found[text] = PipelineProgress(max(fences, default=None), frontier)
        except (ValueError, KeyError, TypeError, AttributeError):
            found[text] = PipelineProgress(None)
    return found


def _jobs_of_properties(main: TableHead) -> set[str]:
    """Pipelines that have a ledger property."""
    begin, end = LEDGER_PROPERTY
    return {
        name.removeprefix(begin).removesuffix(end)
        for name in main.properties
        if name.startswith(begin) and name.endswith(end)
    }


def _marks(heads: Iterable[TableHead], job: str) -> Iterator[SnapshotFacts]:
    for head in heads:
        yield from (snapshot for snapshot in head.ancestry if snapshot.summary.get("frazil.job-id") == job)


def _frontier(head: TableHead, job: JobId) -> Position | None:
    entry = head.newest(job)
    return None if entry is None else entry.resolved


def plan_sweep(
    table: TablePlace,
    listed: Sequence[ListedFile],
    *,
    now: datetime,
    older_than: timedelta,
) -> tuple[ListedFile, ...]:
    """Files that can no longer become part of the table, unless they are already; that is for the lake to say. Pure."""
    closed_before, quiet_since = now - older_than, now - max(older_than, QUIET)
    progress = progress_of(table.main, table.branches)
    young_runs = set()
    own: list[tuple[ListedFile, str]] = []
    for file in listed:
        below = _below(table.data_location, file.path)
        if below is not None:
            own.append((file, below))
            run = _RUN.fullmatch(below)
            if run is not None and file.modified_at >= quiet_since:
                young_runs.add(run["folder"])
    found = [
        file
        for file, below in own
        if (file.modified_at < closed_before and _is_closed(below, progress)) or _is_abandoned(below, young_runs)
    ]
    for file in listed:
        below = _below(table.metadata_location, file.path)
        if below is not None and file.modified_at < quiet_since and _METADATA.fullmatch(below):
            found.append(file)
    return tuple(found)


def _below(location: str | None, path: str) -> str | None:
    if location is None or not path.startswith(location + "/"):
        return None
    return path[len(location) + 1 :]


def _is_closed(below: str, progress: Mapping[str, PipelineProgress]) -> bool:
    """Whether no coordinator can commit the file any more."""
    epoch = _EPOCH.fullmatch(below)
    known = None if epoch is None else progress.get(epoch["job"])
    if epoch is None or known is None or known.fence is None:
        return False
    if int(epoch["generation"]) < known.fence.generation:
        return True
    try:
        position = parse_position(epoch["epoch"])
    except NotAPosition:
        return False
    same_source = type(position) is type(known.frontier)
    exactly = f"{epoch['generation']}-{epoch['owner']}" == known.fence.label
    return exactly and same_source and not is_before(known.frontier, position)


def _is_abandoned(below: str, young_runs: set[str]) -> bool:
    run = _RUN.fullmatch(below)
    return run is not None and run["folder"] not in young_runs


class OrphanSearch(Protocol):
    def place(self, table: TableName) -> TablePlace:
        """Raises CatalogUnavailable, CatalogRefused, or TableChanged if the table is gone."""

    def list(self, table: TableName, folder: str) -> Sequence[ListedFile]:
        """All files below a folder, which need not exist. Raises CatalogUnavailable or CatalogRefused."""

    def unreferenced(self, table: TableName, paths: Sequence[str]) -> Sequence[str]:
        """Of these, those that nothing of the table refers to now. Raises like `place`."""

    def owner_of(self, table: TableName, metadata_file: str) -> str | None:
        """The uuid of the table that a metadata file describes; None if it describes none: it was never finished.
        Raises CatalogUnavailable or CatalogRefused."""


class SweepQueue(Enqueues, Protocol):
    def batches(self) -> Sequence[DeletionBatch]:
        """All there is. Raises CatalogUnavailable or CatalogRefused."""


class Sweep:
    """The action."""

    name = "orphans"

    def __init__(self, committer: OrphanSearch, queue: SweepQueue, older_than: timedelta, clock: Clock) -> None:
        self._committer = committer
        self._queue = queue
        self._older_than = older_than
        self._clock = clock

    def plan(self, table: TableName) -> tuple[Swept, Sequence[ListedFile]]:
        """What `perform` would queue now. Raises like `OrphanSearch.place`."""
        now = self._clock.now()
        before = self._committer.place(table)
        if not before.may_be_cleaned:
            return Swept(skipped=f"{table} says gc.enabled=false: its files belong to others too"), ()
        folders = [folder for folder in (before.data_location, before.metadata_location) if folder is not None]
        if len(folders) < 2:
            return Swept(skipped=f"the files of {table} do not lie below its own location"), ()
        # A folder inside the other is listed with it.
        apart = [one for one in folders if not any(one != other and one.startswith(other + "/") for other in folders)]
        listed = {file.path: file for folder in apart for file in self._committer.list(table, folder)}
        metadata_files = [
            path
            for path in listed
            if (name := _below(before.metadata_location, path)) is not None and _METADATA_FILE.fullmatch(name)
        ]
        for path in self._committer.unreferenced(table, metadata_files):
            owner = self._committer.owner_of(table, path)
            if owner is not None and owner != before.uuid:
                reason = (
                    f"another table ({owner}) has its metadata in the folder of {table}: {path}; "
                    "delete that file if no catalog has such a table any more"
                )
                return Swept(listed=len(listed), skipped=reason), ()
        candidates = plan_sweep(before, list(listed.values()), now=now, older_than=self._older_than)
        waiting = {row.path for batch in self._queue.batches() for row in batch.rows}
        asked = [file.path for file in candidates if file.path not in waiting]
        found = [listed[path] for path in self._committer.unreferenced(table, asked)]
        return Swept(listed=len(listed), queued=len(found), bytes=sum(file.size for file in found)), found

    def perform(self, table: TableName) -> Swept:
        """Raises like `plan`, and StorageUnavailable if the queue cannot be written."""
        swept, found = self.plan(table)
        if found:
            uuid = self._committer.place(table).uuid
            now = self._clock.now()
            self._queue.enqueue(
                [
                    QueuedDeletion(path=file.path, table=table, table_uuid=uuid, orphaned_at=now, why=Why.UNCOMMITTED)
                    for file in found
                ]
            )
        return swept
