"""Messages of every envelope and option to changes."""

from __future__ import annotations

from typing import Any

import pytest
from cockroach_feed import at, source_schema
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import BadInput, ConfigError
from frazil.model.change import Op
from frazil.sources.cockroachdb.decode.envelope import BareDeletes, Envelope, EnvelopeOptions, change_of, open_message
from frazil.sources.cockroachdb.decode.exact_json import NotJson, Number, dumps, fields, loads
from frazil.sources.cockroachdb.decode.keys import KeyRule
from frazil.sources.cockroachdb.schema.types import Family, parse_source_type

RULE = KeyRule("t", source_schema().key_columns)
U = at(1)


def change(text: str, rule: KeyRule = RULE, key: Any = None, **options: Any) -> tuple[str, Op, bytes | None]:
    given_options = EnvelopeOptions(**options)
    found = change_of(open_message(text, given_options.envelope), rule, given_options, key)
    return found.key, found.op, found.payload


ROW = b'{"a": 1, "b": "x"}'


@pytest.mark.parametrize(
    "text",
    [
        f'{{"after": {{"a": 1, "b": "x"}}, "key": [1], "updated": "{U}"}}',
        f'{{"after": {{"a": 1, "b": "x"}}, "updated": "{U}"}}',
        f'{{"after": {{"a": 1, "b": "x"}}, "before": null, "key": [9, 1], "mvcc_timestamp": "{U}", "topic": "t", '
        f'"updated": "{U}"}}',
        f'{{"__crdb__": {{"key": [1], "updated": "{U}"}}, "a": 1, "b": "x"}}',
        f'{{"__crdb__": {{"updated": "{U}"}}, "a": 1, "b": "x"}}',
        f'{{"after": {{"a": 1, "b": "x"}}, "key": {{"a": 1}}, "op": "c", "source": {{"ts_hlc": "{U}"}}, "ts_ns": 1}}',
        f'{{"payload": {{"after": {{"a": 1, "b": "x"}}, "op": "u", "source": {{"ts_hlc": "{U}"}}}}, "schema": {{}}}}',
    ],
)
def test_a_row_is_the_same_in_every_envelope(text: str) -> None:
    assert change(text) == ("[1]", Op.UPSERT, ROW)


@pytest.mark.parametrize(
    "text",
    [
        f'{{"after": null, "key": [1], "updated": "{U}"}}',
        f'{{"after": null, "before": {{"a": 1, "b": "x"}}, "updated": "{U}"}}',
        '{"after": null, "before": {"a": 1, "b": "x"}, "key": {"a": 1}, "op": "d", '
        f'"source": {{"ts_hlc": "{U}"}}}}',
    ],
)
def test_a_delete_is_the_same_in_every_envelope_that_has_one(text: str) -> None:
    assert change(text) == ("[1]", Op.DELETE, None)


def test_a_bare_row_of_nulls_is_not_guessed_about() -> None:
    text = f'{{"__crdb__": {{"key": [1], "updated": "{U}"}}, "a": 1, "b": null}}'
    with pytest.raises(BadInput) as caught:
        change(text)
    assert "bare_deletes" in caught.value.hint
    assert change(text, bare_deletes=BareDeletes.ALL_NULL) == ("[1]", Op.DELETE, None)
    assert change(text, bare_deletes=BareDeletes.NEVER) == ("[1]", Op.UPSERT, b'{"a": 1, "b": null}')


def test_a_bare_row_that_is_all_key_is_never_taken_for_a_delete() -> None:
    text = f'{{"__crdb__": {{"updated": "{U}"}}, "a": 1}}'
    with pytest.raises(BadInput):
        change(text, bare_deletes=BareDeletes.ALL_NULL)


@pytest.mark.parametrize(
    ("op", "expected"), [("insert", Op.UPSERT), ("update", Op.UPSERT), ("upsert", Op.UPSERT), ("delete", Op.DELETE)]
)
def test_event_op_tells_deletes_and_is_no_column(op: str, expected: Op) -> None:
    text = f'{{"__crdb__": {{"updated": "{U}"}}, "a": 1, "b": null, "cdc_prev": {{"a": 1}}, "op": "{op}"}}'
    key, found, payload = change(text, op_column="op", prev_column="cdc_prev")
    assert (key, found) == ("[1]", expected)
    assert payload == (None if expected is Op.DELETE else b'{"a": 1, "b": null}')


def test_a_wrong_op_column_is_refused() -> None:
    with pytest.raises(BadInput, match="event_op"):
        change(f'{{"__crdb__": {{"updated": "{U}"}}, "a": 1, "op": "shipped"}}', op_column="op")


def test_op_columns_of_a_wrapped_query_are_left_out() -> None:
    text = f'{{"after": {{"a": 1, "b": 1.50, "op": "update"}}, "updated": "{U}"}}'
    assert change(text, op_column="op") == ("[1]", Op.UPSERT, b'{"a": 1, "b": 1.50}')


def test_the_row_envelope_deletes_with_an_empty_value() -> None:
    options: dict[str, Any] = {"envelope": Envelope.ROW, "position_if_absent": U}
    assert change("", key=[Number("1")], **options) == ("[1]", Op.DELETE, None)
    assert change('{"a": 1, "b": "x"}', key=[Number("1")], **options) == ("[1]", Op.UPSERT, ROW)


def test_key_only_messages_carry_nothing_to_write() -> None:
    with pytest.raises(BadInput, match="key_only"):
        change("", key=[Number("1")], envelope=Envelope.KEY_ONLY, position_if_absent=U)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "JSON"),
        ("[]", "JSON"),
        ("{", "JSON"),
        ('{"after": {}} x', "JSON"),
        (f'{{"after": {{"a": 1}}, "foo": 1, "updated": "{U}"}}', "unknown envelope"),
        ('{"after": {"a": 1}, "updated": "yesterday"}', "commit time"),
        ('{"after": {"a": 1}, "updated": 5}', "commit time"),
        ('{"after": {"a": 1}, "key": [1]}', "without commit time"),
        (f'{{"after": null, "updated": "{U}"}}', "which row"),
        (f'{{"after": {{"a": 2}}, "key": [1], "updated": "{U}"}}', "changed"),
        (f'{{"after": {{"a": 2}}, "key": [], "updated": "{U}"}}', "changed"),
        (f'{{"after": {{"a": 2}}, "key": 2, "updated": "{U}"}}', "changed"),
        (f'{{"after": null, "key": {{"z": 1}}, "updated": "{U}"}}', "changed"),
        ('{"resolved":"1.0000000002"}', "resolved"),
    ],
)
def test_what_must_not_be_guessed_is_refused(text: str, what: str) -> None:
    with pytest.raises(BadInput, match=what):
        change(text)


def test_a_missing_commit_time_asks_for_updated_and_source() -> None:
    with pytest.raises(BadInput) as caught:
        change('{"after": {"a": 1}, "op": "c", "ts_ns": 5}')
    assert "WITH updated" in caught.value.hint
    assert "source" in caught.value.hint


def test_a_configured_envelope_is_not_second_guessed() -> None:
    text = f'{{"__crdb__": {{"updated": "{U}"}}, "a": 1, "after": {{"x": 1}}, "op": "c"}}'
    assert change(text, envelope=Envelope.BARE)[2] == b'{"a": 1, "after": {"x": 1}, "op": "c"}'
    with pytest.raises(BadInput):
        change('{"a": 1}', envelope=Envelope.WRAPPED)


json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.text(),
        st.decimals(allow_nan=False, allow_infinity=False).map(lambda d: Number(f"{d:f}")),
    ),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=10,
)


@given(json_values)
def test_json_survives_unchanged(value: Any) -> None:
    text = dumps(value)
    assert loads(text) == value
    assert dumps(loads(text)) == text


@pytest.mark.slow
@given(st.dictionaries(st.text(), json_values))
def test_fields_keep_the_raw_text_of_their_values(row: dict[str, Any]) -> None:
    found = fields(dumps(row))
    assert {name: value for name, (value, _) in found.items()} == row
    assert all(raw == dumps(row[name]) for name, (_, raw) in found.items())


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '"\\ud800"', '{"a": 1, "a": 2}', "01", "", "[" * 100_000])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(NotJson):
        loads(text)


def test_numbers_keep_their_text() -> None:
    assert (
        dumps(loads('{"a": [22.30, 1E+1, 9223372036854775807, -0]}')) == '{"a": [22.30, 1E+1, 9223372036854775807, -0]}'
    )


@pytest.mark.parametrize(
    ("text", "iceberg"),
    [
        ("INT8", "long"),
        ("int", "long"),
        ("INTEGER", "long"),
        ("bigint", "long"),
        ("INT4", "int"),
        ("smallint", "int"),
        ("DECIMAL(12,2)", "decimal(12, 2)"),
        ("numeric( 12 , 2 )", "decimal(12, 2)"),
        ("DECIMAL(5)", "decimal(5, 0)"),
        ("DECIMAL", "string"),
        ("DECIMAL(40,2)", "string"),
        ("VARCHAR(20)", "string"),
        ("character varying(20)", "string"),
        ("STRING COLLATE fr", "string"),
        ('VARCHAR COLLATE "fr"', "string"),
        ('"char"', "string"),
        ("BYTEA", "binary"),
        ("UUID", "uuid"),
        ("TIMESTAMP(3)", "timestamp"),
        ("timestamp without time zone", "timestamp"),
        ("timestamp(3) with time zone", "timestamptz"),
        ("TIMESTAMPTZ", "timestamptz"),
        ("TIME", "long"),
        ("TIMETZ", "string"),
        ("time with time zone", "string"),
        ("DOUBLE PRECISION", "double"),
        ("REAL", "float"),
        ("JSONB", "string"),
        ("GEOMETRY(POINT,4326)", "string"),
        ("VECTOR(3)", "list<float>"),
        ("BIT(3)", "string"),
        ("bit varying(5)", "string"),
        ("INTERVAL DAY TO SECOND", "string"),
        ("INTERVAL(3)", "string"),
        ("INT8[]", "list<long>"),
        ("DECIMAL(5,2)[]", "list<decimal(5, 2)>"),
        ("ENUM", "string"),
        ("PG_LSN", "string"),
    ],
)
def test_source_types_have_their_iceberg_type(text: str, iceberg: str) -> None:
    assert str(parse_source_type(text).type) == iceberg


@pytest.mark.parametrize(("text", "nearest"), [("INTT8", "INT8"), ("STRNG", "STRING"), ("TIMESTAMPZ", "TIMESTAMPTZ")])
def test_an_unknown_type_names_the_nearest(text: str, nearest: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_source_type(text)
    assert nearest in caught.value.hint


@pytest.mark.parametrize("text", ["DECIMAL(2,5)", "DECIMAL(x)", "INT8[][]", "UUID COLLATE de", "DECIMAL(0)", ""])
def test_an_impossible_type_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_source_type(text)


def test_arrays_know_their_elements() -> None:
    found = parse_source_type("JSONB[]")
    assert found.family is Family.ARRAY
    assert found.element is not None
    assert found.element.family is Family.JSON
