"""A changefeed's files on a real S3 server: listed from where the last listing ended, read by processes that know
nothing but what they were handed."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import obstore
import pytest
from servers.faulty_storage import StorageFault, faulty_storage
from servers.seaweedfs import SeaweedFS

from frazil.errors import ConfigError, SourceLost, SourceUnavailable
from frazil.model.frontier import Window
from frazil.model.schema import SourceSchema
from frazil.sources.cockroachdb.feed.file_names import Compression
from frazil.sources.cockroachdb.feed.listing import Counters, FeedListing, ObjectLister
from frazil.sources.cockroachdb.feed.location import FeedLocation, line_blocks
from frazil.sources.cockroachdb.position import Hlc
from frazil.sources.cockroachdb.schema.types import column
from frazil.sources.cockroachdb.source import CloudFeed
from frazil.sources.cutting_reader import cut_of
from frazil.storage.client import store_for
from frazil.storage.url import parse_place

pytestmark = pytest.mark.servers
BASE = 1_700_000_000_000_000_000
SOURCE_SCHEMA = SourceSchema((column("a", "INT8", "test"), column("b", "STRING", "test")), ("a",), "test")


def at(second: int) -> Hlc:
    return Hlc(BASE + second * 1_000_000_000, 0)


class BucketFeed:
    """Writes a feed into a bucket as CockroachDB would."""

    def __init__(self, url: str, server: SeaweedFS) -> None:
        self.url = url
        self.files: list[str] = []
        place = parse_place(url)
        self._store = store_for(place, server.fileio, below=place.key).listed

    def data(self, second: int, *rows: tuple[int, str], compressed: bool = False) -> str:
        stamp = at(second)
        lines = "".join(
            json.dumps({"after": {"a": a, "b": b}, "key": [a], "updated": str(stamp)}) + "\n" for a, b in rows
        ).encode()
        name = f"{stamp.file_stamp}-{'a' * 16}-1-1-00000000-t-1.ndjson"
        return self._put(f"{name}.gz" if compressed else name, gzip.compress(lines) if compressed else lines)

    def resolved(self, second: int) -> None:
        self._put(f"{at(second).file_stamp}.RESOLVED", json.dumps({"resolved": str(at(second))}).encode())

    def remove(self, path: str) -> None:
        obstore.delete(self._store, path)

    def _put(self, name: str, body: bytes) -> str:
        path = f"{name[:4]}-{name[4:6]}-{name[6:8]}/{name}"
        obstore.put(self._store, path, body)
        self.files.append(path)
        return path


@pytest.fixture
def feed(bucket: str, seaweedfs: SeaweedFS) -> BucketFeed:
    return BucketFeed(f"{bucket}/feeds/shop", seaweedfs)


@pytest.fixture
def friendly(seaweedfs: SeaweedFS) -> dict[str, str]:
    """The same as `fileio`, by the names that people write."""
    return {
        "endpoint": seaweedfs.endpoint,
        "region": "us-east-1",
        "access_key_id": seaweedfs.access_key_id,
        "secret_access_key": seaweedfs.secret_access_key,
    }


def rows_of(source: CloudFeed, upper: Hlc) -> list[tuple[str, int]]:
    index = {"t": 0}
    window = Window((upper,))
    partitions = source.partitions(window, {"t": None}, index)
    reader = pickle.loads(pickle.dumps(source.reader(index, {"t": SOURCE_SCHEMA})))
    rows = [
        row
        for partition in partitions
        for batch in reader.read(partition, cut_of(window, None))
        for row in batch.to_pylist()
    ]
    return sorted((row["key"], row["epoch"]) for row in rows if row["payload"] is not None and row["epoch"] >= 0)


def test_a_feed_in_s3_is_listed_and_read(feed: BucketFeed, friendly: dict[str, str]) -> None:
    feed.data(1, (1, "one"), (2, "two"))
    feed.data(2, (3, "three"), compressed=True)
    feed.resolved(3)
    source = CloudFeed(FeedLocation(feed.url, friendly))
    source.initial({"t": None})
    assert source.latest() == (at(3),)
    assert [key for key, _ in rows_of(source, at(3))] == ["[1]", "[2]", "[3]"]


def test_icebergs_names_open_a_feed_too(feed: BucketFeed, seaweedfs: SeaweedFS) -> None:
    feed.resolved(1)
    source = CloudFeed(FeedLocation(feed.url, seaweedfs.fileio))
    source.initial({})
    assert source.latest() == (at(1),)


def test_an_object_store_is_asked_for_keys_after_the_start(feed: BucketFeed, friendly: dict[str, str]) -> None:
    for second in range(6):
        feed.data(2 * second, (second, "x"))
        feed.resolved(2 * second + 1)
    lister = ObjectLister(FeedLocation(feed.url, friendly))
    found = sorted(path for path, _ in lister.names_after(feed.files[5], Counters()))
    assert found == feed.files[6:]
    assert sorted(path for path, _ in lister.names_after("", Counters())) == feed.files
    assert len(FeedListing(lister).advance()) == 6


@pytest.mark.parametrize("compressed", [False, True])
def test_a_large_file_is_read_block_by_block(feed: BucketFeed, friendly: dict[str, str], compressed: bool) -> None:
    rows = [(number, "x" * 200) for number in range(80_000)]
    path = feed.data(1, *rows, compressed=compressed)
    location = FeedLocation(feed.url, friendly)
    with location.open(path, Compression.GZIP if compressed else Compression.NONE) as stream:
        blocks = list(line_blocks(stream))
    assert len(blocks) > 1
    lines = b"".join(blocks).splitlines()
    assert [json.loads(line)["key"] for line in lines] == [[number] for number, _ in rows]


def test_a_file_is_read_whole(feed: BucketFeed, friendly: dict[str, str]) -> None:
    path = feed.data(1, (1, "one"))
    with FeedLocation(feed.url, friendly).open(path) as stream:
        assert json.loads(bytes(stream.read()))["key"] == [1]


def test_a_file_that_is_gone_is_lost(feed: BucketFeed, friendly: dict[str, str]) -> None:
    path = feed.data(1, (1, "one"))
    location = FeedLocation(feed.url, friendly)
    assert location.size(path)
    feed.remove(path)
    assert location.size(path) is None
    with pytest.raises(SourceLost, match="is gone"), location.open(path, Compression.NONE) as stream:
        stream.read(1)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"secret_access_key": "not-the-secret"}, "SignatureDoesNotMatch"),
        ({"access_key_id": "AKIANOBODYATALL"}, "InvalidAccessKeyId"),
    ],
)
def test_a_feed_that_refuses_us_says_as_whom_and_where(
    feed: BucketFeed, friendly: dict[str, str], changed: dict[str, str], says: str
) -> None:
    options = {**friendly, **changed}
    source = CloudFeed(FeedLocation(feed.url, options))
    source.initial({})
    with pytest.raises(ConfigError, match=says) as caught:
        source.latest()
    shown = f"{caught.value} {caught.value.hint} {caught.value.facts}"
    assert friendly["endpoint"] in shown
    assert feed.url in shown
    assert options["secret_access_key"] not in shown
    assert options["access_key_id"] not in shown


def test_a_missing_bucket_is_a_wrong_configuration(friendly: dict[str, str]) -> None:
    source = CloudFeed(FeedLocation("s3://no-such-bucket-here/feed", friendly))
    source.initial({})
    with pytest.raises(ConfigError, match="NoSuchBucket"):
        source.latest()


def test_a_misspelt_option_is_refused_by_name(friendly: dict[str, str]) -> None:
    source = CloudFeed(FeedLocation("s3://bucket/feed", {**friendly, "acess_key": "x"}))
    source.initial({})
    with pytest.raises(ConfigError, match="acess_key"):
        source.latest()


def test_a_busy_store_is_waited_for_and_a_dead_one_reported(
    feed: BucketFeed, friendly: dict[str, str], seaweedfs: SeaweedFS
) -> None:
    feed.resolved(1)
    with faulty_storage(seaweedfs.endpoint) as proxy:
        source = CloudFeed(FeedLocation(feed.url, {**friendly, "endpoint": proxy.endpoint}))
        source.initial({})
        proxy.fail(StorageFault.BUSY, 2, lambda method, path: method == "GET")
        assert source.latest() == (at(1),)
        proxy.fail(StorageFault.BUSY, 1000, lambda method, path: method == "GET")
        with pytest.raises(SourceUnavailable, match="SlowDown"):
            source.latest()


@pytest.fixture
def found_here(seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """Options without any key; the keys are in a profile of this process's user alone."""
    keys = tmp_path / "credentials"
    pair = {"aws_access_key_id": seaweedfs.access_key_id, "aws_secret_access_key": seaweedfs.secret_access_key}
    keys.write_text("[shop]\n" + "".join(f"{name} = {value}\n" for name, value in pair.items()))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(keys))
    return {"endpoint": seaweedfs.endpoint, "region": "us-east-1", "profile": "shop"}


def test_another_process_reads_with_the_credentials_that_were_found_here(
    feed: BucketFeed, found_here: dict[str, str], seaweedfs: SeaweedFS, tmp_path: Path
) -> None:
    path = feed.data(1, (1, "one"))
    location = FeedLocation(feed.url, found_here)
    assert seaweedfs.secret_access_key not in repr(location)
    handed_over = tmp_path / "location"
    handed_over.write_bytes(pickle.dumps(location))
    program = (
        "import pickle, sys\n"
        "location = pickle.load(open(sys.argv[1], 'rb'))\n"
        "with location.open(sys.argv[2]) as stream: print(stream.read(1 << 20).decode())"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    answer = subprocess.run(
        [sys.executable, "-c", program, str(handed_over), path],
        env={**environment, "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert answer.returncode == 0, answer.stderr
    assert '"b": "one"' in answer.stdout
