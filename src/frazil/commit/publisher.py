"""Performs what `machine` decides: looks at heads, has older rows located, sends commits, waits in between.

    state  NeedHead    -> lake.head       \\
           Locating    -> locator.locate   >--answer--> advance --> state ... until it is an outcome
           Committing  -> lake.commit     /

Tables that are published together are looked at and located side by side; lake.commit_many sends them all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Event
from types import MappingProxyType
from typing import Protocol

from frazil import errors
from frazil.clock import Clock
from frazil.commit.machine import (
    EPOCHS,
    Answer,
    Committing,
    EpochCommit,
    GaveUp,
    HeadRefused,
    HeadUnavailable,
    Locating,
    LocatingFailed,
    LocatingRefused,
    NeedHead,
    Outcome,
    State,
    advance,
    held_back,
)
from frazil.model.commit import CommitAnswer, Unknown
from frazil.model.ids import TableName
from frazil.model.ledger import TableHead
from frazil.model.ports import Committer, Locator, TransactionalCommitter

Performed = Callable[[Callable[[int], State], Iterable[int]], Iterable[State]]
_NOBODY: Mapping[TableName, Locator] = MappingProxyType({})


class Observer(Protocol):
    """Is told what happened, for metrics and logs; decides nothing."""

    def answered(self, epoch_commit: EpochCommit, answer: CommitAnswer, seconds: float) -> None:
        """One commit was sent and answered."""

    def finished(self, epoch_commit: EpochCommit, outcome: Outcome) -> None:
        """The epoch of this table is decided."""


def publish(
    epoch_commit: EpochCommit,
    committer: Committer,
    clock: Clock,
    observer: Observer,
    locator: Locator | None = None,
    stop: Event | None = None,
) -> Outcome:
    """Publishes the epoch or says why not; `failure` turns the outcome into an error. An intent that needs locating
    needs a `locator`. `stop` ends the waiting between attempts, never an attempt."""
    state: State = NeedHead()
    while isinstance(state, NeedHead | Locating | Committing):
        state = _prepared(epoch_commit, state, committer, clock, locator, stop)
        if isinstance(state, Committing):
            state = advance(state, _commit(epoch_commit, state, committer, clock, observer), epoch_commit)
    observer.finished(epoch_commit, state)
    return state


def publish_together(
    epoch_commits: Sequence[EpochCommit],
    committer: TransactionalCommitter,
    clock: Clock,
    observer: Observer,
    locators: Mapping[TableName, Locator] = _NOBODY,
    stop: Event | None = None,
    side_by_side: Performed = map,
) -> tuple[Outcome, ...]:
    """As `publish`, for one epoch of several tables in one commit; one outcome for each, in order. `side_by_side`
    may prepare them in several threads."""
    states: list[State] = [NeedHead() for _ in epoch_commits]
    while True:

        def prepared(place: int) -> State:
            epoch_commit = epoch_commits[place]
            return _prepared(epoch_commit, states[place], committer, clock, locators.get(epoch_commit.table), stop)  # noqa: B023

        states = list(held_back(list(side_by_side(prepared, range(len(epoch_commits))))))
        ready = [(epoch_commits[place], state) for place, state in enumerate(states) if isinstance(state, Committing)]
        if not ready:
            break
        answers = iter(_commit_many(ready, committer, clock, observer))
        states = [
            advance(state, next(answers), epoch_commit) if isinstance(state, Committing) else state
            for epoch_commit, state in zip(epoch_commits, states, strict=True)
        ]
    outcomes = tuple(state for state in states if not isinstance(state, NeedHead | Locating | Committing))
    for epoch_commit, outcome in zip(epoch_commits, outcomes, strict=True):
        observer.finished(epoch_commit, outcome)
    return outcomes


def _prepared(
    epoch_commit: EpochCommit,
    state: State,
    committer: Committer,
    clock: Clock,
    locator: Locator | None,
    stop: Event | None,
) -> State:
    """All that comes before a commit: the state is Committing then, or an outcome."""
    while isinstance(state, NeedHead | Locating):
        if isinstance(state, Locating):
            answer = _locate(epoch_commit, state, committer, locator)
        elif clock.wait(max(state.wait, EPOCHS.before(state.attempt, clock.jitter())), stop):
            return GaveUp(state.attempt - 1, state.in_doubt, "asked to stop")
        else:
            answer = _look(epoch_commit, committer)
        state = advance(state, answer, epoch_commit)
    return state


def _look(epoch_commit: EpochCommit, committer: Committer) -> Answer:
    try:
        return committer.head(epoch_commit.table)
    except errors.Terminal as error:
        return HeadRefused(error)
    except Exception as error:
        # A look changes nothing, so any failure of it may be tried again.
        return HeadUnavailable(f"{type(error).__name__}: {error}")


def _locate(epoch_commit: EpochCommit, state: Locating, committer: Committer, locator: Locator | None) -> Answer:
    if locator is None:
        raise AssertionError(f"{epoch_commit.table}: older rows must be found, and nobody was given to find them")
    try:
        return locator.locate(epoch_commit.plan.files, state.head, by_equality=state.by_equality)
    except errors.TableChanged as error:
        # A file may be gone because a rewrite and an expiry overtook this lookup; then the table has another head.
        now = _look(epoch_commit, committer)
        moved = not isinstance(now, TableHead) or now.snapshot_id != state.head.snapshot_id
        return LocatingFailed(str(error)) if moved else LocatingRefused(error)
    except errors.Terminal as error:
        return LocatingRefused(error)
    except Exception as error:
        # It only reads, and writes files that nobody knows of unless it succeeds.
        return LocatingFailed(f"{type(error).__name__}: {error}")


def _commit(
    epoch_commit: EpochCommit, state: Committing, committer: Committer, clock: Clock, observer: Observer
) -> CommitAnswer:
    started = clock.monotonic()
    try:
        answer = committer.commit(epoch_commit.table, state.head, state.plan)
    except Exception as error:
        # Only the lake's own answers prove anything; a broken connection may have carried the commit (H56).
        answer = Unknown(f"{type(error).__name__}: {error}")
    observer.answered(epoch_commit, answer, clock.monotonic() - started)
    return answer


def _commit_many(
    ready: Sequence[tuple[EpochCommit, Committing]], committer: TransactionalCommitter, clock: Clock, observer: Observer
) -> Sequence[CommitAnswer]:
    if len(ready) == 1:
        ((epoch_commit, state),) = ready
        return (_commit(epoch_commit, state, committer, clock, observer),)
    started = clock.monotonic()
    try:
        answers = committer.commit_many([(epoch_commit.table, state.head, state.plan) for epoch_commit, state in ready])
    except Exception as error:
        answers = [Unknown(f"{type(error).__name__}: {error}")] * len(ready)
    for (epoch_commit, _), answer in zip(ready, answers, strict=True):
        observer.answered(epoch_commit, answer, clock.monotonic() - started)
    return answers
