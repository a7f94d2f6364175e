"""Makes a table, in the newest way that the catalog takes.

    as asked --refused?--> without a staged creation --refused?--> the same as version 2 of the format
       |                  (partitioning follows)
       v made as version 3, on remote storage: may vectors be stored there?
         yes --> done
         no  --> the table, empty and ours, is made again as version 2

A catalog that guards its own storage may refuse files of a kind it does not know. Deletion vectors are Puffin files: a
small one is tried, once for each catalog.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from frazil.iceberg.catalogs.capabilities import WITHOUT_V3, has_learned, learn
from frazil.iceberg.catalogs.open_catalog import Catalog, iceberg_properties
from frazil.iceberg.jvm.errors import BAD_REQUEST, FORBIDDEN, JAVA_ERRORS, UNSUPPORTED, JavaFailure, failure_of
from frazil.iceberg.tables.layout import Layout, layout_change, stage_layout, stage_sort
from frazil.iceberg.tables.new_schema import first_memory
from frazil.iceberg.tables.storage import is_local, table_location
from frazil.model.ids import TableName
from frazil.model.partition import UNPARTITIONED
from frazil.model.schema import COLUMNS_PROPERTY, UUID, Remembered, Schema, SourceSchema, columns_property
from frazil.model.write import DEFAULT_FORMAT_VERSION, TableOptions

# Bounded metadata: every epoch is a snapshot, and every snapshot writes a metadata file.
DEFAULT_PROPERTIES: Mapping[str, str] = MappingProxyType(
    {
        "write.parquet.compression-codec": "zstd",
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "100",
    }
)
CREATED_PROPERTY = "frazil.created"
_DENIED = ("accessdenied", "access denied", "status code: 403", "invalidiceberglayout")
_PROBE = "frazil-may-vectors-be-stored.puffin"
_MAGIC = b"PFA1"


def create_table(
    catalog: Catalog, table: TableName, schema: Schema, source_schema: SourceSchema, options: TableOptions
) -> JavaFailure | None:
    """Makes it, or says how that failed. What is learned of the catalog on the way is remembered."""
    if has_learned(catalog.settings):
        options = replace(options, format_version=min(options.format_version, WITHOUT_V3))
    failure = _somehow(catalog, table, schema, source_schema, options)
    if failure is not None or options.format_version < DEFAULT_FORMAT_VERSION or _stores_vectors(catalog, table):
        return failure
    try:
        catalog.java.dropTable(catalog.identifier(table), False)
    except JAVA_ERRORS as error:
        return failure_of(error, iceberg_properties(catalog.settings))
    return _somehow(catalog, table, schema, source_schema, replace(options, format_version=WITHOUT_V3))


def uuid_properties(schema: Schema) -> dict[str, str]:
    """iceberg-java orders uuids as signed numbers and bounds as unsigned ones, so a uuid's bounds make it skip files,
    and equality deletes, that match. Our workers write none; this asks the same of everybody else."""
    columns = [field.name for field in schema if field.type == UUID]
    return {f"write.metadata.metrics.column.{name}": "counts" for name in columns}


def _somehow(
    catalog: Catalog, table: TableName, schema: Schema, source_schema: SourceSchema, options: TableOptions
) -> JavaFailure | None:
    ways = [options, replace(options, partition=())] if options.partition else [options]
    if options.format_version > WITHOUT_V3:
        ways += [replace(way, format_version=WITHOUT_V3) for way in ways]
    failure: JavaFailure | None = None
    for way in ways:
        version = {"format-version": str(way.format_version)}
        wanted = {**DEFAULT_PROPERTIES, **uuid_properties(schema), **version, **options.properties}
        memory = first_memory(source_schema.columns, schema)
        wanted |= {COLUMNS_PROPERTY: columns_property(memory), CREATED_PROPERTY: "true"}
        failure = _once(catalog, table, schema, way, wanted, memory)
        if failure is None or not failure.is_a(UNSUPPORTED, BAD_REQUEST):
            return failure
    return failure


def _once(
    catalog: Catalog,
    table: TableName,
    schema: Schema,
    options: TableOptions,
    properties: Mapping[str, str],
    memory: Mapping[int, Remembered],
) -> JavaFailure | None:
    """The unpartitioned spec comes first, so that deletes that reach every partition have one (H1)."""
    iceberg = catalog.iceberg
    try:
        java_schema = iceberg.SchemaParser.fromJson(json.dumps(schema.to_json()))
        builder = catalog.java.buildTable(catalog.identifier(table), java_schema)
        builder = builder.withProperties(catalog.java_map(properties))
        bare = Layout(spec=UNPARTITIONED, specs=(UNPARTITIONED,))
        change = layout_change(table, schema, bare, options, memory)
        if change.sort:
            order = stage_sort(catalog, iceberg.SortOrder.builderFor(java_schema), change.sort)
            builder = builder.withSortOrder(order.build())
        if options.location is not None:
            builder = builder.withLocation(options.location)
        if not options.partition:
            builder.create()
            return None
        transaction = builder.createTransaction()
        stage_layout(catalog, transaction, replace(change, sort=()))
        transaction.commitTransaction()
    except JAVA_ERRORS as error:
        return failure_of(error, iceberg_properties(catalog.settings))
    return None


def _stores_vectors(catalog: Catalog, table: TableName) -> bool:
    """False only if the storage refuses a Puffin file, and not a Parquet one: then it is the kind that it refuses. Any
    other trouble is for the first epoch to meet."""
    if not catalog.settings.type.speaks_rest:
        return True
    key = catalog.settings.type.value, catalog.settings.endpoint
    with _lock:
        if key not in _tried:
            _tried.add(key)
            if _refuses_vectors(catalog, table):
                learn(catalog.settings, DEFAULT_FORMAT_VERSION, WITHOUT_V3)
    return not has_learned(catalog.settings)


def _refuses_vectors(catalog: Catalog, table: TableName) -> bool:
    try:
        java_table = catalog.java.loadTable(catalog.identifier(table))
        folder, name = f"{table_location(java_table.location())}/data", java_table.uuid().toString()
        file_io = java_table.io()
    except JAVA_ERRORS:
        return False
    if is_local(folder) or not _is_refused(catalog, file_io, f"{folder}/{name}-{_PROBE}"):
        return False
    return not _is_refused(catalog, file_io, f"{folder}/{name}.parquet")


def _is_refused(catalog: Catalog, file_io: Any, path: str) -> bool:
    try:
        stream = file_io.newOutputFile(path).create()
        try:
            stream.write(_MAGIC)
        finally:
            stream.close()
        file_io.deleteFile(path)
    except JAVA_ERRORS as error:
        failure = failure_of(error, iceberg_properties(catalog.settings))
        return failure.has(FORBIDDEN) or any(sign in failure.message.lower() for sign in _DENIED)
    return False


_tried: set[tuple[str, str]] = set()
_lock = threading.Lock()
