"""Buffers what the workers of one write job report, until an epoch is complete.

    worker 0  --FileClosed a, FileClosed b, Resolved(R1), FileClosed c, Resolved(R2)-->  +-------------+
    worker 1  --FileClosed d, Resolved(R2)------------------------------------------->   | EpochBuffer |
                                                                                         +-------------+
    ready(R1): every worker has resolved R1 or later                   files(table, R1) <-------'

Delivery is at least once: a replayed message changes nothing. What cannot be a replay, another content under
a known path or a new file of an epoch its worker had already resolved, stops the epoch, since either would
publish a table that nobody wrote. Pure; one buffer lives as long as one write job.
"""

from __future__ import annotations

from collections import defaultdict

from frazil.errors import BadInput
from frazil.model.files import FileClosed, Message, Resolved
from frazil.model.ids import TableName
from frazil.model.position import Position, is_before


class EpochBuffer:
    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise ValueError(f"a write job has at least one worker, not {workers}")
        self._workers = workers
        self._resolved: dict[int, Position] = {}
        self._by_path: dict[str, FileClosed] = {}
        self._by_epoch: defaultdict[Position, defaultdict[TableName, list[FileClosed]]] = defaultdict(
            lambda: defaultdict(list)
        )

    def take(self, message: Message) -> bool:
        """Takes one message; False if it says nothing new. Raises BadInput if it breaks the protocol."""
        match message:
            case FileClosed():
                return self._take_file(message)
            case Resolved():
                return self._take_resolved(message)

    @property
    def resolved(self) -> Position | None:
        """The newest position that every worker has resolved."""
        if len(self._resolved) < self._workers:
            return None
        return min(self._resolved.values(), key=lambda position: position.order)

    def ready(self, epoch: Position) -> bool:
        resolved = self.resolved
        return resolved is not None and not is_before(resolved, epoch)

    def tables(self, epoch: Position) -> tuple[TableName, ...]:
        """The tables with files in this epoch."""
        return tuple(sorted(self._by_epoch[epoch])) if epoch in self._by_epoch else ()

    def holds(self, table: TableName, epoch: Position) -> bool:
        """Whether there are files of the table in this epoch."""
        return epoch in self._by_epoch and table in self._by_epoch[epoch]

    def files(self, table: TableName, epoch: Position) -> tuple[FileClosed, ...]:
        """The files of a complete epoch, in an order that does not depend on when they were reported."""
        if not self.ready(epoch):
            raise AssertionError(f"the files of {table} at {epoch} were asked for before every worker resolved it")
        if epoch not in self._by_epoch:
            return ()
        return tuple(sorted(self._by_epoch[epoch].get(table, ()), key=lambda file: file.path))

    def _take_file(self, file: FileClosed) -> bool:
        known = self._by_path.get(file.path)
        if known is not None:
            if known != file:
                raise BadInput(
                    f"{file.path} was reported twice with different content",
                    hint="A path must never be written twice. Nothing of this epoch was published: restart the "
                    "pipeline, which writes it again under new paths; if it happens again, two jobs write here.",
                    path=file.path,
                    table=file.table.text,
                    epoch=file.epoch.text,
                    hashes=(known.file_hash, file.file_hash),
                )
            return False
        self._check_worker(file.worker, file.path)
        resolved = self._resolved.get(file.worker)
        if resolved is not None and not is_before(resolved, file.epoch):
            raise BadInput(
                f"worker {file.worker} reported {file.path} of epoch {file.epoch} after it had resolved {resolved}",
                hint="All files of an epoch must be reported before it is resolved. Nothing of this epoch was "
                "published: restart the pipeline, which writes it again.",
                path=file.path,
                table=file.table.text,
                epoch=file.epoch.text,
                worker=file.worker,
            )
        self._by_path[file.path] = file
        self._by_epoch[file.epoch][file.table].append(file)
        return True

    def _take_resolved(self, resolved: Resolved) -> bool:
        if resolved.workers != self._workers:
            raise BadInput(
                f"worker {resolved.worker} counts {resolved.workers} workers, the job has {self._workers}",
                hint="Reports of two jobs were mixed. Restart the pipeline.",
                worker=resolved.worker,
            )
        self._check_worker(resolved.worker, f"Resolved({resolved.epoch})")
        # A replayed older Resolved must not take back what a newer one said.
        if not is_before(self._resolved.get(resolved.worker), resolved.epoch):
            return False
        self._resolved[resolved.worker] = resolved.epoch
        return True

    def _check_worker(self, worker: int, what: str) -> None:
        if not 0 <= worker < self._workers:
            raise BadInput(
                f"{what} comes from worker {worker}, the job has {self._workers}",
                hint="Reports of two jobs were mixed. Restart the pipeline.",
                worker=worker,
            )
