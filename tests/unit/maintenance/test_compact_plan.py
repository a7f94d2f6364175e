"""Which data files are put together, and what of it may be published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.maintenance.compact.planner import CompactPlan, CompactSettings, plan_compaction
from frazil.maintenance.compact.rebase import rebase
from frazil.model.compaction import Group, Rewrite, RewriteResult, RewrittenTable
from frazil.model.files import FileKind, LiveDelete, LiveFile, LiveFiles
from frazil.model.ids import TableName
from frazil.model.schema import LONG, VARIANT, Field, Schema, StructOf

MB = 1 << 20
RUN = UUID(int=7)
SETTINGS = CompactSettings(target_file_bytes=100 * MB, min_input_files=3)
TABLE = RewrittenTable(
    name=TableName.parse("shop.orders"),
    schema=Schema(0, (Field(1, "id", LONG, True),)),
    format_version=2,
    sequence_number=50,
    data_location="file:/warehouse/orders/data",
)


def file(
    path: str, size: int = MB, *, sequence: int = 1, partition: tuple[Any, ...] = (), deletes: Sequence[LiveDelete] = ()
) -> LiveFile:
    return LiveFile(
        path=path,
        format="parquet",
        size=size,
        records=1000,
        sequence_number=sequence,
        spec_id=0,
        partition=partition,
        deletes=tuple(deletes),
    )


def delete(
    path: str, records: int = 10, *, kind: FileKind = FileKind.POSITION_DELETE, of: str | None = None, sequence: int = 9
) -> LiveDelete:
    return LiveDelete(
        path=path,
        kind=kind,
        format="parquet",
        size=100,
        records=records,
        sequence_number=sequence,
        spec_id=0,
        equality_ids=(1,) if kind is FileKind.EQUALITY_DELETE else (),
        data_file=of,
    )


def live(*files: LiveFile) -> LiveFiles:
    deletes = {one.path: one for file in files for one in file.deletes}
    return LiveFiles(snapshot_id=5, files=files, deletes=tuple(deletes.values()))


def planned(*files: LiveFile, settings: CompactSettings = SETTINGS) -> CompactPlan:
    plan = plan_compaction(TABLE, live(*files), settings)
    assert plan is not None
    return plan


def paths(group: Group) -> list[str]:
    return [file.path for file in group.files]


def test_enough_small_files_are_put_together_in_the_order_of_their_age() -> None:
    plan = planned(file("c", sequence=3), file("a", sequence=1), file("b", sequence=2))
    assert [paths(group) for group in plan.groups] == [["a", "b", "c"]]
    assert "3 small files" in plan.reason


def test_a_few_small_files_are_left_alone() -> None:
    assert plan_compaction(TABLE, live(file("a"), file("b")), SETTINGS) is None


def test_an_empty_table_needs_nothing() -> None:
    assert plan_compaction(TABLE, LiveFiles(snapshot_id=None), SETTINGS) is None


def test_a_full_file_is_left_alone() -> None:
    assert plan_compaction(TABLE, live(*(file(name, 80 * MB) for name in "abcd")), SETTINGS) is None


def test_two_files_that_fill_one_are_put_together() -> None:
    plan = planned(file("a", 40 * MB), file("b", 50 * MB))
    assert [paths(group) for group in plan.groups] == [["a", "b"]]


def test_files_of_different_partitions_never_meet() -> None:
    files = [file(f"{part}{n}", partition=(part,)) for part in "xy" for n in range(2)]
    assert plan_compaction(TABLE, live(*files), SETTINGS) is None


def test_a_file_waits_whose_rows_are_found_by_a_column_that_was_dropped_since() -> None:
    """H15: the column would not be written any more, and the delete would find nothing."""
    by_dropped = replace(delete("e", kind=FileKind.EQUALITY_DELETE), equality_ids=(1, 7))
    files = [file(name, deletes=[by_dropped]) for name in "abc"]
    assert plan_compaction(TABLE, live(*files), SETTINGS) is None
    assert planned(*(file(name, deletes=[delete("e", kind=FileKind.EQUALITY_DELETE)]) for name in "abc")).groups


def test_a_file_with_many_deleted_rows_is_rewritten_by_itself() -> None:
    plan = planned(file("a", 90 * MB, deletes=[delete("d", 301, of="a")]))
    assert [paths(group) for group in plan.groups] == [["a"]]
    assert plan_compaction(TABLE, live(file("a", 90 * MB, deletes=[delete("d", 300, of="a")])), SETTINGS) is None


def test_deletes_for_several_files_are_shared_out_by_rows() -> None:
    shared = delete("d", 800)
    plan = planned(file("a", 90 * MB, deletes=[shared]), file("b", 90 * MB, deletes=[shared]))
    assert sorted(path for group in plan.groups for path in paths(group)) == ["a", "b"]


def by_key(path: str, sequence: int) -> LiveDelete:
    return delete(path, kind=FileKind.EQUALITY_DELETE, sequence=sequence)


def test_files_meet_only_if_the_same_equality_deletes_reach_all_of_them() -> None:
    """H15"""
    old = [file(name, sequence=3, deletes=[by_key("e", 9)]) for name in "abc"]
    new = [file(name, sequence=9) for name in "xyz"]
    plan = planned(*old, *new)
    assert [(paths(group), group.sequence_until) for group in plan.groups] == [
        (["a", "b", "c"], 8),
        (["x", "y", "z"], 50),
    ]
    assert all(one.deletes == () for group in plan.groups for one in group.files)
    assert [plan.rewrite(batch, RUN).sequence_number for batch in plan.batches] == [8, 50]


def test_partitions_with_different_deletes_share_a_snapshot_if_one_number_is_right_for_both() -> None:
    east = [file(f"e{n}", sequence=3, partition=("east",), deletes=[by_key("e", 9)]) for n in range(3)]
    west = [file(f"w{n}", sequence=7, partition=("west",), deletes=[by_key("w", 20)]) for n in range(3)]
    (batch,) = planned(*east, *west).batches
    assert planned(*east, *west).rewrite(batch, RUN).sequence_number == 8


def test_an_equality_delete_with_every_epoch_keeps_nobody_from_compacting_what_was_converted() -> None:
    converted = [file(f"f{n}", sequence=n, deletes=[by_key(f"e{m}", m) for m in (11, 12, 13)]) for n in range(1, 11)]
    stream = [file(f"s{n}", sequence=n, deletes=[by_key(f"e{m}", m) for m in range(n + 1, 14)]) for n in (11, 12, 13)]
    plan = planned(*converted, *stream)
    assert [len(group.files) for group in plan.groups] == [10]
    assert plan.groups[0].sequence_until == 10


def test_cold_partitions_come_first() -> None:
    hot = [file(f"h{n}", sequence=n, partition=("hot",)) for n in (1, 2, 9)]
    cold = [file(f"c{n}", sequence=n, partition=("cold",)) for n in (3, 4, 5)]
    plan = planned(*hot, *cold)
    assert [group.files[0].partition for group in plan.groups] == [("cold",), ("hot",)]


def test_a_budget_bounds_a_plan_but_never_to_nothing() -> None:
    files = [file(f"{part}{n}", 10 * MB, partition=(part,)) for part in "xyz" for n in range(3)]
    plan = planned(*files, settings=CompactSettings(target_file_bytes=100 * MB, min_input_files=3, budget_bytes=1))
    assert len(plan.groups) == 1
    assert plan.waiting == 2


def test_a_file_that_outweighs_the_others_stays_out() -> None:
    plan = planned(file("large", 20 * MB), *(file(name) for name in "abc"))
    assert [sorted(paths(group)) for group in plan.groups] == [["a", "b", "c"]]


def test_small_files_of_a_stream_are_rewritten_a_logarithmic_number_of_times() -> None:
    files: list[LiveFile] = []
    written = 0
    for number in range(1, 501):
        files.append(file(f"f{number:04}", sequence=number))
        plan = plan_compaction(replace(TABLE, sequence_number=number), live(*files), SETTINGS)
        for group in plan.groups if plan else ():
            written += group.size
            files = [one for one in files if one.path not in paths(group)]
            files.append(file(f"g{number:04}", group.size, sequence=number))
        assert len(files) <= 30
    assert written <= 500 * MB * 9


@given(
    st.lists(
        st.tuples(st.integers(1, 120 * MB), st.integers(1, 50), st.sampled_from("xyz"), st.integers(0, 1000)),
        max_size=40,
    ),
    st.sets(st.integers(2, 50), max_size=3),
)
def test_a_plan_takes_each_file_once_and_its_rows_are_reached_by_the_same_deletes_as_before(
    facts: list[tuple[int, int, str, int]], by_keys: set[int]
) -> None:
    """H15"""
    files = []
    for number, (size, sequence, part, deleted) in enumerate(facts):
        path = f"f{number}"
        deletes = [delete(f"d{number}", deleted, of=path)] if deleted else []
        deletes += [by_key(f"e{at}", at) for at in by_keys if at > sequence]
        files.append(file(path, size, sequence=sequence, partition=(part,), deletes=deletes))
    plan = plan_compaction(TABLE, live(*files), SETTINGS)
    groups = plan.groups if plan else ()
    taken = Counter(path for group in groups for path in paths(group))
    assert all(count == 1 for count in taken.values())
    for group in groups:
        assert len({one.partition for one in group.files}) == 1
        numbers = [one.sequence_number for one in group.files]
        assert numbers == sorted(numbers)
        assert len(group.files) > 1 or group.files[0].deletes
    if plan is None:
        return
    assert tuple(group for batch in plan.batches for group in batch) == plan.groups
    for batch in plan.batches:
        number = plan.rewrite(batch, RUN).sequence_number
        for one in (one for group in batch for one in group.files):
            known = {
                at for at in by_keys if any(f.partition == one.partition and f.sequence_number < at for f in files)
            }
            assert {at for at in known if at > number} == {at for at in known if at > one.sequence_number}


# what may be published


def rewrite(*groups: Sequence[LiveFile]) -> tuple[Rewrite, tuple[RewriteResult, ...]]:
    plan = CompactPlan(
        table=TABLE,
        snapshot_id=5,
        groups=tuple(Group(tuple(files), "", MB, 50) for files in groups),
        commit_bytes=MB,
    )
    results = tuple(RewriteResult(n, (), (b"",) * len(group)) for n, group in enumerate(groups))
    return plan.rewrite(plan.groups, RUN), results


def test_nothing_that_happens_elsewhere_matters() -> None:
    a, b = file("a"), file("b")
    rebased = rebase(*rewrite([a, b]), live(a, b, file("new", sequence=60)), 2)
    assert rebased.kept
    assert not rebased.moved
    assert not rebased.dropped


def test_a_group_whose_file_is_gone_is_dropped_and_the_others_stay() -> None:
    """H47"""
    a, b, c = file("a"), file("b"), file("c")
    rebased = rebase(*rewrite([a, b], [c]), live(a, c), 2)
    assert [result.group for result in rebased.kept] == [1]
    assert [(one.group, "b" in one.why) for one in rebased.dropped] == [(0, True)]
    assert [one.path for one in rebased.inputs] == ["c"]


def test_a_file_that_is_another_one_now_makes_its_group_useless() -> None:
    a = file("a", sequence=1)
    assert not rebase(*rewrite([a]), live(file("a", sequence=2)), 2).kept


def test_a_table_of_another_version_is_planned_anew() -> None:
    assert not rebase(*rewrite([file("a")]), live(file("a")), 3).kept


def test_a_newer_equality_delete_needs_nothing_and_an_older_one_drops_the_group() -> None:
    """H15"""
    newer = delete("e", kind=FileKind.EQUALITY_DELETE, sequence=51)
    older = delete("e", kind=FileKind.EQUALITY_DELETE, sequence=50)
    rebased = rebase(*rewrite([file("a")]), live(file("a", deletes=[newer])), 2)
    assert rebased.kept
    assert not rebased.moved
    assert not rebased.removed
    assert not rebase(*rewrite([file("a")]), live(file("a", deletes=[older])), 2).kept


def test_deletes_that_came_meanwhile_are_followed() -> None:
    """H16"""
    known, fresh = delete("known", of="a"), delete("fresh", of="a", sequence=51)
    before = file("a", deletes=[known])
    rebased = rebase(*rewrite([before]), live(file("a", deletes=[known, fresh])), 2)
    assert [one.files[0].deletes for one in rebased.moved] == [(known, fresh)]
    assert set(rebased.removed) == {known, fresh}
    assert not rebased.carried


def test_deletes_that_others_need_stay_unless_they_came_meanwhile() -> None:
    known, fresh = delete("known"), delete("fresh", sequence=51)
    before = file("a", deletes=[known])
    now = live(file("a", deletes=[known, fresh]), file("b", deletes=[known, fresh]))
    rebased = rebase(*rewrite([before]), now, 2)
    assert rebased.removed == ()
    assert [(one.delete, one.data_files) for one in rebased.carried] == [(fresh, ("b",))]


def test_a_group_with_a_row_that_is_alive_again_is_dropped() -> None:
    a = file("a")
    rewritten, results = rewrite([a])
    assert not rebase(rewritten, results, live(a), 2, undone={0}).kept


def test_rows_that_got_their_ids_meanwhile_are_planned_anew() -> None:
    a = file("a")
    rewritten, results = rewrite([a])
    rewritten = replace(rewritten, table=replace(TABLE, format_version=3))
    assert rebase(rewritten, results, live(a), 3).kept
    later = replace(live(a), snapshot_id=6)
    assert not rebase(rewritten, results, later, 3).kept
    known = replace(rewritten, groups=(Group((replace(a, first_row_id=0),), "", MB, 50),))
    assert rebase(known, results, later, 3).kept


def test_a_group_that_could_not_be_read_is_dropped_and_says_why() -> None:
    a, b = file("a"), file("b")
    rewritten, (_, second) = rewrite([a], [b])
    rebased = rebase(rewritten, [RewriteResult(0, failure="a is damaged"), second], live(a, b), 2)
    assert [one.why for one in rebased.dropped] == ["a is damaged"]
    assert rebased.kept == (second,)


def test_a_table_with_a_type_that_is_not_written_here_is_left_alone() -> None:
    schema = Schema(0, (Field(1, "id", LONG), Field(2, "any", StructOf((Field(3, "x", VARIANT),)))))
    assert plan_compaction(replace(TABLE, schema=schema), live(*map(file, "abc")), SETTINGS) is None


def test_a_group_holds_no_equality_deletes_and_none_that_reach_a_part_of_it() -> None:
    with pytest.raises(ValueError, match="stay as they are"):
        Group((file("a", deletes=[by_key("e", 9)]),), "", 1, 50)
    with pytest.raises(ValueError, match="not all"):
        Group((file("a", sequence=3), file("b", sequence=9)), "", 1, 8)
