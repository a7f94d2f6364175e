"""Deletes what nothing refers to any more, late and in batches; the only place from which files of tables are deleted.

    batch of rows --none is due--> left as it is
        | all of them due: orphaned a grace period ago, and not waiting for another try
        v
    look at the table                    files                          dropped table's metadata
      there, same uuid                   unreferenced ones: delete      dismiss: it was not dropped
                                         the others: dismiss (H46), or
                                         wait for their expiry to land
      there, another uuid                dropped: as above; else hold   expand: one row for each file it reaches
      gone                               dropped: delete; else hold     expand
      under another name, same uuid      dropped: dismiss; else hold    dismiss: it was renamed, or registered again
      under two names, same uuid         hold: one cannot tell for both dismiss: it was not dropped
      says `gc.enabled=false`            dismiss                        dismiss
      a file outside of its locations    left where it is, and told     left out, and told
        |
        v
    storage deletes --failed ones--> retry_count + 1, retry_at later and later; given up after `max_retries`
        |
        v
    the batch is replaced in the queue by what is left of it, in one commit on the queue as it was read

A file outside of its table's own locations is somebody else's: registered with add_files, say, and needed as it was
before. It is deleted only if the settings say so.

To hold is to try again later. A table that is gone may have been renamed, or registered anew from its last metadata
file, and one that is there may be registered a second time: before files go, the whole catalog is asked who has its
uuid, as often as a batch of them is deleted.
Whatever crashes where, the batch is still in the queue and is looked at again; deleting a file that is gone already is
no error. Decisions are pure; `DeletionWorker` performs them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from frazil.clock import Clock
from frazil.errors import FrazilError, Transient
from frazil.iceberg.system.queue_rows import (
    ONE_NAME,
    DeletionBatch,
    DeletionType,
    QueuedDeletion,
    Remains,
    TableStanding,
    Why,
)
from frazil.model.ids import TableName
from frazil.storage.table_locations import outside

_EXPIRY_TAKES = timedelta(hours=1)
"""An expiry queues its files before it lands: what is referred to now need not be in a moment."""
_FIRST_WAIT = timedelta(minutes=1)
_LONGEST_WAIT = timedelta(days=1)
_log = logging.getLogger("frazil.maintenance")


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    grace: timedelta
    max_retries: int = 20
    delete_outside: bool = False

    def __post_init__(self) -> None:
        if self.grace < timedelta(0) or self.max_retries < 0:
            raise ValueError("grace and max_retries must not be negative")


@dataclass(frozen=True, slots=True)
class Delete:
    """After asking once more which of them are referred to, if the table is there to be asked."""


@dataclass(frozen=True, slots=True)
class Expand:
    """Replace the row by the files that the metadata reaches."""


@dataclass(frozen=True, slots=True)
class Dismiss:
    """Take the rows out of the queue, and let the files be."""

    reason: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Try again later."""

    reason: str


Verdict = Delete | Expand | Dismiss | Hold


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """What one run did; `waiting` rows are not due. Files `outside` of their tables' locations were left there."""

    deleted: int = 0
    dismissed: int = 0
    expanded: int = 0
    failed: int = 0
    given_up: int = 0
    outside: int = 0
    waiting: int = 0

    def __add__(self, other: Cleaned) -> Cleaned:
        return Cleaned(**{name: getattr(self, name) + getattr(other, name) for name in self.__slots__})


def is_due(row: QueuedDeletion, now: datetime, grace: timedelta) -> bool:
    """Whether nobody can be reading the file any more, and it is time for the next try."""
    return row.orphaned_at + grace <= now and (row.retry_at is None or row.retry_at <= now)


def newest_of(batches: Sequence[DeletionBatch]) -> dict[str, datetime]:
    """By path, when it was orphaned last. A path may wait twice: its snapshots were to be expired, were not, and are
    now. The grace period counts from the last time."""
    found: dict[str, datetime] = {}
    for batch in batches:
        for row in batch.rows:
            found[row.path] = max(row.orphaned_at, found.get(row.path, row.orphaned_at))
    return found


def due(
    batches: Sequence[DeletionBatch], now: datetime, grace: timedelta
) -> Iterator[tuple[DeletionBatch, tuple[QueuedDeletion, ...]]]:
    """Batches with rows that are due, and those rows."""
    newest = newest_of(batches)
    for batch in batches:
        rows = tuple(row for row in batch.rows if is_due(row, now, grace) and newest[row.path] + grace <= now)
        if rows:
            yield batch, rows


def must_be_nowhere(rows: Sequence[QueuedDeletion], standing: TableStanding) -> bool:
    """Whether all files of a table are to go that is not to be found under its name."""
    return rows[0].why.takes_all and standing.uuid != rows[0].table_uuid


def must_be_alone(rows: Sequence[QueuedDeletion], standing: TableStanding) -> bool:
    """Whether files are to go on the word of the table that has them under its name."""
    return rows[0].type is DeletionType.FILE and standing.uuid == rows[0].table_uuid


def judge(rows: Sequence[QueuedDeletion], standing: TableStanding, elsewhere: str | None = None) -> Verdict:
    """What is to be done with rows that are due, all of one batch. `elsewhere` is another name under which the catalog
    has the table; to be told if it `must_be_nowhere` or `must_be_alone`."""
    first = rows[0]
    same = standing.uuid == first.table_uuid
    if standing.uuid is not None and not standing.may_be_cleaned:
        return Dismiss(f"{first.table} says gc.enabled=false: its files belong to others too")
    if elsewhere is not None and must_be_nowhere(rows, standing):
        return Dismiss(f"{first.table} is not gone, it is called {elsewhere}")
    match first.type:
        case DeletionType.METADATA:
            return Dismiss(f"{first.table} was not dropped") if same else Expand()
        case DeletionType.FILE if same and elsewhere is not None:
            return Hold(f"{first.table} is called {elsewhere} too, which may need its files: {ONE_NAME}")
        case DeletionType.FILE if same or first.why is Why.DROPPED:
            # Rows of a dropped table are made by expanding it, which happens only once it is gone.
            return Delete()
        case DeletionType.FILE:
            what = "there is no such table" if standing.uuid is None else "it is another table by now"
            return Hold(f"{first.table}: {what}, and nobody can be asked whether its files are in use")


def after_failure(row: QueuedDeletion, now: datetime, settings: QueueSettings) -> QueuedDeletion | None:
    """The row as it waits for its next try; None if it is given up."""
    if row.retry_count >= settings.max_retries:
        return None
    wait = min(_FIRST_WAIT * 2 ** min(row.retry_count, 16), _LONGEST_WAIT)
    return replace(row, retry_count=row.retry_count + 1, retry_at=now + wait)


def while_referred_to(row: QueuedDeletion, now: datetime) -> QueuedDeletion | None:
    """The row of a file that something still refers to, as it waits to be looked at again; None if it is dismissed."""
    until = row.orphaned_at + _EXPIRY_TAKES
    return replace(row, retry_at=until) if row.why is Why.EXPIRED and now < until else None


class Queue(Protocol):
    """`_frazil.deletion_queue`."""

    def enqueue(self, deletions: Sequence[QueuedDeletion]) -> None:
        """Raises CatalogUnavailable, CatalogRefused or StorageUnavailable; then none of them is in the queue."""

    def batches(self) -> Sequence[DeletionBatch]:
        """All there is. Raises CatalogUnavailable or CatalogRefused."""

    def finish(self, batch: DeletionBatch, left: Sequence[QueuedDeletion]) -> bool:
        """The batch becomes what is left of it, in one commit; False if the batch is no longer as it was read. Raises
        like `enqueue`."""


class TableScan(Protocol):
    """The tables of a catalog, looked at during one round."""

    def holder(self, table_uuid: str) -> str | None:
        """The name of a table that has this uuid now; None if there is none. Raises CatalogUnavailable, or
        CatalogRefused if some table cannot be asked."""

    def other_table_with_uuid(self, table: TableName, table_uuid: str) -> str | None:
        """Another name under which the catalog has the table now; None if there is none among those that can be read.
        Raises CatalogUnavailable."""


class DeletingCatalog(Protocol):
    def table_scan(self) -> TableScan:
        """Nothing is asked yet."""

    def standing(self, table: TableName) -> TableStanding:
        """Raises CatalogUnavailable or CatalogRefused."""

    def unreferenced(self, table: TableName, paths: Sequence[str]) -> Sequence[str]:
        """Of these, those that nothing of the table refers to now. Raises like `standing`, and TableChanged if the
        table is gone."""

    def remains(self, metadata_file: str) -> Remains:
        """All files that a dropped table's last metadata reaches, itself included; none if it is gone itself, or says
        that its files are shared. Raises like `standing`."""

    def delete(self, table: TableName, paths: Sequence[str]) -> Mapping[str, str]:
        """Those that could not be deleted, with why. One that is not there counts as deleted. Raises like
        `standing`."""


class DeletionWorker:
    """Works the queue of one catalog off. Several may do so at once: the worst is that a file is deleted twice."""

    name = "delete"

    def __init__(self, queue: Queue, committer: DeletingCatalog, settings: QueueSettings, clock: Clock) -> None:
        self._queue = queue
        self._committer = committer
        self._settings = settings
        self._clock = clock

    def plan(
        self, tables: Collection[TableName] | None = None
    ) -> Sequence[tuple[DeletionBatch, tuple[QueuedDeletion, ...]]]:
        """What `perform` would look at now. Raises CatalogUnavailable or CatalogRefused."""
        return self._due(self._queue.batches(), tables)

    def perform(self, tables: Collection[TableName] | None = None, proceed: Callable[[], bool] = _always) -> Cleaned:
        """One round over everything that is due, of these tables or of all; of dropped ones always, since nobody names
        those any more. Asks before each batch whether to proceed. What goes wrong with one batch is logged, waits, and
        does not stop the others. Raises CatalogUnavailable or CatalogRefused if the queue cannot be read."""
        batches = self._queue.batches()
        table_scan = self._committer.table_scan()
        done = Cleaned()
        ready = 0
        found = self._due(batches, tables)
        paths: dict[TableName, list[str]] = {}
        for _, rows in found:
            paths.setdefault(rows[0].table, []).extend(row.path for row in rows if row.type is DeletionType.FILE)
        for batch, rows in found:
            if not proceed():
                break
            ready += len(rows)
            try:
                done += self._work_off(batch, rows, paths[rows[0].table], table_scan)
            except FrazilError as error:
                _log.warning("%d files of %s were not deleted: %s", len(rows), rows[0].table, error)
                done += Cleaned(failed=len(rows))
        return done + Cleaned(waiting=sum(len(batch.rows) for batch in batches) - ready)

    def _due(
        self, batches: Sequence[DeletionBatch], tables: Collection[TableName] | None
    ) -> list[tuple[DeletionBatch, tuple[QueuedDeletion, ...]]]:
        return [
            (batch, rows)
            for batch, rows in due(batches, self._clock.now(), self._settings.grace)
            if tables is None or rows[0].table in tables or rows[0].why.takes_all
        ]

    def _work_off(
        self, batch: DeletionBatch, rows: Sequence[QueuedDeletion], ahead: Sequence[str], table_scan: TableScan
    ) -> Cleaned:
        table = rows[0].table
        try:
            standing = self._committer.standing(table)
            match judge(rows, standing, _elsewhere(rows, standing, table_scan)):
                case Dismiss(reason):
                    _log.info("%s: %d entries leave the deletion queue", reason, len(rows))
                    return self._finish(batch, rows, {}, Cleaned(dismissed=len(rows)))
                case Hold(reason):
                    _log.warning("%d files wait in the deletion queue: %s", len(rows), reason)
                    return self._finish(batch, rows, dict.fromkeys((row.path for row in rows), reason), Cleaned())
                case Expand():
                    return self._expand(batch, rows)
                case Delete():
                    return self._delete(batch, rows, ahead, standing)
        except Transient:
            # Nobody answered, which says nothing about the files: no try is counted.
            raise
        except FrazilError as error:
            return self._finish(batch, rows, dict.fromkeys((row.path for row in rows), str(error)), Cleaned())

    def _delete(
        self, batch: DeletionBatch, rows: Sequence[QueuedDeletion], ahead: Sequence[str], standing: TableStanding
    ) -> Cleaned:
        """The table is asked before every batch, and for all batches of it at once: while it does not change, the lake
        need not search again."""
        table = rows[0].table
        paths = list(dict.fromkeys(row.path for row in rows))
        asked = None if standing.uuid is None else set(self._committer.unreferenced(table, ahead))
        free = [path for path in paths if asked is None or path in asked]
        # Those of a dropped table were judged when its metadata told where it had lain.
        others = self._outside(table, free, standing.locations) if standing.uuid == rows[0].table_uuid else []
        free = [path for path in free if path not in others]
        failed = self._committer.delete(table, free) if free else {}
        now, used = self._clock.now(), set(paths).difference(free, others)
        early = [later for row in rows if row.path in used and (later := while_referred_to(row, now)) is not None]
        done = Cleaned(
            deleted=len(free) - len(failed),
            dismissed=len(used) - len(early),
            outside=len(others),
            waiting=len(early),
        )
        return self._finish(batch, rows, failed, done, early)

    def _outside(self, table: TableName, paths: Sequence[str], locations: Sequence[str]) -> Collection[str]:
        """Of these paths, those that are not the table's to delete."""
        found = set() if self._settings.delete_outside else set(outside(paths, locations))
        if found:
            _log.warning(
                "%d files of %s are left where they are, outside of its locations (%s), the first is %s: delete them "
                "yourself if nobody needs them; maintenance.queue.delete_outside lets the next ones go",
                len(found),
                table,
                ", ".join(locations),
                min(found),
            )
        return found

    def _expand(self, batch: DeletionBatch, rows: Sequence[QueuedDeletion]) -> Cleaned:
        files: list[QueuedDeletion] = []
        left = 0
        for row in rows:
            remains = self._committer.remains(row.path)
            others = self._outside(row.table, remains.files, remains.locations)
            left += len(others)
            file = replace(row, type=DeletionType.FILE, why=Why.DROPPED, retry_count=0, retry_at=None)
            files += [replace(file, path=path) for path in remains.files if path not in others]
        self._queue.finish(batch, [*_others(batch, rows), *files])
        return Cleaned(expanded=len(files), outside=left)

    def _finish(
        self,
        batch: DeletionBatch,
        rows: Sequence[QueuedDeletion],
        failed: Mapping[str, str],
        done: Cleaned,
        early: Sequence[QueuedDeletion] = (),
    ) -> Cleaned:
        """What failed waits for its next try; what is not due stays as it is, and so does what was looked at too
        early; the rest is done."""
        now = self._clock.now()
        left = [*_others(batch, rows), *early]
        given_up = 0
        for row in rows:
            if row.path in failed:
                later = after_failure(row, now, self._settings)
                if later is None:
                    given_up += 1
                    _log.warning("%s is given up and stays where it is: %s", row.path, failed[row.path])
                else:
                    left.append(later)
        self._queue.finish(batch, left)
        return done + Cleaned(failed=len(failed) - given_up, given_up=given_up)


def _elsewhere(rows: Sequence[QueuedDeletion], standing: TableStanding, table_scan: TableScan) -> str | None:
    first = rows[0]
    if must_be_nowhere(rows, standing):
        return table_scan.holder(first.table_uuid)
    return table_scan.other_table_with_uuid(first.table, first.table_uuid) if must_be_alone(rows, standing) else None


def _others(batch: DeletionBatch, rows: Sequence[QueuedDeletion]) -> list[QueuedDeletion]:
    taken = set(rows)
    return [row for row in batch.rows if row not in taken]
