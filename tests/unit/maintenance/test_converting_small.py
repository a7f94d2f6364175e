"""Few delete keys are held in memory, and rows are looked up among them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.maintenance.convert import small as converting_small
from frazil.maintenance.convert.small import Newest, TooLarge


def deletes(*pairs: tuple[bytes, int]) -> pa.RecordBatch:
    keys, sequences = [key for key, _ in pairs], [sequence for _, sequence in pairs]
    return pa.RecordBatch.from_arrays([pa.array(keys, pa.binary()), pa.array(sequences, pa.int64())], ["k", "s"])


def rows(keys: list[bytes], sequence: int, start: int = 0, file: int = 0) -> pa.RecordBatch:
    count = len(keys)
    columns = [
        pa.array(keys, pa.binary()),
        pa.array([sequence] * count, pa.int64()),
        pa.array([file] * count, pa.int32()),
        pa.array(range(start, start + count), pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, ["k", "n", "f", "p"])


def deleted(newest: Newest, *batches: pa.RecordBatch) -> list[tuple[int, int]]:
    """Files and positions."""
    return [(row["f"], row["p"]) for batch in newest.deleted(batches) for row in batch.to_pylist()]


def test_a_row_is_deleted_by_a_newer_delete_of_its_key_alone() -> None:
    newest = Newest.of([deletes((b"a", 5), (b"b", 3)), deletes((b"b", 4), (b"c", 9))])
    assert deleted(newest, rows([b"a", b"b", b"c", b"d"], 4)) == [(0, 0), (0, 2)]
    assert deleted(newest, rows([b"a"], 3), rows([b"b", b"x", b"a"], 3, start=1)) == [(0, 0), (0, 1), (0, 3)]
    assert deleted(newest) == []


def test_without_deletes_nothing_is_deleted() -> None:
    assert deleted(Newest.of([]), rows([b"a"], 1)) == []


def test_rows_of_many_files_are_looked_up_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look puts all keys into a hash table: with one for each file, many small files would take minutes."""
    looks = []
    index_in = pc.index_in
    monkeypatch.setattr(pc, "index_in", lambda *given, **more: looks.append(given) or index_in(*given, **more))
    newest = Newest.of([deletes((b"a", 5))])
    files = [rows([b"x", b"a"], number, file=number) for number in range(8)]
    assert deleted(newest, *files) == [(number, 1) for number in range(5)]
    assert len(looks) == 1


def test_keys_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converting_small, "KEY_BYTES_MAX", 100)
    assert len(Newest.of([deletes((b"k", 1))]).keys) == 1
    with pytest.raises(TooLarge):
        Newest.of([deletes((b"k" * 200, 1))])


_KEYS = st.integers(0, 12).map(lambda number: b"%d" % number)


@given(
    st.lists(st.lists(st.tuples(_KEYS, st.integers(1, 6)), max_size=8), max_size=4),
    st.lists(st.tuples(st.lists(_KEYS, min_size=1, max_size=8), st.integers(0, 6)), max_size=6),
    st.integers(1, 5),
)
def test_it_is_what_a_dictionary_would_say_whatever_the_chunks(
    given_deletes: list[list[tuple[bytes, int]]], given_files: list[tuple[list[bytes], int]], chunk: int
) -> None:
    newest: dict[bytes, int] = {}
    for key, number in (pair for batch in given_deletes for pair in batch):
        newest[key] = max(newest.get(key, 0), number)
    batches, expected = [], []
    for number, (keys, sequence) in enumerate(given_files):
        batches.append(rows(keys, sequence, file=number))
        expected += [(number, place) for place, key in enumerate(keys) if newest.get(key, -1) > sequence]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(converting_small, "_CHUNK_ROWS", chunk)
        found = deleted(Newest.of(deletes(*batch) for batch in given_deletes if batch), *batches)
    assert found == expected
