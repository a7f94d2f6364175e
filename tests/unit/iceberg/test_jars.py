"""The jar cache, against a small repository served over HTTP."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from frazil.errors import ConfigError, StorageUnavailable
from frazil.iceberg.jvm.jars import REPOSITORY_VARIABLE, Coordinate, fetch, repository_root
from frazil.paths import cache_home

THING = "com.example:thing:1.0:tests"
CONTENT = b"a jar, more or less" * 1000
SHA = hashlib.sha256(CONTENT).hexdigest()


class Repository:
    def __init__(self, directory: Path) -> None:
        self.requests: list[str] = []
        self.truncate = False
        repository = self

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                repository.requests.append(self.path)
                if repository.truncate:
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(CONTENT)))
                    self.end_headers()
                    self.wfile.write(CONTENT[:100])
                    return
                super().do_GET()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(directory)))
        self.root = f"http://127.0.0.1:{self.server.server_address[1]}/maven2/"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    home = tmp_path / "repository"
    file = home / "maven2" / Coordinate.parse(THING).repository_path
    file.parent.mkdir(parents=True)
    file.write_bytes(CONTENT)
    repository = Repository(home)
    monkeypatch.setenv(REPOSITORY_VARIABLE, repository.root)
    monkeypatch.setattr("frazil.iceberg.jvm.jars._ATTEMPTS", 1)
    thread = threading.Thread(target=repository.server.serve_forever, daemon=True)
    thread.start()
    yield repository
    repository.server.shutdown()
    repository.server.server_close()


def test_a_jar_is_downloaded_once(repository: Repository, tmp_path: Path) -> None:
    first = fetch(THING, SHA, tmp_path / "cache")
    assert first.read_bytes() == CONTENT
    assert first.name == "thing-1.0-tests.jar"
    assert fetch(THING, SHA, tmp_path / "cache") == first
    assert repository.requests == ["/maven2/com/example/thing/1.0/thing-1.0-tests.jar"]


def test_a_filled_cache_needs_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "thing-1.0-tests.jar").write_bytes(CONTENT)
    monkeypatch.setenv(REPOSITORY_VARIABLE, "http://127.0.0.1:9/")
    assert fetch(THING, SHA, tmp_path).read_bytes() == CONTENT


def test_a_jar_with_another_checksum_is_refused_and_not_kept(repository: Repository, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not the jar we know"):
        fetch(THING, "0" * 64, tmp_path / "cache")
    assert list((tmp_path / "cache" / "jars").iterdir()) == []


def test_a_cut_off_download_is_not_kept(repository: Repository, tmp_path: Path) -> None:
    repository.truncate = True
    with pytest.raises(StorageUnavailable):
        fetch(THING, SHA, tmp_path / "cache")
    assert list((tmp_path / "cache" / "jars").iterdir()) == []


def test_a_missing_jar_names_the_coordinate_and_the_place_to_put_it(repository: Repository, tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match=r"com\.example:other:1\.0") as caught:
        fetch("com.example:other:1.0", SHA, tmp_path / "cache")
    assert str(tmp_path / "cache" / "jars") in caught.value.hint
    assert REPOSITORY_VARIABLE in caught.value.hint


def test_the_password_of_a_repository_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REPOSITORY_VARIABLE, "http://me:hunter2@127.0.0.1:9/")
    monkeypatch.setattr("frazil.iceberg.jvm.jars._ATTEMPTS", 1)
    with pytest.raises(StorageUnavailable) as caught:
        fetch(THING, SHA, tmp_path)
    assert "hunter2" not in f"{caught.value} {caught.value.hint} {caught.value.facts}"


def test_several_at_once_end_with_one_whole_file(repository: Repository, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: fetch(THING, SHA, tmp_path / "cache"), range(8)))
    assert len(set(paths)) == 1
    assert [path.name for path in (tmp_path / "cache" / "jars").iterdir()] == ["thing-1.0-tests.jar"]
    assert paths[0].read_bytes() == CONTENT


def test_the_default_repository_is_the_one_spark_would_use() -> None:
    root = repository_root({})
    assert root.startswith("https://")
    assert root.endswith("/maven2/")


def test_a_coordinate_needs_three_or_four_parts() -> None:
    with pytest.raises(ValueError, match="group:artifact"):
        Coordinate.parse("com.example:thing")


def test_the_cache_is_where_the_environment_says() -> None:
    assert cache_home({"FRAZIL_HOME": "/somewhere"}) == Path("/somewhere")
    assert cache_home({"XDG_CACHE_HOME": "/cache"}) == Path("/cache/frazil")
    assert cache_home({}) == Path.home() / ".cache" / "frazil"
