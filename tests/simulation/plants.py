"""Broken variants of the protocol, each planted once so that a test can see the simulation find it.

The production code is not edited: a decision is replaced for the time of a run, or an edge misbehaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from pyroaring import BitMap64

from frazil.clock import Clock
from frazil.commit import admission, publisher
from frazil.commit import machine as publish
from frazil.commit import resync_machine as resync
from frazil.commit import resync_runner as resyncer
from frazil.commit.admission import Admitted, Coordinator
from frazil.commit.frontier_check import At, Reading, read_frontier
from frazil.commit.machine import Answer, Committing, EpochCommit, Locating, NeedHead, Published, State
from frazil.ingest.locate import search as plan
from frazil.ingest.locate.search import DeletedPositions
from frazil.ingest.loop import epoch_planner, supervisor, table_state
from frazil.ingest.loop.commit_lanes import CommitLanes
from frazil.ingest.loop.reader_loop import ReaderLoop
from frazil.ingest.loop.table_registry import TableRegistry
from frazil.ingest.loop.target_tables import TargetTable
from frazil.model.change import PartitionReport
from frazil.model.commit import Accepted, CommitAnswer, Unknown
from frazil.model.files import LiveFile
from frazil.model.frontier import EpochProgress, Frontier
from frazil.model.ids import JobId, TableName
from frazil.model.ledger import Fence, LedgerEntry, TableHead
from frazil.model.ports import Committer, TransactionalCommitter
from frazil.model.position import Position
from frazil.sources.cockroachdb import resume_state as notes
from frazil.sources.cockroachdb.source import CloudFeed

from . import broken_loop
from .world import SOUND, Planted


@dataclass(frozen=True, slots=True)
class Plant:
    """A fault, and how to make it for the time of a `with`."""

    hazard: str
    what: str
    edges: Planted = SOUND
    replaced: tuple[object, str, object] | None = None

    @contextmanager
    def planted(self) -> Iterator[Planted]:
        if self.replaced is None:
            yield self.edges
        else:
            with patch.object(*self.replaced):
                yield self.edges


def _commit_anyway(state: NeedHead, head: TableHead, admitted: Admitted, epoch_commit: EpochCommit) -> State:
    if epoch_commit.needs_locating:
        return Locating(state.attempt, head, state.in_doubt, state.lost)
    return Committing(state.attempt, head, epoch_commit.plan, state.in_doubt)


def _unknown_is_success(state: State, answer: Answer, epoch_commit: EpochCommit) -> State:
    if isinstance(state, Committing) and isinstance(answer, Unknown):
        return Published(0, state.plan)
    return publish.advance(state, answer, epoch_commit)


def _commit_on_a_newer_head(
    epoch_commit: EpochCommit, state: Committing, committer: Committer, clock: Clock, observer: publisher.Observer
) -> CommitAnswer:
    """The frontier still fits; only what was found may not."""
    now, job = committer.head(epoch_commit.table), epoch_commit.coordinator.job
    fits = now.uuid == state.head.uuid and read_frontier(now, job) == read_frontier(state.head, job)
    return _commit(epoch_commit, replace(state, head=now) if fits else state, committer, clock, observer)


def _one_speaks_for_all(
    ready: Sequence[tuple[EpochCommit, Committing]],
    committer: TransactionalCommitter,
    clock: Clock,
    observer: publisher.Observer,
) -> Sequence[CommitAnswer]:
    answers = _commit_many(ready, committer, clock, observer)
    first, _ = ready[0]
    newest = committer.head(first.table).newest(first.coordinator.job)
    landed = newest is not None and newest.batch_id == first.plan.entry.batch_id
    return [Accepted(0)] * len(ready) if landed else answers


def _without_replacing(file: LiveFile, matched: BitMap64, deleted: BitMap64) -> DeletedPositions | None:
    found = _deletion(file, matched, deleted)
    return None if found is None else replace(found, replaced=())


def _without_merging(file: LiveFile, matched: BitMap64, deleted: BitMap64) -> DeletedPositions | None:
    found = _deletion(file, matched, deleted)
    return None if found is None else replace(found, all=matched)


def _nobody_outranks(theirs: Fence, ours: Fence) -> bool:
    return False


def _generation_alone(theirs: Fence, ours: Fence) -> bool:
    return theirs.generation > ours.generation


def _summaries_alone(head: TableHead, job: JobId) -> Reading:
    return read_frontier(replace(head, properties={}), job)


def _property_alone(head: TableHead, job: JobId) -> Reading:
    """On a branch, which has none, there is nothing to get wrong."""
    entry = head.in_property(job)
    return read_frontier(head, job) if entry is None else At(entry)


def _without_empty_epochs(
    window: Any, with_files: Any, tip: Any, heartbeat: bool, met_changes: bool, beside: Any
) -> tuple[Position, ...]:
    return _epochs_to_publish(window, with_files, tip, heartbeat, False, beside)


def _unknown_landed(*step: Any) -> CommitAnswer:
    answer = _send_resync(*step)
    return Accepted(0) if isinstance(answer, Unknown) else answer


def _nobody_is_barred(main: TableHead, table: TableName, coordinator: Coordinator) -> None:
    return None


def _never_older(loaded: LedgerEntry, published: LedgerEntry) -> bool:
    return False


def _columns_fit(epoch_commit: EpochCommit, head: TableHead) -> None:
    return None


def _by_wall_time(report: PartitionReport, upper: Position) -> bool:
    return report.newest is not None and report.newest.order[0] > upper.order[0]


def _nothing_is_late(source: CloudFeed, topics: Sequence[str], after: str, frontier: Frontier | None) -> dict[str, int]:
    return {}


_epochs_to_publish = epoch_planner.epochs_to_publish
_send_resync = resyncer._send
_commit, _commit_many, _deletion = publisher._commit, publisher._commit_many, plan.deletion

PLANTS = {
    "no-frontier-check": Plant(
        "H6, H8",
        "every epoch is committed, whatever the table holds",
        replaced=(publish, "_compare_and_set", _commit_anyway),
    ),
    "no-fence": Plant("H12", "older coordinators go on", replaced=(admission, "outranks", _nobody_outranks)),
    "fence-without-owner": Plant(
        "H45", "two coordinators of one generation go on", replaced=(admission, "outranks", _generation_alone)
    ),
    "unknown-is-success": Plant(
        "H6", "an unanswered commit counts as landed", replaced=(publisher, "advance", _unknown_is_success)
    ),
    "columns-not-compared": Plant(
        "H14", "files are published under columns that are gone", replaced=(publish, "_misfit", _columns_fit)
    ),
    "no-compare-and-set": Plant(
        "H47", "the catalog lands a commit on a stale base", edges=Planted(catalog_checks_base=False)
    ),
    "commit-on-another-head": Plant(
        "H47",
        "what was found on one head is committed on a newer one",
        replaced=(publisher, "_commit", _commit_on_a_newer_head),
    ),
    "one-speaks-for-all": Plant(
        "H6",
        "of several tables in one commit, the first one tells whether all landed",
        replaced=(publisher, "_commit_many", _one_speaks_for_all),
    ),
    "vector-not-replaced": Plant(
        "H23",
        "a new vector is added beside the old one of its data file",
        replaced=(plan, "deletion", _without_replacing),
    ),
    "vector-not-merged": Plant(
        "H23",
        "a new vector replaces the old one without what that had deleted",
        replaced=(plan, "deletion", _without_merging),
    ),
    "path-reuse": Plant("H46", "a second attempt writes the paths of the first", edges=Planted(paths_are_reused=True)),
    "summaries-alone": Plant(
        "H3", "the frontier is read from summaries alone", replaced=(admission, "read_frontier", _summaries_alone)
    ),
    "property-alone": Plant(
        "H4", "the frontier is read from the property alone", replaced=(admission, "read_frontier", _property_alone)
    ),
    "cancelled-changes-unpublished": Plant(
        "H28",
        "a first epoch whose changes cancel out leaves no mark",
        replaced=(epoch_planner, "epochs_to_publish", _without_empty_epochs),
    ),
    "carried-by-wall-time": Plant(
        "-",
        "whether a file holds rows beyond R is told by nanoseconds alone",
        replaced=(notes, "reaches_beyond", _by_wall_time),
    ),
    "late-files-unread": Plant(
        "H54",
        "what appears under the stem of a consumed R is taken for a zombie's",
        replaced=(CloudFeed, "_late", _nothing_is_late),
    ),
    "clear-keeps-rows": Plant(
        "H27", "a table that is loaded anew keeps the rows it had", edges=Planted(clear_keeps_rows=True)
    ),
    "resync-without-fence": Plant(
        "H12, H27",
        "whoever loads a table on its branch does not look for newer fences on main",
        replaced=(resync, "_barred", _nobody_is_barred),
    ),
    "resync-goes-back": Plant(
        "H27", "main becomes a branch that is behind it", replaced=(resync, "_is_older", _never_older)
    ),
    "resync-unknown-is-success": Plant(
        "H6, H27",
        "an unanswered commit about the branch counts as landed",
        replaced=(resyncer, "_send", _unknown_landed),
    ),
    "acknowledges-the-furthest": Plant(
        "H28",
        "the source is told what one table is published up to, not what all are",
        replaced=(supervisor, "acknowledgeable", broken_loop.furthest),
    ),
    "acknowledges-what-is-sent": Plant(
        "H28",
        "an epoch that is on its way counts as published",
        replaced=(EpochProgress, "forgettable", property(broken_loop.as_handed_over)),
    ),
    "all-wait-for-one": Plant(
        "-",
        "tables that were read with one that fails wait with it",
        replaced=(table_state, "concerns_all", broken_loop.all_wait),
    ),
    "reading-is-progress": Plant(
        "-",
        "a loop that read a window and failed at the next one begins to count its failures anew",
        replaced=(ReaderLoop, "has_progressed", property(broken_loop.has_read)),
    ),
    "start-asks-every-table": Plant(
        "-",
        "a run does not begin while one table cannot be read",
        replaced=(TableRegistry, "newest_generation", broken_loop.asks_every_table),
    ),
    "window-read-twice": Plant(
        "-", "a loop hands out its last window once more", replaced=(ReaderLoop, "_step", broken_loop.reads_again)
    ),
    "window-committed-twice": Plant(
        "H6", "a lane is given each window twice", replaced=(CommitLanes, "submit", broken_loop.takes_twice)
    ),
    "lane-goes-on": Plant(
        "H11",
        "what follows a failed epoch is sent all the same",
        replaced=(CommitLanes, "_work_off", broken_loop.goes_on_after_a_failure),
    ),
    "stale-frontier": Plant(
        "H6",
        "a loop that begins goes on from what the one before it knew",
        replaced=(TargetTable, "start_at", broken_loop.keeps_its_frontier),
    ),
}
