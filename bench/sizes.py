"""How much is measured: all of it, a smoke test of about two minutes, or just enough to run every line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """`tables` are the row counts that epochs of `changes` go into, the smallest first. Rounds are measured after
    one that warms up."""

    changes: int
    tables: tuple[int, ...]
    rounds: int
    slow_rounds: int
    small_changes: int
    small_rounds: int
    read_rows: int
    read_after: tuple[int, ...]
    read_rounds: int
    warm_up: int
    behind: int
    behind_epochs: int
    decoded: int
    first_load: int
    commits: int
    memory_changes: int
    mongo_documents: int
    mongo_changes: int
    upkeep_epochs: int
    upkeep_naptime: str
    upkeep_rounds: int


FULL = Sizes(
    changes=50_000,
    tables=(100_000, 1_000_000, 5_000_000),
    rounds=5,
    slow_rounds=3,
    small_changes=1_000,
    small_rounds=12,
    read_rows=1_000_000,
    read_after=(1, 20, 100),
    read_rounds=3,
    warm_up=500_000,
    behind=5_000_000,
    behind_epochs=10,
    decoded=2_000_000,
    first_load=2_000_000,
    commits=40,
    memory_changes=300_000,
    mongo_documents=1_000_000,
    mongo_changes=500_000,
    upkeep_epochs=100,
    upkeep_naptime="60s",
    upkeep_rounds=25,
)
QUICK = Sizes(
    changes=5_000,
    tables=(10_000, 50_000),
    rounds=2,
    slow_rounds=1,
    small_changes=1_000,
    small_rounds=3,
    read_rows=20_000,
    read_after=(1, 3),
    read_rounds=1,
    warm_up=100_000,
    behind=200_000,
    behind_epochs=4,
    decoded=100_000,
    first_load=100_000,
    commits=8,
    memory_changes=50_000,
    mongo_documents=50_000,
    mongo_changes=20_000,
    upkeep_epochs=10,
    upkeep_naptime="1s",
    upkeep_rounds=5,
)
TINY = Sizes(
    changes=200,
    tables=(500, 1_000),
    rounds=1,
    slow_rounds=1,
    small_changes=50,
    small_rounds=1,
    read_rows=500,
    read_after=(1, 2),
    read_rounds=1,
    warm_up=1_000,
    behind=2_000,
    behind_epochs=2,
    decoded=1_000,
    first_load=1_000,
    commits=2,
    memory_changes=500,
    mongo_documents=500,
    mongo_changes=200,
    upkeep_epochs=3,
    upkeep_naptime="500ms",
    upkeep_rounds=1,
)
