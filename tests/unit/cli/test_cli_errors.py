"""Errors as a line, a hint and an exit code; and no secret in either."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_builders import CONFIG, FakePipeline, config_file, frazil

from frazil import errors
from frazil.cli.exit_codes import EXIT_CODES
from frazil.errors import FrazilError


def every_kind(kind: type[FrazilError]) -> list[type[FrazilError]]:
    return [kind, *(found for below in kind.__subclasses__() for found in every_kind(below))]


@pytest.mark.parametrize("kind", every_kind(FrazilError), ids=lambda kind: kind.__name__)
def test_an_error_is_one_line_a_hint_and_the_exit_code_of_its_class(tmp_path: Path, kind: type[FrazilError]) -> None:
    pipeline = FakePipeline(raises=kind("the ice is thin", hint="walk slowly"))
    result = frazil("run", config_file(tmp_path), pipeline=pipeline)
    assert result.stderr == "error: the ice is thin\nhint: walk slowly\n"
    assert result.stdout == ""
    assert result.exit_code == kind.exit_code
    assert pipeline.calls[-1] == "close"


def test_every_exit_code_of_the_error_tree_is_in_the_help() -> None:
    assert {kind.exit_code for kind in every_kind(errors.FrazilError)} | {0} == {code for code, _ in EXIT_CODES}


def test_a_typo_is_answered_with_the_nearest_key_before_anything_is_opened(tmp_path: Path) -> None:
    pipeline = FakePipeline()
    result = frazil("run", config_file(tmp_path, CONFIG.replace("key:", "keyy:")), pipeline=pipeline)
    assert result.exit_code == 2
    assert "shop.yaml: line 12: tables[0].keyy: unknown key; did you mean 'key'?" in result.stderr
    assert "hint: " in result.stderr
    assert pipeline.calls == []


@pytest.mark.parametrize("arguments", [["run"], ["nonsense"], ["run", "a.yaml", "--nonsense"], ["epochs", "a.yaml"]])
def test_a_wrong_command_line_exits_with_2(arguments: list[str]) -> None:
    assert frazil(*arguments).exit_code == 2


def test_a_missing_file_exits_with_2_and_points_to_init(tmp_path: Path) -> None:
    result = frazil("status", str(tmp_path / "nowhere.yaml"))
    assert result.exit_code == 2
    assert "error: cannot read" in result.stderr
    assert "frazil init" in result.stderr


@pytest.mark.parametrize("error", [KeyError("lost"), OSError(5, "lost"), RuntimeError("lost")])
def test_an_unexpected_error_is_short_and_debug_shows_the_traceback(tmp_path: Path, error: Exception) -> None:
    result = frazil("run", config_file(tmp_path), pipeline=FakePipeline(raises=error))
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: unexpected {type(error).__name__}: ")
    assert "Traceback" not in result.stderr
    assert "--debug" in result.stderr
    debugged = frazil("run", config_file(tmp_path), "--debug", pipeline=FakePipeline(raises=error))
    assert "Traceback" in debugged.stderr


@pytest.mark.parametrize("arguments", [[], ["--debug"], ["--log-format", "json"], ["--json"]])
def test_no_secret_of_the_configuration_is_ever_printed(tmp_path: Path, arguments: list[str]) -> None:
    message = "server at postgresql://root:pass4word@db said: bad signature for hunter22 (pass4word)"
    for error in (FrazilError(message, hint=message), RuntimeError(message)):
        result = frazil("run", config_file(tmp_path), *arguments, pipeline=FakePipeline(raises=error))
        assert "server at postgresql://root:***@db said: bad signature for *** (***)" in result.stderr
        assert "hunter22" not in result.output
        assert "pass4word" not in result.output


def test_a_refused_override_does_not_repeat_a_password(tmp_path: Path) -> None:
    result = frazil("check", config_file(tmp_path), "--set", "source.schema_from=mysql://u:secretpw@h")
    assert result.exit_code == 2
    assert "source.schema_from" in result.stderr
    assert "secretpw" not in result.output
