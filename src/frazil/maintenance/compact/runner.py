"""Performs a compaction: rows are put together on Spark, then published on a head that was looked at.

    plan --batch by batch--> concatenate --> head --> rebase --> re-project deletes --> repair --Accepted--> next batch
                                              ^                                            |
                                              +--- conflict, no answer: is it there already? look again
                                                   (attempts are bounded)

A head that moved costs a look at its manifests and at the deletes that came, never another rewrite: the stream cannot
win by being faster (H16). Groups whose files somebody else rewrote are dropped; the next plan takes what is there.
Files of a run that was given up lie below its own folder, for the sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from frazil.clock import Clock
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.maintenance.commit_rewrite import Turn, commit_rewrite, summary_of
from frazil.maintenance.compact.planner import ACTION, CompactPlan, CompactSettings, plan_compaction
from frazil.maintenance.compact.rebase import Dropped, Rebased, rebase
from frazil.model.commit import ReplaceFiles
from frazil.model.compaction import Group, Reprojected, Rewrite, RewriteResult, Rewriting
from frazil.model.files import LiveFiles, WrittenFile
from frazil.model.ids import TableName
from frazil.model.ledger import TableHead
from frazil.model.write import ParquetSettings
from frazil.retry import Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """What a run did. `reprojected_rows` were deleted while it ran, and are deleted in the new files too. `left` groups
    were not begun because it was stopped."""

    snapshot_ids: tuple[int, ...] = ()
    removed_files: int = 0
    added_files: int = 0
    removed_deletes: int = 0
    reprojected_rows: int = 0
    dropped: tuple[Dropped, ...] = ()
    left: int = 0

    def __add__(self, other: Compacted) -> Compacted:
        return Compacted(**{name: getattr(self, name) + getattr(other, name) for name in self.__slots__})


class Compact:
    """The action for all tables of a lake. Safe to be used from several threads."""

    name = ACTION

    def __init__(
        self,
        committer: IcebergCommitter,
        rewriting: Rewriting,
        clock: Clock,
        parquet: ParquetSettings | None = None,
        turn: Turn | None = None,
    ) -> None:
        self._committer = committer
        self._rewriting = rewriting
        self._clock = clock
        self._parquet = parquet or ParquetSettings()
        self._turn = turn

    def plan(
        self, table: TableName, head: TableHead, live: LiveFiles, settings: CompactSettings | None = None
    ) -> CompactPlan | None:
        """None if nothing is worth it. Reads manifests if there is something to do in a table with row ids."""
        rewritten = self._committer.rewritten_table(table, head)
        plan = plan_compaction(rewritten, live, settings)
        if plan is None or not rewritten.has_lineage:
            return plan
        return plan_compaction(rewritten, self._committer.live_with_lineage(table, head), settings)

    def perform(self, plan: CompactPlan, proceed: Callable[[], bool] | None = None) -> Compacted:
        """Asks before each batch whether to proceed. Raises Transient if others were faster every time, OutcomeUnknown
        if a commit was never confirmed, CatalogRefused, and what reading and writing raise. Batches that were published
        before stay."""
        done = Compacted()
        for batch in plan.batches:
            is_wanted = not done.left and (proceed is None or proceed())
            done += self._perform(plan, batch) if is_wanted else Compacted(left=len(batch))
        return done

    def _perform(self, plan: CompactPlan, batch: Sequence[Group]) -> Compacted:
        rewrite = plan.rewrite(batch, self._clock.new_uuid(), self._parquet)
        return self._publish(rewrite, self._rewriting.concatenate(rewrite))

    def _publish(self, rewrite: Rewrite, results: Sequence[RewriteResult]) -> Compacted:
        table = rewrite.table.name

        def attempt(head: TableHead) -> Attempt[Compacted]:
            rebased, followed = self._rebased(rewrite, results, head)
            done = _done(rebased, followed)
            if not rebased.kept:
                return Attempt(done)
            return Attempt(done, self._committer.repair(table, head, _repair(rewrite, rebased, followed, done)))

        done, snapshot_id = commit_rewrite(
            table, rewrite.number, "the compaction", self._committer.head, attempt, self._clock, self._turn
        )
        return done if snapshot_id is None else replace(done, snapshot_ids=(snapshot_id,))

    def _rebased(
        self, rewrite: Rewrite, results: Sequence[RewriteResult], head: TableHead
    ) -> tuple[Rebased, Reprojected]:
        table = rewrite.table.name
        live, version = self._committer.live(table, head), self._committer.rewritten_table(table, head).format_version
        undone: set[int] = set()
        while True:
            rebased = rebase(rewrite, results, live, version, undone)
            if not rebased.moved:
                return rebased, Reprojected()
            followed = self._rewriting.reproject(rewrite, rebased.moved, rebased.carried)
            if not followed.undone:
                return rebased, followed
            undone.update(followed.undone)


def _done(rebased: Rebased, followed: Reprojected) -> Compacted:
    return Compacted(
        removed_files=len(rebased.inputs),
        added_files=len(_added(rebased)),
        removed_deletes=len(rebased.removed) + len(followed.replaced),
        reprojected_rows=followed.rows,
        dropped=rebased.dropped,
    )


def _added(rebased: Rebased) -> tuple[WrittenFile, ...]:
    return tuple(file for result in rebased.kept for file in result.files)


def _repair(rewrite: Rewrite, rebased: Rebased, followed: Reprojected, done: Compacted) -> ReplaceFiles:
    summary = summary_of(
        ACTION, rewrite.number, compacted_data_files=done.removed_files, reprojected_rows=done.reprojected_rows
    )
    return ReplaceFiles(
        files=(*_added(rebased), *followed.files),
        summary=summary,
        removed_data=rebased.inputs,
        removed_deletes=(*rebased.removed, *followed.replaced),
        rewrites=True,
        keeps_sequence=rewrite.sequence_number,
    )
