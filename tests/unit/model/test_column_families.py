"""Parts of rows: which columns come together, and under which number they travel."""

from __future__ import annotations

import pytest

from frazil.model.schema import (
    LONG,
    PRIMARY,
    STRING,
    UNNAMED,
    Column,
    ColumnFamily,
    Remembered,
    SourceSchema,
    columns_property,
    families,
    part_number,
    parts_of,
    primary_family,
    remembered,
)


def source_schema(**of: str | None) -> SourceSchema:
    columns = tuple(
        Column(name, LONG if name == "id" else STRING, "", "", family=family) for name, family in of.items()
    )
    return SourceSchema(columns, ("id",), "")


def test_a_table_that_comes_whole_has_no_parts() -> None:
    assert parts_of(source_schema(id=None, name=None)) == ()
    assert parts_of(source_schema(id=UNNAMED, name=UNNAMED)) == ()


def test_the_family_of_the_key_is_the_primary_part() -> None:
    known = source_schema(id="f2", name="f2", note="f1", lost=None)
    assert primary_family(known) == "f2"
    assert parts_of(known) == (ColumnFamily(PRIMARY, ("id", "name")), ColumnFamily(part_number("f1", "f2"), ("note",)))


def test_what_came_before_families_were_told_is_of_the_primary_part() -> None:
    known = source_schema(id="primary", name=UNNAMED, note="f1")
    assert parts_of(known)[0] == ColumnFamily(PRIMARY, ("name", "id"))
    assert part_number(UNNAMED, "primary") == part_number("primary", "primary") == PRIMARY


def test_a_table_without_a_known_primary_family_has_an_empty_one() -> None:
    assert parts_of(source_schema(id=None, note="f1"))[0] == ColumnFamily(PRIMARY, ())
    assert families(source_schema(id=None, note="f1")) == ("f1",)


def test_a_number_depends_on_nothing_but_the_name() -> None:
    """Changes in quarantine keep theirs when a family is added."""
    assert part_number("f1", "f0") == part_number("f1", None) == 105_232_182
    assert 0 < part_number("é" * 300, None) < 2**31


@pytest.mark.parametrize("family", ["f2", UNNAMED, None])
def test_a_table_remembers_the_family_of_a_column(family: str | None) -> None:
    known = {3: Remembered("104.2", ("note",), family=family), 4: Remembered()}
    assert remembered({"frazil.columns": columns_property(known)}) == known
