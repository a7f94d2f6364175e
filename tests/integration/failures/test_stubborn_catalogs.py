"""A catalog that answers every question and confirms no commit."""

from __future__ import annotations

from dataclasses import replace
from threading import Event
from typing import Any

import pytest
from failure_stage import Stage, assert_whole
from pyspark.sql import SparkSession

from frazil.clock import SystemClock
from frazil.daemon.parts import Parts
from frazil.daemon.supervisor import TROUBLE_MAX_ONCE
from frazil.errors import OutcomeUnknown
from frazil.model.commit import CommitAnswer, CommitPlan, Unknown
from frazil.model.ledger import TableHead
from frazil.model.names import TableName

pytestmark = pytest.mark.spark


class HastyClock(SystemClock):
    """Never waits, and its time flies."""

    def monotonic(self) -> float:
        return 1000 * super().monotonic()

    def wait(self, seconds: float, until: Event | None = None) -> bool:
        return super().wait(0, until)


class SilentLake:
    def __init__(self, lake: Any) -> None:
        self._lake = lake

    def head(self, table: TableName) -> TableHead:
        return self._lake.head(table)

    def commit(self, table: TableName, head: TableHead, plan: CommitPlan) -> CommitAnswer:
        return Unknown("no answer")


def test_a_run_once_gives_up_on_a_catalog_that_never_confirms(stage: Stage, spark: SparkSession) -> None:
    """H11: reading goes well each time, and must not be taken for progress."""
    stage.trade(1)
    clock, jobs = HastyClock(), 0

    def silence(parts: Parts) -> Parts:
        def write(*arguments: Any, **named: Any) -> Any:
            nonlocal jobs
            jobs += 1
            assert jobs < 3 * TROUBLE_MAX_ONCE * len(stage.tables), "it never ends"
            return parts.executors.write(*arguments, **named)

        executors = replace(parts.executors, write=write)
        return replace(parts, lake=SilentLake(parts.lake), clock=clock, executors=executors)

    with pytest.raises(OutcomeUnknown, match="no answer"):
        stage.drain(spark, silence)
    assert TROUBLE_MAX_ONCE < jobs <= 1 + TROUBLE_MAX_ONCE * len(stage.tables)
    stage.drain(spark)
    assert_whole(stage, spark)
