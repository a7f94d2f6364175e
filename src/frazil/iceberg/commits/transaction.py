"""The one road by which anything of ours reaches a table.

    Base (Table, TableMetadata as read)
      --> newTransaction --its start is another metadata?--> Conflicted, nothing sent
                         --it was changed in our future?---> Early, nothing sent
                         --it is encrypted?----------------> Refused, nothing sent
      --> stage each operation, on main or on the base's branch. A snapshot is an AppendFiles, a RowDelta if deletes
          come or files go, a RewriteFiles if no row changes, an OverwriteFiles if rows go by their partition
      --> sent (`rest.send`), exactly once --> Accepted | Conflicted | Refused | Unknown

iceberg-java's own commit would retry: after a commit that landed and was answered with a conflict it applies the change
again or deletes the manifest list that landed. So it only stages, and every retry is a decision of the caller on a head
that it has read. For the same reason nothing is cleaned up here: a refused commit leaves its manifests to the sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from frazil.iceberg.catalogs.open_catalog import Catalog, CatalogType, iceberg_properties
from frazil.iceberg.catalogs.rest import StagedCommit, can_assert, send, send_many
from frazil.iceberg.commits.operations import (
    AddFiles,
    AdoptBranch,
    ExpireSnapshots,
    Operation,
    RecordLedger,
    RemoveBranch,
    RemoveFiles,
    RemoveRows,
    RemoveTag,
    RewriteManifests,
    SetProperties,
    SetTag,
    TableTransaction,
    WriteSnapshot,
)
from frazil.iceberg.jvm.bridge import (
    APPEND,
    DELTA,
    OVERWRITE,
    REWRITE,
    Producer,
    add_files,
    is_data,
    java_list,
    remove_files,
    set_summary,
)
from frazil.iceberg.jvm.errors import JAVA_ERRORS, commit_answer, failure_of
from frazil.iceberg.jvm.method_handles import made_once
from frazil.iceberg.tables.delete_manifests import rewrite_manifests
from frazil.iceberg.tables.encryption import WAY_OUT, encrypted_by
from frazil.iceberg.tables.head import MAIN, Base, head_of
from frazil.iceberg.tables.storage import is_local
from frazil.model.commit import Accepted, CommitAnswer, Conflicted, Early, Refused

_OTHER_ICEBERG = "let Frazil start the Spark session itself, or start it with the Iceberg jar that Frazil brings"
_ALLOWED_MILLIS = 60_000
_UNACCEPTABLE = ("java.lang.IllegalArgumentException", "java.lang.UnsupportedOperationException")


def publish(
    catalog: Catalog,
    base: Base,
    transaction: TableTransaction,
    on_landed: Callable[[int, int], None] | None = None,
) -> CommitAnswer:
    """Lands on exactly this base or not at all; never retries. `on_landed` is told the id and sequence number of an
    accepted snapshot."""
    staged = _staged(catalog, base, transaction)
    if not isinstance(staged, StagedCommit):
        return staged
    if not can_assert(catalog, staged):
        reason = "this session's Iceberg cannot tell the catalog which branches must not have moved"
        return Refused(reason, _OTHER_ICEBERG)
    try:
        send(catalog, staged)
    except Exception as error:  # whatever it is, the request may have been sent
        return commit_answer(failure_of(error, iceberg_properties(catalog.settings)))
    if on_landed is not None:
        on_landed(staged.snapshot_id, staged.sequence_number)
    return Accepted(staged.snapshot_id)


def publish_many(
    catalog: Catalog,
    transactions: Sequence[tuple[Base, TableTransaction]],
    on_landed: Callable[[int, int, int], None] | None = None,
) -> tuple[CommitAnswer, ...]:
    """Several tables in one request, each on exactly its base; never retries. One answer for each, in order.

    If one cannot be staged, nothing is sent, and the others are answered as conflicted. An answer that proves nothing
    proves nothing of any of them; known servers may also have landed some and refused others. `on_landed` is told the
    place, the id and the sequence number of each accepted snapshot. Only for catalogs that declare it
    (`rest.declares_transactions`).
    """
    staged = [_staged(catalog, base, transaction) for base, transaction in transactions]
    ready = [commit for commit in staged if isinstance(commit, StagedCommit)]
    if len(ready) < len(staged):
        not_sent = Conflicted("nothing was sent: another table of the same commit cannot be published")
        return tuple(not_sent if isinstance(commit, StagedCommit) else commit for commit in staged)
    try:
        send_many(catalog, ready)
    except Exception as error:  # whatever it is, the request may have been sent
        return (commit_answer(failure_of(error, iceberg_properties(catalog.settings))),) * len(ready)
    if on_landed is not None:
        for place, commit in enumerate(ready):
            on_landed(place, commit.snapshot_id, commit.sequence_number)
    return tuple(Accepted(commit.snapshot_id) for commit in ready)


def _staged(catalog: Catalog, base: Base, wanted: TableTransaction) -> StagedCommit | CommitAnswer:
    """Everything but the commit itself, or the answer if it cannot be made. Nothing is sent."""
    if (mark := encrypted_by(base.document)) is not None:
        return Refused(f"the table is encrypted ({mark}), and nothing is written to it", WAY_OUT)
    try:
        transaction = base.table.newTransaction()
        start = transaction.startMetadata()
        if not start.equals(base.metadata) or _was_recreated(catalog, base):
            return Conflicted("the table has changed since its head was read")
        if (answer := too_early(catalog, base)) is not None:
            return answer
        snapshot_id, sequence_number = _perform(catalog, base, transaction, wanted.operations)
        operations, metadata = transaction.underlyingOps(), transaction.currentMetadata()
    except JAVA_ERRORS as error:
        failure = failure_of(error, iceberg_properties(catalog.settings))
        # Nothing was sent yet, so iceberg-java's own no is a proof.
        return Refused(str(failure)) if failure.is_a(*_UNACCEPTABLE) else commit_answer(failure)
    held = {branch: head_of(base.document, branch) for branch in wanted.unmoved}
    return StagedCommit(base.identifier, operations, start, metadata, snapshot_id, sequence_number, held)


def too_early(catalog: Catalog, base: Base) -> Early | None:
    """Iceberg refuses a commit that lies more than a minute before the last one. It goes by the JVM's clock, and so is
    this decided. Raises what Java raises."""
    system = made_once(catalog, "clock", lambda _: catalog.spark._jvm.java.lang.System)
    now: int = system.currentTimeMillis()
    logged = [entry["timestamp-ms"] for entry in base.document.get("snapshot-log", ())]
    last = max([base.document["last-updated-ms"], *logged[-1:]])
    if last - now <= _ALLOWED_MILLIS:
        return None
    ahead, seconds = timedelta(milliseconds=last - now), (last - now - _ALLOWED_MILLIS) / 1000
    when = datetime.fromtimestamp(last / 1000, UTC).isoformat(timespec="seconds")
    reason = f"this machine's clock is {ahead} behind the last commit, which was made at {when}"
    return Early(reason, seconds)


def _was_recreated(catalog: Catalog, base: Base) -> bool:
    """A Hadoop table knows its state by a counter alone: dropped and made again, it reaches the same number, and a
    commit would put the old table's metadata over the new one's. Every other catalog compares more than that."""
    if catalog.settings.type is not CatalogType.HADOOP:
        return False
    now = catalog.java.loadTable(base.identifier).operations().current()
    return bool(now.uuid() != base.metadata.uuid())


def _perform(catalog: Catalog, base: Base, transaction: Any, operations: Sequence[Operation]) -> tuple[int, int]:
    """Stages them, in order. Returns id and sequence number of the snapshot that was written, or the base's."""
    written = (base.parent_id or 0, 0)
    for operation in operations:
        match operation:
            case WriteSnapshot():
                _write_snapshot(catalog, base, transaction, operation)
                written = _newest(transaction, base.branch)
            case RewriteManifests(paths, summary):
                rewriting = transaction.rewriteManifests()
                rewrite_manifests(catalog, base, rewriting, paths)
                set_summary(catalog, rewriting, summary)
                rewriting.commit()
                written = _newest(transaction, base.branch)
            case RecordLedger(entry):
                _set_properties(transaction, {entry.job.ledger_property: entry.to_property(*written)})
            case SetProperties(values):
                _set_properties(transaction, values)
            case SetTag(name, snapshot_id):
                manage = transaction.manageSnapshots()
                put = manage.replaceTag if transaction.table().refs().containsKey(name) else manage.createTag
                put(name, written[0] if snapshot_id is None else snapshot_id)
                manage.commit()
            case RemoveTag(name):
                if transaction.table().refs().containsKey(name):
                    transaction.manageSnapshots().removeTag(name).commit()
            case AdoptBranch():
                transaction.manageSnapshots().setCurrentSnapshot(written[0]).commit()
                transaction.manageSnapshots().removeBranch(base.branch).commit()
            case RemoveBranch():
                transaction.manageSnapshots().removeBranch(base.branch).commit()
            case ExpireSnapshots(ids):
                _expire(catalog, transaction, ids)
    return written


def _newest(transaction: Any, branch: str) -> tuple[int, int]:
    staged = transaction.currentMetadata()
    snapshot_id: int = staged.ref(branch).snapshotId()
    return snapshot_id, int(staged.snapshot(snapshot_id).sequenceNumber())


def _write_snapshot(catalog: Catalog, base: Base, transaction: Any, wanted: WriteSnapshot) -> None:
    specs, producer = base.metadata.specsById(), _producer(wanted)
    if base.branch != MAIN:
        _branch_off(base, transaction)
    operation = getattr(transaction, producer.begin)()
    if base.branch != MAIN:
        operation.toBranch(base.branch)
    if is_local(base.metadata.location()):
        # Waiting for a pool polls every 10 ms, which is longer than a local manifest takes.
        operation.scanManifestsWith(made_once(catalog, "direct executor", lambda _: _direct_executor(catalog)))
    if producer in (DELTA, REWRITE):
        _guard(catalog, base, operation, wanted.must_exist)
    for change in wanted.changes:
        match change:
            case RemoveRows(column, value):
                expressions = catalog.iceberg.expressions.Expressions
                all_rows = expressions.alwaysTrue() if column is None else expressions.equal(column, value)
                operation.overwriteByRowFilter(all_rows)
            case RemoveFiles(files):
                remove_files(catalog, producer, operation, files, specs)
            case AddFiles(files, sequence_number):
                if sequence_number is not None and any(map(is_data, files)):
                    operation.dataSequenceNumber(sequence_number)
                add_files(catalog, producer, operation, files, specs, sequence_number)
    set_summary(catalog, operation, wanted.summary)
    operation.commit()


def _producer(wanted: WriteSnapshot) -> Producer:
    """The operation of iceberg-java that takes all of these changes."""
    if any(isinstance(change, RemoveRows) for change in wanted.changes):
        return OVERWRITE
    if wanted.same_rows:
        return REWRITE
    only_rows_come = all(isinstance(change, AddFiles) and all(map(is_data, change.files)) for change in wanted.changes)
    return APPEND if only_rows_come else DELTA


def _branch_off(base: Base, transaction: Any) -> None:
    """A branch that is made here begins at main. Left to the operation, it would begin there too, but its summaries
    would count the table's totals from nothing, and then not at all."""
    if head_of(base.document, base.branch) is None and base.parent_id is not None:
        transaction.manageSnapshots().createBranch(base.branch, base.parent_id).commit()


def _guard(catalog: Catalog, base: Base, operation: Any, must_exist: Sequence[str]) -> None:
    """The commit is conditional on the base anyway; should that ever fail, deletes must not meet other files."""
    if base.parent_id is not None:
        operation.validateFromSnapshot(base.parent_id)
    if must_exist:
        operation.validateDataFilesExist(java_list(catalog, must_exist))
        operation.validateDeletedFiles()


def _direct_executor(catalog: Catalog) -> Any:
    return catalog.iceberg.relocated.com.google.common.util.concurrent.MoreExecutors.newDirectExecutorService()


def _set_properties(transaction: Any, values: Mapping[str, str | None]) -> None:
    update = transaction.updateProperties()
    for name, value in values.items():
        update.remove(name) if value is None else update.set(name, value)
    update.commit()


def _expire(catalog: Catalog, transaction: Any, snapshot_ids: frozenset[int]) -> None:
    """iceberg-java's own expiry would also drop references by their age, and snapshots by the table's properties."""
    java = catalog.spark._jvm.java
    ids = java.util.HashSet()
    for snapshot_id in snapshot_ids:
        ids.add(java.lang.Long.valueOf(str(snapshot_id)))
    staged = transaction.currentMetadata()
    without = catalog.iceberg.TableMetadata.buildFrom(staged).removeSnapshots(ids).build()
    transaction.table().operations().commit(staged, without)
