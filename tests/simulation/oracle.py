"""Judges every snapshot of ours the moment it lands, and every table once the world has come to rest.

on landing   continues exactly where the true ancestry of its base ends, skips no R with changes, carries no
             older fence, references no path twice, and shows the table as the source had it at R
on a branch  the same; it begins empty, and main becomes what was loaded, no earlier moment than it showed before
on rest      every change published, nothing of anybody else's lost
"""

from __future__ import annotations

from collections.abc import Mapping

from frazil.model.commit import ClearPlan, CommitPlan
from frazil.model.ids import JobId, TableName
from frazil.model.ledger import Fence, LedgerEntry
from frazil.model.position import Position, is_before

from .feed import Feed
from .tables import Catalog, Metadata, Snapshot, Storage, Violation

FOREIGN_KEYS = 1000


class Oracle:
    def __init__(self, job: JobId, catalog: Catalog, storage: Storage, feed: Feed, every_resolved: bool) -> None:
        self.job = job
        self.catalog = catalog
        self.storage = storage
        self.feed = feed
        self.every_resolved = every_resolved
        self.foreign: dict[TableName, set[int]] = {}
        self.unresolved: set[TableName] = set()
        self.landed = 0

    def newest_mark(self, snapshot_id: int | None) -> tuple[LedgerEntry | None, Fence | None]:
        """The newest own entry on the true ancestry, and the newest own fence."""
        for snapshot in self.catalog.true_ancestry(snapshot_id):
            if snapshot.summary.get("frazil.job-id") == self.job.text:
                return LedgerEntry.from_summary(snapshot.summary), Fence.parse(snapshot.summary["frazil.fence"])
        return None, None

    def on_landing(self, table: TableName, base: Metadata, snapshot: Snapshot, plan: CommitPlan) -> None:
        self.landed += 1
        what = f"{table} at {plan.entry.resolved}"
        before, fence = self.newest_mark(base.main)
        # The mark that a rewind leaves in a table without an epoch of ours carries the fence only while it is retained.
        if fence is not None and (before is not None or self._retained_mark(base)) and _older(plan.entry.fence, fence):
            raise Violation(f"{what}: fence {plan.entry.fence.label} published after {fence.label}")
        if plan.entry.operation in {"rewind", "forget"}:
            if (before is None) != plan.forget or (before is not None and before.resolved != plan.entry.resolved):
                raise Violation(f"{what}: the rewind does not state what main holds")
            self.unresolved.discard(table)
        else:
            if table in self.unresolved:
                raise Violation(f"{what}: published on a table that was rolled back")
            self._continues(table, before, plan.entry)
        self._no_path_twice(what, snapshot)
        self._shows(table, snapshot, None if plan.forget else plan.entry.resolved)

    def on_clear(self, table: TableName, base: Metadata, snapshot: Snapshot, plan: ClearPlan) -> None:
        self.landed += 1
        self._in_turn(f"{table} cleared", base, plan.fence)
        if self.storage.contents(snapshot):
            raise Violation(f"{table}: the load on a branch does not begin empty")

    def on_load(self, table: TableName, base: Metadata, snapshot: Snapshot, plan: CommitPlan) -> None:
        self.landed += 1
        what = f"{table} at {plan.entry.resolved} on its branch"
        before, fence = self.newest_mark(base.branch)
        if fence is not None and _older(plan.entry.fence, fence):
            raise Violation(f"{what}: fence {plan.entry.fence.label} published after {fence.label}")
        if plan.entry.operation == "take-over":
            if plan.files or before is None or before.resolved != plan.entry.resolved:
                raise Violation(f"{what}: who takes it over does not state what it holds")
        else:
            self._continues(table, before, plan.entry)
        self._no_path_twice(what, snapshot)
        self._shows(table, snapshot, plan.entry.resolved)
        self._of_the_source_alone(what, snapshot)

    def on_adopt(self, table: TableName, base: Metadata, snapshot: Snapshot, plan: CommitPlan) -> None:
        self.landed += 1
        what = f"{table} adopted at {plan.entry.resolved}"
        self._in_turn(what, base, plan.entry.fence)
        loaded, _ = self.newest_mark(base.branch)
        if loaded is None or (loaded.resolved, loaded.notes) != (plan.entry.resolved, plan.entry.notes):
            raise Violation(f"{what}: the branch ends at {None if loaded is None else loaded.resolved}")
        shown, _ = self.newest_mark(base.main)
        if shown is not None and is_before(plan.entry.resolved, shown.resolved):
            raise Violation(f"{what}: main showed {shown.resolved} before")
        self._shows(table, snapshot, plan.entry.resolved)
        self._of_the_source_alone(what, snapshot)
        self.foreign[table] = set()
        self.unresolved.discard(table)

    def on_acknowledge(self, position: Position | None, tables: tuple[TableName, ...]) -> None:
        """Of tables that nobody set back, every change up to here is published (H28)."""
        if position is None:
            return
        for table in tables:
            metadata = self.catalog.tables.get(table)
            entry = None if metadata is None else self.newest_mark(metadata.main)[0]
            published = None if entry is None else entry.resolved
            if is_before(published, position) and self._missing(table, published, position):
                raise Violation(f"{position} was acknowledged, {table} is published up to {published}")

    def on_agreement(self, resolved: Position, snapshots: Mapping[TableName, int | None]) -> None:
        """Of tables that nobody set back, all show what the source had at this moment."""
        for table, snapshot_id in snapshots.items():
            snapshot = None if snapshot_id is None else self.catalog.all_snapshots[snapshot_id]
            contents = self.storage.contents(snapshot)
            own = {key: value for key, value in contents.items() if key < FOREIGN_KEYS}
            if own != self.feed.truth(table, resolved):
                raise Violation(f"all are said to agree at {resolved}, and {table} shows {own} in {snapshot_id}")

    def rests(self, table: TableName) -> bool:
        """Whether all that the source has is published."""
        metadata = self.catalog.tables.get(table)
        entry = None if metadata is None else self.newest_mark(metadata.main)[0]
        return not self._missing(table, None if entry is None else entry.resolved, self.feed.resolved[-1])

    def at_rest(self, tables: tuple[TableName, ...]) -> None:
        last = self.feed.resolved[-1]
        for table in tables:
            if not self.rests(table):
                raise Violation(f"{table} rests before the source does, at {last}")
            metadata = self.catalog.tables.get(table)
            if metadata is None:
                continue
            head = None if metadata.main is None else self.catalog.all_snapshots[metadata.main]
            contents = self.storage.contents(head)
            own = {key: value for key, value in contents.items() if key < FOREIGN_KEYS}
            if own != self.feed.truth(table, last):
                raise Violation(f"{table} rests as {own}, the source has {self.feed.truth(table, last)}")
            foreign = {key for key in contents if key >= FOREIGN_KEYS}
            if metadata.branch is not None:
                raise Violation(f"{table} rests half loaded on a branch")
            if foreign != self.foreign.get(table, set()):
                raise Violation(f"{table}: foreign rows {foreign} are left of {self.foreign.get(table)}")

    def _in_turn(self, what: str, base: Metadata, ours: Fence) -> None:
        """No newer fence is on main or on the branch."""
        before, on_main = self.newest_mark(base.main)
        if before is None and not self._retained_mark(base):
            on_main = None
        _, on_branch = self.newest_mark(base.branch)
        for fence in (on_main, on_branch):
            if fence is not None and _older(ours, fence):
                raise Violation(f"{what}: by fence {ours.label} after {fence.label}")

    def _of_the_source_alone(self, what: str, snapshot: Snapshot) -> None:
        if foreign := {key for key in self.storage.contents(snapshot) if key >= FOREIGN_KEYS}:
            raise Violation(f"{what}: rows {foreign} are left that the source does not have")

    def _retained_mark(self, base: Metadata) -> bool:
        return any(snapshot.summary.get("frazil.job-id") == self.job.text for snapshot in base.ancestry())

    def _continues(self, table: TableName, before: LedgerEntry | None, entry: LedgerEntry) -> None:
        published = None if before is None else before.resolved
        if entry.lower != published:
            raise Violation(f"{table}: ({entry.lower}, {entry.resolved}] was published on top of {published}")
        if not is_before(entry.lower, entry.resolved):
            raise Violation(f"{table}: the frontier went from {entry.lower} to {entry.resolved}")
        if self.every_resolved:
            inside = [r for r in self.feed.resolved if is_before(r, entry.resolved)]
            if inside and self._missing(table, published, inside[-1], rows_only=True):
                raise Violation(f"{table}: a resolved position between {published} and {entry.resolved} was skipped")

    def _missing(self, table: TableName, published: Position | None, upper: Position, rows_only: bool = False) -> bool:
        """Whether an epoch up to `upper` had to be published, and was not. With `rows_only` a table that has no row
        yet may pass over changes that cancel each other out."""
        lower: Position | None = None
        for resolved in self.feed.resolved:
            if is_before(upper, resolved):
                break
            counts = not rows_only or published is not None or bool(self.feed.truth(table, resolved))
            if counts and is_before(published, resolved) and self.feed.changed(table, lower, resolved):
                return True
            lower = resolved
        return False

    def _no_path_twice(self, what: str, snapshot: Snapshot) -> None:
        paths = [path for path, _ in snapshot.files]
        if len(paths) != len(set(paths)):
            raise Violation(f"{what}: a path is referenced twice")

    def _shows(self, table: TableName, snapshot: Snapshot, resolved: Position | None) -> None:
        contents = self.storage.contents(snapshot)
        own = {key: value for key, value in contents.items() if key < FOREIGN_KEYS}
        if own != self.feed.truth(table, resolved):
            raise Violation(f"{table} shows {own} at {resolved}, the source had {self.feed.truth(table, resolved)}")


def _older(ours: Fence, theirs: Fence) -> bool:
    if ours.generation == theirs.generation:
        return ours.owner != theirs.owner
    return ours.generation < theirs.generation
