"""Which data files are put together, and what of it may be published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.maintenance.compact import CompactPlan, CompactSettings, plan_compaction, settle
from frazil.model.columns import LONG, VARIANT, Field, Schema, StructOf
from frazil.model.compaction import Concatenated, Group, Rewrite, RewrittenTable
from frazil.model.files import Kind
from frazil.model.live import LiveDelete, LiveFile, LiveFiles
from frazil.model.names import TableName

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
    path: str, records: int = 10, *, kind: Kind = Kind.POSITION_DELETE, of: str | None = None, sequence: int = 9
) -> LiveDelete:
    return LiveDelete(
        path=path,
        kind=kind,
        format="parquet",
        size=100,
        records=records,
        sequence_number=sequence,
        spec_id=0,
        equality_ids=(1,) if kind is Kind.EQUALITY_DELETE else (),
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


def test_a_file_with_many_deleted_rows_is_rewritten_by_itself() -> None:
    plan = planned(file("a", 90 * MB, deletes=[delete("d", 301, of="a")]))
    assert [paths(group) for group in plan.groups] == [["a"]]
    assert plan_compaction(TABLE, live(file("a", 90 * MB, deletes=[delete("d", 300, of="a")])), SETTINGS) is None


def test_deletes_for_several_files_are_shared_out_by_rows() -> None:
    shared = delete("d", 800)
    plan = planned(file("a", 90 * MB, deletes=[shared]), file("b", 90 * MB, deletes=[shared]))
    assert sorted(path for group in plan.groups for path in paths(group)) == ["a", "b"]


def test_files_with_equality_deletes_wait_for_conversion() -> None:
    by_key = delete("e", kind=Kind.EQUALITY_DELETE)
    plan = planned(*(file(name) for name in "abc"), *(file(name, deletes=[by_key]) for name in "xyz"))
    assert [paths(group) for group in plan.groups] == [["a", "b", "c"]]
    assert plan.unconverted == 3


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
        plan = plan_compaction(TABLE, live(*files), SETTINGS)
        for group in plan.groups if plan else ():
            written += group.size
            files = [one for one in files if one.path not in paths(group)]
            files.append(file(f"g{number:04}", group.size, sequence=number))
        assert len(files) <= 30
    assert written <= 500 * MB * 9


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 120 * MB), st.integers(1, 50), st.sampled_from("xyz"), st.integers(0, 1000), st.booleans()
        ),
        max_size=40,
    )
)
def test_a_plan_takes_each_file_once_and_none_that_waits_for_conversion(
    facts: list[tuple[int, int, str, int, bool]],
) -> None:
    files = []
    for number, (size, sequence, part, deleted, unconverted) in enumerate(facts):
        path = f"f{number}"
        deletes = [delete(f"d{number}", deleted, of=path)] if deleted else []
        deletes += [delete("e", kind=Kind.EQUALITY_DELETE)] if unconverted else []
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
    if plan:
        assert tuple(group for batch in plan.batches for group in batch) == plan.groups


# what may be published


def rewrite(*groups: Sequence[LiveFile]) -> tuple[Rewrite, tuple[Concatenated, ...]]:
    plan = CompactPlan(
        table=TABLE,
        snapshot_id=5,
        groups=tuple(Group(tuple(files), "", MB) for files in groups),
        commit_bytes=MB,
    )
    results = tuple(Concatenated(n, (), (b"",) * len(group)) for n, group in enumerate(groups))
    return plan.rewrite(plan.groups, RUN), results


def test_nothing_that_happens_elsewhere_matters() -> None:
    a, b = file("a"), file("b")
    settled = settle(*rewrite([a, b]), live(a, b, file("new", sequence=60)), 2)
    assert settled.kept
    assert not settled.moved
    assert not settled.dropped


def test_a_group_whose_file_is_gone_is_dropped_and_the_others_stay() -> None:
    """H47"""
    a, b, c = file("a"), file("b"), file("c")
    settled = settle(*rewrite([a, b], [c]), live(a, c), 2)
    assert [result.group for result in settled.kept] == [1]
    assert [(one.group, "b" in one.why) for one in settled.dropped] == [(0, True)]
    assert [one.path for one in settled.inputs] == ["c"]


def test_a_file_that_is_another_one_now_makes_its_group_useless() -> None:
    a = file("a", sequence=1)
    assert not settle(*rewrite([a]), live(file("a", sequence=2)), 2).kept


def test_a_table_of_another_version_is_planned_anew() -> None:
    assert not settle(*rewrite([file("a")]), live(file("a")), 3).kept


def test_a_newer_equality_delete_needs_nothing_and_an_older_one_drops_the_group() -> None:
    """H15"""
    newer = delete("e", kind=Kind.EQUALITY_DELETE, sequence=51)
    older = delete("e", kind=Kind.EQUALITY_DELETE, sequence=50)
    settled = settle(*rewrite([file("a")]), live(file("a", deletes=[newer])), 2)
    assert settled.kept
    assert not settled.moved
    assert not settled.removed
    assert not settle(*rewrite([file("a")]), live(file("a", deletes=[older])), 2).kept


def test_deletes_that_came_meanwhile_are_followed() -> None:
    """H16"""
    known, fresh = delete("known", of="a"), delete("fresh", of="a", sequence=51)
    before = file("a", deletes=[known])
    settled = settle(*rewrite([before]), live(file("a", deletes=[known, fresh])), 2)
    assert [one.files[0].deletes for one in settled.moved] == [(known, fresh)]
    assert set(settled.removed) == {known, fresh}
    assert not settled.carried


def test_deletes_that_others_need_stay_unless_they_came_meanwhile() -> None:
    known, fresh = delete("known"), delete("fresh", sequence=51)
    before = file("a", deletes=[known])
    now = live(file("a", deletes=[known, fresh]), file("b", deletes=[known, fresh]))
    settled = settle(*rewrite([before]), now, 2)
    assert settled.removed == ()
    assert [(one.delete, one.data_files) for one in settled.carried] == [(fresh, ("b",))]


def test_a_group_with_a_row_that_is_alive_again_is_dropped() -> None:
    a = file("a")
    rewritten, results = rewrite([a])
    assert not settle(rewritten, results, live(a), 2, undone={0}).kept


def test_rows_that_got_their_ids_meanwhile_are_planned_anew() -> None:
    a = file("a")
    rewritten, results = rewrite([a])
    rewritten = replace(rewritten, table=replace(TABLE, format_version=3))
    assert settle(rewritten, results, live(a), 3).kept
    later = replace(live(a), snapshot_id=6)
    assert not settle(rewritten, results, later, 3).kept
    known = replace(rewritten, groups=(Group((replace(a, first_row_id=0),), "", MB),))
    assert settle(known, results, later, 3).kept


def test_a_group_that_could_not_be_read_is_dropped_and_says_why() -> None:
    a, b = file("a"), file("b")
    rewritten, (_, second) = rewrite([a], [b])
    settled = settle(rewritten, [Concatenated(0, failure="a is damaged"), second], live(a, b), 2)
    assert [one.why for one in settled.dropped] == ["a is damaged"]
    assert settled.kept == (second,)


def test_a_table_with_a_type_that_is_not_written_here_is_left_alone() -> None:
    schema = Schema(0, (Field(1, "id", LONG), Field(2, "any", StructOf((Field(3, "x", VARIANT),)))))
    assert plan_compaction(replace(TABLE, schema=schema), live(*map(file, "abc")), SETTINGS) is None


def test_a_group_never_holds_a_file_that_waits_for_conversion() -> None:
    with pytest.raises(ValueError, match="converted first"):
        Group((file("a", deletes=[delete("e", kind=Kind.EQUALITY_DELETE)]),), "", 1)
