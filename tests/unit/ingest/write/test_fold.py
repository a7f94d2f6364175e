"""The fold against a dictionary that keeps the greatest (position, op) of each key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worker_builders import change_rows, delete, in_batches, row, upsert

from frazil.errors import BadInput
from frazil.ingest.write import fold
from frazil.ingest.write.fold import differ, fold_changes, sort_changes
from frazil.model.arrow import CHANGE_SCHEMA
from frazil.model.change import Op

KEYS = st.one_of(st.sampled_from(["[1]", "[2]", "[10]"]), st.text(max_size=3))
CHANGES = st.lists(
    st.builds(
        row,
        table=st.integers(0, 2),
        epoch=st.integers(0, 2),
        key=KEYS,
        major=st.integers(0, 3),
        minor=st.integers(0, 2),
        op=st.sampled_from([Op.DELETE, Op.UPSERT]),
        payload=st.sampled_from([b"same"]),
    ),
    max_size=60,
)
SIZES = st.lists(st.integers(0, 7), max_size=20)


def folded(batches: list[pa.RecordBatch], changelogs: tuple[int, ...] = ()) -> list[tuple[int, int, dict]]:  # type: ignore[type-arg]
    return [(t, e, r) for t, e, rows in fold_changes(batches, changelogs) for r in rows.to_pylist()]


@given(changes=CHANGES, sizes=SIZES, chunk=st.integers(1, 9))
@settings(max_examples=300)
def test_the_last_position_of_each_key_wins_wherever_batches_are_cut(
    changes: list[dict[str, object]], sizes: list[int], chunk: int
) -> None:
    """H2, H13, H34: one net change per key, duplicates and all orders of arrival alike."""
    expected: dict[tuple[object, ...], dict[str, object]] = {}
    for change in changes:
        key = (change["table"], change["epoch"], change["key"])
        rank = (change["major"], change["minor"], change["op"])
        best = expected.get(key)
        if best is None or rank >= (best["major"], best["minor"], best["op"]):
            expected[key] = change
    batches = in_batches(sort_changes(pa.Table.from_batches([change_rows(changes)], CHANGE_SCHEMA)), sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold, "CHUNK_ROWS", chunk)
        result = folded(batches)
    assert {(t, e, r["key"]): r for t, e, r in result} == expected
    assert len(result) == len(expected)


@given(changes=CHANGES, sizes=SIZES, chunk=st.integers(1, 9))
@settings(max_examples=200)
def test_a_changelog_keeps_each_position_of_a_key_once_while_other_tables_fold(
    changes: list[dict[str, object]], sizes: list[int], chunk: int
) -> None:
    expected = set()
    newest: dict[tuple[object, ...], tuple[object, ...]] = {}
    for change in changes:
        place = (change["table"], change["epoch"], change["key"])
        position = (change["major"], change["minor"])
        if change["table"] == 1:
            expected.add((*place, *position))
        else:
            newest[place] = max(newest.get(place, (-1, -1)), position)
    expected |= {(*place, *position) for place, position in newest.items()}
    batches = in_batches(sort_changes(pa.Table.from_batches([change_rows(changes)], CHANGE_SCHEMA)), sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold, "CHUNK_ROWS", chunk)
        result = [(t, e, r["key"], r["major"], r["minor"]) for t, e, r in folded(batches, changelogs=(1,))]
    assert sorted(result) == sorted(expected)


def test_at_one_position_an_upsert_outranks_a_delete() -> None:
    rows = sort_changes(pa.Table.from_batches([change_rows([upsert(1, 5), delete(1, 5)])]))
    assert [r["op"] for _, _, r in folded([rows])] == [Op.UPSERT]


def test_a_newer_delete_outranks_an_older_upsert_in_the_next_batch() -> None:
    assert [r["op"] for _, _, r in folded([change_rows([upsert(1, 5)]), change_rows([delete(1, 6)])])] == [Op.DELETE]


def test_the_minor_part_of_a_position_decides_between_equal_major_parts() -> None:
    rows = [upsert(1, 5, "old", minor=1), upsert(1, 5, "new", minor=2)]
    assert b"new" in folded([change_rows(rows)])[0][2]["payload"]


def test_runs_come_by_table_and_epoch_and_no_pair_comes_back() -> None:
    rows = [upsert(k, k, table=t, epoch=e) for t in (0, 1) for e in (0, 1) for k in (1, 2, 3)]
    pairs = [(t, e) for t, e, _ in fold_changes(in_batches(change_rows(rows), [2, 2, 2, 2, 2]))]
    assert list(dict.fromkeys(pairs)) == sorted(set(pairs)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert pairs == sorted(pairs)


def test_keys_sort_by_their_utf8_bytes_as_in_spark() -> None:
    """UTF-16 order, Java's own, would put the emoji before U+FFFD."""
    keys = ["\U0001f600", "\ufffd", "é", "z", "Z", "", "a\x00"]
    rows = change_rows([row(0, 0, key, 1, 0, Op.UPSERT, b"") for key in keys])
    assert sort_changes(pa.Table.from_batches([rows])).column("key").to_pylist() == sorted(keys, key=str.encode)


def test_nothing_folds_to_nothing() -> None:
    assert folded([]) == []
    assert folded([change_rows([])]) == []
    assert sort_changes(pa.Table.from_batches([], CHANGE_SCHEMA)).num_rows == 0


def test_a_change_without_a_key_is_bad_input() -> None:
    """H20."""
    with pytest.raises(BadInput, match="without a key"):
        folded([change_rows([{**upsert(1, 5), "key": None}])])


def test_large_strings_from_spark_are_taken_too() -> None:
    rows = change_rows([upsert(1, 5), upsert(1, 6)])
    large = rows.set_column(2, "key", rows.column("key").cast(pa.large_string()))
    assert len(folded([large])) == 1


def test_memory_stays_bounded_however_long_the_stream_and_the_run_of_one_key_are() -> None:
    """H32: 400 MB pass, a few chunks are held."""
    payload = b"x" * 1000
    base = pa.total_allocated_bytes()
    peak = 0

    def stream() -> Iterator[pa.RecordBatch]:
        for number in range(40):
            # Half of the batches repeat one key over and over, half bring new keys.
            keys = ["[same]"] * 10_000 if number < 20 else [f"[x{number:03d}-{i:05d}]" for i in range(10_000)]
            yield change_rows(row(0, 0, key, number * 10_000 + i, 0, Op.UPSERT, payload) for i, key in enumerate(keys))

    count = 0
    for _, _, rows in fold_changes(stream()):
        count += rows.num_rows
        peak = max(peak, pa.total_allocated_bytes() - base)
    assert count == 200_001
    assert peak < 6 * fold.CHUNK_BYTES


@pytest.mark.parametrize(
    ("values", "other"),
    [
        (["x", "x", None, None, "y"], [False, True, False, True]),
        ([float("nan"), float("nan"), 0.0, -0.0, 1.0], [False, True, False, True]),
        ([{"a": [1]}, {"a": [1]}, {"a": [2]}, None, None], [False, True, True, False]),
    ],
)
def test_values_differ_as_they_do_to_spark(values: list[Any], other: list[bool]) -> None:
    assert differ(pa.record_batch({"v": values}), ["v"]).tolist() == other


@pytest.mark.slow
def test_more_than_one_batch_holds_is_refused_and_never_cut_off() -> None:
    """A column of two gigabytes does not fit into a batch; what lies in the next one must not vanish."""
    large = change_rows([upsert(n, n, "x" * (1 << 20)) for n in range(1100)])
    with pytest.raises(BadInput, match=r"2,200 changes of .* MB are too much") as caught:
        sort_changes(pa.Table.from_batches([large, large]))
    assert "small_epoch_bytes" in caught.value.hint
