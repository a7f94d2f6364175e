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
from frazil.lake import publish
from frazil.lake.commits import IcebergLake
from frazil.lake.deletions import IcebergDeletionQueue
from frazil.lake.expiry import SnapshotLake
from frazil.lake.manifests import ManifestLake
from frazil.lake.table_files import TableFiles
from frazil.maintenance.compact_run import Compact
from frazil.maintenance.manifests import ManifestSettings
from frazil.model.commit import CommitAnswer, RepairPlan
from frazil.model.deletions import Deletion, Why
from frazil.model.ledger import TableHead
from frazil.model.names import TableName

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
        action = plan.summary["frazil.maintenance"] if isinstance(plan, RepairPlan) else method.rpartition("_")[2]
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

    def enqueue(self: IcebergDeletionQueue, deletions: Sequence[Deletion]) -> None:
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
    watch(IcebergLake, "repair")
    watch(ManifestLake, "merge_manifests")
    watch(SnapshotLake, "expire")
    watch_sending()
    watch_queue()
    watch_storage()
    if _CHOSEN.startswith("manifests"):
        # A pile of the usual height would need as many epochs, and a compaction before it would take most of it away.
        ManifestSettings.__init__.__kwdefaults__["min_manifests"] = FEW_MANIFESTS  # type: ignore[index]
        Compact.plan = lambda self, *_: None  # type: ignore[method-assign]
    cli.main(["maintain", sys.argv[1]], prog_name="frazil")
