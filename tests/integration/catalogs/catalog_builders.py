"""Tables and plans for any catalog: files are written as the workers write them, wherever the table lies."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from frazil.iceberg.tables.tables import LoadedTable
from frazil.model.commit import CommitPlan
from frazil.model.files import FileClosed, FileKind
from frazil.model.ids import JobId, batch_id, data_path, epoch_prefix
from frazil.model.ledger import Fence, LedgerEntry
from frazil.model.schema import LONG, STRING, Column, SourceSchema, Type
from frazil.sources.cockroachdb.position import Hlc
from frazil.storage.files.open_file import open_output

SHOP = JobId("shop")
FENCE = Fence(1, UUID(int=1))


def column(name: str, kind: Type = STRING) -> Column:
    return Column(name, kind, str(kind).upper(), "sql")


def source_schema(*more: Column) -> SourceSchema:
    return SourceSchema((column("id", LONG), column("name"), *more), ("id",), "sql")


def plan(table: LoadedTable, resolved: int, rows: Mapping[int, str], lower: int | None = None) -> CommitPlan:
    """Writes one data file and describes the commit of it."""
    position = Hlc(resolved)
    written = _file(table, position, rows)
    entry = LedgerEntry(
        job=SHOP,
        batch_id=written.batch_id,
        lower=None if lower is None else Hlc(lower),
        resolved=position,
        notes="",
        fence=FENCE,
        incarnation="cluster-1",
        config_hash="c0ffee",
        operation="append",
        data_files=1,
        delete_files=0,
        rows=len(rows),
        deletes=0,
    )
    return CommitPlan(entry=entry, files=(written,), extra_summary={"crdb.job_id": SHOP.text})


def _file(table: LoadedTable, position: Hlc, rows: Mapping[int, str]) -> FileClosed:
    ids = {field.name: str(field.id) for field in table.schema}
    columns = (("id", pa.int64(), False), ("name", pa.string(), True))
    schema = pa.schema([pa.field(n, t, null, metadata={"PARQUET:field_id": ids[n]}) for n, t, null in columns])
    buffer = io.BytesIO()
    pq.write_table(pa.table({"id": list(rows), "name": list(rows.values())}, schema=schema), buffer)
    content = buffer.getvalue()
    path = data_path(epoch_prefix(table.data_location, SHOP, position, FENCE.label), 0, uuid4().hex[:8], 0)
    output = open_output(path, table.storage)
    output.write(memoryview(content))
    output.sync()
    output.close()
    return FileClosed(
        table=table.name,
        epoch=position,
        batch_id=batch_id(SHOP, table.name, position),
        worker=0,
        schema_id=table.schema.schema_id,
        spec_id=table.spec.spec_id,
        path=path,
        kind=FileKind.DATA,
        records=len(rows),
        size=len(content),
        digest=hashlib.sha256(content).hexdigest(),
    )
