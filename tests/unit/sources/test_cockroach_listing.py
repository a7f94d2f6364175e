"""Names, topics and listing: what is looked at, and what is never looked at again."""

from __future__ import annotations

import errno
import json
import os
import pickle
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cockroach_feed import Feed, Pipeline, at, source_schema, upsert
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import BadInput, ConfigError, FrazilError, SourceUnavailable
from frazil.model.frontier import Frontier, Window
from frazil.sources.cockroachdb.feed.file_names import (
    Compression,
    FeedFile,
    Format,
    ResolvedFile,
    parse_name,
    resolved_paths,
    stem_of,
)
from frazil.sources.cockroachdb.feed.listing import Counters, DirectoryLister, FeedListing
from frazil.sources.cockroachdb.feed.location import FeedLocation
from frazil.sources.cockroachdb.position import Hlc
from frazil.sources.cockroachdb.source import CloudFeed

STAMP = "202004022058072107140000000000000"


@pytest.mark.parametrize("folder", ["", "2020-04-02/", "2020-04-02/20/", "/2020-04-02/"])
def test_a_data_file_is_parsed_in_every_layout(folder: str) -> None:
    found = parse_name(f"{folder}{STAMP}-56087568dba1e6b8-1-72-00000000-test_table-1f.ndjson.gz", 7)
    assert isinstance(found, FeedFile)
    assert found.path == folder.lstrip("/") + f"{STAMP}-56087568dba1e6b8-1-72-00000000-test_table-1f.ndjson.gz"
    assert found.stamp == Hlc.from_file_stamp(STAMP)
    assert (found.topic, found.schema_version, found.size) == ("test_table", 31, 7)
    assert (found.format, found.compression) == (Format.JSON, Compression.GZIP)


def test_a_compressed_file_weighs_what_it_unpacks_to() -> None:
    name = "202004022058072107140000000000000-56087568dba1e6b8-1-72-00000000-t-1"
    weights = {}
    for ending in ("ndjson", "csv", "ndjson.gz", "csv.zst", "parquet"):
        file = parse_name(f"{name}.{ending}", 100)
        assert isinstance(file, FeedFile)
        weights[ending] = file.weight
    assert weights == {"ndjson": 100, "csv": 100, "ndjson.gz": 1000, "csv.zst": 1000, "parquet": 1000}


@pytest.mark.parametrize("topic", ["t", "my-table", "d.public.my-table-1", "t+f1", "a-1-2-00000000-b", "x.ndjson"])
def test_topics_keep_their_dashes_dots_and_pluses(topic: str) -> None:
    found = parse_name(f"{STAMP}-56087568dba1e6b8-1-72-00000000-{topic}-a.parquet")
    assert isinstance(found, FeedFile)
    assert found.topic == topic
    assert found.schema_version == 10


@pytest.mark.parametrize(
    "name", ["x.tmp", f"{STAMP}.RESOLVED.tmp", f"{STAMP}-x.ndjson", "other/dir/x", f".{STAMP}.RESOLVED.crc", "_SUCCESS"]
)
def test_files_of_others_are_not_the_feeds(name: str) -> None:
    assert parse_name(name) is None


@pytest.mark.parametrize(
    "stamp", ["", "2020", "202013022058072107140000000000000", "20200402205807210714000000000000x"]
)
def test_a_resolved_file_without_timestamp_is_refused(stamp: str) -> None:
    with pytest.raises(BadInput, match="RESOLVED") as caught:
        parse_name(f"2020-04-02/{stamp}.RESOLVED")
    assert caught.value.facts["file"] == f"2020-04-02/{stamp}.RESOLVED"


@given(st.builds(Hlc, st.integers(0, 2**62), st.integers(0, 2**31 - 1)))
def test_a_resolved_path_leads_back_to_its_position(position: Hlc) -> None:
    for path in resolved_paths(position):
        assert parse_name(path) == ResolvedFile(path, position)


def test_a_data_file_sorts_before_the_resolved_file_of_its_stamp() -> None:
    assert f"{STAMP}-56087568dba1e6b8-1-72-00000000-t-1.ndjson" < f"{STAMP}.RESOLVED"


def build(root: Path, layout: str = "daily", days: int = 5) -> Feed:
    feed = Feed(root, layout)
    for day in range(days):
        second = day * 86_400
        feed.data(at(second), [upsert([day], at(second), a=day)])
        feed.resolved(at(second + 10))
    return feed


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where each listing starts."""
    found: list[str] = []
    listed = DirectoryLister.names_after

    def noting(lister: DirectoryLister, start: str, counters: Counters) -> Iterator[tuple[str, int]]:
        found.append(start)
        return listed(lister, start, counters)

    monkeypatch.setattr(DirectoryLister, "names_after", noting)
    return found


@pytest.mark.parametrize("layout", ["flat", "daily", "hourly"])
def test_a_poll_lists_nothing_behind_the_newest_resolved(tmp_path: Path, layout: str, starts: list[str]) -> None:
    feed = build(tmp_path, layout)
    run = Pipeline(feed, {"t": source_schema()})
    run.drain()
    counters = run.source.listing.counters
    before = (counters.names, counters.directories)
    starts.clear()
    run.drain()
    run.drain()
    assert counters.names == before[0]
    assert starts == [feed.files[-1]] * 2
    if layout == "daily":
        assert counters.directories - before[1] == 4  # the root and the newest day, twice


def test_opening_at_a_frontier_does_not_look_at_earlier_days(tmp_path: Path, starts: list[str]) -> None:
    feed = build(tmp_path)
    source = CloudFeed(FeedLocation(str(tmp_path)))
    source.initial({"t": Frontier(at(3 * 86_400 + 10))})
    assert source.latest() == (at(4 * 86_400 + 10),)
    assert starts == [feed.files[7], stem_of(feed.files[7])]
    assert source.listing.counters.directories == 2 * 3  # twice: the root and two days of five
    assert source.listing.counters.names == 2 + 3


def test_a_long_run_keeps_nothing_of_its_listings(tmp_path: Path) -> None:
    run = Pipeline(build(tmp_path, days=1), {"t": source_schema()})
    run.drain()
    before = pickle.dumps(run.source.listing.counters), len(run.source.listing)
    for _ in range(300):
        run.drain()
    assert len(pickle.dumps(run.source.listing.counters)) <= len(before[0]) + 16
    assert len(run.source.listing) == before[1]


class Appearing:
    """A listing during which a data file is written behind the cursor, once."""

    def __init__(self, first: list[str], later: list[str]) -> None:
        self.answers = [first, later]

    def names_after(self, start: str, counters: Counters) -> Iterator[tuple[str, int]]:
        names = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        yield from ((name, 1) for name in names if name > start)


def test_a_file_written_behind_the_cursor_is_found_by_the_second_listing() -> None:
    data = [f"{at(s).file_stamp}-{'a' * 16}-1-1-00000000-t-1.ndjson" for s in (1, 2)]
    resolved, newer = (f"{at(s).file_stamp}.RESOLVED" for s in (5, 9))
    listing = FeedListing(Appearing([data[1], resolved], [*data, resolved, newer]))
    assert listing.advance() == (at(5),)
    assert listing.between("t", "", resolved).paths == data
    assert listing.advance() == (at(5), at(9))


def test_a_resolved_position_waits_for_a_listing_that_began_after_it_was_seen() -> None:
    """The one that the second listing meets first is not settled by it."""
    resolved = f"{at(5).file_stamp}.RESOLVED"
    listing = FeedListing(Appearing([], [resolved]))
    assert listing.advance() == ()
    assert listing.advance() == (at(5),)


def test_a_feed_of_many_files_costs_little_more_than_their_names() -> None:
    """A million of them must not fill the driver: at a listing's peak, and between listings."""
    many, length = 20_000, len(f"{at(0).file_stamp}-{'a' * 16}-1-1-00000000-t-1.ndjson")

    class Many:
        def names_after(self, start: str, counters: Counters) -> Iterator[tuple[str, int]]:
            names = (f"{at(i % 50).file_stamp}-{'a' * 16}-1-1-{i:08x}-t-1.ndjson" for i in range(many))
            return ((name, 1000) for name in (*names, f"{at(60).file_stamp}.RESOLVED") if name > start)

    listing = FeedListing(Many())
    tracemalloc.start()
    try:
        assert listing.advance() == (at(60),)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(listing) == many
    assert held / many < length + 100
    assert peak / many < 3 * (length + 100)
    assert listing.between("t", "", "~").paths == sorted(listing.between("t", "", "~").paths)


def test_a_folder_of_many_files_is_looked_at_file_by_file(tmp_path: Path) -> None:
    """Python's entry of a file that was asked for its size takes several times as much as its name."""
    many = 5_000
    for i in range(many):
        (tmp_path / f"{at(i % 50).file_stamp}-{'a' * 16}-1-1-{i:08x}-t-1.ndjson").touch()
    Feed(tmp_path, "flat").resolved(at(60))
    listing = FeedListing(DirectoryLister(tmp_path))
    tracemalloc.start()
    try:
        assert listing.advance() == (at(60),)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(listing) == many
    assert peak < 2 * held


def test_files_beyond_the_newest_resolved_are_not_settled(tmp_path: Path) -> None:
    feed = build(tmp_path, days=1)
    feed.data(at(99), [upsert([1], at(99), a=1)])
    listing = FeedListing(DirectoryLister(tmp_path))
    listing.advance()
    assert len(listing) == 1


def test_memory_behind_the_published_position_is_given_back(tmp_path: Path) -> None:
    build(tmp_path)
    run = Pipeline(Feed(tmp_path), {"t": source_schema()})
    run.drain()
    assert len(run.source.listing) == 0
    assert run.source.listing.resolved == (at(4 * 86_400 + 10),)


def test_foreign_and_temporary_files_are_passed_over(tmp_path: Path) -> None:
    feed = build(tmp_path, days=1)
    (tmp_path / feed.files[0]).with_suffix(".ndjson.tmp123").write_text("half")
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "2023-11-14/deep").mkdir()
    listing = FeedListing(DirectoryLister(tmp_path))
    assert listing.advance() == (at(10),)
    assert listing.counters.foreign >= 2
    assert len(listing) == 1


@pytest.mark.parametrize("second", [5, 99])
@pytest.mark.parametrize("kind", ["dangling", "circle", "through a file", "folder", "vanishes"])
def test_a_name_with_nothing_behind_it_is_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, second: int
) -> None:
    """What is gone by the time it is looked at was deleted, a moment earlier or later."""
    feed = build(tmp_path, days=1)
    plain = tmp_path / "plain"
    plain.touch()
    targets = {"dangling": tmp_path / "nowhere", "through a file": plain / "nowhere"}
    gone = [tmp_path / feed.data(at(second), [], session="c" * 16), tmp_path / feed.resolved(at(200))]
    for path in gone:
        if kind == "folder":
            path.unlink()
            path.mkdir()
        elif kind != "vanishes":
            path.unlink()
            path.symlink_to(targets.get(kind, path))

    @contextmanager
    def scan_and_lose(folder: Path) -> Iterator[Iterator[os.DirEntry[str]]]:
        entries = list(scan(folder))
        for entry in entries:
            if tmp_path / entry.path in gone:
                os.unlink(entry.path)
        yield iter(entries)

    scan = os.scandir
    if kind == "vanishes":
        monkeypatch.setattr(os, "scandir", scan_and_lose)
    run = Pipeline(feed, {"t": source_schema()})
    assert run.drain() == [at(10)]
    assert [row["a"] for row in run.rows()] == [0]


def test_a_link_in_a_circle_that_is_named_like_a_day_is_no_folder(tmp_path: Path) -> None:
    feed = build(tmp_path, days=1)
    day = tmp_path / "2031-01-01"
    day.symlink_to(day)
    run = Pipeline(feed, {"t": source_schema()})
    run.drain()
    assert [row["a"] for row in run.rows()] == [0]


def test_a_directory_that_cannot_be_listed_is_a_source_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scan(folder: Path) -> Iterator[os.DirEntry[str]]:
        raise OSError(errno.ESTALE, "stale file handle", str(folder))

    source = CloudFeed(FeedLocation(str(tmp_path)))
    source.initial({})
    monkeypatch.setattr(os, "scandir", scan)
    with pytest.raises(SourceUnavailable, match="stale"):
        source.latest()


def test_a_missing_directory_is_a_source_that_does_not_answer(tmp_path: Path) -> None:
    source = CloudFeed(FeedLocation(str(tmp_path / "nowhere")))
    source.initial({})
    with pytest.raises(SourceUnavailable):
        source.latest()


def test_an_unknown_storage_is_refused() -> None:
    with pytest.raises(ConfigError, match="ftp"):
        FeedLocation("ftp://x/y")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://feeds/shop/", "cockroachdb:s3://feeds/shop"),
        ("s3://feeds//shop", "cockroachdb:s3://feeds/shop"),
        ("file:///data/feed/", "cockroachdb:file:///data/feed"),
        ("/data/x/../feed", "cockroachdb:file:///data/feed"),
    ],
)
def test_one_place_has_one_incarnation(url: str, expected: str) -> None:
    """H9."""
    if url.startswith("s3"):
        assert f"cockroachdb:{FeedLocation(url).normalised}" == expected
    else:
        assert CloudFeed(FeedLocation(url)).incarnation == expected


def test_a_known_cluster_is_the_incarnation(tmp_path: Path) -> None:
    """H9."""
    source = CloudFeed(FeedLocation(str(tmp_path)), cluster_id="38269e9c")
    assert source.incarnation == "cockroachdb:38269e9c"


def test_tables_at_different_frontiers_get_their_own_files(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    for second in (0, 10, 20):
        for topic in ("t", "u"):
            feed.data(at(second), [upsert([second], at(second), a=second)], topic=topic)
        feed.resolved(at(second + 5))
    source = CloudFeed(FeedLocation(str(tmp_path)))
    frontiers = {"t": Frontier(at(15)), "u": Frontier(at(5))}
    source.initial(frontiers)
    assert source.latest() == (at(15), at(25))
    partitions = source.partitions(Window((at(15), at(25))), frontiers, {"t": 4, "u": 7})
    assert [(partition.table, parse_name(partition.name).stamp) for partition in partitions] == [  # type: ignore[union-attr]
        (4, at(20)),
        (7, at(10)),
        (7, at(20)),
    ]
    assert source.latest() == ()


def test_a_window_that_is_asked_for_and_then_shortened_leaves_the_rest_resolved(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    feed.resolved(at(5))
    for second in (10, 20, 30):
        feed.data(at(second), [upsert([second], at(second), a=second)])
        feed.resolved(at(second + 5))
    source, frontiers = CloudFeed(FeedLocation(str(tmp_path))), {"t": Frontier(at(5))}

    def taken(*uppers: Hlc) -> list[tuple[Hlc, bool]]:
        """The files, and whether they count as read before."""
        partitions = source.partitions(Window(uppers), frontiers, {"t": 0})
        return [(parse_name(s.name).stamp, json.loads(s.facts).get("again", False)) for s in partitions]  # type: ignore[union-attr]

    source.initial(frontiers)
    assert source.latest() == (at(15), at(25), at(35))
    assert taken(at(15), at(25), at(35)) == [(at(10), False), (at(20), False), (at(30), False)]
    assert taken(at(15)) == [(at(10), False)]
    assert source.latest() == (at(25), at(35))
    # Nothing was published of it: the table is where it was.
    assert taken(at(25), at(35)) == [(at(10), True), (at(20), False), (at(30), False)]
    assert taken(at(25)) == [(at(10), True), (at(20), False)]
    frontiers["t"] = Frontier(at(25))
    assert source.latest() == (at(35),)
    assert taken(at(35)) == [(at(30), False)]
    assert source.latest() == ()
    # What was handed out last was never written: somebody begins anew.
    source.initial(frontiers)
    assert source.latest() == (at(35),)
    assert taken(at(35)) == [(at(30), False)]


def test_a_file_that_is_still_being_copied_is_not_there_yet() -> None:
    """Copying tools write under a hidden name and rename."""
    name = f"{at(1).file_stamp}.RESOLVED"
    assert isinstance(parse_name(f"2023-11-14/{name}"), ResolvedFile)
    assert parse_name(f"2023-11-14/.{name}") is None
    assert parse_name(f".{name}.Xk21az") is None


@pytest.mark.parametrize(
    ("feed", "incarnation"),
    [
        ("https://feeds.example/shop/", "cockroachdb:https://feeds.example/shop"),
        ("https://reader:hunter22@feeds.example/shop", "cockroachdb:https://feeds.example/shop"),
        ("https://reader:p@hunter22@feeds.example:8443/shop", "cockroachdb:https://feeds.example:8443/shop"),
        ("https://hunter22@feeds.example/shop?sig=hunter22", "cockroachdb:https://feeds.example/shop"),
        ("s3://feeds/shop?AWS_SECRET_ACCESS_KEY=hunter22", "cockroachdb:s3://feeds/shop"),
        ("s3://id:hunter22@feeds/shop", "cockroachdb:s3://id@feeds/shop"),
        ("abfss://feeds@account.dfs.example/shop", "cockroachdb:abfss://feeds@account.dfs.example/shop"),
    ],
)
def test_what_logs_in_is_no_part_of_a_feeds_incarnation(feed: str, incarnation: str) -> None:
    """It is written into every snapshot, for whoever reads the table; and a new password is no new feed."""
    assert CloudFeed(FeedLocation(feed)).incarnation == incarnation


@pytest.mark.parametrize(
    "feed",
    [
        "http://reader:hunter22@127.0.0.1:9/shop?sig=hunter22",
        "ftp://u:hunter22@h/shop",
        "kafka://broker?sasl_password=hunter22",
        "az://feeds/shop?AZURE_ACCOUNT_KEY=hunter22",
        "s3://id:hunter22@feeds/shop",
    ],
)
def test_no_message_about_a_feed_repeats_what_logs_in(feed: str) -> None:
    with pytest.raises(FrazilError) as caught:
        FeedLocation(feed).size("gone")
    error = caught.value
    assert "hunter22" not in f"{error} {error.hint} {error.facts}"


def test_a_feeds_location_shows_nothing_that_logs_in() -> None:
    secretive = FeedLocation("https://reader:hunter22@feeds.example/shop?sig=hunter22", {"token": "hunter22"})
    assert repr(secretive) == "FeedLocation('https://feeds.example/shop')"


def test_parameters_of_a_changefeed_are_no_part_of_what_is_listed() -> None:
    store = FeedLocation("s3://feeds/shop?AWS_SECRET_ACCESS_KEY=hunter22", {"region": "eu-central-1"}).store()
    assert repr(store) == 'S3Store(bucket="feeds", prefix="shop")'
