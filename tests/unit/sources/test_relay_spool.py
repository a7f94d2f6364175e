"""Rows of a sinkless feed become the files that the cloud storage sink would have written."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path

import pytest

from frazil.demo.changefeed import Changefeed, ShopChange
from frazil.errors import BadInput
from frazil.model.frontier import Frontier
from frazil.sources.cockroachdb.position import Hlc
from frazil.sources.cockroachdb.sinkless.relay import octets
from frazil.sources.cockroachdb.sinkless.spool import OPEN_FILES_MAX, FeedSpool, seen_from_spool, topic_of
from frazil.sources.cockroachdb.sinkless.sql import FeedStart

DATA_FILE = re.compile(
    r"^(\d{33})-([0-9a-f]{16})-(\d+)-(\d+)-([0-9a-f]{8,})-(.+)-([0-9a-f]+)\.(ndjson|csv|parquet)(\.gz|\.zst)?$"
)
RESOLVED_FILE = re.compile(r"^(\d{33})\.RESOLVED$")
SESSION = "00000000000000aa"
ORDERS = "shop.public.orders"


def at(second: int, logical: int = 0) -> Hlc:
    return Hlc(1_700_000_000_000_000_000 + second * 1_000_000_000, logical)


def promise(position: Hlc) -> bytes:
    return f'{{"resolved":"{position.text}"}}'.encode()


def change(key: int, when: Hlc, after: str | None = None, topic: str = ORDERS) -> tuple[str, bytes, bytes]:
    row = after if after is not None else f'{{"id": {key}}}'
    return topic, f"[{key}]".encode(), f'{{"after": {row}, "key": [{key}], "updated": "{when.text}"}}'.encode()


def a_spool(
    root: Path, start: FeedStart | None = None, *, session: str = SESSION, roll_bytes: int = 1 << 20
) -> FeedSpool:
    spool = FeedSpool(root, session=session, start=start or FeedStart(), roll_bytes=roll_bytes)
    spool.prepare()
    return spool


def names(spool: FeedSpool) -> list[str]:
    return sorted(path.name for path in spool.feed.iterdir())


def text(spool: FeedSpool, name: str) -> str:
    return (spool.feed / name).read_text(encoding="utf-8")


def test_the_files_are_those_that_the_cloud_storage_sink_writes(tmp_path: Path) -> None:
    """The same changes through the demo's sink and through the spool: names but for the session, and contents."""
    sink = Changefeed(tmp_path / "sink", chance=random.Random(1), start=at(0).next(), layout="flat", nodes=1)
    spool = a_spool(tmp_path / "spool", FeedStart(at(0), scan=False))
    for second in (1, 2, 3):
        row = ShopChange(ORDERS, 1, (second,), {"id": second, "name": "größe"}, at(second))
        sink.emit(row)
        spool.add(row.topic, f"[{second}]".encode(), row.line().encode())
        sink.resolve(at(second))
        spool.resolve(promise(at(second)))

    def contents(root: Path) -> dict[str, str]:
        return {re.sub(r"-[0-9a-f]{16}-", "-S-", p.name): p.read_text(encoding="utf-8") for p in root.iterdir()}

    relayed = contents(spool.feed)
    assert relayed.pop(f"{at(0).file_stamp}.RESOLVED") == f'{{"resolved":"{at(0).text}"}}'
    assert relayed == contents(tmp_path / "sink")


def test_every_name_parses_and_rows_sort_before_their_promise(tmp_path: Path) -> None:
    spool = a_spool(tmp_path)
    spool.add(*change(1, at(1), topic="shop.public.my-table"))
    spool.add(*change(2, at(9)))
    spool.resolve(promise(at(5)))
    *data, last = names(spool)
    assert {DATA_FILE.match(name)[6] for name in data} == {ORDERS, "shop.public.my-table"}  # type: ignore[index]
    assert RESOLVED_FILE.match(last)
    assert Hlc.from_file_stamp(last[:33]) == at(5)
    assert text(spool, last) == f'{{"resolved":"{at(5).text}"}}'


def test_rows_that_come_before_any_clock_is_known_still_sort_before_the_first_promise(tmp_path: Path) -> None:
    """The first row may be younger than the first promise, so its own time is no name for the file."""
    spool = a_spool(tmp_path)
    spool.add(*change(1, at(100)))
    spool.add(*change(2, at(3)))
    spool.resolve(promise(at(5)))
    data, promised = names(spool)
    assert data < promised
    assert text(spool, data).count("\n") == 2


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    spool = a_spool(tmp_path)
    spool.add(*change(1, at(1)))
    assert names(spool) == []
    spool.resolve(promise(at(2)))
    assert [text(spool, name)[-1] for name in names(spool)] == ["\n", "}"]


def test_whoever_sees_a_promise_sees_all_rows_that_it_covers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at the feed each time that a name appears there, as a reader in another thread may: it settles a promise
    with the files that it finds, once and for all."""
    spool = a_spool(tmp_path, roll_bytes=200)
    sent: dict[Hlc, int] = {}
    show = os.replace

    def look(source: Path, target: Path) -> None:
        show(source, target)
        promises = [name for name in names(spool) if name.endswith(".RESOLVED")]
        for promised in promises:
            seen = sum(text(spool, name).count("\n") for name in names(spool) if name < promised)
            assert seen == sent[Hlc.from_file_stamp(promised[:33])], f"{promised} is there before its rows"

    monkeypatch.setattr(os, "replace", look)
    for second in range(1, 4):
        for topic in ("a", "b", "c"):
            for key in range(4):
                spool.add(*change(key, at(second), topic=topic))
        sent[at(second)] = 12 * second
        assert list((spool.run / "open").iterdir()), "not all files are full by now"
        spool.resolve(promise(at(second)))
    assert [name[:33] for name in names(spool) if name.endswith(".RESOLVED")] == [at(s).file_stamp for s in (1, 2, 3)]


def test_a_full_file_is_closed_and_the_next_one_begun(tmp_path: Path) -> None:
    spool = a_spool(tmp_path, roll_bytes=200)
    for key in range(10):
        spool.add(*change(key, at(1)))
    assert len(names(spool)) >= 3, "full files appear before the promise, so that memory and open files stay bounded"
    spool.resolve(promise(at(1)))
    *data, _ = names(spool)
    assert len({DATA_FILE.match(name)[5] for name in data}) == len(data)  # type: ignore[index]
    assert [json.loads(line)["key"][0] for name in data for line in text(spool, name).splitlines()] == list(range(10))


def test_a_file_holds_one_set_of_columns_and_a_delete_fits_any(tmp_path: Path) -> None:
    spool = a_spool(tmp_path)
    old, new = '{"a": 1, "id": 1}', '{"a": 1, "b": null, "id": 1}'
    for key, after in ((1, old), (2, new), (3, old), (4, "null"), (5, new)):
        spool.add(*change(key, at(key), after))
    spool.resolve(promise(at(9)))
    held = {}
    for name in names(spool):
        if match := DATA_FILE.match(name):
            rows = [json.loads(line) for line in text(spool, name).splitlines()]
            held[match[7]] = [row["key"][0] for row in rows]
            assert len({frozenset(row["after"]) for row in rows if row["after"]}) == 1
    assert held == {"1": [1, 3, 4], "2": [2, 5]}


def test_numbers_and_texts_pass_untouched(tmp_path: Path) -> None:
    spool = a_spool(tmp_path)
    digits = "9" * 5000
    after = f'{{"d": 22.30, "f": 1E+1, "n": {digits}, "s": "ß\\n\\u0000"}}'
    line = f'{{"after": {after}, "key": [1], "updated": "1.0000000000"}}'
    spool.add(ORDERS, b"[1]", line.encode())
    spool.resolve(promise(at(1)))
    assert text(spool, names(spool)[0]) == line + "\n"


def test_a_value_without_its_key_is_given_the_key_of_its_row(tmp_path: Path) -> None:
    spool = a_spool(tmp_path)
    spool.add(ORDERS, b'["x", 7]', f'{{"after": null, "updated": "{at(1).text}"}}'.encode())
    spool.resolve(promise(at(1)))
    assert json.loads(text(spool, names(spool)[0])) == {"after": None, "key": ["x", 7], "updated": at(1).text}


def test_a_line_break_between_tokens_does_not_split_a_row(tmp_path: Path) -> None:
    spool = a_spool(tmp_path)
    topic, key, value = change(1, at(1))
    spool.add(topic, key, value.replace(b", ", b",\n"))
    spool.resolve(promise(at(1)))
    assert len(text(spool, names(spool)[0]).splitlines()) == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"[1]", b"no json"),
        (b"[1]", b"\xff"),
        (b"[1]", b'{"after": 3, "updated": "1.0000000000"}'),
        (b"[1]", b'{"after": {"id": 1}}'),
        (b"[1]", b""),
        (b"[1]", b"[" * 100_000),
        (None, b'{"after": null, "updated": "1.0000000000"}'),
    ],
)
def test_a_row_that_is_no_change_stops_the_feed_and_names_the_table(
    tmp_path: Path, key: bytes | None, value: bytes
) -> None:
    with pytest.raises(BadInput, match=ORDERS):
        a_spool(tmp_path).add(ORDERS, key, value)


@pytest.mark.parametrize("value", [b"", b"{}", b'{"resolved": 5}', b'{"resolved": "5"}', b"[]", b"[" * 100_000])
def test_a_promise_that_cannot_be_read_stops_the_feed(tmp_path: Path, value: bytes) -> None:
    with pytest.raises(BadInput):
        a_spool(tmp_path).resolve(value)


def test_a_repeated_or_older_promise_writes_no_second_file(tmp_path: Path) -> None:
    spool = a_spool(tmp_path)
    spool.resolve(promise(at(5)))
    spool.add(*change(1, at(6)))
    spool.resolve(promise(at(5)))
    spool.resolve(promise(at(4)))
    assert [name for name in names(spool) if name.endswith("RESOLVED")] == [f"{at(5).file_stamp}.RESOLVED"]
    assert spool.resolved == at(5)


def test_a_resumed_run_begins_with_the_promise_of_its_frontier(tmp_path: Path) -> None:
    spool = a_spool(tmp_path, FeedStart(at(5), scan=False))
    assert names(spool) == [f"{at(5).file_stamp}.RESOLVED"]
    spool.add(*change(1, at(6)))
    spool.resolve(promise(at(7)))
    first, data, last = names(spool)
    assert data.startswith(at(5).next().file_stamp)
    assert (first[:33], last[:33]) == (at(5).file_stamp, at(7).file_stamp)


def test_a_scan_at_the_cursor_promises_nothing_before_its_rows(tmp_path: Path) -> None:
    """H54: scanned rows carry the cursor's own time; a promise of it made first would hide them all."""
    spool = a_spool(tmp_path, FeedStart(at(5), scan=True))
    assert names(spool) == []
    spool.add(*change(1, at(5)))
    spool.resolve(promise(at(5)))
    data, promised = names(spool)
    assert DATA_FILE.match(data)
    assert promised == f"{at(5).file_stamp}.RESOLVED"


def test_an_older_run_is_removed_and_nothing_else(tmp_path: Path) -> None:
    older = a_spool(tmp_path, session="00000000000000bb")
    older.add(*change(1, at(1)))
    older.resolve(promise(at(2)))
    (tmp_path / "run-notes.txt").write_text("mine")
    (tmp_path / "other").mkdir()
    a_spool(tmp_path, FeedStart(at(2), scan=False))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", f"run-{SESSION}", "run-notes.txt"]


def test_what_is_abandoned_never_shows(tmp_path: Path) -> None:
    spool = a_spool(tmp_path)
    spool.add(*change(1, at(1)))
    spool.abandon()
    assert names(spool) == []


def test_many_tables_do_not_exhaust_the_open_files(tmp_path: Path) -> None:
    spool = a_spool(tmp_path)
    for number in range(OPEN_FILES_MAX + 5):
        spool.add(*change(1, at(1), topic=f"t{number}"))
    assert len(names(spool)) == 5
    spool.resolve(promise(at(1)))
    assert len(names(spool)) == OPEN_FILES_MAX + 5 + 1


def test_forgetting_leaves_the_frontier_what_follows_it_and_what_is_kept(tmp_path: Path) -> None:
    spool = a_spool(tmp_path, FeedStart(at(0), scan=False))
    for second in (1, 2, 3):
        spool.add(*change(second, at(second)))
        spool.resolve(promise(at(second)))
    r0, d1, r1, d2, r2, d3, r3 = names(spool)
    assert spool.forget(at(2), keep={f"some/prefix/{d1}"}) == 3
    assert names(spool) == [d1, r2, d3, r3]
    assert {r0, r1, d2}.isdisjoint(names(spool))
    assert spool.forget(at(2), keep={d1}) == 0


def test_a_family_is_named_as_in_files() -> None:
    known = {ORDERS, "shop.public.orders.x"}
    assert topic_of(ORDERS, known) == ORDERS
    assert topic_of("shop.public.orders.f1", known) == "shop.public.orders+f1"
    assert topic_of("shop.public.orders.x", known) == "shop.public.orders.x"


@pytest.mark.parametrize("table", ["a/b", "", "x" * 200, "a\0b"])
def test_a_table_name_that_is_no_file_name_is_refused(table: str) -> None:
    with pytest.raises(BadInput):
        topic_of(table, {table})


class TestFrontiersSeenFromTheSpool:
    def test_an_older_frontier_becomes_the_start_of_the_run_without_notes(self) -> None:
        """Rows beyond the newer table's frontier lie in files that sort before it: the run starts at the older."""
        opened = {"a": Frontier(at(5), "old files"), "b": Frontier(at(9), "old files")}
        seen = seen_from_spool(opened, opened, FeedStart(at(5), scan=False))
        assert seen == {"a": Frontier(at(5)), "b": Frontier(at(5))}

    def test_a_frontier_of_this_run_keeps_its_notes(self) -> None:
        opened = {"a": Frontier(at(5), "old"), "b": Frontier(at(9), "old")}
        now = {"a": Frontier(at(12), "files of this run"), "b": opened["b"]}
        seen = seen_from_spool(now, opened, FeedStart(at(5), scan=False))
        assert seen == {"a": now["a"], "b": Frontier(at(5))}

    def test_after_a_scan_at_the_cursor_everything_in_the_spool_is_to_be_read(self) -> None:
        opened = {"a": Frontier(at(5), "old"), "new": None}
        assert seen_from_spool(opened, opened, FeedStart(at(5), scan=True)) == {"a": None, "new": None}


def test_a_session_is_what_file_names_allow(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="16 lowercase hex"):
        FeedSpool(tmp_path, session="not hex", start=FeedStart())


@pytest.mark.parametrize("cell", [b"[1]", "\\x5b315d", "[1]", memoryview(b"[1]"), bytearray(b"[1]")])
def test_bytes_are_read_in_every_form_a_driver_gives_them(cell: object) -> None:
    assert octets(cell) == b"[1]"
