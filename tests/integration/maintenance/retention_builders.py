"""A table that keeps a diary: epochs published through the lake, and beside each snapshot what a reader must see there.

    stage.epoch(rows, deleted) --> one snapshot of ours      stage.foreign(sql) --> one of somebody else
    stage.read_all()               every snapshot that is left, by time travel, against the diary
    crashing(thing, call)          stands in front of a queue or a lake and dies before or after its n-th call

A clock that can be set forward stands in for waiting.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from frazil.clock import SystemClock
from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.commits.expire import SnapshotCommitter
from frazil.iceberg.system.deletion_queue import IcebergDeletionQueue
from frazil.iceberg.tables.storage import is_local
from frazil.iceberg.tables.storage_files import TableFiles
from frazil.iceberg.tables.tables import Tables
from frazil.maintenance.expire.planner import Expire, ExpireSettings
from frazil.maintenance.orphans import Sweep
from frazil.maintenance.queue import Cleaned, DeletionWorker, QueueSettings
from frazil.model.commit import Accepted, CommitPlan
from frazil.model.files import FileClosed, FileKind
from frazil.model.ids import JobId, TableName, batch_id, data_path, epoch_prefix
from frazil.model.ledger import Fence, LedgerEntry
from frazil.model.schema import LONG, STRING, Column, SourceSchema
from frazil.model.write import DeleteMode, TableOptions
from frazil.sources.cockroachdb.position import Hlc
from frazil.storage.files.open_file import open_output

SHOP = JobId("shop")
FENCE = Fence(3, UUID(int=3))
SOURCE_SCHEMA = SourceSchema(
    (Column("id", LONG, "INT8", "sql"), Column("name", STRING, "STRING", "sql")), ("id",), "sql"
)
DAY = timedelta(days=1)
GRACE = timedelta(hours=1)
Rows = dict[int, str]


class Crash(BaseException):
    """The process died here; nothing catches it."""


class Clock(SystemClock):
    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.ahead


class Stage:
    """One table in a catalog of its own, with everything that keeps it small."""

    def __init__(self, catalog: Catalog, name: TableName, *, format_version: int = 3, batch_files: int = 1000) -> None:
        self.catalog = catalog
        self.name = name
        self.clock = Clock()
        self.committer = IcebergCommitter(catalog)
        self.table = Tables(catalog).create(
            name, SOURCE_SCHEMA, TableOptions(mode=DeleteMode.VECTORS, format_version=format_version)
        )
        self.snapshots = SnapshotCommitter(catalog)
        self.queue = IcebergDeletionQueue(catalog, self.clock, batch_files=batch_files)
        self.files = TableFiles(catalog, self.queue.name)
        self.rows: Rows = {}
        self.diary: dict[int, Rows] = {}
        self.sql = f"{catalog.settings.name}.{name.sql}"
        self._resolved: dict[JobId, int] = {}

    def epoch(
        self, rows: Mapping[int, str] | None = None, *, at: int | None = None, job: JobId = SHOP, fence: Fence = FENCE
    ) -> int:
        """Publishes new rows; `at` are nanoseconds of the source."""
        rows = rows or {}
        lower = self._resolved.get(job)
        resolved = at if at is not None else (lower or 0) + 1
        files = (self.write(rows, resolved, job, fence),) if rows else ()
        entry = LedgerEntry(
            job=job,
            batch_id=batch_id(job, self.name, Hlc(resolved)),
            lower=None if lower is None else Hlc(lower),
            resolved=Hlc(resolved),
            notes="",
            fence=fence,
            incarnation="cluster-1",
            config_hash="c0ffee",
            operation="append",
            data_files=len(files),
            delete_files=0,
            rows=len(rows),
            deletes=0,
        )
        answer = self.committer.commit(self.name, self.committer.head(self.name), CommitPlan(entry=entry, files=files))
        assert isinstance(answer, Accepted), answer
        self._resolved[job] = resolved
        self.rows |= rows
        return self._written(answer.snapshot_id)

    def write(self, rows: Mapping[int, str], resolved: int, job: JobId = SHOP, fence: Fence = FENCE) -> FileClosed:
        """A data file of an epoch, which is not committed by that."""
        prefix = epoch_prefix(self.table.data_location, job, Hlc(resolved), fence.label)
        path = data_path(prefix, 0, uuid4().hex[:8], 0)
        fields = [
            pa.field(f.name, kind, not f.required, metadata={"PARQUET:field_id": str(f.id)})
            for f, kind in zip(self.table.schema, (pa.int64(), pa.string()), strict=True)
        ]
        content = pa.BufferOutputStream()
        pq.write_table(pa.table({"id": list(rows), "name": list(rows.values())}, schema=pa.schema(fields)), content)
        data = content.getvalue().to_pybytes()
        self.put(path, data)
        return FileClosed(
            table=self.name,
            epoch=Hlc(resolved),
            batch_id=batch_id(job, self.name, Hlc(resolved)),
            worker=0,
            schema_id=self.table.schema.schema_id,
            spec_id=0,
            path=path,
            kind=FileKind.DATA,
            records=len(rows),
            size=len(data),
            digest=hashlib.sha256(data).hexdigest(),
        )

    def put(self, path: str, data: bytes = b"x") -> str:
        """As workers do it."""
        output = open_output(path, self.table.storage)
        output.write(memoryview(data))
        output.sync()
        output.close()
        return path

    def delete(self, *keys: int) -> int:
        """By somebody else: Spark, which writes a deletion vector (v3) or a position delete file."""
        self.catalog.spark.sql(f"DELETE FROM {self.sql} WHERE id IN ({', '.join(map(str, keys))})")
        for key in keys:
            self.rows.pop(key)
        return self._written(self.head_id)

    def rewrite(self) -> int:
        """By somebody else: all data files become one."""
        self.catalog.spark.sql(
            f"CALL {self.catalog.settings.name}.system.rewrite_data_files(table => '{self.name}', "
            "options => map('rewrite-all', 'true'))"
        )
        return self._written(self.head_id)

    def _written(self, snapshot_id: int) -> int:
        for row in self.catalog.spark.table(f"{self.sql}.snapshots").select("snapshot_id").collect():
            # Spark's rewrite may commit in several steps, none of which changes a row.
            self.diary.setdefault(row.snapshot_id, dict(self.rows))
        self.diary[snapshot_id] = dict(self.rows)
        return snapshot_id

    @property
    def head_id(self) -> int:
        found = self.committer.head(self.name).snapshot_id
        assert found is not None
        return found

    def left(self) -> set[int]:
        return set(self.snapshots.snapshots(self.name).snapshots)

    def tags(self) -> dict[str, int]:
        found = self.snapshots.snapshots(self.name).references
        return {name: reference.snapshot_id for name, reference in found.items() if not reference.is_branch}

    def read_all(self) -> None:
        """Every snapshot that is left reads as it did when it was made, and the table does too."""
        for snapshot_id in self.left():
            table = self.catalog.spark.read.option("versionAsOf", str(snapshot_id)).table(self.sql)
            found = {row.id: row.name for row in table.collect()}
            assert found == self.diary[snapshot_id], snapshot_id
        assert {row.id: row.name for row in self.catalog.spark.table(self.sql).collect()} == self.rows

    def on_disk(self) -> set[str]:
        """Checksums that Hadoop keeps beside files count as the file itself."""
        if not is_local(self.table.location):
            return {file.path for file in self.files.list(self.name, self.table.location)}
        root = self.table.location.removeprefix("file:")
        files = [path for path in Path(root).rglob("*") if path.is_file()]
        return {str(path if path.suffix != ".crc" else path.with_name(path.name[1:-4])) for path in files}

    def needed(self) -> set[str]:
        """All files that what is left refers to, by iceberg-java's own metadata tables and log."""
        spark, found = self.catalog.spark, set()
        for table, column in (
            ("all_files", "file_path"),
            ("all_manifests", "path"),
            ("snapshots", "manifest_list"),
            ("metadata_log_entries", "file"),
        ):
            found |= {row[0] for row in spark.table(f"{self.sql}.{table}").select(column).collect()}
        return {path.removeprefix("file:") for path in found}

    def queued(self) -> set[str]:
        return {row.path.removeprefix("file:") for batch in self.queue.batches() for row in batch.rows}

    def expire(self, committer: Any = None, queue: Any = None, **settings: Any) -> Any:
        wanted = ExpireSettings(**{"max_age": DAY, "max_snapshots": 1000, **settings})
        return Expire(committer or self.snapshots, queue or self.queue, wanted, self.clock).perform(self.name)

    def sweep(self, committer: Any = None, queue: Any = None, older_than: timedelta = DAY) -> Any:
        return Sweep(committer or self.files, queue or self.queue, older_than, self.clock).perform(self.name)

    def clean(self, committer: Any = None, queue: Any = None, max_retries: int = 20) -> Cleaned:
        settings = QueueSettings(grace=GRACE, max_retries=max_retries)
        return DeletionWorker(queue or self.queue, committer or self.files, settings, self.clock).perform()


class Crashing:
    """Dies before its n-th call, or after it: then it had its effect and nobody was told."""

    def __init__(self, inner: Any, calls: Iterator[int], die_at: int, after: bool) -> None:
        self._inner, self._calls, self._die_at, self._after = inner, calls, die_at, after

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        def call(*arguments: Any, **more: Any) -> Any:
            number = next(self._calls)
            if number == self._die_at and not self._after:
                raise Crash(name)
            answer = method(*arguments, **more)
            if number == self._die_at:
                raise Crash(name)
            return answer

        return call
