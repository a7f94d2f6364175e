"""Looks now and then whether another process has taken the pipeline over.

    register of pipelines --newest fence--> ours?     go on
                                            another?  Fenced

A coordinator meets a newer fence on a table only once the newer one has published there. One that keeps winning that
race would never meet it, and neither would one that has nothing to publish.
"""

from __future__ import annotations

from frazil.clock import Clock
from frazil.commit.admission import Coordinator, replaced
from frazil.model.ports import Arbiter

LOOK_SECONDS = 5.0


class FenceWatch:
    def __init__(self, arbiter: Arbiter, clock: Clock, coordinator: Coordinator) -> None:
        self._arbiter = arbiter
        self._clock = clock
        self._coordinator = coordinator
        self._looked = clock.monotonic()

    def check(self) -> None:
        """Raises Fenced if there is a successor. Costs nothing until the next look is due."""
        now = self._clock.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        job, fence = self._coordinator.job, self._coordinator.fence
        newest, _ = self._arbiter.newest(job)
        if (error := replaced(job, newest, fence)) is not None:
            raise error
