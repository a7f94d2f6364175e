"""The one road by which anything of ours reaches a table.

    Base (Table, TableMetadata as read)
      --> newTransaction --its start is another metadata?--> Conflicted, nothing sent
                         --it was changed in our future?---> Early, nothing sent
                         --it is encrypted?----------------> Refused, nothing sent
      --> stage the snapshot: AppendFiles, RowDelta if deletes are added or removed, RewriteFiles if files take each
          other's place and no row changes, OverwriteFiles of a partition, on main or on the base's branch; DeleteFiles
          of all there is, to begin a load on a branch
      --> stage properties, stage the tag on the staged snapshot, let main be what the branch is
      --> sent (`rest.send`), exactly once --> Accepted | Conflicted | Refused | Unknown

iceberg-java's own commit would retry: after a commit that landed and was answered with a conflict it applies the change
again or deletes the manifest list that landed. So it only stages, and every retry is a decision of the caller on a head
that it has read. For the same reason nothing is cleaned up here: a refused commit leaves its manifests to the sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from frazil.iceberg.catalogs.open_catalog import Catalog, CatalogType, iceberg_properties
from frazil.iceberg.catalogs.rest import StagedCommit, can_assert, send, send_many
from frazil.iceberg.jvm.bridge import (
    ADD_DELETES,
    ADD_ROWS,
    APPEND_FILE,
    OVERWRITE_FILE,
    REMOVE_DELETES,
    REWRITE_ADD_DELETES,
    REWRITE_ADD_ROWS,
    REWRITE_REMOVE_DELETES,
    REWRITE_REMOVE_ROWS,
    Adder,
    add_numbered_deletes,
    add_older_deletes,
    hand_over,
    java_list,
    set_summary,
)
from frazil.iceberg.jvm.errors import JAVA_ERRORS, commit_answer, failure_of
from frazil.iceberg.jvm.method_handles import made_once
from frazil.iceberg.tables.encryption import WAY_OUT, encrypted_by
from frazil.iceberg.tables.head import MAIN, Base, head_of
from frazil.iceberg.tables.storage import is_local
from frazil.model.commit import Accepted, CommitAnswer, Conflicted, Early, Refused

_NO_PROPERTIES: Mapping[str, str] = {}
_OTHER_ICEBERG = "let Frazil start the Spark session itself, or start it with the Iceberg jar that Frazil brings"
_ALLOWED_MILLIS = 60_000
_UNACCEPTABLE = ("java.lang.IllegalArgumentException", "java.lang.UnsupportedOperationException")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTransaction:
    """One snapshot and what travels with it.

    `properties` gets the snapshot's id and sequence number, which are known only once it is staged. Files are in the
    form of iceberg-java's ContentFileParser. `must_exist` are data files that the deletes point into. `replaced` is a
    column and a value: the files of that partition make room for these data files; with `replaces_all` all files do.
    `clears` if the snapshot deletes every row. `rewrites` if files are exchanged for others with the same rows:
    data files then take the place of `removed_data` and get the sequence number `data_sequence`, where it is said;
    `kept_deletes`, each with its number, would be dropped with them and must not be. Deletes get `delete_sequence`,
    where it is said. `adopted` if main becomes the branch's new snapshot and the branch is removed. `unmoved` are
    branches that must still be where the base has them, though the commit does not touch them.
    """

    data_files: Sequence[Mapping[str, Any]] = ()
    delete_files: Sequence[Mapping[str, Any]] = ()
    removed_deletes: Sequence[Mapping[str, Any]] = ()
    removed_data: Sequence[Mapping[str, Any]] = ()
    kept_deletes: Sequence[tuple[Mapping[str, Any], int]] = ()
    data_sequence: int | None = None
    delete_sequence: int | None = None
    must_exist: Sequence[str] = ()
    summary: Mapping[str, str] = field(default_factory=dict)
    properties: Callable[[int, int], Mapping[str, str]] = lambda snapshot_id, sequence_number: _NO_PROPERTIES
    removed_properties: Sequence[str] = ()
    tag: str | None = None
    removed_tag: str | None = None
    replaced: tuple[str, str] | None = None
    replaces_all: bool = False
    clears: bool = False
    rewrites: bool = False
    adopted: bool = False
    unmoved: Sequence[str] = ()

    @property
    def is_delta(self) -> bool:
        return bool(self.delete_files or self.removed_deletes or self.removed_data)


def publish(
    catalog: Catalog,
    base: Base,
    publication: TableTransaction,
    on_landed: Callable[[int, int], None] | None = None,
) -> CommitAnswer:
    """Lands on exactly this base or not at all; never retries. `on_landed` is told the id and sequence number of an
    accepted snapshot."""
    staged = _staged(catalog, base, partial(_stage, catalog, base, publication=publication), publication.unmoved)
    answer = _sent(catalog, staged)
    if isinstance(answer, Accepted) and isinstance(staged, StagedCommit) and on_landed is not None:
        on_landed(staged.snapshot_id, staged.sequence_number)
    return answer


def remove_branch(catalog: Catalog, base: Base, unmoved: Sequence[str] = ()) -> CommitAnswer:
    """Removes the base's branch, if it is still where the base has it; never retries. What was only on it is left to
    expiry."""

    def stage(transaction: Any) -> tuple[int, int]:
        transaction.manageSnapshots().removeBranch(base.branch).commit()
        return base.parent_id or 0, 0

    # iceberg-java asserts nothing of a branch that is removed.
    return _sent(catalog, _staged(catalog, base, stage, (base.branch, *unmoved)))


def publish_staged(
    catalog: Catalog, base: Base, stage: Callable[[Any], tuple[int, int]], unmoved: Sequence[str] = ()
) -> CommitAnswer:
    """Whatever `stage` does to the transaction, on exactly this base or not at all; never retries. It returns the id
    and sequence number that an accepted commit answers with. `unmoved` as for a TableTransaction, tags too."""
    return _sent(catalog, _staged(catalog, base, stage, unmoved))


def _sent(catalog: Catalog, staged: StagedCommit | CommitAnswer) -> CommitAnswer:
    if not isinstance(staged, StagedCommit):
        return staged
    if not can_assert(catalog, staged):
        reason = "this session's Iceberg cannot tell the catalog which branches must not have moved"
        return Refused(reason, _OTHER_ICEBERG)
    try:
        send(catalog, staged)
    except Exception as error:  # whatever it is, the request may have been sent
        return commit_answer(failure_of(error, iceberg_properties(catalog.settings)))
    return Accepted(staged.snapshot_id)


def publish_many(
    catalog: Catalog,
    publications: Sequence[tuple[Base, TableTransaction]],
    on_landed: Callable[[int, int, int], None] | None = None,
) -> tuple[CommitAnswer, ...]:
    """Several tables in one request, each on exactly its base; never retries. One answer for each, in order.

    If one cannot be staged, nothing is sent, and the others are answered as conflicted. An answer that proves nothing
    proves nothing of any of them; known servers may also have landed some and refused others. `on_landed` is told the
    place, the id and the sequence number of each accepted snapshot. Only for catalogs that declare it
    (`rest.declares_transactions`).
    """
    staged = [
        _staged(catalog, base, partial(_stage, catalog, base, publication=publication), publication.unmoved)
        for base, publication in publications
    ]
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


def _staged(
    catalog: Catalog, base: Base, stage: Callable[[Any], tuple[int, int]], unmoved: Sequence[str]
) -> StagedCommit | CommitAnswer:
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
        snapshot_id, sequence_number = stage(transaction)
        operations, metadata = transaction.underlyingOps(), transaction.currentMetadata()
    except JAVA_ERRORS as error:
        failure = failure_of(error, iceberg_properties(catalog.settings))
        # Nothing was sent yet, so iceberg-java's own no is a proof.
        return Refused(str(failure)) if failure.is_a(*_UNACCEPTABLE) else commit_answer(failure)
    held = {branch: head_of(base.document, branch) for branch in unmoved}
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


def _stage(catalog: Catalog, base: Base, transaction: Any, publication: TableTransaction) -> tuple[int, int]:
    specs = base.metadata.specsById()
    if base.branch != MAIN:
        _branch_off(base, transaction)
    operation, add_rows = _operation(catalog, transaction, publication)
    if base.branch != MAIN:
        operation.toBranch(base.branch)
    if is_local(base.metadata.location()):
        # Waiting for a pool polls every 10 ms, which is longer than a local manifest takes.
        operation.scanManifestsWith(made_once(catalog, "direct executor", lambda _: _direct_executor(catalog)))
    add_deletes, remove_deletes = ADD_DELETES, REMOVE_DELETES
    if publication.rewrites:
        add_deletes, remove_deletes = REWRITE_ADD_DELETES, REWRITE_REMOVE_DELETES
    if publication.is_delta:
        _guard(catalog, base, operation, publication)
        kept = [entry for entry, _ in publication.kept_deletes]
        hand_over(catalog, remove_deletes, operation, [*publication.removed_deletes, *kept], specs)
        hand_over(catalog, REWRITE_REMOVE_ROWS, operation, publication.removed_data, specs)
    if publication.data_sequence is not None:
        operation.dataSequenceNumber(publication.data_sequence)
    hand_over(catalog, add_rows, operation, publication.data_files, specs)
    if publication.delete_sequence is None:
        hand_over(catalog, add_deletes, operation, publication.delete_files, specs)
    else:
        numbered = [(entry, publication.delete_sequence) for entry in publication.delete_files]
        add_numbered = add_numbered_deletes if publication.rewrites else add_older_deletes
        add_numbered(catalog, operation, numbered, specs)
    add_numbered_deletes(catalog, operation, publication.kept_deletes, specs)
    set_summary(catalog, operation, publication.summary)
    operation.commit()
    staged = transaction.currentMetadata()
    snapshot_id: int = staged.ref(base.branch).snapshotId()
    sequence_number: int = staged.snapshot(snapshot_id).sequenceNumber()
    properties = publication.properties(snapshot_id, sequence_number)
    if properties or publication.removed_properties:
        update = transaction.updateProperties()
        for key, value in properties.items():
            update.set(key, value)
        for key in publication.removed_properties:
            update.remove(key)
        update.commit()
    _stage_tag(transaction, transaction.table(), snapshot_id, publication)
    if publication.adopted:
        transaction.manageSnapshots().setCurrentSnapshot(snapshot_id).commit()
        transaction.manageSnapshots().removeBranch(base.branch).commit()
    return snapshot_id, sequence_number


def _branch_off(base: Base, transaction: Any) -> None:
    """A branch that is made here begins at main. Left to the operation, it would begin there too, but its summaries
    would count the table's totals from nothing, and then not at all."""
    if head_of(base.document, base.branch) is None and base.parent_id is not None:
        transaction.manageSnapshots().createBranch(base.branch, base.parent_id).commit()


def _operation(catalog: Catalog, transaction: Any, publication: TableTransaction) -> tuple[Any, Adder]:
    """The operation that makes the snapshot, and how it takes data files."""
    expressions = catalog.iceberg.expressions.Expressions
    if publication.clears:
        # Deletes go with the rows they delete; sequence numbers and row ids of what is left for time travel stay.
        return transaction.newDelete().deleteFromRowFilter(expressions.alwaysTrue()), APPEND_FILE
    if publication.replaced is not None or publication.replaces_all:
        where = expressions.alwaysTrue() if publication.replaced is None else expressions.equal(*publication.replaced)
        return transaction.newOverwrite().overwriteByRowFilter(where), OVERWRITE_FILE
    if publication.rewrites:
        return transaction.newRewrite(), REWRITE_ADD_ROWS
    if publication.is_delta:
        return transaction.newRowDelta(), ADD_ROWS
    return transaction.newAppend(), APPEND_FILE


def _guard(catalog: Catalog, base: Base, operation: Any, publication: TableTransaction) -> None:
    """The commit is conditional on the base anyway; should that ever fail, deletes must not meet other files."""
    if base.parent_id is not None:
        operation.validateFromSnapshot(base.parent_id)
    if publication.must_exist:
        operation.validateDataFilesExist(java_list(catalog, publication.must_exist))
        operation.validateDeletedFiles()


def _direct_executor(catalog: Catalog) -> Any:
    return catalog.iceberg.relocated.com.google.common.util.concurrent.MoreExecutors.newDirectExecutorService()


def _stage_tag(transaction: Any, table: Any, snapshot_id: int, publication: TableTransaction) -> None:
    existing = table.refs()
    if publication.tag is not None:
        manage = transaction.manageSnapshots()
        if existing.containsKey(publication.tag):
            manage.replaceTag(publication.tag, snapshot_id)
        else:
            manage.createTag(publication.tag, snapshot_id)
        manage.commit()
    if publication.removed_tag is not None and existing.containsKey(publication.removed_tag):
        transaction.manageSnapshots().removeTag(publication.removed_tag).commit()
