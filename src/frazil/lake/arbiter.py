"""Which coordinator of a pipeline is the newest: one register with compare-and-set.

    newest(job) --> property frazil.<job>.fence of _frazil.pipelines, and the head it was read from
    take(job, fence, head) --> one row (pipeline, generation, owner, host, taken_at) and the property, in one commit
                               on exactly that head: of two that read one head, one is Accepted, one Conflicted

The property decides; the rows are for people. The table is made on first use.
"""

from __future__ import annotations

import io
import socket

import pyarrow as pa
import pyarrow.parquet as pq

from frazil.clock import Clock
from frazil.errors import StorageUnavailable
from frazil.lake.catalogs import Catalog, iceberg_properties
from frazil.lake.failures import JAVA_ERRORS, failure_of
from frazil.lake.heads import Base, read_head
from frazil.lake.publish import Publication, publish
from frazil.lake.tables import Tables
from frazil.model.arrow import value_type
from frazil.model.columns import LONG, STRING, TIMESTAMPTZ, Column, TableShape
from frazil.model.commit import CommitAnswer
from frazil.model.ledger import Fence, TableHead
from frazil.model.names import SYSTEM_NAMESPACE, JobId, TableName
from frazil.model.write import DeleteMode, TableOptions

PIPELINES = TableName((SYSTEM_NAMESPACE,), "pipelines")
_SHAPE = TableShape(
    tuple(
        Column(name, kind, str(kind), "frazil")
        for name, kind in (
            ("pipeline", STRING),
            ("generation", LONG),
            ("owner", STRING),
            ("host", STRING),
            ("taken_at", TIMESTAMPTZ),
        )
    ),
    key=("pipeline", "generation", "owner"),
    key_origin="frazil",
)


class IcebergArbiter:
    """Implements `frazil.model.ports.Arbiter` on one catalog."""

    def __init__(self, catalog: Catalog, clock: Clock, host: str | None = None) -> None:
        self._catalog = catalog
        self._clock = clock
        self._host = host or socket.gethostname()

    def newest(self, job: JobId) -> tuple[Fence | None, object]:
        """The newest fence and the head it was read from. Raises CatalogUnavailable or CatalogRefused."""
        tables = Tables(self._catalog)
        if not tables.exists(PIPELINES):
            tables.create(PIPELINES, _SHAPE, TableOptions(mode=DeleteMode.EQUALITY, format_version=2))
        head = read_head(self._catalog, PIPELINES)
        text = head.properties.get(job.fence_property)
        return None if text is None else Fence.parse(text), head

    def take(self, job: JobId, fence: Fence, read: object) -> CommitAnswer:
        """Writes the fence if nothing has changed since `read`. Raises StorageUnavailable if its row cannot be
        written, before anything is sent."""
        if not isinstance(read, TableHead) or not isinstance(read.base, Base):
            raise TypeError("`read` must be what newest() gave")
        path, size = self._write_row(read.base, job, fence)
        row = {
            "spec-id": 0,
            "content": "data",
            "file-path": path,
            "file-format": "parquet",
            "partition": [],
            "file-size-in-bytes": size,
            "record-count": 1,
        }
        publication = Publication(
            data_files=(row,),
            summary={"frazil.operation": "fence", "frazil.fence": fence.text, "frazil.pipeline": job.text},
            properties=lambda snapshot_id, sequence_number: {job.fence_property: fence.text},
        )
        return publish(self._catalog, read.base, publication)

    def _write_row(self, base: Base, job: JobId, fence: Fence) -> tuple[str, int]:
        """Writes through the table's own FileIO, so that it lands wherever the catalog keeps its tables."""
        values = {
            "pipeline": job.text,
            "generation": fence.generation,
            "owner": str(fence.owner),
            "host": self._host,
            "taken_at": self._clock.now(),
        }
        try:
            ids = {column.name: base.table.schema().findField(column.name).fieldId() for column in _SHAPE.columns}
            path = f"{base.table.location()}/data/{self._clock.new_uuid()}.parquet"
            content = _parquet(values, ids)
            stream = base.table.io().newOutputFile(path).create()
            try:
                stream.write(content)
            finally:
                stream.close()
        except JAVA_ERRORS as error:
            failure = failure_of(error, iceberg_properties(self._catalog.settings))
            endpoint = self._catalog.settings.endpoint
            raise StorageUnavailable(
                f"cannot write the fence of pipeline {job} to {PIPELINES} at {endpoint}: {failure}",
                hint="check that the warehouse can be written",
                pipeline=job.text,
            ) from None
        return path, len(content)


def _parquet(values: dict[str, object], ids: dict[str, int]) -> bytes:
    fields = [
        pa.field(
            column.name,
            value_type(column.type),
            nullable=column.name not in _SHAPE.key,
            metadata={"PARQUET:field_id": str(ids[column.name])},
        )
        for column in _SHAPE.columns
    ]
    table = pa.table({name: [value] for name, value in values.items()}, schema=pa.schema(fields))
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()
