"""Workers' files on further real servers: a second S3 implementation, and HDFS with two namenodes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import pytest
from servers.hdfs import Hdfs, hdfs_server
from servers.s3proxy import S3Proxy, s3proxy_server

from frazil.errors import CatalogRefused, ConfigError, StorageUnavailable, TableChanged
from frazil.retry import Backoff
from frazil.storage.files.open_file import open_input, open_output

pytestmark = [pytest.mark.servers, pytest.mark.more_servers]
LARGE = random.Random(11).randbytes((20 << 20) + 777)
_number = itertools.count()


@dataclass(frozen=True)
class Storage:
    root: str
    options: Mapping[str, str]


@pytest.fixture(scope="module")
def s3proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Proxy]:
    with s3proxy_server(tmp_path_factory.mktemp("s3proxy")) as server:
        yield server


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with hdfs_server(tmp_path_factory.mktemp("hdfs")) as server:
        yield server


@pytest.fixture(params=["s3proxy", "hdfs", "webhdfs"])
def storage(request: pytest.FixtureRequest) -> Storage:
    if request.param == "s3proxy":
        server: S3Proxy = request.getfixturevalue("s3proxy")
        return Storage(server.bucket("files"), server.fileio)
    service: Hdfs = request.getfixturevalue("hdfs")
    if request.param == "hdfs":
        return Storage("hdfs://lake/tables", service.fileio)
    addresses = {"frazil.hdfs.namenodes": ",".join(service.namenodes), "frazil.hdfs.user": service.superuser}
    return Storage("webhdfs://lake/tables", addresses)


@pytest.fixture
def path(storage: Storage) -> str:
    return f"{storage.root}/shop/day=2024-01-01 00%3A00/data-{next(_number)}+ü.parquet"


def write(path: str, options: Mapping[str, str], data: bytes) -> None:
    output = open_output(path, options)
    try:
        for start in range(0, len(data), 100_000):
            output.write(memoryview(data)[start : start + 100_000])
        output.sync()
    finally:
        output.close()


def read(path: str, options: Mapping[str, str]) -> bytes:
    with open_input(path, options) as source:
        return bytes(source.read())


@pytest.mark.parametrize("size", [0, 1, 8 << 20, len(LARGE)])
def test_what_was_written_is_read(storage: Storage, path: str, size: int) -> None:
    write(path, storage.options, LARGE[:size])
    assert read(path, storage.options) == LARGE[:size]


def test_ranges_are_exact(storage: Storage, path: str) -> None:
    write(path, storage.options, LARGE)
    with open_input(path, storage.options) as source:
        assert source.size() == len(LARGE)
        for start, size in [(0, 10), (5_000_000, 3_000_000), (5_000_001, 20), (len(LARGE) - 5, 5)]:
            assert source.read_at(size, start) == LARGE[start : start + size]


@pytest.mark.parametrize("size", [10, len(LARGE)])
def test_a_path_that_exists_is_refused_and_left_as_it_is(storage: Storage, path: str, size: int) -> None:
    """H41, H46."""
    write(path, storage.options, b"the first")
    with pytest.raises(CatalogRefused) as caught:
        write(path, storage.options, LARGE[:size])
    assert "written once" in caught.value.hint
    assert read(path, storage.options) == b"the first"


@pytest.mark.parametrize("size", [10, len(LARGE)])
def test_a_file_that_was_not_synced_is_not_there_whole(storage: Storage, path: str, size: int) -> None:
    output = open_output(path, storage.options)
    output.write(memoryview(LARGE)[:size])
    output.close()
    with suppress(TableChanged):
        assert len(read(path, storage.options)) < max(size, 100), "at most a part, or the claim"


def test_a_file_that_is_gone_changed_the_table(storage: Storage, path: str) -> None:
    with pytest.raises(TableChanged):
        open_input(path, storage.options)


def test_a_wrong_secret_of_the_second_store_is_named(s3proxy: S3Proxy) -> None:
    options = {**s3proxy.fileio, "s3.secret-access-key": "not-the-secret"}
    with pytest.raises(ConfigError, match="SignatureDoesNotMatch"):
        write(f"{s3proxy.bucket('files')}/denied", options, b"x")


def test_a_user_without_the_right_to_write_is_named(hdfs: Hdfs) -> None:
    options = {**hdfs.fileio, "frazil.hdfs.user": "mallory"}
    with pytest.raises(CatalogRefused, match="AccessControlException") as caught:
        write("hdfs://lake/denied/file", options, b"x" * (2 << 20))
    assert "user mallory" in str(caught.value)


@pytest.fixture
def failed_over(hdfs: Hdfs) -> Iterator[Callable[[], None]]:
    """Call it to make the other namenode active; at the end the first one is again."""
    done = []

    def fail() -> None:
        done.append(hdfs.failover())

    yield fail
    if len(done) % 2:
        hdfs.failover()


def test_the_active_namenode_is_found_wherever_it_is(hdfs: Hdfs, failed_over: Callable[[], None]) -> None:
    before, after = "hdfs://lake/tables/ha/before", "hdfs://lake/tables/ha/after"
    write(before, hdfs.fileio, b"written before")
    failed_over()
    write(after, hdfs.fileio, b"written after")
    assert read(before, hdfs.fileio) == b"written before"
    assert read(after, hdfs.fileio) == b"written after"


def test_a_service_where_nobody_listens_is_tried_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frazil.storage.requests.REQUESTS", Backoff(first=0.2, longest=5.0, attempts=2))
    options = {"frazil.hdfs.namenodes": "http://127.0.0.1:9,http://127.0.0.1:10", "frazil.hdfs.user": "shop"}
    with pytest.raises(StorageUnavailable, match=r"user shop at http://127.0.0.1:9, http://127.0.0.1:10"):
        open_output("hdfs://lake/file", options)
