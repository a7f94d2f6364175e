"""Keeps `_frazil.checkpoints` beside the ledgers: one commit for all tables of a pipeline, soon after an epoch lands.

    loops --changed--> dirty --a moment later--> rows of all main tables --record--> the table

In a thread of its own, and never waited for: epochs that land while it is at work share the next commit. Nothing is
decided from it (H48).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Protocol

from frazil.clock import Clock
from frazil.iceberg.system.checkpoints import Checkpoint
from frazil.ingest.loop.debounce import Debounced
from frazil.ingest.loop.target_tables import TargetTable
from frazil.model.frontier import Frontier
from frazil.model.ids import JobId
from frazil.observability.logs import Log
from frazil.threads import Threads

EVERY_SECONDS = 1.0
_log = Log("frazil.checkpoints")


class RecordsCheckpoints(Protocol):
    def record(self, job: JobId, rows: Sequence[Checkpoint]) -> bool:
        """These rows, in one commit, instead of all that the pipeline had before."""


class Checkpointing:
    """`main_tables` are asked for when there is something to record."""

    def __init__(
        self,
        records: RecordsCheckpoints,
        job: JobId,
        main_tables: Callable[[], Sequence[TargetTable]],
        clock: Clock,
        threads: Threads,
    ) -> None:
        self._records = records
        self._job = job
        self._main_tables = main_tables
        self._recorded: list[Checkpoint] = []
        self._soon = Debounced(self._record, clock, threads, "frazil-checkpoints", EVERY_SECONDS)

    def changed(self) -> None:
        """Something may be different now."""
        self._soon.ask()

    def end(self, patience: float) -> None:
        """Records what is new, and waits for that no longer than told."""
        self._soon.end(patience)

    def _record(self) -> None:
        rows = [checkpoint_of(table) for table in self._main_tables()]
        if rows == self._recorded:
            return
        try:
            if self._records.record(self._job, rows):
                self._recorded = rows
        except Exception as error:  # this stops nothing, whatever it met
            _log.warning("the checkpoints were not recorded", reason=f"{type(error).__name__}: {error}")


def checkpoint_of(table: TargetTable) -> Checkpoint:
    published = table.progress.published
    database, _, collection = table.source.rpartition(".")
    notes = _notes(published)
    return Checkpoint(
        sync_id=table.name,
        state=table.state,
        source_database=database or None,
        source_collection=collection,
        resume_token=notes.get("token"),
        high_water_mark_id=notes.get("load"),
        documents_processed=table.rows if table.load is None else max(table.rows, table.load.done),
        last_snapshot_id=table.snapshot_id,
        resolved=None if published is None else published.position,
    )


def _notes(frontier: Frontier | None) -> dict[str, str]:
    """What a source with first loads and resume tokens has noted; others note other things."""
    if frontier is None or not frontier.notes:
        return {}
    notes = json.loads(frontier.notes)
    return {name: str(notes[name]) for name in ("token", "load") if notes.get(name)} if isinstance(notes, dict) else {}
