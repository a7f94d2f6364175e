"""All snapshots of a table and what names them, at one moment; and which of them are to go.

    references   main: s9   frazil_shop: s8   frazil_keep_2026-03-01: s4   frazil_shop_resync: s12 (branch)
    snapshots    s9 -> s8 -> s7 -> (expired)      s4 (its parent is gone)      s12 -> s11 -> s7      s6 (rolled back)

`TableHead` shows main alone, which is what publishing needs; retention must see all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from frazil.model.ledger import SnapshotFacts

MAIN = "main"
GC_PROPERTY = "gc.enabled"


@dataclass(frozen=True, slots=True)
class Reference:
    """A branch or a tag."""

    snapshot_id: int
    is_branch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSnapshots:
    """`base` is the lake's own handle to exactly this metadata; a commit made with it can only land on it."""

    uuid: str
    snapshots: Mapping[int, SnapshotFacts]
    references: Mapping[str, Reference]
    properties: Mapping[str, str] = field(default_factory=dict)
    base: object = field(default=None, compare=False, repr=False)

    @property
    def may_be_cleaned(self) -> bool:
        """False for a table that says it shares its files with others (`gc.enabled=false`)."""
        return self.properties.get(GC_PROPERTY, "true").lower() != "false"

    def ancestry(self, reference: str = MAIN) -> tuple[SnapshotFacts, ...]:
        """From what the reference names back to the oldest one that is still there; empty if there is no such
        reference."""
        return tuple(self._back_from(reference))

    def _back_from(self, reference: str) -> Iterator[SnapshotFacts]:
        named = self.references.get(reference)
        at = None if named is None else named.snapshot_id
        seen = set()
        while at is not None and at in self.snapshots and at not in seen:
            seen.add(at)
            yield self.snapshots[at]
            at = self.snapshots[at].parent_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """Snapshots that go, tags that are set (by name, on a snapshot) and tags that are dropped: one commit."""

    removed: frozenset[int] = frozenset()
    tags: Mapping[str, int] = field(default_factory=dict)
    dropped_tags: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if both := self.removed.intersection(self.tags.values()):
            raise ValueError(f"snapshot {min(both)} cannot be tagged and removed at once")
        if twice := self.dropped_tags.intersection(self.tags):
            raise ValueError(f"tag {min(twice)} cannot be set and dropped at once")

    def check_against(self, table: TableSnapshots) -> None:
        """Raises ValueError if a snapshot that a branch or a tag names afterwards were removed, or does not exist."""
        left = {name: ref.snapshot_id for name, ref in table.references.items() if name not in self.dropped_tags}
        for name, snapshot_id in {**left, **self.tags}.items():
            if snapshot_id in self.removed:
                raise ValueError(f"{name} names snapshot {snapshot_id}, which must therefore not be removed")
        if unknown := {*self.removed, *self.tags.values()} - table.snapshots.keys():
            raise ValueError(f"there is no snapshot {min(unknown)}")
