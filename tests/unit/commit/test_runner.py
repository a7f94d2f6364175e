"""The performer: what it asks of the lake, and how it takes what the lake throws."""

from __future__ import annotations

from threading import Event

from commit_builders import Notebook, ScriptedLake, StillClock, entry, epoch_commit, head

from frazil import errors
from frazil.commit.admission import Stopped
from frazil.commit.machine import EPOCHS, AlreadyPublished, GaveUp, Published, Recut
from frazil.commit.publisher import publish
from frazil.model.commit import Accepted, Conflicted, Unknown


def test_an_epoch_is_looked_up_and_committed_once() -> None:
    seen, committer, notebook, clock = head(entry(5)), ScriptedLake([], []), Notebook(), StillClock()
    committer.heads, committer.answers = [seen], [Accepted(42)]
    mine = epoch_commit(5, 10)
    assert publish(mine, committer, clock, notebook) == Published(42, mine.plan)
    assert committer.commits == [(seen, mine.plan)]
    assert notebook.answers == [Accepted(42)]
    assert notebook.outcomes == [Published(42, mine.plan)]
    assert clock.waits == [0.0]


def test_a_commit_whose_answer_was_lost_is_found_by_looking() -> None:
    """H6, H56: whatever is thrown, nothing is committed a second time."""
    committer = ScriptedLake([head(entry(5)), head(entry(10, 5), entry(5))], [ConnectionResetError("broken")])
    outcome = publish(epoch_commit(5, 10), committer, StillClock(), notebook := Notebook())
    assert isinstance(outcome, AlreadyPublished)
    assert len(committer.commits) == 1
    assert notebook.answers == [Unknown("ConnectionResetError: broken")]


def test_a_409_that_did_not_land_is_committed_again_on_the_newer_head() -> None:
    first, second = head(entry(5)), head({"operation": "replace"}, entry(5))
    committer = ScriptedLake([first, second], [Conflicted("409"), Accepted(7)])
    assert publish(epoch_commit(5, 10), committer, StillClock(), Notebook()) == Published(7, epoch_commit(5, 10).plan)
    assert [used for used, _ in committer.commits] == [first, second]


def test_a_409_that_landed_is_not_committed_again() -> None:
    """H43"""
    committer = ScriptedLake([head(entry(5)), head(entry(10, 5), entry(5))], [Conflicted("409")])
    assert isinstance(publish(epoch_commit(5, 10), committer, StillClock(), Notebook()), AlreadyPublished)


def test_an_unavailable_catalog_is_asked_again_with_growing_waits_and_then_given_up() -> None:
    committer, clock = ScriptedLake([errors.CatalogUnavailable("down")] * EPOCHS.attempts), StillClock()
    outcome = publish(epoch_commit(), committer, clock, Notebook())
    assert isinstance(outcome, GaveUp)
    assert not outcome.in_doubt
    assert clock.waits == sorted(clock.waits)
    assert len(clock.waits) == EPOCHS.attempts


def test_a_table_that_is_gone_stops_the_epoch() -> None:
    """H10"""
    gone = errors.TableChanged("gone")
    assert publish(epoch_commit(), ScriptedLake([gone]), StillClock(), Notebook()) == Stopped(gone)


def test_asked_to_stop_it_gives_up_waiting_and_keeps_the_doubt() -> None:
    committer = ScriptedLake([head()], [Unknown("timeout")])
    outcome = publish(epoch_commit(), committer, StillClock(stops=True), Notebook(), stop=Event())
    assert outcome == GaveUp(1, True, "asked to stop")


def test_an_epoch_that_must_be_cut_again_is_not_sent() -> None:
    committer = ScriptedLake([head(entry(7, 5))])
    assert isinstance(publish(epoch_commit(5, 10), committer, StillClock(), Notebook()), Recut)
    assert committer.commits == []
