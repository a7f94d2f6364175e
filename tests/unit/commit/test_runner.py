"""The performer: what it asks of the lake, and how it takes what the lake throws."""

from __future__ import annotations

from threading import Event

from coordinator_builders import Notebook, ScriptedLake, StillClock, entry, head, intent

from frazil import errors
from frazil.coordinator.admission import Stopped
from frazil.coordinator.publish import ATTEMPTS_MAX, AlreadyPublished, GaveUp, Published, Recut
from frazil.coordinator.publisher import publish
from frazil.model.commit import Accepted, Conflicted, Unknown


def test_an_epoch_is_looked_up_and_committed_once() -> None:
    seen, lake, notebook, clock = head(entry(5)), ScriptedLake([], []), Notebook(), StillClock()
    lake.heads, lake.answers = [seen], [Accepted(42)]
    mine = intent(5, 10)
    assert publish(mine, lake, clock, notebook) == Published(42, mine.plan)
    assert lake.commits == [(seen, mine.plan)]
    assert notebook.answers == [Accepted(42)]
    assert notebook.outcomes == [Published(42, mine.plan)]
    assert clock.waits == [0.0]


def test_a_commit_whose_answer_was_lost_is_found_by_looking() -> None:
    """H6, H56: whatever is thrown, nothing is committed a second time."""
    lake = ScriptedLake([head(entry(5)), head(entry(10, 5), entry(5))], [ConnectionResetError("broken")])
    outcome = publish(intent(5, 10), lake, StillClock(), notebook := Notebook())
    assert isinstance(outcome, AlreadyPublished)
    assert len(lake.commits) == 1
    assert notebook.answers == [Unknown("ConnectionResetError: broken")]


def test_a_409_that_did_not_land_is_committed_again_on_the_newer_head() -> None:
    first, second = head(entry(5)), head({"operation": "replace"}, entry(5))
    lake = ScriptedLake([first, second], [Conflicted("409"), Accepted(7)])
    assert publish(intent(5, 10), lake, StillClock(), Notebook()) == Published(7, intent(5, 10).plan)
    assert [used for used, _ in lake.commits] == [first, second]


def test_a_409_that_landed_is_not_committed_again() -> None:
    """H43"""
    lake = ScriptedLake([head(entry(5)), head(entry(10, 5), entry(5))], [Conflicted("409")])
    assert isinstance(publish(intent(5, 10), lake, StillClock(), Notebook()), AlreadyPublished)


def test_an_unavailable_catalog_is_asked_again_with_growing_waits_and_then_given_up() -> None:
    lake, clock = ScriptedLake([errors.CatalogUnavailable("down")] * ATTEMPTS_MAX), StillClock()
    outcome = publish(intent(), lake, clock, Notebook())
    assert isinstance(outcome, GaveUp)
    assert not outcome.in_doubt
    assert clock.waits == sorted(clock.waits)
    assert len(clock.waits) == ATTEMPTS_MAX


def test_a_table_that_is_gone_stops_the_epoch() -> None:
    """H10"""
    gone = errors.TableChanged("gone")
    assert publish(intent(), ScriptedLake([gone]), StillClock(), Notebook()) == Stopped(gone)


def test_asked_to_stop_it_gives_up_waiting_and_keeps_the_doubt() -> None:
    lake = ScriptedLake([head()], [Unknown("timeout")])
    outcome = publish(intent(), lake, StillClock(stops=True), Notebook(), stop=Event())
    assert outcome == GaveUp(1, True, "asked to stop")


def test_an_epoch_that_must_be_cut_again_is_not_sent() -> None:
    lake = ScriptedLake([head(entry(7, 5))])
    assert isinstance(publish(intent(5, 10), lake, StillClock(), Notebook()), Recut)
    assert lake.commits == []
