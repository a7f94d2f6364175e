"""The configuration that init writes, and the reference that is generated."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli_builders import frazil

from frazil.cli.main import LateCommand, cli
from frazil.cli.reference import PAGES, configuration_page, main, metrics_page
from frazil.config.block import Settings
from frazil.config.describe import options_of
from frazil.config.load import load_config, parse_config
from frazil.config.pipeline_config import PipelineConfig
from frazil.sources.mongodb.config import MongoSource

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


def all_options(model: type[Settings], *, default_blocks_only: bool = False) -> list[str]:
    found = []
    for option in options_of(model):
        assert option.description, f"{model.__name__}.{option.name} has no description"
        found.append(option.name)
        if option.block is not None and not (default_blocks_only and (option.named or option.left_out)):
            found += all_options(option.block, default_blocks_only=default_blocks_only)
    return found


@pytest.mark.parametrize("flags", [[], ["--sinkless"]])
def test_what_init_writes_loads(tmp_path: Path, flags: list[str]) -> None:
    file = tmp_path / "shop.yaml"
    result = frazil("init", "--source", "cockroachdb", *flags, "-o", str(file))
    assert result.exit_code == 0
    assert result.stdout == ""
    loaded = load_config(file, environ={})
    assert loaded.source.sinkless == bool(flags)
    assert frazil("init", "--source", "cockroachdb", *flags).stdout == file.read_text()


@pytest.mark.parametrize("flags", [[], ["--sinkless"]])
def test_with_every_key_switched_on_it_still_loads_and_says_what_the_defaults_are(flags: list[str]) -> None:
    text = frazil("init", "--source", "cockroachdb", *flags).stdout
    bare = parse_config(text, environ={})
    full = parse_config(re.sub(r"^( *)#(?=\S)", r"\1", text, flags=re.MULTILINE), environ={})
    for block in ("parquet", "http", "limits", "snapshot", "heartbeat", "epoch_interval", "on_error"):
        assert getattr(full, block) == getattr(bare, block), block
    assert full.source.options == ({} if flags else {"region": "eu-central-1"})


def test_every_key_of_the_models_is_in_one_of_the_two_files() -> None:
    both = "".join(frazil("init", "--source", "cockroachdb", *flags).stdout for flags in ([], ["--sinkless"]))
    wanted = all_options(PipelineConfig, default_blocks_only=True)
    assert [name for name in wanted if not re.search(rf"^[ #-]*{name}:", both, re.MULTILINE)] == []


def test_what_init_writes_for_mongodb_loads() -> None:
    text = frazil("init", "--source", "mongodb").stdout
    loaded = parse_config(text, environ={})
    assert isinstance(loaded.source, MongoSource)
    assert loaded.tables[0].source == "shop.orders"
    full = parse_config(re.sub(r"^( *)#(?=\S)", r"\1", text, flags=re.MULTILINE), environ={})
    assert full.source == loaded.source.model_copy(update={"database": "shop"})
    assert [name for name in all_options(MongoSource) if f"{name}:" not in text] == []


def test_init_writes_no_key_that_the_source_has_no_use_for() -> None:
    assert not re.search(r"^[ #-]*(history|rescan|key):", frazil("init", "--source", "mongodb").stdout, re.MULTILINE)
    sinkless = frazil("init", "--source", "cockroachdb", "--sinkless").stdout
    assert not re.search(r"^  #?(late_files|options|envelope|csv_header|bare_deletes):", sinkless, re.MULTILINE)


def test_init_does_not_overwrite_a_file_without_being_told_to(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text("precious")
    result = frazil("init", "--source", "cockroachdb", "-o", str(file))
    assert result.exit_code == 2
    assert "already there" in result.stderr
    assert "--force" in result.stderr
    assert file.read_text() == "precious"
    assert frazil("init", "--source", "cockroachdb", "-o", str(file), "--force").exit_code == 0
    assert file.read_text() != "precious"


def test_init_names_a_place_it_cannot_write_to(tmp_path: Path) -> None:
    result = frazil("init", "--source", "cockroachdb", "-o", str(tmp_path / "no" / "shop.yaml"))
    assert result.exit_code == 2
    assert "cannot write" in result.stderr


def test_init_lists_the_kinds_of_source_it_knows() -> None:
    result = frazil("init", "--source", "oracle")
    assert result.exit_code == 2
    assert "cockroachdb" in result.stderr


def test_every_option_is_in_the_reference_with_type_and_default() -> None:
    page = configuration_page()
    for name in all_options(PipelineConfig):
        assert f"| `{name}` |" in page
    assert "| `heartbeat` | duration | `10m` |" in page
    assert "| `target_file_size` | size | `256MB` |" in page
    assert "| `deletes` | vectors \\| equality \\| append-only | `vectors` |" in page
    assert "| `feed` | path or URL | **required** |" in page
    assert "iceberg_commit_latency_seconds" in metrics_page()


@pytest.mark.parametrize("page", ["configuration.md", "metrics.md", "cli.md"])
def test_the_committed_reference_equals_the_generated_one(page: str) -> None:
    assert (REFERENCE / page).read_text(encoding="utf-8") == PAGES[page](), "run: make docs"


def test_the_generator_writes_all_pages(tmp_path: Path) -> None:
    main([str(tmp_path / "out")])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["cli.md", "configuration.md", "metrics.md"]


def test_the_demo_is_listed_without_being_imported() -> None:
    assert isinstance(cli.commands["demo"], LateCommand)
    assert "demo" in frazil("--help").output
