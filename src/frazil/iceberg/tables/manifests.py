"""Manifests of a table, and the commit that puts small ones together: no data file and no row changes.

    manifests(table, head) ---------> path, size and number of files of each manifest, of data files and of deletes
    merge_manifests(head, paths) ---> RewriteManifests of exactly these --staged, sent once--> CommitAnswer
                                        data: written by the operation     deletes: written here, replaced by it

iceberg-java merges manifests by itself once a hundred have piled up; a reader that plans a query opens all of them
until then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from frazil.iceberg.catalogs.open_catalog import Catalog, catalog_error
from frazil.iceberg.commits.committer import base_of
from frazil.iceberg.commits.operations import RewriteManifests, TableTransaction
from frazil.iceberg.commits.transaction import publish
from frazil.iceberg.jvm.errors import JAVA_ERRORS
from frazil.iceberg.tables.head import MAIN, read_head
from frazil.model.commit import CommitAnswer
from frazil.model.files import LiveManifest
from frazil.model.ids import TableName
from frazil.model.ledger import TableHead


class ManifestCommitter:
    """Manifests of the tables of one catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def head(self, table: TableName) -> TableHead:
        """Raises CatalogUnavailable, CatalogRefused, or TableChanged if the table is gone."""
        return read_head(self._catalog, table)

    def manifests(self, table: TableName, head: TableHead) -> tuple[LiveManifest, ...]:
        """All manifests of exactly this head. Raises CatalogUnavailable or CatalogRefused."""
        base = base_of(table, head)
        if head.snapshot_id is None:
            return ()
        try:
            snapshot, io = base.metadata.snapshot(head.snapshot_id), base.table.io()
            data, deletes = snapshot.dataManifests(io), snapshot.deleteManifests(io)
            return (
                *(_manifest(data.get(place), deletes=False) for place in range(data.size())),
                *(_manifest(deletes.get(place), deletes=True) for place in range(deletes.size())),
            )
        except JAVA_ERRORS as error:
            raise catalog_error(self._catalog, error, "read the manifests of", table.text) from None

    def merge_manifests(
        self, table: TableName, head: TableHead, paths: Sequence[str], summary: Mapping[str, str]
    ) -> CommitAnswer:
        """Lands on exactly this head or not at all; never retries by itself."""
        operation = RewriteManifests(paths, summary)
        return publish(self._catalog, base_of(table, head, MAIN), TableTransaction((operation,)))


def _manifest(java: Any, *, deletes: bool) -> LiveManifest:
    files = (java.existingFilesCount() or 0) + (java.addedFilesCount() or 0)
    return LiveManifest(java.path(), java.length(), java.partitionSpecId(), files, deletes)
