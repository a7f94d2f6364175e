"""The parts of a row put together: every combination, by a table."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import UnknownColumn
from frazil.ingest.write.assemble_families import Assembled, WholeKeys, assemble
from frazil.ingest.write.column_mask import from_masks, to_masks
from frazil.ingest.write.fold import fold_changes, sort_changes
from frazil.model.arrow import CHANGE_SCHEMA
from frazil.model.change import Op
from frazil.model.ids import TableName
from frazil.model.schema import LONG, PRIMARY, STRING, ColumnFamily, Field, Schema, part_without
from frazil.model.write import DeleteMode, TableTask

F2, UNTOLD = 5, 6
FIELDS = (Field(1, "id", LONG, True), Field(2, "name", STRING), Field(3, "note", STRING), Field(4, "lost", STRING))
TASK = TableTask(
    index=0,
    format_version=3,
    data_location="d",
    name=TableName(("shop",), "t"),
    schema=Schema(0, FIELDS, (1,)),
    key=("id",),
    mode=DeleteMode.VECTORS,
    epochs=(),
    parts=(ColumnFamily(PRIMARY, ("id", "name")), ColumnFamily(F2, ("note",))),
)
UP, DEL = Op.UPSERT, Op.DELETE


def travelling(*changes: tuple[int, int, Op]) -> pa.RecordBatch:
    rows = [
        {"table": 0, "epoch": 0, "key": f"[{key}]", "part": part, "major": 1, "minor": 0, "op": int(op)}
        for key, part, op in changes
    ]
    return pa.RecordBatch.from_pylist(rows, schema=CHANGE_SCHEMA)


def put_together(*changes: tuple[int, int, Op, dict[str, Any]], keys: bool = True) -> Assembled:
    rows = travelling(*((key, part, op) for key, part, op, _ in changes))
    upserts = [{"id": key, **values} for key, _, op, values in changes if op is UP]
    types = pa.schema([("id", pa.int64()), ("name", pa.string()), ("note", pa.string()), ("lost", pa.string())])
    deletes = pa.record_batch({"id": pa.array([key for key, _, op, _ in changes if op is DEL], pa.int64())})
    is_upsert = np.array([op is UP for _, _, op, _ in changes], dtype=bool)
    decoded = pa.RecordBatch.from_pylist(upserts, schema=types)
    return assemble(TASK, rows, is_upsert, decoded, deletes if keys else None)


def shown(found: Assembled) -> list[tuple[int, dict[str, Any], bool]]:
    """Key, what is known besides it, and whether there is to be a row if there was none."""
    rows = []
    for row, known, inserts in zip(found.rows.to_pylist(), found.known, found.inserts, strict=True):
        told = {n: row[n] for n, is_known in zip(found.rows.schema.names, known, strict=True) if is_known}
        rows.append((told.pop("id"), told, bool(inserts)))
    return rows


NAME, NOTE = {"name": "n"}, {"note": "o"}


@pytest.mark.parametrize(
    ("changes", "row", "deleted"),
    [
        ([(PRIMARY, UP, NAME), (F2, UP, NOTE)], ({**NAME, **NOTE}, True), False),
        ([(PRIMARY, UP, NAME)], (NAME, True), False),
        ([(PRIMARY, UP, NAME), (F2, DEL, {})], ({**NAME, "note": None}, True), False),
        ([(PRIMARY, UP, {"name": None}), (F2, UP, {"note": None})], ({"name": None, "note": None}, True), False),
        ([(F2, UP, NOTE)], (NOTE, True), False),
        ([(F2, DEL, {})], ({"note": None}, False), False),
        ([(PRIMARY, DEL, {})], None, True),
        ([(PRIMARY, DEL, {}), (F2, DEL, {})], None, True),
        ([(PRIMARY, DEL, {}), (F2, UP, NOTE)], None, True),
        ([(UNTOLD, DEL, {})], None, False),
        ([(PRIMARY, UP, NAME), (UNTOLD, DEL, {})], (NAME, True), False),
        ([(UNTOLD, UP, {"note": None})], None, False),
    ],
)
def test_each_combination_of_parts(changes: list[Any], row: Any, deleted: bool) -> None:
    """Alone, and between other keys."""
    alone = put_together(*((7, *change) for change in changes))
    assert shown(alone) == ([] if row is None else [(7, *row)])
    assert (alone.deleted is not None) == deleted
    before, after = (1, PRIMARY, UP, NAME), (9, F2, UP, NOTE)
    among = put_together(before, *((7, *change) for change in changes), after)
    assert shown(among) == [(1, NAME, True), *([] if row is None else [(7, *row)]), (9, NOTE, True)]
    if deleted:
        assert among.deleted is not None
        assert among.deleted.to_pylist() == [{"id": 7}]


def test_a_row_is_whole_when_every_column_is_known() -> None:
    """A column of which nobody told the family is never known, so no row of such a table is whole."""
    assert not put_together((1, PRIMARY, UP, NAME), (1, F2, UP, NOTE)).whole.any()


def test_nobody_asks_for_deletes_where_keys_are_not_decoded() -> None:
    found = put_together((1, PRIMARY, DEL, {}), (2, F2, DEL, {}), (3, F2, UP, NOTE), keys=False)
    assert shown(found) == [(3, NOTE, True)]
    assert found.deleted is None


@pytest.mark.parametrize(("part", "values"), [(PRIMARY, {"note": "o"}), (F2, {"lost": "l"}), (UNTOLD, {"name": "n"})])
def test_a_value_of_another_part_is_a_lesson_and_never_lost(part: int, values: dict[str, Any]) -> None:
    with pytest.raises(UnknownColumn) as unknown:
        put_together((1, part, UP, values))
    assert unknown.value.facts["columns"] == list(values)
    assert unknown.value.facts["table"] == "shop.t"


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), min_size=1), st.data())
def test_all_parts_of_a_key_come_together_however_they_are_cut(places: list[tuple[int, int]], data: Any) -> None:
    rows = travelling(*((key, part, UP) for key, part in sorted(set(places))))
    whole, met, at = WholeKeys(), [], 0
    while at < rows.num_rows:
        count = data.draw(st.integers(1, rows.num_rows - at))
        met.append(whole.take(rows.slice(at, count)))
        at += count
    rest = whole.rest()
    assert rest is not None
    met.append(rest)
    assert pa.Table.from_batches(met).combine_chunks() == pa.Table.from_batches([rows]).combine_chunks()
    keys = [key for batch in met for key in dict.fromkeys(batch.column("key").to_pylist())]
    assert len(keys) == len(set(keys))


@given(st.integers(1, 70), st.data())
def test_any_subset_of_columns_can_be_known(columns: int, data: Any) -> None:
    bits = data.draw(st.lists(st.lists(st.booleans(), min_size=columns, max_size=columns), max_size=5))
    known = np.array(bits, dtype=bool).reshape(len(bits), columns)
    masks = to_masks(known)
    assert (from_masks(masks, columns) == known).all()
    assert (from_masks(pa.concat_arrays([masks, masks]).slice(len(masks)), columns) == known).all()


# changes that come without cells

CELLS = ("name", "note")
LEAVES_OUT = replace(TASK, parts=(ColumnFamily(PRIMARY, ("id", *CELLS)),))
EVENTS = st.one_of(st.just(None), st.sets(st.sampled_from(CELLS)).map(frozenset))
"""A delete, or an upsert with these cells."""


def by_hand(events: list[frozenset[str] | None]) -> dict[str, str | None] | None:
    """The cells that are known after these events, one after the other; None if the row is gone."""
    row: dict[str, str | None] | None = {}
    for at, event in enumerate(events):
        if event is None:
            row = None
        else:
            before = dict.fromkeys(CELLS) if row is None else row
            row = {**before, **{name: f"{name}{at}" for name in event}}
    return row


@given(st.dictionaries(st.integers(1, 3), st.lists(EVENTS, min_size=1, max_size=8), min_size=1))
def test_a_cell_that_was_not_sent_is_what_the_newest_change_with_it_said(
    histories: dict[int, list[frozenset[str] | None]],
) -> None:
    rows = [
        {
            "table": 0,
            "epoch": 0,
            "key": f"[{key}]",
            "part": PRIMARY if event is None else part_without(set(CELLS) - event),
            "major": at,
            "minor": 0,
            "op": int(DEL if event is None else UP),
            "payload": json.dumps([key, at, sorted(event or ())]).encode(),
        }
        for key, events in histories.items()
        for at, event in enumerate(events)
    ]
    table = pa.Table.from_pylist(rows, schema=CHANGE_SCHEMA)
    folded = pa.concat_batches([rows for _, _, rows in fold_changes([sort_changes(table)])])
    is_upsert = np.array([op == UP for op in folded.column("op").to_pylist()], dtype=bool)
    told = [json.loads(payload) for payload in folded.column("payload").to_pylist()]
    upserts = [one for one, is_up in zip(told, is_upsert, strict=True) if is_up]
    types = pa.schema([("id", pa.int64()), ("name", pa.string()), ("note", pa.string())])
    values = [{"id": key, **{name: f"{name}{at}" for name in event}} for key, at, event in upserts]
    sent = np.array([[True, *(name in event for name in CELLS)] for _, _, event in upserts], dtype=bool)
    gone = [key for (key, _, _), is_up in zip(told, is_upsert, strict=True) if not is_up]
    deletes = pa.record_batch({"id": pa.array(gone, pa.int64())})
    decoded = pa.RecordBatch.from_pylist(values, schema=types)
    found = assemble(LEAVES_OUT, folded, is_upsert, decoded, deletes, sent.reshape(-1, 3))
    expected = {key: by_hand(events) for key, events in histories.items()}
    assert {key: cells for key, cells, _ in shown(found)} == {k: row for k, row in expected.items() if row is not None}
    gone = [] if found.deleted is None else found.deleted.column("id").to_pylist()
    assert gone == sorted(key for key, row in expected.items() if row is None)
