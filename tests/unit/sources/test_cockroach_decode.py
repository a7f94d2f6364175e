"""Decoding: two roads with equal results, exact values, and errors that name the value."""

from __future__ import annotations

import math
import pickle
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from cockroach_feed import source_schema
from hypothesis import example, given, settings
from hypothesis import strategies as st

from frazil.errors import BadInput, ConfigError, DoesNotFit, FrazilError, UnknownColumn
from frazil.model.schema import SourceSchema
from frazil.sources.cockroachdb.decode.decoder import DecodedTable, FeedDecoder, exact_columns, fast_columns
from frazil.sources.cockroachdb.decode.exact_json import loads, quote
from frazil.sources.cockroachdb.decode.fast.casts import TakeExactRoad
from frazil.sources.cockroachdb.decode.keys import KeyRule
from frazil.sources.cockroachdb.schema.types import Family, TypeRules, column, parse_source_type

digits = st.text("0123456789", min_size=1, max_size=40)
numbers = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr),
    st.builds("{}.{}".format, st.integers(-(10**12), 10**12), digits),
    st.builds("{}E{}".format, st.integers(-99, 99), st.integers(-60, 60)),
)
json_numbers = numbers.filter(lambda text: text.lstrip("-")[:1] != "0" or text.lstrip("-")[1:2] in ("", "."))
stamps = st.one_of(
    st.datetimes().map(datetime.isoformat),
    st.datetimes().map(lambda moment: moment.isoformat() + "Z"),
    st.dates().map(date.isoformat),
    st.times().map(lambda time: time.isoformat()),
    st.sampled_from(
        [
            "infinity",
            "24:00:00",
            "0000-01-01",
            "2021-02-30",
            "10000-01-01T00:00:00",
            "0044-03-15 BC",
            "2020-01-02T03:04:05.1234567",
            "2020-01-02T03:04:05.123456000",
            "2020-01-02T03:04:60",
            "2020-01-02T24:00:00",
            "2020-01-02 03:04:05+00",
            "2020-01-02T03:04:05+05:30",
            "2020-01-02T03:04:05Z ",
            "03:04:05\n",
        ]
    ),
)
strings = st.one_of(
    st.text(max_size=8),
    stamps,
    st.uuids().map(str),
    st.uuids().map(lambda u: str(u).upper()),
    st.binary(max_size=9).map(lambda data: "\\x" + data.hex()),
    st.sampled_from(["NaN", "Infinity", "-Infinity", "1.5", "\\x0", "\\xzz", "", "+1.2", ".5", "1.", "1e3", " 1"]),
)
values = st.one_of(
    st.just("null"), st.sampled_from(["true", "false"]), json_numbers, strings.map(quote), st.just("[1]"), st.just("{}")
)
json_texts = st.recursive(
    st.one_of(st.sampled_from(["null", "true", "false", "NaN", '"\\ud83d\\ude00"', '"\\ud83d"', '"\\/"']), json_numbers)
    | strings.map(quote),
    lambda inner: st.one_of(
        st.builds(
            lambda items, gap: f"[{gap.join(items)}]", st.lists(inner, max_size=3), st.sampled_from([", ", ",", " , "])
        ),
        st.builds(
            lambda items, gap: "{" + ", ".join(f"{name}{gap}{value}" for name, value in items) + "}",
            st.lists(st.tuples(st.sampled_from(["a", "b", 'q"', "\\", "é", "k"]).map(quote), inner), max_size=3),
            st.sampled_from([": ", ": ", ":", " : "]),
        ),
    ),
    max_leaves=6,
)
TYPES = [
    "INT8",
    "INT4",
    "FLOAT8",
    "FLOAT4",
    "BOOL",
    "STRING",
    "BYTES",
    "UUID",
    "DATE",
    "TIMESTAMP",
    "TIMESTAMPTZ",
    "TIME",
    "DECIMAL(12,2)",
    "DECIMAL(38,10)",
    "DECIMAL(38,38)",
    "DECIMAL(5,0)",
    "DECIMAL",
    "JSONB",
    "GEOMETRY",
    "VECTOR",
    "INT4[]",
    "STRING[]",
    "BOOL[]",
    "FLOAT4[]",
    "DECIMAL(12,2)[]",
    "DECIMAL[]",
    "UUID[]",
    "TIMESTAMPTZ[]",
]


def table(type_name: str, key: tuple[str, ...] = ("k",)) -> DecodedTable:
    return DecodedTable("t", source_schema(key=key, k="INT8", v=type_name))


def decode_one(type_name: str, value: str) -> Any:
    decoder = FeedDecoder({0: table(type_name)})
    payload = f'{{"k": 1, "v": {value}}}'.encode()
    return decoder.rows(0, pa.array(["[1]"]), pa.array([payload], pa.binary())).column("v")[0].as_py()


def same(left: pa.Array, right: pa.Array) -> bool:
    def plain(array: pa.Array) -> list[Any]:
        return ["NaN" if isinstance(v, float) and math.isnan(v) else v for v in array.to_pylist()]

    return bool(left.type == right.type and plain(left) == plain(right))


@pytest.mark.slow
@pytest.mark.parametrize("type_name", TYPES)
@given(data=st.data())
@settings(max_examples=150)
def test_what_the_fast_road_returns_the_exact_road_returns(type_name: str, data: st.DataObject) -> None:
    """H29, H39."""
    fitting_of = {
        "BOOL": st.sampled_from(["true", "false"]),
        "STRING": strings.map(quote),
        "UUID": st.uuids().map(lambda u: quote(str(u))),
        "BYTES": st.binary(max_size=9).map(lambda b: quote("\\x" + b.hex())),
        "JSONB": json_texts,
        "GEOMETRY": json_texts,
        "VECTOR": st.lists(json_numbers, max_size=3).map(lambda parts: quote(f"[{','.join(parts)}]")),
    }
    by_prefix = json_numbers if type_name[:3] in ("INT", "FLO", "DEC") else stamps.map(quote)
    fitting = fitting_of.get(type_name.removesuffix("[]"), by_prefix)
    if type_name.endswith("[]"):
        fitting = st.lists(st.one_of(fitting, fitting, st.just("null")), max_size=3).map(lambda i: f"[{', '.join(i)}]")
    cells = data.draw(st.lists(st.one_of(fitting, fitting, values), min_size=1, max_size=4))
    known = table(type_name)
    keys = pa.array(["[1]"] * len(cells))
    payloads = pa.array([f'{{"k": 1, "v": {cell}}}'.encode() for cell in cells], pa.binary())
    try:
        fast = fast_columns(known, known.source_schema.columns, payloads)
    except TakeExactRoad:
        return
    exact = exact_columns(known, known.source_schema.columns, keys, payloads)
    assert all(same(a, b) for a, b in zip(fast, exact, strict=True)), (cells, fast, exact)


@pytest.mark.parametrize(
    ("type_name", "value"),
    [
        ("INT8", "9223372036854775807"),
        ("FLOAT4", "0.1"),
        ("BOOL", "true"),
        ("STRING", '"x"'),
        ("BYTES", '"\\\\x0001"'),
        ("UUID", '"68ee1f95-3137-48e2-8ce3-34ac2d18c7c8"'),
        ("DATE", '"2014-05-28"'),
        ("TIMESTAMP", '"2014-05-28T12:22:35.614298"'),
        ("TIMESTAMPTZ", '"2014-05-28T12:22:35Z"'),
        ("TIME", '"03:04:05.5"'),
        ("DECIMAL(12,2)", "22.30"),
        ("DECIMAL(20,10)", "0E-10"),
        ("FLOAT8", '"NaN"'),
        ("DECIMAL", "1E+30"),
        ("JSONB", '{"a": [1.50, "x\\n", {}], "b": null}'),
        ("JSONB", '{"a":"\\u00e9"}'),
        ("GEOMETRY", '{"coordinates": [1, 2], "type": "Point"}'),
        ("INT8[]", "[1, null, -3]"),
        ("STRING[]", '["x", null, ""]'),
        ("BOOL[]", "[true, null]"),
        ("DECIMAL(12,2)[]", "[1.5, null]"),
        ("VECTOR(3)", '"[1,0.1,-2]"'),
    ],
)
def test_ordinary_values_do_take_the_fast_road(type_name: str, value: str) -> None:
    known = table(type_name)
    payloads = pa.array([f'{{"k": 1, "v": {value}}}'.encode(), b'{"k": 1, "v": null}'], pa.binary())
    found = fast_columns(known, known.source_schema.columns, payloads)
    assert found[1].null_count == 1


@pytest.mark.parametrize(
    ("type_name", "text", "expected"),
    [
        ("INT8", "9223372036854775807", 9223372036854775807),
        ("INT8", "-9223372036854775808", -9223372036854775808),
        ("INT8", "1E+1", 10),
        ("FLOAT8", "1E+1", 10.0),
        ("FLOAT8", '"Infinity"', math.inf),
        ("FLOAT8", '"-Infinity"', -math.inf),
        ("DECIMAL(12,2)", "22.30", Decimal("22.30")),
        ("DECIMAL(12,2)", "1.2000", Decimal("1.20")),
        ("DECIMAL(12,2)", "1E+3", Decimal("1000.00")),
        (
            "DECIMAL(38,10)",
            "1234567890123456789012345678.0123456789",
            Decimal("1234567890123456789012345678.0123456789"),
        ),
        ("DECIMAL", "22.30", "22.30"),
        ("DECIMAL", '"NaN"', "NaN"),
        ("DECIMAL", "1E+400", "1E+400"),
        ("STRING", '"a\\u0000\\n"', "a\x00\n"),
        ("BYTES", '"\\\\x00ff"', b"\x00\xff"),
        ("UUID", '"A0EEBC99-9c0b-4ef8-bb6d-6bb9bd380a11"', bytes.fromhex("a0eebc999c0b4ef8bb6d6bb9bd380a11")),
        ("DATE", '"2014-05-28"', date(2014, 5, 28)),
        ("TIMESTAMP", '"2014-05-28T12:22:35.614298"', datetime(2014, 5, 28, 12, 22, 35, 614298)),  # noqa: DTZ001
        ("TIMESTAMPTZ", '"2014-05-28T16:22:35.614298Z"', datetime(2014, 5, 28, 16, 22, 35, 614298, UTC)),
        ("TIMESTAMPTZ", '"2014-05-28 16:22:35+02"', datetime(2014, 5, 28, 14, 22, 35, 0, UTC)),
        ("TIME", '"24:00:00"', 86_400_000_000),
        ("TIME", '"03:04:05.000001"', 11_045_000_001),
        ("JSONB", '{"b": [1.50, "x\\u00e9", null]}', '{"b": [1.50, "xé", null]}'),
        ("JSONB", "1E+2", "1E+2"),
        ("JSONB", '{"__crdb_json_null__": true}', "null"),
        ("JSONB", '"text"', '"text"'),
        ("GEOMETRY", '{"coordinates": [1, 2.0], "type": "Point"}', '{"coordinates": [1, 2.0], "type": "Point"}'),
        ("INT8[]", "[1, null, 3]", [1, None, 3]),
        ("DECIMAL(5,2)[]", "[1.0, 2.25]", [Decimal("1.00"), Decimal("2.25")]),
        ("TIMESTAMP[]", '["2014-05-28T12:22:35"]', [datetime(2014, 5, 28, 12, 22, 35)]),  # noqa: DTZ001
        ("UUID[]", '["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]', [bytes.fromhex("a0eebc999c0b4ef8bb6d6bb9bd380a11")]),
        ("INTERVAL", '"1 year 2 mons 3 days 04:05:06"', "1 year 2 mons 3 days 04:05:06"),
        ("INET", '"10.1.0.0/16"', "10.1.0.0/16"),
        ("JSONB", "null", None),
    ],
)
def test_values_are_exact(type_name: str, text: str, expected: Any) -> None:
    """H39."""
    assert decode_one(type_name, text) == expected


def test_a_time_is_iceberg_time_if_the_rules_say_so() -> None:
    rules = TypeRules(time_as="time")
    columns = (
        column("k", "INT8", "configuration"),
        *(column(n, t, "configuration", rules=rules) for n, t in (("v", "TIME"), ("w", "TIME[]"))),
    )
    its_shape = SourceSchema(columns, ("k",), "configuration")
    assert [str(known.type) for known in its_shape.columns] == ["long", "time", "list<time>"]
    (row,) = decode_rows(its_shape, ("[1]", '{"k": 1, "v": "23:59:59.999999", "w": ["00:00:00", null]}'))
    assert row == {"k": 1, "v": time(23, 59, 59, 999999), "w": [time(0), None]}
    with pytest.raises(DoesNotFit, match="24:00:00"):
        decode_rows(its_shape, ("[1]", '{"k": 1, "v": "24:00:00"}'))


def test_a_variant_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match="PyArrow has no variant type"):
        TypeRules(json_as="variant")


@pytest.mark.parametrize(
    ("source_type", "iceberg_type", "family"),
    [
        ("FLOAT(24)", "float", Family.FLOAT),
        ("FLOAT(53)", "double", Family.FLOAT),
        ("VECTOR(3)", "list<float>", Family.VECTOR),
        ("CITEXT", "string", Family.COLLATED),
        ("STRING[] COLLATE en", "list<string>", Family.ARRAY),
        ("STRING COLLATE en_US[]", "list<string>", Family.ARRAY),
        ("TIME(3)", "long", Family.TIME),
    ],
)
def test_a_type_is_known_by_its_text(source_type: str, iceberg_type: str, family: Family) -> None:
    known = parse_source_type(source_type)
    assert (str(known.type), known.family) == (iceberg_type, family)


def test_a_row_may_lack_its_key_column_but_not_say_that_it_is_null() -> None:
    """H20."""
    assert decode_rows(source_schema(), ("[1]", '{"b": "\\"a\\": null"}')) == [{"a": 1, "b": '"a": null'}]
    with pytest.raises(BadInput, match="key column a is NULL"):
        decode_rows(source_schema(), ("[1]", '{"a": null}'))


def test_nan_is_a_float() -> None:
    assert math.isnan(decode_one("FLOAT8", '"NaN"'))


@pytest.mark.parametrize(
    ("type_name", "text"),
    [
        ("INT4", "2147483648"),
        ("INT8", "9223372036854775808"),
        ("INT8", "1.5"),
        ("INT8", '"1"'),
        ("INT8", "true"),
        ("DECIMAL(12,2)", "1.234"),
        ("DECIMAL(12,2)", "99999999999"),
        ("DECIMAL(12,2)", '"NaN"'),
        ("DECIMAL(38,10)", "1E+30"),
        ("DECIMAL(38,10)", "6E31"),
        ("DECIMAL(38,38)", "167"),
        ("DECIMAL(12,2)", "0.78E-59"),
        ("DECIMAL(5,0)", "-53E-39"),
        ("DECIMAL(38,10)", "606610010265583226536973.00000000000E-38"),
        ("DECIMAL(12,2)", "0." + "0" * 45 + "1"),
        ("FLOAT4", "1E+39"),
        ("FLOAT8", "1E+400"),
        ("BOOL", "1"),
        ("STRING", "1"),
        ("STRING", "{}"),
        ("BYTES", '"abc"'),
        ("UUID", '"x"'),
        ("DATE", '"infinity"'),
        ("DATE", '"-infinity"'),
        ("DATE", '"0044-03-15 BC"'),
        ("DATE", '"2021-02-30"'),
        ("TIMESTAMP", '"2014-05-28T12:22:35.6142981"'),
        ("TIMESTAMP", '"2014-05-28T12:22:35Z"'),
        ("TIMESTAMPTZ", '"2014-05-28T12:22:35"'),
        ("TIMESTAMP", '"294276-12-31T23:59:59"'),
        ("TIMESTAMP", '"-4713-11-24T00:00:00"'),
        ("INT8[]", '["x"]'),
        ("INT8[]", "1"),
    ],
)
def test_a_value_that_does_not_fit_is_named(type_name: str, text: str) -> None:
    """H39: neither clamped nor rounded."""
    with pytest.raises(DoesNotFit) as caught:
        decode_one(type_name, text)
    assert caught.value.facts["table"] == "t"
    assert caught.value.facts["key"] == "[1]"
    assert caught.value.facts["column"] == "v"
    assert caught.value.facts["value"]
    assert pickle.loads(pickle.dumps(caught.value)).facts == caught.value.facts


def decode_rows(its_shape: SourceSchema, *rows: tuple[str, str]) -> list[dict[str, Any]]:
    keys, payloads = zip(*rows, strict=True)
    batch = FeedDecoder({3: DecodedTable("t", its_shape)}).rows(
        3, pa.array(keys), pa.array([p.encode() for p in payloads], pa.binary())
    )
    return list(batch.to_pylist())


def test_an_unknown_column_is_told_by_name() -> None:
    with pytest.raises(UnknownColumn) as caught:
        decode_rows(source_schema(), ("[1]", '{"a": 1, "z": 1}'), ("[2]", '{"a": 2, "y": "x"}'))
    assert caught.value.facts["columns"] == ["y", "z"]
    assert caught.value.facts["table"] == "t"


def test_an_unknown_column_of_nulls_is_no_column_yet() -> None:
    assert decode_rows(source_schema(), ("[1]", '{"a": 1, "z": null}')) == [{"a": 1, "b": None}]
    assert decode_rows(source_schema(a="INT8", b="JSONB"), ("[1]", '{"a": 1, "z": null}')) == [{"a": 1, "b": None}]


def test_a_missing_column_is_null() -> None:
    assert decode_rows(source_schema(), ("[1]", '{"a": 1}'), ("[2]", "{}")) == [
        {"a": 1, "b": None},
        {"a": 2, "b": None},
    ]


@pytest.mark.parametrize(
    "payload", ["", "null", "[1]", '{"a": 1}{"a": 2}', '{"a": 1} null', '{"a": 1', '{"a": 1, "a": 1}']
)
def test_a_payload_that_is_no_object_is_refused(payload: str) -> None:
    """Also next to others: rows must never shift."""
    with pytest.raises(BadInput):
        decode_rows(source_schema(), ("[1]", payload), ("[1]", '{"a": 1}'))


def test_a_blank_and_a_double_payload_do_not_make_two_rows() -> None:
    with pytest.raises(BadInput):
        decode_rows(source_schema(), ("[1]", ""), ("[1]", '{"a": 1}{"a": 1}'))


def test_a_payload_must_agree_with_its_key() -> None:
    with pytest.raises(BadInput, match="the key of table t changed"):
        decode_rows(source_schema(), ("[1]", '{"a": 1}'), ("[2]", '{"a": 3}'))


def test_an_unbounded_decimal_key_is_written_in_its_canonical_spelling() -> None:
    """H51: a later delete must find the row."""
    its_shape = source_schema(a="DECIMAL", b="DECIMAL")
    assert decode_rows(its_shape, ("[1]", '{"a": 1.00, "b": 2.50}')) == [{"a": "1", "b": "2.50"}]


def test_a_decoder_crosses_to_executors() -> None:
    decoder = pickle.loads(pickle.dumps(FeedDecoder({0: table("INT8")})))
    assert decoder.keys(0, pa.array(["[7]"])).to_pylist() == [{"k": 7}]


def test_many_slices_are_one_batch() -> None:
    count = 70_000
    keys = pa.array([f"[{i}]" for i in range(count)])
    payloads = pa.array([f'{{"a": {i}}}'.encode() for i in range(count)], pa.binary())
    batch = FeedDecoder({0: DecodedTable("t", source_schema())}).rows(
        0, pa.chunked_array([keys]), pa.chunked_array([payloads])
    )
    assert batch.column("a").to_pylist() == list(range(count))


def test_no_rows_make_an_empty_batch_of_the_right_types() -> None:
    batch = FeedDecoder({0: table("DECIMAL(12,2)")}).rows(0, pa.array([], pa.string()), pa.array([], pa.binary()))
    assert batch.schema.types == [pa.int64(), pa.decimal128(12, 2)]


KEY_SPELLINGS = [
    ("INT8", ["1", "1E0", "1.0"], 1),
    ("DECIMAL(10,2)", ["1", "1.0", "1.00", "1E0"], Decimal("1.00")),
    ("DECIMAL", ["10", "10.0", "1E+1"], "10"),
    ("DECIMAL", ["0", "-0.00"], "0"),
    ("UUID", ['"A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"', '"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"'], None),
    ("TIMESTAMPTZ", ['"2020-01-02T03:04:05Z"', '"2020-01-02 04:04:05+01"', '"2020-01-02T03:04:05.000Z"'], None),
    ("TIMESTAMP", ['"2020-01-02T03:04:05.5"', '"2020-01-02 03:04:05.500"'], None),
    ("BYTES", ['"\\\\xAB"', '"\\\\xab"'], b"\xab"),
    ("DATE", ['"2020-01-02"'], date(2020, 1, 2)),
    ("TIME", ['"03:04:05.50"', '"03:04:05.5"'], 11_045_500_000),
    ("BOOL", ["true"], True),
    ("STRING", ['"x\\u00e9\\n"', '"xé\\n"'], "xé\n"),
]


@pytest.mark.parametrize(("type_name", "spellings", "expected"), KEY_SPELLINGS)
def test_one_key_in_several_spellings_is_one_key(type_name: str, spellings: list[str], expected: Any) -> None:
    """H51."""
    columns = source_schema(key=["k"], k=type_name).key_columns
    rule = KeyRule("t", columns)
    texts = {rule.spell([loads(spelling)]) for spelling in spellings}
    assert len(texts) == 1
    decoder = FeedDecoder({0: DecodedTable("t", source_schema(key=["k"], k=type_name))})
    value = decoder.keys(0, pa.array(sorted(texts))).column("k")[0].as_py()
    assert expected is None or value == expected


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.text(max_size=6), st.uuids()), min_size=1, max_size=5))
@example([(0, '", "', UUID(int=0))])
@settings(max_examples=100)
def test_keys_of_several_columns_decode_to_what_was_spelled(rows: list[tuple[Any, ...]]) -> None:
    its_shape = source_schema(key=["i", "s", "u"], i="INT8", s="STRING", u="UUID")
    texts = [f"[{i}, {quote(s)}, {quote(str(u))}]" for i, s, u in rows]
    found = FeedDecoder({0: DecodedTable("t", its_shape)}).keys(0, pa.array(texts)).to_pylist()
    assert found == [{"i": i, "s": s, "u": u.bytes} for i, s, u in rows]


KEY_VALUES = {
    "INT8": st.integers(-99, 99).map(lambda i: (str(i), i)),
    "STRING": st.text("ab ,\\", max_size=3).map(lambda s: (quote(s), s)),
}


@pytest.mark.parametrize("count", range(2, 13))
@given(data=st.data())
@settings(max_examples=20)
def test_keys_of_any_number_of_columns_decode_to_what_was_spelled(count: int, data: st.DataObject) -> None:
    """Ten columns and more too, which a regex's rewriting has no names for."""
    types = data.draw(st.lists(st.sampled_from(["INT8", "INT8", "INT8", "STRING"]), min_size=count, max_size=count))
    rows = data.draw(st.lists(st.tuples(*(KEY_VALUES[type_name] for type_name in types)), min_size=1, max_size=3))
    named = {f"k{i}": type_name for i, type_name in enumerate(types)}
    decoder = FeedDecoder({0: DecodedTable("t", source_schema(key=list(named), **named))})
    texts = [f"[{', '.join(text for text, _ in row)}]" for row in rows]
    found = decoder.keys(0, pa.array(texts)).to_pylist()
    assert found == [dict(zip(named, (value for _, value in row), strict=True)) for row in rows]


@pytest.mark.parametrize(
    "type_name",
    ["FLOAT8", "FLOAT4", "JSONB", "INT8[]", "VECTOR(3)", "STRING COLLATE en-u-ks-level2", "CITEXT", "GEOMETRY"],
)
def test_a_key_that_cannot_identify_rows_is_refused(type_name: str) -> None:
    """H21, and collations of H51."""
    with pytest.raises(ConfigError, match="cannot be part of the key") as caught:
        KeyRule("t", source_schema(key=["k"], k=type_name).key_columns)
    assert isinstance(caught.value, FrazilError)
    assert caught.value.hint


@pytest.mark.parametrize("type_name", ["INT8", "INT4", "INT2"])
@given(data=st.data())
@settings(max_examples=40)
def test_whole_number_keys_decode_to_what_was_spelled(type_name: str, data: st.DataObject) -> None:
    bits = int(type_name[3:]) * 8
    values = data.draw(st.lists(st.integers(-(1 << bits - 1), (1 << bits - 1) - 1), min_size=1, max_size=30))
    decoder = FeedDecoder({0: DecodedTable("t", source_schema(key=["id"], id=type_name))})
    found = decoder.keys(0, pa.array([f"[{value}]" for value in values], pa.string()).slice(1))
    assert found.column("id").to_pylist() == values[1:]


@pytest.mark.parametrize("key", ["[0x1F]", "[1, 2]", "[]", '["7"]x', "[-]", "[9223372036854775808]"])
def test_a_key_that_is_no_whole_number_is_refused(key: str) -> None:
    decoder = FeedDecoder({0: DecodedTable("t", source_schema(key=["id"], id="INT8"))})
    with pytest.raises(BadInput):
        decoder.keys(0, pa.array(["[1]", key], pa.string()))
