"""Where keys are searched, and what becomes of what is found."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal as Number
from typing import Any
from uuid import UUID as Uuid

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from frazil.data.keys.codec import KeyCodec
from frazil.ingest.locate.search import (
    BROADCAST_MAX,
    HERE_MAX,
    SearchMode,
    by_partition,
    candidates,
    choose_search,
    deletion,
    prunable_by,
    unsearched,
    wanted,
)
from frazil.model.arrow import value_type
from frazil.model.files import FileKind, LiveDelete, LiveFile
from frazil.model.partition import PartitionField, PartitionSpec, Transform
from frazil.model.schema import DATE, INT, LONG, STRING, TIMESTAMP, TIMESTAMPTZ, UUID, Decimal, Field, Type


def live(path: str = "a", lower: bytes | None = None, upper: bytes | None = None, **changed: Any) -> LiveFile:
    bounds = {1: (lower, upper)} if lower is not None or upper is not None else {}
    facts = {"path": path, "format": "parquet", "size": 10, "records": 5, "sequence_number": 1, "spec_id": 0}
    return LiveFile(**{**facts, "bounds": bounds, **changed})


def keys(type_: Type, *values: Any, partitions: Any = None) -> Any:
    field = Field(1, "id", type_, required=True)
    encoded = KeyCodec([field]).encode([pa.array(values, value_type(type_))]).sorted()
    return wanted([field], encoded, partitions)


def kept(file: LiveFile, of: Any) -> bool:
    return bool(candidates([file], of))


def number(value: int, width: int = 8) -> bytes:
    return value.to_bytes(width, "little", signed=True)


def test_a_file_between_whose_bounds_no_key_lies_is_left_out() -> None:
    of = keys(LONG, -5, 10, 900)
    assert kept(live(lower=number(10), upper=number(20)), of)
    assert kept(live(lower=number(-5), upper=number(-5)), of)
    assert not kept(live(lower=number(11), upper=number(899)), of), "between the smallest and the largest key"
    assert not kept(live(lower=number(901), upper=number(2**62)), of)
    assert not kept(live(lower=number(-(2**62)), upper=number(-6)), of)


def test_a_bound_that_is_missing_leaves_nothing_out() -> None:
    of = keys(LONG, 10)
    assert kept(live(), of)
    assert kept(live(upper=number(10)), of)
    assert not kept(live(upper=number(9)), of)
    assert kept(live(lower=number(10)), of)
    assert not kept(live(lower=number(11)), of)


def test_a_promoted_columns_older_bounds_are_read_in_their_own_width() -> None:
    assert not kept(live(lower=number(11, 4), upper=number(12, 4)), keys(LONG, 10))
    assert kept(live(lower=number(10, 4), upper=number(12, 4)), keys(LONG, 10))
    days = live(lower=number(1, 4), upper=number(2, 4))
    assert kept(days, keys(TIMESTAMPTZ, dt.datetime(2024, 1, 1, tzinfo=dt.UTC))), "days say nothing about microseconds"
    assert not kept(days, keys(DATE, dt.date(2024, 1, 1)))


def test_uuids_are_never_left_out_by_bounds() -> None:
    """iceberg-java orders them as signed numbers, so others' bounds may be the wrong way round."""
    low, high = Uuid(int=1), Uuid(int=1 << 127)
    assert kept(live(lower=high.bytes, upper=low.bytes), keys(UUID, Uuid(int=5).bytes))


def test_texts_and_decimals_are_compared_in_their_own_order() -> None:
    of = keys(STRING, "b", "é")
    assert not kept(live(lower=b"c", upper=b"d"), of)
    assert kept(live(lower=b"c", upper="ê".encode()), of)
    assert kept(live(lower=b"a", upper=b"b"), of)
    money = keys(Decimal(12, 2), Number("-1.50"), Number("300.00"))
    assert kept(live(lower=(-200).to_bytes(2, "big", signed=True), upper=(-100).to_bytes(1, "big", signed=True)), money)
    assert not kept(live(lower=(0).to_bytes(1, "big"), upper=(29_999).to_bytes(2, "big", signed=True)), money)


@given(
    st.sets(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=8),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=6),
)
def test_no_file_that_holds_a_key_is_left_out(wanted_keys: set[int], file_keys: list[int]) -> None:
    file = live(lower=number(min(file_keys)), upper=number(max(file_keys)))
    of = keys(LONG, *wanted_keys)
    assert kept(file, of) or not wanted_keys & set(file_keys)
    assert kept(file, of) == any(min(file_keys) <= key <= max(file_keys) for key in wanted_keys)


def test_partitions_leave_files_of_their_own_spec_out() -> None:
    of = keys(LONG, 10, partitions={1: frozenset([(3,)])})
    assert kept(live(spec_id=1, partition=(3,)), of)
    assert not kept(live(spec_id=1, partition=(4,)), of)
    assert kept(live(spec_id=2, partition=(4,)), of)


@pytest.mark.parametrize(
    ("transform", "source", "type_", "prunes"),
    [
        ("identity", 1, LONG, True),
        ("bucket[4]", 1, UUID, True),
        ("truncate[4]", 1, STRING, True),
        ("day", 1, TIMESTAMP, True),
        ("identity", 1, TIMESTAMP, False),
        ("identity", 1, Decimal(12, 2), False),
        ("identity", 2, LONG, False),
        ("void", 1, LONG, False),
    ],
)
def test_a_spec_prunes_if_the_key_alone_decides_in_one_spelling(
    transform: str, source: int, type_: Type, prunes: bool
) -> None:
    """H1: a row whose partition column is no key may lie anywhere."""
    spec = PartitionSpec(1, (PartitionField(1000, source, "p", Transform.parse(transform)),))
    assert prunable_by(spec, [Field(1, "id", type_), Field(3, "x", INT)]) == prunes


def test_only_files_that_came_are_searched_on_the_next_head() -> None:
    assert unsearched([live("a"), live("b")], {"a": BitMap64()}) == (live("b"),)


def position_delete(path: str, **changed: Any) -> LiveDelete:
    facts = {"path": path, "kind": FileKind.POSITION_DELETE, "format": "parquet", "size": 1, "records": 1, "spec_id": 0}
    return LiveDelete(**{**facts, "sequence_number": 2, **changed})


def test_a_file_whose_matches_are_all_deleted_is_not_touched() -> None:
    assert deletion(live(), BitMap64([1, 2]), BitMap64([1, 2, 3])) is None


def test_a_new_vector_holds_the_old_deletes_and_replaces_what_is_the_files_own() -> None:
    """H23, H24"""
    old = position_delete("v", format="puffin", data_file="a", offset=4, length=9)
    single, shared = position_delete("p", data_file="a"), position_delete("q")
    file = live(deletes=(old, single, shared))
    made = deletion(file, BitMap64([1, 2]), BitMap64([2, 7]))
    assert made is not None
    assert (made.fresh, made.all) == (BitMap64([1]), BitMap64([1, 2, 7]))
    assert made.replaced == (old, single), "what other data files share stays"


def test_position_deletes_are_grouped_by_the_data_files_partition() -> None:
    """H22"""
    files = [live("b", spec_id=1, partition=("x",)), live("a", spec_id=1, partition=("x",)), live("c", spec_id=2)]
    made = [deletion(file, BitMap64([1]), BitMap64()) for file in files]
    grouped = by_partition(one for one in made if one is not None)
    assert {place: [one.file.path for one in group] for place, group in grouped.items()} == {
        (1, ("x",)): ["a", "b"],
        (2, ()): ["c"],
    }


def test_the_road_follows_from_the_size_of_the_search() -> None:
    assert choose_search(50_000, 100, local=True) is SearchMode.HERE
    assert choose_search(50_000, 100, local=False) is SearchMode.TASKS
    assert choose_search(HERE_MAX // 100 + 1, 100, local=True) is SearchMode.TASKS
    assert choose_search(BROADCAST_MAX + 1, 1, local=True) is SearchMode.JOIN
    assert choose_search(1, 1, local=True, readable=False) is SearchMode.JOIN
