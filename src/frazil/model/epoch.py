"""Epochs: the changes of one pipeline in (lower, upper], where upper is resolved.

A window is a run of consecutive epochs that one Spark job reads and writes: catching up over many
resolved timestamps costs one pass over the files, and still one snapshot for each of them.

    published   R1            R2            R3            newest resolved
    ----|-------|-------------|-------------|
    lower       `-- epoch 0 --'-- epoch 1 --'      uppers = (R1, R2, R3): three epochs, one window
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from frazil.model.position import Position, is_before


@dataclass(frozen=True, slots=True)
class Frontier:
    """How far a table is published. `notes` are the source's own: what it must remember to go on
    from here (for CockroachDB the files that still hold rows beyond the position)."""

    position: Position
    notes: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsistentEpoch:
    """A moment of the source at which all tables of a pipeline can be read together. `snapshots` are by target; None
    where a table had nothing yet. `recorded_at` is None if nobody recorded it: then it follows from the ledgers."""

    resolved: str
    snapshots: Mapping[str, int | None]
    recorded_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive epochs to be read at once; `uppers` ascend."""

    uppers: tuple[Position, ...]

    def __post_init__(self) -> None:
        if not self.uppers:
            raise ValueError("a window has at least one epoch")
        if any(not is_before(a, b) for a, b in zip(self.uppers, self.uppers[1:], strict=False)):
            raise ValueError(f"the uppers of a window must ascend: {[u.text for u in self.uppers]}")

    @property
    def upper(self) -> Position:
        return self.uppers[-1]

    def first(self, epochs: int) -> Window:
        return Window(self.uppers[:epochs])
