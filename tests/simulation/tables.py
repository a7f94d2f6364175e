"""An Iceberg catalog of values: metadata, snapshots, sequence numbers, properties, tags, and files of rows.

    land(table, base, plan):  current metadata is `base`?  -> new metadata with one more snapshot
                              otherwise                    -> None, a proven conflict

An equality delete applies to data with a strictly lower sequence number, a vector to the one file it names. Files are
written once and for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from frazil.model.commit import CommitPlan
from frazil.model.ledger import SnapshotFacts, TableHead
from frazil.model.names import JobId, TableName


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
    """`retained` are the snapshots that expiry has left; `main` is None for an empty table."""

    uuid: str
    retained: Mapping[int, Snapshot] = field(default_factory=dict)
    main: int | None = None
    tags: Mapping[str, int] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    last_sequence: int = 0

    def ancestry(self) -> Iterator[Snapshot]:
        at = self.main
        while at is not None and at in self.retained:
            yield self.retained[at]
            at = self.retained[at].parent

    def head(self) -> TableHead:
        ancestry = tuple(snapshot.facts for snapshot in self.ancestry())
        return TableHead(uuid=self.uuid, ancestry=ancestry, properties=self.properties, base=self)


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
        if self.checks_base and self.tables[table] is not base:
            return None
        sequence = base.last_sequence + 1
        files = tuple((file.path, sequence) for file in plan.files)
        removed = {delete.path for delete in plan.removed_deletes}
        left = tuple(entry for entry in self._live(base) if entry[0] not in removed)
        if len(left) + len(removed) != len(self._live(base)):
            raise Violation(f"{table}: a delete file is removed that is not there")
        staged, snapshot = self._append(base, plan.summary, (*left, *files))
        if plan.forget:
            properties = {k: v for k, v in base.properties.items() if k != self.job.ledger_property}
            tags = {k: v for k, v in base.tags.items() if k != self.job.tag}
        else:
            entry = plan.entry.to_property(snapshot.id, sequence)
            properties = {**base.properties, self.job.ledger_property: entry}
            tags = {**base.tags, self.job.tag: snapshot.id}
        self.tables[table] = replace(staged, properties=properties, tags=tags)
        return snapshot

    def foreign(self, table: TableName, files: tuple[tuple[str, int], ...], operation: str) -> Snapshot:
        """Somebody else's snapshot; a data sequence number of 0 stands for the snapshot's own."""
        base = self.tables[table]
        files = tuple((path, sequence or base.last_sequence + 1) for path, sequence in files)
        self.tables[table], snapshot = self._append(base, {"operation": operation}, files)
        return snapshot

    def roll_back(self, table: TableName, to: int) -> None:
        self.tables[table] = replace(self.tables[table], main=to)

    def expire(self, table: TableName, keep: int) -> None:
        """Keeps the newest snapshots of main and what tags hold."""
        metadata = self.tables[table]
        kept = {snapshot.id for _, snapshot in zip(range(keep), metadata.ancestry(), strict=False)}
        kept.update(metadata.tags.values())
        retained = {id_: snapshot for id_, snapshot in metadata.retained.items() if id_ in kept}
        self.tables[table] = replace(metadata, retained=retained)

    def true_ancestry(self, snapshot_id: int | None) -> Iterator[Snapshot]:
        """With what has been expired."""
        while snapshot_id is not None:
            snapshot = self.all_snapshots[snapshot_id]
            yield snapshot
            snapshot_id = snapshot.parent

    def _live(self, base: Metadata) -> tuple[tuple[str, int], ...]:
        return () if base.main is None else base.retained[base.main].files

    def _append(
        self, base: Metadata, summary: Mapping[str, str], files: tuple[tuple[str, int], ...]
    ) -> tuple[Metadata, Snapshot]:
        snapshot = Snapshot(len(self.all_snapshots) + 1, base.main, base.last_sequence + 1, summary, files)
        self.all_snapshots[snapshot.id] = snapshot
        retained = {**base.retained, snapshot.id: snapshot}
        return replace(base, retained=retained, main=snapshot.id, last_sequence=snapshot.sequence), snapshot
