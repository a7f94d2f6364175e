"""The one road by which anything of ours reaches a table's main branch.

    Base (Table, TableMetadata as read)
      --> newTransaction --its start is another metadata?--> Conflicted, nothing sent
      --> stage the snapshot: AppendFiles, or RowDelta if there are deletes
      --> stage properties, stage the tag on the staged snapshot
      --> underlyingOps().commit(start, staged), exactly once --> Accepted | Conflicted | Refused | Unknown

iceberg-java's own commit would retry: after a commit that landed and was answered with a conflict it applies the change
again or deletes the manifest list that landed. So it only stages, and every retry is a decision of the caller on a head
that it has read. For the same reason nothing is cleaned up here: a refused commit leaves its manifests to the sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from frazil.lake.catalogs import Catalog, CatalogType, iceberg_properties
from frazil.lake.failures import JAVA_ERRORS, commit_answer, failure_of
from frazil.lake.handover import ADD_DELETES, ADD_ROWS, APPEND_FILE, hand_over
from frazil.lake.heads import Base
from frazil.model.commit import Accepted, CommitAnswer, Conflicted

_NO_PROPERTIES: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """One snapshot and what travels with it.

    `properties` gets the snapshot's id and sequence number, which are known only once it is staged. Files are in the
    form of iceberg-java's ContentFileParser.
    """

    data_files: Sequence[Mapping[str, Any]] = ()
    delete_files: Sequence[Mapping[str, Any]] = ()
    summary: Mapping[str, str] = field(default_factory=dict)
    properties: Callable[[int, int], Mapping[str, str]] = lambda snapshot_id, sequence_number: _NO_PROPERTIES
    removed_properties: Sequence[str] = ()
    tag: str | None = None
    removed_tag: str | None = None


def publish(catalog: Catalog, base: Base, publication: Publication) -> CommitAnswer:
    """Lands on exactly this base or not at all; never retries."""
    secrets = iceberg_properties(catalog.settings)
    try:
        transaction = base.table.newTransaction()
        start = transaction.startMetadata()
        if not start.equals(base.metadata) or _was_recreated(catalog, base):
            return Conflicted("the table has changed since its head was read")
        snapshot_id = _stage(catalog, transaction, publication)
        operations, staged = transaction.underlyingOps(), transaction.currentMetadata()
    except JAVA_ERRORS as error:
        return commit_answer(failure_of(error, secrets))
    try:
        operations.commit(start, staged)
    except Exception as error:  # whatever it is, the request may have been sent
        return commit_answer(failure_of(error, secrets))
    return Accepted(snapshot_id)


def _was_recreated(catalog: Catalog, base: Base) -> bool:
    """A Hadoop table knows its state by a counter alone: dropped and made again, it reaches the same number, and a
    commit would put the old table's metadata over the new one's. Every other catalog compares more than that."""
    if catalog.settings.type is not CatalogType.HADOOP:
        return False
    now = catalog.java.loadTable(base.identifier).operations().current()
    return bool(now.uuid() != base.metadata.uuid())


def _stage(catalog: Catalog, transaction: Any, publication: Publication) -> int:
    specs = transaction.table().specs()
    operation = transaction.newRowDelta() if publication.delete_files else transaction.newAppend()
    add_data = ADD_ROWS if publication.delete_files else APPEND_FILE
    hand_over(catalog, add_data, operation, publication.data_files, specs)
    hand_over(catalog, ADD_DELETES, operation, publication.delete_files, specs)
    for key, value in publication.summary.items():
        operation.set(key, value)
    operation.commit()
    snapshot = transaction.table().currentSnapshot()
    snapshot_id: int = snapshot.snapshotId()
    properties = publication.properties(snapshot_id, snapshot.sequenceNumber())
    if properties or publication.removed_properties:
        update = transaction.updateProperties()
        for key, value in properties.items():
            update.set(key, value)
        for key in publication.removed_properties:
            update.remove(key)
        update.commit()
    _stage_tag(transaction, snapshot_id, publication)
    return snapshot_id


def _stage_tag(transaction: Any, snapshot_id: int, publication: Publication) -> None:
    existing = transaction.table().refs()
    if publication.tag is not None:
        manage = transaction.manageSnapshots()
        if existing.containsKey(publication.tag):
            manage.replaceTag(publication.tag, snapshot_id)
        else:
            manage.createTag(publication.tag, snapshot_id)
        manage.commit()
    if publication.removed_tag is not None and existing.containsKey(publication.removed_tag):
        transaction.manageSnapshots().removeTag(publication.removed_tag).commit()
