"""A table at one moment, from its metadata.

loadTable --> TableMetadataParser.toJson (few crossings) --> parse_head: ancestry of a branch, properties, uuid
                                                                `-- base: the Java handles a commit is made with
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from frazil.errors import CatalogRefused
from frazil.iceberg.catalogs.open_catalog import Catalog, catalog_error
from frazil.iceberg.jvm.errors import JAVA_ERRORS
from frazil.iceberg.jvm.method_handles import Handles, handles_of, made_once, text
from frazil.iceberg.tables.encryption import check_plain
from frazil.iceberg.tables.storage import storage_of
from frazil.model.ids import TableName
from frazil.model.ledger import SnapshotFacts, TableHead, check_formats
from frazil.model.table import TableForm

MAIN = "main"
_NO_SNAPSHOT = -1


@dataclass(frozen=True, slots=True)
class Base:
    """Handles to exactly one state of a table: its Java identifier, the Java Table, and the TableMetadata it had when
    it was read; `document` is that metadata as the specification's JSON. `storage` are the properties of the table's
    file system by Iceberg's names, with credentials as fresh as the head; empty if the table is local. What is
    committed with it lands on `branch`."""

    identifier: Any
    table: Any
    metadata: Any
    document: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    storage: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    branch: str = MAIN

    @property
    def parent_id(self) -> int | None:
        """The snapshot that the next one on the branch follows. A branch that is not there yet begins at main."""
        return head_of(self.document, self.branch) or head_of(self.document, MAIN)


def read_head(catalog: Catalog, table: TableName) -> TableHead:
    """The table as the catalog has it now.

    Every call loads anew, so that a recreated table shows its new uuid instead of failing a refresh. Raises
    CatalogUnavailable, CatalogRefused, TableChanged if the table is gone, or LedgerTooNew.
    """
    base, metadata = read_metadata(catalog, table)
    return parse_head(metadata, base)


def read_metadata(catalog: Catalog, table: TableName) -> tuple[Base, Mapping[str, Any]]:
    """The handles and the whole metadata as the specification's JSON. Raises like `read_head`."""
    document: dict[str, Any] = {}
    try:
        identifier = made_once(catalog, f"identifier {table}", lambda _: catalog.identifier(table))
        java_table = catalog.java.loadTable(identifier)
        metadata = java_table.operations().current()
        document = document_of(catalog, metadata)
        storage = storage_of(catalog, java_table, document["location"])
    except JAVA_ERRORS as error:
        # Without its key not even the storage of an encrypted table is told, and Java's words for it name no table.
        check_plain(table, document)
        raise catalog_error(catalog, error, "read the table", table.text) from None
    summaries = [(one["snapshot-id"], one.get("summary", {})) for one in document.get("snapshots", ())]
    check_formats(table, summaries, document.get("properties", {}))
    return Base(identifier, java_table, metadata, document, storage), document


def parse_head(metadata: Mapping[str, Any], base: Base | None = None, branch: str = MAIN) -> TableHead:
    """Pure: `metadata` is a metadata file's JSON."""
    by_id = {snapshot["snapshot-id"]: parse_facts(snapshot) for snapshot in metadata.get("snapshots", ())}
    ancestry = []
    seen = set()
    snapshot_id = head_of(metadata, branch)
    while snapshot_id in by_id:
        if snapshot_id in seen:
            raise CatalogRefused(
                f"the history of table {metadata['table-uuid']} runs in a circle at snapshot {snapshot_id}",
                hint="the table's metadata is damaged: restore an older metadata file",
            )
        seen.add(snapshot_id)
        ancestry.append(by_id[snapshot_id])
        snapshot_id = by_id[snapshot_id].parent_id
    tags = {
        name: by_id.get(ref["snapshot-id"]) for name, ref in metadata.get("refs", {}).items() if ref["type"] == "tag"
    }
    return TableHead(
        uuid=metadata["table-uuid"],
        ancestry=tuple(ancestry),
        properties=metadata.get("properties", {}),
        tags={name: snapshot for name, snapshot in tags.items() if snapshot is not None},
        form=TableForm.of(metadata),
        base=base,
    )


def document_of(catalog: Catalog, metadata: Any) -> dict[str, Any]:
    """A Java TableMetadata as the specification's JSON. Raises what Java raises."""
    to_json = made_once(catalog, "metadata to JSON", _to_json)
    document: dict[str, Any] = json.loads(text(handles_of(catalog).call(to_json, metadata)))
    return document


def _to_json(handles: Handles) -> Any:
    string, metadata = handles.kind("java.lang.String"), handles.iceberg("TableMetadata")
    return handles.in_java(handles.static(handles.iceberg("TableMetadataParser"), "toJson", string, metadata))


def head_of(metadata: Mapping[str, Any], branch: str = MAIN) -> int | None:
    """The newest snapshot of a branch; None if there is no such branch, or nothing on main yet."""
    reference = metadata.get("refs", {}).get(branch)
    if reference is None:
        current = metadata.get("current-snapshot-id") if branch == MAIN else None
    else:
        current = reference["snapshot-id"]
    return None if current in (None, _NO_SNAPSHOT) else int(current)


def parse_facts(snapshot: Mapping[str, Any]) -> SnapshotFacts:
    return SnapshotFacts(
        snapshot_id=snapshot["snapshot-id"],
        parent_id=snapshot.get("parent-snapshot-id"),
        sequence_number=snapshot.get("sequence-number", 0),
        timestamp_ms=snapshot["timestamp-ms"],
        summary=snapshot.get("summary", {}),
    )
