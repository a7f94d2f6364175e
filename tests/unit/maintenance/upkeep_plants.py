"""Broken variants of maintenance, each planted once so that a test can see the histories of `upkeep_world` find it.

The production code is not edited: a decision is replaced for the time of a run, or an edge misbehaves. Each plant names
a seed that finds it; once actions or world have changed, another one may.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

from conversion_world import World
from upkeep_edges import Queue
from upkeep_spark import WorkedTable
from upkeep_table import UpkeepTable

from frazil.iceberg.commits.snapshots import TableSnapshots
from frazil.iceberg.system.queue_rows import DeletionBatch, ListedFile, QueuedDeletion, TablePlace, TableStanding
from frazil.maintenance import orphans
from frazil.maintenance import queue as deletion_queue
from frazil.maintenance.compact import rebase as compact_rebase
from frazil.maintenance.compact import runner as compact_run
from frazil.maintenance.compact.rebase import Rebased
from frazil.maintenance.convert import runner as convert_run
from frazil.maintenance.convert.planner import PlanAgain, Ready
from frazil.maintenance.expire import planner as expire
from frazil.maintenance.expire.planner import Expire, Expired
from frazil.maintenance.queue import Cleaned, DeletionWorker
from frazil.model.commit import CommitAnswer
from frazil.model.files import FileClosed, LiveFile
from frazil.model.ids import TableName
from frazil.model.ledger import SnapshotFacts, TableHead


@dataclass(frozen=True, slots=True)
class Plant:
    """A fault, how to make it, and a seed that finds it."""

    hazard: str
    what: str
    replaced: tuple[object, str, Callable[..., object]]
    seed: int

    def planted(self) -> AbstractContextManager[object]:
        return patch.object(*self.replaced)


def _as_if_nobody_deleted(*seen: Any) -> Rebased:
    return replace(_rebase(*seen), moved=(), carried=())


def _as_new_as_its_commit(self: World, file: FileClosed, sequence_number: int) -> LiveFile:
    return _data_of(self, file, len(self.states))


def _nothing_reaches_it_again(file: LiveFile, live: dict[str, LiveFile], rewrite: Any) -> str | None:
    return None if file.path in live else "somebody else removed it"


def _whatever_came_since(plan: Any, marked: Any, now: Any, version: int) -> Ready | PlanAgain:
    """Vectors as they were found replace those that the files have by now."""
    decided = _rebase_conversion(plan, marked, now, version)
    if isinstance(decided, PlanAgain):
        return decided
    return replace(decided, merges=(), added=(*decided.added, *(one.vector for one in decided.merges)))


def _without_looking(
    self: DeletionWorker,
    batch: DeletionBatch,
    rows: Sequence[QueuedDeletion],
    ahead: Sequence[str],
    standing: TableStanding,
) -> Cleaned:
    return _delete(self, batch, rows, ahead, TableStanding(None))


def _nothing_waits(batch: DeletionBatch, rows: Sequence[QueuedDeletion]) -> list[QueuedDeletion]:
    return []


def _tell_the_queue_after_the_commit(self: Expire, table: TableName) -> Expired:
    told: list[QueuedDeletion] = []

    class Later(Queue):
        def enqueue(self, deletions: Sequence[QueuedDeletion]) -> None:
            told.extend(deletions)

    done = _expire(Expire(self._committer, Later(), self._settings, self._clock), table)
    self._queue.enqueue(told)
    return done


def _only_what_is_named(
    table: TableSnapshots, main: Sequence[SnapshotFacts], tags: dict[str, int], dropped: Collection[str]
) -> set[int]:
    """Without the pipeline's newest epoch, without what is on a branch alone, without proof of a rollback."""
    named = {ref.snapshot_id for name, ref in table.references.items() if name not in dropped and name not in tags}
    return (named | set(tags.values())) & table.snapshots.keys()


def _no_proof(mirror: object, main: object) -> set[int]:
    return set()


def _every_epoch_is_closed(below: str, progress: object) -> bool:
    return orphans._EPOCH.fullmatch(below) is not None


def _of_any_age(table: TablePlace, listed: Sequence[ListedFile], **facts: Any) -> tuple[ListedFile, ...]:
    return _plan_sweep(table, listed, **{**facts, "older_than": datetime.max.replace(tzinfo=UTC)})


def _merge_on_any_base(
    self: UpkeepTable, table: TableName, head: TableHead, paths: Sequence[str], summary: dict[str, str]
) -> CommitAnswer:
    return _sent(self, self.metadata, lambda: self._merge(self._state(head), frozenset(paths), summary))


def _on_any_base(self: UpkeepTable, base: object, land: Callable[[], None]) -> CommitAnswer:
    return _sent(self, self.metadata, land)


_rebase, _rebase_conversion = compact_run.rebase, convert_run.rebase
_data_of, _delete, _expire = World._data_of, DeletionWorker._delete, Expire.perform
_plan_sweep, _sent = orphans.plan_sweep, UpkeepTable._sent

PLANTS = {
    "no-reprojection": Plant(
        "H16",
        "deletes that came during a compaction do not follow their rows",
        (compact_run, "rebase", _as_if_nobody_deleted),
        31,
    ),
    "new-sequence-number": Plant(
        "H15", "rewritten files are as new as their commit", (WorkedTable, "_data_of", _as_new_as_its_commit), 12
    ),
    "older-deletes-forgotten": Plant(
        "H15",
        "a compaction does not see that a rollback brought older deletes back",
        (compact_rebase, "_why_not", _nothing_reaches_it_again),
        238,
    ),
    "vectors-not-merged": Plant(
        "H23, H24",
        "a conversion replaces vectors that came meanwhile",
        (convert_run, "rebase", _whatever_came_since),
        311,
    ),
    "no-compare-and-set": Plant(
        "H47", "the catalog lands a commit on a stale base", (UpkeepTable, "_sent", _on_any_base), 23
    ),
    "merge-on-another-head": Plant(
        "H47",
        "a merge of the manifests of one head lands on a newer one",
        (UpkeepTable, "merge_manifests", _merge_on_any_base),
        293,
    ),
    "no-last-look": Plant(
        "H46", "the queue deletes without asking once more", (DeletionWorker, "_delete", _without_looking), 57
    ),
    "rows-forgotten": Plant(
        "H19",
        "rows of a batch that are not due leave the queue with the others",
        (deletion_queue, "_others", _nothing_waits),
        323,
    ),
    "queue-told-late": Plant(
        "H19", "the queue is told after the expiry", (Expire, "perform", _tell_the_queue_after_the_commit), 25
    ),
    "nothing-protected": Plant(
        "H3", "only named snapshots are protected from expiry", (expire, "_protected", _only_what_is_named), 10
    ),
    "no-proof-of-rollback": Plant(
        "H4", "what tells of a rollback expires", (expire, "_proof_of_rollback", _no_proof), 564
    ),
    "open-epochs-swept": Plant(
        "H18", "files of an epoch under way are swept", (orphans, "_is_closed", _every_epoch_is_closed), 10
    ),
    "young-runs-swept": Plant(
        "H18", "files of a rewrite under way are swept", (orphans, "plan_sweep", _of_any_age), 1497
    ),
}
