"""Performs a conversion: searched on Spark, then published once on a head that was looked at.

    plan --search, write--> Marked --head--> rebase --Ready--> repair --Accepted--> Done
                               ^      ^        |                  |
                               |      +--------|----- conflict, no answer: is it there already? look again
                               +-- PlanAgain --+      (attempts are bounded)

A head that moved costs a look at its manifests, not another search: what was found still holds, unless `rebase` says
otherwise. Files of a run that was given up lie below its own folder, for the sweep.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

from frazil.clock import Clock
from frazil.errors import Transient
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.maintenance.commit_rewrite import Turn, commit_rewrite, summary_of
from frazil.maintenance.convert.planner import (
    ACTION,
    ConvertPlan,
    ConvertSettings,
    Left,
    PlanAgain,
    Ready,
    plan_conversion,
    rebase,
)
from frazil.model.commit import ReplaceFiles
from frazil.model.conversion import Converting, Marked, Search
from frazil.model.files import LiveFiles, WrittenFile
from frazil.model.ids import TableName
from frazil.model.ledger import TableHead
from frazil.model.write import ParquetSettings
from frazil.retry import Attempt

PLANS_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """What a run did. `snapshot_id` is None if there was nothing left to do when it looked again. `waiting` deletes are
    beyond what one run takes."""

    snapshot_id: int | None
    delete_files: int = 0
    dangling_files: int = 0
    rows: int = 0
    written_files: int = 0
    left: tuple[Left, ...] = ()
    waiting: int = 0


class Convert:
    """The action for all tables of a lake. Safe to be used from several threads."""

    name = ACTION

    def __init__(
        self,
        committer: IcebergCommitter,
        converting: Converting,
        clock: Clock,
        parquet: ParquetSettings | None = None,
        turn: Turn | None = None,
    ) -> None:
        self._committer = committer
        self._converting = converting
        self._clock = clock
        self._parquet = parquet or ParquetSettings()
        self._turn = turn

    def plan(
        self, table: TableName, head: TableHead, live: LiveFiles, settings: ConvertSettings | None = None
    ) -> ConvertPlan | None:
        """None if there is nothing to do; nothing is read."""
        return plan_conversion(self._committer.converted_table(table, head), live, settings)

    def perform(self, plan: ConvertPlan, settings: ConvertSettings | None = None) -> Converted:
        """Raises Transient if others were faster every time, OutcomeUnknown if a commit was never confirmed,
        CatalogRefused, and what reading and writing raise."""
        table = plan.table.name
        current: ConvertPlan | None = plan
        reason = ""
        for _ in range(PLANS_MAX):
            if current is None:
                return Converted(snapshot_id=None)
            run = self._clock.new_uuid()
            search = current.search(run, self._parquet)
            marked = self._converting.search(search)
            outcome = self._publish(current, search, marked, run)
            if isinstance(outcome, Converted):
                return outcome
            reason = outcome.reason
            head = self._committer.head(table)
            current = self.plan(table, head, self._committer.live(table, head), settings)
        raise Transient(
            f"{table}: the conversion was overtaken {PLANS_MAX} times, the last time because {reason}",
            hint="Nothing is lost. It is tried again by itself; run one maintenance of a table at a time.",
            table=table.text,
        )

    def _publish(
        self, plan: ConvertPlan, search: Search, marked: tuple[Marked, ...], run: UUID
    ) -> Converted | PlanAgain:
        table = plan.table.name

        def attempt(head: TableHead) -> Attempt[Converted | PlanAgain]:
            if all(snapshot.snapshot_id != plan.snapshot_id for snapshot in head.ancestry):
                return Attempt(PlanAgain("the table was rolled back or made anew, or its snapshots expired"))
            version = self._committer.converted_table(table, head).format_version
            decided = rebase(plan, marked, self._committer.live(table, head), version)
            if isinstance(decided, PlanAgain):
                return Attempt(decided)
            merged = tuple(self._converting.merged(search, one.vector, one.file) for one in decided.merges)
            done = _done(plan, decided)
            return Attempt(done, self._committer.repair(table, head, _repair(plan, done, decided, merged, run)))

        done, snapshot_id = commit_rewrite(
            table, run, "the conversion", self._committer.head, attempt, self._clock, self._turn
        )
        return replace(done, snapshot_id=snapshot_id) if isinstance(done, Converted) else done


def _done(plan: ConvertPlan, decided: Ready) -> Converted:
    return Converted(
        snapshot_id=None,
        delete_files=len(plan.converted),
        dangling_files=decided.dangling,
        rows=decided.rows,
        written_files=len({file.path for file in decided.added}) + len(decided.merges),
        left=plan.left,
        waiting=plan.waiting,
    )


def _repair(
    plan: ConvertPlan, done: Converted, decided: Ready, merged: tuple[WrittenFile, ...], run: UUID
) -> ReplaceFiles:
    summary = summary_of(
        ACTION,
        run,
        converted_delete_files=done.delete_files,
        dangling_delete_files=done.dangling_files,
        converted_rows=done.rows,
    )
    files = (*decided.added, *merged)
    return ReplaceFiles(
        files=files,
        summary=summary,
        removed_deletes=decided.removed,
        # Rows stay what they are, and yet it must not look so: a compaction by somebody else that read the table before
        # the equality deletes came would reckon with those, which are gone, and asks only of deletes in snapshots that
        # change rows (H15).
        rewrites=not files,
        deletes_sequence=plan.deletes_sequence,
    )
