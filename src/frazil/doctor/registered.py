"""What an examination reads of a table: all that its manifests register, how large its metadata is, what it is called.

    registered(table, head) ----> Registered: every entry, a file twice if it is there twice, with what deletes reach it
    metadata(table, head) ------> MetadataFacts, of the very metadata that the head was read from
    examined_table(table, head) > what tasks must know to look at its rows
    names() --------------------> all tables of the catalog, for somebody who has mistyped one

`LiveReader` keeps a path once, which is what everybody needs who writes; who looks for damage must see it as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from frazil.doctor.examination import ExaminedTable, MetadataFacts, Registered
from frazil.errors import FrazilError, TableChanged
from frazil.iceberg.catalogs.open_catalog import Catalog, catalog_error, iceberg_properties
from frazil.iceberg.catalogs.table_scan import table_identifiers
from frazil.iceberg.commits.committer import base_of
from frazil.iceberg.jvm.errors import JAVA_ERRORS, NO_FILE, failure_of
from frazil.iceberg.tables.fields import columns_ever, rewritten_table
from frazil.iceberg.tables.file_index import entries_of
from frazil.iceberg.tables.file_listing import Entry, Listing, applied
from frazil.iceberg.tables.tables import parse_table
from frazil.model.files import LiveDelete, LiveFile
from frazil.model.ids import BadName, TableName
from frazil.model.ledger import TableHead
from frazil.model.partition import PartitionSpec


class ExaminedTables:
    """The tables of one catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def registered(self, table: TableName, head: TableHead) -> Registered:
        """Out of all manifests of exactly this head. Raises TableChanged if one is missing, CatalogUnavailable,
        CatalogRefused, ConfigError."""
        base = base_of(table, head)
        if head.snapshot_id is None:
            return Registered(None)
        specs = parse_table(table, base.document).specs
        try:
            entries = entries_of(self._catalog, base, head.snapshot_id)
        except JAVA_ERRORS as error:
            failure = failure_of(error, iceberg_properties(self._catalog.settings))
            if failure.has(*NO_FILE):
                raise TableChanged(f"a manifest of {table} is missing: {failure}", table=table.text) from None
            raise catalog_error(self._catalog, error, "read the manifests of", table.text) from None
        return parse_registered(head.snapshot_id, entries, specs)

    def metadata(self, table: TableName, head: TableHead) -> MetadataFacts:
        """Nothing is read."""
        document = base_of(table, head).document
        return MetadataFacts(
            bytes=len(json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()),
            snapshots=len(document.get("snapshots", ())),
            references=len(document.get("refs", {})),
            schemas=len(document.get("schemas", ())),
            specs=len(document.get("partition-specs", ())),
            log=len(document.get("metadata-log", ())),
            properties={name: len(value.encode()) for name, value in document.get("properties", {}).items()},
        )

    def examined_table(self, table: TableName, head: TableHead, configured_key: Sequence[str] = ()) -> ExaminedTable:
        """Nothing is read. `configured_key` counts where the table names no identifier fields. Raises ConfigError."""
        base = base_of(table, head)
        loaded = parse_table(table, base.document, base.storage)
        number = head.ancestry[0].sequence_number if head.ancestry else 0
        rewritten = rewritten_table(loaded, base.document, number)
        ever = columns_ever(base.document)
        defaults = {id_: column.default for id_, column in ever.items() if column.default is not None}
        configured = [field for name in configured_key if (field := loaded.schema.field(name)) is not None]
        key = loaded.schema.identifiers or (tuple(configured) if len(configured) == len(configured_key) else ())
        # An identifier may lie inside a struct, which this product never makes.
        whole = len(key) == len(loaded.schema.identifier_ids) or not loaded.schema.identifier_ids
        return ExaminedTable(
            replace(rewritten, defaults={**defaults, **rewritten.defaults}),
            tuple(column.field for column in ever.values()),
            key if whole else (),
        )

    def names(self) -> tuple[TableName, ...]:
        """Of all tables of the catalog, as far as it lists them."""
        found: list[TableName] = []
        with suppress(FrazilError):
            for identifier in table_identifiers(self._catalog):
                with suppress(BadName):
                    found.append(TableName(tuple(identifier.namespace().levels()), identifier.name()))
        return tuple(found)


def parse_registered(snapshot_id: int, entries: Iterable[Entry], specs: Sequence[PartitionSpec]) -> Registered:
    """Pure. Which deletes reach a registration depends on its own sequence number and partition."""
    data: list[LiveFile] = []
    deletes: dict[Any, LiveDelete] = {}
    for entry in entries:
        if isinstance(entry, LiveFile):
            data.append(entry)
        else:
            deletes[entry.path, entry.offset] = entry
    everywhere = frozenset(spec.spec_id for spec in specs if not spec.partitions)
    found: list[LiveFile] = []
    waiting = data
    while waiting:
        # A listing holds a path once: what is left over goes into the next one.
        layer: dict[str, LiveFile] = {}
        later = []
        for file in waiting:
            if layer.setdefault(file.path, file) is not file:
                later.append(file)
        found += applied(Listing(snapshot_id, layer, deletes, everywhere)).files
        waiting = later
    return Registered(snapshot_id, tuple(found), tuple(deletes.values()))
