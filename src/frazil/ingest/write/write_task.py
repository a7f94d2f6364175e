"""The body of the Spark task that writes: sorted changes in, messages out.

    batches --fold--> (table, epoch, rows) --> TargetsWriter --close--> FileClosed ... of every target
                 `--- reports, passed through ------------------------> reports, and what went to quarantine
                                                   at the very end ---> Resolved(R1), Resolved(R2) ...

Rows come sorted by table and epoch, so the targets of one source table are open at a time. Resolved closes the
task's output: it says that every file of the epoch up to there was reported, so it follows all of them, and a task
without rows sends it too. If anything fails the task raises and reports nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from frazil.errors import BadInput, ConfigError
from frazil.ingest.quarantine.captured_keys import CapturedKeys
from frazil.ingest.write.change_rows import FileOf, PositionText, output_batch, report_json, unplaced
from frazil.ingest.write.fold import fold_changes
from frazil.ingest.write.row_versions import ColumnChanges, fold_versions
from frazil.ingest.write.table_writer import TableEpochWriter, TaskOutput
from frazil.ingest.write.target_writer import TargetsWriter, is_log
from frazil.model.change import REPORT_EPOCH, Op
from frazil.model.files import Resolved
from frazil.model.position import Position
from frazil.model.write import EpochTarget, Role, TableTask, WriteJob
from frazil.sources.base import Decoder


def write_changes(
    batches: Iterable[pa.RecordBatch],
    job: WriteJob,
    decoder: Decoder,
    shard: int,
    attempt: str,
    *,
    epochs: Sequence[Position],
    position_text: PositionText,
    file_of: FileOf = unplaced,
) -> Iterator[pa.RecordBatch]:
    """OUTPUT batches for TRAVEL batches sorted by SORT_COLUMNS.

    `attempt` tells this run of the task from every other one; `epochs` are the uppers of the window, which may be
    more than any table of the job has; `file_of` names a partition. Raises what the decoder and the writer raise.
    """
    tables: dict[int, list[TableTask]] = {}
    for task in job.tables:
        tables.setdefault(task.index, []).append(task)
    logs = [index for index, tasks in tables.items() if any(is_log(task) for task in tasks)]
    captures = {
        index: CapturedKeys(index, job.quarantined.get(index, {}), takes_new=job.puts_away)
        for index, tasks in tables.items()
        if any(task.role is Role.QUARANTINE for task in tasks)
    }
    place = TaskOutput.of(job, shard, attempt)
    reports: list[bytes] = []
    errors: list[bytes] = []
    done: set[tuple[int, int]] = set()
    current: tuple[int, int] | None = None
    writer: TargetsWriter | None = None
    try:
        for table, epoch, rows in fold_changes(batches, logs):
            if epoch == REPORT_EPOCH:
                reports.extend(_reports(rows))
                errors.extend(rows.filter(pc.equal(rows.column("op"), int(Op.ERROR))).column("payload").to_pylist())
                continue
            if current != (table, epoch):
                if writer is not None:
                    yield output_batch(writer.close())
                    writer = None
                if (table, epoch) in done:
                    raise AssertionError(f"the changes of table {table}, epoch {epoch} did not arrive sorted")
                current = (table, epoch)
                done.add(current)
                tasks = _targets(tables, table, epoch)
                writer = TargetsWriter(tasks, epoch, place, decoder, position_text, captures.get(table), file_of)
            assert writer is not None
            writer.take(rows)
        if writer is not None:
            yield output_batch(writer.close())
            writer = None
    finally:
        if writer is not None:
            writer.abandon()
    captured = [report for known in captures.values() if (report := known.report) is not None]
    yield output_batch(reports=reports, errors=errors, captured=captured)
    yield _resolved(job, shard, epochs)


def write_columns(
    batches: Iterable[pa.RecordBatch],
    job: WriteJob,
    changes: ColumnChanges,
    shard: int,
    attempt: str,
    *,
    epochs: Sequence[Position],
) -> Iterator[pa.RecordBatch]:
    """OUTPUT batches for rows of the job's one table and epoch that are typed already.

    They come sorted by the key columns, then `changes.order`, then deletes before upserts, so that the last row of
    a key is its net change. A changelog keeps every (key, order); without order columns it keeps every row.
    Raises BadInput for a null key and for rows that nothing puts in order, and what the writer raises.
    """
    (task,) = job.tables
    (target,) = task.epochs
    folded = fold_versions((_with_keys(batch, task) for batch in batches), task, changes)
    writer = TableEpochWriter(task, target, TaskOutput.of(job, shard, attempt), changes.serving)
    closed = False
    try:
        for rows in folded:
            _write_columns_run(writer, rows, task, target, changes)
        yield output_batch(writer.close())
        closed = True
    finally:
        if not closed:
            writer.abandon()
    yield _resolved(job, shard, epochs)


def _write_columns_run(
    writer: TableEpochWriter, rows: pa.RecordBatch, task: TableTask, target: EpochTarget, changes: ColumnChanges
) -> None:
    upserts, deletes = _partition(rows, changes.is_upsert(rows))
    if upserts.num_rows:
        writer.upserts(upserts, pa.repeat(target.epoch.text, upserts.num_rows))
    if deletes.num_rows:
        writer.deletes(deletes.select(list(task.key)), pa.repeat(target.epoch.text, deletes.num_rows))


def _partition(rows: pa.RecordBatch, chosen: pa.BooleanArray) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The chosen rows and the others, without a copy where one side is empty."""
    count = chosen.true_count
    if count == rows.num_rows:
        return rows, rows.slice(0, 0)
    if count == 0:
        return rows.slice(0, 0), rows
    return rows.filter(chosen), rows.filter(pc.invert(chosen))


def _with_keys(batch: pa.RecordBatch, task: TableTask) -> pa.RecordBatch:
    for name in task.key:
        if name not in batch.schema.names:
            raise ConfigError(
                f"{task.name}: the DataFrame has no key column {name!r}",
                hint=f"It has {', '.join(batch.schema.names)}: name the key among these, or select it.",
                table=task.name.text,
                column=name,
            )
        if batch.column(name).null_count:
            raise BadInput(
                f"{task.name}: key column {name!r} is null in {batch.column(name).null_count} rows",
                hint="A key cannot be null: filter these rows out, or choose other key columns.",
                table=task.name.text,
                column=name,
            )
    return batch


def _targets(tables: dict[int, list[TableTask]], table: int, epoch: int) -> list[TableTask]:
    tasks = tables.get(table, [])
    if not tasks or any(not 0 <= epoch < len(task.epochs) for task in tasks):
        raise AssertionError(f"a reader sent a change of table {table}, epoch {epoch}, which the job does not have")
    return tasks


def _reports(rows: pa.RecordBatch) -> list[bytes]:
    return [
        report_json(row["table"], row["key"], row["major"], row["minor"], row["payload"])
        for row in rows.to_pylist()
        if row["op"] == Op.REPORT
    ]


def _resolved(job: WriteJob, shard: int, epochs: Sequence[Position]) -> pa.RecordBatch:
    return output_batch([Resolved(epoch, shard, job.shards) for epoch in epochs])
