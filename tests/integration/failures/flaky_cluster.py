"""Runs a pipeline whose tasks fail the first time, on executors that are processes of their own.

    flaky_cluster.py CONFIG NOTES
        read    the first attempt of each job's first reading task raises
        write   the first attempt of a writing task raises, after it has written files of another table
        lost    once, a writing task ends its whole executor with the shuffle files it held, and itself goes on
                writing as a zombie, as long as it can

Each fault leaves a file in the folder NOTES that says which process it met.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any

from pyspark import TaskContext

from frazil.app.assemble import assemble
from frazil.clock import SystemClock
from frazil.config.load import load_config
from frazil.ingest.loop.supervisor import Supervisor
from frazil.observability.metrics import Metrics


@dataclass(frozen=True)
class Faults:
    notes: str

    def first_attempt(self) -> bool:
        return bool(TaskContext.get().attemptNumber() == 0)

    def note(self, kind: str) -> bool:
        """True if this is the first fault of its kind in this task and stage."""
        context = TaskContext.get()
        name = kind if kind == "lost" else f"{kind}-{context.stageId()}-{context.partitionId()}"
        try:
            descriptor = os.open(f"{self.notes}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return False
        os.write(descriptor, Path(f"/proc/{executor()}/cmdline").read_bytes())
        os.close(descriptor)
        return True


def executor() -> int:
    """The JVM above this Python worker and its daemon."""
    pid = os.getpid()
    while "java" not in Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0]:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


@dataclass(frozen=True)
class FlakyReader:
    reader: Any
    faults: Faults

    def read(self, partition: Any, cut: Any) -> Iterator[Any]:
        for number, batch in enumerate(self.reader.read(partition, cut)):
            yield batch
            first = number == 0 and TaskContext.get().partitionId() == 0
            if first and self.faults.first_attempt() and self.faults.note("read"):
                raise RuntimeError("a disk of the source stumbles")


@dataclass(frozen=True)
class FlakyDecoder:
    decoder: Any
    faults: Faults

    def keys(self, table: int, keys: Any) -> Any:
        return self.decoder.keys(table, keys)

    def rows(self, table: int, keys: Any, payloads: Any) -> Any:
        if table > 0 and self.faults.first_attempt() and "ZOMBIE" not in os.environ:
            if self.faults.note("lost"):
                os.environ["ZOMBIE"] = "1"
                os.kill(executor(), signal.SIGKILL)
            elif self.faults.note("write"):
                raise RuntimeError("a worker stumbles")
        return self.decoder.rows(table, keys, payloads)


class FlakySource:
    def __init__(self, source: Any, faults: Faults) -> None:
        self._source, self._faults = source, faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def reader(self, *arguments: Any) -> FlakyReader:
        return FlakyReader(self._source.reader(*arguments), self._faults)

    def decoder(self, *arguments: Any) -> FlakyDecoder:
        return FlakyDecoder(self._source.decoder(*arguments), self._faults)


def main(path: str, notes: str) -> None:
    clock = SystemClock()
    assembly = assemble(load_config(path), clock, Metrics(clock))
    parts = replace(assembly.parts, source=FlakySource(assembly.parts.source, Faults(notes)))
    Supervisor(parts, lambda run: None, Event()).run(once=True)
    assembly.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
