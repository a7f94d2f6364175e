"""What `frazil maintain` prints, and with which code it exits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cli_builders import FakePipeline, config_file, frazil

from frazil.errors import CatalogRefused, ConfigError, FrazilError, OutcomeUnknown, TableChanged, Transient
from frazil.model.results import MaintenanceStep


def step(action: str = "compact", **facts: Any) -> MaintenanceStep:
    given = {"reason": "10 small files", "counts": {"data_files": 10}, "done": True, "seconds": 1.0, **facts}
    return MaintenanceStep(table="analytics.orders", action=action, **given)


def failed(error: FrazilError, action: str = "compact") -> MaintenanceStep:
    return step(action, done=False, counts={}, error=str(error), hint=error.hint, exit_code=error.exit_code)


@dataclass
class Maintained(FakePipeline):
    """Answers with these steps."""

    steps: Sequence[MaintenanceStep] = field(default_factory=list)

    def maintain(self, table: str | None = None, *, dry: bool = False) -> Iterator[MaintenanceStep]:
        yield from self.steps


def test_steps_are_told_one_by_one(tmp_path: Path) -> None:
    result = frazil("maintain", config_file(tmp_path), pipeline=Maintained(steps=[step()]))
    assert result.exit_code == 0, result.output
    assert result.stdout == "analytics.orders: compact: 10 small files (data files 10)\n"
    assert frazil("maintain", config_file(tmp_path), pipeline=Maintained()).stdout == "nothing to do\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Transient("later"), 1),
        (OutcomeUnknown("who knows"), 1),
        (ConfigError("there is no column when"), 2),
        (TableChanged("gone"), 5),
        (CatalogRefused("forbidden"), 7),
    ],
)
def test_a_step_that_failed_exits_with_the_code_of_its_error(tmp_path: Path, error: FrazilError, code: int) -> None:
    result = frazil("maintain", config_file(tmp_path), pipeline=Maintained(steps=[failed(error), step("expire")]))
    assert result.exit_code == code
    assert f"analytics.orders: compact: {error}" in result.stderr
    assert "analytics.orders: expire: 10 small files" in result.stdout, "the others went on"


def test_what_a_person_must_act_on_comes_before_what_may_succeed_later(tmp_path: Path) -> None:
    wrong = ConfigError("there is no column when", hint="Name another column.")
    steps = [failed(Transient("others were faster"), "convert"), failed(wrong), failed(Transient("later"), "expire")]
    result = frazil("maintain", config_file(tmp_path), "--json", pipeline=Maintained(steps=steps))
    assert result.exit_code == 2
    assert "Name another column." in result.stderr
    assert [told["exit_code"] for told in json.loads(result.stdout)] == [1, 2, 1]
