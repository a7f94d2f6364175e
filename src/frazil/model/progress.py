"""How far a first load is, for people."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """`done` rows are read; `total` is what the source estimated when the load began, and may be wrong."""

    done: int
    total: int

    def __post_init__(self) -> None:
        if self.done < 0 or self.total < 0:
            raise ValueError(f"a load cannot have read {self.done} of {self.total}")
