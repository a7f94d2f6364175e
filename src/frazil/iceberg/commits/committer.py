"""Heads and commits of tables: the Lake that the coordinator publishes to.

head(table) ------------------> TableHead with its base
live(table, head) ------------> LiveFiles of exactly this head
commit(table, head, plan) ----> TableTransaction --publish, once--> Accepted | Conflicted | Unknown | Refused

plan                         snapshot      property frazil.<job>.ledger    tag frazil_<job>
files without deletes        AppendFiles   the entry                       on the snapshot
deletes added or removed     RowDelta      the entry                       on the snapshot
files for files              RewriteFiles  none: a repair                  none
no files (heartbeat)         AppendFiles   the entry                       on the snapshot
forget                       AppendFiles   removed                         removed

What happens on other branches is in `branches`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.commits.operations import (
    AddFiles,
    Operation,
    RecordLedger,
    RemoveBranch,
    RemoveFiles,
    RemoveRows,
    RemoveTag,
    SetProperties,
    SetTag,
    TableTransaction,
    WriteSnapshot,
)
from frazil.iceberg.commits.transaction import publish, publish_many
from frazil.iceberg.tables.fields import converted_table, rewritten_table
from frazil.iceberg.tables.file_index import LiveReader
from frazil.iceberg.tables.head import MAIN, Base, head_of, parse_head, read_head, read_metadata
from frazil.iceberg.tables.tables import LoadedTable, parse_table
from frazil.model.commit import ClearPlan, CommitAnswer, CommitPlan, ReplaceFiles
from frazil.model.compaction import RewrittenTable
from frazil.model.conversion import ConvertedTable
from frazil.model.files import FileKind, LiveDelete, LiveFile, LiveFiles
from frazil.model.ids import TableName
from frazil.model.ledger import TableHead


class IcebergCommitter:
    """Implements `frazil.model.ports.Lake` on one catalog. Safe to be used from several threads."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._live = LiveReader(catalog)

    def head(self, table: TableName) -> TableHead:
        """Raises CatalogUnavailable, CatalogRefused, or TableChanged if the table is gone."""
        return read_head(self._catalog, table)

    def heads(self, table: TableName, branch: str) -> tuple[TableHead, TableHead | None]:
        """Main's head and the branch's, None if there is no such branch, both of one moment. Raises like `head`."""
        base, metadata = read_metadata(self._catalog, table)
        main = parse_head(metadata, base)
        if head_of(metadata, branch) is None:
            return main, None
        return main, parse_head(metadata, replace(base, branch=branch), branch)

    def commit(self, table: TableName, head: TableHead, plan: CommitPlan) -> CommitAnswer:
        """Lands on exactly this head or not at all; never retries by itself."""
        return self.land(base_of(table, head, MAIN), head, plan, transaction_of(plan))

    def land(self, base: Base, head: TableHead, plan: CommitPlan, transaction: TableTransaction) -> CommitAnswer:
        """As `commit`, for a plan whose transaction is special; what is known of the head's files is kept up."""

        def on_landed(snapshot_id: int, sequence_number: int) -> None:
            self._live.committed(head, plan, snapshot_id, sequence_number)

        return publish(self._catalog, base, transaction, on_landed)

    def commit_many(self, commits: Sequence[tuple[TableName, TableHead, CommitPlan]]) -> tuple[CommitAnswer, ...]:
        """Several tables in one request, each on exactly its head; never retries by itself. Only for a catalog that
        declares it."""
        return self.land_many(
            [(base_of(table, head, MAIN), head, plan, transaction_of(plan)) for table, head, plan in commits]
        )

    def land_many(
        self, commits: Sequence[tuple[Base, TableHead, CommitPlan, TableTransaction]]
    ) -> tuple[CommitAnswer, ...]:
        """As `land`, for several tables in one request."""
        transactions = [(base, transaction) for base, _, _, transaction in commits]

        def on_landed(place: int, snapshot_id: int, sequence_number: int) -> None:
            _, head, plan, _ = commits[place]
            self._live.committed(head, plan, snapshot_id, sequence_number)

        return publish_many(self._catalog, transactions, on_landed)

    def repair(self, table: TableName, head: TableHead, plan: ReplaceFiles) -> CommitAnswer:
        """As `commit`, for a snapshot that is no epoch."""
        kept = _dropped_too_soon(plan, self.live(table, head)) if plan.removed_data else ()
        return publish(self._catalog, base_of(table, head, MAIN), repair_of(plan, kept))

    def clear(self, table: TableName, head: TableHead, branch: str, plan: ClearPlan) -> CommitAnswer:
        """Deletes every row on the branch, which begins at main if it is not there yet. Lands if neither of the two has
        moved since the head of main was read, or not at all; never retries by itself."""
        base = replace(base_of(table, head, MAIN), branch=branch)
        clear = WriteSnapshot(changes=(RemoveRows(),), summary=plan.summary)
        return publish(self._catalog, base, TableTransaction((clear,), unmoved=(MAIN,)))

    def remove_branch(self, table: TableName, head: TableHead, branch: str) -> CommitAnswer:
        """Lands if neither the branch nor main has moved since the branch's head was read, or not at all; never retries
        by itself."""
        # iceberg-java asserts nothing of a branch that is removed.
        removal = TableTransaction((RemoveBranch(),), unmoved=(branch, MAIN))
        return publish(self._catalog, base_of(table, head, branch), removal)

    def loaded(self, table: TableName, head: TableHead) -> LoadedTable:
        """The table's schema, specs and version at exactly this head; nothing is read. Raises ConfigError."""
        base = base_of(table, head)
        return parse_table(table, base.document, base.storage)

    def converted_table(self, table: TableName, head: TableHead) -> ConvertedTable:
        """What a conversion of deletes must know of the table at exactly this head; nothing is read. Raises
        ConfigError."""
        return converted_table(self.loaded(table, head), base_of(table, head).document)

    def rewritten_table(self, table: TableName, head: TableHead) -> RewrittenTable:
        """What a compaction must know of the table at exactly this head; nothing is read. Raises ConfigError."""
        number = head.ancestry[0].sequence_number if head.ancestry else 0
        return rewritten_table(self.loaded(table, head), base_of(table, head).document, number)

    def live(self, table: TableName, head: TableHead, bounds_of: Sequence[int] = ()) -> LiveFiles:
        """The data files and deletes of exactly this head. What did not change since the last call, or was committed
        by this lake, is not read again. Raises CatalogUnavailable or CatalogRefused."""
        return self._live.live(table, head, bounds_of)

    def live_with_lineage(self, table: TableName, head: TableHead) -> LiveFiles:
        """As `live`, out of all manifests: which row ids a file has is decided when it is committed, or later, and no
        plan tells it."""
        return LiveReader(self._catalog).live(table, head, ())


def base_of(table: TableName, head: TableHead, branch: str | None = None) -> Base:
    """What a commit on this head is made with. Raises TypeError for a head of somebody else, or of another branch:
    there the commit would land."""
    if not isinstance(head.base, Base) or branch not in (None, head.base.branch):
        raise TypeError(f"the head of {table} was not read from this lake")
    return head.base


def _dropped_too_soon(plan: ReplaceFiles, live: LiveFiles) -> list[LiveDelete]:
    """Equality deletes that iceberg-java takes for done once the rewritten files are gone: it compares them with the
    files that stay, and not with those that come, which may be as old as the ones they stand for (H15)."""
    gone = {file.path for file in plan.removed_data}
    oldest = min((file.sequence_number for file in live.files if file.path not in gone), default=None)
    return [
        one
        for one in live.deletes
        if one.kind is FileKind.EQUALITY_DELETE
        and one not in plan.removed_deletes
        and plan.keeps_sequence is not None
        and plan.keeps_sequence < one.sequence_number
        and (oldest is None or one.sequence_number < oldest)
    ]


def repair_of(plan: ReplaceFiles, kept: Sequence[LiveDelete] = ()) -> TableTransaction:
    """What a repair means for the table. `kept` deletes must be there afterwards as they are now. Pure."""
    data = [file.manifest_json() for file in plan.files if file.kind is FileKind.DATA]
    deletes = [file.manifest_json() for file in plan.files if file.kind.deletes]
    gone = [*map(_entry_of, plan.removed_data), *(delete.entry for delete in (*plan.removed_deletes, *kept))]
    changes = (
        *((RemoveFiles(gone),) if gone else ()),
        AddFiles(data, plan.keeps_sequence),
        AddFiles(deletes, plan.deletes_sequence),
        *(AddFiles([delete.entry], delete.sequence_number) for delete in kept),
    )
    snapshot = WriteSnapshot(changes=changes, summary=plan.summary, same_rows=plan.rewrites, must_exist=plan.must_exist)
    return TableTransaction((snapshot,))


def _entry_of(file: LiveFile) -> dict[str, Any]:
    """As much of a manifest entry as it takes to find it."""
    return {
        "spec-id": file.spec_id,
        "content": FileKind.DATA.value,
        "file-path": file.path,
        "file-format": file.format,
        "partition": list(file.partition),
        "file-size-in-bytes": file.size,
        "record-count": file.records,
    }


def snapshot_of(plan: CommitPlan) -> WriteSnapshot:
    """The snapshot that a plan means. Pure."""
    removed = [delete.entry for delete in plan.removed_deletes]
    changes = (
        *((RemoveFiles(removed),) if removed else ()),
        AddFiles([file.manifest_json() for file in (*plan.data_files, *plan.delete_files)]),
    )
    return WriteSnapshot(changes=changes, summary=plan.summary, must_exist=plan.must_exist)


def transaction_of(plan: CommitPlan) -> TableTransaction:
    """What a plan means for the table. Pure."""
    job = plan.entry.job
    ledger: tuple[Operation, ...] = (RecordLedger(plan.entry), SetTag(job.tag))
    if plan.forget:
        ledger = (SetProperties({job.ledger_property: None}), RemoveTag(job.tag))
    return TableTransaction((snapshot_of(plan), *ledger))
