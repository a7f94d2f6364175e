"""Frazil's own small tables in the namespace `_frazil`, or `frazil_system` where names begin with a letter: made on
first use, rows replaced in one commit on one head.

SystemTable.head() --> there? no: create --> TableHead
SystemTable.rewrite(head, rows)            --> Parquet through the table's FileIO --> TableTransaction --> CommitAnswer
                                               and all that was there before is gone
SystemTable.exchange(head, partition, ...) --> the same: rows of several partitions come, those of one go
SystemTable.tidy(most)                     --> more snapshots than that could go? --> they go, with their files

These tables clean up after themselves, and at once: nobody but Frazil reads their past, and a deletion queue that had
to hold its own files would grow by what it takes to empty it. Files of all other tables are deleted by the queue alone.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from frazil.clock import Clock
from frazil.errors import CatalogRefused, StorageUnavailable, TableChanged
from frazil.iceberg.catalogs.open_catalog import Catalog, catalog_error, iceberg_properties
from frazil.iceberg.commits.operations import AddFiles, RemoveRows, SetProperties, TableTransaction, WriteSnapshot
from frazil.iceberg.commits.transaction import publish
from frazil.iceberg.jvm.errors import JAVA_ERRORS, failure_of
from frazil.iceberg.tables.encryption import check_plain
from frazil.iceberg.tables.head import Base, read_head
from frazil.iceberg.tables.tables import Tables
from frazil.model.arrow import value_type
from frazil.model.commit import CommitAnswer
from frazil.model.ids import PLAIN_SYSTEM_NAMESPACE, SYSTEM_NAMESPACE, TableName
from frazil.model.ledger import TableHead
from frazil.model.partition import parse_partition
from frazil.model.schema import Column, SourceSchema, Type
from frazil.model.write import DeleteMode, TableOptions

_OPTIONS = TableOptions(mode=DeleteMode.EQUALITY, format_version=2)
_NOTHING: Mapping[str, str] = {}
_MAX_AGE, _LEAST = "history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep"
_ICEBERGS = {_MAX_AGE: "432000000", _LEAST: "1"}
# A commit every few seconds: without bounds the table's metadata would outgrow its rows within hours.
_SHORT_HISTORY = {_MAX_AGE: "600000", _LEAST: "10", "write.metadata.previous-versions-max": "20"}
_log = logging.getLogger("frazil.catalog")
_MALFORMED = "org.apache.iceberg.exceptions.BadRequestException"


def may_go(head: TableHead) -> int:
    """How many snapshots the table's properties allow to go, as of its newest one. Pure. Raises ValueError if they are
    no numbers."""
    bounds = {**_ICEBERGS, **head.properties}
    oldest = head.ancestry[0].timestamp_ms - int(bounds[_MAX_AGE]) if head.ancestry else 0
    return sum(snapshot.timestamp_ms < oldest for snapshot in head.ancestry[int(bounds[_LEAST]) :])


def system_schema(columns: Mapping[str, Type], key: tuple[str, ...]) -> SourceSchema:
    """The source schema of a table of ours."""
    return SourceSchema(
        tuple(Column(name, type_, str(type_), "frazil") for name, type_ in columns.items()), key, "frazil"
    )


class SystemTable:
    """One of them, in one catalog. `partition_by` names a column of text whose values are exchanged as a whole. With
    `short_history` only the newest state is of use to anybody: older snapshots go sooner, see `tidy`."""

    def __init__(
        self,
        catalog: Catalog,
        name: str,
        source_schema: SourceSchema,
        clock: Clock,
        *,
        partition_by: str | None = None,
        short_history: bool = False,
    ) -> None:
        self._name = name
        self._catalog = catalog
        self._source_schema = source_schema
        self._clock = clock
        self._partition_by = partition_by
        partition = () if partition_by is None else (parse_partition(partition_by),)
        self._options = replace(_OPTIONS, partition=partition, properties=_SHORT_HISTORY if short_history else _NOTHING)
        self._committed_on: TableHead | None = None

    @property
    def name(self) -> TableName:
        """Raises CatalogUnavailable or CatalogRefused if the catalog must be asked and does not answer."""
        return TableName((_namespace(self._catalog),), self._name)

    def exists(self) -> bool:
        return Tables(self._catalog).exists(self.name)

    def head(self) -> TableHead:
        """The table as it is now, made if it was not there. Raises CatalogUnavailable or CatalogRefused."""
        try:
            return read_head(self._catalog, self.name)
        except (TableChanged, CatalogRefused):
            if self.exists():
                raise
        Tables(self._catalog).create(self.name, self._source_schema, self._options)
        return read_head(self._catalog, self.name)

    def rewrite(
        self,
        head: TableHead,
        rows: Sequence[Mapping[str, object]],
        summary: Mapping[str, str],
        properties: Mapping[str, str],
    ) -> CommitAnswer:
        """These rows and properties, instead of all rows that there were. A table that was made before its history was
        to be short gets the bounds of it, too. Lands on exactly this head or not at all. Raises StorageUnavailable if
        the rows cannot be written, before anything is sent."""
        self._committed_on = head
        files = [self._file(_base_of(head), rows)]
        bounds = {name: value for name, value in self._options.properties.items() if name not in head.properties}
        rows_for_rows = WriteSnapshot(changes=(RemoveRows(), AddFiles(files)), summary=summary)
        transaction = TableTransaction((rows_for_rows, SetProperties({**bounds, **properties})))
        return publish(self._catalog, _base_of(head), transaction)

    def exchange(
        self,
        head: TableHead,
        gone: str | None,
        groups: Mapping[str, Sequence[Mapping[str, object]]],
        summary: Mapping[str, str],
    ) -> CommitAnswer:
        """These rows, by the value of their partition, come; all whose partition is `gone` go, in the same commit.
        Lands and raises like `rewrite`."""
        if self._partition_by is None:
            raise TypeError(f"{self._name} is not partitioned: nothing of it can be exchanged")
        self._committed_on = head
        files = [self._file(_base_of(head), rows, value) for value, rows in groups.items() if rows]
        removed = () if gone is None else (RemoveRows(self._partition_by, gone),)
        snapshot = WriteSnapshot(changes=(*removed, AddFiles(files)), summary=summary)
        return publish(self._catalog, _base_of(head), TableTransaction((snapshot,)))

    def tidy(self, most: int) -> None:
        """To be called after each commit: once so many snapshots are allowed to go by the table's properties, they are
        removed, with the files that nothing else refers to. What the table held before the commit decides, however
        short the life of a process is. Failing that, a line in the log.

        Iceberg-java does it, tries again by itself and deletes at once: it may remove what nobody refers to and no
        more, so an answer that is lost leaves files behind and breaks nothing.
        """
        try:
            if self._committed_on is not None and may_go(self._committed_on) >= most:
                self._catalog.java.loadTable(self._catalog.identifier(self.name)).expireSnapshots().commit()
        except JAVA_ERRORS as error:
            failure = failure_of(error, iceberg_properties(self._catalog.settings))
            _log.warning("old snapshots of %s were not removed: %s", self._name, failure)
        except ValueError as error:
            _log.warning("old snapshots of %s were not removed: %s", self._name, error)

    def _file(self, base: Base, rows: Sequence[Mapping[str, object]], partition: str | None = None) -> dict[str, Any]:
        """Writes the rows, and gives their manifest entry. A table that is not cut (any more) takes no partition."""
        path, size = self._write(base, rows)
        spec_id = base.document["default-spec-id"]
        (spec,) = [spec for spec in base.document["partition-specs"] if spec["spec-id"] == spec_id]
        return {
            "spec-id": spec_id,
            "content": "data",
            "file-path": path,
            "file-format": "parquet",
            "partition": [partition for _ in spec["fields"]],
            "file-size-in-bytes": size,
            "record-count": len(rows),
        }

    def _write(self, base: Base, rows: Sequence[Mapping[str, object]]) -> tuple[str, int]:
        """Through the table's own FileIO, so that it lands wherever the catalog keeps its tables. Raises ConfigError
        for a table that is encrypted."""
        check_plain(self.name, base.document)
        try:
            ids = {
                column.name: base.table.schema().findField(column.name).fieldId()
                for column in self._source_schema.columns
            }
            path = f"{base.table.location()}/data/{self._clock.new_uuid()}.parquet"
            content = _parquet(self._source_schema, rows, ids)
            stream = base.table.io().newOutputFile(path).create()
            try:
                stream.write(content)
            finally:
                stream.close()
        except JAVA_ERRORS as error:
            failure = failure_of(error, iceberg_properties(self._catalog.settings))
            raise StorageUnavailable(
                f"cannot write to {self.name} at {self._catalog.settings.endpoint}: {failure}",
                hint="check that the warehouse can be written",
                table=self.name.text,
            ) from None
        return path, len(content)


_plain: dict[tuple[str, str], bool] = {}


def forget_namespaces() -> None:
    """What catalogs answered in a session that is gone."""
    _plain.clear()


def _base_of(head: TableHead) -> Base:
    if not isinstance(head.base, Base):
        raise TypeError("`head` must be what head() gave")
    return head.base


def _namespace(catalog: Catalog) -> str:
    """Where the catalog takes our tables. One that speaks REST is asked once whether it takes the name at all."""
    settings = catalog.settings
    if not settings.type.speaks_rest:
        return SYSTEM_NAMESPACE
    try:
        key = catalog.spark.sparkContext.applicationId, settings.endpoint
        plain = _plain.get(key)
        if plain is None:
            catalog.java.namespaceExists(catalog.namespace((SYSTEM_NAMESPACE,)))
            plain = _plain[key] = False
    except JAVA_ERRORS as error:
        if not failure_of(error, iceberg_properties(settings)).is_a(_MALFORMED):
            raise catalog_error(catalog, error, "look for the namespace", SYSTEM_NAMESPACE) from None
        plain = _plain[key] = True
    return PLAIN_SYSTEM_NAMESPACE if plain else SYSTEM_NAMESPACE


def _parquet(source_schema: SourceSchema, rows: Sequence[Mapping[str, object]], ids: Mapping[str, int]) -> bytes:
    fields = [
        pa.field(
            column.name,
            value_type(column.type),
            nullable=column.name not in source_schema.key,
            metadata={"PARQUET:field_id": str(ids[column.name])},
        )
        for column in source_schema.columns
    ]
    columns: dict[str, Any] = {column.name: [row[column.name] for row in rows] for column in source_schema.columns}
    sink = io.BytesIO()
    pq.write_table(pa.table(columns, schema=pa.schema(fields)), sink, compression="zstd")
    return sink.getvalue()
