"""A clock behind that of the table's last commit: waited for if that is short, and else said and tried again."""

from __future__ import annotations

import pickle

import pytest
from commit_builders import (
    FOREIGN,
    JOB,
    Notebook,
    ScriptedArbiter,
    ScriptedLake,
    StillClock,
    entry,
    epoch_commit,
    head,
)

from frazil.commit.fence import take_fence
from frazil.commit.machine import (
    CLOCK_WAIT_MAX,
    Committing,
    NeedHead,
    Postponed,
    Published,
    advance,
    failure,
    held_back,
)
from frazil.commit.publisher import publish
from frazil.errors import ClockBehind, Transient
from frazil.model.commit import Accepted, Early


def early(seconds: float) -> Early:
    return Early("this machine's clock is 0:14:00 behind the last commit", seconds)


def test_a_short_gap_is_waited_for_by_the_clock() -> None:
    seen, clock = head(FOREIGN, entry(5)), StillClock()
    committer = ScriptedLake([seen, seen], [early(7.0), Accepted(9)])
    outcome = publish(epoch_commit(5, 10), committer, clock, Notebook())
    assert isinstance(outcome, Published)
    assert max(clock.waits) == 7.0


def test_a_long_gap_is_a_transient_error_that_names_it() -> None:
    """No table stops for good over it, and nobody is sent to look for permissions."""
    seen, mine = head(FOREIGN, entry(5)), epoch_commit(5, 10)
    state = advance(Committing(1, seen, mine.plan), early(CLOCK_WAIT_MAX + 1), mine)
    assert isinstance(state, Postponed)
    error = failure(state, mine)
    assert isinstance(error, ClockBehind)
    assert isinstance(error, Transient)
    assert "0:14:00 behind" in str(error)
    assert "clock" in error.hint
    assert error.facts["table"] == mine.table.text
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_waiting_ends_with_the_attempts() -> None:
    seen, mine = head(FOREIGN, entry(5)), epoch_commit(5, 10)
    committer = ScriptedLake([seen] * 9, [early(1.0)] * 9)
    assert isinstance(publish(mine, committer, StillClock(), Notebook()), Postponed)


def test_nothing_was_sent_so_nothing_is_in_doubt() -> None:
    seen, mine = head(FOREIGN, entry(5)), epoch_commit(5, 10)
    assert advance(Committing(1, seen, mine.plan), early(2.0), mine) == NeedHead(2, False, 0, 2.0)


def test_tables_of_one_commit_are_held_back_by_one_that_is_postponed() -> None:
    states = held_back([Postponed(ClockBehind("x")), NeedHead()])
    assert [type(state).__name__ for state in states] == ["Postponed", "HeldBack"]


def test_the_register_of_pipelines_says_it_too() -> None:
    arbiter = ScriptedArbiter([None], [early(500.0)])
    with pytest.raises(ClockBehind):
        take_fence(JOB, arbiter, StillClock())
    assert len(arbiter.taken) == 1
