"""When the daemon looks at a table, how far it goes, and when it had better not."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime, time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.config.maintenance import MaintenanceConfig
from frazil.ingest.loop.table_stats import Added, TableStats
from frazil.maintenance.triggers import CONVERT, EVERYTHING, PAUSE, REWRITE, Activity, Due, debt, due, is_quiet
from frazil.model.state import TableState

MB = 1 << 20
SETTINGS = MaintenanceConfig.model_validate(
    {
        "naptime": "60s",
        "after_commits": 20,
        "after_files": 100,
        "after_small_bytes": "256MB",
        "after_delete_files": 50,
        "after_deletes_per_file": 3,
        "after_delete_ratio": 0.2,
        "after_snapshots": 50,
        "after_manifests": 100,
        "every": "1h",
        "max_lag": "5m",
        "convert": {"after_commits": 4},
        "expire": {"max_snapshots": 500},
    }
)
HELD = TableStats(data_files=10, delete_files=2, records=1000, size=100 * MB, snapshots=30, manifests=5)
BUSY = Activity(lag=1.0, idle=2.0, seconds=100.0, looked=100.0, cleaned=100.0, stats=HELD, before=HELD)
"""A commit a moment ago, and nothing that would be worth a look."""


def busy(**facts: Any) -> Activity:
    return replace(BUSY, **facts)


def grown(**facts: Any) -> Activity:
    return replace(BUSY, stats=replace(HELD, **facts))


def reason(activity: Activity) -> str | None:
    found = due(activity, SETTINGS)
    return None if found is None else found.reason


def test_a_table_to_which_little_came_is_left_alone() -> None:
    assert due(BUSY, SETTINGS) is None
    assert due(busy(commits=19, added=Added(19, 19, 20 * MB)), SETTINGS) is None


@pytest.mark.parametrize(
    ("activity", "why"),
    [
        (busy(commits=20), "20 commits"),
        (grown(data_files=110), "100 data files more"),
        (busy(added=Added(5, 50, 256 * MB)), "256MB in 50 small files"),
        (grown(delete_files=52), "50 delete files more"),
        (grown(delete_files=33), "3.3 delete files for each data file"),
        (grown(position_deletes=200), "20% of the rows are deleted"),
        (grown(manifests=105), "100 manifests more"),
    ],
)
def test_what_has_grown_since_the_last_look_makes_a_table_due_for_rewrites(activity: Activity, why: str) -> None:
    """H40: deletes for each data file, too."""
    assert due(activity, SETTINGS) == Due(why, REWRITE)


def test_files_that_are_large_enough_are_not_small_however_many_bytes_they_have() -> None:
    assert due(busy(added=Added(2, 2, 512 * MB)), SETTINGS) is None


def test_what_was_there_at_the_last_look_and_was_left_is_no_reason_for_another_one() -> None:
    held = replace(HELD, data_files=900, delete_files=500, position_deletes=250, manifests=700)
    assert due(busy(stats=held, before=held), SETTINGS) is None


def test_all_that_a_table_holds_is_new_to_a_daemon_that_has_just_begun() -> None:
    assert reason(grown(delete_files=60)) == "58 delete files more"
    assert reason(busy(stats=replace(HELD, delete_files=60), before=TableStats())) == "60 delete files more"


def test_snapshots_beyond_those_that_stay_make_everything_due() -> None:
    assert due(grown(snapshots=549), SETTINGS) is None
    assert due(grown(snapshots=550), SETTINGS) == Due("550 snapshots, of which 500 stay", EVERYTHING)
    kept = busy(stats=replace(HELD, snapshots=700), snapshots_before=690)
    assert due(kept, SETTINGS) is None, "tags keep them, and expiry was tried ten snapshots ago"


def test_an_hour_makes_everything_due() -> None:
    assert due(busy(cleaned=3600.0), SETTINGS) == Due("3600 s since everything was looked at", EVERYTHING)


def test_a_stream_that_rests_is_an_occasion_to_finish() -> None:
    rests = busy(idle=60.0, commits=1, added=Added(1, 1, 1))
    assert due(rests, SETTINGS) == Due("the stream rests", REWRITE, finish=True)
    assert due(replace(rests, cleaned=3600.0), SETTINGS) == Due(
        "3600 s since everything was looked at", EVERYTHING, finish=True
    )
    assert due(replace(rests, finished=True, added=Added()), SETTINGS) is None, "once is enough"
    assert due(replace(rests, finished=True), SETTINGS) is not None, "unless something came since"


def test_a_look_beside_the_stream_is_finished_when_it_rests() -> None:
    """Nothing came since, but that look left what was not worth it beside a stream."""
    assert reason(busy(idle=60.0, finished=False)) == "the stream rests"
    clean = replace(HELD, data_files=1, delete_files=0, manifests=1)
    assert due(busy(idle=60.0, stats=clean, before=clean), SETTINGS) is None, "one file, and no deletes"


def test_equality_deletes_do_not_wait_for_a_nap() -> None:
    held = replace(HELD, equality_deletes=7)
    activity = busy(stats=held, unconverted=4, commits=4, looked=1.0)
    assert due(activity, SETTINGS) == Due("equality deletes of 4 commits", CONVERT)
    assert due(replace(activity, unconverted=3), SETTINGS) is None
    assert due(replace(activity, stats=HELD), SETTINGS) is None, "there are none"


def test_between_two_looks_lies_a_naptime() -> None:
    assert due(busy(commits=999, looked=59.0), SETTINGS) is None
    assert due(busy(commits=999, looked=60.0), SETTINGS) is not None


def test_a_table_is_left_alone_for_a_multiple_of_what_its_maintenance_took() -> None:
    assert due(busy(commits=999, look_took=40.0, looked=PAUSE * 40.0 - 1), SETTINGS) is None
    assert due(busy(commits=999, look_took=40.0, looked=PAUSE * 40.0), SETTINGS) is not None


def test_a_conversion_waits_for_a_multiple_of_what_the_last_one_took_and_for_nothing_else() -> None:
    activity = busy(stats=replace(HELD, equality_deletes=7), unconverted=9, look_took=99.0, convert_took=5.0)
    assert due(replace(activity, seconds=PAUSE * 5.0 - 1), SETTINGS) is None
    assert due(replace(activity, seconds=PAUSE * 5.0), SETTINGS) == Due("equality deletes of 9 commits", CONVERT)


@pytest.mark.parametrize("state", [state for state in TableState if state is not TableState.STEADY_STATE])
def test_a_table_that_loads_or_is_in_trouble_is_not_disturbed(state: TableState) -> None:
    assert due(busy(commits=999, cleaned=9999.0, state=state), SETTINGS) is None


def test_a_table_that_lags_waits() -> None:
    assert due(busy(commits=999, lag=301.0), SETTINGS) is None
    assert due(busy(commits=999, lag=None), SETTINGS) is not None


def test_nobody_lags_behind_a_source_that_is_silent() -> None:
    silent = busy(commits=1, added=Added(1, 1, 1), lag=9999.0, idle=301.0, silent=301.0)
    assert reason(silent) == "the stream rests"
    assert due(replace(silent, silent=0.0), SETTINGS) is None, "a long epoch is under way"


_COUNTS = st.integers(0, 2000)
_ACTIVITIES = st.builds(
    Activity,
    lag=st.none() | st.floats(0, 1000),
    idle=st.floats(0, 1000),
    silent=st.floats(0, 1000),
    seconds=st.floats(0, 10_000),
    convert_took=st.floats(0, 100),
    looked=st.floats(0, 10_000),
    look_took=st.floats(0, 100),
    cleaned=st.floats(0, 10_000),
    commits=_COUNTS,
    unconverted=_COUNTS,
    added=st.builds(Added, _COUNTS, _COUNTS, st.integers(0, 10**10)),
    stats=st.builds(TableStats, **{field.name: _COUNTS for field in fields(TableStats)}),
    before=st.builds(TableStats, **{field.name: _COUNTS for field in fields(TableStats)}),
    snapshots_before=_COUNTS,
    finished=st.booleans(),
)


@given(_ACTIVITIES, st.integers(1, 50))
def test_more_commits_never_make_a_table_less_due(activity: Activity, more: int) -> None:
    found = due(activity, SETTINGS)
    if found is not None:
        later = replace(activity, commits=activity.commits + more, unconverted=activity.unconverted + more)
        again = due(later, SETTINGS)
        assert again is not None
        assert set(found.actions) <= set(again.actions)


@given(_ACTIVITIES)
def test_whatever_is_due_says_why_and_respects_the_bounds(activity: Activity) -> None:
    found = due(activity, SETTINGS)
    if found is None:
        return
    assert found.reason
    if found.actions == CONVERT:
        assert activity.seconds >= PAUSE * activity.convert_took
    else:
        assert activity.looked >= max(SETTINGS.naptime, PAUSE * activity.look_took)
    assert found.finish <= (activity.idle >= SETTINGS.naptime), "to the end only if the stream rests"
    assert activity.lag is None or activity.lag <= SETTINGS.max_lag or activity.silent > SETTINGS.max_lag


def test_debt_is_told_in_words() -> None:
    assert debt(BUSY) == ""
    assert debt(busy(commits=3, stats=replace(HELD, data_files=13, delete_files=1))) == "3 commits, 3 data files"


@pytest.mark.parametrize(("hour", "quiet"), [(6, False), (7, True), (18, True), (19, False)])
def test_nothing_is_done_in_quiet_hours(hour: int, quiet: bool) -> None:
    assert is_quiet(datetime(2026, 1, 1, hour, tzinfo=UTC), [(time(7), time(19))]) is quiet


@pytest.mark.parametrize(("hour", "quiet"), [(23, True), (0, True), (5, True), (6, False), (21, False)])
def test_quiet_hours_may_reach_past_midnight(hour: int, quiet: bool) -> None:
    assert is_quiet(datetime(2026, 1, 1, hour, tzinfo=UTC), [(time(22), time(6))]) is quiet
