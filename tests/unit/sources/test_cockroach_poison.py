"""No line of a feed, whatever it holds, is more than the trouble of its own table: rows, or BadInput that names it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cockroach_feed import Feed, at, source_schema, upsert
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from frazil.errors import Terminal
from frazil.model.change import REPORT_EPOCH, Op
from frazil.model.quarantine import BadLine
from frazil.model.schema import SourceSchema
from frazil.sources.base import Cut, InputPartition
from frazil.sources.cockroachdb.decode.decoder import DecodedTable, FeedDecoder
from frazil.sources.cockroachdb.decode.envelope import BareDeletes, Envelope, EnvelopeOptions
from frazil.sources.cockroachdb.feed.location import FeedLocation
from frazil.sources.cockroachdb.reader import FeedReader, TableReading
from frazil.sources.cockroachdb.source import CloudFeed, TableSettings

KEYED = source_schema(a="INT8", s="STRING")
TEXT_KEY = source_schema(key=["s"], a="INT8", s="STRING")
DECIMAL_KEY = source_schema(key=["a"], a="DECIMAL", s="STRING")
NO_KEY = SourceSchema(KEYED.columns, (), "none")
KEYS = (KEYED, TEXT_KEY, DECIMAL_KEY, NO_KEY)
GOOD = upsert([1], at(1), a=1, s="x")
GOOD_TEXT = upsert(["x"], at(1), a=1, s="x")
STAMP = f'"updated": "{at(1)}"'
ENRICHED = f'"op": "c", "source": {{"ts_hlc": "{at(1)}", "primary_keys": ["a"]}}, "ts_ns": 1'
ROW = '"after": {"a": 2, "s": "y"}'

POISON = {
    "a source that is no object": f'{{{ROW}, "key": {{"a": 2}}, "op": "c", "source": 5, "ts_ns": 1}}',
    "primary keys that are no list": f'{{{ROW}, "op": "c", "source": {{"ts_hlc": "{at(1)}", "primary_keys": 5}}}}',
    "primary keys that are no names": f'{{{ROW}, "op": "c", "source": {{"ts_hlc": "{at(1)}", "primary_keys": [[1]]}}}}',
    "a schema that is no object": f'{{"payload": {{{ROW}, "key": {{"a": 2}}, {ENRICHED}}}, "schema": 5}}',
    "a schema of no fields": f'{{"payload": {{{ROW}, "key": {{"a": 2}}, {ENRICHED}}}, "schema": {{"fields": [5]}}}}',
    "a schema of a wrong decimal": (
        f'{{"payload": {{{ROW}, "key": {{"a": 2}}, {ENRICHED}}}, "schema": {{"fields": [{{"field": "after", "fields": '
        '[{"field": "a", "type": "float64", "name": "decimal", "parameters": {"precision": "many"}}]}]}}'
    ),
    "half a surrogate pair in the key": f'{{"after": {{"a": 2, "s": "\\ud800"}}, "key": ["\\ud800"], {STAMP}}}',
    "half a surrogate pair in a name": f'{{"__crdb__": {{{STAMP}}}, "a": 2, "s": "y", "\\udfff": 1}}',
    "an exponent beyond all bounds": f'{{"after": {{"a": 2, "n": 1E{"9" * 20}, "s": "y"}}, "key": [2], {STAMP}}}',
    "a key beyond all bounds": f'{{"after": {{"a": 2}}, "key": [1E99999999999999999999], {STAMP}}}',
    "a key that is a number": f'{{{ROW}, "key": 5, {STAMP}}}',
    "a row before that is a number": f'{{"after": null, "before": 5, {STAMP}}}',
    "a time that is a list": f'{{{ROW}, "key": [2], "updated": [1]}}',
    "a time beyond 64 bits": f'{{{ROW}, "key": [2], "updated": "{"9" * 40}.0000000000"}}',
    "metadata whose key is a number": f'{{"__crdb__": {{"key": 5, {STAMP}}}, "a": 2, "s": "y"}}',
    "a resolved time that is a number": '{"__crdb__": {"resolved": 5}}',
    "nesting without end": '{"after": ' + "[" * 100_000,
}


def reader(root: Path, its_schema: SourceSchema, options: EnvelopeOptions, wants_before: bool = True) -> FeedReader:
    reading = TableReading(table="t", source_schema=its_schema, options=options, wants_before=wants_before)
    return FeedReader(FeedLocation(str(root)), {0: reading})


def read(root: Path, lines: list[str], its_schema: SourceSchema, options: EnvelopeOptions) -> list[dict[str, Any]]:
    """Change rows, decoded as far as they are changes."""
    body = b"".join(line.encode("utf-8", "surrogatepass") + b"\n" for line in lines)
    path = Feed(root).data(at(0), body)
    cut = Cut(None, (at(100).order,))
    batches = list(reader(root, its_schema, options).read(InputPartition(0, path, "{}", 1), cut))
    rows = [row for batch in batches for row in batch.to_pylist() if row["epoch"] != REPORT_EPOCH]
    decoder = FeedDecoder({0: DecodedTable("t", its_schema)})
    for row in rows:
        if row["op"] != Op.BAD:
            decode(decoder, row)
    return rows


def decode(decoder: FeedDecoder, row: dict[str, Any]) -> None:
    """Raises BadInput of the table."""
    decoder.keys(0, pa.array([row["key"]]))
    for payload in (row["payload"], row["before"]):
        if payload is not None and payload != b"null":
            decoder.rows(0, pa.array([row["key"]]), pa.array([payload], pa.binary()))


def refusal(call: Callable[[], object]) -> Terminal | None:
    """What a person must look at; anything else that is raised is a failure."""
    try:
        call()
    except Terminal as error:
        return error
    return None


def is_placed(error: Terminal, *lines: int) -> bool:
    """By its line if the reader found it, by its key if the decoder did."""
    facts = error.facts
    return facts["table"] == "t" and (facts.get("line") in lines or "key" in facts or "columns" in facts)


@pytest.mark.parametrize("its_schema", KEYS, ids=["int key", "text key", "decimal key", "no key"])
@pytest.mark.parametrize("poison", POISON)
def test_a_poison_line_is_put_away_or_named(poison: str, its_schema: SourceSchema, tmp_path: Path) -> None:
    good = GOOD_TEXT if its_schema is TEXT_KEY else GOOD
    lines = [good, POISON[poison], good]
    rows: list[dict[str, Any]] = []
    error = refusal(lambda: rows.extend(read(tmp_path, lines, its_schema, EnvelopeOptions(quarantine=True))))
    if error is not None:
        assert is_placed(error, 2), "a bad value is found by the decoder"
    else:
        lines_put_away = [BadLine.from_bytes(row["before"]).line for row in rows if row["op"] == Op.BAD]
        assert lines_put_away in ([], [2])
        assert sum(row["op"] == Op.UPSERT for row in rows) >= 2
    error = refusal(lambda: read(tmp_path, lines, its_schema, EnvelopeOptions()))
    assert error is None or is_placed(error, 2)


@pytest.mark.parametrize("quarantine", [False, True])
@pytest.mark.parametrize("poison", POISON)
def test_inference_meets_a_poison_line(poison: str, quarantine: bool, tmp_path: Path) -> None:
    """Its table is known by the other lines, or told which line it is."""
    path = Feed(tmp_path).data(at(0), [GOOD, POISON[poison], GOOD])
    feed = CloudFeed(
        FeedLocation(str(tmp_path)), tables={"t": TableSettings(options=EnvelopeOptions(quarantine=quarantine))}
    )
    found: dict[str, SourceSchema] = {}
    error = refusal(lambda: found.update(feed.schemas([InputPartition(0, path, "{}", 1)])))
    if error is None:
        assert {column.name for column in found["t"].columns} >= {"a", "s"}
        assert found["t"].key == ("a",)
        return
    assert error.facts["table"] == "t"
    if "the key cannot be told" not in str(error):
        assert not quarantine
        assert (error.facts["file"], error.facts["line"]) == (path, 2)
        assert f"{path}:2" in str(error)


def texts() -> st.SearchStrategy[str]:
    return st.text(st.characters(categories=None, exclude_categories=()), max_size=5) | st.sampled_from(
        ["\ud800", "NaN", "Infinity", str(at(1)), "9" * 25, "after", "a", "c", "d", "decimal", "after"]
    )


def names() -> st.SearchStrategy[str]:
    """Names that mean something, and others."""
    known = "after before key updated op source schema payload __crdb__ resolved mvcc_timestamp topic ts_ns ts_hlc"
    more = "primary_keys fields field type name parameters precision items a s"
    return st.sampled_from([*known.split(), *more.split()]) | texts()


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | texts()
    | st.sampled_from([float("1e308"), 10**400, 0.1]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names(), inner, max_size=5),
    max_leaves=12,
)


def messages() -> st.SearchStrategy[Any]:
    """Objects that nearly are messages, and anything else."""
    row = st.dictionaries(st.sampled_from(["a", "s", "z"]), JSON, max_size=3)
    stamp = st.sampled_from([str(at(1)), str(at(2, 3))]) | JSON
    key = st.lists(JSON, max_size=3) | JSON
    wrapped = st.fixed_dictionaries(
        {"after": row | JSON, "key": key, "updated": stamp}, optional={"before": row | JSON, "topic": JSON}
    )
    source = st.fixed_dictionaries({"ts_hlc": stamp}, optional={"primary_keys": JSON}) | JSON
    rich = st.fixed_dictionaries({"after": row | JSON, "key": key, "op": JSON, "source": source})
    part = st.dictionaries(st.sampled_from(["field", "type", "name", "fields", "parameters", "items"]), JSON)
    schema = st.fixed_dictionaries({"fields": st.lists(part | JSON, max_size=2)}) | JSON
    beside = st.fixed_dictionaries({"payload": rich | JSON, "schema": schema})
    bare = st.fixed_dictionaries(
        {"__crdb__": st.fixed_dictionaries({"updated": stamp, "key": key}) | JSON}, optional={"a": JSON, "s": JSON}
    )
    return wrapped | rich | beside | bare | st.dictionaries(names(), JSON, max_size=6) | JSON


@given(
    message=messages(),
    cut=st.none() | st.integers(0, 200),
    exponent=st.booleans(),
    its_schema=st.sampled_from(KEYS),
    envelope=st.sampled_from(list(Envelope)),
    bare=st.sampled_from(list(BareDeletes)),
    quarantine=st.booleans(),
)
@example(
    message={"after": {"a": 2}, "key": [2], "op": "c", "source": 5},
    cut=None,
    exponent=False,
    its_schema=KEYED,
    envelope=Envelope.AUTO,
    bare=BareDeletes.REFUSE,
    quarantine=True,
)
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_json_is_rows_or_bad_input_of_its_line(
    message: Any,
    cut: int | None,
    exponent: bool,
    its_schema: SourceSchema,
    envelope: Envelope,
    bare: BareDeletes,
    quarantine: bool,
    tmp_path: Path,
) -> None:
    text = json.dumps(message, ensure_ascii=cut is None, separators=(", ", ": "))[:cut].replace("\n", " ")
    text = text.replace("1e+308", "1E99999999999999999999") if exponent else text
    options = EnvelopeOptions(envelope=envelope, bare_deletes=bare, quarantine=quarantine)
    good = GOOD_TEXT if its_schema is TEXT_KEY else GOOD
    error = refusal(lambda: read(tmp_path, [text, good, text], its_schema, options))
    assert error is None or is_placed(error, 1, 2, 3)
    path = Feed(tmp_path).data(at(0), "\n".join([text, GOOD, text]).encode("utf-8", "surrogatepass"))
    feed = CloudFeed(FeedLocation(str(tmp_path)), tables={"t": TableSettings(options=options)})
    error = refusal(lambda: feed.schemas([InputPartition(0, path, "{}", 1)]))
    assert error is None or error.facts["table"] == "t"


def test_every_change_knows_its_line(tmp_path: Path) -> None:
    """On the fast road, on the exact one, and from one block to the next."""
    lines = [upsert([n], at(n), a=n, s="x") for n in range(1, 40)]
    lines[4] = lines[4].replace(", ", ",")
    lines[20] = ""
    path = Feed(tmp_path).data(at(0), lines)
    reading = TableReading(table="t", source_schema=KEYED)
    small = FeedReader(FeedLocation(str(tmp_path)), {0: reading}, block=500)
    batches = list(small.read(InputPartition(0, path, "{}", 1), Cut(None, (at(100).order,))))
    rows = [row for batch in batches for row in batch.to_pylist() if row["epoch"] != REPORT_EPOCH]
    assert sorted((row["line"], row["key"]) for row in rows) == [(n, f"[{n}]") for n in range(1, 40) if n != 21]
