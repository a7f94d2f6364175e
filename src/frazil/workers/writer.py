"""Writes the files of one table and epoch in one task.

    mode          an upsert                              a delete
    equality      data row + delete of its key           delete of its key
      (no deletes) data row                              nothing: the table is empty
    append-only   data row, _op, _position               key columns, _op, _position

A net change deletes every older row of its key and adds at most one new one. The delete is made of the key columns
of the very row that is added, so that no difference of spelling can leave two rows of one key behind (H2, H51).
Two entry points share this core: travelling changes and DataFrames of typed columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from frazil.model.columns import Field
from frazil.model.files import FileClosed, Kind
from frazil.model.names import data_path, equality_delete_path
from frazil.model.write import (
    CHANGELOG_OP,
    CHANGELOG_POSITION,
    DeleteMode,
    EpochTarget,
    ParquetSettings,
    TableTask,
    WriteJob,
)
from frazil.workers.binding import Binding, key_fields
from frazil.workers.parquet import ClosedFile, RollingWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which task of a job writes, and how: all that its paths and files depend on. `attempt` is never used by
    another run of the same task, so no path comes twice (H41)."""

    shard: int
    attempt: str
    parquet: ParquetSettings
    storage: Mapping[str, str]

    @classmethod
    def of(cls, job: WriteJob, shard: int, task_attempt: str) -> Place:
        return cls(shard=shard, attempt=f"{job.attempt}.{task_attempt}", parquet=job.parquet, storage=job.storage)


class TableEpochWriter:
    """Takes the net changes of one table and epoch, batch by batch, and reports the files at the end."""

    def __init__(self, task: TableTask, target: EpochTarget, place: Place, ignored: Collection[str] = ()) -> None:
        keys = key_fields(task.table, task.schema, task.key)
        self._task = task
        self._target = target
        self._place = place
        self._rows = Binding(task.table, task.schema.fields, task.key, ignored)
        self._keys = Binding(task.table, keys, task.key, ignored)
        self._equality_ids = tuple(field.id for field in keys)
        self._data = self._writer(task.schema.fields, data_path)
        self._deletes = self._writer(keys, equality_delete_path)

    @property
    def drops_deletes(self) -> bool:
        """Whether a delete leaves no trace here, so that nobody needs to decode its key."""
        return self._task.mode is DeleteMode.EQUALITY and not self._target.deletes

    @property
    def keeps_log(self) -> bool:
        """Whether rows are written with their position; elsewhere nobody needs to spell it out."""
        return self._task.mode is DeleteMode.APPEND_ONLY

    def upserts(self, rows: pa.RecordBatch, positions: pa.Array | None = None) -> None:
        """Rows of the table, by column name. A changelog needs their positions as texts.

        Raises UnknownColumn, DoesNotFit, BadInput, CatalogRefused, StorageUnavailable.
        """
        if self.keeps_log:
            self._data.write(self._rows.bind(_logged(rows, "upsert", positions)))
            return
        bound = self._rows.bind(rows)
        self._data.write(bound)
        if self._target.deletes:
            self._deletes.write(bound.select(list(self._task.key)))

    def deletes(self, keys: pa.RecordBatch, positions: pa.Array | None = None) -> None:
        """Key columns of rows that are gone. Raises like `upserts`."""
        if self.keeps_log:
            self._data.write(self._rows.bind(_logged(keys, "delete", positions)))
        elif self._target.deletes:
            self._deletes.write(self._keys.bind(keys))

    def close(self) -> tuple[FileClosed, ...]:
        """Completes the files: data first, then deletes. None at all if nothing had to be written."""
        data = [self._message(file, Kind.DATA) for file in self._data.close()]
        deletes = [self._message(file, Kind.EQUALITY_DELETE) for file in self._deletes.close()]
        return (*data, *deletes)

    def abandon(self) -> None:
        """Releases open files after a failure; what they hold so far is never reported."""
        self._data.abandon()
        self._deletes.abandon()

    def _writer(self, fields: Sequence[Field], path: Callable[[str, int, str, int], str]) -> RollingWriter:
        place, prefix = self._place, self._target.prefix

        def path_of(sequence: int) -> str:
            return path(prefix, place.shard, place.attempt, sequence)

        return RollingWriter(fields, path_of, place.parquet, place.storage)

    def _message(self, file: ClosedFile, kind: Kind) -> FileClosed:
        return FileClosed(
            table=self._task.table,
            epoch=self._target.epoch,
            batch_id=self._target.batch_id,
            worker=self._place.shard,
            schema_id=self._task.schema.schema_id,
            spec_id=self._task.delete_spec.spec_id if kind is Kind.EQUALITY_DELETE else self._task.spec.spec_id,
            path=file.path,
            kind=kind,
            records=file.records,
            size=file.size,
            metrics=file.metrics,
            equality_ids=self._equality_ids if kind is Kind.EQUALITY_DELETE else (),
            split_offsets=file.split_offsets,
            digest=file.digest,
        )


def _logged(rows: pa.RecordBatch, op: str, positions: pa.Array | None) -> pa.RecordBatch:
    if positions is None:
        raise AssertionError("a changelog keeps the position of every change")
    return pa.RecordBatch.from_arrays(
        [*rows.columns, pa.repeat(op, rows.num_rows), positions],
        names=[*rows.schema.names, CHANGELOG_OP, CHANGELOG_POSITION],
    )
