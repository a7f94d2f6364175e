"""Workers of values: cut with the production code, fold to one net change per key, write files, report them.

Reports arrive as the protocol allows it: duplicated, late, workers interleaved at will, but a worker's Resolved
never before its files. A failed attempt leaves files behind that nobody reports.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from frazil.model.files import FileClosed, FileKind, Message, Resolved
from frazil.model.ids import TableName, data_path, equality_delete_path
from frazil.model.write import EpochTarget
from frazil.sources.base import Cut
from frazil.sources.cutting_reader import assign

from .feed import Change
from .tables import Rows, Storage


@dataclass(frozen=True, slots=True)
class TableWork:
    table: TableName
    cut: Cut
    changes: Sequence[Change]
    epochs: tuple[EpochTarget, ...]
    vectors: bool = False
    schema_id: int = 2


def run_job(
    chance: random.Random, storage: Storage, work: Iterable[TableWork], workers: int, attempt: str
) -> list[Message]:
    """Writes all tables of a window and returns what the coordinator gets to see of it."""
    closed: list[list[list[FileClosed]]] = []
    uppers: tuple[EpochTarget, ...] = ()
    for table in work:
        uppers = table.epochs
        closed = closed or [[[] for _ in uppers] for _ in range(workers)]
        for (worker, epoch), net in _net_changes(table, workers).items():
            if chance.random() < 0.05:
                _write(storage, table, table.epochs[epoch], worker, net, f"{attempt}f")
            closed[worker][epoch] += _write(storage, table, table.epochs[epoch], worker, net, attempt)
    reports = []
    for worker, epochs in enumerate(closed):
        queue: list[Message] = []
        for target, files in zip(uppers, epochs, strict=True):
            chance.shuffle(files)
            queue += files
            if target is uppers[-1] or chance.random() < 0.5:
                queue.append(Resolved(target.epoch, worker, workers))
        reports.append(_replay(chance, queue))
    return _interleave(chance, reports)


def _net_changes(work: TableWork, workers: int) -> dict[tuple[int, int], dict[int, Change]]:
    if not work.changes:
        return {}
    major = np.array([change.position.wall for change in work.changes], dtype=np.int64)
    minor = np.array([change.position.logical for change in work.changes], dtype=np.int64)
    net: dict[tuple[int, int], dict[int, Change]] = {}
    for change, epoch in zip(work.changes, assign(major, minor, work.cut).tolist(), strict=True):
        if epoch >= 0:
            shard = net.setdefault((change.key % workers, epoch), {})
            known = shard.get(change.key)
            if known is None or known.position < change.position:
                shard[change.key] = change
    return net


def _write(
    storage: Storage, work: TableWork, target: EpochTarget, worker: int, net: dict[int, Change], attempt: str
) -> list[FileClosed]:
    values = tuple((key, change.value) for key, change in sorted(net.items()) if change.value is not None)
    closed = []
    if values:
        path = data_path(target.prefix, worker, attempt, 0)
        closed.append(_close(storage, work, target, worker, path, FileKind.DATA, Rows(values=values)))
    # With vectors only keys of deleted rows are written down; the others are those of the data.
    deleted = tuple(key for key, change in sorted(net.items()) if not work.vectors or change.value is None)
    if target.deletes and deleted:
        path = equality_delete_path(target.prefix, worker, attempt, 0)
        rows = Rows(deleted=deleted)
        closed.append(_close(storage, work, target, worker, path, FileKind.EQUALITY_DELETE, rows))
    return closed


def _close(
    storage: Storage, work: TableWork, target: EpochTarget, worker: int, path: str, kind: FileKind, rows: Rows
) -> FileClosed:
    storage.write(path, rows)
    content = repr(rows)
    return FileClosed(
        table=work.table,
        epoch=target.epoch,
        batch_id=target.batch_id,
        worker=worker,
        schema_id=work.schema_id,
        spec_id=0,
        path=path,
        kind=kind,
        records=len(rows.values) + len(rows.deleted),
        size=len(content),
        equality_ids=() if kind is FileKind.DATA else (1,),
        digest=hashlib.sha256(content.encode()).hexdigest(),
    )


def closed_file(like: FileClosed, path: str, kind: FileKind, rows: Rows, records: int) -> FileClosed:
    """A file that the coordinator itself adds to the epoch of `like`."""
    content = repr(rows)
    return FileClosed(
        table=like.table,
        epoch=like.epoch,
        batch_id=like.batch_id,
        worker=like.worker,
        schema_id=like.schema_id,
        spec_id=0,
        path=path,
        kind=kind,
        records=records,
        size=len(content),
        equality_ids=(1,) if kind is FileKind.EQUALITY_DELETE else (),
        digest=hashlib.sha256(content.encode()).hexdigest(),
    )


def _replay(chance: random.Random, queue: list[Message]) -> list[Message]:
    """At least once: any message may come again, later."""
    for at in range(len(queue) - 1, -1, -1):
        if chance.random() < 0.1:
            queue.insert(chance.randint(at + 1, len(queue)), queue[at])
    return queue


def _interleave(chance: random.Random, queues: list[list[Message]]) -> list[Message]:
    order = [at for at, queue in enumerate(queues) for _ in queue]
    chance.shuffle(order)
    streams = [iter(queue) for queue in queues]
    return [next(streams[at]) for at in order]
