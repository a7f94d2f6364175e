"""Performs what `publish` decides: looks at heads, sends commits, waits in between.

    state  NeedHead    -> lake.head    \\
           Committing  -> lake.commit   >--answer--> advance --> state ... until it is an outcome
"""

from __future__ import annotations

from threading import Event
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
    NeedHead,
    Outcome,
    State,
    advance,
    wait_before,
)
from frazil.model.commit import CommitAnswer, Unknown
from frazil.model.ledger import TableHead
from frazil.model.ports import Lake


class Observer(Protocol):
    """Is told what happened, for metrics and logs; decides nothing."""

    def answered(self, intent: Intent, answer: CommitAnswer, seconds: float) -> None:
        """One commit was sent and answered."""

    def finished(self, intent: Intent, outcome: Outcome) -> None:
        """The epoch of this table is decided."""


def publish(intent: Intent, lake: Lake, clock: Clock, observer: Observer, stop: Event | None = None) -> Outcome:
    """Publishes the epoch or says why not; `failure` turns the outcome into an error. `stop` ends the waiting
    between attempts, never an attempt."""
    state: State = NeedHead()
    while isinstance(state, NeedHead | Committing):
        if isinstance(state, Committing):
            answer: Answer = _commit(intent, state.head, lake, clock, observer)
        elif clock.wait(wait_before(state.attempt, clock.jitter()), stop):
            state = GaveUp(state.attempt - 1, state.in_doubt, "asked to stop")
            break
        else:
            answer = _look(intent, lake)
        state = advance(state, answer, intent)
    observer.finished(intent, state)
    return state


def _look(intent: Intent, lake: Lake) -> Answer:
    try:
        return lake.head(intent.table)
    except errors.Terminal as error:
        return HeadRefused(error)
    except Exception as error:
        # A look changes nothing, so any failure of it may be tried again.
        return HeadUnavailable(f"{type(error).__name__}: {error}")


def _commit(intent: Intent, head: TableHead, lake: Lake, clock: Clock, observer: Observer) -> CommitAnswer:
    started = clock.monotonic()
    try:
        answer = lake.commit(intent.table, head, intent.plan)
    except Exception as error:
        # Only the lake's own answers prove anything; a broken connection may have carried the commit (H56).
        answer = Unknown(f"{type(error).__name__}: {error}")
    observer.answered(intent, answer, clock.monotonic() - started)
    return answer
