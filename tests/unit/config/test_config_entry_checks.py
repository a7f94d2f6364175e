"""What the configuration alone decides is told when it is loaded: with the line, before anything is opened."""

from __future__ import annotations

import pytest
from config_builders import GOOD, config, lines

from frazil.config.load import parse_config
from frazil.errors import ConfigError

MONGO = """\
pipeline: shop
source:
  type: mongodb
  uri: mongodb://localhost:27017/?replicaSet=rs0
catalog:
  type: builtin
  warehouse: ./warehouse
tables:
  - source: shop.orders
    target: analytics.orders
"""


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, name="shop.yaml", environ={})
    found: tuple[str, ...] = caught.value.facts["problems"]
    return found


def entry(*more: str) -> str:
    """GOOD with further lines in its entry; the first of them is line 12."""
    return GOOD + "".join(f"    {line}\n" for line in more)


def test_a_misspelt_type_is_told_with_line_table_column_and_the_nearest_type() -> None:
    assert problems(entry("columns:", "  id: INT8", "  amount: INTEGERR")) == (
        "line 14: tables[0].columns.amount: unknown column type 'INTEGERR'; did you mean INTEGER? (shop.public.orders)",
    )


def test_all_types_that_do_not_exist_are_told_at_once() -> None:
    found = problems(entry("columns:", "  id: INT9", "  amount: DECIMAL(2,5)", "  at: TIMESTMP"))
    assert [text.split(":")[0] for text in found] == ["line 13", "line 14", "line 15"]
    assert "the scale is between 0 and the precision" in found[1]


@pytest.mark.parametrize(
    ("source_type", "message"),
    [
        ("INT8(5)", "takes nothing in parentheses"),
        ("UUID(16)", "takes nothing in parentheses"),
        ("VARCHAR(many)", "takes a number in parentheses"),
        ("TIMESTAMP(3, 4)", "takes a number in parentheses"),
        ("DECIMAL(a)", "write DECIMAL(precision, scale)"),
        ("INT8[][]", "arrays of arrays"),
        ("INT8 COLLATE de", "only strings are collated"),
    ],
)
def test_the_arguments_of_a_type_are_held_against_it(source_type: str, message: str) -> None:
    (found,) = problems(entry(f"columns: {{a: '{source_type}'}}"))
    assert found.startswith("line 12: tables[0].columns.a: ")
    assert message in found


@pytest.mark.parametrize(
    "source_type",
    ["VARCHAR(10)", "CHAR(3)", "STRING(5)", "BIT(8)", "VARBIT", "TIMESTAMP(3) WITH TIME ZONE", "TIMESTAMPTZ(6)",
     "TIME(0)", "INTERVAL(3)", "INTERVAL DAY TO SECOND(3)", "FLOAT(24)", "VECTOR(3)", "GEOMETRY(POINT,4326)",
     "DECIMAL(12,2)[]", "VARCHAR(10) COLLATE de", '"char"'],
)  # fmt: skip
def test_types_with_arguments_that_the_source_prints_are_taken(source_type: str) -> None:
    quoted = source_type.replace('"', '\\"')
    assert config(text=entry(f'columns: {{a: "{quoted}"}}')).tables[0].columns == {"a": source_type}


def test_a_key_that_is_nearly_a_pinned_column_is_told() -> None:
    text = lines(("key: [id]", "key: [custmer_id]\n    columns: {customer_id: INT8}"))
    assert problems(text) == (
        "line 11: tables[0].key: 'custmer_id' is not among the pinned columns; did you mean 'customer_id'? "
        "Else pin its type under `columns:` too (shop.public.orders)",
    )


def test_a_key_whose_type_is_left_to_be_discovered_is_taken() -> None:
    assert config(text=entry("columns: {uid: UUID}")).tables[0].key == ("id",)


@pytest.mark.parametrize("source_type", ["FLOAT8", "REAL", "INT8[]"])
def test_a_key_that_cannot_identify_a_row_is_told(source_type: str) -> None:
    (found,) = problems(entry(f"columns: {{id: '{source_type}'}}"))
    assert found.startswith("line 11: tables[0].key: 'id' is ")
    assert "cannot identify a row" in found


def test_a_changelog_needs_no_key_that_identifies() -> None:
    assert config(text=entry("deletes: append-only", "columns: {id: FLOAT8}")).tables[0].columns == {"id": "FLOAT8"}


def test_a_partition_of_a_column_that_is_not_pinned_is_told_where_all_are() -> None:
    (found,) = problems(entry("columns: {id: INT8, created_at: TIMESTAMPTZ}", "partition: ['day(creatd_at)']"))
    assert found.startswith("line 13: tables[0].partition: 'creatd_at' is not among the pinned columns")
    assert "did you mean 'created_at'?" in found


def test_a_partition_of_a_column_that_somebody_else_may_tell_is_taken() -> None:
    assert config(text=entry("partition: ['day(created_at)']", "columns: {amount: 'DECIMAL(12,2)'}"))
    told = entry("columns: {id: INT8}", "partition: ['day(created_at)']")
    described = told.replace("s3://feeds/shop", "s3://feeds/shop\n  schema_from: postgresql://db/shop")
    assert parse_config(described, environ={}).tables[0].partition == ("day(created_at)",)


def test_a_transform_that_does_not_take_the_pinned_type_is_told() -> None:
    (found,) = problems(entry("columns: {amount: STRING}", "partition: ['day(amount)']"))
    assert found.startswith("line 13: tables[0].partition: day does not take string, the type of 'amount'")


def test_a_sort_by_what_has_no_order_is_told() -> None:
    (found,) = problems(entry("columns: {tags: 'STRING[]'}", "sort: [tags]"))
    assert found.startswith("line 13: tables[0].sort: rows cannot be sorted by 'tags', which is list<string>")


def test_columns_that_a_changelog_needs_for_itself_are_told() -> None:
    (found,) = problems(entry("changelog: true", "columns: {_op: STRING}"))
    assert found.startswith("line 13: tables[0].columns._op: a changelog needs a column of this name for itself")


def test_a_variant_is_told_before_anything_is_opened() -> None:
    (found,) = problems(entry("json_as: variant"))
    assert found.startswith("line 12: tables[0].json_as: `json_as: variant` cannot be written")


def test_a_name_that_makes_no_target_is_told_with_its_entry() -> None:
    (found,) = problems(GOOD + "  - source: shop.public.a/b\n")
    assert found.startswith("line 12: tables[1].target: table 'shop.a/b' must be written")


def test_a_source_name_that_is_none_says_how_it_is_written() -> None:
    (found,) = problems(GOOD + "  - source: shop..orders\n")
    assert found.startswith("line 12: tables[1].source: 'shop..orders' is not written as it must be: table, ")


def test_types_of_a_collection_are_told_too() -> None:
    (found,) = problems(MONGO + "    columns: {total: strng}\n")
    assert found.startswith("line 11: tables[0].columns.total: 'strng' is no type that a field can have")
    assert "did you mean string?" in found


def test_types_of_mapped_fields_are_told_with_their_line() -> None:
    text = MONGO + "    mapping:\n      mode: explicit\n      fields:\n        - {source: total, type: decimel}\n"
    (found,) = problems(text)
    assert found.startswith("line 14: tables[0].mapping.fields[0].type: 'decimel' is no type")


def test_an_explicit_mapping_knows_all_columns() -> None:
    mapped = "    mapping: {mode: explicit, fields: [{source: made.at, type: timestamp}]}\n"
    (found,) = problems(MONGO + mapped + "    partition: ['day(mad_at)']\n")
    assert found.startswith("line 12: tables[0].partition: 'mad_at' is not among the mapped fields")
    assert parse_config(MONGO + mapped + "    partition: ['day(made_at)']\n    sort: [_id]\n", environ={})


@pytest.mark.parametrize(("text", "kind"), [(GOOD, "cockroachdb"), (MONGO, "mongodb")])
def test_the_hint_names_the_source_of_the_file(text: str, kind: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text + "zzz: 1\n", environ={})
    assert caught.value.hint.endswith(f"frazil init --source {kind}")
