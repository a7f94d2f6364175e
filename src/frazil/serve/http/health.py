"""Whether a daemon works, as probes ask, and what people may ask of it.

    main loop --beat--> Pulse --health(ready, reason)--> Health --> /healthz (alive), /readyz (alive and ready)

Alive means: the main loop has turned within `PATIENCE_SECONDS`. A pipeline that waits for its source, its catalog or a
person is alive: restarting it would not help. One whose loop stands still is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from frazil.clock import Clock

PATIENCE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Health:
    """`reason` says why it is not alive or not ready, and may say more where it is."""

    alive: bool
    ready: bool
    reason: str = ""

    def __post_init__(self) -> None:
        if not (self.alive and self.ready) and not self.reason:
            raise ValueError("what does not work has a reason")


class Actions(Protocol):
    """What may be asked of a running pipeline. Each answers with a sentence about what will happen now.

    Raises ConfigError for a table that it does not know, or a configuration that does not load."""

    def reload(self) -> str: ...
    def resync(self, table: str) -> str: ...


class Pulse:
    """Knows when the main loop last turned. May be used from any thread."""

    def __init__(self, clock: Clock, patience: float = PATIENCE_SECONDS) -> None:
        self._clock = clock
        self._patience = patience
        self._last = clock.monotonic()

    def beat(self) -> None:
        self._last = self._clock.monotonic()

    def health(self, ready: bool, reason: str = "") -> Health:
        """`reason` says why the pipeline is not ready."""
        silent = self._clock.monotonic() - self._last
        if silent > self._patience:
            return Health(False, False, f"the main loop has not turned for {silent:.0f} s")
        return Health(True, ready, reason)
