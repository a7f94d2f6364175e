"""Rows of a DataFrame fold to the newest of each key, and are refused where nothing says which one that is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worker_builders import in_batches, table_task

from frazil.errors import BadInput
from frazil.ingest.write import fold
from frazil.ingest.write.row_versions import ColumnChanges, fold_versions
from frazil.model.schema import DOUBLE, LONG, STRING, Field, Schema
from frazil.model.write import DeleteMode

SCHEMA = Schema(
    0, (Field(1, "id", LONG, required=True), Field(2, "v", LONG), Field(3, "name", STRING), Field(4, "x", DOUBLE)), (1,)
)
TYPES = pa.schema(
    [("id", pa.int64()), ("v", pa.int64()), ("name", pa.string()), ("x", pa.float64()), ("op", pa.string())]
)
CHANGES = ColumnChanges(order=("v",), op="op", delete_values=("d",))
Row = tuple[int, int | None, str, float, str]


def folded(rows: list[Row], mode: DeleteMode = DeleteMode.EQUALITY, sizes: tuple[int, ...] = ()) -> list[Row]:
    given = pa.RecordBatch.from_pylist([dict(zip(TYPES.names, row, strict=True)) for row in rows], schema=TYPES)
    task = table_task(Path("unused"), schema=SCHEMA, mode=mode)
    found = fold_versions(in_batches(given, sizes), task, CHANGES)
    return [tuple(row.values()) for batch in found for row in batch.to_pylist()]


def is_delete(row: Row) -> bool:
    return row[4] == "d"


def as_spark_sorts(row: Row) -> tuple[Any, ...]:
    return (row[0], row[1] is not None, row[1] or 0, not is_delete(row))


@st.composite
def sorted_rows(draw: st.DrawFn) -> list[Row]:
    """Few keys and versions, so that most meet; rows of one version in any order."""
    row = st.tuples(
        st.integers(1, 3),
        st.none() | st.integers(1, 2),
        st.sampled_from("ab"),
        st.just(float("nan")),
        st.sampled_from("cud"),
    )
    return sorted(draw(st.lists(row, min_size=1, max_size=12)), key=as_spark_sorts)


def candidates(rows: list[Row]) -> set[str]:
    """Names of the upserts of one version that could win."""
    return {row[2] for row in rows if not is_delete(row)}


@given(sorted_rows(), st.integers(1, 4), st.lists(st.integers(1, 3), max_size=4))
def test_the_newest_row_of_each_key_is_kept_or_nobody_can_say_which_it_is(
    rows: list[Row], chunk: int, sizes: list[int]
) -> None:
    keys = sorted({row[0] for row in rows})
    newest = {key: [r for r in rows if r[:2] == [o for o in rows if o[0] == key][-1][:2]] for key in keys}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold, "CHUNK_ROWS", chunk)
        if any(len(candidates(own)) > 1 for own in newest.values()):
            with pytest.raises(BadInput, match="nothing says which one is the newest"):
                folded(rows, sizes=tuple(sizes))
            return
        found = folded(rows, sizes=tuple(sizes))
    assert [(row[0], row[1]) for row in found] == [own[0][:2] for own in newest.values()]
    assert [set() if is_delete(row) else {row[2]} for row in found] == [candidates(own) for own in newest.values()]


@given(sorted_rows(), st.integers(1, 4))
def test_a_changelog_keeps_every_version_or_nobody_can_say_which_it_is(rows: list[Row], chunk: int) -> None:
    versions = {row[:2]: [other for other in rows if other[:2] == row[:2]] for row in rows}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold, "CHUNK_ROWS", chunk)
        if any(len(candidates(own)) > 1 for own in versions.values()):
            with pytest.raises(BadInput, match="nothing says"):
                folded(rows, DeleteMode.APPEND_ONLY)
            return
        assert [row[:2] for row in folded(rows, DeleteMode.APPEND_ONLY)] == list(versions)


def test_the_refusal_names_key_order_and_what_differs() -> None:
    with pytest.raises(BadInput, match=r"id=7 have the same order, v=3, and differ in name, x:") as caught:
        folded([(7, 3, "a", 0.0, "u"), (7, 3, "b", -0.0, "u")])
    assert caught.value.facts["columns"] == ["name", "x"]
