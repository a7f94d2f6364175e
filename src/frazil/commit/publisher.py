"""Performs what `publish` decides: looks at heads, has older rows located, sends commits, waits in between.

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
from frazil.coordinator.publish import (
    Answer,
    Committing,
    GaveUp,
    HeadRefused,
    HeadUnavailable,
    Intent,
    Locating,
    LocatingFailed,
    LocatingRefused,
    NeedHead,
    Outcome,
    State,
    advance,
    held_back,
    wait_before,
)
from frazil.model.commit import CommitAnswer, Unknown
from frazil.model.ledger import TableHead
from frazil.model.names import TableName
from frazil.model.ports import Lake, Locator, TransactionalLake

Performed = Callable[[Callable[[int], State], Iterable[int]], Iterable[State]]
_NOBODY: Mapping[TableName, Locator] = MappingProxyType({})


class Observer(Protocol):
    """Is told what happened, for metrics and logs; decides nothing."""

    def answered(self, intent: Intent, answer: CommitAnswer, seconds: float) -> None:
        """One commit was sent and answered."""

    def finished(self, intent: Intent, outcome: Outcome) -> None:
        """The epoch of this table is decided."""


def publish(
    intent: Intent,
    lake: Lake,
    clock: Clock,
    observer: Observer,
    locator: Locator | None = None,
    stop: Event | None = None,
) -> Outcome:
    """Publishes the epoch or says why not; `failure` turns the outcome into an error. An intent that needs locating
    needs a `locator`. `stop` ends the waiting between attempts, never an attempt."""
    state: State = NeedHead()
    while isinstance(state, NeedHead | Locating | Committing):
        state = _prepared(intent, state, lake, clock, locator, stop)
        if isinstance(state, Committing):
            state = advance(state, _commit(intent, state, lake, clock, observer), intent)
    observer.finished(intent, state)
    return state


def publish_together(
    intents: Sequence[Intent],
    lake: TransactionalLake,
    clock: Clock,
    observer: Observer,
    locators: Mapping[TableName, Locator] = _NOBODY,
    stop: Event | None = None,
    side_by_side: Performed = map,
) -> tuple[Outcome, ...]:
    """As `publish`, for one epoch of several tables in one commit; one outcome for each, in order. `side_by_side`
    may prepare them in several threads."""
    states: list[State] = [NeedHead() for _ in intents]
    while True:

        def prepared(place: int) -> State:
            intent = intents[place]
            return _prepared(intent, states[place], lake, clock, locators.get(intent.table), stop)  # noqa: B023

        states = list(held_back(list(side_by_side(prepared, range(len(intents))))))
        ready = [(intents[place], state) for place, state in enumerate(states) if isinstance(state, Committing)]
        if not ready:
            break
        answers = iter(_commit_many(ready, lake, clock, observer))
        states = [
            advance(state, next(answers), intent) if isinstance(state, Committing) else state
            for intent, state in zip(intents, states, strict=True)
        ]
    outcomes = tuple(state for state in states if not isinstance(state, NeedHead | Locating | Committing))
    for intent, outcome in zip(intents, outcomes, strict=True):
        observer.finished(intent, outcome)
    return outcomes


def _prepared(
    intent: Intent, state: State, lake: Lake, clock: Clock, locator: Locator | None, stop: Event | None
) -> State:
    """All that comes before a commit: the state is Committing then, or an outcome."""
    while isinstance(state, NeedHead | Locating):
        if isinstance(state, Locating):
            answer = _locate(intent, state, lake, locator)
        elif clock.wait(wait_before(state.attempt, clock.jitter()), stop):
            return GaveUp(state.attempt - 1, state.in_doubt, "asked to stop")
        else:
            answer = _look(intent, lake)
        state = advance(state, answer, intent)
    return state


def _look(intent: Intent, lake: Lake) -> Answer:
    try:
        return lake.head(intent.table)
    except errors.Terminal as error:
        return HeadRefused(error)
    except Exception as error:
        # A look changes nothing, so any failure of it may be tried again.
        return HeadUnavailable(f"{type(error).__name__}: {error}")


def _locate(intent: Intent, state: Locating, lake: Lake, locator: Locator | None) -> Answer:
    if locator is None:
        raise AssertionError(f"{intent.table}: older rows must be found, and nobody was given to find them")
    try:
        return locator.locate(intent.plan.files, state.head, by_equality=state.by_equality)
    except errors.TableChanged as error:
        # A file may be gone because a rewrite and an expiry overtook this lookup; then the table has another head.
        now = _look(intent, lake)
        moved = not isinstance(now, TableHead) or now.snapshot_id != state.head.snapshot_id
        return LocatingFailed(str(error)) if moved else LocatingRefused(error)
    except errors.Terminal as error:
        return LocatingRefused(error)
    except Exception as error:
        # It only reads, and writes files that nobody knows of unless it succeeds.
        return LocatingFailed(f"{type(error).__name__}: {error}")


def _commit(intent: Intent, state: Committing, lake: Lake, clock: Clock, observer: Observer) -> CommitAnswer:
    started = clock.monotonic()
    try:
        answer = lake.commit(intent.table, state.head, state.plan)
    except Exception as error:
        # Only the lake's own answers prove anything; a broken connection may have carried the commit (H56).
        answer = Unknown(f"{type(error).__name__}: {error}")
    observer.answered(intent, answer, clock.monotonic() - started)
    return answer


def _commit_many(
    ready: Sequence[tuple[Intent, Committing]], lake: TransactionalLake, clock: Clock, observer: Observer
) -> Sequence[CommitAnswer]:
    if len(ready) == 1:
        ((intent, state),) = ready
        return (_commit(intent, state, lake, clock, observer),)
    started = clock.monotonic()
    try:
        answers = lake.commit_many([(intent.table, state.head, state.plan) for intent, state in ready])
    except Exception as error:
        answers = [Unknown(f"{type(error).__name__}: {error}")] * len(ready)
    for (intent, _), answer in zip(ready, answers, strict=True):
        observer.answered(intent, answer, clock.monotonic() - started)
    return answers
