"""What a table holds, in numbers that are there anyway: nobody opens a file for them.

    the newest snapshot's summary --at(head)--> TableStats --with_commit(plan)--> TableStats after our own commit
                                                    `-- again from the summary after every maintenance

Between two looks at the summary, commits of others are not in it, and manifests are a guess. That is good enough to say
when a table should be looked at; what there is to do is for the plan of each action to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from frazil.model.commit import CommitPlan
from frazil.model.files import FileKind, LiveDelete, WrittenFile
from frazil.model.ledger import TableHead


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStats:
    """`position_deletes` and `equality_deletes` are deleted rows and deleted keys, not files."""

    data_files: int = 0
    delete_files: int = 0
    records: int = 0
    position_deletes: int = 0
    equality_deletes: int = 0
    size: int = 0
    snapshots: int = 0
    manifests: int = 0

    @classmethod
    def at(cls, head: TableHead) -> TableStats:
        """Whoever wrote it."""
        facts = head.ancestry[0].summary if head.ancestry else {}
        return cls(
            data_files=_number(facts, "total-data-files"),
            delete_files=_number(facts, "total-delete-files"),
            records=_number(facts, "total-records"),
            position_deletes=_number(facts, "total-position-deletes"),
            equality_deletes=_number(facts, "total-equality-deletes"),
            size=_number(facts, "total-files-size"),
            snapshots=len(head.ancestry),
            manifests=_number(facts, "manifests-created") + _number(facts, "manifests-kept"),
        )

    def with_commit(self, plan: CommitPlan) -> TableStats:
        """What a commit has added and taken away."""
        data, came, went = plan.data_files, plan.delete_files, plan.removed_deletes
        return TableStats(
            data_files=self.data_files + len(data),
            delete_files=max(0, self.delete_files + len(came) - len(went)),
            records=self.records + sum(file.records for file in data),
            position_deletes=max(0, self.position_deletes + _rows(came, FileKind.POSITION_DELETE) - _rows(went)),
            equality_deletes=self.equality_deletes + _rows(came, FileKind.EQUALITY_DELETE),
            size=self.size + sum(file.size for file in data),
            snapshots=self.snapshots + 1,
            manifests=self.manifests + bool(data) + bool(came),
        )

    @property
    def rows(self) -> int | None:
        """None if equality deletes hide it: nobody knows how many rows each of them takes away."""
        return None if self.equality_deletes else max(0, self.records - self.position_deletes)

    @property
    def delete_ratio(self) -> float:
        """Deleted rows, for each row there is. A key that an equality delete names counts as one."""
        deleted = self.position_deletes + self.equality_deletes
        return min(1.0, deleted / self.records) if self.records else 0.0

    @property
    def deletes_per_file(self) -> float:
        return self.delete_files / self.data_files if self.data_files else 0.0


@dataclass(frozen=True, slots=True)
class Added:
    """What our own commits have brought, of those that brought any file."""

    commits: int = 0
    files: int = 0
    size: int = 0

    def with_commit(self, plan: CommitPlan) -> Added:
        data = plan.data_files
        return Added(self.commits + 1, self.files + len(data), self.size + sum(file.size for file in data))

    def since(self, before: Added) -> Added:
        return Added(self.commits - before.commits, self.files - before.files, self.size - before.size)


def _rows(deletes: Iterable[WrittenFile | LiveDelete], kind: FileKind = FileKind.POSITION_DELETE) -> int:
    return sum(delete.records for delete in deletes if delete.kind is kind)


def _number(facts: Mapping[str, str], name: str) -> int:
    """Other engines may write no summary, or a part of it."""
    text = facts.get(name, "0")
    return int(text) if text.isdecimal() else 0
