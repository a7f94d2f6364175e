"""Which loops follow from where each table stands."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import BadInput, FrazilError, OutcomeUnknown, SourceLost, SourceUnavailable, Unexplained
from frazil.ingest.loop.table_state import (
    APART_AT_ONCE,
    APART_MAX,
    TROUBLE,
    UNEXPLAINED_MAX,
    LoopPlan,
    LoopState,
    Mode,
    after_failure,
    after_lag,
    asked_for,
    backoff,
    caught_up,
    concerns_all,
    dispatch,
    is_outlived,
)

NOW = 1000.0
STEADY, LOAD, RESYNC = LoopState(Mode.STEADY), LoopState(Mode.LOAD), LoopState(Mode.RESYNC)
AWAY = SourceUnavailable("the server is away")


def failed(state: LoopState, error: FrazilError, **named: object) -> LoopState:
    facts: dict[str, object] = {"alone": True, "can_rescan": True, "now": NOW, "jitter": 0.0, **named}
    return after_failure(state, error, **facts)  # type: ignore[arg-type]


def started(main: int | None = None, loads: int = 4, **loop_states: LoopState) -> tuple[LoopPlan, ...]:
    return dispatch(loop_states, main, NOW, loads).starts


def test_tables_that_go_well_share_one_loop() -> None:
    assert started(a=STEADY, b=STEADY) == (LoopPlan(Mode.STEADY, ("a", "b"), is_main=True),)


def test_a_first_load_runs_beside_the_others() -> None:
    assert started(a=STEADY, b=LOAD) == (
        LoopPlan(Mode.LOAD, ("b",)),
        LoopPlan(Mode.STEADY, ("a",), is_main=True),
    )


def test_no_more_tables_than_allowed_are_loaded_at_once() -> None:
    (plan,) = started(loads=2, a=LOAD, b=LOAD, c=LOAD)
    assert plan.tables == ("a", "b")
    assert started(loads=2, a=replace(LOAD, loop=1), b=replace(RESYNC, loop=2), c=LOAD, d=RESYNC) == ()


def test_a_table_that_caught_up_has_the_main_loop_begin_anew_with_it() -> None:
    found = dispatch({"a": replace(STEADY, loop=7), "b": caught_up(replace(LOAD, loop=8))}, 7, NOW, 4)
    assert found.main_yields
    assert found.starts == ()


def test_a_table_apart_does_not_disturb_the_main_loop() -> None:
    apart = failed(STEADY, AWAY, alone=False)
    found = dispatch({"a": replace(STEADY, loop=7), "b": replace(apart, not_before=NOW)}, 7, NOW, 4)
    assert not found.main_yields
    assert found.starts == (LoopPlan(Mode.STEADY, ("b",)),)


def test_a_table_in_backoff_waits_and_the_others_do_not() -> None:
    apart = failed(STEADY, AWAY, alone=False)
    assert apart.not_before == NOW + TROUBLE.first
    assert started(a=STEADY, b=apart) == (LoopPlan(Mode.STEADY, ("a",), is_main=True),)


@pytest.mark.parametrize("error", [AWAY, OutcomeUnknown("no answer")])
def test_what_may_pass_is_tried_again_for_ever(error: FrazilError) -> None:
    state = STEADY
    for attempt in range(1, 200):
        state = failed(state, error)
        assert state.mode is Mode.STEADY
        assert state.attempts == attempt
        assert TROUBLE.first <= state.not_before - NOW <= TROUBLE.longest


def test_a_run_that_only_drains_gives_up_in_the_end() -> None:
    state = STEADY
    for _ in range(6):
        state = failed(state, AWAY, attempts_max=6)
        assert state.is_free
    assert failed(state, AWAY, attempts_max=6).mode is Mode.STOPPED


def test_a_fatal_error_among_others_is_confirmed_alone_before_the_table_stops() -> None:
    """Alone, what lies before the bad change is still published."""
    bad = BadInput("no number")
    first = failed(STEADY, bad, alone=False)
    assert (first.mode, first.apart, first.not_before) == (Mode.STEADY, True, NOW)
    second = failed(first, bad)
    assert second.mode is Mode.STOPPED
    assert not second.is_free


@pytest.mark.parametrize("state", [STEADY, LOAD, replace(STEADY, apart=True)])
def test_a_source_that_lost_a_table_has_it_loaded_anew(state: LoopState) -> None:
    """H27."""
    found = failed(state, SourceLost("dropped"))
    assert (found.mode, found.anew, found.not_before) == (Mode.RESYNC, True, NOW)


def test_a_source_that_keeps_losing_a_table_is_not_asked_without_a_pause() -> None:
    assert failed(failed(STEADY, SourceLost("dropped")), SourceLost("dropped")).not_before > NOW


def test_a_source_without_scans_that_lost_a_table_stops_it() -> None:
    assert failed(STEADY, SourceLost("gone"), can_rescan=False).mode is Mode.STOPPED


def test_what_was_asked_for_begins_anew_even_if_the_table_had_stopped() -> None:
    found = asked_for(failed(STEADY, BadInput("no number")), NOW)
    assert found.is_free
    assert started(a=found) == (LoopPlan(Mode.RESYNC, ("a",)),)


def test_a_table_that_lags_stays_apart_longer_each_time() -> None:
    first = after_lag(replace(STEADY, loop=3), NOW)
    second = after_lag(first, NOW)
    assert first.apart
    assert first.is_free
    assert NOW < first.apart_until < second.apart_until
    assert after_lag(replace(first, lags=50), NOW).apart_until == NOW + APART_MAX


@pytest.mark.parametrize("error", [BadInput("no number"), AWAY])
def test_a_table_that_fails_only_among_others_joins_them_less_and_less_often(error: FrazilError) -> None:
    state, waits = STEADY, list[float]()
    for _ in range(9):
        state = failed(state, error, alone=False)
        waits.append(state.apart_until - NOW)
        state = caught_up(state)
    assert waits[0] == 0.0, "it is confirmed at once"
    assert waits[1:] == sorted(waits[1:])
    assert waits[1] > 60
    assert waits[-1] == APART_MAX
    long_after = failed(state, error, alone=False, now=state.apart_until + APART_MAX + 1)
    assert long_after.apart_until == state.apart_until + APART_MAX + 1


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
    assert TROUBLE.first / 2 <= backoff(attempts, jitter) <= TROUBLE.longest


def test_a_stopped_table_is_outlived_when_it_is_too_far_behind() -> None:
    """H52."""
    published, day = datetime(2026, 11, 18, tzinfo=UTC), timedelta(days=1)
    assert not is_outlived(published, published + day, day)
    assert is_outlived(published, published + day + timedelta(microseconds=1), day)
    assert not is_outlived(None, published, day)


roads = st.sampled_from(
    [STEADY, LOAD, RESYNC, replace(STEADY, apart=True), LoopState(Mode.STOPPED), LoopState(Mode.DONE)]
)


@given(st.dictionaries(st.text("abcdef", min_size=1, max_size=2), roads), st.integers(1, 4))
def test_no_table_is_ever_in_two_loops_and_none_that_may_run_is_forgotten(
    loop_states: dict[str, LoopState], loads: int
) -> None:
    for _ in range(len(loop_states) + 1):
        found = dispatch(loop_states, None, NOW, loads)
        taken = [name for plan in found.starts for name in plan.tables]
        assert len(taken) == len(set(taken))
        assert sum(len(plan.tables) for plan in found.starts if plan.mode in (Mode.LOAD, Mode.RESYNC)) <= loads
        # Whoever was taken is done by the next turn.
        loop_states = {**loop_states, **{name: LoopState(Mode.DONE) for name in taken}}
    assert all(one.is_over for one in loop_states.values())


CRASH = Unexplained("a worker died")


@pytest.mark.parametrize("apart", [False, True])
def test_what_nobody_explains_is_tried_again_where_it_was_a_few_times(apart: bool) -> None:
    one = replace(STEADY, apart=apart)
    for attempt in range(1, UNEXPLAINED_MAX):
        one = failed(one, CRASH, alone=True)
        assert (one.mode, one.apart, one.attempts) == (Mode.STEADY, apart, attempt)
        assert one.not_before > NOW


def test_a_table_that_fails_so_among_others_that_go_well_reads_alone_from_then_on() -> None:
    """Their progress would count as its own."""
    found = failed(STEADY, CRASH, alone=False)
    assert (found.mode, found.apart, found.attempts) == (Mode.STEADY, True, 1)


def test_an_outage_before_counts_for_nothing_when_something_fails_without_a_reason() -> None:
    one = STEADY
    for _ in range(UNEXPLAINED_MAX):
        one = failed(one, AWAY)
    one = failed(failed(failed(one, CRASH), AWAY), AWAY)
    assert (one.mode, one.unexplained) == (Mode.STEADY, 1)
    assert caught_up(one).unexplained == 0


def test_after_that_each_table_is_read_apart_and_counted_anew() -> None:
    found = failed(replace(STEADY, unexplained=UNEXPLAINED_MAX - 1), CRASH, alone=False)
    assert (found.mode, found.apart, found.attempts) == (Mode.STEADY, True, 0)


def test_the_one_that_fails_by_itself_so_often_stops() -> None:
    one = replace(STEADY, apart=True)
    for _ in range(UNEXPLAINED_MAX):
        one = failed(one, CRASH, alone=True)
    assert one.mode is Mode.STOPPED
    assert one.error is CRASH


def test_no_more_suspects_than_some_are_read_apart_at_once() -> None:
    """Each of them asks the source for everything. One that lags is no suspect."""
    suspect = replace(STEADY, apart=True, error=CRASH)
    loop_states = {f"t{n}": suspect for n in range(APART_AT_ONCE + 3)}
    assert len(started(**loop_states)) == APART_AT_ONCE
    loop_states["t0"] = replace(suspect, loop=7)
    assert len(started(**loop_states)) == APART_AT_ONCE - 1
    lagging = {f"l{n}": after_lag(STEADY, NOW) for n in range(APART_AT_ONCE + 3)}
    assert len(started(**lagging)) == APART_AT_ONCE + 3
