"""A running coordinator looks whether it was replaced."""

from __future__ import annotations

from datetime import UTC, datetime
from threading import Event
from uuid import UUID

import pytest

from frazil.commit.admission import Coordinator
from frazil.errors import Fenced
from frazil.ingest.loop.fence_watch import LOOK_SECONDS, FenceWatch
from frazil.model.commit import CommitAnswer, Conflicted
from frazil.model.ids import JobId
from frazil.model.ledger import Fence

OURS, THEIRS = Fence(1, UUID(int=1)), Fence(2, UUID(int=2))


class HandClock:
    """Time passes when the test says so."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds

    def wait(self, seconds: float, until: Event | None = None) -> bool:
        self.seconds += seconds
        return False

    def new_uuid(self) -> UUID:
        return UUID(int=9)

    def jitter(self) -> float:
        return 0.0


class Register:
    def __init__(self) -> None:
        self.fence: Fence | None = OURS
        self.looks = 0

    def newest(self, job: JobId) -> tuple[Fence | None, object]:
        self.looks += 1
        return self.fence, None

    def take(self, job: JobId, fence: Fence, read: object) -> CommitAnswer:
        return Conflicted("not in this test")


def test_a_coordinator_that_was_replaced_stops_at_its_next_look() -> None:
    """H12: even if it never meets the newer fence on a table."""
    clock, register = HandClock(), Register()
    succession = FenceWatch(register, clock, Coordinator(job=JobId("shop"), fence=OURS, incarnation=""))
    register.fence = THEIRS
    clock.seconds += LOOK_SECONDS
    with pytest.raises(Fenced, match="2-00000000"):
        succession.check()


def test_looks_are_rare_and_change_nothing_while_nobody_took_over() -> None:
    clock, register = HandClock(), Register()
    succession = FenceWatch(register, clock, Coordinator(job=JobId("shop"), fence=OURS, incarnation=""))
    for _ in range(40):
        succession.check()
        clock.seconds += LOOK_SECONDS / 4
    assert register.looks == 9
