"""Where the demo goes: what is there is deleted only if a demo has made it."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_builders import frazil

from frazil.config.load import load_config
from frazil.demo.run import config_text, prepare


def everything(directory: Path) -> dict[str, str]:
    return {str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "files",
    [
        {"thesis.txt": "years of work"},
        {"shop.yaml": "pipeline: mine\n", "warehouse/catalog.db": "tables"},
        {"feed/a.ndjson": "rows", "warehouse/catalog.db": "tables"},
        {"shop.yaml": config_text(), "notes/todo.txt": "beside an earlier demo"},
    ],
)
def test_a_directory_with_files_of_somebody_else_is_refused_and_stays_as_it_was(
    tmp_path: Path, files: dict[str, str]
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    result = frazil("demo", "--dir", str(tmp_path))
    assert result.exit_code == 2
    assert f"{tmp_path} holds something else than an earlier demo" in result.stderr
    assert "frazil demo --dir" in result.stderr
    assert everything(tmp_path) == files


@pytest.mark.parametrize("there", [True, False])
def test_a_new_or_empty_directory_is_taken_and_an_earlier_demo_replaced(tmp_path: Path, there: bool) -> None:
    directory = tmp_path / "demo-out"
    if there:
        directory.mkdir()
    for _ in range(2):
        config, shop = prepare(directory)
        shop.resolve()
        (directory / "warehouse").mkdir()
        assert load_config(config).pipeline == "demo"
    assert len(list((directory / "feed").rglob("*.RESOLVED"))) == 1
