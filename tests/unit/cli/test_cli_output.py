"""Tables for people, on terminals of any width."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from rich.console import Console

from frazil.cli.output import fitting_table, position_text

HEADINGS = ("table", "state", "lag", "resolved", "snapshot")
ROWS = [
    ("analytics.orders", "STEADY_STATE", "1.2s", "2026-11-17 12:35:05.353 Z", 4611686018427387904),
    ("analytics.customers", "STOPPED", "20m 0s", "2026-11-17 12:35:05.353 Z", None),
]


def shown(width: int, *, folds: tuple[str, ...] = ()) -> tuple[list[str], tuple[str, ...]]:
    table, left_out = fitting_table(HEADINGS, ROWS, width, folds=folds)
    console = Console(width=width, force_terminal=False)
    with console.capture() as captured:
        console.print(table)
    return [line.rstrip() for line in captured.get().splitlines() if line.strip()], left_out


@pytest.mark.parametrize("width", [80, 100, 200])
def test_a_row_is_one_line_whatever_the_width(width: int) -> None:
    lines, left_out = shown(width)
    assert len(lines) == 2 + len(ROWS)
    assert all(len(line) <= width for line in lines)
    assert "2026-11-17 12:35:05.353 Z" in lines[-1]
    assert left_out == (("snapshot",) if width == 80 else ())


def test_the_first_two_columns_stay_on_any_terminal() -> None:
    lines, left_out = shown(30)
    assert left_out == ("lag", "resolved", "snapshot")
    assert "STOPPED" in " ".join(lines)


def test_a_long_name_folds_so_that_80_columns_show_state_lag_and_time() -> None:
    name, time = "analytics.customers__changelog", "2026-11-17 12:35:05.353 Z"
    row = (name, "STEADY_STATE", "12h 59m", time, "1,000,000")
    table, left_out = fitting_table(("table", "state", "lag", "resolved", "rows"), [row], 80, folds=("table",))
    assert left_out == ("rows",)
    console = Console(width=80, force_terminal=False)
    with console.capture() as captured:
        console.print(table)
    _, _, first, second = [line for line in captured.get().splitlines() if line.strip()]
    assert all(text in first for text in row[1:4])
    assert first.split()[0] + second.strip() == name


def test_long_texts_fold_where_that_is_wanted() -> None:
    table, left_out = fitting_table(("a", "b", "c"), [("x", "y", "word " * 40)], 60, folds=("c",))
    assert left_out == ()
    console = Console(width=60, force_terminal=False)
    with console.capture() as captured:
        console.print(table)
    assert captured.get().count("word") == 40


@pytest.mark.parametrize(
    ("position", "text"),
    [
        ("1795178105353123456.0000000001", "2026-11-20 12:35:05.353 Z"),
        ("1700000000-3", "2023-11-14 22:13:20.000 Z"),
        ("batch:7", "batch:7"),
        (None, None),
    ],
)
def test_people_see_a_position_as_the_time_it_was(position: str | None, text: str | None) -> None:
    assert position_text(position) == text


def test_what_the_ledger_says_of_a_positions_time_counts_more_than_the_position() -> None:
    moment = datetime(2026, 11, 18, 5, 29, 20, 693_046, UTC)
    assert position_text("batch:7", moment) == position_text("1700000000-3", moment) == "2026-11-18 05:29:20.693 Z"
