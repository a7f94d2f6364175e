"""Puts small manifests together once they have piled up, so that planning a query opens few of them.

    manifests of a head --small ones of one kind and spec, enough of them?--> ManifestPlan
        --> head again --> the same question --> RewriteManifests, sent once --conflict, no answer--> look again

Nothing is worked out beforehand, so a head that moved costs nothing: the question is asked anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from frazil.clock import Clock
from frazil.iceberg.tables.manifests import ManifestCommitter
from frazil.maintenance.commit_rewrite import commit_rewrite, summary_of
from frazil.model.files import LiveManifest
from frazil.model.ids import TableName
from frazil.model.ledger import TableHead
from frazil.retry import Attempt

ACTION = "manifests"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestSettings:
    """A manifest below half of `target_bytes` is small; fewer than `min_manifests` small ones are left alone. One that
    tells only of what went is dropped by the next commit; with `drops_empty`, for a table to which none may come soon,
    by this one."""

    min_manifests: int = 20
    target_bytes: int = 8 << 20
    drops_empty: bool = False

    def __post_init__(self) -> None:
        if self.min_manifests < 2 or self.target_bytes < 1:
            raise ValueError("min_manifests begins at 2, and target_bytes at 1")


@dataclass(frozen=True, slots=True)
class ManifestPlan:
    table: TableName
    manifests: tuple[LiveManifest, ...]
    settings: ManifestSettings

    @property
    def reason(self) -> str:
        return f"{len(self.manifests)} manifests of {sum(one.size for one in self.manifests)} bytes"

    @property
    def counts(self) -> dict[str, int]:
        return {"manifests": len(self.manifests), "entries": sum(one.files for one in self.manifests)}


def plan_manifests(
    table: TableName, manifests: Sequence[LiveManifest], settings: ManifestSettings | None = None
) -> ManifestPlan | None:
    """Pure. None if nothing has piled up."""
    settings = settings or ManifestSettings()
    by_kind: dict[tuple[bool, int], list[LiveManifest]] = {}
    for manifest in manifests:
        if manifest.files and manifest.size < settings.target_bytes / 2:
            by_kind.setdefault((manifest.deletes, manifest.spec_id), []).append(manifest)
    piles = [pile for _, pile in sorted(by_kind.items()) if len(pile) >= settings.min_manifests]
    if settings.drops_empty:
        piles.append([manifest for manifest in manifests if not manifest.files])
    chosen = tuple(manifest for pile in piles for manifest in pile)
    return ManifestPlan(table, chosen, settings) if chosen else None


@dataclass(frozen=True, slots=True)
class Merged:
    """`snapshot_id` is None if nothing was left to do when it looked again."""

    snapshot_id: int | None
    manifests: int = 0


class MergeManifests:
    """The action for all tables of a lake. Safe to be used from several threads."""

    name = ACTION

    def __init__(self, committer: ManifestCommitter, clock: Clock) -> None:
        self._committer = committer
        self._clock = clock

    def plan(self, table: TableName, head: TableHead, settings: ManifestSettings | None = None) -> ManifestPlan | None:
        """None if nothing has piled up."""
        return plan_manifests(table, self._committer.manifests(table, head), settings)

    def perform(self, plan: ManifestPlan) -> Merged:
        """Raises Transient if others were faster every time, OutcomeUnknown if a commit was never confirmed, and
        CatalogRefused."""
        table, run = plan.table, self._clock.new_uuid()
        summary = summary_of(ACTION, run)

        def attempt(head: TableHead) -> Attempt[int]:
            current = self.plan(table, head, plan.settings)
            if current is None:
                return Attempt(0)
            paths = [one.path for one in current.manifests]
            return Attempt(len(paths), self._committer.merge_manifests(table, head, paths, summary))

        merged, snapshot_id = commit_rewrite(
            table, run, "the merge of its manifests", self._committer.head, attempt, self._clock
        )
        return Merged(snapshot_id, merged)
