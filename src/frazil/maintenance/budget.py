"""How many bytes rewrites may still read: a bucket that fills with the hours. Pure.

level   +--------- full: what one hour brings, never more, so that a quiet day is no licence for a storm
        |  refill: per_hour / 3600 a second
     0 -+- - - - - below it nothing begins
        |  a rewrite that was begun may overdraw it: one large group must not wait for ever
        v  and what follows waits until that is paid
"""

from __future__ import annotations

from dataclasses import dataclass, replace

_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Bucket:
    """`level` bytes were left `at` that moment of a monotonic clock."""

    per_hour: int
    level: float
    at: float

    def __post_init__(self) -> None:
        if self.per_hour < 1:
            raise ValueError("an hour brings one byte at least")
        if self.level > self.per_hour:
            raise ValueError("a bucket holds what one hour brings")

    @classmethod
    def full(cls, per_hour: int, at: float) -> Bucket:
        return cls(per_hour, per_hour, at)

    def left(self, now: float) -> int:
        """Bytes that may be read now; 0 or less if nothing may begin."""
        return int(self._at(now).level)

    def taken(self, size: int, now: float) -> Bucket:
        current = self._at(now)
        return replace(current, level=current.level - size)

    def seconds_until(self, now: float) -> float:
        """How long until something may begin; 0 if it may now."""
        missing = 1.0 - self._at(now).level
        return max(0.0, missing * _HOUR / self.per_hour)

    def _at(self, now: float) -> Bucket:
        """A clock that stands still, or goes back, brings nothing."""
        passed = max(0.0, now - self.at)
        return replace(
            self, level=min(self.per_hour, self.level + passed * self.per_hour / _HOUR), at=max(self.at, now)
        )
