"""Change rows are ordered as Arrow would order them, whatever their keys look like."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.ingest.write.fold import fold_changes
from frazil.ingest.write.row_order import change_order
from frazil.model.arrow import CHANGE_SCHEMA
from frazil.model.change import SORT_COLUMNS

FEW = st.integers(0, 2)
NUMBERED = st.integers(-(10**12), 10**12).map(lambda number: f"[{number}]")
KEYS = st.sampled_from(["[1]", "[10]", "[1, 2]", "[12345678]", "[123456789]", "[12345678901234]", "", "a\0", "a"])
TEXTS = st.text(max_size=20)


@settings(max_examples=300)
@given(
    st.lists(st.tuples(FEW, FEW, st.one_of(NUMBERED, KEYS), FEW, st.integers(0, 5), st.none() | FEW, FEW), max_size=60)
    | st.lists(st.tuples(FEW, FEW, st.none() | TEXTS, FEW, FEW, FEW, FEW), max_size=30)
    | st.lists(st.tuples(st.just(0), st.just(0), NUMBERED, st.just(0), FEW, st.just(0), FEW), max_size=200),
    st.integers(0, 3),
)
def test_rows_come_in_the_order_of_their_columns(rows: list[tuple[object, ...]], skipped: int) -> None:
    columns = [*SORT_COLUMNS, "payload", "before"]
    filled = [dict(zip(columns, (*row, b"", None), strict=True)) for row in rows]
    batch = pa.RecordBatch.from_pylist(filled, schema=CHANGE_SCHEMA).slice(min(skipped, len(filled)))
    expected = pc.sort_indices(batch, sort_keys=[(name, "ascending") for name in SORT_COLUMNS])
    assert change_order(batch).to_pylist() == expected.to_pylist()
    left = change_order(batch, newest=True).to_pylist()
    assert [place for place in expected.to_pylist() if place in set(left)] == left
    folded = [run for _, _, run in fold_changes([batch.take(expected)])] if _all_keyed(batch) else []
    if folded:
        assert pa.concat_batches([run for _, _, run in fold_changes([batch.take(pa.array(left))])]).equals(
            pa.concat_batches(folded)
        )


def _all_keyed(batch: pa.RecordBatch) -> bool:
    return not batch.column("key").null_count


def test_many_rows_with_few_keys_keep_their_positions_in_order() -> None:
    count = 5_000
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([0] * count, pa.int32()),
            pa.array([0] * count, pa.int32()),
            pa.array([f"[{number % 7}]" for number in range(count)]),
            pa.array([0] * count, pa.int32()),
            pa.array([(number * 7919) % 1009 for number in range(count)], pa.int64()),
            pa.array([0] * count, pa.int64()),
            pa.array([1] * count, pa.int32()),
            pa.array([b""] * count),
            pa.nulls(count, pa.binary()),
            pa.nulls(count, pa.int64()),
            pa.nulls(count, pa.int64()),
        ],
        schema=CHANGE_SCHEMA,
    )
    expected = pc.sort_indices(batch, sort_keys=[(name, "ascending") for name in SORT_COLUMNS])
    assert change_order(batch).equals(expected.cast(pa.int64()))
    assert len(change_order(batch, newest=True)) == 7
