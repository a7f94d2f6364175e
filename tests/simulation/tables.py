"""An Iceberg catalog of values: metadata, snapshots, sequence numbers, properties, tags, branches, and files of rows.

    land(table, base, plan):  current metadata is `base`?  -> new metadata with one more snapshot
                              otherwise                    -> None, a proven conflict
    clear, load, adopt, drop: the same for the branch on which the table is loaded anew

An equality delete applies to data with a strictly lower sequence number, a vector to the one file it names. Files are
written once and for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from frazil.model.commit import ClearPlan, CommitPlan
from frazil.model.ids import JobId, TableName
from frazil.model.ledger import BRANCH_FACT, BranchedHead, SnapshotFacts, TableHead
from frazil.model.table import FieldForm, TableForm


class Violation(BaseException):
    """What must never happen has happened. Not an Exception: no handler of the production code may swallow it."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`files` are (path, data sequence number) of all that is live."""

    id: int
    parent: int | None
    sequence: int
    summary: Mapping[str, str]
    files: tuple[tuple[str, int], ...]

    @property
    def facts(self) -> SnapshotFacts:
        return SnapshotFacts(self.id, self.parent, self.sequence, 0, self.summary)


@dataclass(frozen=True, slots=True)
class Metadata:
    """`retained` are the snapshots that expiry has left; `main` is None for an empty table, `branch` for one that is
    not being loaded anew. `value_id` is the field id of the column of values, another one once somebody has dropped and
    added it again."""

    uuid: str
    retained: Mapping[int, Snapshot] = field(default_factory=dict)
    main: int | None = None
    tags: Mapping[str, int] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    last_sequence: int = 0
    branch: int | None = None
    value_id: int = 2

    def ancestry(self, at: int | None = None) -> Iterator[Snapshot]:
        at = self.main if at is None else at
        while at is not None and at in self.retained:
            yield self.retained[at]
            at = self.retained[at].parent

    def head(self) -> TableHead:
        ancestry = tuple(snapshot.facts for snapshot in self.ancestry())
        return TableHead(uuid=self.uuid, ancestry=ancestry, properties=self.properties, form=self.form, base=self)

    @property
    def form(self) -> TableForm:
        fields = {1: FieldForm(("key",), "long", 1), self.value_id: FieldForm(("value",), "string", self.value_id)}
        return TableForm(fields=fields, specs={0: ()})

    def heads(self) -> BranchedHead:
        if self.branch is None:
            return BranchedHead(self.head(), None)
        ancestry = tuple(snapshot.facts for snapshot in self.ancestry(self.branch))
        branch = TableHead(uuid=self.uuid, ancestry=ancestry, properties={}, form=self.form, base=self)
        return BranchedHead(self.head(), branch)


@dataclass(frozen=True, slots=True)
class Rows:
    """A data file has values; a delete file has keys, or a vector: a data file and positions in it."""

    values: tuple[tuple[int, str], ...] = ()
    deleted: tuple[int, ...] = ()
    vector: tuple[str, tuple[int, ...]] | None = None


class Storage:
    def __init__(self) -> None:
        self.files: dict[str, Rows] = {}

    def write(self, path: str, rows: Rows) -> None:
        if path in self.files:
            raise Violation(f"the path {path} was written a second time")
        self.files[path] = rows

    def contents(self, snapshot: Snapshot | None) -> dict[int, str]:
        """All live rows, by key. Two live rows of one key are a violation."""
        live: dict[int, str] = {}
        for path, _, key, value in self.rows(snapshot):
            if key in live:
                raise Violation(f"key {key} lives twice, in {path} too")
            live[key] = value
        return live

    def rows(self, snapshot: Snapshot | None) -> Iterator[tuple[str, int, int, str]]:
        """Path, sequence number, key and value of all live rows."""
        if snapshot is None:
            return
        vectors = self._vectors(snapshot)
        deleted_at: dict[int, int] = {}
        for path, sequence in snapshot.files:
            for key in self.files[path].deleted:
                deleted_at[key] = max(sequence, deleted_at.get(key, 0))
        for path, sequence in snapshot.files:
            for position, (key, value) in enumerate(self.files[path].values):
                if deleted_at.get(key, 0) <= sequence and position not in vectors.get(path, ()):
                    yield path, sequence, key, value

    def _vectors(self, snapshot: Snapshot) -> dict[str, tuple[int, ...]]:
        """By data file. Two for one file (H23), or one for a file that is gone (H47), are violations."""
        paths = {path for path, _ in snapshot.files}
        found: dict[str, tuple[int, ...]] = {}
        for path in paths:
            if (vector := self.files[path].vector) is not None:
                data_file, positions = vector
                if data_file in found:
                    raise Violation(f"{data_file} has two vectors in snapshot {snapshot.id}")
                if data_file not in paths:
                    raise Violation(f"a vector for {data_file}, which is gone, in snapshot {snapshot.id}")
                found[data_file] = positions
        return found


class Catalog:
    """`checks_base` off is a planted fault: a catalog without compare-and-set."""

    def __init__(self, job: JobId, checks_base: bool = True) -> None:
        self.job = job
        self.checks_base = checks_base
        self.tables: dict[TableName, Metadata] = {}
        self.all_snapshots: dict[int, Snapshot] = {}
        self._created = 0

    def create(self, table: TableName) -> None:
        self._created += 1
        self.tables[table] = Metadata(uuid=f"table-{self._created}")

    def land(self, table: TableName, base: object, plan: CommitPlan) -> Snapshot | None:
        """One snapshot with its ledger on exactly this base, or None."""
        assert isinstance(base, Metadata)
        if self._moved(table, base):
            return None
        sequence = base.last_sequence + 1
        snapshot = self._append(base, base.main, plan.summary, self._after(table, base, base.main, plan))
        staged = _with(base, snapshot, main=snapshot.id)
        if plan.forget:
            properties = {k: v for k, v in base.properties.items() if k != self.job.ledger_property}
            tags = {k: v for k, v in base.tags.items() if k != self.job.tag}
        else:
            entry = plan.entry.to_property(snapshot.id, sequence)
            properties = {**base.properties, self.job.ledger_property: entry}
            tags = {**base.tags, self.job.tag: snapshot.id}
        self.tables[table] = replace(staged, properties=properties, tags=tags)
        return snapshot

    def clear(self, table: TableName, base: Metadata, plan: ClearPlan, keeps_rows: bool = False) -> Snapshot | None:
        """`keeps_rows` is a planted fault."""
        if self._moved(table, base):
            return None
        parent = base.main if base.branch is None else base.branch
        snapshot = self._append(base, parent, plan.summary, self._live(base, parent) if keeps_rows else ())
        self.tables[table] = _with(base, snapshot, branch=snapshot.id)
        return snapshot

    def load(self, table: TableName, base: Metadata, plan: CommitPlan) -> Snapshot | None:
        """As `land`, on the branch."""
        if self._moved(table, base):
            return None
        summary = {**plan.summary, BRANCH_FACT: self.job.resync_branch}
        snapshot = self._append(base, base.branch, summary, self._after(table, base, base.branch, plan))
        self.tables[table] = _with(base, snapshot, branch=snapshot.id)
        return snapshot

    def adopt(self, table: TableName, base: Metadata, plan: CommitPlan) -> Snapshot | None:
        if self._moved(table, base):
            return None
        snapshot = self._append(base, base.branch, plan.summary, self._live(base, base.branch))
        entry = plan.entry.to_property(snapshot.id, snapshot.sequence)
        self.tables[table] = replace(
            _with(base, snapshot, main=snapshot.id),
            branch=None,
            properties={**base.properties, self.job.ledger_property: entry},
            tags={**base.tags, self.job.tag: snapshot.id},
        )
        return snapshot

    def drop(self, table: TableName, base: Metadata) -> bool:
        if self._moved(table, base):
            return False
        self.tables[table] = replace(base, branch=None)
        return True

    def foreign(self, table: TableName, files: tuple[tuple[str, int], ...], operation: str) -> Snapshot:
        """Somebody else's snapshot; a data sequence number of 0 stands for the snapshot's own."""
        base = self.tables[table]
        files = tuple((path, sequence or base.last_sequence + 1) for path, sequence in files)
        snapshot = self._append(base, base.main, {"operation": operation}, files)
        self.tables[table] = _with(base, snapshot, main=snapshot.id)
        return snapshot

    def roll_back(self, table: TableName, to: int) -> None:
        self.tables[table] = replace(self.tables[table], main=to)

    def replace_column(self, table: TableName) -> None:
        metadata = self.tables[table]
        self.tables[table] = replace(metadata, value_id=metadata.value_id + 1)

    def set_property(self, table: TableName, name: str, value: str | None) -> None:
        metadata = self.tables[table]
        kept = {key: text for key, text in metadata.properties.items() if key != name}
        self.tables[table] = replace(metadata, properties=kept if value is None else {**kept, name: value})

    def expire(self, table: TableName, keep: int) -> None:
        """Keeps the newest snapshots of main and of the branch, and what tags hold."""
        metadata = self.tables[table]
        heads = [at for at in (metadata.main, metadata.branch) if at is not None]
        kept = {snapshot.id for at in heads for _, snapshot in zip(range(keep), metadata.ancestry(at), strict=False)}
        kept.update(metadata.tags.values())
        retained = {id_: snapshot for id_, snapshot in metadata.retained.items() if id_ in kept}
        self.tables[table] = replace(metadata, retained=retained)

    def true_ancestry(self, snapshot_id: int | None) -> Iterator[Snapshot]:
        """With what has been expired."""
        while snapshot_id is not None:
            snapshot = self.all_snapshots[snapshot_id]
            yield snapshot
            snapshot_id = snapshot.parent

    def _moved(self, table: TableName, base: Metadata) -> bool:
        return self.checks_base and self.tables[table] is not base

    def _live(self, base: Metadata, at: int | None) -> tuple[tuple[str, int], ...]:
        return () if at is None else base.retained[at].files

    def _after(self, table: TableName, base: Metadata, at: int | None, plan: CommitPlan) -> tuple[tuple[str, int], ...]:
        """What is live once the plan has landed on this snapshot."""
        before, removed = self._live(base, at), {delete.path for delete in plan.removed_deletes}
        left = tuple(entry for entry in before if entry[0] not in removed)
        if any(file.schema_id != base.value_id for file in plan.files):
            raise Violation(f"{table}: values are published under a column that is gone")
        if len(left) + len(removed) != len(before):
            raise Violation(f"{table}: a delete file is removed that is not there")
        return (*left, *((file.path, base.last_sequence + 1) for file in plan.files))

    def _append(
        self, base: Metadata, parent: int | None, summary: Mapping[str, str], files: tuple[tuple[str, int], ...]
    ) -> Snapshot:
        snapshot = Snapshot(len(self.all_snapshots) + 1, parent, base.last_sequence + 1, summary, files)
        self.all_snapshots[snapshot.id] = snapshot
        return snapshot


def _with(base: Metadata, snapshot: Snapshot, **moved: int) -> Metadata:
    """The metadata with one more snapshot, where main or the branch has moved to."""
    retained = {**base.retained, snapshot.id: snapshot}
    return replace(base, retained=retained, last_sequence=snapshot.sequence, **moved)
