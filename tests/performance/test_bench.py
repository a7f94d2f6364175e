"""The benchmark runs, and reports every row in the agreed form. What it measures decides nothing here.

python -m bench --tiny --> results.json, a page      each in a process of its own, as `make bench` does it
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"
MODES = ("vectors", "equality")
FORM = ["name", "value", "unit", "target", "holds", "load"]
TARGETS = {
    "fixed cost of a small epoch": "<= 0.35",
    "builtin catalog: p50": "<= 100",
    "REST on loopback, local files: p50": "<= 500",
    "1,000 rows: MERGE INTO merge-on-read v3 / Frazil vectors": ">= 5",
    "1,000 rows: MERGE INTO copy-on-write v2 / Frazil vectors": ">= 20",
    "flat: Frazil vectors": "<= 1.2",
    "floor: Frazil vectors": "<= 8",
    "upkeep over 3 epochs of 200, 500 rows: Frazil vectors, read by Spark": "<= 1.3",
    "upkeep over 3 epochs of 200, 500 rows: Frazil vectors, read by PyIceberg": "<= 1.3",
    "upkeep over 3 epochs of 200, 500 rows: Frazil equality, read by Spark": "<= 1.3",
    "upkeep over 3 epochs of 200, 500 rows: Frazil equality, read by PyIceberg": "<= 1.3",
    "catch-up of 2,000 changes in 2 epochs: Frazil vectors / PyArrow, time": "<= 2",
    "catch-up of 2,000 changes in 2 epochs: Frazil vectors": ">= 200000",
    "first load of 1,000 rows: Frazil / Spark, time": "<= 1.3",
    "decoded batches of 1,000 rows to a committed snapshot: Frazil vectors": ">= 400000",
    "peak memory of an epoch, Frazil vectors: 10x the epoch / 1x": "<= 1.5",
}
"""What the design asks for, by a part of the row's name that no other row with this target has."""


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))
    return import_module("bench.report")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.servers
def test_the_benchmark_reports_every_row_in_the_agreed_form(tmp_path: Path) -> None:
    results, page = tmp_path / "results.json", tmp_path / "page.md"
    page.write_text(PAGE.read_text())
    command = [sys.executable, "-m", "bench", "--tiny", "--modes", ",".join(MODES), "--work", str(tmp_path)]
    ran = subprocess.run(
        [*command, "--results", str(results), "--page", str(page)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    rows = json.loads(results.read_text())
    for row in rows:
        assert list(row) == FORM
        assert isinstance(row["value"], float) or "refused" in row["name"], row
        assert (row["target"] is None) == (row["holds"] is None), row
    for part, target in TARGETS.items():
        assert [row for row in rows if part in row["name"] and row["target"] == target], part
    refused = [row for row in rows if "refused" in row["name"]]
    assert len(refused) == 2, "PyIceberg's refusal is shown after each number of epochs"
    for mode in MODES:
        for kind in ("fixed cost", "changes into 500 rows", "changes into 1,000 rows", "catch-up", "decoded"):
            assert [row for row in rows if kind in row["name"] and f"Frazil {mode}" in row["name"]], (kind, mode)
    names = [row["name"] for row in rows]
    assert len(set(names)) == len(names)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [], "feeds and tables are removed"
    shown = page.read_text()
    assert all(f"| {name} |" in shown for name in names)


@pytest.mark.more_servers
@pytest.mark.spark
def test_flinks_table_is_measured_too(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    command = [sys.executable, "-m", "bench", "--tiny", "--only", "flink", "--work", str(tmp_path)]
    ran = subprocess.run([*command, "--results", str(results)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert all("Flink" in row["name"] and row["value"] > 0 for row in json.loads(results.read_text()))


def test_a_page_keeps_what_is_written_by_hand(report: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"head\n{report.BEGIN}\nold table\n{report.END}\nfoot\n")
    report.write_page([report.measured("a number", 2.0, "s", at_most=3)], page)
    first = page.read_text()
    report.write_page([report.measured("another", 1234567.0, "rows/s")], page)
    second = page.read_text()
    assert first.startswith("head\n")
    assert first.endswith("\nfoot\n")
    assert "old table" not in first
    assert "| a number | 2.000 | s | <= 3 | yes |" in first
    assert "a number" not in second
    assert "| another | 1,234,567 | rows/s |  |  |" in second


def test_a_page_without_a_place_for_the_table_is_refused(report: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("all by hand")
    with pytest.raises(ValueError, match="no place for the table"):
        report.write_page([], page)
    assert page.read_text() == "all by hand"


def test_rows_of_some_sections_replace_the_old_ones_of_the_same_name(report: Any) -> None:
    old = [report.measured("a", 1.0, "s"), report.measured("b", 1.0, "s")]
    new = [report.measured("c", 2.0, "s"), report.measured("b", 2.0, "s")]
    assert [(row.name, row.value) for row in report.merged(old, new)] == [("a", 1.0), ("b", 2.0), ("c", 2.0)]


def test_a_target_holds_by_the_number_that_is_shown(report: Any) -> None:
    assert report.measured("a", 1.20001, "x", at_most=1.2).holds is True
    assert report.measured("a", 1.21, "x", at_most=1.2).holds is False
    assert report.measured("a", 4.9, "x", at_least=5).holds is False
    assert report.measured("a", 4.9, "x").holds is None
    assert report.unmeasured("a: refused").holds is None
    assert report.unmeasured("a: failed", failed=True).holds is False


@pytest.mark.parametrize("table", ["", "SOAK_"])
def test_the_page_of_the_documentation_has_its_places(report: Any, table: str) -> None:
    text = PAGE.read_text()
    begin, end = getattr(report, f"{table}BEGIN"), getattr(report, f"{table}END")
    assert text.count(begin) == 1
    assert text.index(begin) < text.index(end)


def test_the_two_tables_of_a_page_leave_each_other_alone(report: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{report.BEGIN}\n{report.END}\nbetween\n{report.SOAK_BEGIN}\n{report.SOAK_END}\n")
    report.write_page([report.measured("of the bench", 2.0, "s")], page)
    report.write_page([report.measured("of the soak", 2.0, "s")], page, report.SOAK_BEGIN, report.SOAK_END)
    text = page.read_text()
    assert text.index("| of the bench |") < text.index("between") < text.index("| of the soak |")
