"""`docs/maintenance.md` tells users of another system what each of its settings is called here."""

from __future__ import annotations

from pathlib import Path

from frazil.config.pipeline_config import PipelineConfig

PAGE = Path(__file__).parents[3] / "docs" / "maintenance.md"
KNOWN = (
    "iceberg_default_catalog",
    "iceberg_default_volume",
    "datalake_agent_server_url",
    "datalake.enable_iceberg_fragment_cache",
    "datalake.iceberg_vacuum_compact_min_input_files",
    "datalake.iceberg_vacuum_rewrite_target_file_size_mb",
    "datalake.iceberg_postion_deletes_threshold",
    "datalake.external_table_limit_segment_num",
    "datalake.disable_filter_pushdown",
    "datalake.iceberg_autovacuum",
    "datalake.iceberg_autovacuum_naptime",
)


def rows() -> list[list[str]]:
    lines = PAGE.read_text(encoding="utf-8").split("| known as |")[1].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines if line.startswith("|")]


def test_every_setting_is_listed_as_it_is_spelled_with_an_answer_in_every_column() -> None:
    assert [row[0] for row in rows()] == [f"`{name}`" for name in KNOWN]
    assert all(len(row) == 5 and all(row) for row in rows())


def test_what_a_setting_is_called_here_exists() -> None:
    for row in rows():
        for name in row[2].replace("-", "").replace("`", "").split(", "):
            model = PipelineConfig
            for part in filter(None, name.split(".")):
                field = model.model_fields[part]
                model = field.annotation  # type: ignore[assignment]


def test_no_cell_of_a_table_is_empty() -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    assert [line for line in lines if "| |" in line] == []
