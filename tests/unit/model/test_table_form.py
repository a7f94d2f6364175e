"""Files fit the table they are committed on, or not: by field id, whatever the columns are called."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from frazil.model.table import TableForm

ALL_OURS = (1, 2, 3, 4, 5, 6)
PLAIN: list[dict[str, Any]] = [
    {"id": 1, "name": "id", "type": "long", "required": True},
    {"id": 2, "name": "amount", "type": "decimal(8, 2)", "required": False},
    {"id": 3, "name": "qty", "type": "int", "required": False},
    {
        "id": 4,
        "name": "place",
        "required": False,
        "type": {"type": "struct", "fields": [{"id": 7, "name": "street", "type": "string", "required": False}]},
    },
]


def form(
    fields: Sequence[Mapping[str, Any]] = PLAIN,
    remembers: Mapping[int, Mapping[str, Any]] | None = None,
    identifiers: Sequence[int] = (1,),
    specs: Sequence[Mapping[str, Any]] = ({"spec-id": 0, "fields": []},),
) -> TableForm:
    memory = {key: {} for key in ALL_OURS} if remembers is None else remembers
    return TableForm.of(
        {
            "current-schema-id": 1,
            "schemas": [
                {"schema-id": 0, "fields": []},
                {"schema-id": 1, "fields": list(fields), "identifier-field-ids": list(identifiers)},
            ],
            "partition-specs": list(specs),
            "properties": {"frazil.columns": json.dumps({str(key): value for key, value in memory.items()})},
        }
    )


def changed(number: int, **facts: Any) -> list[dict[str, Any]]:
    return [{**field, **facts} if field["id"] == number else field for field in PLAIN]


def without(number: int) -> list[dict[str, Any]]:
    return [field for field in PLAIN if field["id"] != number]


def misfit(now: TableForm, written: TableForm | None = None) -> str | None:
    return (written or form()).misfit(now, {0})


def test_a_column_that_somebody_dropped_is_a_misfit() -> None:
    assert misfit(form(without(2))) == "column amount was dropped"


def test_a_column_that_was_dropped_and_added_again_is_a_misfit() -> None:
    again = [*without(2), {"id": 9, "name": "amount", "type": "decimal(8, 2)", "required": False}]
    assert misfit(form(again)) == "column amount was dropped and added again as another one"


def test_a_nested_field_that_somebody_dropped_is_a_misfit() -> None:
    assert misfit(form(changed(4, type={"type": "struct", "fields": []}))) == "column place.street was dropped"


def test_columns_that_we_dropped_ourselves_are_none() -> None:
    """The commit that drops one forgets it: epochs that were written before may still be on their way."""
    assert misfit(form(without(2), remembers={1: {}, 3: {}, 4: {}})) is None


def test_the_row_before_follows_the_columns_that_we_drop() -> None:
    def before(*fields: dict[str, Any]) -> dict[str, Any]:
        return {"id": 10, "name": "_before", "required": False, "type": {"type": "struct", "fields": list(fields)}}

    inner = {"id": 11, "name": "amount", "type": "string", "required": False}
    written = form([*PLAIN, before(inner)])
    assert misfit(form([*without(2), before()], remembers={1: {}, 3: {}, 4: {}}), written) is None
    assert misfit(form([*PLAIN, before()]), written) == "column _before.amount was dropped"


@pytest.mark.parametrize("memory", [{1: {}, 2: {}, 4: {}}, {1: {}, 2: {}, 3: {"retired": True}, 4: {}}])
def test_columns_that_we_do_not_fill_may_come_and_go(memory: Mapping[int, Mapping[str, Any]]) -> None:
    written = form(remembers=memory)
    assert misfit(form(without(3), remembers=memory), written) is None


def test_where_nothing_is_remembered_every_column_counts() -> None:
    assert misfit(form(without(3), remembers={}), form(remembers={})) == "column qty was dropped"


@pytest.mark.parametrize(
    "now",
    [
        changed(2, name="total"),
        changed(2, type="decimal(12, 2)"),
        changed(3, type="long"),
        changed(1, required=False),
        [*reversed(PLAIN)],
        [*PLAIN, {"id": 9, "name": "theirs", "type": "timestamp_ns", "required": False}],
        [*PLAIN, {"id": 9, "name": "theirs", "type": "int", "required": True, "initial-default": 1}],
    ],
)
def test_what_readers_see_through_fits(now: list[dict[str, Any]]) -> None:
    assert misfit(form(now)) is None


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (changed(3, type="string"), "column qty was int and is string now"),
        (changed(2, type="decimal(12, 3)"), "column amount was decimal(8, 2) and is decimal(12, 3) now"),
        (changed(2, type="decimal(6, 2)"), "column amount was decimal(8, 2) and is decimal(6, 2) now"),
        (changed(3, required=True), "column qty must not be NULL any more"),
        (
            [*PLAIN, {"id": 9, "name": "theirs", "type": "int", "required": True}],
            "column theirs was added, and must not be NULL",
        ),
    ],
)
def test_what_readers_cannot_see_through_is_a_misfit(now: list[dict[str, Any]], why: str) -> None:
    assert misfit(form(now)) == why


def test_another_identity_of_rows_is_a_misfit() -> None:
    assert misfit(form(identifiers=[1, 3])) == "its rows are identified by id, qty now"
    assert misfit(form(identifiers=[])) is None


def test_files_need_the_partitioning_that_they_were_written_in() -> None:
    """Another default spec is no harm; one that is gone, or another one of that number, is."""
    by_day = {"spec-id": 1, "fields": [{"source-id": 3, "field-id": 1000, "transform": "bucket[4]", "name": "b"}]}
    written = form(specs=[{"spec-id": 0, "fields": []}, by_day])
    assert written.misfit(form(specs=[{"spec-id": 0, "fields": []}, by_day, {"spec-id": 2, "fields": []}]), {1}) is None
    assert written.misfit(form(), {0}) is None
    gone = "the partitioning that they were written in was removed"
    assert written.misfit(form(), {1}) == gone
    assert written.misfit(form(specs=[{**by_day, "spec-id": 0}, {"spec-id": 1, "fields": []}]), {1}) == gone
