"""What is read next, what is published, and what the source may forget."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from frazil.model.frontier import (
    EpochProgress,
    Frontier,
    Window,
    acknowledgeable,
    chain,
    epochs_to_publish,
    heartbeat_due,
    plan_window,
    resume_after,
)
from frazil.sources.cockroachdb.position import Hlc

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
TEN_MINUTES = timedelta(minutes=10)


def at(wall: int) -> Hlc:
    return Hlc(wall)


def upto(wall: int) -> Frontier:
    return Frontier(at(wall))


WINDOW = Window((at(10), at(20), at(30)))


def test_every_resolved_takes_the_oldest_positions_up_to_a_bound() -> None:
    offered = [at(30), at(10), at(20), at(20), at(5)]
    assert plan_window(offered, at(5), "every-resolved", 2) == Window((at(10), at(20)))
    assert plan_window(offered, None, "every-resolved", 9) == Window((at(5), at(10), at(20), at(30)))


def test_latest_coalesces_into_one_epoch() -> None:
    assert plan_window([at(10), at(20), at(30)], at(10), "latest", 2) == Window((at(30),))


@pytest.mark.parametrize("mode", ["every-resolved", "latest"])
def test_nothing_new_is_no_window(mode: str) -> None:
    assert plan_window([at(5), at(10)], at(10), mode, 3) is None  # type: ignore[arg-type]
    assert plan_window([], None, mode, 3) is None  # type: ignore[arg-type]


def test_epochs_without_changes_of_a_table_coalesce() -> None:
    """H31"""
    assert epochs_to_publish(WINDOW, {at(10), at(30)}, at(5), heartbeat=False) == (at(10), at(30))
    assert epochs_to_publish(WINDOW, {at(20)}, at(5), heartbeat=True) == (at(20),)
    assert epochs_to_publish(WINDOW, set(), at(5), heartbeat=False) == ()


def test_a_heartbeat_publishes_the_last_epoch_empty() -> None:
    assert epochs_to_publish(WINDOW, set(), at(5), heartbeat=True) == (at(30),)
    assert epochs_to_publish(WINDOW, set(), at(30), heartbeat=True) == ()


def test_a_table_without_a_first_change_gets_no_heartbeat() -> None:
    """H54"""
    assert epochs_to_publish(WINDOW, set(), None, heartbeat=True) == ()


def test_first_changes_that_cancel_out_are_published_empty() -> None:
    assert epochs_to_publish(WINDOW, set(), None, heartbeat=False, met_changes=True) == (at(30),)
    assert epochs_to_publish(WINDOW, {at(20)}, None, heartbeat=False, met_changes=True) == (at(20),)
    assert epochs_to_publish(WINDOW, set(), at(5), heartbeat=False, met_changes=True) == ()


def test_each_lower_is_the_upper_published_before() -> None:
    assert list(chain(at(5), [at(10), at(30)])) == [(at(5), at(10)), (at(10), at(30))]
    assert list(chain(None, [at(10)])) == [(None, at(10))]
    assert list(chain(at(5), [])) == []


@pytest.mark.parametrize(
    ("last", "interval", "due"),
    [
        (NOON - TEN_MINUTES, TEN_MINUTES, True),
        (NOON - TEN_MINUTES + timedelta(seconds=1), TEN_MINUTES, False),
        (None, TEN_MINUTES, True),
        (None, None, False),
    ],
)
def test_when_a_heartbeat_is_due(last: datetime | None, interval: timedelta | None, due: bool) -> None:
    assert heartbeat_due(last, NOON, interval) is due


def test_the_tip_is_the_newest_epoch_published_or_in_flight() -> None:
    progress = EpochProgress()
    assert progress.tip_position is None
    progress = progress.handed_over(upto(10)).handed_over(upto(20))
    assert (progress.published, progress.tip_position) == (None, at(20))
    progress = progress.landed(at(10))
    assert (progress.published, progress.tip_position) == (upto(10), at(20))


def test_commits_of_a_table_land_in_order() -> None:
    progress = EpochProgress(upto(5)).handed_over(upto(10)).handed_over(upto(20))
    with pytest.raises(ValueError, match="in flight are"):
        progress.landed(at(20))
    with pytest.raises(ValueError, match="cannot follow"):
        progress.handed_over(upto(20))
    with pytest.raises(ValueError, match="in flight are"):
        EpochProgress(upto(5)).landed(at(5))


def test_planning_takes_up_behind_the_table_that_is_furthest_back() -> None:
    assert resume_after([EpochProgress(upto(10)), EpochProgress(upto(5)).handed_over(upto(7))]) == at(7)
    assert resume_after([EpochProgress(upto(10)), EpochProgress()]) is None
    assert resume_after([]) is None


def test_only_what_every_table_has_published_is_acknowledged() -> None:
    """H28: an epoch in flight is not published."""
    ahead, behind = EpochProgress(upto(30)), EpochProgress(upto(10)).handed_over(upto(20))
    assert acknowledgeable([ahead, behind]) == at(10)
    assert acknowledgeable([ahead, behind.landed(at(20))]) == at(20)


def test_a_table_without_any_change_holds_nothing_back() -> None:
    idle = EpochProgress().read_through(at(20), met_changes=False)
    assert acknowledgeable([EpochProgress(upto(30)), idle]) == at(20)
    assert acknowledgeable([EpochProgress(upto(30)), EpochProgress()]) is None


def test_a_first_change_that_is_not_published_holds_back() -> None:
    """H28: also when later windows have nothing, and when nobody said whether there was a change."""
    touched = EpochProgress().read_through(at(20), met_changes=False).read_through(at(30), met_changes=True)
    assert touched.forgettable == at(20)
    assert touched.read_through(at(40), met_changes=False).forgettable == at(20)
    assert touched.read == at(30)
    assert EpochProgress().read_through(at(20)).forgettable is None
    assert touched.handed_over(upto(30)).landed(at(30)).forgettable == at(30)


def test_a_table_beside_another_takes_what_lies_beyond_both_frontiers() -> None:
    """A side table without a ledger begins at its main table's frontier; one that is ahead of it goes on from its
    own."""
    assert EpochProgress(begins=at(5)).takes_after == at(5)
    assert EpochProgress(published=Frontier(at(3)), begins=at(5)).takes_after == at(5)
    assert EpochProgress(published=Frontier(at(7)), begins=at(5)).takes_after == at(7)
    assert EpochProgress(published=Frontier(at(3))).takes_after == at(3)
    assert EpochProgress().takes_after is None
    assert EpochProgress(begins=at(5)).tip_position is None, "its own ledger still begins with nothing"


def test_an_epoch_of_a_companion_is_published_by_its_mirror_too() -> None:
    window = Window((at(1), at(2), at(3)))
    assert epochs_to_publish(window, {at(3)}, None, False, side_tables={at(1)}) == (at(1), at(3))
    assert epochs_to_publish(window, (), at(1), False, side_tables={at(1), at(2)}) == (at(2),)
