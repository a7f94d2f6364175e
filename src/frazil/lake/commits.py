"""Heads and commits of tables: the Lake that the coordinator publishes to.

head(table) ------------------> TableHead with its base
commit(table, head, plan) ----> Publication --publish, once--> Accepted | Conflicted | Unknown | Refused

plan                         snapshot      property frazil.<job>.ledger    tag frazil_<job>
files without deletes        AppendFiles   the entry                       on the snapshot
files with deletes           RowDelta      the entry                       on the snapshot
no files (heartbeat)         AppendFiles   the entry                       on the snapshot
forget                       AppendFiles   removed                         removed
"""

from __future__ import annotations

from frazil.lake.catalogs import Catalog
from frazil.lake.heads import Base, read_head
from frazil.lake.publish import Publication, publish
from frazil.model.commit import CommitAnswer, CommitPlan
from frazil.model.ledger import TableHead
from frazil.model.names import TableName


class IcebergLake:
    """Implements `frazil.model.ports.Lake` on one catalog. Safe to be used from several threads."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def head(self, table: TableName) -> TableHead:
        """Raises CatalogUnavailable, CatalogRefused, or TableChanged if the table is gone."""
        return read_head(self._catalog, table)

    def commit(self, table: TableName, head: TableHead, plan: CommitPlan) -> CommitAnswer:
        """Lands on exactly this head or not at all; never retries by itself."""
        if not isinstance(head.base, Base):
            raise TypeError(f"the head of {table} was not read from this lake")
        return publish(self._catalog, head.base, publication_of(plan))


def publication_of(plan: CommitPlan) -> Publication:
    """What a plan means for the table. Pure."""
    job, entry = plan.entry.job, plan.entry
    data_files = [file.manifest_json() for file in plan.data_files]
    delete_files = [file.manifest_json() for file in plan.delete_files]
    if plan.forget:
        return Publication(
            data_files=data_files,
            delete_files=delete_files,
            summary=plan.summary,
            removed_properties=(job.ledger_property,),
            removed_tag=job.tag,
        )
    return Publication(
        data_files=data_files,
        delete_files=delete_files,
        summary=plan.summary,
        properties=lambda snapshot_id, number: {job.ledger_property: entry.to_property(snapshot_id, number)},
        tag=job.tag,
    )
