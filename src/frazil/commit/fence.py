"""Takes over a pipeline: one compare-and-set on its row in the register of pipelines.

    Looking --newest fence--> ours already?  --> Taken       (a lost answer whose request had landed)
       ^                      otherwise      --> Taking(generation + 1, our owner)
       |                                           |--accepted--> Taken
       +------- conflict, unknown, unavailable ----+--refused---> Denied
                (attempts are bounded: Denied)

Two starters may read one generation; the compare-and-set lets one of them take the next, and the other looks
again and takes the one after (H45). `advance` decides and is pure, `take_fence` performs.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from frazil import errors
from frazil.clock import Clock
from frazil.coordinator.publish import wait_before
from frazil.model.commit import Accepted, CommitAnswer, Conflicted, Refused, Unknown
from frazil.model.ledger import Fence
from frazil.model.names import JobId
from frazil.model.ports import Arbiter

ATTEMPTS_MAX = 10


@dataclass(frozen=True, slots=True)
class Looking:
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Taking:
    attempt: int
    fence: Fence
    read: object


@dataclass(frozen=True, slots=True)
class Taken:
    fence: Fence


@dataclass(frozen=True, slots=True)
class Denied:
    error: errors.FrazilError


@dataclass(frozen=True, slots=True)
class Register:
    """What the arbiter knows: the newest fence, and its handle for the compare-and-set."""

    newest: Fence | None
    read: object


State = Looking | Taking | Taken | Denied


def advance(state: State, answer: Register | CommitAnswer, owner: UUID, floor: int = 0) -> State:
    """`floor` is the highest generation known from elsewhere: a register that was lost starts above it."""
    match state, answer:
        case Looking(), Register(Fence() as newest, _) if newest.owner == owner:
            return Taken(newest)
        case Looking(attempt), Register(newest, read):
            generation = max(floor, newest.generation if newest else 0) + 1
            return Taking(attempt, Fence(generation, owner), read)
        case Taking(_, fence, _), Accepted():
            return Taken(fence)
        case ((Looking(attempt) | Taking(attempt)), (Conflicted(reason) | Unknown(reason))):
            return Looking(attempt + 1) if attempt < ATTEMPTS_MAX else Denied(_contended(reason))
        case Taking(), Refused(reason, hint):
            return Denied(_refused(reason, hint))
        case _:
            raise AssertionError(f"{answer} cannot follow {state}")


def take_fence(job: JobId, arbiter: Arbiter, clock: Clock, floor: int = 0) -> Fence:
    """Makes this process the newest coordinator of the pipeline. Every older one is fenced from its next commit on.

    Raises CatalogUnavailable if the register cannot be written, CatalogRefused if it may not be.
    """
    owner = clock.new_uuid()
    state: State = Looking()
    while isinstance(state, Looking | Taking):
        if isinstance(state, Looking):
            clock.wait(wait_before(state.attempt, clock.jitter()))
            answer: Register | CommitAnswer = _look(job, arbiter)
        else:
            answer = _take(job, arbiter, state)
        state = advance(state, answer, owner, floor)
    if isinstance(state, Denied):
        raise state.error
    return state.fence


def _look(job: JobId, arbiter: Arbiter) -> Register | Unknown:
    try:
        return Register(*arbiter.newest(job))
    except errors.Terminal:
        raise
    except Exception as error:
        return Unknown(f"{type(error).__name__}: {error}")


def _take(job: JobId, arbiter: Arbiter, state: Taking) -> CommitAnswer:
    try:
        return arbiter.take(job, state.fence, state.read)
    except errors.Terminal:
        raise
    except Exception as error:
        return Unknown(f"{type(error).__name__}: {error}")


def _contended(reason: str) -> errors.CatalogUnavailable:
    return errors.CatalogUnavailable(
        f"the pipeline could not be taken over in {ATTEMPTS_MAX} attempts: {reason}",
        hint="Check that the catalog answers, and that only one process runs this pipeline.",
        attempts=ATTEMPTS_MAX,
    )


def _refused(reason: str, hint: str) -> errors.CatalogRefused:
    return errors.CatalogRefused(
        f"the catalog refused to note this coordinator: {reason}",
        hint=hint or "The pipeline needs to create and write tables in the namespace `_frazil`.",
    )
