"""The only reader of time and chance. Logic takes a Clock, so that a test owns both."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime
from threading import Event
from typing import Protocol
from uuid import UUID, uuid4


class Clock(Protocol):
    def now(self) -> datetime: ...
    def monotonic(self) -> float: ...
    def wait(self, seconds: float, until: Event | None = None) -> bool:
        """Waits, or less if the event is set meanwhile. True if it was set."""

    def new_uuid(self) -> UUID: ...
    def jitter(self) -> float:
        """A number in [0, 1)."""


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float, until: Event | None = None) -> bool:
        return (until or Event()).wait(seconds)

    def new_uuid(self) -> UUID:
        return uuid4()

    def jitter(self) -> float:
        return random.random()
