"""Tells metrics and logs what the publisher does."""

from __future__ import annotations

import json

from frazil.commit.machine import AlreadyPublished, EpochCommit, Outcome, Published
from frazil.model.commit import Accepted, CommitAnswer, CommitPlan, Conflicted, Early
from frazil.observability.logs import Log
from frazil.observability.metrics import Metrics

_log = Log("frazil.publish")


class PublishObserver:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def answered(self, epoch_commit: EpochCommit, answer: CommitAnswer, seconds: float) -> None:
        table = epoch_commit.table.text
        self._metrics.commit_took(table, seconds)
        if isinstance(answer, Conflicted) and not isinstance(answer, Early):
            self._metrics.commit_conflicted(table)
        if not isinstance(answer, Accepted):
            _log.warning(
                "commit not accepted", **_facts(epoch_commit), answer=type(answer).__name__, reason=answer.reason
            )

    def finished(self, epoch_commit: EpochCommit, outcome: Outcome) -> None:
        table = epoch_commit.table.text
        match outcome:
            case Published(snapshot_id, plan):
                entry = plan.entry
                self._count(table, plan)
                _log.info(
                    "published",
                    **_facts(epoch_commit),
                    snapshot_id=snapshot_id,
                    data_files=entry.data_files,
                    delete_files=entry.delete_files,
                    rows=entry.rows,
                    deletes=entry.deletes,
                )
            case AlreadyPublished(found):
                self._metrics.duplicate_epoch_skipped(table)
                self._metrics.resolved_at(table, found.source_time)
                _log.info("already published", **_facts(epoch_commit), snapshot_id=found.snapshot_id)
            case _:
                _log.error("not published", **_facts(epoch_commit), outcome=type(outcome).__name__)

    def _count(self, table: str, plan: CommitPlan) -> None:
        entry = plan.entry
        epoch = entry.resolved.text
        for file in plan.files:
            self._metrics.file_closed(table, file.kind.value, epoch)
        size = sum(len(json.dumps(file.manifest_json())) for file in plan.files)
        self._metrics.manifest_entries(table, epoch, size)
        self._metrics.rows_published(table, "upsert", entry.rows)
        self._metrics.rows_published(table, "delete", entry.deletes)
        self._metrics.epoch_published(table)
        self._metrics.resolved_at(table, entry.source_time)


def _facts(epoch_commit: EpochCommit) -> dict[str, str]:
    return {
        "table": epoch_commit.table.text,
        "epoch": epoch_commit.upper.text,
        "batch_id": str(epoch_commit.plan.entry.batch_id),
    }
