"""`_frazil.deletion_queue`: files that nothing refers to any more, one row for each, until they are deleted.

    enqueue(rows)           cut into batches; one file and one partition each; all of them in one commit; refused if
                            another name of the catalog has the same table, since one of them cannot tell for both
    batches()               what the queue holds, of one moment
    finish(batch, left)     the batch goes, what is left of it comes as new batches: one commit, if the batch is there

    drop(table)             last metadata file to the queue, as an intent --> table out of the catalog --> the intent is
                            confirmed; its files stay until it is expanded

A batch has a name that is never used twice, so two workers that finish the same one do it once. The rows of a batch
are all of one table and of one kind. The table's own old snapshots go once there are many, as those of the checkpoints.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import groupby

from pyspark.sql import Row
from pyspark.sql import functions as F

from frazil.clock import Clock
from frazil.errors import CatalogRefused
from frazil.iceberg.catalogs.open_catalog import Catalog, CatalogType, catalog_error
from frazil.iceberg.catalogs.table_scan import CatalogTableScan
from frazil.iceberg.commits.expire import parse_snapshots
from frazil.iceberg.commits.snapshots import TableSnapshots
from frazil.iceberg.jvm.errors import JAVA_ERRORS
from frazil.iceberg.system.queue_rows import ONE_NAME, DeletionBatch, DeletionType, QueuedDeletion, Why
from frazil.iceberg.system.system_table import SystemTable, system_schema
from frazil.iceberg.tables.file_index import LiveReader
from frazil.iceberg.tables.head import read_metadata
from frazil.iceberg.tables.reachability import path_key
from frazil.iceberg.tables.tables import Tables
from frazil.model.commit import CommitAnswer, Unknown
from frazil.model.ids import TableName
from frazil.model.ledger import TableHead
from frazil.model.schema import LONG, STRING, TIMESTAMPTZ
from frazil.retry import Attempt, commit_with_retry

NAME = "deletion_queue"
BATCH_FILES = 1000
MOST_OLD = 50
_TABLE_SCAN_SECONDS = 600.0
"""So long a known name is taken for the table that it was: names are listed every time, and a worker asks again."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SCHEMA = system_schema(
    {
        "batch": STRING,
        "path": STRING,
        "table": STRING,
        "table_uuid": STRING,
        "orphaned_at": TIMESTAMPTZ,
        "retry_count": LONG,
        "retry_at": TIMESTAMPTZ,
        "type": STRING,
        "why": STRING,
    },
    key=("batch", "path"),
)
_log = logging.getLogger("frazil.maintenance")


class IcebergDeletionQueue:
    """The queue of one catalog. Implements `frazil.maintenance.queue.Queue`."""

    def __init__(self, catalog: Catalog, clock: Clock, *, batch_files: int = BATCH_FILES) -> None:
        self._catalog = catalog
        self._clock = clock
        self._batch_files = batch_files
        self._table = SystemTable(catalog, NAME, _SCHEMA, clock, partition_by="batch", short_history=True)
        self._live = LiveReader(catalog)
        self._table_scan: tuple[float, CatalogTableScan] | None = None

    @property
    def name(self) -> TableName:
        """Raises CatalogUnavailable or CatalogRefused."""
        return self._table.name

    def enqueue(self, deletions: Sequence[QueuedDeletion]) -> None:
        """Raises CatalogUnavailable, CatalogRefused or StorageUnavailable; then none of them is in the queue, or, after
        a lost answer, all of them are."""
        for table, table_uuid in {(row.table, row.table_uuid) for row in deletions if not row.why.takes_all}:
            self._check_name(table, table_uuid)
        if deletions:
            self._exchange(None, deletions)

    def _check_name(self, table: TableName, table_uuid: str) -> None:
        """Raises CatalogRefused if the catalog has the table under another name too."""
        now = self._clock.monotonic()
        if self._table_scan is None or self._table_scan[0] + _TABLE_SCAN_SECONDS < now:
            self._table_scan = now, CatalogTableScan(self._catalog)
        other = self._table_scan[1].other_table_with_uuid(table, table_uuid)
        if other is not None:
            raise CatalogRefused(
                f"nothing of {table} may be deleted: {other} was registered from its metadata and may need it",
                hint=ONE_NAME,
                table=table.text,
            )

    def batches(self) -> Sequence[DeletionBatch]:
        """All there is, the oldest first. Raises CatalogUnavailable or CatalogRefused."""
        if not self._table.exists():
            return ()
        head = self._table.head()
        if head.snapshot_id is None:
            return ()
        name = f"{self._catalog.settings.name}.{self._table.name.sql}"
        try:
            table = self._catalog.spark.read.option("versionAsOf", str(head.snapshot_id)).table(name)
            times = {"orphaned_at": F.unix_micros("orphaned_at"), "retry_at": F.unix_micros("retry_at")}
            rows = table.withColumns(times).collect()
        except JAVA_ERRORS as error:
            raise catalog_error(self._catalog, error, "read the table", self._table.name.text) from None
        ordered = sorted(rows, key=lambda row: (row.batch, row.path))
        found = [
            DeletionBatch(key, tuple(_deletion(row) for row in of))
            for key, of in groupby(ordered, lambda row: row.batch)
        ]
        return sorted(found, key=lambda batch: min(row.orphaned_at for row in batch.rows))

    def finish(self, batch: DeletionBatch, left: Sequence[QueuedDeletion]) -> bool:
        """False if the batch is not there any more: somebody else has finished it. Raises like `enqueue`."""
        return self._exchange(batch.name, left) is not None

    def _exchange(self, gone: str | None, deletions: Sequence[QueuedDeletion]) -> Sequence[str] | None:
        """The names of the batches that these became; None if the one that was to go for them is not there."""
        groups = {str(self._clock.new_uuid()): part for part in _parts(deletions, self._batch_files)}
        rows = {name: [_row(name, deletion) for deletion in part] for name, part in groups.items()}
        summary = {"frazil.operation": "deletion-queue"}
        sent: list[CommitAnswer] = []

        def once(_lost: int) -> Attempt[bool]:
            head = self._table.head()
            present = self._names(head)
            if rows and present.issuperset(rows):
                return Attempt(True)  # a lost answer: it had landed
            if gone is not None and gone not in present:
                return Attempt(not rows and any(isinstance(answer, Unknown) for answer in sent))
            sent.append(self._table.exchange(head, gone, rows, summary))
            return Attempt(True, sent[-1])

        if not commit_with_retry(f"cannot write to {self._table.name}", once, self._clock)[0]:
            return None
        self._table.tidy(MOST_OLD)
        return tuple(rows)

    def _names(self, head: TableHead) -> set[str]:
        """Of the batches that are there."""
        return {str(file.partition[0]) for file in self._live.live(self._table.name, head, ()).files if file.partition}

    def drop(self, table: TableName) -> bool:
        """Takes the table out of the catalog. Its files go by way of the queue, unless it says that they are not its
        own. A Hadoop catalog has tables by their folder alone, and deletes it itself. False if there was no such table.
        Raises CatalogUnavailable, CatalogRefused or StorageUnavailable; then the table may be gone all the same, and
        the queue finds out."""
        tables = Tables(self._catalog)
        if not tables.exists(table):
            return False
        base, _ = read_metadata(self._catalog, table)
        seen = parse_snapshots(base)
        if self._catalog.settings.type is CatalogType.HADOOP:
            self._check_folder(table, seen, base.metadata.location())
            return tables.drop(table)
        location = base.metadata.metadataFileLocation()
        if not seen.may_be_cleaned or not location:
            return tables.drop(table)
        intent = QueuedDeletion(
            path=location,
            table=table,
            table_uuid=seen.uuid,
            orphaned_at=self._clock.now(),
            type=DeletionType.METADATA,
            why=Why.DROPPING,
        )
        # First: a crash may leave the intent to drop a table that is still there, which the worker finds out.
        batches = self._exchange(None, [intent])
        dropped = tables.drop(table)
        if dropped:
            confirmed = replace(intent, why=Why.DROPPED, orphaned_at=self._clock.now())
            if not batches or self._exchange(batches[0], [confirmed]) is None:
                # A worker was faster, and may have found the table still there.
                self._exchange(None, [confirmed])
        return dropped

    def _check_folder(self, table: TableName, seen: TableSnapshots, location: str) -> None:
        """Raises CatalogRefused if a folder is to be deleted in which others have files. In that of a table that was
        registered from another one's metadata there is metadata alone."""
        if not path_key(location).endswith("/".join(("", *table.namespace, table.name))):
            return
        other = CatalogTableScan(self._catalog).holder(seen.uuid, beside=table.text)
        if other is None and seen.may_be_cleaned:
            return
        why = "it says gc.enabled=false" if other is None else f"{other} was registered from its metadata"
        raise CatalogRefused(
            f"{table} cannot be dropped: {why}, so its files belong to others too, and a Hadoop catalog drops a table "
            "by deleting its folder",
            hint=f"drop {other} first" if other else f"set gc.enabled=true on {table} if nobody else needs its files",
            table=table.text,
        )


def _parts(deletions: Sequence[QueuedDeletion], most: int) -> Iterator[Sequence[QueuedDeletion]]:
    def kind(row: QueuedDeletion) -> tuple[str, str, str, str]:
        return row.table.text, row.table_uuid, row.type, row.why

    for _, rows in groupby(sorted(deletions, key=kind), kind):
        same = list(rows)
        yield from (same[start : start + most] for start in range(0, len(same), most))


def _row(batch: str, deletion: QueuedDeletion) -> dict[str, object]:
    return {
        "batch": batch,
        "path": deletion.path,
        "table": deletion.table.text,
        "table_uuid": deletion.table_uuid,
        "orphaned_at": deletion.orphaned_at,
        "retry_count": deletion.retry_count,
        "retry_at": deletion.retry_at,
        "type": deletion.type.value,
        "why": deletion.why.value,
    }


def _deletion(row: Row) -> QueuedDeletion:
    return QueuedDeletion(
        path=row.path,
        table=TableName.parse(row.table),
        table_uuid=row.table_uuid,
        orphaned_at=_EPOCH + timedelta(microseconds=row.orphaned_at),
        type=DeletionType(row.type),
        why=Why(row.why),
        retry_count=row.retry_count,
        retry_at=None if row.retry_at is None else _EPOCH + timedelta(microseconds=row.retry_at),
    )
