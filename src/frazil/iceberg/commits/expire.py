"""Snapshots of a table, and the commit that removes some of them: metadata alone, no file is touched.

    snapshots(table) ----------> TableSnapshots with its base
    freed(table, seen, ids) ---> files that only these snapshots reach
    expire(table, seen, expiry)  set tags, drop tags, remove exactly these snapshots --staged, sent once--> CommitAnswer

iceberg-java's own expiry also drops references by their age, and snapshots by the table's properties; what is removed
here is what was planned and nothing else. Every branch and tag must still be where it was seen. A REST catalog cannot
be told that no further tag was made meanwhile: one that somebody sets between look and commit, on a snapshot that
expires, goes with it; every other catalog answers with a conflict.
"""

from __future__ import annotations

from collections.abc import Sequence

from frazil.iceberg.catalogs.open_catalog import Catalog
from frazil.iceberg.commits.operations import ExpireSnapshots, RemoveTag, SetTag, TableTransaction
from frazil.iceberg.commits.snapshots import Expiry, Reference, TableSnapshots
from frazil.iceberg.commits.transaction import publish
from frazil.iceberg.tables.head import MAIN, Base, head_of, parse_facts, read_metadata
from frazil.iceberg.tables.reachability import Reach
from frazil.model.commit import CommitAnswer
from frazil.model.ids import TableName


class SnapshotCommitter:
    """Snapshots of the tables of one catalog. Implements `frazil.maintenance.expire.planner.ExpiringCommitter`."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def snapshots(self, table: TableName) -> TableSnapshots:
        """Raises CatalogUnavailable, CatalogRefused, or TableChanged if the table is gone."""
        base, _ = read_metadata(self._catalog, table)
        return parse_snapshots(base)

    def freed(self, table: TableName, seen: TableSnapshots, removed: frozenset[int]) -> Sequence[str]:
        """Raises CatalogUnavailable or CatalogRefused."""
        return Reach.of(self._catalog, table, base_of(seen)).freed(removed)

    def expire(self, table: TableName, seen: TableSnapshots, expiry: Expiry) -> CommitAnswer:
        """Lands on exactly what was seen or not at all; never retries by itself. Raises ValueError if a branch or a tag
        names a snapshot that is to go."""
        expiry.check_against(seen)
        tags = [SetTag(name, snapshot_id) for name, snapshot_id in expiry.tags.items()]
        dropped = map(RemoveTag, expiry.dropped_tags)
        removed = (ExpireSnapshots(expiry.removed),) if expiry.removed else ()
        transaction = TableTransaction((*tags, *dropped, *removed), unmoved=tuple(seen.references))
        return publish(self._catalog, base_of(seen), transaction)


def parse_snapshots(base: Base) -> TableSnapshots:
    """Pure but for the handle."""
    document = base.document
    references = {
        name: Reference(ref["snapshot-id"], ref["type"] == "branch") for name, ref in document.get("refs", {}).items()
    }
    main = head_of(document, MAIN)
    if main is not None:
        references.setdefault(MAIN, Reference(main, True))
    return TableSnapshots(
        uuid=document["table-uuid"],
        snapshots={entry["snapshot-id"]: parse_facts(entry) for entry in document.get("snapshots", ())},
        references=references,
        properties=document.get("properties", {}),
        base=base,
    )


def base_of(seen: TableSnapshots) -> Base:
    if not isinstance(seen.base, Base):
        raise TypeError("these snapshots were not read from this lake")
    return seen.base
