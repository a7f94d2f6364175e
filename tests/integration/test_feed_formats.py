"""Every layout, envelope and file format a changefeed may have, end to end."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from feed_builders import Lab, at, column_types, delete, table, upsert
from pyspark.sql import SparkSession
from unit.sources.cockroach_parquet import JSON_TYPE, STRING_TYPE, UUID_TYPE, decimal, write

from frazil.errors import BadInput, SourceLost
from frazil.sources.cockroachdb.position import Hlc

pytestmark = pytest.mark.spark

U1, U2 = UUID(int=1, version=4), UUID(int=2**127 - 1, version=4)
HOUR = 3600


@pytest.fixture
def lab(spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path) -> Lab:
    return Lab(spark, warehouse, namespace, tmp_path)


def line(**fields: Any) -> str:
    """A message as CockroachDB prints it: keys sorted."""
    return json.dumps(fields, sort_keys=True)


# layouts


@pytest.mark.parametrize("layout", ["flat", "daily", "hourly"])
def test_a_feed_is_followed_over_hours_and_days(
    spark: SparkSession, warehouse: Path, namespace: str, tmp_path: Path, layout: str
) -> None:
    lab = Lab(spark, warehouse, namespace, tmp_path, layout)
    expected: dict[int, str] = {}
    for step in range(4):
        start = 10 * HOUR * step
        lines = [upsert([n], at(start + 1), a=n, b=f"{step}") for n in range(step, step + 3)]
        expected |= dict.fromkeys(range(step, step + 3), f"{step}")
        lab.feed.data(at(start), [*lines, upsert([50], at(start + 9), a=50, b=f"beyond {step}")])
        lab.feed.resolved(at(start + 5))
        if step % 2:
            lab.run()
    last = at(30 * HOUR + 5)
    assert lab.rows(resolved=last) == [{"a": a, "b": b} for a, b in sorted([*expected.items(), (50, "beyond 2")])]
    assert len(lab.resolved()) == 4


# envelopes


def test_the_wrapped_envelope_with_all_its_options(lab: Lab) -> None:
    """diff, mvcc_timestamp, full_table_name and topic_in_value together, and a column named like the envelope's."""
    topic = "shop.public.t"
    lab.tables = [table(topic, columns={"a": "INT8", "after": "STRING", "key": "STRING", "before": "STRING"})]

    def change(a: int, updated: Hlc, after: Any, before: Any) -> str:
        return line(after=after, before=before, key=[a], mvcc_timestamp=updated.text, topic=topic, updated=updated.text)

    first = {"a": 1, "after": ', "key": [9]', "before": None, "key": 'x", "key": [1], "updated": "'}
    second = {"a": 1, "after": ', "before": {', "before": "b", "key": "[1]"}
    lab.feed.data(at(1), [change(1, at(1), first, None), change(2, at(1), {**first, "a": 2}, None)], topic=topic)
    lab.feed.resolved(at(2))
    lab.feed.data(at(3), [change(1, at(3), second, first), change(2, at(3), None, {**first, "a": 2})], topic=topic)
    lab.feed.resolved(at(4))
    lab.run()
    assert lab.rows(resolved=at(2), order="a") == [first, {**first, "a": 2}]
    assert lab.rows(order="a") == [second]


def test_the_bare_envelope_with_an_op_column(lab: Lab) -> None:
    """A CDC query: CREATE CHANGEFEED ... AS SELECT event_op() AS op, a, b FROM t."""
    lab.source = {"envelope": "bare", "op_column": "op"}

    def bare(updated: Hlc, **columns: Any) -> str:
        return line(__crdb__={"updated": updated.text}, **columns)

    lab.feed.data(at(1), [bare(at(1), op="insert", a=1, b="x"), bare(at(1), op="upsert", a=2, b=None)])
    lab.feed.resolved(at(2))
    lab.feed.data(at(3), [bare(at(3), op="delete", a=1, b=None), bare(at(3), op="update", a=2, b="y")])
    lab.feed.resolved(at(4))
    lab.run()
    assert lab.rows(resolved=at(2)) == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
    assert lab.rows() == [{"a": 2, "b": "y"}]


def test_a_bare_row_of_nulls_is_refused_until_the_operator_says_what_it_is(lab: Lab) -> None:
    lab.feed.data(at(1), [line(__crdb__={"key": [n], "updated": at(1).text}, a=n, b="x") for n in (1, 2)])
    lab.feed.resolved(at(2))
    lab.run()
    path = lab.feed.data(at(3), [line(__crdb__={"key": [1], "updated": at(3).text}, a=1, b=None)])
    lab.feed.resolved(at(4))
    with pytest.raises(BadInput) as refused:
        lab.run()
    assert f"{path}:1" in str(refused.value)
    assert "bare_deletes" in refused.value.hint
    assert lab.rows() == [{"a": 1, "b": "x"}, {"a": 2, "b": "x"}]
    lab.source = {"bare_deletes": "all-null"}
    lab.run()
    assert lab.rows() == [{"a": 2, "b": "x"}]


ENRICHED_FIELDS = [
    {"field": "a", "optional": False, "type": "int64"},
    {"field": "price", "name": "decimal", "optional": True, "parameters": {"precision": "10", "scale": "2"},
     "type": "float64"},
    {"field": "made", "name": "timestamp", "optional": True, "type": "string"},
]  # fmt: skip


def enriched(a: int, updated: Hlc, after: Any, *, schema: bool) -> str:
    source = {"ts_hlc": updated.text, "ts_ns": updated.wall, "primary_keys": ["a"], "table_name": "t", "job_id": "7"}
    payload = {
        "after": after,
        "key": {"a": a},
        "op": "d" if after is None else "c",
        "source": source,
        "ts_ns": updated.wall + 5,
    }
    if not schema:
        return line(**payload)
    fields = [{"field": "after", "fields": ENRICHED_FIELDS, "name": "t.after.value", "optional": False,
               "type": "struct"}]  # fmt: skip
    return line(payload=payload, schema={"fields": fields, "name": "cockroachdb.envelope", "type": "struct"})


@pytest.mark.parametrize("schema", [True, False])
def test_the_enriched_envelope_needs_no_pins(lab: Lab, schema: bool) -> None:
    """The key columns come from the message; with enriched_properties=schema the types do too."""
    lab.tables = [table(key=(), columns={})]
    rows = {n: {"a": n, "made": "2025-04-01T17:55:46.812942", "price": 22.25} for n in (1, 2)}
    lab.feed.data(at(1), [enriched(n, at(1), row, schema=schema) for n, row in rows.items()])
    lab.feed.resolved(at(2))
    later = [enriched(1, at(3), None, schema=schema), enriched(2, at(3), {**rows[2], "price": 0.5}, schema=schema)]
    lab.feed.data(at(3), later)
    lab.feed.resolved(at(4))
    lab.run()
    types = column_types(lab.spark, lab.sql_name("t"))
    (left,) = lab.rows()
    if schema:
        assert types == {"a": "bigint", "price": "decimal(10,2)", "made": "timestamp_ntz"}
        assert (left["a"], left["price"], left["made"].isoformat()) == (
            2,
            Decimal("0.50"),
            "2025-04-01T17:55:46.812942",
        )
    else:
        assert types == {"a": "bigint", "made": "string", "price": "decimal(38,10)"}
        assert left == {"a": 2, "made": "2025-04-01T17:55:46.812942", "price": Decimal("0.5")}


def test_enriched_messages_without_commit_times_are_refused(lab: Lab) -> None:
    """enriched_properties without source: the top-level ts_ns is no commit time, and is never used as one."""
    path = lab.feed.data(at(1), [line(after={"a": 1, "b": "x"}, key={"a": 1}, op="c", ts_ns=at(1).wall)])
    lab.feed.resolved(at(2))
    with pytest.raises(BadInput, match="without commit time") as refused:
        lab.run()
    assert f"{path}:1" in str(refused.value)
    assert "source" in refused.value.hint


# feeds that have ended


def test_a_csv_export_is_one_snapshot(lab: Lab) -> None:
    lab.source = {"complete": True}
    columns = {"a": "INT8", "b": "STRING", "c": "DECIMAL(8,2)", "d": "TIMESTAMP", "e": "BYTES", "f": "INT8[]"}
    lab.tables = [table(columns=columns)]
    lab.feed.data(
        at(1),
        b'1,"a, ""quoted""\nline",22.30,2020-01-02 03:04:05.6,\\x00ff,"ARRAY[1,NULL,3]"\n2,NULL,NULL,NULL,NULL,NULL\n',
        extension="csv",
    )
    lab.feed.data(at(2), b"3,third,-0.50,2020-01-02 03:04:05,\\x,ARRAY[]\n", extension="csv.gz", number=1)
    assert lab.run().epochs == 1
    first, second, third = lab.rows()
    assert (first["b"], first["c"], bytes(first["e"]), first["f"]) == (
        'a, "quoted"\nline', Decimal("22.30"), b"\x00\xff", [1, None, 3],
    )  # fmt: skip
    assert first["d"].isoformat() == "2020-01-02T03:04:05.600000"
    assert second == {"a": 2, "b": None, "c": None, "d": None, "e": None, "f": None}
    assert (third["b"], third["c"], bytes(third["e"]), third["f"]) == ("third", Decimal("-0.50"), b"", [])
    assert lab.run().epochs == 0


def test_a_csv_export_with_a_header_may_name_its_columns_in_any_order(lab: Lab) -> None:
    lab.source = {"complete": True, "csv_header": True}
    lab.feed.data(at(1), b"b,a\nx,1\ny,2\n", extension="csv")
    lab.run()
    assert lab.rows() == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


@pytest.mark.parametrize("pinned", [True, False])
def test_an_export_without_resolved_timestamps_is_published_once_it_is_declared_complete(
    lab: Lab, pinned: bool
) -> None:
    """initial_scan='only': neither resolved files nor commit times."""
    if not pinned:
        lab.tables = [table(key=(), columns={})]
    for number, name in enumerate(["x", "y"]):
        lines = [line(after={"a": 10 * number + n, "b": name}, key=[10 * number + n]) for n in range(3)]
        lab.feed.data(at(1), lines, number=number)
    assert lab.run().epochs == 0
    lab.source = {"complete": True}
    assert lab.run().rows == 6
    expected = [{"a": 10 * number + n, "b": name} for number, name in enumerate(["x", "y"]) for n in range(3)]
    assert lab.rows() == expected
    assert lab.run().epochs == 0
    lab.feed.data(at(2), [line(after={"a": 99, "b": "z"}, key=[99])])
    with pytest.raises(SourceLost, match="complete"):
        lab.run()
    assert lab.rows() == expected


# parquet


def parquet_file(rows: list[tuple[int, str, bytes | None, UUID | None, bytes | None, Hlc]]) -> bytes:
    """(a, event, decimal text, uuid, json text, updated) as CockroachDB writes them: decimals as text."""
    text = pa.binary()
    columns = {
        "a": (pa.int64(), [r[0] for r in rows]),
        "price": (text, [r[2] for r in rows]),
        "u": (pa.binary(16), [None if r[3] is None else r[3].bytes for r in rows]),
        "doc": (text, [r[4] for r in rows]),
        "__crdb__event_type": (text, [r[1].encode() for r in rows]),
        "__crdb__updated": (text, [r[5].text.encode() for r in rows]),
    }
    meta = {"__crdb__event_type": STRING_TYPE, "__crdb__updated": STRING_TYPE}
    return write(columns, {"price": decimal(12, 2), "u": UUID_TYPE, "doc": JSON_TYPE, **meta})


def resolved_as_parquet(lab: Lab, stamp: Hlc) -> None:
    """The resolved files of a Parquet feed are Parquet files themselves; only their names are read."""
    path = lab.feed.root / lab.feed.resolved(stamp)
    path.write_bytes(write({"__crdb__resolved": (pa.binary(), [stamp.text.encode()])},
                           {"__crdb__resolved": decimal(2147483647, 0)}))  # fmt: skip


def test_a_parquet_feed(lab: Lab) -> None:
    lab.tables = [table(columns={"a": "INT8", "price": "DECIMAL(12,2)", "u": "UUID", "doc": "JSONB"})]
    lab.feed.data(
        at(1),
        parquet_file([(1, "c", b"22.30", U1, b'{"k": 1.50}', at(1)), (2, "c", b"-0.01", U2, None, at(1))]),
        extension="parquet",
    )
    resolved_as_parquet(lab, at(2))
    lab.feed.data(
        at(3),
        parquet_file(
            [
                (1, "d", None, None, None, at(3)),
                (2, "u", None, U1, b"[1, null]", at(3)),
                (3, "c", b"1.00", None, None, at(9)),
            ]
        ),
        extension="parquet",
    )
    resolved_as_parquet(lab, at(4))
    lab.run()
    assert lab.rows(resolved=at(2)) == [
        {"a": 1, "price": Decimal("22.30"), "u": str(U1), "doc": '{"k": 1.50}'},
        {"a": 2, "price": Decimal("-0.01"), "u": str(U2), "doc": None},
    ]
    assert lab.rows() == [{"a": 2, "price": None, "u": str(U1), "doc": "[1, null]"}]
    resolved_as_parquet(lab, at(10))
    lab.run()
    assert [row["a"] for row in lab.rows()] == [2, 3]


def test_a_parquet_feed_without_pins_needs_only_its_key(lab: Lab) -> None:
    lab.tables = [table(columns={})]
    lab.feed.data(at(1), parquet_file([(1, "c", b"22.30", U1, b"{}", at(1))]), extension="parquet")
    resolved_as_parquet(lab, at(2))
    lab.run()
    (row,) = lab.rows()
    assert (row["a"], row["u"]) == (1, str(U1))
    assert Decimal(row["price"]) == Decimal("22.30")


def test_a_delete_without_key_columns_in_the_row_is_found_by_its_key(lab: Lab) -> None:
    """Composite keys, in key order, which is not the order of the columns."""
    lab.tables = [table(key=["b", "a"])]
    lab.feed.data(at(1), [upsert(["x", 1], at(1), a=1, b="x"), upsert(["y", 1], at(1), a=1, b="y")])
    lab.feed.resolved(at(2))
    lab.feed.data(at(3), [delete(["x", 1], at(3))])
    lab.feed.resolved(at(4))
    lab.run()
    assert lab.rows() == [{"a": 1, "b": "y"}]
