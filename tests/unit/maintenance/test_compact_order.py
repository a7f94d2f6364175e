"""Which order a table gets, and which files are worth being sorted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.errors import ConfigError
from frazil.maintenance.compact.order import order_of
from frazil.maintenance.compact.planner import CompactPlan, CompactSettings, plan_compaction
from frazil.model.compaction import Group, RewrittenTable
from frazil.model.files import FileKind, LiveDelete, LiveFile, LiveFiles
from frazil.model.ids import TableName, maintenance_folder
from frazil.model.partition import Transform
from frazil.model.schema import INT, LONG, STRING, Field, ListOf, Schema, StructOf
from frazil.model.sort import Order, OrderField, parse_sort, run_folder, run_of

MB = 1 << 20
SETTINGS = CompactSettings(target_file_bytes=100 * MB, min_input_files=3)
TABLE = RewrittenTable(
    name=TableName.parse("shop.orders"),
    schema=Schema(
        0,
        (
            Field(1, "id", LONG, True),
            Field(2, "name", STRING),
            Field(3, "at", StructOf((Field(4, "x", INT),))),
            Field(5, "tags", ListOf(STRING, 6)),
        ),
    ),
    format_version=3,
    sequence_number=50,
    data_location="file:/warehouse/orders/data",
    order=(OrderField(2), OrderField(1, Transform("bucket", 8), descending=True, nulls_first=False)),
    order_id=7,
)
UNSORTED = replace(TABLE, order=(), order_id=None)
OWN = Order(TABLE.order, order_id=7)


def file(path: str, size: int = MB, *, sequence: int = 1, deleted: int = 0, **facts: Any) -> LiveFile:
    gone = LiveDelete(
        path=f"d-{path}",
        kind=FileKind.POSITION_DELETE,
        format="puffin",
        size=9,
        records=deleted,
        sequence_number=9,
        spec_id=0,
        data_file=path,
    )
    return LiveFile(
        path=path,
        format="parquet",
        size=size,
        records=1000,
        sequence_number=sequence,
        spec_id=0,
        deletes=(gone,) if deleted else (),
        **facts,
    )


def run(name: str, files: int, size: int = 100 * MB, *, order: Order = OWN, **facts: Any) -> list[LiveFile]:
    """Files that were sorted together."""
    folder = run_folder(f"{TABLE.data_location}/frazil_maintenance/compact={name}", order, 0, files)
    return [file(f"{folder}/data-{number}.parquet", size, **facts) for number in range(files)]


def live(*files: LiveFile) -> LiveFiles:
    return LiveFiles(snapshot_id=5, files=files)


def planned(*files: LiveFile, table: RewrittenTable = TABLE, settings: CompactSettings = SETTINGS) -> CompactPlan:
    plan = plan_compaction(table, live(*files), settings)
    assert plan is not None
    return plan


def paths(group: Group) -> list[str]:
    return [one.path for one in group.files]


# which order


def test_a_table_is_compacted_in_its_own_order_if_it_has_one() -> None:
    assert order_of(TABLE) == OWN
    assert order_of(UNSORTED) is None
    plan = planned(*map(file, "abc"))
    assert plan.order == OWN
    assert plan.rewrite(plan.groups, UUID(int=1)).order == OWN
    assert planned(*map(file, "abc"), table=UNSORTED).order is None


def test_the_configuration_asks_for_another_one() -> None:
    found = order_of(TABLE, [parse_sort("name desc"), parse_sort("at.x")])
    assert found == Order((OrderField(2, descending=True, nulls_first=False), OrderField(4)))
    found = order_of(TABLE, zorder_by=["id", "name"])
    assert found == Order((OrderField(1), OrderField(2)), interleaved=True)


def test_the_tables_own_order_by_another_name_is_still_its_own() -> None:
    table = replace(TABLE, order=(OrderField(2), OrderField(1)))
    assert order_of(table, [parse_sort("name"), parse_sort("id")]) == Order(table.order, order_id=7)


@pytest.mark.parametrize("column", ["nme", "at", "tags", "at.y", "tags.element"])
@pytest.mark.parametrize("option", ["order_by", "zorder_by"])
def test_a_column_that_is_not_there_is_told_with_its_table(column: str, option: str) -> None:
    wanted: dict[str, Any] = {option: (parse_sort(column),) if option == "order_by" else (column, "id")}
    with pytest.raises(ConfigError) as raised:
        plan_compaction(TABLE, live(*map(file, "abc")), replace(SETTINGS, **wanted))
    assert "shop.orders" in raised.value.message
    assert repr(column) in raised.value.message
    assert option in raised.value.hint
    assert "id, name" in raised.value.hint


def test_an_order_is_by_something_and_one_at_a_time() -> None:
    with pytest.raises(ValueError, match="one order"):
        CompactSettings(order_by=(parse_sort("a"),), zorder_by=("a", "b"))
    with pytest.raises(ValueError, match="by something"):
        Order(())
    with pytest.raises(ValueError, match="interleaved"):
        Order((OrderField(1),), interleaved=True, order_id=3)


def test_a_path_tells_its_order_and_over_how_many_files_it_was_sorted() -> None:
    orders = [
        OWN,
        replace(OWN, order_id=None),
        Order(OWN.fields[:1]),
        Order(OWN.fields[::-1]),
        Order(OWN.fields, interleaved=True),
    ]
    marks = [order.mark for order in orders]
    assert marks[0] == marks[1], "the id is the table's name for it"
    assert len(set(marks)) == len(marks) - 1
    one, *_ = run("1", 4)
    told = run_of(one.path)
    assert told is not None
    assert (told.mark, told.files) == (OWN.mark, 4)
    assert one.path.startswith(told.folder + "/")
    assert run_of(f"{TABLE.data_location}/frazil_maintenance/compact=1/data-1.parquet") is None
    assert run_of(f"{TABLE.data_location}/frazil_job=a/order={OWN.mark}/run=0-4/x.parquet") is None


# which files


def test_small_files_are_sorted_over_more_than_one_file() -> None:
    files = [file(f"f{n:02}", 30 * MB, sequence=n) for n in range(20)]
    (group,) = planned(*files).groups
    assert len(group.files) == 20
    assert group.outputs == 6
    assert [one.outputs for one in planned(*files, table=UNSORTED).groups] == [1] * 6


def test_what_is_sorted_together_is_bounded() -> None:
    files = [file(f"f{n:03}", 50 * MB, sequence=n // 2) for n in range(60)]
    groups = planned(*files, settings=replace(SETTINGS, sorted_files=4)).groups
    assert [group.outputs for group in groups] == [4] * 7 + [2]
    assert all(group.size <= 400 * MB for group in groups)


def test_a_full_file_that_does_not_lie_in_order_is_sorted_once() -> None:
    (group,) = planned(file("a", 100 * MB)).groups
    assert "order" in group.reason
    assert plan_compaction(TABLE, live(file("a", 100 * MB, sort_order_id=7)), SETTINGS) is None
    assert plan_compaction(TABLE, live(*run("1", 1)), SETTINGS) is None
    assert plan_compaction(UNSORTED, live(file("a", 100 * MB)), SETTINGS) is None


def test_files_in_another_order_are_sorted_anew() -> None:
    older = Order((OrderField(1),))
    (group,) = planned(*run("1", 3, order=older)).groups
    assert len(group.files) == 3
    assert planned(file("a", 100 * MB, sort_order_id=6)).groups
    zorder = replace(SETTINGS, zorder_by=("id", "name"))
    assert planned(*run("1", 3), settings=zorder).groups
    mine = order_of(TABLE, zorder_by=["id", "name"])
    assert mine is not None
    assert plan_compaction(TABLE, live(*run("1", 9, order=mine)), zorder) is None


def test_small_ranges_of_a_run_are_left_alone_and_small_files_beside_them_are_not() -> None:
    ranges = run("1", 8, 60 * MB)
    assert plan_compaction(TABLE, live(*ranges), SETTINGS) is None
    (group,) = planned(*ranges, *map(file, "abc")).groups
    assert paths(group) == ["a", "b", "c"]
    larger = replace(SETTINGS, target_file_bytes=1000 * MB)
    assert len(planned(*ranges, settings=larger).groups[0].files) == 8, "how large files are to become has changed"


def test_a_range_with_many_deleted_rows_is_rewritten_by_itself() -> None:
    *rest, heavy = run("1", 8, deleted=10)
    (group,) = planned(*rest, replace(heavy, deletes=(replace(heavy.deletes[0], records=400),))).groups
    assert paths(group) == [heavy.path]


def test_full_files_that_each_span_all_keys_become_a_run_once_they_fill_one() -> None:
    lone = [one for n in range(12) for one in run(str(n), 1, sequence=n)]
    assert plan_compaction(TABLE, live(*lone[:7]), SETTINGS) is None
    (group,) = planned(*lone[:9]).groups
    assert group.outputs == 9
    assert "reach into each other" in group.reason
    assert [len(one.files) for one in planned(*lone).groups] == [10], "the others wait for more of their kind"
    eager = replace(SETTINGS, tiered=False, min_input_files=2)
    assert plan_compaction(TABLE, live(*lone[:7]), eager) is None, "whoever is in a hurry"


def test_a_run_stays_together() -> None:
    short = [one for n in range(4) for one in run(str(n), 3, sequence=n)]
    (group,) = planned(*short).groups
    assert len(group.files) == 9
    assert {one.sequence_number for one in group.files} == {0, 1, 2}


@settings(max_examples=25)
@given(st.sampled_from([0.1, 0.4, 0.8, 1.0, 1.2]), st.sampled_from([True, False]), st.integers(1, 8))
def test_a_row_of_a_stream_is_rewritten_a_logarithmic_number_of_times(
    shrink: float, tiered: bool, sorted_files: int
) -> None:
    """However well what is sorted compresses: no file is taken again and again."""
    wanted = replace(SETTINGS, target_file_bytes=20 * MB, tiered=tiered, sorted_files=sorted_files)
    files: list[LiveFile] = []
    written, epochs = 0, 300
    for number in range(1, epochs + 1):
        files.append(file(f"f{number:04}", sequence=number))
        table = replace(TABLE, sequence_number=number)
        for round_ in range(20):
            plan = plan_compaction(table, live(*files), wanted)
            if plan is None:
                break
            for place, group in enumerate(plan.groups):
                written += group.size
                files = [one for one in files if one.path not in paths(group)]
                # What was sorted before does not get smaller by it.
                size = int(sum(f.size * (1 if run_of(f.path) else shrink) for f in group.files) / group.outputs)
                folder = run_folder(f"w/frazil_maintenance/compact={number}.{round_}", OWN, place, group.outputs)
                files += [file(f"{folder}/{n}", size, sequence=number) for n in range(group.outputs)]
        else:
            raise AssertionError("the same files are sorted for ever")
    assert written <= epochs * MB * (9 if tiered else 40)


def test_the_folder_of_a_run_lies_in_that_of_its_rewrite() -> None:
    plan = planned(*map(file, "abc"))
    rewrite = plan.rewrite(plan.groups, UUID(int=1))
    assert rewrite.folder == maintenance_folder(TABLE.data_location, "compact", rewrite.number)
