"""How much is told of a column: what the table's properties say, as iceberg-java reads them."""

from __future__ import annotations

import pytest

from frazil.model.metrics_modes import COUNTS, FULL, NONE, TRUNCATE_16, MetricsMode, MetricsModes, parse_mode
from frazil.model.schema import INT, LONG, STRING, Field, ListOf, Schema, StructOf

P = "write.metadata.metrics."
NESTED = Schema(
    0,
    (
        Field(1, "id", LONG, True),
        Field(2, "place", StructOf((Field(3, "city", STRING), Field(4, "zip", STRING)))),
        Field(5, "tags", ListOf(STRING, 6)),
        Field(7, "last", INT),
    ),
    (1,),
)


def wide(columns: int, identifiers: tuple[int, ...] = ()) -> Schema:
    return Schema(0, tuple(Field(n, f"c{n}", LONG) for n in range(1, columns + 1)), identifiers)


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("none", NONE),
        ("Counts", COUNTS),
        ("FULL", FULL),
        ("truncate(8)", MetricsMode(length=8)),
        ("truncate(0)", None),
        ("truncate", None),
        ("all", None),
    ],
)
def test_modes_are_read_as_iceberg_reads_them(text: str, mode: MetricsMode | None) -> None:
    assert parse_mode(text) == mode


def test_a_table_of_few_columns_tells_of_all_of_them() -> None:
    assert MetricsModes.told({}, wide(100)) == MetricsModes()


def test_a_wide_table_tells_of_its_first_hundred_columns_and_of_its_key() -> None:
    modes = MetricsModes.told({}, wide(1000, (1000,)))
    assert [n for n in range(1, 1001) if modes.of(n) != NONE] == [*range(1, 101), 1000]
    assert modes.of(1000) == TRUNCATE_16


def test_the_first_columns_are_those_of_the_outermost_level() -> None:
    modes = MetricsModes.told({P + "max-inferred-column-defaults": "3"}, NESTED)
    assert [n for n in (1, 3, 4, 6, 7) if modes.of(n).counted] == [1, 3, 7]


@pytest.mark.parametrize("most", ["-1", "many"])
def test_a_limit_that_cannot_be_is_none(most: str) -> None:
    assert MetricsModes.told({P + "max-inferred-column-defaults": most}, wide(100)) == MetricsModes()


def test_a_stated_default_holds_for_every_column_however_many() -> None:
    assert MetricsModes.told({P + "default": "counts"}, wide(1000)).of(1000) == COUNTS
    assert MetricsModes.told({P + "default": "rubbish"}, wide(1000)).of(1000) == TRUNCATE_16


def test_a_column_may_be_told_by_itself_nested_ones_too() -> None:
    told = {P + "default": "none", P + "column.id": "full", P + "column.place.city": "counts", P + "column.no": "full"}
    modes = MetricsModes.told(told, NESTED)
    assert [modes.of(n) for n in (1, 3, 4, 6)] == [FULL, COUNTS, NONE, NONE]
    assert MetricsModes.told({P + "column.tags.element": "none"}, NESTED).of(6) == NONE
    assert MetricsModes.told({P + "default": "counts", P + "column.id": "rubbish"}, NESTED).of(1) == COUNTS


def test_columns_that_rows_are_sorted_by_have_bounds() -> None:
    assert MetricsModes.told({P + "default": "counts"}, NESTED, [7]).of(7) == TRUNCATE_16
    assert MetricsModes.told({P + "default": "full"}, NESTED, [7]).of(7) == FULL
    assert MetricsModes.told({P + "default": "counts", P + "column.last": "none"}, NESTED, [7]).of(7) == NONE
