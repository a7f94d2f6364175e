"""Real Parquet files and plans for them, with defaults."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from frazil.clock import SystemClock
from frazil.iceberg.catalogs.open_catalog import Catalog, CatalogSettings, CatalogType, open_catalog, prepare
from frazil.iceberg.jvm.session import open_session
from frazil.iceberg.tables.tables import LoadedTable
from frazil.model.commit import CommitPlan
from frazil.model.files import FileClosed, FileKind
from frazil.model.ids import JobId, batch_id, data_path, epoch_prefix, equality_delete_path
from frazil.model.ledger import Fence, LedgerEntry
from frazil.model.schema import LONG, STRING, Column, Schema, SourceSchema, Type
from frazil.sources.cockroachdb.position import Hlc

SHOP = JobId("shop")
FENCE = Fence(1, UUID(int=1))
NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
_ARROW = {LONG: pa.int64(), STRING: pa.string()}


class MeddledClock(SystemClock):
    """Stands still, and can do something at the moment when a file gets its name: after the head was read."""

    def __init__(self) -> None:
        self.before_writing: Callable[[], None] | None = None

    def now(self) -> datetime:
        return NOON

    def new_uuid(self) -> UUID:
        meanwhile, self.before_writing = self.before_writing, None
        if meanwhile is not None:
            meanwhile()
        return super().new_uuid()


def column(name: str, kind: Type = STRING, origin: str = "sql") -> Column:
    return Column(name, kind, str(kind).upper(), origin)


def source_schema(*more: Column, key: tuple[str, ...] = ("id",)) -> SourceSchema:
    return SourceSchema((column("id", LONG), column("name"), *more), key, "sql")


def plan(
    table: LoadedTable,
    resolved: int,
    rows: Mapping[int, str] | None = None,
    deletes: Sequence[int] = (),
    *,
    lower: int | None = None,
    job: JobId = SHOP,
    fence: Fence = FENCE,
    files: int = 1,
    forget: bool = False,
) -> CommitPlan:
    """Writes the files and describes the commit. `files` partitions the rows into so many data files."""
    position = Hlc(resolved)
    rows = rows or {}
    ids = sorted(rows)
    written = [
        _file(table, position, job, fence, FileKind.DATA, {"id": part, "name": [rows[i] for i in part]}, number)
        for number, part in enumerate(ids[n::files] for n in range(files) if ids[n::files])
    ]
    if deletes:
        written.append(_file(table, position, job, fence, FileKind.EQUALITY_DELETE, {"id": list(deletes)}, 0))
    entry = LedgerEntry(
        job=job,
        batch_id=batch_id(job, table.name, position),
        lower=None if lower is None else Hlc(lower),
        resolved=position,
        notes="",
        fence=fence,
        incarnation="cluster-1",
        config_hash="c0ffee",
        operation="row_delta" if deletes else "append",
        data_files=len(written) - bool(deletes),
        delete_files=int(bool(deletes)),
        rows=len(rows),
        deletes=len(deletes),
    )
    return CommitPlan(entry=entry, files=tuple(written), extra_summary={"crdb.job_id": job.text}, forget=forget)


def _file(
    table: LoadedTable, position: Hlc, job: JobId, fence: Fence, kind: FileKind, values: Mapping[str, list], number: int
) -> FileClosed:
    prefix = epoch_prefix(table.data_location, job, position, fence.label)
    make = data_path if kind is FileKind.DATA else equality_delete_path
    path = make(prefix, 0, uuid4().hex[:8], number)
    local = Path(path.removeprefix("file:"))
    local.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(dict(values), schema=arrow_schema(table.schema, tuple(values))), local)
    content = local.read_bytes()
    return FileClosed(
        table=table.name,
        epoch=position,
        batch_id=batch_id(job, table.name, position),
        worker=0,
        schema_id=table.schema.schema_id,
        spec_id=0,
        path=path,
        kind=kind,
        records=len(values["id"]),
        size=len(content),
        equality_ids=tuple(f.id for f in table.schema.select(("id",))) if kind is FileKind.EQUALITY_DELETE else (),
        digest=hashlib.sha256(content).hexdigest(),
    )


def arrow_schema(schema: Schema, names: tuple[str, ...]) -> pa.Schema:
    return pa.schema(
        [
            pa.field(f.name, _ARROW[f.type], not f.required, metadata={"PARQUET:field_id": str(f.id)})
            for f in schema.select(names)
        ]
    )


def catalog_of(request: pytest.FixtureRequest) -> Catalog:
    """The catalog of the kind that a fixture is parametrized with, under a name of the test module's own."""
    spark: SparkSession = request.getfixturevalue("spark")
    name = f"{request.param}_{request.module.__name__}"
    match request.param:
        case "builtin":
            found: Catalog = request.getfixturevalue("catalog")
            return found
        case "hadoop":
            warehouse = str(request.getfixturevalue("tmp_path_factory").mktemp("hadoop"))
            settings = CatalogSettings(name=name, type=CatalogType.HADOOP, warehouse=warehouse)
        case "memory":
            settings = prepare(CatalogSettings(name=name, type=CatalogType.MEMORY))
        case _:
            settings = CatalogSettings(name=name, type=CatalogType.REST, uri=request.getfixturevalue("rest_uri"))
    open_session("frazil-tests", [settings], active=spark)
    return open_catalog(spark, settings)
