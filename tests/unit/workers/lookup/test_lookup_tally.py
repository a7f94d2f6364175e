"""How often the key index was hit, as another process sees it."""

from __future__ import annotations

from pathlib import Path

from frazil.workers.lookup.tally import IndexTally, add, read


def test_what_several_lookups_counted_adds_up_beside_the_size_of_the_indexes(tmp_path: Path) -> None:
    root = tmp_path / "index"
    add(root, hits=3, misses=1)
    add(root, hits=0, misses=4)
    (root / "one.index").write_bytes(bytes(100))
    (root / "two.index").write_bytes(bytes(20))
    (root / "three.building").write_bytes(bytes(7))
    found = read(root)
    assert found == IndexTally(files=2, bytes=120, hits=3, misses=5)
    assert found.hit_rate == 3 / 8


def test_a_folder_that_is_not_there_holds_nothing_and_has_no_rate(tmp_path: Path) -> None:
    found = read(tmp_path / "gone")
    assert found == IndexTally(files=0, bytes=0, hits=0, misses=0)
    assert found.hit_rate is None


def test_a_damaged_tally_starts_again(tmp_path: Path) -> None:
    (tmp_path / "tally.json").write_text('{"hits": "many"')
    add(tmp_path, hits=2, misses=0)
    assert read(tmp_path).hits == 2


def test_a_tally_that_cannot_be_kept_disturbs_nobody(tmp_path: Path) -> None:
    occupied = tmp_path / "index"
    occupied.write_text("a file where the folder should be")
    add(occupied, hits=1, misses=1)
    assert read(occupied) == IndexTally(files=0, bytes=0, hits=0, misses=0)
