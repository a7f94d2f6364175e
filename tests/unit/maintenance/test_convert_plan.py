"""Which equality deletes become positions, and what may be published after others were there: never a row more, never
a row less."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from conversion_world import NAME, InstantClock, World, facts, random_step
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frazil.errors import CatalogRefused, OutcomeUnknown, Transient
from frazil.maintenance.commit_rewrite import PATIENT
from frazil.maintenance.convert.planner import ConvertPlan, ConvertSettings, PlanAgain, plan_conversion, rebase
from frazil.maintenance.convert.runner import Convert, Converted
from frazil.model.commit import CommitAnswer, Refused, ReplaceFiles
from frazil.model.files import FileKind, LiveDelete, LiveFiles
from frazil.model.ids import TableName
from frazil.model.ledger import TableHead
from frazil.model.schema import DOUBLE, LONG, VARIANT, Field, StructOf

VERSIONS = (2, 3)


def look(world: World, given: ConvertSettings | None = None) -> ConvertPlan | None:
    head = world.head(NAME)
    return Convert(world, world, InstantClock()).plan(NAME, head, world.live(NAME, head), given)


def plan(world: World, given: ConvertSettings | None = None) -> ConvertPlan:
    made = look(world, given)
    assert made is not None
    return made


def perform(world: World, made: ConvertPlan | None = None) -> Converted:
    return Convert(world, world, InstantClock()).perform(made or plan(world))


def once(world: World, *steps: object) -> None:
    """Others act at the next looks, one step at each."""
    left = list(steps)

    def meddle() -> None:
        if left:
            step = left.pop(0)
            assert callable(step)
            world.meddle = lambda: None
            step()
            world.meddle = meddle

    world.meddle = meddle


# what is planned


@pytest.mark.parametrize("version", VERSIONS)
def test_every_row_that_an_equality_delete_deletes_is_deleted_at_its_position(version: int) -> None:
    world = World(version)
    first = world.append([(1, 1), (2, 1), (None, 2)])
    world.delete_keys((1,), [(1,), (None,)])
    second = world.append([(1, 9)])
    done = perform(world)
    assert world.equality == set()
    assert [row[:2] for row in world.seen()] == [(2, 1), (1, 9)]
    assert (done.rows, done.delete_files, done.dangling_files) == (2, 1, 0)
    assert {d.data_file for d in world.current.deletes.values()} == {first}
    assert second in world.current.data


def test_a_delete_of_a_partition_does_not_reach_another_one() -> None:
    world = World()
    world.append([(1, 1)], part=1)
    world.append([(1, 2)], part=2)
    world.append([(1, 3)])
    world.delete_keys((1,), [(1,)], part=2)
    assert [file.partition for file in plan(world).files] == [(2,)]
    perform(world)
    assert [row[1] for row in world.seen()] == [1, 3]


def test_a_delete_without_a_partition_reaches_all() -> None:
    world = World()
    world.append([(1, 1)], part=1)
    world.append([(1, 2)])
    world.delete_keys((1,), [(1,)])
    perform(world)
    assert world.seen() == []


def test_deletes_by_different_columns_do_not_meet() -> None:
    """The same values in other columns are other keys."""
    world = World()
    world.append([(1, 2), (2, 1)])
    world.delete_keys((1,), [(2,)])
    world.delete_keys((2,), [(5,)])
    world.delete_keys((2, 1), [(1, 1)])
    made = plan(world)
    assert [[c.field.id for c in keys] for keys in made.search(InstantClock().new_uuid()).key_sets] == [
        [1],
        [1, 2],
        [2],
    ]
    perform(world)
    assert [row[:2] for row in world.seen()] == [(1, 2)]


def test_rows_that_are_deleted_already_are_counted_once() -> None:
    """H23: the vector takes the place of the one there was."""
    world = World()
    path = world.append([(1, 1), (1, 2), (2, 3)])
    world.delete_rows(path, [0])
    world.delete_keys((1,), [(1,)])
    assert perform(world).rows == 1
    (vector,) = world.current.deletes.values()
    assert world.positions[vector.path, vector.offset] == {path: {0, 1}}


def test_position_deletes_from_before_version_3_go_into_the_first_vector() -> None:
    """H24"""
    world = World(2)
    path = world.append([(1, 1), (2, 2), (3, 3)])
    world.delete_rows(path, [0])
    world.upgrade()
    world.delete_keys((1,), [(2,)])
    perform(world)
    (vector,) = world.current.deletes.values()
    assert vector.is_vector
    assert vector.records == 2


def test_deletes_that_reach_no_file_are_dropped() -> None:
    """H17: by key, and by position after their data file is gone."""
    world = World()
    world.delete_keys((1,), [(1,)])
    path = world.append([(1, 1)])
    world.delete_rows(path, [0])
    world.rewrite(world.current, [path])
    world.delete_keys((1,), [(7,)], part=4)
    assert plan(world).counts == {
        "delete_files": 0, "delete_keys": 0, "dangling_files": 2, "data_files": 0, "left": 0, "waiting": 0,
    }  # fmt: skip
    assert perform(world).dangling_files == 2
    assert world.searches == 1
    assert not world.current.deletes


def test_nothing_is_planned_where_nothing_is_to_be_done() -> None:
    world = World()
    table = world.converted_table(NAME, world.head(NAME))
    assert plan_conversion(table, LiveFiles(snapshot_id=None)) is None
    path = world.append([(1, 1)])
    world.delete_rows(path, [0])
    assert plan_conversion(table, world.live(NAME, world.head(NAME))) is None


def test_few_deletes_wait_for_more() -> None:
    world = World()
    world.append([(1, 1)])
    world.delete_keys((1,), [(1,)])
    table, live = world.converted_table(NAME, world.head(NAME)), world.live(NAME, world.head(NAME))
    assert plan_conversion(table, live, ConvertSettings(min_delete_files=2)) is None
    assert plan_conversion(table, live, ConvertSettings(min_delete_files=1)) is not None


def test_a_large_heap_of_deletes_is_converted_from_the_oldest_on() -> None:
    world = World()
    world.append([(n, n) for n in range(6)])
    paths = [world.delete_keys((1,), [(n,)]) for n in range(5)]
    made = plan(world, ConvertSettings(max_keys=2))
    assert [delete.path for delete in made.converted] == paths[:2]
    assert made.waiting == 3
    assert perform(world, made).waiting == 3, "whoever is to finish must go on"
    assert world.equality == set(paths[2:])
    assert "3 more wait" in made.reason
    huge = plan(world, ConvertSettings(max_keys=1))
    assert len(huge.converted) == 1, "one at least"


def odd_delete(world: World, **facts_: object) -> LiveFiles:
    live = world.live(NAME, world.head(NAME))

    def odd(delete: LiveDelete) -> LiveDelete:
        return replace(delete, **facts_) if delete.kind is FileKind.EQUALITY_DELETE else delete  # type: ignore[arg-type]

    files = tuple(replace(file, deletes=tuple(map(odd, file.deletes))) for file in live.files)
    return replace(live, files=files, deletes=tuple(map(odd, live.deletes)))


def test_what_cannot_be_compared_stays_and_says_why() -> None:
    world = World()
    world.append([(1, 1)])
    world.delete_keys((1,), [(1,)])
    world.delete_keys((5,), [(1,)], part=3)
    table = world.converted_table(NAME, world.head(NAME))
    nested = StructOf((Field(9, "x", LONG),))
    columns = facts(a=LONG, b=nested, c=VARIANT, d=DOUBLE)
    for wrong, why in (
        ({"equality_ids": (9,)}, "field 9"),
        ({"equality_ids": (2,)}, "'b', which is a struct"),
        ({"equality_ids": (1, 3)}, "'c', which is a variant"),
        ({"format": "avro"}, "avro"),
        ({"equality_ids": ()}, "names no columns"),
    ):
        made = plan_conversion(replace(table, columns=columns), odd_delete(world, **wrong))
        assert made is not None
        assert not made.converted
        assert len(made.dangling) == 1
        assert why in made.left[0].why
        assert why in made.reason
    made = plan_conversion(replace(table, columns=columns), odd_delete(world, equality_ids=(4,)))
    assert made is not None
    assert made.converted, "Iceberg lets writers delete by floating point numbers"


def test_a_delete_whose_whole_reach_is_not_covered_stays() -> None:
    """One file that cannot be read here keeps those deletes that reach it, and no others."""
    world = World()
    world.append([(1, 1)], part=1)
    other = world.append([(1, 2)], part=2)
    mine = world.delete_keys((1,), [(1,)], part=1)
    all_over = world.delete_keys((2,), [(1,)])
    live = world.live(NAME, world.head(NAME))
    files = tuple(replace(file, format="orc") if file.path == other else file for file in live.files)
    made = plan_conversion(world.converted_table(NAME, world.head(NAME)), replace(live, files=files))
    assert made is not None
    assert [delete.path for delete in made.converted] == [mine]
    assert [left.delete.path for left in made.left] == [all_over]
    assert other in made.left[0].why


# what is published after others were there


def test_a_delete_that_came_after_the_plan_stays() -> None:
    """H15, H47: of rows that an older delete of the plan reaches too."""
    world = World()
    world.append([(1, 1), (2, 2), (3, 3)])
    world.delete_keys((1,), [(1,)])
    made = plan(world)
    newer = world.delete_keys((1,), [(3,)])
    once(world, lambda: None, lambda: world.append([(1, 4)]))
    perform(world, made)
    assert world.equality == {newer}
    assert [row[1] for row in world.seen()] == [2, 4]
    assert world.searches == 1


def test_a_data_file_that_came_after_the_plan_needs_nothing() -> None:
    world = World()
    world.append([(1, 1)])
    world.delete_keys((1,), [(1,)])
    made = plan(world)
    world.append([(1, 2)])
    perform(world, made)
    assert world.searches == 1
    assert [row[1] for row in world.seen()] == [2]


@pytest.mark.parametrize("version", [2, 3])
def test_a_data_file_that_came_after_the_plan_is_not_reached_by_what_was_found(version: int) -> None:
    """A compaction would take its rows for deleted, and the deletes for needed when all other files are gone."""
    world = World(version)
    old = [world.append([(1, 1)]), world.append([(2, 2), (3, 3)])]
    world.delete_keys((1,), [(1,), (2,)])
    made = plan(world)
    newer = world.append([(1, 2)])
    perform(world, made)
    reached = {file.path for file in world.live(NAME, world.head(NAME)).files if file.deletes}
    assert reached == set(old)
    assert newer not in reached


def test_a_vector_that_came_after_the_plan_is_merged() -> None:
    """H15: ours would bring its rows back, it would bring ours back."""
    world = World()
    path = world.append([(1, 1), (2, 2), (3, 3)])
    world.delete_rows(path, [2])
    world.delete_keys((1,), [(1,)])
    made = plan(world)
    once(world, lambda: None, lambda: world.delete_rows(path, [1]))
    perform(world, made)
    assert world.searches == 1
    assert world.seen() == []
    assert world.equality == set()


def test_a_vector_of_a_file_that_had_none_is_merged_too() -> None:
    world = World()
    path = world.append([(1, 1), (2, 2)])
    world.delete_keys((1,), [(1,)])
    made = plan(world)
    world.delete_rows(path, [1])
    perform(world, made)
    assert world.seen() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_rewrite_that_applied_the_deletes_takes_its_files_out(version: int) -> None:
    world = World(version)
    first, second = world.append([(1, 1), (2, 2)], part=1), world.append([(1, 3), (2, 4)], part=2)
    world.delete_keys((1,), [(1,)])
    made = plan(world)
    assert world.rewrite(world.current, [first])
    assert perform(world, made).rows == 1
    assert world.searches == 1
    assert {d.data_file for d in world.current.deletes.values()} == {second}
    assert [row[1] for row in world.seen()] == [2, 4]


def test_a_rewrite_from_before_the_delete_is_searched_anew() -> None:
    """H15: its file is as old as what it read, so the delete reaches it."""
    world = World()
    path = world.append([(1, 1), (2, 2)])
    start = world.current
    world.delete_keys((1,), [(1,)])
    made = plan(world)
    assert world.rewrite(start, [path])
    assert [row[1] for row in world.seen()] == [2]
    perform(world, made)
    assert world.searches == 2
    assert [row[1] for row in world.seen()] == [2]
    assert world.equality == set()


def test_after_a_rollback_nothing_that_was_found_is_used() -> None:
    world = World()
    world.append([(1, 1), (2, 2)])
    before = world.current.number
    world.delete_keys((1,), [(1,)])
    made = plan(world)
    world.roll_back(before)
    assert perform(world, made).snapshot_id is None
    assert len(world.seen()) == 2


def test_a_delete_that_somebody_else_converted_is_not_converted_again() -> None:
    world = World()
    world.append([(1, 1), (2, 2)])
    world.delete_keys((1,), [(1,)])
    made = plan(world)
    world.convert()
    assert perform(world, made).snapshot_id is None
    assert len(world.conversions) == 1


def test_a_table_that_has_become_version_3_gets_vectors() -> None:
    world = World(2)
    world.append([(1, 1)])
    world.delete_keys((1,), [(1,)])
    made = plan(world)
    world.upgrade()
    perform(world, made)
    assert all(delete.is_vector for delete in world.current.deletes.values())
    assert world.searches == 2


def test_a_delete_that_reaches_a_file_again_is_not_dropped() -> None:
    """H17: what is dropped reaches nothing at the head that is published on, whatever the plan saw."""
    world = World()
    world.append([(1, 1)])
    world.delete_keys((1,), [(1,)])
    now = world.live(NAME, world.head(NAME))
    made = plan_conversion(world.converted_table(NAME, world.head(NAME)), replace(now, files=()))
    assert made is not None
    assert [delete.path for delete in made.dangling] == sorted(world.equality)
    assert isinstance(rebase(made, (), now, world.version), PlanAgain)


def test_what_became_dangling_after_the_plan_is_dropped_with_the_rest() -> None:
    world = World()
    path = world.append([(1, 1)], part=1)
    world.append([(1, 2)], part=2)
    world.delete_keys((1,), [(1,)], part=2)
    made = plan(world)
    world.delete_keys((2,), [(1,)], part=1)
    assert world.rewrite(world.current, [path])
    assert perform(world, made).dangling_files == 1
    assert world.equality == set()


# answers


@pytest.mark.parametrize("answer", ["lands without a word", "is lost"])
def test_a_commit_without_an_answer_is_looked_for_before_it_is_sent_again(answer: str) -> None:
    world = World()
    world.append([(1, 1)])
    world.delete_keys((1,), [(1,)])
    answers = iter([answer])
    world.answers = lambda: next(answers, "lands")
    done = perform(world)
    assert len(world.conversions) == 1
    assert done.snapshot_id == world.current.number
    assert (done.rows, world.searches) == (1, 1)


def test_a_commit_that_is_never_confirmed_is_not_called_done() -> None:
    world = World()
    world.append([(1, 1)])
    world.delete_keys((1,), [(1,)])
    world.answers = lambda: "is lost"
    with pytest.raises(OutcomeUnknown, match=f"{PATIENT.attempts} attempts"):
        perform(world)
    assert not world.conversions


def test_a_conversion_that_is_always_overtaken_gives_up_for_now() -> None:
    world = World()
    world.append([(1, 1)])
    world.delete_keys((1,), [(1,)])
    made = plan(world)

    def meddle() -> None:
        world.append([(5, 5)])

    world.meddle = meddle
    with pytest.raises(Transient, match=r"shop\.orders"):
        perform(world, made)
    assert world.searches == 1, "appends do not make anybody search again"


def test_a_refusal_is_told() -> None:
    class Refusing(World):
        def repair(self, table: TableName, head: TableHead, plan: ReplaceFiles) -> CommitAnswer:
            return Refused("read-only", "ask the owner")

    world = Refusing()
    world.append([(1, 1)])
    world.delete_keys((1,), [(1,)])
    with pytest.raises(CatalogRefused, match="read-only") as caught:
        perform(world)
    assert caught.value.hint == "ask the owner"


def test_settings_refuse_nonsense() -> None:
    with pytest.raises(ValueError, match="begin at 1"):
        ConvertSettings(max_keys=0)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_compaction_that_began_before_the_deletes_came_does_not_bring_their_rows_back(version: int) -> None:
    """H15: it would reckon with the equality delete, which is gone; of what stands for it, it must hear."""
    world = World(version)
    path = world.append([(1, 1), (2, 2)])
    start = world.current
    world.delete_keys((1,), [(1,)])
    made = look(world)
    assert made is not None
    perform(world, made)
    assert not world.rewrite(start, [path])
    assert [row[0] for row in world.seen()] == [2]
    assert world.rewrite(world.current, [path])


# everything at once


@pytest.mark.slow
@settings(max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
@given(random=st.randoms(use_true_random=False), version=st.sampled_from(VERSIONS))
def test_no_sequence_of_commits_makes_a_conversion_change_a_row(random: Random, version: int) -> None:
    """H15, H17, H23, H24, H47: others append, delete, rewrite, convert, upgrade and roll back before, during and
    after. What a conversion may not do is asserted where its commit lands; here that it comes to its end."""
    world = World(version)
    for _ in range(random.randint(2, 10)):
        random_step(world, random)
    made = look(world)
    if made is None:
        return
    chance, budget = random.random(), [random.randint(0, 6)]

    def meddle() -> None:
        if budget[0] and random.random() < chance:
            budget[0] -= 1
            world.meddle = lambda: None
            if random.random() < 0.15:
                world.roll_back(random.randint(0, world.current.number))
            else:
                random_step(world, random)
            world.meddle = meddle

    world.meddle = meddle
    world.answers = lambda: random.choice(("lands", "lands", "lands without a word", "is lost"))
    try:
        perform(world, made)
    except OutcomeUnknown:
        assert not any(after.summary for _, after in world.conversions)
        return
    world.meddle, world.answers = lambda: None, lambda: "lands"
    rows = world.seen()
    while (rest := look(world)) is not None:
        perform(world, rest)
    assert world.seen() == rows
    assert world.equality == set(), "nothing is left to convert"
