"""Every documented sample of CockroachDB's output decodes, or is told what it is."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cockroach_feed import source_schema
from cockroach_parquet import STRING_TYPE, UUID_TYPE, decimal, write

from frazil.errors import BadInput
from frazil.model.change import Op
from frazil.model.schema import SourceSchema
from frazil.sources.cockroachdb.decode.decoder import DecodedTable, FeedDecoder
from frazil.sources.cockroachdb.decode.envelope import (
    BareDeletes,
    Envelope,
    EnvelopeOptions,
    Message,
    change_of,
    open_message,
)
from frazil.sources.cockroachdb.decode.exact_json import dumps, loads
from frazil.sources.cockroachdb.decode.formats.parquet_rows import parquet_rows
from frazil.sources.cockroachdb.decode.formats.sqltext import json_of
from frazil.sources.cockroachdb.decode.keys import KeyRule
from frazil.sources.cockroachdb.feed.file_names import FeedFile, ResolvedFile, parse_name
from frazil.sources.cockroachdb.position import Hlc
from frazil.sources.cockroachdb.schema.profile import of_value
from frazil.sources.cockroachdb.schema.schema import inferred_type
from frazil.sources.cockroachdb.schema.types import parse_source_type

SAMPLES = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "fixtures" / "cockroachdb" / "samples.ndjson").read_text().splitlines()
]
ANY_TIME = Hlc(5)


def texts_of(sample: dict[str, Any]) -> list[tuple[str, Any]]:
    """(value, key beside it) of each message in a sample: webhook, Pub/Sub and SQL clients wrap them."""
    text, key = sample["sample"], sample.get("key")
    beside = loads(key) if key else None
    kind = sample.get("kind")
    if kind == "webhook batch" or ("sink=webhook" in sample["options"] and '"payload"' in text):
        return [(dumps({k.rstrip(":"): v for k, v in message.items()}), beside) for message in loads(text)["payload"]]
    if kind == "pubsub message data":
        outer = loads(text)
        return [(dumps(outer["Value"]), outer["Key"])]
    if kind == "sinkless row as JSON":
        outer = loads(text)
        return [(outer["value"], loads(outer["key"]))]
    if "sinkless" in sample["options"]:
        ((_, its_key, value),) = csv.reader([text])
        return [(value, loads(its_key))]
    return [(text, beside)]


def shape_for(row: dict[str, Any] | None, key: Any) -> SourceSchema:
    """A source schema by the stated rules of inference; the key is whatever column comes first."""
    columns = {name: inferred_type(of_value(value)) or "STRING" for name, value in (row or {}).items()}
    if isinstance(key, dict):
        columns = {**{name: "STRING" if type(v) is str else "INT8" for name, v in key.items()}, **columns}
        return source_schema(key=list(key), **columns)
    if isinstance(key, list) and not any(value == key[-1] for value in (row or {}).values()):
        of_another_family = {f"k{i}": "STRING" if type(v) is str else "INT8" for i, v in enumerate(key)}
        return source_schema(key=list(of_another_family), **of_another_family, **columns)
    usable = [name for name, kind in columns.items() if kind in ("INT8", "STRING") and row and row[name] is not None]
    matching = [name for name in usable if isinstance(key, list) and key and row and row[name] == key[-1]]
    names = (matching or usable)[:1] or list(columns)[:1]
    return source_schema(key=names, **columns)


def decode(known: SourceSchema, key: str, payload: bytes) -> dict[str, Any]:
    decoder = FeedDecoder({0: DecodedTable("t", known)})
    (row,) = decoder.rows(0, pa.array([key]), pa.array([payload], pa.binary())).to_pylist()
    return dict(row)


def read_message(text: str, key: Any, envelope: Envelope) -> str:
    """What became of one message."""
    message = open_message(text, envelope)
    if message.resolved is not None:
        assert Hlc.parse(message.resolved)
        return "resolved"
    key = message.key if message.key is not None else key
    known = shape_for(dict(message.row or message.before or {}), key)
    options = EnvelopeOptions(envelope=envelope, position_if_absent=ANY_TIME, bare_deletes=BareDeletes.NEVER)
    rule = KeyRule("t", known.key_columns)
    if message.envelope is Envelope.KEY_ONLY:
        with pytest.raises(BadInput, match="key_only"):
            change_of(message, rule, options, key)
        return "key only"
    found = change_of(message, rule, options, key)
    if found.op is Op.DELETE:
        return "delete"
    assert found.payload is not None
    row = decode(known, found.key, found.payload)
    assert set(row) >= set(message.row or {})
    return "row"


def json_message(sample: dict[str, Any]) -> str:
    envelope = Envelope(sample["envelope"])
    if "<HLC" in sample["sample"]:
        with pytest.raises(BadInput, match="commit time"):
            read_message(sample["sample"], None, envelope)
        return "placeholder refused"
    outcomes = {read_message(text, key, envelope) for text, key in texts_of(sample)}
    (outcome,) = outcomes
    return outcome


def json_value(sample: dict[str, Any]) -> str:
    name = sample["options"][0].removeprefix("type=")
    known = {"FLOAT Inf/NaN": "FLOAT8[]", "mixed array": "JSONB"}.get(name, name)
    row = decode(source_schema(key=["k"], k="INT8", v=known), "[1]", f'{{"k": 1, "v": {sample["sample"]}}}'.encode())
    assert row["v"] is not None
    return "value"


def file_name(sample: dict[str, Any]) -> str:
    found = parse_name(sample["sample"])
    expected = ResolvedFile if "resolved" in sample["kind"] else FeedFile
    assert isinstance(found, expected)
    return "name"


USERS = {"id": "UUID", "city": "STRING", "name": "STRING", "address": "STRING", "credit_card": "STRING"}


def csv_row(sample: dict[str, Any]) -> str:
    (record,) = csv.reader([sample["sample"]])
    if "csv_header" in sample["options"]:
        assert record in (["a", "b", "c"], ["c", "a"])
        return "header"
    types = USERS if len(record) == 5 else {"id": "INT8", "name": "STRING"}
    row = {name: json_of(text, parse_source_type(types[name])) for name, text in zip(types, record, strict=True)}
    known = source_schema(key=["id"], **types)
    message = Message(envelope=Envelope.WRAPPED, row=row, row_text=dumps(row))
    found = change_of(message, KeyRule("t", known.key_columns), EnvelopeOptions(position_if_absent=ANY_TIME))
    assert found.payload is not None
    assert decode(known, found.key, found.payload)["name"] == record[2 if len(record) == 5 else 1]
    return "row"


def parquet_row(sample: dict[str, Any]) -> str:
    if "resolved" in sample["options"]:
        return "resolved file: its name is enough"
    given = json.loads(sample["sample"])
    event = given.pop("__crdb__event_type")
    columns: dict[str, Any] = {"__crdb__event_type": (pa.binary(), [event.encode()])}
    marks = {"__crdb__event_type": STRING_TYPE}
    types = {}
    for name, value in given.items():
        if name in ("i", "int32col"):
            columns[name], types[name] = (pa.int64() if name == "i" else pa.int32(), [value]), "INT8"
        elif name == "uuidcol":
            columns[name] = (pa.binary(16), [value and bytes.fromhex(value.replace("-", ""))])
            marks[name], types[name] = UUID_TYPE, "UUID"
        else:
            columns[name] = (pa.binary(), [value and value.encode()])
            marks[name] = decimal(18, 9) if name == "d" else STRING_TYPE
            types[name] = "DECIMAL" if name == "d" else "STRING"
    known = source_schema(key=[next(iter(given))], **types)
    (found,) = parquet_rows(write(columns, marks), "f", "t", known)
    assert found.deleted == (event == "d")
    if found.deleted:
        return "delete"
    row = decode(known, f"[{given[known.key[0]]}]", dumps(found.row).encode())
    assert row.get("d", given.get("d")) == given.get("d")
    assert row.get("stringcol", given.get("stringcol")) == given.get("stringcol")
    return "row"


READERS = {
    "json": json_message,
    "json-value": json_value,
    "filename": file_name,
    "csv": csv_row,
    "parquet": parquet_row,
}


@pytest.mark.parametrize("number", range(len(SAMPLES)))
def test_a_documented_sample_is_understood(number: int) -> None:
    """H29."""
    sample = SAMPLES[number]
    outcome = READERS[sample["format"]](sample)
    kind = sample.get("kind")
    if sample["format"] == "json" and kind in ("insert", "update", "delete", "resolved"):
        if sample["envelope"] == "key_only" and kind != "resolved":
            assert outcome == "key only"
        else:
            assert outcome == {"insert": "row", "update": "row"}.get(kind, kind)


def test_all_samples_are_there_and_none_is_waved_through() -> None:
    assert len(SAMPLES) == 158
    outcomes = Counter((s["format"], READERS[s["format"]](s)) for s in SAMPLES)
    assert outcomes["json", "row"] >= 70
    assert outcomes["json", "delete"] >= 9
    assert outcomes["json", "resolved"] >= 6
    assert outcomes["csv", "row"] == 19
    assert outcomes["parquet", "row"] == 13
    assert outcomes["parquet", "delete"] == 3
