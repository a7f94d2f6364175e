"""The cache is a cache: whatever happens to its files, answers stay the same; and it stays within its bound."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lookup_builders import long_index, long_keys, patient

from frazil.data.keys.index import KeyIndex
from frazil.data.keys.index_cache import FileIdentity, IndexCache, entry_name, process_cache

KEY = "1:integer"
ROWS = 500
LARGE = 1 << 30


def file(number: int, digest: str = "") -> FileIdentity:
    return FileIdentity(f"file:/data/{number}.parquet", 1000 + number, digest)


def content(number: int) -> KeyIndex:
    """File n holds the keys n, n+1, ... backwards."""
    return long_index(*range(number + ROWS - 1, number - 1, -1))


class Builder:
    """Counts how often an index was built."""

    def __init__(self) -> None:
        self.built: list[int] = []

    def of(self, number: int) -> Callable[[], KeyIndex]:
        def build() -> KeyIndex:
            self.built.append(number)
            return content(number)

        return build


def answer(cache: IndexCache, number: int, builder: Builder | None = None) -> list[int]:
    index = cache.get_or_build(file(number), KEY, (builder or Builder()).of(number))
    return index.find(long_keys(number, number + 7, number - 1)).tolist()


RIGHT = [ROWS - 8, ROWS - 1]


def entries(root: Path) -> list[Path]:
    return sorted(root.glob("*.index"))


def test_an_index_is_built_once_and_found_by_the_next_process(tmp_path: Path) -> None:
    builder = Builder()
    first = IndexCache(tmp_path / "deep" / "cache", LARGE)
    assert answer(first, 1, builder) == answer(first, 1, builder) == RIGHT
    restarted = IndexCache(tmp_path / "deep" / "cache", LARGE)
    assert answer(restarted, 1, builder) == RIGHT
    assert builder.built == [1]
    assert (first.stats().hits, first.stats().misses) == (1, 1)
    assert (restarted.stats().hits, restarted.stats().misses) == (1, 0)
    assert restarted.stats().entries == 1
    assert restarted.stats().bytes == entries(tmp_path / "deep" / "cache")[0].stat().st_size


def test_what_was_just_built_is_used_from_its_file(tmp_path: Path) -> None:
    index = IndexCache(tmp_path, LARGE).get_or_build(file(1), KEY, Builder().of(1))
    assert index.mapped is not None


def test_another_path_size_digest_or_key_is_another_entry() -> None:
    one = FileIdentity("a", 1, "d")
    names = {
        entry_name(one, KEY),
        entry_name(FileIdentity("b", 1, "d"), KEY),
        entry_name(FileIdentity("a", 2, "d"), KEY),
        entry_name(FileIdentity("a", 1, ""), KEY),
        entry_name(one, "2:integer"),
    }
    assert len(names) == 5


def test_an_entry_under_the_name_of_another_file_is_not_believed(tmp_path: Path) -> None:
    answer(IndexCache(tmp_path, LARGE), 1)
    os.rename(tmp_path / entry_name(file(1), KEY), tmp_path / entry_name(file(2), KEY))
    builder = Builder()
    assert answer(IndexCache(tmp_path, LARGE), 2, builder) == RIGHT
    assert builder.built == [2]


def test_an_index_by_another_key_than_asked_for_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        IndexCache(tmp_path, LARGE).get_or_build(file(1), "2:string", Builder().of(1))


def test_what_building_raises_is_raised_and_leaves_nothing(tmp_path: Path) -> None:
    cache = IndexCache(tmp_path, LARGE)

    def broken() -> KeyIndex:
        raise OSError("the data file is gone")

    with pytest.raises(OSError, match="gone"):
        cache.get_or_build(file(1), KEY, broken)
    assert answer(cache, 1) == RIGHT


def test_a_damaged_entry_is_built_again(tmp_path: Path) -> None:
    answer(IndexCache(tmp_path, LARGE), 1)
    (entry,) = entries(tmp_path)
    whole = bytearray(entry.read_bytes())
    whole[len(whole) // 2] ^= 1
    entry.write_bytes(bytes(whole))
    builder = Builder()
    cache = IndexCache(tmp_path, LARGE)
    assert answer(cache, 1, builder) == RIGHT
    assert builder.built == [1]
    assert answer(IndexCache(tmp_path, LARGE), 1, builder) == RIGHT
    assert builder.built == [1]


def test_an_open_entry_whose_file_was_cut_short_is_built_again_and_not_touched(tmp_path: Path) -> None:
    cache, builder = IndexCache(tmp_path, LARGE), Builder()
    cache.get_or_build(file(1), KEY, builder.of(1))
    os.truncate(entries(tmp_path)[0], 100)
    # Built again is asserted first: to search what is gone ends the process.
    index = cache.get_or_build(file(1), KEY, builder.of(1))
    assert builder.built == [1, 1]
    assert index.find(long_keys(1, 8, 0)).tolist() == RIGHT


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(0, 3)),
        st.tuples(st.sampled_from(["delete", "cut", "flip"]), st.integers(0, 3)),
        st.tuples(st.just("cut and delete"), st.integers(0, 3)),
        st.tuples(st.just("delete all"), st.just(0)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=40,
)


@patient
@given(STEPS, st.sampled_from([LARGE, 20_000, 100]), st.integers(1, 3), st.data())
def test_no_damage_to_its_files_changes_an_answer(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, int]],
    limit: int,
    open_max: int,
    data: st.DataObject,
) -> None:
    root = tmp_path_factory.mktemp("cache")
    cache = IndexCache(root, limit, open_max)
    for step, number in steps:
        path = root / entry_name(file(number), KEY)
        if step == "restart":
            cache = IndexCache(root, limit, open_max)
        elif step == "delete all":
            shutil.rmtree(root, ignore_errors=True)
        elif step == "ask":
            assert answer(cache, number) == RIGHT
        elif path.exists():
            size = path.stat().st_size
            if step.startswith("cut"):
                os.truncate(path, data.draw(st.integers(0, size - 1)) if size else 0)
            if step.endswith("delete"):
                path.unlink()
            if step == "flip" and size:
                # Beside the file and back, as a disk would lose it between two processes: what is mapped is whole.
                whole = bytearray(path.read_bytes())
                whole[data.draw(st.integers(0, size - 1))] ^= 4
                (root / "damaged").write_bytes(bytes(whole))
                os.replace(root / "damaged", path)
    for number in range(4):
        assert answer(cache, number) == RIGHT


def test_beyond_the_bound_those_not_used_for_longest_go(tmp_path: Path) -> None:
    size = entry_size(tmp_path / "probe")
    root = tmp_path / "cache"
    cache = IndexCache(root, 3 * size, open_max=1)
    for number in range(3):
        answer(cache, number)
        os.utime(root / entry_name(file(number), KEY), (number, number))
    answer(cache, 0)
    answer(cache, 3)
    kept = {path.name for path in entries(root)}
    assert kept == {entry_name(file(number), KEY) for number in (0, 2, 3)}
    assert cache.stats().bytes <= 3 * size


def test_use_from_memory_counts_as_use(tmp_path: Path) -> None:
    cache = IndexCache(tmp_path, LARGE)
    answer(cache, 1)
    (entry,) = entries(tmp_path)
    os.utime(entry, (1, 1))
    answer(cache, 1)
    assert entry.stat().st_mtime > 1


def test_what_others_wrote_into_the_folder_counts_towards_the_bound(tmp_path: Path) -> None:
    size = entry_size(tmp_path / "probe")
    root = tmp_path / "cache"
    for number in range(5):
        answer(IndexCache(root, LARGE), number)
    cache = IndexCache(root, 2 * size)
    answer(cache, 9)
    assert len(entries(root)) == 2
    assert (root / entry_name(file(9), KEY)).exists()


def test_an_evicted_index_that_somebody_uses_goes_on_answering(tmp_path: Path) -> None:
    cache = IndexCache(tmp_path, LARGE)
    index = cache.get_or_build(file(1), KEY, Builder().of(1))
    shutil.rmtree(tmp_path)
    assert index.find(long_keys(1, 8, 0)).tolist() == RIGHT


def test_an_index_larger_than_the_bound_is_used_and_not_kept(tmp_path: Path) -> None:
    cache = IndexCache(tmp_path, 100)
    assert answer(cache, 1) == RIGHT
    assert entries(tmp_path) == []


def test_a_folder_that_cannot_be_made_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("a file")
    cache = IndexCache(tmp_path / "occupied" / "cache", LARGE)
    assert answer(cache, 1) == answer(cache, 1) == RIGHT
    assert (cache.stats().entries, cache.stats().misses) == (0, 2)


def test_what_a_dead_process_left_half_written_is_swept(tmp_path: Path) -> None:
    (tmp_path / "left.building").write_bytes(b"half")
    answer(IndexCache(tmp_path, LARGE), 1)
    assert not (tmp_path / "left.building").exists()


def test_few_indexes_stay_open_in_a_process(tmp_path: Path) -> None:
    cache = IndexCache(tmp_path, LARGE, open_max=2)
    builder = Builder()
    for number in (0, 1, 2, 3, 0, 1, 2, 3):
        assert answer(cache, number, builder) == RIGHT
    assert builder.built == [0, 1, 2, 3]
    assert len(cache._open) == 2


def test_threads_that_want_one_file_build_it_once(tmp_path: Path) -> None:
    cache, builder = IndexCache(tmp_path, LARGE), Builder()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: answer(cache, number, builder), [n % 4 for n in range(64)]))
    assert answers == [RIGHT] * 64
    assert sorted(builder.built) == [0, 1, 2, 3]


@pytest.mark.slow
def test_processes_share_a_folder_while_it_is_evicted_and_deleted(tmp_path: Path) -> None:
    size = entry_size(tmp_path / "probe")
    root = tmp_path / "cache"
    command = [sys.executable, "-c", WORKER, str(root), str(3 * size)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) for _ in range(2)]
    while any(worker.poll() is None for worker in workers):
        shutil.rmtree(root, ignore_errors=True)
    for worker in workers:
        output, _ = worker.communicate()
        assert worker.returncode == 0
        assert json.loads(output) == [RIGHT] * 150


WORKER = """
import json, sys
from pathlib import Path
from test_index_cache import answer
from frazil.data.keys.index_cache import IndexCache
cache = IndexCache(Path(sys.argv[1]), int(sys.argv[2]), open_max=2)
print(json.dumps([answer(cache, number * 7 % 10) for number in range(150)]))
"""


def test_a_process_has_one_cache_for_a_folder(tmp_path: Path) -> None:
    assert process_cache(tmp_path, 10) is process_cache(tmp_path, 10)
    assert process_cache(tmp_path, 10) is not process_cache(tmp_path, 20)


def entry_size(folder: Path) -> int:
    answer(IndexCache(folder, LARGE), 1)
    return entries(folder)[0].stat().st_size
