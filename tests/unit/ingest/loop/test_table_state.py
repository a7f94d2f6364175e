"""Which cursors follow from where each table stands."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.daemon.standing import (
    APART_MAX,
    BACKOFF_FIRST,
    BACKOFF_MAX,
    CursorPlan,
    Road,
    Standing,
    after_failure,
    after_lag,
    asked_for,
    backoff,
    caught_up,
    concerns_all,
    dispatch,
    is_outlived,
)
from frazil.errors import BadInput, FrazilError, OutcomeUnknown, SourceLost, SourceUnavailable
from frazil.model.position import Hlc

NOW = 1000.0
STEADY, LOAD, RESYNC = Standing(Road.STEADY), Standing(Road.LOAD), Standing(Road.RESYNC)
AWAY = SourceUnavailable("the server is away")


def failed(standing: Standing, error: FrazilError, **named: object) -> Standing:
    facts: dict[str, object] = {"alone": True, "can_rescan": True, "now": NOW, "jitter": 0.0, **named}
    return after_failure(standing, error, **facts)  # type: ignore[arg-type]


def started(main: int | None = None, loads: int = 4, **standings: Standing) -> tuple[CursorPlan, ...]:
    return dispatch(standings, main, NOW, loads).starts


def test_tables_that_go_well_share_one_cursor() -> None:
    assert started(a=STEADY, b=STEADY) == (CursorPlan(Road.STEADY, ("a", "b"), is_main=True),)


def test_a_first_load_runs_beside_the_others() -> None:
    assert started(a=STEADY, b=LOAD) == (
        CursorPlan(Road.LOAD, ("b",)),
        CursorPlan(Road.STEADY, ("a",), is_main=True),
    )


def test_no_more_tables_than_allowed_are_loaded_at_once() -> None:
    (plan,) = started(loads=2, a=LOAD, b=LOAD, c=LOAD)
    assert plan.tables == ("a", "b")
    assert started(loads=2, a=replace(LOAD, cursor=1), b=replace(RESYNC, cursor=2), c=LOAD, d=RESYNC) == ()


def test_a_table_that_caught_up_has_the_main_cursor_begin_anew_with_it() -> None:
    found = dispatch({"a": replace(STEADY, cursor=7), "b": caught_up(replace(LOAD, cursor=8))}, 7, NOW, 4)
    assert found.main_yields
    assert found.starts == ()


def test_a_table_apart_does_not_disturb_the_main_cursor() -> None:
    apart = failed(STEADY, AWAY, alone=False)
    found = dispatch({"a": replace(STEADY, cursor=7), "b": replace(apart, not_before=NOW)}, 7, NOW, 4)
    assert not found.main_yields
    assert found.starts == (CursorPlan(Road.STEADY, ("b",)),)


def test_a_table_in_backoff_waits_and_the_others_do_not() -> None:
    apart = failed(STEADY, AWAY, alone=False)
    assert apart.not_before == NOW + BACKOFF_FIRST
    assert started(a=STEADY, b=apart) == (CursorPlan(Road.STEADY, ("a",), is_main=True),)


@pytest.mark.parametrize("error", [AWAY, OutcomeUnknown("no answer")])
def test_what_may_pass_is_tried_again_for_ever(error: FrazilError) -> None:
    standing = STEADY
    for attempt in range(1, 200):
        standing = failed(standing, error)
        assert standing.road is Road.STEADY
        assert standing.attempts == attempt
        assert BACKOFF_FIRST <= standing.not_before - NOW <= BACKOFF_MAX


def test_a_run_that_only_drains_gives_up_in_the_end() -> None:
    standing = STEADY
    for _ in range(6):
        standing = failed(standing, AWAY, attempts_max=6)
        assert standing.is_free
    assert failed(standing, AWAY, attempts_max=6).road is Road.STOPPED


def test_a_fatal_error_among_others_is_confirmed_alone_before_the_table_stops() -> None:
    """Alone, what lies before the bad change is still published."""
    bad = BadInput("no number")
    first = failed(STEADY, bad, alone=False)
    assert (first.road, first.apart, first.not_before) == (Road.STEADY, True, NOW)
    second = failed(first, bad)
    assert second.road is Road.STOPPED
    assert not second.is_free


@pytest.mark.parametrize("standing", [STEADY, LOAD, replace(STEADY, apart=True)])
def test_a_source_that_lost_a_table_has_it_loaded_anew(standing: Standing) -> None:
    """H27."""
    found = failed(standing, SourceLost("dropped"))
    assert (found.road, found.anew, found.not_before) == (Road.RESYNC, True, NOW)


def test_a_source_that_keeps_losing_a_table_is_not_asked_without_a_pause() -> None:
    assert failed(failed(STEADY, SourceLost("dropped")), SourceLost("dropped")).not_before > NOW


def test_a_source_without_scans_that_lost_a_table_stops_it() -> None:
    assert failed(STEADY, SourceLost("gone"), can_rescan=False).road is Road.STOPPED


def test_what_was_asked_for_begins_anew_even_if_the_table_had_stopped() -> None:
    found = asked_for(failed(STEADY, BadInput("no number")), NOW)
    assert found.is_free
    assert started(a=found) == (CursorPlan(Road.RESYNC, ("a",)),)


def test_a_table_that_lags_stays_apart_longer_each_time() -> None:
    first = after_lag(replace(STEADY, cursor=3), NOW)
    second = after_lag(first, NOW)
    assert first.apart
    assert first.is_free
    assert NOW < first.apart_until < second.apart_until
    assert after_lag(replace(first, lags=50), NOW).apart_until == NOW + APART_MAX


def test_when_all_tables_fail_at_once_they_wait_together() -> None:
    """It is the catalog rather than the tables."""
    bad = BadInput("no number")
    assert concerns_all({"a": AWAY, "b": AWAY}, ["a", "b"])
    assert not concerns_all({"a": AWAY}, ["a"])
    assert not concerns_all({"a": AWAY, "b": AWAY}, ["a", "b", "c"])
    assert concerns_all({str(n): AWAY for n in range(9)}, [str(n) for n in range(20)])
    assert not concerns_all({"a": AWAY, "b": bad}, ["a", "b"])


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_backoff_is_between_half_a_second_and_a_minute(attempts: int, jitter: float) -> None:
    assert BACKOFF_FIRST / 2 <= backoff(attempts, jitter) <= BACKOFF_MAX


def test_a_stopped_table_is_outlived_when_it_is_too_far_behind() -> None:
    """H52."""
    frontier, day = Hlc(1_700_000_000_000_000_000), timedelta(days=1)
    assert not is_outlived(frontier, Hlc(frontier.wall + 86_400_000_000_000), day)
    assert is_outlived(frontier, Hlc(frontier.wall + 86_400_000_001_000), day)
    assert not is_outlived(None, frontier, day)


roads = st.sampled_from(
    [STEADY, LOAD, RESYNC, replace(STEADY, apart=True), Standing(Road.STOPPED), Standing(Road.DONE)]
)


@given(st.dictionaries(st.text("abcdef", min_size=1, max_size=2), roads), st.integers(1, 4))
def test_no_table_is_ever_in_two_cursors_and_none_that_may_run_is_forgotten(
    standings: dict[str, Standing], loads: int
) -> None:
    for _ in range(len(standings) + 1):
        found = dispatch(standings, None, NOW, loads)
        taken = [name for plan in found.starts for name in plan.tables]
        assert len(taken) == len(set(taken))
        assert sum(len(plan.tables) for plan in found.starts if plan.road in (Road.LOAD, Road.RESYNC)) <= loads
        # Whoever was taken is done by the next turn.
        standings = {**standings, **{name: Standing(Road.DONE) for name in taken}}
    assert all(one.is_over for one in standings.values())
