"""Random rows of random source schemas: what the fast road returns is what the exact road returns, and a renamed
column's rows are found under either name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from cockroach_feed import at, source_schema
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cockroach_decode import json_numbers, json_texts, same, stamps, strings

from frazil.errors import BadInput, DoesNotFit, FrazilError, UnknownColumn
from frazil.model.schema import Column, SourceSchema
from frazil.sources.cockroachdb.decode.decoder import DecodedTable, FeedDecoder, exact_columns, fast_columns
from frazil.sources.cockroachdb.decode.envelope import Envelope, EnvelopeOptions, Message, change_of
from frazil.sources.cockroachdb.decode.exact_json import Number, quote
from frazil.sources.cockroachdb.decode.fast.casts import TakeExactRoad
from frazil.sources.cockroachdb.decode.keys import KeyChanged, KeyRule
from frazil.sources.cockroachdb.schema.types import column


def listed(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(st.one_of(inner, st.just("null")), max_size=3).map(lambda items: f"[{', '.join(items)}]")


whole = st.integers(-(2**31), 2**31 - 1).map(str)
money = st.decimals(-(10**9), 10**9, places=2).map(str)
texts = strings.map(quote)
OF_TYPE = {
    "INT8": whole,
    "DECIMAL(12,2)": st.one_of(money, st.sampled_from(["0E-2", "1E+2", '"NaN"'])),
    "DECIMAL": json_numbers,
    "FLOAT8": st.one_of(json_numbers, st.sampled_from(['"NaN"', '"Infinity"'])),
    "FLOAT4": st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr),
    "STRING": texts,
    "BOOL": st.sampled_from(["true", "false"]),
    "JSONB": json_texts,
    "GEOMETRY": json_texts,
    "TIMESTAMP": stamps.map(quote),
    "INT8[]": listed(whole),
    "STRING[]": listed(texts),
    "BOOL[]": listed(st.sampled_from(["true", "false"])),
    "DECIMAL(12,2)[]": listed(money),
    "DECIMAL[]": listed(json_numbers),
    "VECTOR(2)": st.sampled_from(['"[1,2.5]"', '"[0.1,-3e-05]"', '"[0.123456789012,1]"', '"[]"', '"[1,]"']),
}
NAMES = ["b", "doc", 'q"uote', "Zoë", "b_2", "sla\\sh"]


@st.composite
def tables(draw: st.DrawFn) -> tuple[SourceSchema, list[str]]:
    """A source schema with a key `a`, and payloads that mostly fit it."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    columns = [column("a", "INT8", "configuration")]
    for name in names:
        found = column(name, draw(st.sampled_from(sorted(OF_TYPE))), "configuration")
        carried = (name, f"old_{name}") if draw(st.booleans()) and draw(st.booleans()) else ()
        columns.append(Column(found.name, found.type, found.source_type, found.origin, carried=carried))
    payloads = []
    for _ in range(draw(st.integers(1, 5))):
        fields = ['"a": 1']
        for known in columns[1:]:
            for name in known.carried_as if draw(st.integers(0, 9)) == 0 else [draw(st.sampled_from(known.carried_as))]:
                value = draw(st.one_of(OF_TYPE[known.source_type], OF_TYPE[known.source_type], st.just("null")))
                if draw(st.integers(0, 9)):
                    fields.append(f"{quote(name)}: {value}")
        odd = draw(st.integers(0, 19))
        if odd == 0:
            fields.append(
                draw(st.sampled_from(['"z": null', '"z": 1', '"z": null, "z": null', '"a": 1', '"x\\"b": 1']))
            )
        fields = draw(st.permutations(fields))
        payloads.append("{" + draw(st.sampled_from([", ", ", ", ", ", ",", " , "])).join(fields) + "}")
    return SourceSchema(tuple(columns), ("a",), "configuration"), payloads


@pytest.mark.slow
@given(tables())
@settings(max_examples=500)
def test_random_rows_of_random_shapes_decode_alike_on_both_roads(drawn: tuple[SourceSchema, list[str]]) -> None:
    """H29, H39, H14: the fast road gives what the exact road gives, or gives up."""
    its_shape, given_payloads = drawn
    known = DecodedTable("t", its_shape)
    payloads = pa.array([payload.encode() for payload in given_payloads], pa.binary())
    try:
        fast = fast_columns(known, its_shape.columns, payloads)
    except TakeExactRoad:
        return
    exact = exact_columns(known, its_shape.columns, pa.array(["[1]"] * len(payloads)), payloads)
    assert all(same(one, other) for one, other in zip(fast, exact, strict=True)), (given_payloads, fast, exact)


@given(st.data())
@settings(max_examples=300)
def test_a_damaged_payload_is_never_read_as_something_else(data: st.DataObject) -> None:
    """One character of a payload is replaced: the roads still agree."""
    payload = data.draw(json_texts.map(lambda text: f'{{"a": 1, "j": {text}, "t": [1, null]}}'))
    at = data.draw(st.integers(0, len(payload) - 1))
    damaged = payload[:at] + data.draw(st.sampled_from('"\\{}[],: 0xn\n')) + payload[at + 1 :]
    its_shape = source_schema(a="INT8", j="JSONB", t="INT8[]")
    known = DecodedTable("t", its_shape)
    payloads = pa.array([damaged.encode(), payload.encode()], pa.binary())
    try:
        fast = fast_columns(known, its_shape.columns, payloads)
    except TakeExactRoad:
        return
    exact = exact_columns(known, its_shape.columns, pa.array(["[1]", "[1]"]), payloads)
    assert all(same(one, other) for one, other in zip(fast, exact, strict=True)), (damaged, fast, exact)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}',
        '[{"b": {"x": 1, "y": 2, "x": 3}}]',
        '{"a": {"a": 1}, "b": [{"a": 1}, {"a": 1}], "a": 1}',
        '{"a": NaN}',
        '{"a": Infinity}',
        "01",
        '"\\ud83d"',
    ],
)
def test_what_json_does_not_allow_is_refused_inside_of_a_value(text: str) -> None:
    decoder = FeedDecoder({0: DecodedTable("t", source_schema(a="INT8", j="JSONB"))})
    with pytest.raises(BadInput):
        decoder.rows(0, pa.array(["[1]"]), pa.array([f'{{"a": 1, "j": {text}}}'.encode()], pa.binary()))


def renamed(**carried: tuple[str, ...]) -> SourceSchema:
    """a INT8, b DECIMAL(6,2), c JSONB; `carried` gives the names in rows."""
    columns = tuple(
        Column(known.name, known.type, known.source_type, known.origin, carried=carried.get(known.name, ()))
        for known in source_schema(a="INT8", b="DECIMAL(6,2)", c="JSONB").columns
    )
    return SourceSchema(columns, ("a",), "configuration")


def rows(its_shape: SourceSchema, *payloads: str, key: str = "[1]") -> list[dict[str, Any]]:
    batch = FeedDecoder({0: DecodedTable("t", its_shape)}).rows(
        0, pa.array([key] * len(payloads)), pa.array([payload.encode() for payload in payloads], pa.binary())
    )
    return list(batch.to_pylist())


def test_rows_of_a_renamed_column_are_found_under_either_name() -> None:
    """H14: rows of both names lie in one epoch."""
    its_shape = renamed(b=("b", "amount"), c=("c", "doc"))
    found = rows(its_shape, '{"a": 1, "amount": 1.5, "doc": [1]}', '{"a": 1, "b": 2.5, "c": {}}', '{"a": 1}')
    assert [(str(row["b"]), row["c"]) for row in found] == [("1.50", "[1]"), ("2.50", "{}"), ("None", None)]


def test_a_versioned_column_is_carried_under_the_old_name() -> None:
    assert rows(renamed(b=("amount",)), '{"a": 1, "amount": 7}')[0]["b"] == 7
    with pytest.raises(UnknownColumn):
        rows(renamed(b=("amount",)), '{"a": 1, "b": 7}')


def test_the_newest_name_wins_even_if_it_is_null() -> None:
    assert rows(renamed(b=("b", "amount")), '{"a": 1, "b": null, "amount": 5}')[0]["b"] is None


def test_two_names_may_agree_but_not_differ() -> None:
    its_shape = renamed(b=("b", "amount"))
    assert rows(its_shape, '{"a": 1, "b": 5.0, "amount": 5.00}')[0]["b"] == 5
    with pytest.raises(BadInput, match="different values") as caught:
        rows(its_shape, '{"a": 1, "b": 5, "amount": 6}')
    assert caught.value.facts["column"] == "b"
    assert caught.value.facts["key"] == "[1]"


def test_a_renamed_key_column_is_found_under_either_name() -> None:
    its_shape = renamed(a=("a", "id"))
    assert rows(its_shape, '{"id": 1}', '{"a": 1}') == [{"a": 1, "b": None, "c": None}] * 2
    rule = KeyRule("t", its_shape.key_columns)
    assert rule.of_row({"id": 4}) == [4]
    assert rule.is_in({"id": 4})
    assert not rule.is_in({"x": 4})
    assert rule.named({"id": 4}) == [4]
    with pytest.raises(KeyChanged, match="not a"):
        rule.named({"x": 4})
    with pytest.raises(BadInput, match="the key of table t changed"):
        rows(its_shape, '{"id": 2}')


@pytest.mark.parametrize("name", ["a", "id"])
def test_a_delete_of_a_row_with_a_renamed_key_column_says_which_row(name: str) -> None:
    rule = KeyRule("t", renamed(a=("a", "id")).key_columns)
    told = [
        Message(envelope=Envelope.ENRICHED, key={name: Number("4")}, updated=at(1).text),
        Message(envelope=Envelope.WRAPPED, before={name: Number("4"), "b": None}, updated=at(1).text),
    ]
    assert [change_of(message, rule, EnvelopeOptions()).key for message in told] == ["[4]", "[4]"]


def outgrowing(newest: str, *outgrown: str) -> SourceSchema:
    """Rows carry `amount`, which the table calls by its versions."""
    versions = [("amount", outgrown[0]), *((f"amount_v{n}", kind) for n, kind in enumerate(outgrown[1:], 2))]
    olds = tuple(replace(column(name, kind, "table"), carried=("amount",)) for name, kind in versions)
    latest = replace(column(f"amount_v{len(outgrown) + 1}", newest, "sql"), carried=("amount",))
    return SourceSchema((column("a", "INT8", "sql"), latest), ("a",), "sql", olds)


def test_a_value_goes_to_the_column_that_holds_it() -> None:
    """H14: rows from before and after an incompatible change lie in one epoch."""
    its_shape = outgrowing("STRING", "INT8")
    found = rows(its_shape, *(f'{{"a": 1, "amount": {value}}}' for value in ("6", '"seven"', "null")), '{"a": 1}')
    assert found == [
        {"a": 1, "amount_v2": None, "amount": 6},
        {"a": 1, "amount_v2": "seven", "amount": None},
        {"a": 1, "amount_v2": None, "amount": None},
        {"a": 1, "amount_v2": None, "amount": None},
    ]
    assert rows(its_shape, '{"a": 1, "amount": "seven"}') == found[1:2], "on the fast road"
    assert rows(its_shape) == []
    with pytest.raises(DoesNotFit) as caught:
        rows(its_shape, '{"a": 1, "amount": 6}', '{"a": 1, "amount": true}')
    assert caught.value.facts["column"] == "amount_v2"
    with pytest.raises(UnknownColumn):
        rows(its_shape, '{"a": 1, "amount_v2": "x"}')


def test_the_newest_column_that_holds_a_value_takes_it() -> None:
    values = ("5", "5.5", '"x"', "[]")
    found = rows(outgrowing("JSONB", "INT8"), *(f'{{"a": 1, "amount": {value}}}' for value in values))
    assert [(row["amount_v2"], row["amount"]) for row in found] == [(value, None) for value in values]
    found = rows(outgrowing("STRING", "INT8", "BOOL"), *(f'{{"a": 1, "amount": {v}}}' for v in ("5", "true", '"x"')))
    assert [(row["amount"], row["amount_v2"], row["amount_v3"]) for row in found] == [
        (5, None, None), (None, True, None), (None, None, "x"),
    ]  # fmt: skip


def test_a_table_without_key_columns_decodes_its_rows() -> None:
    its_shape = SourceSchema(source_schema(a="INT8", b="STRING").columns, (), "configuration")
    decoder = FeedDecoder({0: DecodedTable("t", its_shape)})
    keys = pa.array(["[77]", '["f.ndjson", 2]'])
    found = decoder.rows(0, keys, pa.array([b'{"a": 1}', b'{"b": "x"}'], pa.binary())).to_pylist()
    assert found == [{"a": 1, "b": None}, {"a": None, "b": "x"}]
    assert decoder.keys(0, keys).num_rows == 2
    with pytest.raises(FrazilError, match="row with key \\[77\\]"):
        decoder.rows(0, pa.array(["[77]"]), pa.array([b'{"a": "x"}'], pa.binary()))


def test_a_name_that_ends_like_another_is_not_taken_for_it() -> None:
    its_shape = source_schema(a="INT8", b="JSONB")
    with pytest.raises(UnknownColumn) as caught:
        rows(its_shape, '{"a": 1, "x\\"b": 1}')
    assert caught.value.facts["columns"] == ['x"b']


@pytest.mark.parametrize(
    "text", ["6E31", "1E+30", "167" + "0" * 36, "0.78E-59", "0." + "0" * 45 + "1", "1.12345678901"]
)
def test_a_decimal_inside_of_an_array_is_neither_clamped_nor_rounded(text: str) -> None:
    """H39."""
    with pytest.raises(DoesNotFit) as caught:
        rows(source_schema(a="INT8", b="DECIMAL(38,10)[]"), f'{{"a": 1, "b": [1.5, {text}]}}')
    assert caught.value.facts["column"] == "b"
