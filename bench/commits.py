"""The commit alone: every file is written, the table's head is read, one snapshot is committed.

builtin catalog           SQLite, local files
REST on loopback          Iceberg's reference server, local files; left out where its jars cannot be had
REST and S3 on loopback   SeaweedFS, both in one process; left out where it cannot be had
"""

from __future__ import annotations

import hashlib
import io
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from bench.report import Measured, measured, unmeasured
from bench.stage import Bench, say, timed
from frazil.commit.admission import Coordinator
from frazil.commit.machine import make_epoch_commit
from frazil.iceberg.catalogs.open_catalog import Catalog, CatalogSettings, CatalogType, open_catalog
from frazil.iceberg.commits.committer import IcebergCommitter
from frazil.iceberg.tables.tables import LoadedTable, Tables
from frazil.model.commit import Accepted
from frazil.model.files import FileClosed, FileKind
from frazil.model.frontier import Frontier
from frazil.model.ids import JobId, TableName, batch_id
from frazil.model.ledger import Fence
from frazil.model.schema import LONG, Column, SourceSchema
from frazil.model.write import DeleteMode, TableOptions
from frazil.sources.cockroachdb.position import Hlc
from frazil.storage.files.open_file import open_output

BUILTIN_AT_MOST_MS, REST_AT_MOST_MS = 100, 500
_TABLE = TableName(("bench",), "commits")
_TESTS = Path(__file__).parents[1] / "tests"
_WARM_UP = 3
_ROWS = 1_000


def commits(bench: Bench) -> list[Measured]:
    found = [_p50(bench, open_catalog(bench.spark, bench.settings), "builtin catalog", BUILTIN_AT_MOST_MS)]
    for label, serve in (("REST on loopback, local files", _rest), ("REST and S3 on loopback", on_s3)):
        try:
            with serve(bench.work) as settings:
                found.append(_p50(bench, open_catalog(bench.spark, settings), label, REST_AT_MOST_MS))
        except (ImportError, OSError, RuntimeError) as error:
            reason = str(error).partition("\n")[0]
            found.append(unmeasured(f"commit, all files written, {label}: not measured, no server: {reason}"))
    return found


@contextmanager
def _rest(work: Path) -> Iterator[CatalogSettings]:
    with tests_server("rest_server").rest_server(_home(work, "rest")) as uri:
        yield CatalogSettings(name="bench_rest", type=CatalogType.REST, uri=uri)


@contextmanager
def on_s3(work: Path) -> Iterator[CatalogSettings]:
    """A REST catalog whose tables lie on S3."""
    with tests_server("seaweedfs").seaweedfs_server(_home(work, "s3")) as server:
        yield CatalogSettings(
            name=f"bench_s3_{uuid4().hex[:8]}",
            type=CatalogType.REST,
            uri=server.catalog_uri,
            warehouse=server.warehouse,
            properties={"credential": server.credential, **server.fileio},
        )


def tests_server(name: str) -> Any:
    """The module of a server that the tests use."""
    sys.path.insert(0, str(_TESTS))
    try:
        return import_module(f"servers.{name}")
    finally:
        sys.path.remove(str(_TESTS))


def _home(work: Path, name: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=work))


def _p50(bench: Bench, catalog: Catalog, label: str, at_most: float) -> Measured:
    tables, committer = Tables(catalog), IcebergCommitter(catalog)
    source_schema = SourceSchema((Column("id", LONG, "INT8", "configuration"),), ("id",), "configuration")
    table = tables.ensure(_TABLE, source_schema, TableOptions(mode=DeleteMode.EQUALITY, format_version=2))
    coordinator = Coordinator(job=JobId("commits"), fence=Fence(1, uuid4()), incarnation="bench")
    took = []
    for number in range(_WARM_UP + bench.sizes.commits):
        lower, upper = (Hlc(number) if number else None), Hlc(number + 1)
        file = _file(table, coordinator.job, upper)
        epoch_commit = make_epoch_commit(coordinator, _TABLE, table.uuid, lower, Frontier(upper), [file])

        def commit(plan=epoch_commit.plan) -> None:  # type: ignore[no-untyped-def]
            answer = committer.commit(_TABLE, committer.head(_TABLE), plan)
            if not isinstance(answer, Accepted):
                raise AssertionError(f"nobody else writes {_TABLE}, yet its commit was answered with {answer}")

        took.append(timed(commit))
    say(f"  {label}: " + " ".join(f"{1000 * seconds:.0f}" for seconds in took) + " ms")
    name = f"commit, all files written, {label}: p50"
    return measured(name, 1000 * statistics.median(took[_WARM_UP:]), "ms", at_most=at_most)


def _file(table: LoadedTable, job: JobId, epoch: Hlc) -> FileClosed:
    path = f"{table.data_location}/{epoch.text}.parquet"
    (field,) = table.schema.fields
    column = pa.field("id", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(field.id)})
    sink = io.BytesIO()
    pq.write_table(pa.table([pa.array(range(_ROWS), pa.int64())], schema=pa.schema([column])), sink)
    content = sink.getvalue()
    output = open_output(path, table.storage)
    output.write(memoryview(content))
    output.sync()
    output.close()
    return FileClosed(
        table=_TABLE,
        epoch=epoch,
        batch_id=batch_id(job, _TABLE, epoch),
        worker=0,
        schema_id=table.schema.schema_id,
        spec_id=table.spec.spec_id,
        path=path,
        kind=FileKind.DATA,
        records=_ROWS,
        size=len(content),
        digest=hashlib.sha256(content).hexdigest(),
    )
