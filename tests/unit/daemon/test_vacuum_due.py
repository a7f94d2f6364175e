"""When the daemon looks at a table, and when it had better not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, time

import pytest

from frazil.config.maintenance import MaintenanceConfig
from frazil.daemon.autovacuum import Activity, due, is_quiet
from frazil.model.state import TableState

SETTINGS = MaintenanceConfig.model_validate(
    {"after_commits": 20, "after_delete_files": 50, "every": "1h", "max_lag": "5m"}
)
IDLE = Activity(commits=0, delete_files=0, seconds=10.0, state=TableState.STEADY_STATE, lag=1.0)


def test_a_table_at_rest_is_left_alone() -> None:
    assert due(IDLE, SETTINGS) is None
    assert due(replace(IDLE, delete_files=500), SETTINGS) is None, "what did not change was looked at before"


@pytest.mark.parametrize(
    ("activity", "reason"),
    [
        (replace(IDLE, commits=20), "20 commits"),
        (replace(IDLE, commits=1, delete_files=50), "50 delete files"),
        (replace(IDLE, seconds=3600.0), "3600 s since the last time"),
    ],
)
def test_commits_delete_files_and_time_make_a_table_due(activity: Activity, reason: str) -> None:
    assert due(activity, SETTINGS) == reason


@pytest.mark.parametrize("state", [state for state in TableState if state is not TableState.STEADY_STATE])
def test_a_table_that_loads_or_is_in_trouble_is_not_disturbed(state: TableState) -> None:
    assert due(replace(IDLE, commits=999, state=state), SETTINGS) is None


def test_a_table_that_lags_waits() -> None:
    assert due(replace(IDLE, commits=999, lag=301.0), SETTINGS) is None
    assert due(replace(IDLE, commits=999, lag=None), SETTINGS) is not None


@pytest.mark.parametrize(("hour", "quiet"), [(6, False), (7, True), (18, True), (19, False)])
def test_nothing_is_done_in_quiet_hours(hour: int, quiet: bool) -> None:
    assert is_quiet(datetime(2026, 1, 1, hour, tzinfo=UTC), [(time(7), time(19))]) is quiet


@pytest.mark.parametrize(("hour", "quiet"), [(23, True), (0, True), (5, True), (6, False), (21, False)])
def test_quiet_hours_may_reach_past_midnight(hour: int, quiet: bool) -> None:
    assert is_quiet(datetime(2026, 1, 1, hour, tzinfo=UTC), [(time(22), time(6))]) is quiet
