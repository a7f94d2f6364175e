"""Performs what `publish` decides: looks at heads, has older rows located, sends commits, waits in between.

    state  NeedHead    -> lake.head       \\
           Locating    -> locator.locate   >--answer--> advance --> state ... until it is an outcome
           Committing  -> lake.commit     /
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
    Locating,
    LocatingFailed,
    LocatingRefused,
    NeedHead,
    Outcome,
    State,
    advance,
    wait_before,
)
from frazil.model.commit import CommitAnswer, Unknown
from frazil.model.ledger import TableHead
from frazil.model.ports import Lake, Locator


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
        if isinstance(state, Committing):
            answer: Answer = _commit(intent, state, lake, clock, observer)
        elif isinstance(state, Locating):
            answer = _locate(intent, state, lake, locator)
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
