"""What the declared readers leave to choose, and that docs/reading.md tells of each engine what the code goes by."""

from __future__ import annotations

from pathlib import Path

import pytest
from config_builders import GOOD

from frazil.config.engines import FACTS, Ability, ReaderEngine, Statement, fitted, reasons
from frazil.config.load import parse_config
from frazil.errors import ConfigError
from frazil.model.write import DeleteMode, TableOptions

READING = Path(__file__).parents[3] / "docs" / "reading.md"


def readers(*names: str) -> tuple[ReaderEngine, ...]:
    return tuple(ReaderEngine(name) for name in names)


def options_of(names: str, *lines: str) -> TableOptions:
    text = GOOD + "".join(f"    {line}\n" for line in lines) + f"readers: [{names}]\n"
    route = parse_config(text, name="shop.yaml", environ={}).route_of("shop.public.orders")
    assert route is not None
    return route.options


def test_docs_tell_of_each_engine_what_the_code_goes_by() -> None:
    told = [line for line in READING.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    for engine, facts in FACTS.items():
        abilities = (facts.format_3, facts.vectors, facts.positions, facts.equality)
        row = f"| {engine} | {facts.version} | {' | '.join(abilities)} | {facts.said} | {facts.where} |"
        assert row in told
    assert set(FACTS) == set(ReaderEngine)


@pytest.mark.parametrize(
    ("names", "version", "by_position"),
    [
        ("spark", 3, False),
        ("spark, flink, trino, duckdb, doris", 3, False),
        ("spark, pyiceberg", 3, True),
        ("snowflake", 3, True),
        ("databricks", 3, True),
        ("spark, athena", 2, True),
        ("trino, starrocks", 2, False),
        ("clickhouse", 2, False),
        ("bigquery", 2, True),
    ],
)
def test_a_new_table_is_made_as_its_readers_read_it(names: str, version: int, by_position: bool) -> None:
    made = options_of(names)
    assert (made.format_version, made.by_position) == (version, by_position)


def test_append_only_tables_are_of_format_2_for_them_too() -> None:
    assert options_of("athena", "deletes: append-only").format_version == 2
    assert options_of("athena, databricks", "deletes: append-only").format_version == 2


def test_what_is_asked_for_by_name_is_made_where_nobody_says_that_it_cannot_be_read() -> None:
    assert options_of("bigquery", "format_version: 3").format_version == 3
    assert options_of("redshift", "deletes: equality").mode is DeleteMode.EQUALITY


@pytest.mark.parametrize(
    ("names", "lines", "message"),
    [
        ("athena", ["format_version: 3"], "line 12: tables[0].format_version: athena cannot read format 3"),
        ("spark, pyiceberg", ["deletes: equality"], "tables[0].deletes: pyiceberg cannot read equality deletes"),
        ("databricks", ["format_version: 2"], "format_version: databricks cannot read position deletes"),
        ("athena, databricks", [], "athena cannot read format 3, databricks cannot read position deletes"),
    ],
)
def test_what_a_reader_cannot_read_is_refused_with_its_name(names: str, lines: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        options_of(names, *lines)
    (problem,) = caught.value.facts["problems"]
    assert message in problem


def test_the_reasons_name_the_engines() -> None:
    asked = TableOptions()
    assert reasons(asked, readers("spark", "trino")) == []
    assert reasons(asked, readers("spark", "athena", "pyiceberg")) == [
        "format version 2 because of `readers:`: athena cannot read format 3",
        "rows are only deleted by position because of `readers:`: athena and pyiceberg are not known to read equality "
        "deletes",
    ]
    insisting = TableOptions(insists_on_version=True)
    assert reasons(insisting, readers("dremio"))[0] == (
        "dremio is not known to read format 3, and the table is made with it: it was asked for by name"
    )


@pytest.mark.parametrize("engine", ReaderEngine)
def test_every_engine_reads_some_form_of_deletes_by_position(engine: ReaderEngine) -> None:
    made = fitted(TableOptions(), (engine,))
    by = Ability.VECTORS if made.format_version == 3 else Ability.POSITIONS
    assert FACTS[engine].of(by) is Statement.YES
