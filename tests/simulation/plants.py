"""Broken variants of the protocol, each planted once so that a test can see the simulation find it.

The production code is not edited: a decision is replaced for the time of a run, or an edge misbehaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from unittest.mock import patch

from pyroaring import BitMap64

from frazil.clock import Clock
from frazil.coordinator import admission, publish, publisher, resync, resyncer
from frazil.coordinator.admission import Admitted, Coordinator
from frazil.coordinator.frontier import At, Reading, read_frontier
from frazil.coordinator.publish import Answer, Committing, Intent, Locating, NeedHead, Published, State
from frazil.model.commit import Accepted, CommitAnswer, Unknown
from frazil.model.ledger import BranchedHead, Fence, LedgerEntry, TableHead
from frazil.model.live import LiveFile
from frazil.model.names import JobId, TableName
from frazil.model.ports import Lake, TransactionalLake
from frazil.workers.lookup import plan
from frazil.workers.lookup.plan import Deletion

from . import driver
from .world import SOUND, Planted


@dataclass(frozen=True, slots=True)
class Plant:
    """A fault, and how to make it for the time of a `with`."""

    hazard: str
    what: str
    edges: Planted = SOUND
    replaced: tuple[object, str, Callable[..., object]] | None = None

    @contextmanager
    def planted(self) -> Iterator[Planted]:
        if self.replaced is None:
            yield self.edges
        else:
            with patch.object(*self.replaced):
                yield self.edges


def _commit_anyway(state: NeedHead, head: TableHead, admitted: Admitted, intent: Intent) -> State:
    if intent.needs_locating:
        return Locating(state.attempt, head, state.in_doubt, state.lost)
    return Committing(state.attempt, head, intent.plan, state.in_doubt)


def _unknown_is_success(state: State, answer: Answer, intent: Intent) -> State:
    if isinstance(state, Committing) and isinstance(answer, Unknown):
        return Published(0, state.plan)
    return publish.advance(state, answer, intent)


def _commit_on_a_newer_head(
    intent: Intent, state: Committing, lake: Lake, clock: Clock, observer: publisher.Observer
) -> CommitAnswer:
    """The frontier still fits; only what was found may not."""
    now, job = lake.head(intent.table), intent.coordinator.job
    fits = now.uuid == state.head.uuid and read_frontier(now, job) == read_frontier(state.head, job)
    return _commit(intent, replace(state, head=now) if fits else state, lake, clock, observer)


def _one_speaks_for_all(
    ready: Sequence[tuple[Intent, Committing]], lake: TransactionalLake, clock: Clock, observer: publisher.Observer
) -> Sequence[CommitAnswer]:
    answers = _commit_many(ready, lake, clock, observer)
    first, _ = ready[0]
    newest = lake.head(first.table).newest(first.coordinator.job)
    landed = newest is not None and newest.batch_id == first.plan.entry.batch_id
    return [Accepted(0)] * len(ready) if landed else answers


def _without_replacing(file: LiveFile, matched: BitMap64, deleted: BitMap64) -> Deletion | None:
    found = _deletion(file, matched, deleted)
    return None if found is None else replace(found, replaced=())


def _without_merging(file: LiveFile, matched: BitMap64, deleted: BitMap64) -> Deletion | None:
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
    entry = head.mirror(job)
    return read_frontier(head, job) if entry is None else At(entry)


def _without_empty_epochs(
    window: object, with_files: object, tip: object, heartbeat: bool, met_changes: bool
) -> object:
    return _epochs_to_publish(window, with_files, tip, heartbeat, False)  # type: ignore[arg-type]


def _unknown_landed(state: resync.State, answer: BranchedHead | CommitAnswer, wish: resync.Wish) -> resync.State:
    if isinstance(state, resync.Sending) and isinstance(answer, Unknown):
        answer = Accepted(0)
    return resync.advance(state, answer, wish)


def _nobody_is_barred(main: TableHead, table: TableName, coordinator: Coordinator) -> None:
    return None


def _never_older(loaded: LedgerEntry, published: LedgerEntry) -> bool:
    return False


def _anybodys_mark(heads: BranchedHead, coordinator: Coordinator) -> bool:
    return True


_epochs_to_publish = driver.epochs_to_publish
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
        replaced=(driver, "epochs_to_publish", _without_empty_epochs),
    ),
    "clear-keeps-rows": Plant(
        "H27", "a table that is loaded anew keeps the rows it had", edges=Planted(clear_keeps_rows=True)
    ),
    "resync-without-fence": Plant(
        "H12, H27",
        "whoever loads a table on its branch does not look for newer fences on main",
        replaced=(resync, "_barred", _nobody_is_barred),
    ),
    "resync-not-taken-over": Plant(
        "H12, H27",
        "a load that another began goes on without a new fence",
        replaced=(resync, "_marked_by", _anybodys_mark),
    ),
    "resync-goes-back": Plant(
        "H27", "main becomes a branch that is behind it", replaced=(resync, "_is_older", _never_older)
    ),
    "resync-unknown-is-success": Plant(
        "H6, H27",
        "an unanswered commit about the branch counts as landed",
        replaced=(resyncer, "advance", _unknown_landed),
    ),
}
