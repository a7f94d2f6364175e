"""One source table, several targets: what each of them takes of an epoch."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from worker_builders import R1, R2, USERS, JsonDecoder, change_rows, delete, in_batches, read_back, table_task, upsert

from frazil.errors import BadInput, DoesNotFit, UnknownColumn
from frazil.iceberg.tables.new_schema import new_schema
from frazil.ingest.write import fold
from frazil.ingest.write.fold import sort_changes
from frazil.ingest.write.write_task import write_changes
from frazil.model import quarantine as q
from frazil.model.arrow import CHANGE_SCHEMA
from frazil.model.change import CaptureReport, Op
from frazil.model.files import FileClosed, FileKind, Message
from frazil.model.ids import TableName
from frazil.model.position import Position
from frazil.model.schema import LONG, STRING, Column, Schema, SourceSchema
from frazil.model.write import DeleteMode, Role, TableTask, WriteJob
from frazil.sources.cockroachdb.position import Hlc

NAME = TableName.parse("shop.users")
SOURCE_SCHEMA = SourceSchema((Column("id", LONG, "INT8", ""), Column("name", STRING, "STRING", "")), ("id",), "")
LOG = new_schema(NAME, SOURCE_SCHEMA, DeleteMode.APPEND_ONLY)
QUARANTINE = new_schema(NAME, q.SOURCE_SCHEMA, DeleteMode.EQUALITY)


class Strict(JsonDecoder):
    """Takes no name that begins with `bad`, and no column `odd`."""

    def rows(self, table: int, keys: pa.Array, payloads: pa.Array) -> pa.RecordBatch:
        for payload in payloads.to_pylist():
            row = json.loads(payload)
            if "odd" in row:
                raise UnknownColumn("odd", table="users", columns=["odd"])
            if str(row.get("name")).startswith("bad"):
                raise DoesNotFit(f"{row['name']} does not fit", column="name")
        return super().rows(table, keys, payloads)


def target(folder: Path, role: Role, **more: Any) -> TableTask:
    mode, schema, key = {
        Role.MAIN: (DeleteMode.EQUALITY, USERS, ("id",)),
        Role.CHANGELOG: (DeleteMode.APPEND_ONLY, LOG, ("id",)),
        Role.QUARANTINE: (DeleteMode.EQUALITY, QUARANTINE, (q.ID,)),
    }[role]
    epochs = more.pop("epochs", (R1, R2))
    task = table_task(folder / role, schema=schema, key=key, mode=mode, epochs=epochs, deletes=role is Role.MAIN)
    return replace(task, name=TableName.parse(f"shop.{role}"), role=role, **more)


def run(
    tasks: Sequence[TableTask],
    rows: list[dict[str, object]],
    *,
    quarantined: dict[str, tuple[int, int]] | None = None,
    cuts: Sequence[int] = (),
    puts_away: bool = True,
) -> tuple[list[Message], list[CaptureReport]]:
    whole = sort_changes(pa.Table.from_batches([change_rows({"part": 0, **row} for row in rows)], CHANGE_SCHEMA))
    known = {0: quarantined or {}}
    job = WriteJob(tables=tuple(tasks), attempt="j", shards=1, quarantined=known, puts_away=puts_away)
    output = write_changes(
        *(in_batches(whole, cuts), job, Strict(), 0, "0"),
        epochs=(R1, R2),
        position_text=Hlc.texts,
        file_of=lambda partition: f"file{partition}",
    )
    messages, reports = read_back(output)
    return messages, [report for report in reports if isinstance(report, CaptureReport)]


def written(
    messages: list[Message], role: Role, kind: FileKind = FileKind.DATA, epoch: Position | None = None
) -> list[Any]:
    files = [m for m in messages if isinstance(m, FileClosed) and m.table.name == role and m.kind is kind]
    return [row for f in files if epoch in (None, f.epoch) for row in pq.read_table(f.path).to_pylist()]


def with_before(row: dict[str, object], before: object) -> dict[str, object]:
    return {**row, "before": json.dumps(before).encode()}


CHANGES = st.lists(
    st.tuples(st.integers(1, 3), st.integers(1, 6), st.sampled_from([Op.UPSERT, Op.DELETE]), st.integers(0, 1)),
    max_size=25,
)


@given(changes=CHANGES, sizes=st.lists(st.integers(0, 4), max_size=10), chunk=st.integers(1, 5), log=st.booleans())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_mirror_holds_one_row_for_a_key_whatever_stands_beside_it(
    tmp_path_factory: pytest.TempPathFactory, changes: list[Any], sizes: list[int], chunk: int, log: bool
) -> None:
    """H2: insert, update and delete of one key in one epoch leave its net change, with and without a changelog that
    keeps all of them, wherever batches and chunks are cut."""
    folder = tmp_path_factory.mktemp("net")
    rows = [
        upsert(key, at, f"v{at}", epoch=epoch) if op is Op.UPSERT else delete(key, at, epoch=epoch)
        for key, at, op, epoch in changes
    ]
    roles = (Role.CHANGELOG, Role.MAIN) if log else (Role.MAIN,)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold, "CHUNK_ROWS", chunk)
        messages, _ = run([target(folder, role) for role in roles], rows, cuts=sizes)
    for number, epoch in enumerate((R1, R2)):
        newest: dict[int, tuple[int, int]] = {}
        versions: dict[int, dict[int, int]] = defaultdict(dict)
        for key, at, op, where in changes:
            if where == number:
                newest[key] = max(newest.get(key, (0, 0)), (at, int(op)))
                versions[key][at] = max(versions[key].get(at, 0), int(op))
        expected = sorted((key, f"v{at}") for key, (at, op) in newest.items() if op == Op.UPSERT)
        assert sorted((r["id"], r["name"]) for r in written(messages, Role.MAIN, epoch=epoch)) == expected
        deletes = written(messages, Role.MAIN, FileKind.EQUALITY_DELETE, epoch)
        assert sorted(r["id"] for r in deletes) == sorted(newest)
        if log:
            kept = sorted((r["id"], r["_position"], r["_op"]) for r in written(messages, Role.CHANGELOG, epoch=epoch))
            assert kept == sorted(
                (key, Hlc(at).text, "upsert" if op == Op.UPSERT else "delete")
                for key, ats in versions.items()
                for at, op in ats.items()
            )


def test_the_row_as_it_was_tells_an_insert_from_an_update(tmp_path: Path) -> None:
    rows = [
        with_before(upsert(1, 5, "a"), None),
        with_before(upsert(1, 6, "b"), {"id": 1, "name": "a"}),
        with_before(delete(1, 7), {"id": 1, "name": "b"}),
        upsert(2, 5, "c"),
    ]
    messages, _ = run([target(tmp_path, Role.CHANGELOG), target(tmp_path, Role.MAIN)], rows)
    log = sorted(written(messages, Role.CHANGELOG), key=lambda row: (row["id"], row["_position"]))
    assert [(r["id"], r["name"], r["_op"], r["_before"]) for r in log] == [
        (1, "a", "insert", None),
        (1, "b", "update", {"id": 1, "name": "a"}),
        (1, None, "delete", {"id": 1, "name": "b"}),
        (2, "c", "upsert", None),
    ]


def test_an_earlier_row_of_a_schema_that_is_gone_is_left_out(tmp_path: Path) -> None:
    rows = [with_before(upsert(1, 5, "a"), {"id": 1, "odd": 3}), with_before(upsert(2, 5, "b"), {"id": 2, "name": "x"})]
    messages, _ = run([target(tmp_path, Role.CHANGELOG), target(tmp_path, Role.MAIN)], rows)
    log = sorted(written(messages, Role.CHANGELOG), key=lambda row: row["id"])
    assert [(r["_op"], r["_before"]) for r in log] == [("update", None), ("update", {"id": 2, "name": "x"})]


def test_a_target_takes_nothing_at_or_below_its_own_frontier(tmp_path: Path) -> None:
    """After a crash between two commits the changelog is ahead of its main table."""
    tasks = [target(tmp_path, Role.CHANGELOG, lower=(6, 0)), target(tmp_path, Role.MAIN)]
    messages, _ = run(tasks, [upsert(1, 5, "a"), upsert(1, 6, "b"), upsert(1, 6, "c", minor=1), upsert(2, 6)])
    assert [r["name"] for r in written(messages, Role.CHANGELOG)] == ["c"]
    assert sorted((r["id"], r["name"]) for r in written(messages, Role.MAIN)) == [(1, "c"), (2, "n2")]


def with_quarantine(folder: Path, *others: Role, lower: tuple[int, int] | None = None) -> list[TableTask]:
    return [target(folder, Role.QUARANTINE, lower=lower), *(target(folder, role) for role in (*others, Role.MAIN))]


def put_away(messages: list[Message]) -> list[tuple[Any, ...]]:
    rows = written(messages, Role.QUARANTINE)
    return sorted((r["_key"], r["_position"], r["_captured"], r["_column"]) for r in rows)


def test_a_bad_row_goes_to_quarantine_with_its_reason_and_the_good_ones_do_not(tmp_path: Path) -> None:
    rows = [upsert(key, 5, "bad" if key == 3 else None) for key in range(1, 9)]
    messages, (report,) = run(with_quarantine(tmp_path), rows)
    assert sorted(r["id"] for r in written(messages, Role.MAIN)) == [1, 2, 4, 5, 6, 7, 8]
    (row,) = written(messages, Role.QUARANTINE)
    assert row["_reason"] == "bad does not fit"
    assert (row["_key"], row["_op"], row["_column"], row["_captured"]) == ("[3]", "upsert", "name", False)
    assert json.loads(row["_payload"]) == {"id": 3, "name": "bad"}
    assert row["_id"] == str(q.change_id("shop.quarantine", "[3]", 0, 5, 0))
    assert report == CaptureReport(0, {"[3]": (5, 0)}, 1, ("name",))


def test_a_key_in_quarantine_captures_what_follows_in_later_epochs_of_the_task(tmp_path: Path) -> None:
    """H49."""
    rows = [upsert(1, 5, "bad"), upsert(1, 6, "good", epoch=1), upsert(2, 6, epoch=1), delete(3, 6, epoch=1)]
    messages, (report,) = run(with_quarantine(tmp_path), rows)
    assert put_away(messages) == [("[1]", Hlc(5).text, False, "name"), ("[1]", Hlc(6).text, True, None)]
    assert [r["id"] for r in written(messages, Role.MAIN)] == [2]
    assert sorted(r["id"] for r in written(messages, Role.MAIN, FileKind.EQUALITY_DELETE)) == [2, 3]
    assert report.rows == 2


def test_with_a_changelog_a_bad_version_captures_the_later_ones_of_its_epoch_and_not_the_earlier(
    tmp_path: Path,
) -> None:
    """H49, in one epoch: neither target has what is in quarantine."""
    rows = [upsert(1, 4, "a"), upsert(1, 5, "bad"), upsert(1, 6, "c"), upsert(2, 5, "bad"), upsert(2, 6, "bad too")]
    messages, _ = run(with_quarantine(tmp_path, Role.CHANGELOG), rows)
    assert [r["name"] for r in written(messages, Role.CHANGELOG)] == ["a"]
    assert [(r["id"], r["name"]) for r in written(messages, Role.MAIN)] == [(1, "a")]
    assert [(key, captured) for key, _, captured, _ in put_away(messages)] == [
        ("[1]", False),
        ("[1]", True),
        ("[2]", False),
        ("[2]", True),
    ]


def test_a_key_that_was_in_quarantine_before_captures_from_its_oldest_position_on(tmp_path: Path) -> None:
    """H49, across windows. What came before the quarantined change is published as ever."""
    rows = [upsert(1, 4, "before"), upsert(1, 8, "after", epoch=1)]
    messages, (report,) = run(with_quarantine(tmp_path), rows, quarantined={"[1]": (5, 0)})
    assert [r["name"] for r in written(messages, Role.MAIN)] == ["before"]
    assert put_away(messages) == [("[1]", Hlc(8).text, True, None)]
    assert report.keys == {"[1]": (8, 0)}, "it is on its way there, whatever becomes of the older one"


def test_what_the_quarantine_has_published_is_not_put_away_twice(tmp_path: Path) -> None:
    """A crash after the quarantine's commit and before the main table's: the epoch is read again for the main table."""
    tasks = with_quarantine(tmp_path, lower=R1.order)
    messages, _ = run(tasks, [upsert(1, 5, "bad"), upsert(2, 5)], quarantined={"[1]": (5, 0)})
    assert written(messages, Role.QUARANTINE) == []
    assert [r["id"] for r in written(messages, Role.MAIN)] == [2]


def test_a_row_that_has_become_bad_since_its_epoch_was_put_away_is_not_lost(tmp_path: Path) -> None:
    """It is neither in the quarantine, whose epoch is published, nor would it reach the main table: stop."""
    with pytest.raises(DoesNotFit):
        run(with_quarantine(tmp_path, lower=R1.order), [upsert(1, 5, "bad"), upsert(2, 5)])


def test_without_a_quarantine_a_bad_row_stops_the_epoch(tmp_path: Path) -> None:
    with pytest.raises(DoesNotFit):
        run([target(tmp_path, Role.MAIN)], [upsert(1, 5, "bad"), upsert(2, 5)])


def test_where_bad_rows_stop_a_key_in_quarantine_still_captures_what_follows(tmp_path: Path) -> None:
    """H49: `on_error: stop` after `on_error: quarantine`."""
    rows = [upsert(1, 8, "after"), upsert(1, 9, "bad", epoch=1), upsert(2, 8)]
    messages, _ = run(with_quarantine(tmp_path), rows, quarantined={"[1]": (5, 0)}, puts_away=False)
    assert [(key, captured) for key, _, captured, _ in put_away(messages)] == [("[1]", True), ("[1]", True)]
    assert [r["id"] for r in written(messages, Role.MAIN)] == [2]
    with pytest.raises(DoesNotFit):
        run(with_quarantine(tmp_path), [*rows, upsert(3, 8, "bad")], quarantined={"[1]": (5, 0)}, puts_away=False)


def test_an_unknown_column_is_a_lesson_and_no_bad_row(tmp_path: Path) -> None:
    odd = {**upsert(1, 5), "payload": b'{"id": 1, "odd": 2}'}
    with pytest.raises(UnknownColumn):
        run(with_quarantine(tmp_path), [odd, upsert(2, 5)])


def test_a_row_that_binds_nowhere_is_put_away(tmp_path: Path) -> None:
    """H20: the key column of the row is null."""
    messages, _ = run(with_quarantine(tmp_path), [{**upsert(1, 5), "payload": b'{"name": "x"}'}, upsert(2, 5)])
    assert [r["id"] for r in written(messages, Role.MAIN)] == [2]
    assert [column for _, _, _, column in put_away(messages)] == ["id"]


def bad_line(key: str | None = None) -> dict[str, object]:
    """Line 7 of file f, with its key if it tells one."""
    facts = q.BadLine(reason="torn", file="f", line=7, keyed=key is not None)
    return {
        **upsert(1, 5),
        "key": key or q.line_key("f", 7),
        "op": int(Op.BAD),
        "payload": b"{torn",
        "before": facts.to_bytes(),
    }


def test_a_line_that_is_no_change_is_put_away_as_it_is(tmp_path: Path) -> None:
    messages, (report,) = run(with_quarantine(tmp_path), [bad_line(), upsert(2, 5)])
    (row,) = written(messages, Role.QUARANTINE)
    assert (row["_reason"], row["_source_file"], row["_source_line"], row["_payload"]) == ("torn", "f", 7, b"{torn")
    assert (row["_key"], row["_position"], row["_op"], row["_major"]) == (None, None, None, 5)
    assert (report.keys, report.rows) == ({}, 1)
    assert [r["id"] for r in written(messages, Role.MAIN)] == [2]


@pytest.mark.parametrize("key", [None, "[1]"])
def test_a_line_that_has_become_bad_since_its_epoch_was_put_away_is_not_lost(tmp_path: Path, key: str | None) -> None:
    """As with a row: the quarantine holds it, or it would be nowhere."""
    tasks, rows = with_quarantine(tmp_path, lower=R1.order), [bad_line(key), upsert(2, 5)]
    messages, _ = run(tasks, rows, quarantined={key or q.line_key("f", 7): (5, 0)})
    assert written(messages, Role.QUARANTINE) == []
    assert [r["id"] for r in written(messages, Role.MAIN)] == [2]
    with pytest.raises(BadInput, match="neither"):
        run(tasks, rows, quarantined={"[3]": (5, 0)})


def test_a_table_without_a_key_keeps_every_change_that_travels_under_a_key_of_its_own(tmp_path: Path) -> None:
    source_schema = replace(SOURCE_SCHEMA, key=())
    schema: Schema = new_schema(NAME, source_schema, DeleteMode.APPEND_ONLY)
    task = replace(target(tmp_path, Role.CHANGELOG), schema=schema, key=(), role=Role.MAIN, name=NAME)
    rows = [{**upsert(7, 5, "same"), "key": f"#f:{line}"} for line in (1, 2, 2)]
    messages, _ = run([task], rows)
    names = [r["name"] for m in messages if isinstance(m, FileClosed) for r in pq.read_table(m.path).to_pylist()]
    assert names == ["same", "same"]


def test_a_bad_value_is_told_with_its_file_and_line(tmp_path: Path) -> None:
    good, bad, later = upsert(1, 10, "Jo"), upsert(2, 11, "bad"), upsert(2, 150, "Al")
    placed = [{**row, "partition": 3, "line": line} for line, row in enumerate([good, bad], start=7)]
    with pytest.raises(DoesNotFit, match=r"^file3:8: bad does not fit") as caught:
        run([target(tmp_path, Role.MAIN)], placed)
    assert (caught.value.facts["file"], caught.value.facts["line"]) == ("file3", 8)

    both = [target(tmp_path, Role.QUARANTINE), target(tmp_path, Role.MAIN)]
    messages, _ = run(both, [*placed, {**later, "epoch": 1, "partition": 4, "line": 1}])
    found = {(row[q.FILE], row[q.LINE], row[q.CAPTURED]) for row in written(messages, Role.QUARANTINE)}
    assert found == {("file3", 8, False), ("file4", 1, True)}


def test_a_bad_value_of_a_source_without_files_has_no_place(tmp_path: Path) -> None:
    both = [target(tmp_path, Role.QUARANTINE), target(tmp_path, Role.MAIN)]
    messages, _ = run(both, [{**upsert(2, 11, "bad"), "partition": 3}])
    assert [(row[q.FILE], row[q.LINE]) for row in written(messages, Role.QUARANTINE)] == [(None, None)]
