"""The body of the task: sorted changes in, files on disk and messages out."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from worker_builders import (
    CHANGELOG,
    R1,
    R2,
    R3,
    USERS,
    JsonDecoder,
    change_rows,
    delete,
    files,
    in_batches,
    read_back,
    report,
    resolved,
    table_task,
    upsert,
    write_job,
)

from frazil.errors import BadInput, DoesNotFit, UnknownColumn
from frazil.ingest.write.change_rows import error_row, output_batch, read_output, text_like
from frazil.ingest.write.row_versions import ColumnChanges
from frazil.ingest.write.write_task import write_changes, write_columns
from frazil.model.change import PartitionReport
from frazil.model.files import FileClosed, FileKind, Message, Resolved
from frazil.model.position import BatchNumber, Position
from frazil.model.schema import LONG, STRING, Field, Schema
from frazil.model.write import DeleteMode, WriteJob
from frazil.sources.cockroachdb.position import Hlc
from frazil.spark.errors import packed


def run(
    job: WriteJob,
    rows: list[dict[str, object]],
    *,
    decoder: Any = None,
    shard: int = 0,
    attempt: str = "0",
    epochs: tuple[Position, ...] = (R1,),
    cuts: tuple[int, ...] = (),
) -> tuple[list[Message], list[Any]]:
    output = write_changes(
        in_batches(change_rows(rows), cuts),
        job,
        decoder or JsonDecoder(),
        shard,
        attempt,
        epochs=epochs,
        position_text=Hlc.texts,
    )
    return read_back(output)


def contents(messages: list[Message], kind: FileKind) -> list[dict[str, Any]]:
    return [row for file in files(messages, kind) for row in pq.read_table(file.path).to_pylist()]


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


def test_an_epoch_becomes_rows_and_a_delete_for_every_key_that_changed(tmp_path: Path) -> None:
    job = write_job(table_task(tmp_path))
    messages, _ = run(job, [upsert(1, 5, "old"), upsert(1, 6, "new"), upsert(2, 5), delete(2, 9), upsert(3, 5)])
    assert by_id(contents(messages, FileKind.DATA)) == [{"id": 1, "name": "new"}, {"id": 3, "name": "n3"}]
    assert by_id(contents(messages, FileKind.EQUALITY_DELETE)) == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_a_file_closed_says_what_a_manifest_needs(tmp_path: Path) -> None:
    task = table_task(tmp_path)
    messages, _ = run(write_job(task, shards=4), [upsert(1, 5), upsert(2, 6)], shard=3)
    data, deletes = files(messages, FileKind.DATA)[0], files(messages, FileKind.EQUALITY_DELETE)[0]
    for file in (data, deletes):
        assert (file.table, file.epoch, file.batch_id) == (task.name, R1, task.epochs[0].batch_id)
        assert (file.worker, file.schema_id, file.spec_id, file.records) == (3, 3, 0, 2)
        content = Path(file.path).read_bytes()
        assert (file.size, file.digest) == (len(content), hashlib.sha256(content).hexdigest())
    assert data.path.startswith(task.epochs[0].prefix + "/shard=3/data-")
    assert deletes.path.startswith(task.epochs[0].prefix + "/shard=3/deletes/eqdel-")
    assert (data.equality_ids, deletes.equality_ids) == ((), (1,))
    assert [m.field_id for m in deletes.metrics] == [1]


def test_equality_ids_and_columns_follow_the_order_of_the_key(tmp_path: Path) -> None:
    schema = Schema(0, (Field(1, "v", STRING), Field(2, "b", STRING), Field(3, "a", LONG)))
    decoder = JsonDecoder((("a", pa.int64()), ("b", pa.string()), ("v", pa.string())), key=("a", "b"))
    job = write_job(table_task(tmp_path, schema=schema, key=("a", "b")))
    rows = [
        {**delete(0, 5), "key": '[1, "x"]'},
        {**upsert(0, 5), "key": '[2, "y"]', "payload": b'{"a": 2, "b": "y", "v": "z"}'},
    ]
    messages, _ = run(job, rows, decoder=decoder)
    (file,) = files(messages, FileKind.EQUALITY_DELETE)
    assert file.equality_ids == (3, 2)
    written = pq.read_table(file.path)
    assert written.schema.names == ["a", "b"]
    assert [f.metadata[b"PARQUET:field_id"] for f in written.schema] == [b"3", b"2"]
    assert by_key(written) == [(1, "x"), (2, "y")]


def by_key(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_into_an_empty_table_no_deletes_are_written_and_deletes_leave_no_trace(tmp_path: Path) -> None:
    messages, _ = run(write_job(table_task(tmp_path, deletes=False)), [upsert(1, 5), delete(2, 5)])
    assert contents(messages, FileKind.DATA) == [{"id": 1, "name": "n1"}]
    assert files(messages, FileKind.EQUALITY_DELETE) == []


def test_an_epoch_of_deletes_has_no_data_file(tmp_path: Path) -> None:
    messages, _ = run(write_job(table_task(tmp_path)), [delete(2, 5)])
    assert [file.kind for file in files(messages)] == [FileKind.EQUALITY_DELETE]


def test_a_changelog_keeps_every_version_with_its_operation_and_position(tmp_path: Path) -> None:
    job = write_job(table_task(tmp_path, schema=CHANGELOG, mode=DeleteMode.APPEND_ONLY))
    rows = [upsert(1, 5, "a"), upsert(1, 5, "a"), upsert(1, 6, "b", minor=3), delete(1, 7)]
    messages, _ = run(job, rows)
    assert files(messages, FileKind.EQUALITY_DELETE) == []
    assert sorted(contents(messages, FileKind.DATA), key=lambda row: row["_position"]) == [
        {"id": 1, "name": "a", "_op": "upsert", "_position": "5.0000000000"},
        {"id": 1, "name": "b", "_op": "upsert", "_position": "6.0000000003"},
        {"id": 1, "name": None, "_op": "delete", "_position": "7.0000000000"},
    ]


def test_a_changelog_table_without_the_two_columns_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnknownColumn, match="'_op'"):
        run(write_job(table_task(tmp_path, mode=DeleteMode.APPEND_ONLY)), [upsert(1, 5)])


def test_tables_and_epochs_get_files_of_their_own(tmp_path: Path) -> None:
    job = write_job(*(table_task(tmp_path, index=i, epochs=(R1, R2)) for i in (0, 1)))
    rows = [upsert(k, 5, table=t, epoch=e) for t in (0, 1) for e in (0, 1) for k in (1, 2)]
    messages, _ = run(job, rows, epochs=(R1, R2), cuts=(1, 1, 3))
    found = [(file.table.name, file.epoch, file.records) for file in files(messages, FileKind.DATA)]
    assert found == [("t0", R1, 2), ("t0", R2, 2), ("t1", R1, 2), ("t1", R2, 2)]


def test_resolved_comes_last_once_per_epoch_and_in_order(tmp_path: Path) -> None:
    job = write_job(table_task(tmp_path, epochs=(R1, R2)), shards=7)
    rows = [report("s", 9, rows=1), upsert(1, 5, epoch=1)]
    batches = list(
        write_changes([change_rows(rows)], job, JsonDecoder(), 2, "0", epochs=(R1, R2, R3), position_text=Hlc.texts)
    )
    messages, _ = read_back(batches)
    assert messages[-3:] == [Resolved(R1, 2, 7), Resolved(R2, 2, 7), Resolved(R3, 2, 7)]
    assert all(isinstance(m, FileClosed) for m in messages[:-3])
    assert len(messages) == 2 + 3
    assert batches[-1].column("kind").to_pylist() == [0, 0, 0]


def test_a_shard_without_rows_resolves_too(tmp_path: Path) -> None:
    messages, reports = run(write_job(table_task(tmp_path)), [], epochs=(R1, R2))
    assert messages == [Resolved(R1, 0, 1), Resolved(R2, 0, 1)]
    assert reports == []


def test_reports_pass_through_with_their_positions(tmp_path: Path) -> None:
    rows = [report("f1", 17, rows=4, dropped=1), report("f2", None), upsert(1, 5), report("f3", 8, table=1)]
    _, reports = run(write_job(table_task(tmp_path)), rows)
    assert reports == [
        PartitionReport(0, "f1", 4, 1, Hlc(17)),
        PartitionReport(0, "f2", 0, 0, None),
        PartitionReport(1, "f3", 0, 0, Hlc(8)),
    ]


def test_a_retried_task_writes_other_paths_and_leaves_the_first_ones_alone(tmp_path: Path) -> None:
    """H41, H46: the attempt of job and task is part of every name."""
    job, rows = write_job(table_task(tmp_path)), [upsert(1, 5), delete(2, 5)]
    first = files(run(job, rows, attempt="10")[0])
    again = files(run(job, rows, attempt="11")[0])
    other_job = files(run(replace(job, attempt="j2"), rows, attempt="10")[0])
    paths = [file.path for file in (*first, *again, *other_job)]
    assert len(set(paths)) == len(paths) == 6
    assert "data-j1.10-0.parquet" in first[0].path
    for file in first:
        assert hashlib.sha256(Path(file.path).read_bytes()).hexdigest() == file.digest


def test_a_task_that_ran_already_under_the_same_name_is_refused(tmp_path: Path) -> None:
    """H41."""
    job, rows = write_job(table_task(tmp_path)), [upsert(1, 5)]
    before = {path: path.read_bytes() for path in _written(run(job, rows)[0])}
    with pytest.raises(Exception, match="File exists"):
        run(job, rows)
    assert {path: path.read_bytes() for path in before} == before


def _written(messages: list[Message]) -> list[Path]:
    return [Path(file.path) for file in files(messages)]


class LateFailure(JsonDecoder):
    """Decodes the first table and fails at the second."""

    def rows(self, table: int, keys: pa.Array, payloads: pa.Array) -> pa.RecordBatch:
        if table == 1:
            raise DoesNotFit("a value does not fit", hint="mend it", column="name")
        return super().rows(table, keys, payloads)


def test_after_a_failure_no_epoch_is_resolved(tmp_path: Path) -> None:
    """H11."""
    job = write_job(table_task(tmp_path), table_task(tmp_path, index=1))
    output = write_changes(
        [change_rows([upsert(1, 5), upsert(1, 5, table=1)])],
        job,
        LateFailure(),
        0,
        "0",
        epochs=(R1,),
        position_text=Hlc.texts,
    )
    seen: list[pa.RecordBatch] = []
    with pytest.raises(DoesNotFit):
        seen.extend(output)
    assert resolved(read_back(seen)[0]) == []


def test_rows_that_did_not_arrive_sorted_are_not_written_twice(tmp_path: Path) -> None:
    job = write_job(table_task(tmp_path, epochs=(R1, R2)))
    with pytest.raises(AssertionError, match="did not arrive sorted"):
        run(job, [upsert(1, 5), upsert(1, 5, epoch=1), upsert(1, 6)], epochs=(R1, R2))


def test_a_change_of_a_table_the_job_does_not_have_is_not_ignored(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="table 4"):
        run(write_job(table_task(tmp_path)), [upsert(1, 5, table=4)])


def test_a_null_key_column_stops_the_epoch(tmp_path: Path) -> None:
    """H20."""
    with pytest.raises(BadInput, match="key column 'id' is null"):
        run(write_job(table_task(tmp_path)), [{**upsert(1, 5), "payload": b'{"name": "x"}'}])


def test_large_epochs_roll_over_several_files(tmp_path: Path) -> None:
    job = write_job(table_task(tmp_path), target_file_bytes=2_000, row_group_rows=50)
    rows = sorted((upsert(k, 5) for k in range(1_000)), key=lambda row: str(row["key"]))
    messages, _ = run(job, rows)
    assert len(files(messages, FileKind.DATA)) > 2
    assert sorted(row["id"] for row in contents(messages, FileKind.DATA)) == list(range(1_000))
    assert sorted(row["id"] for row in contents(messages, FileKind.EQUALITY_DELETE)) == list(range(1_000))


def columns_run(
    job: WriteJob, batches: list[pa.RecordBatch], changes: ColumnChanges, epoch: Position = R1
) -> list[Message]:
    return read_back(write_columns(batches, job, changes, 0, "0", epochs=(epoch,)))[0]


def test_typed_columns_fold_by_key_and_the_operation_column_tells_deletes(tmp_path: Path) -> None:
    rows = pa.record_batch(
        {
            "id": [1, 1, 2, 3, 3],
            "name": ["old", "new", "x", "y", None],
            "ts": [1, 2, 1, 1, 2],
            "op": ["c", "u", None, "c", "d"],
        }
    )
    changes = ColumnChanges(order=("ts",), op="op", delete_values=("d",))
    messages = columns_run(write_job(table_task(tmp_path)), in_batches(rows, (1, 3)), changes)
    assert by_id(contents(messages, FileKind.DATA)) == [{"id": 1, "name": "new"}, {"id": 2, "name": "x"}]
    assert by_id(contents(messages, FileKind.EQUALITY_DELETE)) == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert messages[-1] == Resolved(R1, 0, 1)


def test_typed_columns_without_an_operation_are_upserts(tmp_path: Path) -> None:
    rows = pa.record_batch({"id": [1, 2], "name": ["a", "b"]})
    messages = columns_run(write_job(table_task(tmp_path)), [rows], ColumnChanges())
    assert by_id(contents(messages, FileKind.DATA)) == rows.to_pylist()


def test_an_order_column_is_kept_where_the_table_has_it(tmp_path: Path) -> None:
    schema = Schema(0, (*USERS.fields, Field(9, "ts", LONG)))
    rows = pa.record_batch({"id": [1, 1], "name": ["a", "b"], "ts": [1, 2]})
    job = write_job(table_task(tmp_path, schema=schema))
    messages = columns_run(job, [rows], ColumnChanges(order=("ts",)))
    assert contents(messages, FileKind.DATA) == [{"id": 1, "name": "b", "ts": 2}]


@pytest.mark.parametrize(("order", "kept"), [((), ["a", "a", "b"]), (("ts",), ["a", "b"])])
def test_a_changelog_of_typed_columns_keeps_versions(tmp_path: Path, order: tuple[str, ...], kept: list[str]) -> None:
    rows = pa.record_batch({"id": [1, 1, 1], "name": ["a", "a", "b"], "ts": [1, 1, 2]})
    task = table_task(tmp_path, schema=CHANGELOG, mode=DeleteMode.APPEND_ONLY, epochs=(BatchNumber(7),))
    changes = ColumnChanges(order=order) if order else ColumnChanges()
    given = rows if order else rows.select(["id", "name"])
    messages = columns_run(write_job(task), [given], changes, BatchNumber(7))
    assert [row["name"] for row in contents(messages, FileKind.DATA)] == kept
    assert {row["_position"] for row in contents(messages, FileKind.DATA)} == {"batch:7"}


def test_a_null_key_in_typed_columns_is_bad_input(tmp_path: Path) -> None:
    """H20."""
    with pytest.raises(BadInput, match="'id' is null in 1 rows"):
        columns_run(
            write_job(table_task(tmp_path)), [pa.record_batch({"id": [1, None], "name": ["a", "b"]})], ColumnChanges()
        )


def test_an_operation_column_needs_the_values_that_mean_delete() -> None:
    with pytest.raises(ValueError, match="belong together"):
        ColumnChanges(op="op")


def test_position_texts_of_columns_are_those_of_the_positions() -> None:
    positions: list[Position] = [Hlc(0, 0), Hlc(17, 3), Hlc(2**63 - 1, 2**31 - 1)]
    major, minor = (pa.array([p.order[i] for p in positions], pa.int64()) for i in (0, 1))
    assert text_like(positions[0])(major, minor).to_pylist() == [p.text for p in positions]
    numbers = pa.array([0, 12], pa.int64())
    assert text_like(BatchNumber(0)) is BatchNumber.texts
    assert BatchNumber.texts(numbers, numbers).to_pylist() == ["batch:0", "batch:12"]


def test_an_output_row_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown kind 9"):
        read_output([(9, b"")], Hlc)


def test_a_readers_definite_error_passes_through_the_task_and_is_raised_in_the_driver(tmp_path: Path) -> None:
    """H11: the files that were written beside it count for nothing."""
    error = BadInput("f1, line 3: no key", hint="mend it", file="f1", line=3)
    output = write_changes(
        [error_row(0, "f", packed(error)), change_rows([report("f2", 5, rows=1), upsert(1, 5)])],
        write_job(table_task(tmp_path)),
        JsonDecoder(),
        0,
        "0",
        epochs=(R1,),
        position_text=Hlc.texts,
    )
    batches = list(output)
    with pytest.raises(BadInput, match="line 3") as caught:
        read_back(batches)
    assert caught.value.facts == {"file": "f1", "line": 3}


def test_what_must_stop_the_epoch_is_raised_before_what_the_schema_can_still_learn() -> None:
    errors = [packed(UnknownColumn("new column", column="x")), packed(DoesNotFit("too large"))]
    with pytest.raises(DoesNotFit):
        read_back([output_batch(errors=errors)])
