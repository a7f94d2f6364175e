"""Runs a pipeline until it kills itself, Python first, without any goodbye.

    deadly_driver.py CONFIG before-commit N       before the Nth commit is sent
                            after-commit N        the Nth commit has landed, nobody was told
                            after-acknowledge N   the source was told N times
                            after-seconds S       wherever it is then

Ends by itself, with 0, if the source is drained before that.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from dataclasses import replace
from threading import Event, Lock, Timer
from typing import Any

from frazil.app.assemble import assemble
from frazil.clock import SystemClock
from frazil.config.load import load_config
from frazil.ingest.loop.supervisor import Supervisor
from frazil.model.commit import CommitAnswer, CommitPlan
from frazil.model.ids import TableName
from frazil.model.ledger import TableHead
from frazil.model.position import Position
from frazil.observability.metrics import Metrics


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Countdown:
    """Dies when it is passed for the Nth time."""

    def __init__(self, point: str, chosen: str, number: int) -> None:
        self._armed = point == chosen
        self._number = number
        self._counter = itertools.count(1)
        self._lock = Lock()

    def passed(self) -> None:
        with self._lock:
            if self._armed and next(self._counter) == self._number:
                die()


class DeadlyLake:
    def __init__(self, committer: Any, before: Countdown, after: Countdown) -> None:
        self._committer, self._before, self._after = committer, before, after

    def head(self, table: TableName) -> TableHead:
        return self._committer.head(table)

    def commit(self, table: TableName, head: TableHead, plan: CommitPlan) -> CommitAnswer:
        self._before.passed()
        answer = self._committer.commit(table, head, plan)
        self._after.passed()
        return answer


class DeadlySource:
    def __init__(self, source: Any, after: Countdown) -> None:
        self._source, self._after = source, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def commit(self, published: Position) -> None:
        self._source.commit(published)
        self._after.passed()


def main(path: str, chosen: str, when: str) -> None:
    clock = SystemClock()
    assembly = assemble(load_config(path), clock, Metrics(clock))
    if chosen == "after-seconds":
        timer = Timer(float(when), die)
        timer.daemon = True
        timer.start()
        number = 0
    else:
        number = int(when)
    before, after, told = (
        Countdown(point, chosen, number) for point in ("before-commit", "after-commit", "after-acknowledge")
    )
    parts = replace(
        assembly.parts,
        committer=DeadlyLake(assembly.parts.committer, before, after),
        source=DeadlySource(assembly.parts.source, told),
    )
    Supervisor(parts, lambda run: None, Event()).run(once=True)
    assembly.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
