"""Takes over a pipeline: one compare-and-set on its row in the register of pipelines.

    newest fence --ours already?--> taken       (a lost answer whose request had landed)
         ^       --otherwise--> generation + 1, our owner --accepted--> taken
         |                                                --refused---> CatalogRefused
         +--- conflict, no answer (`retry`) --------------'

Two starters may read one generation; the compare-and-set lets one of them take the next, and the other looks
again and takes the one after (H45).
"""

from __future__ import annotations

from dataclasses import replace

from frazil import errors
from frazil.clock import Clock
from frazil.commit.machine import EPOCHS, clock_error
from frazil.model.commit import Conflicted, Early, Refused, Unknown
from frazil.model.ids import JobId
from frazil.model.ledger import Fence
from frazil.model.ports import Arbiter
from frazil.retry import Attempt, commit_with_retry

FENCES = replace(EPOCHS, attempts=10)


def take_fence(job: JobId, arbiter: Arbiter, clock: Clock, floor: int = 0) -> Fence:
    """Makes this process the newest coordinator of the pipeline. Every older one is fenced from its next commit on.
    `floor` is the highest generation known from elsewhere: a register that was lost starts above it.

    Raises CatalogUnavailable if the register cannot be written, CatalogRefused if it may not be, ClockBehind.
    """
    owner = clock.new_uuid()

    def once(_lost: int) -> Attempt[Fence | None]:
        try:
            newest, read = arbiter.newest(job)
            if newest is not None and newest.owner == owner:
                return Attempt(newest)
            fence = Fence(max(floor, newest.generation if newest else 0) + 1, owner)
            answer = arbiter.take(job, fence, read)
        except errors.Terminal:
            raise
        except Exception as error:
            return Attempt(None, Conflicted(f"{type(error).__name__}: {error}"))
        match answer:
            case Early():
                raise clock_error(answer, "the register of pipelines")
            case Unknown(reason):
                # Should it have landed, the next look finds it, and one that nobody looks for again fences rightly.
                answer = Conflicted(reason)
            case Refused(reason, hint):
                needs = "The pipeline needs to create and write tables in the namespace `_frazil`."
                answer = Refused(reason, hint or needs)
        return Attempt(fence, answer)

    what = "the pipeline could not be taken over"
    hint = "Check that the catalog answers, and that only one process runs this pipeline."
    fence, _ = commit_with_retry(what, once, clock, backoff=FENCES, hint=hint)
    assert fence is not None
    return fence
