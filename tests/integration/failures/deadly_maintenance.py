"""Runs `frazil maintain` until it kills itself, Python first, without any goodbye.

    deadly_maintenance.py CONFIG MOMENT

    convert-staged, compact-staged, manifests-staged, expire-staged   files and manifests are written, nothing is sent
    convert-sent, compact-sent, manifests-sent, expire-sent           the commit has landed, nobody was told
    sweep-found                                                       files are found, the queue does not know
    expire-queued, sweep-queued                                       the queue has the files, nothing else happened
    delete-asked                                                      the table was asked, nothing is deleted
    delete-half                                                       some files of a batch are deleted
    delete-done                                                       all are, and the queue does not know

Ends by itself, with 0, if there is nothing to do by which the moment would come.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from frazil.cli.main import cli
from frazil.iceberg.commits import transaction as publish
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.commits.expire import SnapshotCommitter
from frazil.iceberg.system.deletion_queue import IcebergDeletionQueue
from frazil.iceberg.system.queue_rows import QueuedDeletion, Why
from frazil.iceberg.tables.manifests import ManifestCommitter
from frazil.iceberg.tables.storage_files import TableFiles
from frazil.maintenance.compact.runner import Compact
from frazil.maintenance.rewrite_manifests import ManifestSettings
from frazil.model.commit import CommitAnswer, ReplaceFiles
from frazil.model.ids import TableName
from frazil.model.ledger import TableHead

FEW_MANIFESTS = 2
_CHOSEN = sys.argv[2]
_under_way: list[str] = []


def passed(moment: str) -> None:
    if moment == _CHOSEN:
        os.kill(os.getpid(), signal.SIGKILL)


def watch(kind: type, method: str) -> None:
    """Commits of this method are those of the action that is told by its name, or by its plan."""
    real = getattr(kind, method)

    def watched(self: Any, table: TableName, head: TableHead, *more: Any) -> CommitAnswer:
        plan = more[0] if more else None
        action = plan.summary["frazil.maintenance"] if isinstance(plan, ReplaceFiles) else method.rpartition("_")[2]
        _under_way.append(action)
        answer = real(self, table, head, *more)
        _under_way.pop()
        passed(f"{action}-sent")
        return answer  # type: ignore[no-any-return]

    setattr(kind, method, watched)


def watch_sending() -> None:
    real = publish.send

    def send(*arguments: Any) -> None:
        if _under_way:
            passed(f"{_under_way[-1]}-staged")
        real(*arguments)

    publish.send = send


def watch_queue() -> None:
    real = IcebergDeletionQueue.enqueue

    def enqueue(self: IcebergDeletionQueue, deletions: Sequence[QueuedDeletion]) -> None:
        if deletions and deletions[0].why is Why.UNCOMMITTED:
            passed("sweep-found")
        real(self, deletions)
        if deletions:
            passed("expire-queued" if deletions[0].why is Why.EXPIRED else "sweep-queued")

    IcebergDeletionQueue.enqueue = enqueue  # type: ignore[method-assign]


def watch_storage() -> None:
    real = TableFiles.delete

    def delete(self: TableFiles, table: TableName, paths: Sequence[str]) -> Mapping[str, str]:
        passed("delete-asked")
        half = len(paths) // 2
        failed = dict(real(self, table, paths[:half]))
        passed("delete-half")
        failed |= real(self, table, paths[half:])
        passed("delete-done")
        return failed

    TableFiles.delete = delete  # type: ignore[method-assign]


if __name__ == "__main__":
    watch(IcebergCommitter, "repair")
    watch(ManifestCommitter, "merge_manifests")
    watch(SnapshotCommitter, "expire")
    watch_sending()
    watch_queue()
    watch_storage()
    if _CHOSEN.startswith("manifests"):
        # A pile of the usual height would need as many epochs, and a compaction before it would take most of it away.
        ManifestSettings.__init__.__kwdefaults__["min_manifests"] = FEW_MANIFESTS  # type: ignore[index]
        Compact.plan = lambda self, *_: None  # type: ignore[method-assign]
    cli.main(["maintain", sys.argv[1]], prog_name="frazil")
