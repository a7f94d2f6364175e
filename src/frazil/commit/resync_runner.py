"""Performs what `resync` decides: looks at main and the branch, sends one commit, waits in between.

    state  ReadingBranch  -> lake.heads                             \\
           Sending  -> lake.begin | commit | adopt | abandon   >--answer--> advance --> state ... until it is an outcome
"""

from __future__ import annotations

from threading import Event
from typing import Protocol

from frazil import errors
from frazil.clock import Clock
from frazil.commit.admission import Coordinator
from frazil.commit.machine import EPOCHS
from frazil.commit.resync_machine import (
    Abandonment,
    Adopt,
    Adopted,
    Adoption,
    Begin,
    Behind,
    Clear,
    DropBranch,
    Loading,
    MainMoved,
    NotUnderWay,
    Outcome,
    ReadingBranch,
    ResyncDenied,
    Sending,
    State,
    TakeOver,
    Wish,
    advance,
    gave_up,
)
from frazil.model.commit import ClearPlan, CommitAnswer, CommitPlan, Unknown
from frazil.model.ids import TableName
from frazil.model.ledger import BranchedHead, LedgerEntry, TableHead


class ResyncCommitter(Protocol):
    """Main and the branch of tables; every commit lands on what was read of both, or not at all, and is sent once."""

    def heads(self, table: TableName) -> BranchedHead:
        """Raises CatalogUnavailable, or TableChanged if the table is gone."""

    def begin(self, table: TableName, head: TableHead, plan: ClearPlan) -> CommitAnswer:
        """`head` is main's."""

    def commit(self, table: TableName, head: TableHead, plan: CommitPlan) -> CommitAnswer:
        """`head` is the branch's."""

    def adopt(self, table: TableName, head: TableHead, plan: CommitPlan) -> CommitAnswer:
        """`head` is the branch's."""

    def abandon(self, table: TableName, head: TableHead) -> CommitAnswer:
        """`head` is the branch's."""


def begin_resync(
    table: TableName,
    committer: ResyncCommitter,
    coordinator: Coordinator,
    clock: Clock,
    *,
    anew: bool = False,
    source: str = "",
    stop: Event | None = None,
) -> Loading:
    """Makes the branch on which the table is then loaded, or takes over the one that is under way; with `anew` that one
    is cleared. No older coordinator can touch the branch from then on.

    Raises the error to stop with, and CatalogUnavailable or OutcomeUnknown if it was tried in vain.
    """
    outcome = _fulfil(Begin(table=table, coordinator=coordinator, anew=anew, source=source), committer, clock, stop)
    assert isinstance(outcome, Loading)
    return outcome


def adopt_resync(
    table: TableName,
    committer: ResyncCommitter,
    coordinator: Coordinator,
    clock: Clock,
    loaded: LedgerEntry,
    *,
    stop: Event | None = None,
) -> Adopted | Behind | MainMoved:
    """Lets main be what was loaded up to this entry, the newest on the branch. Raises like `begin_resync`."""
    outcome = _fulfil(Adoption(table=table, coordinator=coordinator, loaded=loaded), committer, clock, stop)
    assert isinstance(outcome, Adopted | Behind | MainMoved)
    return outcome


def abandon_resync(
    table: TableName, committer: ResyncCommitter, coordinator: Coordinator, clock: Clock, *, stop: Event | None = None
) -> None:
    """Removes the branch, if there is one of ours. Raises like `begin_resync`."""
    outcome = _fulfil(Abandonment(table=table, coordinator=coordinator), committer, clock, stop)
    assert isinstance(outcome, NotUnderWay)


def _fulfil(wish: Wish, committer: ResyncCommitter, clock: Clock, stop: Event | None) -> Outcome:
    state: State = ReadingBranch()
    while isinstance(state, ReadingBranch | Sending):
        if isinstance(state, Sending):
            answer: BranchedHead | CommitAnswer = _send(wish, state, committer)
        elif clock.wait(EPOCHS.before(state.attempt, clock.jitter()), stop):
            raise gave_up(wish, state.attempt - 1, state.in_doubt, "asked to stop")
        else:
            answer = _look(wish, committer)
        state = advance(state, answer, wish)
    if isinstance(state, ResyncDenied):
        raise state.error
    return state


def _look(wish: Wish, committer: ResyncCommitter) -> BranchedHead | Unknown:
    try:
        return committer.heads(wish.table)
    except errors.Terminal:
        raise
    except Exception as error:
        # A look changes nothing, so any failure of it may be tried again.
        return Unknown(f"{type(error).__name__}: {error}")


def _send(wish: Wish, state: Sending, committer: ResyncCommitter) -> CommitAnswer:
    heads, table = state.heads, wish.table
    try:
        match state.step:
            case Clear(plan):
                return committer.begin(table, heads.main, plan)
            case TakeOver(plan):
                assert heads.branch is not None
                return committer.commit(table, heads.branch, plan)
            case Adopt(plan, _):
                assert heads.branch is not None
                return committer.adopt(table, heads.branch, plan)
            case DropBranch():
                assert heads.branch is not None
                return committer.abandon(table, heads.branch)
    except Exception as error:
        # Only the lake's own answers prove anything; a broken connection may have carried the commit (H56).
        return Unknown(f"{type(error).__name__}: {error}")
