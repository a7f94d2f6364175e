"""Performs what `resync_machine` decides: looks at main and the branch and sends one commit, until nothing is left.

heads --decide--> begin | commit | adopt | abandon --conflict, no answer (`retry`)--> heads ... until an outcome
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
    Step,
    TakeOver,
    Wish,
    decide,
)
from frazil.model.commit import Accepted, ClearPlan, CommitAnswer, CommitPlan, Conflicted, Refused, Unknown
from frazil.model.ids import TableName
from frazil.model.ledger import BranchedHead, LedgerEntry, TableHead
from frazil.retry import Attempt, commit_with_retry


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
    sent: list[CommitAnswer] = []

    def once(_lost: int) -> Attempt[Outcome]:
        try:
            heads = committer.heads(wish.table)
        except errors.Terminal:
            raise
        except Exception as error:
            # A look changes nothing, so any failure of it may be tried again.
            reason = f"{type(error).__name__}: {error}"
            return Attempt(NotUnderWay(), Unknown(reason) if sent else Conflicted(reason))
        step = decide(heads, wish)
        if isinstance(step, errors.Terminal):
            raise step
        if not isinstance(step, Clear | TakeOver | Adopt | DropBranch):
            return Attempt(step)
        sent.append(_send(wish.table, heads, step, committer))
        if isinstance(step, TakeOver) and isinstance(sent[-1], Accepted):
            return Attempt(NotUnderWay(), Conflicted("taken over; where the branch is now, a look tells"))
        return Attempt(_done(step), sent[-1])

    what = {Begin: "cannot be loaded anew", Adoption: "cannot adopt its branch", Abandonment: "cannot end its load"}
    done, _ = commit_with_retry(
        f"{wish.table} {what[type(wish)]}",
        once,
        clock,
        backoff=EPOCHS,
        table=wish.table.text,
        stop=stop,
        hint="The pipeline tries again by itself and first looks whether the commit landed. Delete no files and no "
        "branch. If it stays like this, look at the catalog.",
    )
    return done


def _send(table: TableName, heads: BranchedHead, step: Step, committer: ResyncCommitter) -> CommitAnswer:
    try:
        if isinstance(step, Clear):
            answer = committer.begin(table, heads.main, step.plan)
        else:
            assert heads.branch is not None
            match step:
                case TakeOver(plan):
                    answer = committer.commit(table, heads.branch, plan)
                case Adopt(plan, _):
                    answer = committer.adopt(table, heads.branch, plan)
                case DropBranch():
                    answer = committer.abandon(table, heads.branch)
    except Exception as error:
        # Only the lake's own answers prove anything; a broken connection may have carried the commit (H56).
        return Unknown(f"{type(error).__name__}: {error}")
    if isinstance(answer, Refused):
        needs = "Check the catalog's permissions for this table, and that it allows branches; then restart."
        return Refused(answer.reason, answer.hint or needs)
    return answer


def _done(step: Step) -> Outcome:
    """What has become of the load once the step has landed."""
    match step:
        case Adopt(_, loaded):
            return Adopted(loaded)
        case DropBranch():
            return NotUnderWay()
        case _:
            return Loading(None, None)
