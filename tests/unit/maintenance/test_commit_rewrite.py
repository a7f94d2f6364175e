"""One loop lands what an action has prepared, however often others are faster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import pytest
from unit.commit.commit_builders import ORDERS, StillClock, head

from frazil.errors import OutcomeUnknown, Transient
from frazil.maintenance.commit_rewrite import LOSSES_BEFORE_A_TURN, PATIENT, commit_rewrite, summary_of
from frazil.model.commit import Accepted, CommitAnswer, Conflicted, Unknown
from frazil.model.ids import TableName
from frazil.model.ledger import TableHead
from frazil.retry import Attempt

RUN = UUID(int=7)


class Stream:
    """A pipeline that commits between any two looks at the table, unless it is told to wait."""

    def __init__(self) -> None:
        self.waits = False
        self.turns = 0
        self.attempts = 0

    @contextmanager
    def turn(self) -> Iterator[None]:
        self.turns += 1
        self.waits = True
        yield
        self.waits = False

    def head(self, table: TableName) -> TableHead:
        return head({"operation": "append"})

    def attempt(self, found: TableHead) -> Attempt[str]:
        self.attempts += 1
        answer: CommitAnswer = Accepted(5) if self.waits else Conflicted("an epoch was faster")
        return Attempt("done", answer)


def test_whoever_loses_against_a_fast_stream_gets_a_turn() -> None:
    """H16"""
    stream = Stream()
    assert commit_rewrite(ORDERS, RUN, "it", stream.head, stream.attempt, StillClock(), stream.turn) == ("done", 5)
    assert (stream.attempts, stream.turns) == (LOSSES_BEFORE_A_TURN + 1, 1)
    assert not stream.waits, "and gives it back"


def test_without_a_turn_it_gives_up_in_the_end() -> None:
    stream = Stream()
    with pytest.raises(Transient, match="an epoch was faster"):
        commit_rewrite(ORDERS, RUN, "it", stream.head, stream.attempt, StillClock())
    assert stream.attempts == PATIENT.attempts


def test_a_commit_whose_answer_was_lost_is_found_by_its_run() -> None:
    heads = iter([head({"operation": "append"}), head(summary_of("compact", RUN, files=3), {"operation": "append"})])
    found = commit_rewrite(
        ORDERS, RUN, "it", lambda _: next(heads), lambda _: Attempt("done", Unknown("lost")), StillClock()
    )
    assert found == ("done", 2)


def test_a_commit_that_is_never_confirmed_is_told_as_that() -> None:
    nowhere = head({"operation": "append"})
    with pytest.raises(OutcomeUnknown):
        commit_rewrite(ORDERS, RUN, "it", lambda _: nowhere, lambda _: Attempt("done", Unknown("lost")), StillClock())
