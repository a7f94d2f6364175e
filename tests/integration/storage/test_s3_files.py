"""Workers' files on a real S3 server: whole or not at all, once, and read by ranges."""

from __future__ import annotations

import hashlib
import itertools
import pickle
import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from servers.certificates import loopback_tls
from servers.faulty_storage import FaultyStorage, StorageFault, faulty_storage
from servers.seaweedfs import SeaweedFS

from frazil.data.keys.codec import KeyCodec
from frazil.data.parquet_writer import RollingWriter
from frazil.data.read.parquet import index_file, read_rows
from frazil.errors import CatalogRefused, ConfigError, FrazilError, StorageUnavailable, TableChanged
from frazil.model.schema import LONG, STRING, Field
from frazil.model.write import ParquetSettings
from frazil.retry import Backoff
from frazil.storage import client as stores
from frazil.storage.files.open_file import open_input, open_output

pytestmark = pytest.mark.servers
PART = 8 << 20
LARGE = random.Random(7).randbytes(2 * PART + 12345)
FIELDS = (Field(1, "id", LONG), Field(2, "name", STRING))
_number = itertools.count()


@pytest.fixture(scope="module")
def root(seaweedfs: SeaweedFS) -> str:
    return seaweedfs.bucket("files")


@pytest.fixture
def path(root: str) -> str:
    """A new one for each test, with characters that must not be escaped or unescaped on the way."""
    return f"{root}/shop/day=2024-01-01 00%3A00/data-{next(_number)}+ü.parquet"


@pytest.fixture
def proxy(seaweedfs: SeaweedFS) -> Iterator[FaultyStorage]:
    with faulty_storage(seaweedfs.endpoint) as running:
        yield running


def through(proxy: FaultyStorage, server: SeaweedFS) -> dict[str, str]:
    return {**server.fileio, "s3.endpoint": proxy.endpoint}


def write(path: str, options: Mapping[str, str], data: bytes, step: int = 1 << 20) -> None:
    output = open_output(path, options)
    try:
        for start in range(0, len(data), step):
            output.write(memoryview(data)[start : start + step])
        output.sync()
    finally:
        output.close()


def read(path: str, options: Mapping[str, str]) -> bytes:
    with open_input(path, options) as source:
        return bytes(source.read())


def uploads(server: SeaweedFS) -> list[str]:
    return server.shell("fs.ls /buckets/files/.uploads").split()


def refused(kind: type[FrazilError], path: str, options: Mapping[str, str], data: bytes = b"x") -> FrazilError:
    """The error of a write, which names the path, is picklable, and holds no secret."""
    with pytest.raises(kind) as caught:
        write(path, options, data)
    error = pickle.loads(pickle.dumps(caught.value))
    shown = f"{error} {error.hint} {error.facts}"
    assert error.facts["path"] == path
    assert error.hint
    assert options["s3.secret-access-key"] not in shown
    assert options["s3.access-key-id"] not in shown
    assert isinstance(error, FrazilError)
    return error


@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, len(LARGE)])
def test_what_was_written_is_read(path: str, seaweedfs: SeaweedFS, size: int) -> None:
    write(path, seaweedfs.fileio, LARGE[:size])
    assert read(path, seaweedfs.fileio) == LARGE[:size]


@pytest.mark.parametrize("size", [1, len(LARGE)], ids=["small", "multipart"])
def test_a_path_that_exists_is_refused_and_left_as_it_is(path: str, seaweedfs: SeaweedFS, size: int) -> None:
    """H41, H46."""
    write(path, seaweedfs.fileio, b"the first")
    error = refused(CatalogRefused, path, seaweedfs.fileio, LARGE[:size])
    assert "written once" in error.hint
    assert read(path, seaweedfs.fileio) == b"the first"


@pytest.mark.parametrize("size", [100, len(LARGE)], ids=["small", "multipart"])
def test_a_file_that_was_not_synced_is_not_there_with_its_content(path: str, seaweedfs: SeaweedFS, size: int) -> None:
    output = open_output(path, seaweedfs.fileio)
    output.write(memoryview(LARGE)[:size])
    output.close()
    try:
        found = read(path, seaweedfs.fileio)
    except TableChanged:
        found = b""
    assert len(found) < 100, "at most the claim"
    assert uploads(seaweedfs) == [], "the parts were given back"


def test_ranges_are_read_in_few_requests(path: str, seaweedfs: SeaweedFS, proxy: FaultyStorage) -> None:
    write(path, seaweedfs.fileio, LARGE)
    with open_input(path, through(proxy, seaweedfs)) as source:
        assert source.size() == len(LARGE)
        assert source.read_at(8, len(LARGE) - 8) == LARGE[-8:]
        assert source.read_at(1000, 5000) == LARGE[5000:6000]
        assert source.read_at(3000, 6000) == LARGE[6000:9000]
        assert source.read_at(4 << 20, 1 << 20) == LARGE[1 << 20 : 5 << 20]
        source.seek(-3, 2)
        assert source.read(10) == LARGE[-3:]
    assert len(proxy.requests) == 3, "the end, a stretch read ahead, and a large range"


def test_a_key_index_is_built_from_a_file_in_s3(path: str, seaweedfs: SeaweedFS) -> None:
    ids = np.random.default_rng(3).permutation(200_000)
    names = [f"name {number}" for number in ids]
    table = pa.table({"id": pa.array(ids, pa.int64()), "name": names})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=50_000)
    data = sink.getvalue().to_pybytes()
    write(path, seaweedfs.fileio, data)
    codec = KeyCodec(FIELDS[:1])
    index = index_file(path, len(data), codec, seaweedfs.fileio)
    assert index.records == 200_000
    rows = read_rows(path, [5, 199_999, 70_000], FIELDS, seaweedfs.fileio)
    assert rows.column("name").to_pylist() == [names[5], names[199_999], names[70_000]]


def test_a_file_that_is_gone_changed_the_table(path: str, seaweedfs: SeaweedFS) -> None:
    with pytest.raises(TableChanged, match="is gone"):
        open_input(path, seaweedfs.fileio)


def test_a_wrong_secret_is_a_wrong_configuration(path: str, seaweedfs: SeaweedFS) -> None:
    options = {**seaweedfs.fileio, "s3.secret-access-key": "not-the-secret"}
    error = refused(ConfigError, path, options)
    assert "SignatureDoesNotMatch" in str(error)
    assert "AKIA...ESTS" in str(error)
    assert error.facts["endpoint"] == seaweedfs.endpoint


def test_an_unknown_access_key_is_a_wrong_configuration(path: str, seaweedfs: SeaweedFS) -> None:
    error = refused(ConfigError, path, {**seaweedfs.fileio, "s3.access-key-id": "AKIANOBODYATALL"})
    assert "InvalidAccessKeyId" in str(error)


def test_a_missing_bucket_is_named(seaweedfs: SeaweedFS) -> None:
    error = refused(ConfigError, "s3://nowhere-at-all/a/b", seaweedfs.fileio)
    assert "'nowhere-at-all'" in error.hint


def test_a_reader_may_not_write(path: str, seaweedfs: SeaweedFS) -> None:
    write(path, seaweedfs.fileio, b"to be read")
    options = seaweedfs.reader("files")
    assert read(path, options) == b"to be read"
    error = refused(CatalogRefused, f"{path}-2", options)
    assert "AccessDenied" in str(error)
    assert "docs/storage.md" in error.hint


def test_an_endpoint_where_nobody_listens_is_tried_and_named(
    path: str, seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frazil.storage.requests.REQUESTS", Backoff(first=0.2, longest=5.0, attempts=2))
    error = refused(StorageUnavailable, path, {**seaweedfs.fileio, "s3.endpoint": "http://127.0.0.1:9"})
    assert "http://127.0.0.1:9" in error.hint
    assert "the connection was refused" in str(error)


def test_a_certificate_is_checked_against_known_authorities(path: str, seaweedfs: SeaweedFS, tmp_path: Path) -> None:
    tls, authority = loopback_tls(tmp_path)
    with faulty_storage(seaweedfs.endpoint, tls) as proxy:
        options = through(proxy, seaweedfs)
        error = refused(ConfigError, path, options)
        assert "its certificate is not trusted" in str(error)
        assert "ca_file" in error.hint
        write(path, {**options, "frazil.tls.ca-file": str(authority)}, b"over https")
    assert read(path, seaweedfs.fileio) == b"over https"


def test_a_data_file_is_reported_with_what_lies_in_s3(path: str, seaweedfs: SeaweedFS) -> None:
    writer = RollingWriter(FIELDS, lambda number: f"{path}-{number}", ParquetSettings(), seaweedfs.fileio)
    writer.write(pa.record_batch({"id": pa.array(range(1000), pa.int64()), "name": ["x"] * 1000}))
    (closed,) = writer.close()
    found = read(closed.path, seaweedfs.fileio)
    assert len(found) == closed.size
    assert hashlib.sha256(found).hexdigest() == closed.digest


def test_a_data_file_that_is_denied_is_an_error_of_ours(path: str, seaweedfs: SeaweedFS) -> None:
    writer = RollingWriter(FIELDS, lambda _: path, ParquetSettings(), seaweedfs.reader("files"))
    writer.write(pa.record_batch({"id": pa.array(range(10), pa.int64()), "name": ["x"] * 10}))
    with pytest.raises(CatalogRefused, match="AccessDenied"):
        writer.close()


@pytest.mark.parametrize("fault", [StorageFault.BUSY, StorageFault.TOO_MANY, StorageFault.CUT_UPLOAD])
@pytest.mark.parametrize("size", [100_000, len(LARGE)], ids=["small", "multipart"])
def test_a_passing_trouble_is_waited_for(
    path: str, seaweedfs: SeaweedFS, proxy: FaultyStorage, fault: StorageFault, size: int
) -> None:
    proxy.fail(fault, 2, lambda method, target: method == "PUT" and (size < PART or "partNumber" in target))
    write(path, through(proxy, seaweedfs), LARGE[:size])
    assert read(path, seaweedfs.fileio) == LARGE[:size]


def test_a_lost_answer_of_a_small_write_is_cleared_up_by_looking(
    path: str, seaweedfs: SeaweedFS, proxy: FaultyStorage
) -> None:
    """H41: our own object, which a try without an answer had made, is not taken for somebody else's."""
    proxy.fail(StorageFault.LOSE_ANSWER)
    write(path, through(proxy, seaweedfs), b"landed at once")
    assert read(path, seaweedfs.fileio) == b"landed at once"


def test_somebody_elses_object_after_a_lost_request_is_still_refused(
    path: str, seaweedfs: SeaweedFS, proxy: FaultyStorage
) -> None:
    """H41, H46."""
    write(path, seaweedfs.fileio, b"somebody else's")
    proxy.fail(StorageFault.BUSY)
    refused(CatalogRefused, path, through(proxy, seaweedfs), b"ours, of 15 b..")
    assert read(path, seaweedfs.fileio) == b"somebody else's"


def test_a_lost_answer_of_a_completion_is_cleared_up_by_looking(
    path: str, seaweedfs: SeaweedFS, proxy: FaultyStorage
) -> None:
    proxy.fail(StorageFault.LOSE_ANSWER, 1, lambda method, target: method == "POST" and "uploadId" in target)
    write(path, through(proxy, seaweedfs), LARGE)
    assert read(path, seaweedfs.fileio) == LARGE


def test_a_completion_that_never_answers_is_cleared_up_by_looking(
    path: str, seaweedfs: SeaweedFS, proxy: FaultyStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(stores._RETRIES, "max_retries", 1)
    proxy.fail(StorageFault.LOSE_ANSWER, 100, lambda method, target: method == "POST" and "uploadId" in target)
    write(path, through(proxy, seaweedfs), LARGE)
    assert read(path, seaweedfs.fileio) == LARGE


def test_a_completion_that_never_arrives_is_never_reported(
    path: str, seaweedfs: SeaweedFS, proxy: FaultyStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(stores._RETRIES, "max_retries", 1)
    proxy.fail(StorageFault.BUSY, 100, lambda method, target: method == "POST" and "uploadId" in target)
    refused(StorageUnavailable, path, through(proxy, seaweedfs), LARGE)
    assert len(read(path, seaweedfs.fileio)) < 100, "at most the claim"


def test_many_files_are_written_at_once(path: str, seaweedfs: SeaweedFS) -> None:
    outputs = [open_output(f"{path}-{number}", seaweedfs.fileio) for number in range(6)]
    for start in range(0, len(LARGE), 1 << 20):
        for output in outputs:
            output.write(memoryview(LARGE)[start : start + (1 << 20)])
    for output in outputs:
        output.sync()
        output.close()
    assert all(read(f"{path}-{number}", seaweedfs.fileio) == LARGE for number in range(6))


def test_an_upload_that_is_denied_midway_is_never_reported_and_given_back(
    path: str, seaweedfs: SeaweedFS, proxy: FaultyStorage
) -> None:
    proxy.fail(StorageFault.DENY, 100, lambda method, target: "partNumber=2" in target)
    refused(CatalogRefused, path, through(proxy, seaweedfs), LARGE)
    proxy.heal()
    assert len(read(path, seaweedfs.fileio)) < 100, "at most the claim"
    assert uploads(seaweedfs) == []
    write(f"{path}-retried", through(proxy, seaweedfs), LARGE)
    assert read(f"{path}-retried", seaweedfs.fileio) == LARGE


def test_an_answer_that_is_not_true_is_not_believed(path: str, seaweedfs: SeaweedFS, proxy: FaultyStorage) -> None:
    proxy.fail(StorageFault.LIE)
    with pytest.raises(FrazilError):
        write(path, through(proxy, seaweedfs), b"never arrived")


def test_a_read_that_is_cut_is_read_again(path: str, seaweedfs: SeaweedFS, proxy: FaultyStorage) -> None:
    write(path, seaweedfs.fileio, LARGE)
    options = through(proxy, seaweedfs)
    with open_input(path, options) as source:
        proxy.fail(StorageFault.LOSE_ANSWER, 2, lambda method, target: method == "GET")
        assert source.read_at(2 << 20, 100) == LARGE[100 : 100 + (2 << 20)]


def test_an_error_inside_arrow_stays_ours(path: str, seaweedfs: SeaweedFS, proxy: FaultyStorage) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": np.random.default_rng(1).integers(0, 1 << 60, 400_000)}), sink)
    write(path, seaweedfs.fileio, sink.getvalue().to_pybytes())
    with open_input(path, through(proxy, seaweedfs)) as source:
        file = pq.ParquetFile(source)
        proxy.fail(StorageFault.DENY, 100, lambda method, target: method == "GET")
        with pytest.raises(CatalogRefused, match="AccessDenied"):
            file.read()
