"""Where a table goes on after a start, and how a rolled back one is set right."""

from __future__ import annotations

from dataclasses import replace

import pytest
from commit_builders import ALICE, BOB, FOREIGN, JOB, ORDERS, REPLACE, at, coordinator, entry, head, recorded

from frazil import errors
from frazil.commit.frontier_check import At, Fresh, read_frontier
from frazil.commit.recovery import StartPoint, newest_generation, rewind_plan, start
from frazil.model.commit import CommitPlan
from frazil.model.frontier import Frontier
from frazil.model.ledger import Fence, SnapshotFacts, TableHead

OPERATOR = Fence(8, BOB)


def landed(before: TableHead, plan: CommitPlan) -> TableHead:
    """The head after this plan landed, as a lake makes it."""
    number = 50
    parent = before.snapshot_id
    snapshot = SnapshotFacts(number, parent, number, 0, plan.summary)
    properties = {k: v for k, v in before.properties.items() if k != JOB.ledger_property}
    if not plan.forget:
        properties[JOB.ledger_property] = plan.entry.to_property(number, number)
    return replace(before, ancestry=(snapshot, *before.ancestry), properties=properties)


def test_a_fresh_table_starts_without_a_frontier() -> None:
    """H54"""
    assert start(head(FOREIGN), ORDERS, coordinator()) == StartPoint(None, None)


def test_a_table_goes_on_from_its_newest_entry_with_its_notes() -> None:
    found = start(head(REPLACE, entry(7, 5, notes='["file"]'), entry(5)), ORDERS, coordinator(2))
    assert isinstance(found, StartPoint)
    assert found.frontier == Frontier(at(7), '["file"]')
    assert found.entry is not None
    assert found.entry.snapshot_id == 2


def test_a_table_whose_history_expired_goes_on_from_the_property() -> None:
    """H3"""
    found = start(head(FOREIGN, cut=True, first_id=9, in_property=recorded(entry(7), 3)), ORDERS, coordinator(2))
    assert isinstance(found, StartPoint)
    assert found.frontier == Frontier(at(7))


def test_a_rolled_back_table_needs_a_person() -> None:
    """H4"""
    error = start(head(entry(5), in_property=recorded(entry(7, 5), 9)), ORDERS, coordinator(2))
    assert isinstance(error, errors.TableChanged)
    assert "frazil rewind CONFIG shop.orders" in error.hint


def test_another_source_needs_a_person() -> None:
    """H9"""
    error = start(head(entry(5)), ORDERS, coordinator(2, incarnation="cluster-2"))
    assert isinstance(error, errors.SourceLost)


@pytest.mark.parametrize("fence", [Fence(3, BOB), Fence(2, BOB)])
def test_a_newer_coordinator_ends_this_one(fence: Fence) -> None:
    """H12, H45"""
    error = start(head(entry(5, fence=fence)), ORDERS, coordinator(2, ALICE))
    assert isinstance(error, errors.Fenced)
    assert error.facts["by"] == fence.text


def test_a_rewind_states_the_newest_entry_on_main_again() -> None:
    rolled_back = head(FOREIGN, entry(5, 3, notes="carried"), in_property=recorded(entry(7, 5), 9))
    plan = rewind_plan(rolled_back, ORDERS, JOB, OPERATOR)
    assert isinstance(plan, CommitPlan)
    assert plan.files == ()
    assert not plan.forget
    assert (plan.entry.lower, plan.entry.resolved, plan.entry.notes) == (at(3), at(5), "carried")
    assert (plan.entry.operation, plan.entry.fence, plan.entry.rows) == ("rewind", OPERATOR, 0)


def test_after_a_rewind_the_pipeline_goes_on_and_older_coordinators_do_not() -> None:
    rolled_back = head(entry(5), in_property=recorded(entry(7, 5), 9))
    plan = rewind_plan(rolled_back, ORDERS, JOB, OPERATOR)
    assert isinstance(plan, CommitPlan)
    after = landed(rolled_back, plan)
    assert isinstance(read_frontier(after, JOB), At)
    found = start(after, ORDERS, coordinator(9))
    assert isinstance(found, StartPoint)
    assert found.frontier == Frontier(at(5))
    assert isinstance(start(after, ORDERS, coordinator(1)), errors.Fenced)
    assert rewind_plan(after, ORDERS, JOB, Fence(9, BOB)) is None


def test_a_rewind_that_finds_nothing_of_ours_forgets_and_fences() -> None:
    rolled_back = head(FOREIGN, in_property=recorded(entry(7), 9))
    plan = rewind_plan(rolled_back, ORDERS, JOB, OPERATOR)
    assert isinstance(plan, CommitPlan)
    assert plan.forget
    after = landed(rolled_back, plan)
    assert read_frontier(after, JOB) == Fresh(OPERATOR)
    assert start(after, ORDERS, coordinator(9)) == StartPoint(None, None)
    assert isinstance(start(after, ORDERS, coordinator(1)), errors.Fenced)


def test_a_rewind_into_expired_history_is_refused() -> None:
    """Nobody can tell what main holds there: going on would publish old epochs over newer rows."""
    error = rewind_plan(head(FOREIGN, cut=True, first_id=4, in_property=recorded(entry(7), 9)), ORDERS, JOB, OPERATOR)
    assert isinstance(error, errors.TableChanged)
    assert "snapshot 9" in error.hint


def test_there_is_nothing_to_rewind_in_a_sound_table() -> None:
    assert rewind_plan(head(), ORDERS, JOB, OPERATOR) is None
    assert rewind_plan(head(entry(5), in_property=recorded(entry(5), 1)), ORDERS, JOB, OPERATOR) is None


def test_a_rewind_with_an_old_fence_is_refused() -> None:
    rolled_back = head(entry(5), in_property=recorded(entry(7, 5, fence=Fence(9, ALICE)), 9))
    assert isinstance(rewind_plan(rolled_back, ORDERS, JOB, OPERATOR), errors.Fenced)


def test_the_newest_generation_a_table_has_seen() -> None:
    assert newest_generation(head(FOREIGN), JOB) == 0
    assert newest_generation(head(entry(5, fence=Fence(4, BOB))), JOB) == 4
    assert newest_generation(head(entry(5), in_property=recorded(entry(7, fence=Fence(6, BOB)), 9)), JOB) == 6
    assert newest_generation(head(properties={JOB.ledger_property: "?"}), JOB) == 0
