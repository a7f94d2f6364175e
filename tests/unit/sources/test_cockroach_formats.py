"""CSV and Parquet rows become what a JSON feed would have carried."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cockroach_feed import Feed, Pipeline, at, source_schema
from cockroach_parquet import ENUM_TYPE, JSON_TYPE, STRING_TYPE, TIME_TYPE, UUID_TYPE, decimal, write
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import BadInput, ConfigError, DoesNotFit
from frazil.model.schema import Column, SourceSchema
from frazil.sources.cockroachdb.decode.formats.footer import NotParquet, fields_in, physical, struct_of
from frazil.sources.cockroachdb.decode.formats.parquet_rows import parquet_rows
from frazil.sources.cockroachdb.decode.formats.sqltext import array_items
from frazil.sources.cockroachdb.decode.values import Misfit
from frazil.sources.cockroachdb.source import TableSettings

U = UUID("2fec7a4b-0a78-40ce-92e0-d1c0fac70436")
TEXT = pa.binary()


def crdb(rows: int, event: str = "c", **columns: Any) -> dict[str, Any]:
    return {
        **columns,
        "__crdb__event_type": (TEXT, [event.encode()] * rows),
        "__crdb__updated": (TEXT, [str(at(1)).encode()] * rows),
    }


META = {"__crdb__event_type": STRING_TYPE, "__crdb__updated": STRING_TYPE}


def odd_decimals() -> bytes:
    texts = [b"0.000000000", None, b"3.140000000", b"-1.234567890", b"NaN"]
    columns = crdb(5, i=(pa.int64(), [0, 1, 2, 3, 4]), d=(TEXT, texts))
    return write(columns, {"d": decimal(18, 9), **META})


def test_the_crafted_file_is_as_odd_as_the_real_ones() -> None:
    """An ordinary reader believes the annotation, and is wrong."""
    data = odd_decimals()
    assert pq.read_schema(io.BytesIO(data)).field("d").type == pa.decimal128(18, 9)
    try:
        trusting = pq.read_table(io.BytesIO(data)).column("d").to_pylist()
    except (pa.ArrowException, OSError):
        return
    assert str(trusting[2]) != "3.140000000"


def test_decimals_are_read_as_the_text_they_are() -> None:
    found = [
        row.row["d"]
        for row in parquet_rows(odd_decimals(), "f", "t", source_schema(key=["i"], i="INT8", d="DECIMAL(18,9)"))
    ]
    assert found == ["0.000000000", None, "3.140000000", "-1.234567890", "NaN"]


def test_a_precision_that_no_reader_accepts_is_no_obstacle() -> None:
    data = write(crdb(1, i=(pa.int64(), [1]), d=(TEXT, [b"1.5"])), {"d": decimal(2147483647, 0), **META})
    (row,) = parquet_rows(data, "f", "t", None)
    assert row.row == {"i": "1", "d": "1.5"}
    assert row.updated == str(at(1))


@pytest.fixture
def every_type() -> bytes:
    columns = crdb(
        1,
        i8=(pa.int64(), [2**62]),
        i4=(pa.int32(), [-5]),
        f8=(pa.float64(), [0.1]),
        inf=(pa.float64(), [float("-inf")]),
        b=(pa.bool_(), [True]),
        s=(TEXT, ["hé".encode()]),
        by=(TEXT, [b"\x00\xff"]),
        u=(pa.binary(16), [U.bytes]),
        ts=(TEXT, [b"2020-01-02 03:04:05.6"]),
        tz=(TEXT, [b"2020-01-02 03:04:05.6+00"]),
        t=(pa.int64(), [11045500000]),
        j=(TEXT, [b'{"a": 1.50}']),
        e=(TEXT, [b"open"]),
        bit=(TEXT, [b"0101"]),
        arr=(pa.list_(TEXT), [[b"1.50", None]]),
        lsn=(pa.int64(), [10 << 32]),
        oid=(pa.int32(), [7]),
    )
    marks = {
        "s": STRING_TYPE,
        "u": UUID_TYPE,
        "ts": STRING_TYPE,
        "tz": STRING_TYPE,
        "t": TIME_TYPE,
        "j": JSON_TYPE,
        "e": ENUM_TYPE,
        "arr.element": decimal(4, 2),
        **META,
    }
    return write(columns, marks)


PINNED = {
    "i8": "INT8",
    "i4": "INT4",
    "f8": "FLOAT8",
    "inf": "FLOAT8",
    "b": "BOOL",
    "s": "STRING",
    "by": "BYTES",
    "u": "UUID",
    "ts": "TIMESTAMP",
    "tz": "TIMESTAMPTZ",
    "t": "TIME",
    "j": "JSONB",
    "e": "ENUM",
    "bit": "VARBIT",
    "arr": "DECIMAL(4,2)[]",
    "lsn": "PG_LSN",
    "oid": "OID",
}


def test_every_parquet_type_decodes_as_in_a_json_feed(every_type: bytes, tmp_path: Path) -> None:
    """H29: one golden row for both formats."""
    its_shape = source_schema(key=["i8"], **PINNED)
    json_line = (
        '{"after": {"arr": [1.50, null], "b": true, "bit": "0101", "by": "\\\\x00ff", "e": "open", "f8": 0.1, '
        '"i4": -5, "i8": 4611686018427387904, "inf": "-Infinity", "j": {"a": 1.50}, "lsn": "A/0", "oid": "7", '
        '"s": "hé", "t": "03:04:05.5", "ts": "2020-01-02T03:04:05.6", "tz": "2020-01-02T03:04:05.6Z", '
        f'"u": "{U}"}}, "key": [4611686018427387904], "updated": "{at(1)}"}}'
    )
    rows = []
    for name, body, extension in (("p", every_type, "parquet"), ("j", json_line.encode() + b"\n", "ndjson")):
        feed = Feed(tmp_path / name)
        feed.data(at(0), body, extension=extension)
        feed.resolved(at(2))
        run = Pipeline(feed, {"t": its_shape})
        run.drain()
        rows.append(run.rows())
    assert rows[0] == rows[1]
    assert rows[0][0]["t"] == 11045500000


def test_a_json_null_is_no_sql_null_in_any_format_that_tells_them_apart(tmp_path: Path) -> None:
    """H29: as a JSON feed with encode_json_value_null_as_object. Inside of a tuple no feed tells them apart."""
    lines = [
        f'{{"after": {{"j": {{"__crdb_json_null__": true}}, "n": null, "i": 1}}, "key": [1], "updated": "{at(1)}"}}'
    ]
    tuples = pa.struct([("j", TEXT)])
    columns = crdb(1, i=(pa.int64(), [1]), j=(TEXT, [b"null"]), n=(TEXT, [None]), tup=(tuples, [{"j": b"null"}]))
    parquet = write(columns, {"j": JSON_TYPE, "n": JSON_TYPE, "tup.j": JSON_TYPE, **META})
    its_shape = source_schema(key=["i"], i="INT8", j="JSONB", n="JSONB")
    feed = Feed(tmp_path / "j")
    feed.data(at(0), "\n".join(lines).encode(), extension="ndjson")
    feed.resolved(at(2))
    run = Pipeline(feed, {"t": its_shape})
    run.drain()
    assert run.rows() == [{"i": 1, "j": "null", "n": None}]
    assert run_csv(tmp_path / "c", "1,null,NULL\n", its_shape).rows() == run.rows()
    feed = Feed(tmp_path / "p")
    feed.data(at(0), parquet, extension="parquet")
    feed.resolved(at(2))
    of_parquet = Pipeline(feed, {"t": source_schema(key=["i"], i="INT8", j="JSONB", n="JSONB", tup="TUPLE")})
    of_parquet.drain()
    assert of_parquet.rows() == [{**run.rows()[0], "tup": '{"j": null}'}]


def test_a_parquet_delete_removes_its_row(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    feed.data(at(0), odd_decimals(), extension="parquet")
    feed.resolved(at(2))
    gone = {
        "i": (pa.int64(), [2]),
        "d": (TEXT, [None]),
        "__crdb__event_type": (TEXT, [b"d"]),
        "__crdb__updated": (TEXT, [str(at(3)).encode()]),
    }
    feed.data(at(2, 1), write(gone, {"d": decimal(18, 9), **META}), extension="parquet")
    feed.resolved(at(4))
    run = Pipeline(feed, {"t": source_schema(key=["i"], i="INT8", d="DECIMAL")})
    run.drain()
    assert [(row["i"], row["d"]) for row in run.rows()] == [
        (0, "0.000000000"),
        (1, None),
        (3, "-1.234567890"),
        (4, "NaN"),
    ]


def test_parquet_rows_without_commit_time_ask_for_updated(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    columns = {"i": (pa.int64(), [1]), "__crdb__event_type": (TEXT, [b"c"])}
    feed.data(at(0), write(columns, META), extension="parquet")
    feed.resolved(at(2))
    with pytest.raises(BadInput) as caught:
        Pipeline(feed, {"t": source_schema(key=["i"], i="INT8")}).drain()
    assert "WITH updated" in caught.value.hint


def test_shapes_of_parquet_files_are_refused_rather_than_read_differently() -> None:
    """H29: JSON feeds carry GeoJSON."""
    data = write(crdb(1, i=(pa.int64(), [1]), g=(TEXT, [b"\x01"])), META)
    with pytest.raises(DoesNotFit, match="EWKB"):
        list(parquet_rows(data, "f", "t", source_schema(key=["i"], i="INT8", g="GEOMETRY")))


@pytest.mark.parametrize("cut", [0, 3, 20, -1, -9])
def test_a_torn_parquet_file_is_refused(cut: int) -> None:
    with pytest.raises(BadInput):
        list(parquet_rows(odd_decimals()[:cut], "f", "t", None))


def test_a_footer_survives_parsing_unchanged() -> None:
    data = odd_decimals()
    size = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - size : -8]
    assert struct_of(fields_in(footer)).raw == footer


@given(st.binary(max_size=60))
def test_garbage_is_refused_as_no_parquet_file_and_not_otherwise(data: bytes) -> None:
    size = len(data).to_bytes(4, "little")
    with contextlib.suppress(NotParquet):
        physical(b"PAR1" + data + size + b"PAR1")


CSV = {"id": "INT8", "name": "STRING", "amount": "DECIMAL(10,2)", "at": "TIMESTAMPTZ", "tags": "STRING[]"}


def run_csv(
    root: Path, text: str, its_shape: SourceSchema | None = None, header: bool = False, **kwargs: str
) -> Pipeline:
    feed = Feed(root)
    feed.data(at(0), text.encode(), extension=kwargs.get("extension", "csv"))
    settings = {"t": TableSettings(csv_header=header)}
    run = Pipeline(feed, {"t": its_shape or source_schema(key=["id"], **CSV)}, settings=settings, complete=True)
    run.drain()
    return run


def test_csv_rows_are_values_in_table_order(tmp_path: Path) -> None:
    text = (
        "1,Alice,1.50,2020-01-02 03:04:05.6+00,\"ARRAY['a','it''s',NULL]\"\n"
        '2,"a ""quoted"", name\nover lines",NULL,NULL,ARRAY[]\n'
    )
    first, second = run_csv(tmp_path, text).rows()
    assert (first["id"], first["name"], str(first["amount"])) == (1, "Alice", "1.50")
    assert first["tags"] == ["a", "it's", None]
    assert first["at"].isoformat() == "2020-01-02T03:04:05.600000+00:00"
    assert second["name"] == 'a "quoted", name\nover lines'
    assert second["amount"] is None
    assert second["tags"] == []


def test_the_string_null_in_a_column_that_cannot_be_null_is_text(tmp_path: Path) -> None:
    columns = (
        Column("id", source_schema().columns[1].type, "STRING", "configuration"),
        Column("must", source_schema().columns[1].type, "STRING", "configuration", required=True),
        Column("may", source_schema().columns[1].type, "STRING", "configuration"),
    )
    run = run_csv(tmp_path, "NULL,NULL,NULL\n", SourceSchema(columns, ("id",), "configuration"))
    assert run.rows() == [{"id": "NULL", "must": "NULL", "may": None}]


def test_a_csv_header_names_the_columns(tmp_path: Path) -> None:
    run = run_csv(tmp_path, "name,id\nBob,2\n", header=True)
    assert [(row["id"], row["name"], row["amount"]) for row in run.rows()] == [(2, "Bob", None)]


@pytest.mark.parametrize(("text", "header"), [("\nNULL\nx\n", False), ("s\n\nNULL\nx\n", True)])
def test_a_blank_line_is_the_empty_string_of_a_table_with_one_column(tmp_path: Path, text: str, header: bool) -> None:
    """CockroachDB does not quote an empty field: the row ('') prints as an empty line."""
    run = run_csv(tmp_path, text, source_schema(key=["s"], s="STRING"), header=header)
    assert sorted(row["s"] for row in run.rows()) == ["", "NULL", "x"]


def test_a_blank_line_is_no_row_of_a_table_with_more_columns(tmp_path: Path) -> None:
    run = run_csv(tmp_path, "1,a\n\n2,b\n\n", source_schema(a="INT8", b="STRING"))
    assert [row["a"] for row in run.rows()] == [1, 2]


def test_an_unknown_csv_header_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nickname"):
        run_csv(tmp_path, "nickname,id\nBob,2\n", header=True)


@pytest.mark.parametrize("extension", ["csv.gz", "csv.zst"])
def test_compressed_csv_is_read(tmp_path: Path, extension: str) -> None:
    run = run_csv(tmp_path, "1,Alice\n2,Bob\n", source_schema(a="INT8", b="STRING"), extension=extension)
    assert len(run.rows()) == 2


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("1,a\n2\n", 2, "1 fields"),
        ("1,a\nx,b\n", 2, "number"),
        ('1,"a\nb"\nx,c\n', 3, "number"),
        ('1,"a"b\n', 1, "CSV"),
    ],
)
def test_a_bad_csv_record_is_named_by_file_and_line(tmp_path: Path, text: str, line: int, what: str) -> None:
    with pytest.raises(BadInput, match=what) as caught:
        run_csv(tmp_path, text, source_schema(a="INT8", b="STRING"))
    assert f".csv:{line}:" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("ARRAY[]", []),
        ("ARRAY[1,2]", ["1", "2"]),
        ("ARRAY[NULL,'NULL']", [None, "NULL"]),
        ("ARRAY['a,b','c]d']", ["a,b", "c]d"]),
        (r"ARRAY[e'a\nb\'c\x41']", ["a\nb'cA"]),
    ],
)
def test_sql_arrays_are_parsed(text: str, items: list[str | None]) -> None:
    assert array_items(text) == items


@pytest.mark.parametrize("text", ["{1,2}", "ARRAY[1", "ARRAY['a]", "ARRAY[1,]", "ARRAY[,1]"])
def test_broken_arrays_are_refused(text: str) -> None:
    with pytest.raises(Misfit):
        array_items(text)
