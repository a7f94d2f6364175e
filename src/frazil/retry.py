"""Waits between attempts, and the one loop for every commit that is no epoch.

    attempt --nothing left to send-----> what was done
       ^    --sent--> Accepted --------> what was done
       |          `-> Refused ---------> CatalogRefused
       |          `-> conflict, no answer
       +--- wait ---------'                (attempts are bounded: CatalogUnavailable, OutcomeUnknown)

An attempt looks before it sends, always: so it finds a commit of its own whose answer was lost. Epochs have a machine
of their own (`commit.machine`), which waits as long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Event
from typing import Generic, TypeVar

from frazil.clock import Clock
from frazil.errors import CatalogRefused, CatalogUnavailable, OutcomeUnknown
from frazil.model.commit import Accepted, CommitAnswer, Conflicted, Refused, Unknown

Done = TypeVar("Done")


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds to wait before each of so many attempts: none before the first, then from `first` to `longest`."""

    first: float
    longest: float
    attempts: int

    def before(self, attempt: int, jitter: float) -> float:
        """`attempt` counts from 1; `jitter`, a number in [0, 1), takes up to half off."""
        if attempt <= 1:
            return 0.0
        return min(self.longest, self.first * 2.0 ** min(attempt - 2, 32)) * (1.0 - jitter / 2)


COMMITS = Backoff(first=0.05, longest=2.0, attempts=8)


@dataclass(frozen=True, slots=True)
class Attempt(Generic[Done]):
    """`done` holds if the commit lands, or, without an answer, as it is."""

    done: Done
    answer: CommitAnswer | None = None


def commit_with_retry(
    what: str,
    attempt: Callable[[int], Attempt[Done]],
    clock: Clock,
    *,
    backoff: Backoff = COMMITS,
    table: str = "",
    stop: Event | None = None,
    hint: str = "Others write to it all the time, or the catalog is in trouble. Nothing is lost: try again later.",
) -> tuple[Done, int | None]:
    """What was done, and the snapshot of the commit, if one was sent and answered.

    `attempt` is told how many were lost before it. It sends at most one commit, on what it has just read. `what` says
    what could not be done, as in "cannot record the checkpoint". `stop` ends the waiting, never an attempt.

    Raises CatalogRefused, CatalogUnavailable if others were faster every time, OutcomeUnknown if the last commit was
    never confirmed, and what `attempt` raises.
    """
    facts = {"table": table} if table else {}
    last: Conflicted | Unknown = Conflicted("")
    for lost in range(backoff.attempts):
        if clock.wait(backoff.before(lost + 1, clock.jitter()), stop):
            last = replace(last, reason="asked to stop")
            break
        tried = attempt(lost)
        match tried.answer:
            case None:
                return tried.done, None
            case Accepted(snapshot_id):
                return tried.done, snapshot_id
            case Refused(reason, own_hint):
                own_hint = own_hint or "Let the catalog's credential commit to this table."
                raise CatalogRefused(f"{what}: {reason}", hint=own_hint, **facts)
            case answer:
                last = answer
    error = OutcomeUnknown if isinstance(last, Unknown) else CatalogUnavailable
    message = f"{what}: {lost + 1} attempts failed, the last one with: {last.reason}"
    raise error(message, hint=hint, attempts=lost + 1, **facts)
