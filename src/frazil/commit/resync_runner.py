"""Performs what `resync` decides: looks at main and the branch, sends one commit, waits in between.

    state  Looking  -> lake.heads                             \\
           Sending  -> lake.begin | commit | adopt | abandon   >--answer--> advance --> state ... until it is an outcome
"""

from __future__ import annotations

from threading import Event
from typing import Protocol

from frazil import errors
from frazil.clock import Clock
from frazil.coordinator.admission import Coordinator
from frazil.coordinator.publish import wait_before
from frazil.coordinator.resync import (
    Abandonment,
    Adopt,
    Adopted,
    Adoption,
    Begin,
    Behind,
    Clear,
    Denied,
    Drop,
    Loading,
    Looking,
    Moved,
    NotUnderWay,
    Outcome,
    Sending,
    State,
    TakeOver,
    Wish,
    advance,
    gave_up,
)
from frazil.model.commit import ClearPlan, CommitAnswer, CommitPlan, Unknown
from frazil.model.ledger import BranchedHead, LedgerEntry, TableHead
from frazil.model.names import TableName


class ResyncLake(Protocol):
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
    lake: ResyncLake,
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
    outcome = _fulfil(Begin(table=table, coordinator=coordinator, anew=anew, source=source), lake, clock, stop)
    assert isinstance(outcome, Loading)
    return outcome


def adopt_resync(
    table: TableName,
    lake: ResyncLake,
    coordinator: Coordinator,
    clock: Clock,
    loaded: LedgerEntry,
    *,
    stop: Event | None = None,
) -> Adopted | Behind | Moved:
    """Lets main be what was loaded up to this entry, the newest on the branch. Raises like `begin_resync`."""
    outcome = _fulfil(Adoption(table=table, coordinator=coordinator, loaded=loaded), lake, clock, stop)
    assert isinstance(outcome, Adopted | Behind | Moved)
    return outcome


def abandon_resync(
    table: TableName, lake: ResyncLake, coordinator: Coordinator, clock: Clock, *, stop: Event | None = None
) -> None:
    """Removes the branch, if there is one of ours. Raises like `begin_resync`."""
    outcome = _fulfil(Abandonment(table=table, coordinator=coordinator), lake, clock, stop)
    assert isinstance(outcome, NotUnderWay)


def _fulfil(wish: Wish, lake: ResyncLake, clock: Clock, stop: Event | None) -> Outcome:
    state: State = Looking()
    while isinstance(state, Looking | Sending):
        if isinstance(state, Sending):
            answer: BranchedHead | CommitAnswer = _send(wish, state, lake)
        elif clock.wait(wait_before(state.attempt, clock.jitter()), stop):
            raise gave_up(wish, state.attempt - 1, state.in_doubt, "asked to stop")
        else:
            answer = _look(wish, lake)
        state = advance(state, answer, wish)
    if isinstance(state, Denied):
        raise state.error
    return state


def _look(wish: Wish, lake: ResyncLake) -> BranchedHead | Unknown:
    try:
        return lake.heads(wish.table)
    except errors.Terminal:
        raise
    except Exception as error:
        # A look changes nothing, so any failure of it may be tried again.
        return Unknown(f"{type(error).__name__}: {error}")


def _send(wish: Wish, state: Sending, lake: ResyncLake) -> CommitAnswer:
    heads, table = state.heads, wish.table
    try:
        match state.step:
            case Clear(plan):
                return lake.begin(table, heads.main, plan)
            case TakeOver(plan):
                assert heads.branch is not None
                return lake.commit(table, heads.branch, plan)
            case Adopt(plan, _):
                assert heads.branch is not None
                return lake.adopt(table, heads.branch, plan)
            case Drop():
                assert heads.branch is not None
                return lake.abandon(table, heads.branch)
    except Exception as error:
        # Only the lake's own answers prove anything; a broken connection may have carried the commit (H56).
        return Unknown(f"{type(error).__name__}: {error}")
