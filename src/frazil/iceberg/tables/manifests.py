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
from frazil.iceberg.commits.transaction import publish_staged
from frazil.iceberg.jvm.bridge import java_list, set_summary
from frazil.iceberg.jvm.errors import JAVA_ERRORS
from frazil.iceberg.jvm.method_handles import Handles, made_once
from frazil.iceberg.tables.delete_manifests import merge_delete_manifests
from frazil.iceberg.tables.head import MAIN, read_head
from frazil.model.commit import CommitAnswer
from frazil.model.files import LiveManifest
from frazil.model.ids import TableName
from frazil.model.ledger import TableHead


class ManifestCommitter:
    """Manifests of the tables of one catalog. Implements `frazil.maintenance.rewrite_manifests.RewritesManifests`."""

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
        base = base_of(table, head, MAIN)

        def stage(transaction: Any) -> tuple[int, int]:
            chosen = made_once(self._catalog, "manifest among", _among)
            handles = chosen.handles
            operation = transaction.rewriteManifests()
            replaced = merge_delete_manifests(self._catalog, base, operation, frozenset(paths))
            if replaced < len(paths):
                operation.clusterBy(handles.as_function(made_once(self._catalog, "spec id of file", _spec_id)))
                wanted = self._catalog.spark._jvm.java.util.HashSet(java_list(self._catalog, paths))
                operation.rewriteIf(handles.as_function(chosen.contains.bindTo(wanted), "java.util.function.Predicate"))
            set_summary(self._catalog, operation, summary)
            operation.commit()
            staged = transaction.currentMetadata()
            snapshot_id: int = staged.ref(base.branch).snapshotId()
            return snapshot_id, int(staged.snapshot(snapshot_id).sequenceNumber())

        return publish_staged(self._catalog, base, stage)


class _Among:
    """(set of paths, manifest) -> whether its path is one of them."""

    def __init__(self, handles: Handles) -> None:
        self.handles = handles
        thing, manifest = handles.kind("java.lang.Object"), handles.iceberg("ManifestFile")
        path = handles.virtual(manifest, "path", handles.kind("java.lang.String"))
        contains = handles.virtual(handles.kind("java.util.Set"), "contains", handles.boolean, thing)
        self.contains = handles.filtered(contains, 1, path.asType(handles.type(thing, manifest)))


def _among(handles: Handles) -> _Among:
    return _Among(handles)


def _spec_id(handles: Handles) -> Any:
    """Entries of one spec may share a manifest."""
    file = handles.iceberg("ContentFile")
    whole = handles.type(handles.kind("java.lang.Integer"), file)
    return handles.virtual(file, "specId", handles.int).asType(whole)


def _manifest(java: Any, *, deletes: bool) -> LiveManifest:
    files = (java.existingFilesCount() or 0) + (java.addedFilesCount() or 0)
    return LiveManifest(java.path(), java.length(), java.partitionSpecId(), files, deletes)
