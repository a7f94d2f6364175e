"""Two daemons run one pipeline at once."""

from __future__ import annotations

import signal
import subprocess

import pytest
from failure_stage import PATIENCE_SECONDS, Stage, assert_whole
from pyspark.sql import SparkSession

from frazil.clock import SystemClock
from frazil.errors import Fenced

pytestmark = pytest.mark.spark


def test_of_two_daemons_one_is_fenced_and_the_other_goes_on(stage: Stage, spark: SparkSession) -> None:
    """H12, H45: both start at the same moment on an empty warehouse, both create the tables and take a fence."""
    clock = SystemClock()
    stage.write_config(limits={"epochs_per_job": 1})
    daemons = [stage.start("-m", "frazil.cli.main", "run", str(stage.config)) for _ in range(2)]
    waited_since = clock.monotonic()
    while all(daemon.poll() is None for daemon in daemons):
        assert clock.monotonic() - waited_since < PATIENCE_SECONDS, [stage.said(daemon) for daemon in daemons]
        stage.trade(1, transactions=8)
        clock.wait(0.5)

    (loser,) = [daemon for daemon in daemons if daemon.poll() is not None]
    (winner,) = [daemon for daemon in daemons if daemon is not loser]
    assert loser.returncode == Fenced.exit_code, stage.said(loser)
    assert "has been replaced" in stage.said(loser)
    assert "do not restart this one" in stage.said(loser)

    published = publications(stage, winner)
    stage.trade(2)
    while publications(stage, winner) <= published:
        assert winner.poll() is None, stage.said(winner)
        assert clock.monotonic() - waited_since < 2 * PATIENCE_SECONDS, stage.said(winner)
        clock.wait(0.2)
    winner.send_signal(signal.SIGTERM)
    assert stage.finished(winner) == 0, stage.said(winner)

    stage.drain(spark)
    assert_whole(stage, spark, moments=3)


def publications(stage: Stage, daemon: subprocess.Popen[str]) -> int:
    return stage.said(daemon).count("event=published")
