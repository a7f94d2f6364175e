"""The fast road of reading equals the exact one, on what CockroachDB prints and on what it does not."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from cockroach_feed import Feed, at, delete, source_schema, upsert
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.errors import BadInput, DoesNotFit
from frazil.model.schema import SourceSchema
from frazil.sources.base import Cut, InputPartition
from frazil.sources.cockroachdb.decode.envelope import EnvelopeOptions, change_of, open_message
from frazil.sources.cockroachdb.decode.exact_json import dumps, loads
from frazil.sources.cockroachdb.decode.fast.lines import split, template_of
from frazil.sources.cockroachdb.decode.keys import KeyRule
from frazil.sources.cockroachdb.feed.location import FeedLocation, line_blocks
from frazil.sources.cockroachdb.position import Hlc
from frazil.sources.cockroachdb.reader import FeedReader, TableReading

names = st.sampled_from(["a", "b", "before", "key", "updated", "after", "ü", 'q"', "x y"])
texts = st.one_of(
    st.text(max_size=12),
    st.sampled_from(['", "key": [1]', "}, ", "{", "]", "\\", '"', "\n", ', "before": null', "\x08\x7f"]),
)
scalars = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), texts)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=6,
)
rows = st.dictionaries(names, values, max_size=4)
walls = st.integers(10**18, 9 * 10**18 - 1)
positions = st.builds(Hlc, walls, st.integers(0, 2**31 - 1))
int_keys = st.integers(-(2**63), 2**63 - 1)
text_keys = st.one_of(texts, st.uuids().map(str))


@st.composite
def files(draw: st.DrawFn) -> tuple[list[str], SourceSchema]:
    """Lines of one file: one set of options, any rows."""
    has_before, has_mvcc, has_topic = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    kinds = draw(st.lists(st.sampled_from(["INT8", "STRING"]), min_size=1, max_size=2))
    hidden = draw(st.booleans())
    its_shape = source_schema(
        key=[f"k{i}" for i in range(len(kinds))], **{f"k{i}": kind for i, kind in enumerate(kinds)}, v="JSONB"
    )
    lines = []
    for _ in range(draw(st.integers(1, 6))):
        key: list[Any] = [draw(int_keys if kind == "INT8" else text_keys) for kind in kinds]
        row = None
        if draw(st.booleans()):
            row = {**draw(rows), **{f"k{i}": value for i, value in enumerate(key)}}
        array = [*([draw(st.sampled_from([3, "eu", "e]u"]))] if hidden else []), *key]
        parts = [f'"after": {printed(row)}']
        if has_before:
            parts.append(f'"before": {printed(draw(st.one_of(st.none(), rows)))}')
        parts.append(f'"key": {printed(array)}')
        if has_mvcc:
            parts.append(f'"mvcc_timestamp": "{draw(positions)}"')
        if has_topic:
            parts.append('"topic": "d.public.t-1"')
        parts.append(f'"updated": "{draw(positions)}"')
        lines.append("{" + ", ".join(parts) + "}")
    return lines, its_shape


def printed(value: Any) -> str:
    """As CockroachDB prints: keys of objects sorted, numbers as they are."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{dumps(name)}: {printed(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(printed(item) for item in value) + "]"
    return dumps(value)


def exact_road(lines: list[str], rule: KeyRule) -> list[tuple[Any, ...]]:
    changes = [change_of(open_message(line), rule, EnvelopeOptions()) for line in lines]
    return [(c.key, c.position.wall, c.position.logical, c.payload) for c in changes]


@pytest.mark.slow
@given(files())
@settings(max_examples=300)
def test_the_fast_road_gives_what_the_exact_road_gives(file: tuple[list[str], SourceSchema]) -> None:
    lines, its_shape = file
    rule = KeyRule("t", its_shape.key_columns)
    block = "".join(line + "\n" for line in lines).encode()
    found = split(block, template_of(lines[0].encode(), None), rule)
    expected = exact_road(lines, rule)
    left = {i for i, _, _ in found.rest}
    fast = list(
        zip(
            found.keys.to_pylist(),
            found.majors.tolist(),
            found.minors.tolist(),
            found.payloads.to_pylist(),
            strict=True,
        )
    )
    assert fast == [row for i, row in enumerate(expected) if i not in left]
    assert all(block[start:end].decode() == lines[i] for i, start, end in found.rest)


def test_ordinary_lines_do_take_the_fast_road() -> None:
    lines = [upsert([i], at(i), a=i, b="x") for i in range(50)] + [delete([i], at(60)) for i in range(5)]
    block = "".join(line + "\n" for line in lines).encode()
    found = split(block, template_of(lines[0].encode(), None), KeyRule("t", source_schema().key_columns))
    assert found.rest == ()
    assert len(found.keys) == 55
    assert found.payloads.null_count == 5


def test_lines_with_diff_and_mvcc_timestamp_take_the_fast_road() -> None:
    line = (
        '{"after": {"a": 1}, "before": {"a": 1, "j": {"key": [4]}}, "key": [7, 1], '
        f'"mvcc_timestamp": "{at(0)}", "topic": "t", "updated": "{at(1)}"}}'
    )
    found = split(
        f"{line}\n{line}".encode(), template_of(line.encode(), None), KeyRule("t", source_schema().key_columns)
    )
    assert found.rest == ()
    assert found.keys.to_pylist() == ["[1]", "[1]"]
    assert found.payloads.to_pylist() == [b'{"a": 1}'] * 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line[:-1],
        lambda line: line.replace('"key": [1]', '"key": 1'),
        lambda line: line.replace(".0000000000", ".9999999999"),
        lambda line: line.replace('"updated": "1', '"updated": "x'),
        lambda line: line.replace('"after": {', '"after": ['),
        lambda line: line.replace('"key": [1]', '"key": ["x"]'),
        lambda line: line.replace('"key": [1]', '"key": [9223372036854775808]'),
    ],
)
def test_a_damaged_line_never_takes_the_fast_road(damage: Any) -> None:
    good = upsert([1], at(1), a=1, b="x")
    bad = damage(good)
    assert bad != good
    rule = KeyRule("t", source_schema().key_columns)
    found = split(f"{good}\n{bad}\n{good}\n".encode(), template_of(good.encode(), None), rule)
    assert [i for i, _, _ in found.rest] == [1]
    with pytest.raises((BadInput, DoesNotFit)):
        exact_road([bad], rule)


def reading(root: Path, its_shape: SourceSchema | None = None, block: int = 8 << 20) -> FeedReader:
    tables = {0: TableReading(table="t", source_schema=its_shape or source_schema())}
    return FeedReader(FeedLocation(str(root)), tables, block)


def everything(reader: FeedReader, path: str, cut: Cut | None = None) -> list[dict[str, Any]]:
    cut = cut or Cut(None, (at(10**6).order,))
    return [row for batch in reader.read(InputPartition(0, path, "{}", 1), cut) for row in batch.to_pylist()]


def test_lines_longer_than_a_block_are_read_whole(tmp_path: Path) -> None:
    lines = [upsert([i], at(i), a=i, b="x" * (7 * i)) for i in range(60)]
    path = Feed(tmp_path).data(at(0), lines)
    for block in (1, 17, 64, 1000):
        found = everything(reading(tmp_path, block=block), path)
        assert [row["key"] for row in found[:-1]] == [f"[{i}]" for i in range(60)]


@given(st.binary(max_size=200), st.integers(1, 40))
def test_blocks_end_where_lines_end_and_lose_nothing(data: bytes, block: int) -> None:
    class Stream:
        def __init__(self) -> None:
            self.left = data

        def read(self, size: int) -> bytes:
            taken, self.left = self.left[:size], self.left[size:]
            return taken

    blocks = list(line_blocks(Stream(), block))
    assert b"".join(blocks) == data
    assert all(piece.endswith(b"\n") for piece in blocks[:-1])


def test_line_numbers_count_over_blocks_and_blank_lines(tmp_path: Path) -> None:
    lines = [upsert([i], at(i), a=i) for i in range(30)] + ["", "{}"]
    path = Feed(tmp_path).data(at(0), lines)
    with pytest.raises(BadInput) as caught:
        everything(reading(tmp_path, block=100), path)
    assert caught.value.facts["line"] == 32


def test_the_last_row_reports_what_was_found(tmp_path: Path) -> None:
    path = Feed(tmp_path).data(at(0), [upsert([i], at(i, i), a=i) for i in range(10)])
    cut = Cut(at(2, 2).order, (at(4, 4).order, at(7, 7).order))
    *rows, report = everything(reading(tmp_path), path, cut)
    assert [row["epoch"] for row in rows] == [0, 0, 1, 1, 1]
    assert (report["epoch"], report["key"], report["op"]) == (-1, path, 2)
    assert loads(report["payload"]) == {"rows": "5", "dropped": "3", "beyond": "2", "scanned": "1"}
    assert (report["major"], report["minor"]) == at(9, 9).order


def test_an_empty_file_has_a_report_without_position(tmp_path: Path) -> None:
    path = Feed(tmp_path).data(at(0), [])
    (report,) = everything(reading(tmp_path), path)
    assert report["major"] is None


def test_a_reader_crosses_to_executors(tmp_path: Path) -> None:
    path = Feed(tmp_path).data(at(0), [upsert([1], at(0), a=1)])
    reader = pickle.loads(pickle.dumps(reading(tmp_path)))
    assert len(everything(reader, path)) == 2


@pytest.mark.parametrize("extension", ["ndjson.gz", "ndjson.zst"])
def test_a_torn_compressed_file_is_refused(tmp_path: Path, extension: str) -> None:
    feed = Feed(tmp_path)
    path = feed.data(at(0), [upsert([i], at(i), a=i, b=str(i * 7919)) for i in range(4000)], extension=extension)
    body = (tmp_path / path).read_bytes()
    (tmp_path / path).write_bytes(body[: len(body) // 2])
    with pytest.raises(BadInput):
        everything(reading(tmp_path), path)


def test_bytes_that_are_no_utf8_are_named(tmp_path: Path) -> None:
    body = upsert([1], at(0), a=1).encode() + b"\n" + b'{"after": null, "key": ["\xff"], "updated": "1"}\n'
    path = Feed(tmp_path).data(at(0), body)
    with pytest.raises(BadInput) as caught:
        everything(reading(tmp_path), path)
    assert caught.value.facts["line"] == 2
