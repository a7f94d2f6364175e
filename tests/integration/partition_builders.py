"""Tables of given columns, epochs written into them by our writer, and what iceberg-java plans to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa

from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.tables.tables import LoadedTable, Tables
from frazil.ingest.write.table_writer import TableEpochWriter, TaskOutput
from frazil.model.arrow import value_type
from frazil.model.commit import Accepted, CommitPlan
from frazil.model.files import FileClosed, FileKind
from frazil.model.ids import JobId, TableName, batch_id, epoch_prefix
from frazil.model.ledger import Fence, LedgerEntry
from frazil.model.partition import parse_partition
from frazil.model.schema import Column, SourceSchema, Type
from frazil.model.sort import parse_sort
from frazil.model.write import DeleteMode, EpochTarget, ParquetSettings, TableOptions, TableTask, WriteJob
from frazil.sources.cockroachdb.position import Hlc

SHOP = JobId("shop")
FENCE = Fence(1, UUID(int=1))


def source_schema(columns: Mapping[str, Type], key: tuple[str, ...] = ("id",)) -> SourceSchema:
    return SourceSchema(
        tuple(Column(name, type_, str(type_).upper(), "sql", name in key) for name, type_ in columns.items()),
        key,
        "sql",
    )


def options(*partition: str, sort: Sequence[str] = (), **more: Any) -> TableOptions:
    given: dict[str, Any] = {"mode": DeleteMode.EQUALITY, "format_version": 2, **more}
    fields = tuple(parse_partition(text) for text in partition)
    return TableOptions(partition=fields, sort=tuple(parse_sort(text) for text in sort), **given)


def batch(table: LoadedTable, rows: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> pa.RecordBatch:
    fields = [field for field in table.schema if not names or field.name in names]
    schema = pa.schema([pa.field(field.name, value_type(field.type)) for field in fields])
    return pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=schema)


class Publisher:
    """Writes and commits epoch after epoch, in one process."""

    def __init__(self, catalog: Catalog) -> None:
        self.tables = Tables(catalog)
        self._committer = IcebergCommitter(catalog)
        self._epoch = 0

    def write(
        self,
        table: LoadedTable,
        rows: Sequence[Mapping[str, Any]] = (),
        gone: Sequence[Mapping[str, Any]] = (),
        *,
        key: tuple[str, ...] = ("id",),
        mode: DeleteMode = DeleteMode.EQUALITY,
        **settings: Any,
    ) -> tuple[FileClosed, ...]:
        """The files of one more epoch, as the worker reports them."""
        self._epoch += 1
        position = Hlc(self._epoch)
        prefix = epoch_prefix(table.data_location, SHOP, position, FENCE.label)
        epoch = EpochTarget(position, batch_id(SHOP, table.name, position), prefix)
        task = TableTask.of(table, index=0, key=key, mode=mode, epochs=(epoch,))
        job = WriteJob(tables=(task,), attempt=uuid4().hex[:8], shards=1, parquet=ParquetSettings(**settings))
        writer = TableEpochWriter(task, task.epochs[0], TaskOutput.of(job, 0, "0"))
        if rows:
            writer.upserts(batch(table, rows))
        if gone:
            writer.deletes(batch(table, gone, key))
        return writer.close()

    def commit(self, table: LoadedTable, files: Sequence[FileClosed]) -> None:
        data = [file for file in files if file.kind is FileKind.DATA]
        position = Hlc(self._epoch)
        entry = LedgerEntry(
            job=SHOP,
            batch_id=batch_id(SHOP, table.name, position),
            lower=None,
            resolved=position,
            notes="",
            fence=FENCE,
            incarnation="cluster-1",
            config_hash="c0ffee",
            operation="row_delta",
            data_files=len(data),
            delete_files=len(files) - len(data),
            rows=sum(file.records for file in data),
            deletes=0,
        )
        answer = self._committer.commit(
            table.name, self._committer.head(table.name), CommitPlan(entry=entry, files=tuple(files))
        )
        assert isinstance(answer, Accepted), answer

    def publish(self, table: LoadedTable, *rows: Any, **more: Any) -> tuple[FileClosed, ...]:
        files = self.write(table, *rows, **more)
        self.commit(table, files)
        return files


def planned(catalog: Catalog, table: TableName, expression: Any) -> set[str]:
    """The data files that iceberg-java would read for a filter."""
    scan = catalog.java.loadTable(catalog.identifier(table)).newScan().filter(expression)
    tasks = scan.planFiles().iterator()
    found = set()
    while tasks.hasNext():
        found.add(tasks.next().file().location())
    return found


def without_metrics(files: Sequence[FileClosed]) -> list[FileClosed]:
    """The same files with nothing a reader could skip by but their partition."""
    return [replace(file, metrics=(), file_hash="") for file in files]
