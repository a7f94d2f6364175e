"""How many bytes rewrites may still read: a bucket that fills with the hours.

level   +--------- full: what one hour brings, never more, so that a quiet day is no licence for a storm
        |  refill: per_hour / 3600 a second
     0 -+- - - - - below it nothing begins
        |  a rewrite that was begun may overdraw it: one large group must not wait for ever
        v  and what follows waits until that is paid
"""

from __future__ import annotations

from frazil.clock import Clock
from frazil.config.parse_values import bytes_text

_HOUR = 3600.0


class Allowance:
    """Of the rewrites of all tables."""

    def __init__(self, bytes_per_hour: int, clock: Clock) -> None:
        if bytes_per_hour < 1:
            raise ValueError("an hour brings one byte at least")
        self._per_hour, self._clock = bytes_per_hour, clock
        self._level, self._at = float(bytes_per_hour), clock.monotonic()

    @property
    def left(self) -> int:
        """Bytes that may be read now; 0 or less if nothing may begin."""
        return int(self._filled())

    @property
    def seconds_until(self) -> float:
        """How long until something may begin; 0 if it may now."""
        return max(0.0, 1.0 - self._filled()) * _HOUR / self._per_hour

    @property
    def wait_text(self) -> str:
        return f"waits {self.seconds_until:.0f} s: {bytes_text(self._per_hour)} of this hour are used up"

    def take(self, size: int) -> None:
        self._level = self._filled() - size

    def _filled(self) -> float:
        """A clock that stands still, or goes back, brings nothing."""
        now = max(self._at, self._clock.monotonic())
        self._level = min(self._per_hour, self._level + (now - self._at) * self._per_hour / _HOUR)
        self._at = now
        return self._level
