"""A catalog that answers every question and confirms no commit."""

from __future__ import annotations

from dataclasses import replace
from threading import Event
from typing import Any

import pytest
from failure_stage import Stage, assert_whole
from pyspark.sql import SparkSession

from frazil.clock import SystemClock
from frazil.errors import OutcomeUnknown
from frazil.ingest.loop.components import Components
from frazil.ingest.loop.supervisor import TROUBLE_MAX_ONCE
from frazil.model.commit import CommitAnswer, CommitPlan, Unknown
from frazil.model.ids import TableName
from frazil.model.ledger import TableHead

pytestmark = pytest.mark.spark


class HastyClock(SystemClock):
    """Never waits, and its time flies."""

    def monotonic(self) -> float:
        return 1000 * super().monotonic()

    def wait(self, seconds: float, until: Event | None = None) -> bool:
        return super().wait(0, until)


class SilentLake:
    def __init__(self, committer: Any) -> None:
        self._committer = committer

    def head(self, table: TableName) -> TableHead:
        return self._committer.head(table)

    def commit(self, table: TableName, head: TableHead, plan: CommitPlan) -> CommitAnswer:
        return Unknown("no answer")


def test_a_run_once_gives_up_on_a_catalog_that_never_confirms(stage: Stage, spark: SparkSession) -> None:
    """H11: reading goes well each time, and must not be taken for progress."""
    stage.trade(1)
    clock, jobs = HastyClock(), 0

    def silence(parts: Components) -> Components:
        def write(*arguments: Any, **named: Any) -> Any:
            nonlocal jobs
            jobs += 1
            assert jobs < 3 * TROUBLE_MAX_ONCE * len(stage.tables), "it never ends"
            return parts.executors.write(*arguments, **named)

        executors = replace(parts.executors, write=write)
        return replace(parts, committer=SilentLake(parts.committer), clock=clock, executors=executors)

    with pytest.raises(OutcomeUnknown, match="no answer"):
        stage.drain(spark, silence)
    assert TROUBLE_MAX_ONCE < jobs <= 1 + TROUBLE_MAX_ONCE * len(stage.tables)
    stage.drain(spark)
    assert_whole(stage, spark)
