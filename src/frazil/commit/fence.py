"""Takes over a pipeline: one compare-and-set on its row in the register of pipelines.

    ReadingFence --newest fence--> ours already?  --> FenceTaken       (a lost answer whose request had landed)
       ^                      otherwise      --> TakingFence(generation + 1, our owner)
       |                                           |--accepted--> FenceTaken
       +------- conflict, unknown, unavailable ----+--refused---> FenceDenied
                (attempts are bounded: FenceDenied)

Two starters may read one generation; the compare-and-set lets one of them take the next, and the other looks
again and takes the one after (H45). `advance` decides and is pure, `take_fence` performs.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from frazil import errors
from frazil.clock import Clock
from frazil.commit.machine import EPOCHS, clock_error
from frazil.model.commit import Accepted, CommitAnswer, Conflicted, Early, Refused, Unknown
from frazil.model.ids import JobId
from frazil.model.ledger import Fence
from frazil.model.ports import Arbiter

ATTEMPTS_MAX = 10


@dataclass(frozen=True, slots=True)
class ReadingFence:
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class TakingFence:
    attempt: int
    fence: Fence
    read: object


@dataclass(frozen=True, slots=True)
class FenceTaken:
    fence: Fence


@dataclass(frozen=True, slots=True)
class FenceDenied:
    error: errors.FrazilError


@dataclass(frozen=True, slots=True)
class Register:
    """What the arbiter knows: the newest fence, and its handle for the compare-and-set."""

    newest: Fence | None
    read: object


State = ReadingFence | TakingFence | FenceTaken | FenceDenied


def advance(state: State, answer: Register | CommitAnswer, owner: UUID, floor: int = 0) -> State:
    """`floor` is the highest generation known from elsewhere: a register that was lost starts above it."""
    match state, answer:
        case ReadingFence(), Register(Fence() as newest, _) if newest.owner == owner:
            return FenceTaken(newest)
        case ReadingFence(attempt), Register(newest, read):
            generation = max(floor, newest.generation if newest else 0) + 1
            return TakingFence(attempt, Fence(generation, owner), read)
        case TakingFence(_, fence, _), Accepted():
            return FenceTaken(fence)
        case TakingFence(), Early():
            return FenceDenied(clock_error(answer, "the register of pipelines"))
        case ((ReadingFence(attempt) | TakingFence(attempt)), (Conflicted(reason) | Unknown(reason))):
            return ReadingFence(attempt + 1) if attempt < ATTEMPTS_MAX else FenceDenied(_contended(reason))
        case TakingFence(), Refused(reason, hint):
            return FenceDenied(_refused(reason, hint))
        case _:
            raise AssertionError(f"{answer} cannot follow {state}")


def take_fence(job: JobId, arbiter: Arbiter, clock: Clock, floor: int = 0) -> Fence:
    """Makes this process the newest coordinator of the pipeline. Every older one is fenced from its next commit on.

    Raises CatalogUnavailable if the register cannot be written, CatalogRefused if it may not be.
    """
    owner = clock.new_uuid()
    state: State = ReadingFence()
    while isinstance(state, ReadingFence | TakingFence):
        if isinstance(state, ReadingFence):
            clock.wait(EPOCHS.before(state.attempt, clock.jitter()))
            answer: Register | CommitAnswer = _look(job, arbiter)
        else:
            answer = _take(job, arbiter, state)
        state = advance(state, answer, owner, floor)
    if isinstance(state, FenceDenied):
        raise state.error
    return state.fence


def _look(job: JobId, arbiter: Arbiter) -> Register | Unknown:
    try:
        return Register(*arbiter.newest(job))
    except errors.Terminal:
        raise
    except Exception as error:
        return Unknown(f"{type(error).__name__}: {error}")


def _take(job: JobId, arbiter: Arbiter, state: TakingFence) -> CommitAnswer:
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
