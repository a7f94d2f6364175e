"""Taking over a pipeline."""

from __future__ import annotations

import pytest
from commit_builders import ALICE, BOB, JOB, ScriptedArbiter, StillClock

from frazil import errors
from frazil.commit.admission import replaced
from frazil.commit.fence import FENCES, take_fence
from frazil.model.commit import Accepted, Conflicted, Refused, Unknown
from frazil.model.ledger import Fence

NOTHING = ("read", None)


def test_the_first_coordinator_takes_generation_one() -> None:
    arbiter = ScriptedArbiter([None], [Accepted(1)])
    assert take_fence(JOB, arbiter, StillClock()) == Fence(1, ALICE)
    assert arbiter.taken == [(Fence(1, ALICE), NOTHING)]


def test_a_later_one_takes_the_next() -> None:
    assert take_fence(JOB, ScriptedArbiter([Fence(5, BOB)], [Accepted(1)]), StillClock()) == Fence(6, ALICE)


def test_of_two_starters_the_loser_looks_again_and_takes_the_one_after() -> None:
    """H45"""
    arbiter = ScriptedArbiter([Fence(5, BOB), Fence(6, BOB)], [Conflicted("changed"), Accepted(1)])
    assert take_fence(JOB, arbiter, StillClock()) == Fence(7, ALICE)


def test_a_fence_whose_answer_was_lost_is_recognised() -> None:
    arbiter = ScriptedArbiter([Fence(5, BOB), Fence(6, ALICE)], [Unknown("timeout")])
    assert take_fence(JOB, arbiter, StillClock()) == Fence(6, ALICE)
    assert len(arbiter.taken) == 1


def test_a_fence_whose_request_was_lost_is_taken_again() -> None:
    arbiter = ScriptedArbiter([Fence(5, BOB), Fence(5, BOB)], [TimeoutError("slow"), Accepted(1)])
    assert take_fence(JOB, arbiter, StillClock()) == Fence(6, ALICE)


def test_a_register_that_was_lost_starts_above_what_the_tables_know() -> None:
    assert take_fence(JOB, ScriptedArbiter([None], [Accepted(1)]), StillClock(), floor=9) == Fence(10, ALICE)
    assert take_fence(JOB, ScriptedArbiter([Fence(12, BOB)], [Accepted(1)]), StillClock(), floor=9).generation == 13


def test_an_unavailable_register_is_asked_again_and_then_given_up() -> None:
    clock = StillClock()
    with pytest.raises(errors.CatalogUnavailable, match="10 attempts"):
        take_fence(JOB, ScriptedArbiter([errors.CatalogUnavailable("down")] * FENCES.attempts, []), clock)
    assert len(clock.waits) == FENCES.attempts


def test_a_refusal_names_what_is_needed() -> None:
    with pytest.raises(errors.CatalogRefused) as caught:
        take_fence(JOB, ScriptedArbiter([None], [Refused("403")]), StillClock())
    assert "_frazil" in caught.value.hint


def test_a_terminal_error_of_the_register_passes_through() -> None:
    with pytest.raises(errors.CatalogRefused):
        take_fence(JOB, ScriptedArbiter([errors.CatalogRefused("no")], []), StillClock())
    with pytest.raises(errors.CatalogRefused):
        take_fence(JOB, ScriptedArbiter([None], [errors.CatalogRefused("no")]), StillClock())


@pytest.mark.parametrize("answer", [Conflicted("x"), Unknown("x"), TimeoutError("x")], ids=repr)
def test_a_register_that_others_always_change_is_given_up(answer: Conflicted | Unknown | TimeoutError) -> None:
    arbiter = ScriptedArbiter([Fence(4, BOB)] * FENCES.attempts, [answer] * FENCES.attempts)
    with pytest.raises(errors.CatalogUnavailable, match="10 attempts") as caught:
        take_fence(JOB, arbiter, StillClock())
    assert caught.value.facts["attempts"] == len(arbiter.taken) == FENCES.attempts
    assert set(arbiter.taken) == {(Fence(5, ALICE), ("read", Fence(4, BOB)))}


def test_a_fence_that_is_ours_already_is_not_taken_again() -> None:
    arbiter = ScriptedArbiter([Fence(4, ALICE)], [])
    assert take_fence(JOB, arbiter, StillClock()) == Fence(4, ALICE)
    assert not arbiter.taken


def test_the_register_tells_a_coordinator_that_it_was_replaced() -> None:
    """H12: also one that nobody has met on a table yet."""
    ours = Fence(5, ALICE)
    error = replaced(JOB, Fence(6, BOB), ours)
    assert isinstance(error, errors.Fenced)
    assert error.facts["by"] == Fence(6, BOB).text
    assert replaced(JOB, Fence(5, BOB), ours) is not None, "an equal generation of another owner (H45)"


@pytest.mark.parametrize("newest", [None, Fence(5, ALICE), Fence(4, BOB)], ids=["lost", "ours", "older"])
def test_a_register_without_a_successor_stops_nobody(newest: Fence | None) -> None:
    assert replaced(JOB, newest, Fence(5, ALICE)) is None
