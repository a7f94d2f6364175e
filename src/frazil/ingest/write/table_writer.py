"""Writes the files of one table and epoch in one task.

    mode          an upsert                              a delete
    vectors       data row                               its key, for the lookup that comes before the commit
    equality      data row + delete of its key           delete of its key
      (no deletes) data row                              nothing: the table is empty
    append-only   data row, _op, _position               key columns, _op, _position
    vectors       a row of which columns are not known: as it is, with what is known, for whoever looks up the older one

A net change deletes every older row of its key and adds at most one new one. The delete is made of the key columns
of the very row that is added, so that no difference of spelling can leave two rows of one key behind (H2, H51).
Data rows go to files of their partitions. Deletes by key do not: the older row may lie in another partition than the
newer one, so they are written under an unpartitioned spec, which reaches all of them (H1).
Two entry points share this core: change rows and DataFrames of typed columns.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from frazil.data.bind import Binding, key_fields, optional_but
from frazil.data.parquet_writer import ClosedFile, RollingWriter
from frazil.data.partitioned_writer import PartitionedWriter
from frazil.data.row_sort import sorter
from frazil.data.transforms import bind_spec
from frazil.errors import ConfigError
from frazil.ingest.write.column_mask import INSERTS, KNOWN, Bits, to_masks
from frazil.model.files import FileClosed, FileKind
from frazil.model.ids import data_path, equality_delete_path, partial_path
from frazil.model.table import CHANGELOG_OP, CHANGELOG_POSITION
from frazil.model.write import DeleteMode, EpochTarget, ParquetSettings, TableTask, WriteJob


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutput:
    """Which task of a job writes, and how: all that its paths and files depend on. `attempt` is never used by
    another run of the same task, so no path comes twice (H41)."""

    shard: int
    attempt: str
    parquet: ParquetSettings

    @classmethod
    def of(cls, job: WriteJob, shard: int, task_attempt: str) -> TaskOutput:
        return cls(shard=shard, attempt=f"{job.attempt}.{task_attempt}", parquet=job.parquet)


class TableEpochWriter:
    """Takes the net changes of one table and epoch, batch by batch, and reports the files at the end.

    Raises ConfigError, before anything is written, for a key, a partition field or a sort column that cannot be.
    """

    def __init__(self, task: TableTask, target: EpochTarget, place: TaskOutput, ignored: Collection[str] = ()) -> None:
        keys = key_fields(task.name, task.schema, task.key)
        if task.mode.needs_key and task.delete_spec.partitions:
            raise ConfigError(
                f"{task.name} has no unpartitioned spec, which deletes by key need to reach every partition",
                hint=f"Start the pipeline again: it adds one to {task.name} without changing its partitioning.",
                table=task.name.text,
            )
        self._task = task
        self._target = target
        self._place = place
        self._rows = Binding(task.name, task.schema.fields, task.key, ignored)
        self._keys = Binding(task.name, keys, task.key, ignored)
        self._equality_ids = tuple(field.id for field in keys)
        self._sort = sorter(task.name, task.schema, task.sort)
        self._sequence = itertools.count()
        self._data = PartitionedWriter(bind_spec(task.name, task.schema, task.spec), self._data_writer)
        self._deletes = RollingWriter(keys, self._delete_path, place.parquet, task.storage, metrics=task.metrics)
        self._partial: tuple[Binding, RollingWriter] | None = None

    @property
    def drops_deletes(self) -> bool:
        """Whether a delete leaves no trace here, so that nobody needs to decode its key."""
        return not self.keeps_log and not self._target.deletes

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
        if self._task.mode is DeleteMode.EQUALITY and self._target.deletes:
            self._deletes.write(bound.select(list(self._task.key)))

    def deletes(self, keys: pa.RecordBatch, positions: pa.Array | None = None) -> None:
        """Key columns of rows that are gone. Raises like `upserts`."""
        if self.keeps_log:
            self._data.write(self._rows.bind(_logged(keys, "delete", positions)))
        elif self._target.deletes:
            self._deletes.write(self._keys.bind(keys))

    def partials(self, rows: pa.RecordBatch, known: Bits, inserts: Bits) -> None:
        """Rows of which not all columns are known: `known` has a bit for each of their columns, and `inserts` says
        whether there is to be a row if there was none before. Columns that the table has besides are known to be NULL.
        Raises like `upserts`."""
        if self._task.mode is not DeleteMode.VECTORS:
            raise AssertionError(f"{self._task.name}: nobody looks up older rows in mode {self._task.mode}")
        if self._partial is None:
            self._partial = self._partial_writer()
        binding, writer = self._partial
        bound = binding.bind(rows)
        bits = np.ones((rows.num_rows, bound.num_columns), np.bool_)
        for number, name in enumerate(rows.schema.names):
            bits[:, bound.schema.get_field_index(name)] = known[:, number]
        columns = [*bound.columns, to_masks(bits), pa.array(inserts)]
        writer.write(pa.RecordBatch.from_arrays(columns, schema=writer.schema))

    def log(self, rows: pa.RecordBatch) -> None:
        """Rows of a changelog that bring its own columns with them. Raises like `upserts`."""
        self._data.write(self._rows.bind(rows))

    def close(self) -> tuple[FileClosed, ...]:
        """Completes the files: data first, then deletes, then rows that are not whole. None at all if nothing had to
        be written."""
        data = [self._message(closed.file, FileKind.DATA, closed.partition) for closed in self._data.close()]
        nowhere = (None,) * len(self._task.delete_spec.fields)
        deletes = [self._message(file, FileKind.EQUALITY_DELETE, nowhere) for file in self._deletes.close()]
        partial = () if self._partial is None else self._partial[1].close()
        return (*data, *deletes, *(self._message(file, FileKind.PARTIAL, ()) for file in partial))

    def abandon(self) -> None:
        """Releases open files after a failure; what they hold so far is never reported."""
        self._data.abandon()
        self._deletes.abandon()
        if self._partial is not None:
            self._partial[1].abandon()

    def _data_writer(self) -> RollingWriter:
        """For one more partition; the files of all of them are counted together, so that no two have one name."""
        task, parquet = self._task, self._place.parquet
        return RollingWriter(
            task.schema.fields,
            self._data_path,
            parquet,
            task.storage,
            sort=self._sort,
            bloom=task.key if parquet.bloom_filter else (),
            metrics=task.metrics,
        )

    def _partial_writer(self) -> tuple[Binding, RollingWriter]:
        task, fields = self._task, optional_but(self._task.key, self._task.schema.fields)
        writer = RollingWriter((*fields, KNOWN, INSERTS), self._partial_path, self._place.parquet, task.storage)
        return Binding(task.name, fields, task.key), writer

    def _data_path(self, _number_in_partition: int) -> str:
        return data_path(self._target.prefix, self._place.shard, self._place.attempt, next(self._sequence))

    def _delete_path(self, number: int) -> str:
        return equality_delete_path(self._target.prefix, self._place.shard, self._place.attempt, number)

    def _partial_path(self, number: int) -> str:
        return partial_path(self._target.prefix, self._place.shard, self._place.attempt, number)

    def _message(self, file: ClosedFile, kind: FileKind, partition: tuple[Any, ...]) -> FileClosed:
        sorted_as_a_whole = kind is FileKind.DATA and self._sort is not None and len(file.split_offsets) == 1
        return FileClosed(
            table=self._task.name,
            epoch=self._target.epoch,
            batch_id=self._target.batch_id,
            worker=self._place.shard,
            schema_id=self._task.schema.schema_id,
            spec_id=self._task.delete_spec.spec_id if kind is FileKind.EQUALITY_DELETE else self._task.spec.spec_id,
            kind=kind,
            partition=partition,
            equality_ids=self._equality_ids if kind is FileKind.EQUALITY_DELETE else (),
            sort_order_id=self._task.sort_order_id if sorted_as_a_whole else None,
            **(file.facts if kind is not FileKind.PARTIAL else {**file.facts, "metrics": ()}),
        )


def _logged(rows: pa.RecordBatch, op: str, positions: pa.Array | None) -> pa.RecordBatch:
    if positions is None:
        raise AssertionError("a changelog keeps the position of every change")
    return pa.RecordBatch.from_arrays(
        [*rows.columns, pa.repeat(op, rows.num_rows), positions],
        names=[*rows.schema.names, CHANGELOG_OP, CHANGELOG_POSITION],
    )
