"""Rows as they were, lines that are no change, and tables without a key, as the reader sends them on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cockroach_feed import Feed, at, source_schema, upsert
from hypothesis import given, settings
from test_cockroach_lines import files

from frazil.errors import BadInput
from frazil.model.change import Op
from frazil.model.quarantine import BadLine, line_key
from frazil.model.schema import SourceSchema
from frazil.sources.base import Cut, InputPartition
from frazil.sources.cockroachdb.decode.envelope import EnvelopeOptions, change_of, open_message
from frazil.sources.cockroachdb.decode.fast.lines import split, template_of
from frazil.sources.cockroachdb.decode.keys import KeyRule
from frazil.sources.cockroachdb.feed.location import FeedLocation
from frazil.sources.cockroachdb.reader import FeedReader, TableReading


def diff(key: int, second: int, after: str, before: str | None) -> str:
    told = "" if before is None else f'"before": {before}, '
    return f'{{"after": {after}, {told}"key": [{key}], "updated": "{at(second)}"}}'


def read(
    root: Path,
    path: str,
    *,
    cut: Cut | None = None,
    its_shape: SourceSchema | None = None,
    wants_before: bool = False,
    **options: Any,
) -> list[dict[str, Any]]:
    reading = TableReading(
        table="t",
        source_schema=its_shape or source_schema(),
        options=EnvelopeOptions(**options),
        wants_before=wants_before,
    )
    reader = FeedReader(FeedLocation(str(root)), {0: reading})
    cut = cut or Cut(None, (at(10**6).order,))
    batches = reader.read(InputPartition(0, path, "{}", 1), cut)
    return [row for batch in batches for row in batch.to_pylist() if row["op"] != Op.REPORT]


@given(files())
@settings(max_examples=200)
def test_the_fast_road_cuts_out_the_row_as_it_was_like_the_exact_road(file: tuple[list[str], SourceSchema]) -> None:
    lines, its_shape = file
    rule = KeyRule("t", its_shape.key_columns)
    block = "".join(line + "\n" for line in lines).encode()
    found = split(block, template_of(lines[0].encode(), None), rule, wants_before=True)
    left = {i for i, _, _ in found.rest}
    expected = [change_of(open_message(line), rule, EnvelopeOptions()).before for line in lines]
    wanted = [before for i, before in enumerate(expected) if i not in left]
    assert (found.befores.to_pylist() if found.befores is not None else [None] * len(wanted)) == wanted


def test_nothing_told_is_not_the_same_as_there_was_none(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    told = feed.data(at(0), [diff(1, 1, '{"a": 1}', "null"), diff(2, 2, "null", '{"a": 2}')])
    silent = feed.data(at(1), [diff(1, 3, '{"a": 1}', None)], number=1)
    assert [row["before"] for row in read(tmp_path, told, wants_before=True)] == [b"null", b'{"a": 2}']
    assert [row["before"] for row in read(tmp_path, silent, wants_before=True)] == [None]
    assert [row["before"] for row in read(tmp_path, told)] == [None, None], "nobody wants it: it must not travel"


def test_the_exact_road_tells_it_too(tmp_path: Path) -> None:
    odd = diff(1, 1, '{"a": 1}', '{"a": 1, "b": "x"}').replace('"key": [1]', '"key":  [1]')
    path = Feed(tmp_path).data(at(0), [odd, diff(2, 2, '{"a": 2}', "null")])
    found = {row["key"]: row["before"] for row in read(tmp_path, path, wants_before=True)}
    assert found == {"[1]": b'{"a": 1, "b": "x"}', "[2]": b"null"}


def bad(row: dict[str, Any]) -> BadLine:
    assert row["op"] == Op.BAD
    return BadLine.from_bytes(row["before"])


def test_lines_that_are_no_change_travel_as_they_are(tmp_path: Path) -> None:
    """H20 among them: a NULL key. The good lines between them are not touched."""
    lines = [
        upsert([1], at(1), a=1, b="x"),
        "{torn",
        upsert([None], at(2), b="x"),
        upsert([4], at(3), a=4).replace('"updated"', '"update"'),
        upsert([5], at(4), a=5, b="y"),
    ]
    path = Feed(tmp_path).data(at(0), lines)
    rows = sorted(read(tmp_path, path, quarantine=True), key=lambda row: (row["op"], row["key"]))
    assert [row["key"] for row in rows[:2]] == ["[1]", "[5]"]
    told = {bad(row).line: (bad(row), row) for row in rows[2:]}
    assert sorted(told) == [2, 3, 4]
    assert {facts.file for facts, _ in told.values()} == {path}
    assert [told[n][1]["payload"].decode() for n in (2, 3, 4)] == lines[1:4]
    torn, null = told[2], told[3]
    assert (torn[0].keyed, torn[0].positioned, torn[1]["key"]) == (False, False, line_key(path, 2))
    assert (null[0].keyed, null[0].positioned, null[0].column, null[1]["major"]) == (False, True, "a", at(2).wall)
    with pytest.raises(BadInput):
        read(tmp_path, path)


def test_a_line_without_a_position_belongs_to_the_epoch_of_its_file_and_to_no_later_one(tmp_path: Path) -> None:
    """A file with rows beyond R is read again for the next epoch; its bad lines are not put away again."""
    path = Feed(tmp_path).data(at(5), ["{torn", upsert([1], at(15), a=1)])
    first = Cut(at(4).order, (at(7).order, at(9).order))
    later = Cut(at(9).order, (at(20).order,))
    assert [(row["op"], row["epoch"]) for row in read(tmp_path, path, cut=first, quarantine=True)] == [(Op.BAD, 0)]
    assert [row["key"] for row in read(tmp_path, path, cut=later, quarantine=True)] == ["[1]"]


def test_a_bad_line_that_still_tells_its_key_captures_by_it(tmp_path: Path) -> None:
    line = upsert([4], at(3), a=4).replace(at(3).text, "yesterday")
    path = Feed(tmp_path).data(at(2), [line])
    (row,) = read(tmp_path, path, quarantine=True)
    assert (row["key"], bad(row).keyed, bad(row).positioned) == ("[4]", True, False)
    assert (row["major"], row["minor"]) == at(2).order


def test_a_line_can_be_read_again(tmp_path: Path) -> None:
    reader = FeedReader(FeedLocation(str(tmp_path)), {0: TableReading(table="t", source_schema=source_schema())})
    line = reader.reread(0, upsert([4], at(3), a=4).encode())
    assert (line.key, line.major, line.deleted, line.payload) == ("[4]", at(3).wall, False, b'{"a": 4}')
    with pytest.raises(BadInput):
        reader.reread(0, b"{torn")


def test_without_key_columns_a_change_travels_under_the_feeds_key_or_its_place(tmp_path: Path) -> None:
    keyless = source_schema(key=())
    after = f'{{"after": {{"a": 1}}, "updated": "{at(2)}"}}'
    path = Feed(tmp_path).data(at(0), [upsert([7, "x"], at(1), a=1), after, after])
    found = [row["key"] for row in read(tmp_path, path, its_shape=keyless)]
    assert found == ['[7, "x"]', line_key(path, 2), line_key(path, 3)]


def test_without_key_columns_a_line_that_is_no_change_travels_under_its_place(tmp_path: Path) -> None:
    path = Feed(tmp_path).data(at(0), [upsert([7], at(3), a=1).replace(at(3).text, "yesterday")])
    (row,) = read(tmp_path, path, its_shape=source_schema(key=()), quarantine=True)
    assert (row["key"], bad(row).keyed) == (line_key(path, 1), False)


def test_a_csv_row_that_does_not_fit_is_put_away_and_the_others_are_read(tmp_path: Path) -> None:
    path = Feed(tmp_path).data(at(0), ["1,x", "word,y", "3,z,too many", "4,w"], extension="csv")
    options = {"position_if_absent": at(5)}
    rows = read(tmp_path, path, quarantine=True, **options)
    assert [row["key"] for row in rows if row["op"] == Op.UPSERT] == ["[1]", "[4]"]
    told = [(bad(row).line, bad(row).column, row["payload"]) for row in rows if row["op"] == Op.BAD]
    assert told == [(2, "a", b"word,y"), (3, None, b"3,z,too many")]
    with pytest.raises(BadInput):
        read(tmp_path, path, **options)
