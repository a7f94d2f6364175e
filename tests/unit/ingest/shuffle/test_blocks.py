"""Shuffle blocks: every row arrives once, in its order, and no task holds more than it may."""

from __future__ import annotations

import errno
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.ingest.write.worker_builders import change_rows, delete, in_batches, report, row, upsert

from frazil.errors import BadInput, SourceUnavailable, StorageUnavailable
from frazil.ingest.shuffle import blocks
from frazil.ingest.shuffle.blocks import (
    BLOCK,
    GROUP_BYTES,
    Block,
    Groups,
    Share,
    from_spark,
    key_hashes,
    pack,
    to_spark,
    unpack,
)
from frazil.ingest.shuffle.local_files import block_folder, fetch, write_blocks
from frazil.ingest.write.fold import fold_changes, sort_changes
from frazil.model.arrow import CHANGE_SCHEMA
from frazil.model.change import REPORT_EPOCH, SORT_COLUMNS, Op

Row = dict[str, object]
Moves = Callable[[Iterable[Block], int], list[list[tuple[int, pa.RecordBatch]]]]
CHANGES = st.lists(
    st.builds(
        row,
        table=st.integers(0, 2),
        epoch=st.integers(0, 3),
        key=st.one_of(st.sampled_from(["[1]", "[2]", "[10]", "[1000000000]"]), st.text(max_size=6)),
        major=st.integers(0, 3),
        minor=st.integers(0, 2),
        op=st.sampled_from([Op.DELETE, Op.UPSERT]),
        payload=st.sampled_from([b"same"]),
    ),
    max_size=60,
)
SIZES = st.lists(st.integers(0, 7), max_size=20)
GROUPS = st.builds(
    lambda shards, *shares: Groups(shards, 4, dict(enumerate(after_each_other(shares)))),
    st.integers(1, 4),
    *[st.one_of(st.tuples(st.integers(1, 4), st.just(1)), st.tuples(st.just(4), st.integers(1, 3)))] * 3,
)


def after_each_other(schemas: Sequence[tuple[int, int]]) -> list[Share]:
    shares, first = [], 0
    for spans, buckets in schemas:
        shares.append(Share(first, spans, buckets))
        first += spans * buckets
    return shares


def shuffled(packed: Iterable[Block], shards: int) -> list[list[tuple[int, pa.RecordBatch]]]:
    """What Spark makes of the output of reading tasks: each shard's blocks sorted by group, in batches."""
    whole = pa.Table.from_batches(to_spark(packed), BLOCK)
    order = whole.sort_by("group")
    mine = [order.filter(pa.compute.equal(order["shard"], n)).to_batches(max_chunksize=3) for n in range(shards)]
    return [list(from_spark(batches)) for batches in mine]


def written_blocks(packed: Iterable[Block], shards: int) -> list[list[tuple[int, pa.RecordBatch]]]:
    """As tasks of one machine hand them over: two readers, each with a file."""
    with tempfile.TemporaryDirectory() as folder:
        blocks = list(packed)
        halves = [blocks[0::2], blocks[1::2]]
        places = [p for n, half in enumerate(halves) for p in write_blocks(half, f"{folder}/{n}")]
        return [list(fetch([place for place in places if place.shard == n])) for n in range(shards)]


ROADS: dict[str, Moves] = {"shuffle": shuffled, "files": written_blocks}
any_road = pytest.mark.parametrize("move", ROADS.values(), ids=ROADS.keys())


def sent(
    batches: Iterable[pa.RecordBatch], groups: Groups, logs: tuple[int, ...] = (), move: Moves = shuffled
) -> list[list[Row]]:
    """The rows as they arrive at each shard."""
    arrived = move(pack(batches, groups, logs), groups.shards)
    return [[r for rows in unpack(mine, logs) for r in rows.to_pylist()] for mine in arrived]


def counted(rows: Iterable[Row]) -> Counter[tuple[object, ...]]:
    return Counter(tuple(r.values()) for r in rows)


def placed(rows: Sequence[Row]) -> list[tuple[object, ...]]:
    return [tuple(r[name] for name in SORT_COLUMNS) for r in rows]


@any_road
@given(changes=CHANGES, sizes=SIZES, groups=GROUPS, together=st.integers(1, 2_000), held=st.integers(1, 4_000))
@settings(max_examples=100)
def test_the_net_changes_are_the_same_however_rows_are_packed(
    move: Moves, changes: list[Row], sizes: list[int], groups: Groups, together: int, held: int
) -> None:
    """H2, H34: also where a group is more than a task may hold."""
    expected = [r for _, _, rows in fold_changes([in_order(changes)]) for r in rows.to_pylist()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "PACKED_TOGETHER", together)
        patch.setattr(blocks, "HELD_BYTES_MAX", held)
        patch.setattr(blocks, "_MERGED_BYTES", held // 3 + 1)
        arrived = sent(in_batches(change_rows(changes), sizes), groups, move=move)
    found = [r for rows in arrived for _, _, kept in fold_changes([change_rows(rows)]) for r in kept.to_pylist()]
    assert counted(found) == counted(expected)


@any_road
@given(changes=CHANGES, sizes=SIZES, groups=GROUPS, together=st.integers(1, 2_000), held=st.integers(1, 4_000))
@settings(max_examples=100)
def test_a_changelog_gets_every_version_once_and_in_order(
    move: Moves, changes: list[Row], sizes: list[int], groups: Groups, together: int, held: int
) -> None:
    expected = [r for _, _, rows in fold_changes([in_order(changes)], (0, 1, 2)) for r in rows.to_pylist()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "PACKED_TOGETHER", together)
        patch.setattr(blocks, "HELD_BYTES_MAX", held)
        patch.setattr(blocks, "_MERGED_BYTES", held // 3 + 1)
        arrived = sent(in_batches(change_rows(changes), sizes), groups, (0, 1, 2), move)
    for rows in arrived:
        for _, versions in groupby(rows, key=lambda r: (r["table"], r["epoch"], r["key"])):
            order = placed(list(versions))
            assert order == sorted(order)
    found = [
        r for rows in arrived for _, _, kept in fold_changes([change_rows(rows)], (0, 1, 2)) for r in kept.to_pylist()
    ]
    assert counted(found) == counted(expected)


@given(changes=CHANGES, groups=GROUPS)
@settings(max_examples=100)
def test_a_table_and_epoch_never_come_back_and_a_key_has_one_shard(changes: list[Row], groups: Groups) -> None:
    arrived = sent([change_rows(changes)], groups)
    for rows in arrived:
        runs = [place for place, _ in groupby((r["table"], r["epoch"]) for r in rows)]
        assert len(runs) == len(set(runs))
        keys = [place for place, _ in groupby((r["table"], r["epoch"], r["key"]) for r in rows)]
        assert len(keys) == len(set(keys))
    shard_of = {(r["table"], r["key"]): shard for shard, rows in enumerate(arrived) for r in rows}
    assert all(shard_of[r["table"], r["key"]] == shard for shard, rows in enumerate(arrived) for r in rows)


def in_order(changes: list[Row]) -> pa.RecordBatch:
    return sort_changes(pa.Table.from_batches([change_rows(changes)], CHANGE_SCHEMA))


def test_nothing_packs_to_nothing() -> None:
    groups = Groups.by_weight({0: 1}, 1, 2)
    assert list(pack([], groups)) == []
    assert list(pack([change_rows([])], groups)) == []
    assert list(unpack([])) == []
    assert list(from_spark([pa.RecordBatch.from_pylist([], schema=BLOCK)])) == []
    assert list(fetch([])) == []


def test_reports_and_errors_arrive_once_before_the_rows_of_their_table() -> None:
    """H11."""
    groups = Groups(2, 2, {0: Share(0, 2, 2), 1: Share(4)})
    error = row(1, REPORT_EPOCH, "partition-b", None, None, Op.ERROR, b"pickled")
    rows = [upsert(n, 10, table=n % 2, epoch=n // 2 % 2) for n in range(40)]
    told = [report("partition-a", 10, rows=40), report("partition-c", None), error]
    arrived = sent([change_rows([*rows, *told])], groups)
    assert counted(r for shard in arrived for r in shard) == counted([*rows, *told])
    for shard in arrived:
        for table, mine in groupby(shard, key=lambda r: r["table"]):
            epochs = [int(str(r["epoch"])) for r in mine]
            assert epochs == sorted(epochs), table


def test_reports_go_to_the_first_group_of_their_table() -> None:
    groups = Groups(3, 2, {0: Share(0, 2, 5), 1: Share(10, 2, 5)})
    rows = change_rows([report(f"partition-{n}", n, table=n % 2) for n in range(50)])
    hashes = key_hashes(rows)
    places = groups.places(rows, hashes)
    assert (places // 3).tolist() == [0, 10] * 25
    assert (places % 3).tolist() == (hashes % 3).tolist()


def test_a_retried_reading_task_packs_the_same_blocks() -> None:
    """H41: the shuffle may take one attempt's blocks for one shard and another's for the next."""
    groups = Groups.by_weight({0: 100 * GROUP_BYTES}, 3, 2)
    batches = [change_rows([upsert(n, n % 7, epoch=n % 3) for n in range(start, start + 500)]) for start in (0, 500)]
    first, again = (pa.Table.from_batches(to_spark(pack(batches, groups))) for _ in range(2))
    assert first.equals(again)


def test_a_key_that_changes_all_the_time_crosses_the_shuffle_once() -> None:
    groups = Groups.by_weight({0: 1}, 1, 2)
    changes = change_rows([upsert(n % 300, n) for n in range(30_000)])
    arrived = sent([changes], groups)
    newest = {r["key"]: r["major"] for rows in arrived for r in rows}
    assert sum(map(len, arrived)) == 300
    assert newest == {f"[{k}]": 29_700 + k for k in range(300)}
    kept = sent([changes], groups, (0,))
    assert sum(map(len, kept)) == 30_000


def test_a_hot_key_stays_in_memory_where_only_its_newest_version_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "HELD_BYTES_MAX", 20_000)
    monkeypatch.setattr(blocks, "PACKED_TOGETHER", 4_000)
    monkeypatch.setattr(blocks, "SpillFile", None)
    groups = Groups.by_weight({0: 1}, 1, 1)
    changes = [change_rows([upsert(1, at), delete(2, at)]) for at in range(3_000)]
    (arrived,) = sent(changes, groups)
    assert len(arrived) < 1_000
    assert [
        (r["key"], r["major"]) for _, _, kept in fold_changes([change_rows(arrived)]) for r in kept.to_pylist()
    ] == [
        ("[1]", 2_999),
        ("[2]", 2_999),
    ]


def test_what_a_changelog_keeps_of_a_hot_key_goes_to_disk_and_comes_back_in_small_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(blocks, "HELD_BYTES_MAX", 100_000)
    monkeypatch.setattr(blocks, "PACKED_TOGETHER", 5_000)
    monkeypatch.setattr(blocks, "_MERGED_BYTES", 4_000)
    groups = Groups.by_weight({0: 1}, 1, 1)
    order = np.random.default_rng(7).permutation(20_000)
    changes = [change_rows([upsert(1, int(at))]) for at in order]
    (mine,) = shuffled(pack(changes, groups, (0,)), 1)
    parts = list(unpack(mine, (0,)))
    assert [at for part in parts for at in part.column("major").to_pylist()] == list(range(20_000))
    assert max(part.nbytes for part in parts) < 100_000


def test_a_group_that_is_larger_than_expected_is_merged_from_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "HELD_BYTES_MAX", 50_000)
    monkeypatch.setattr(blocks, "PACKED_TOGETHER", 10_000)
    monkeypatch.setattr(blocks, "_MERGED_BYTES", 2_000)
    groups = Groups.by_weight({0: 1, 1: 1}, 2, 1)
    changes = [upsert(n * 7919 % 10_000, n, table=n % 2, epoch=n // 2 % 2) for n in range(10_000)]
    (mine,) = shuffled(pack(in_batches(change_rows(changes), [100] * 99), groups), 1)
    parts = list(unpack(mine))
    rows = [r for part in parts for r in part.to_pylist()]
    assert counted(rows) == counted(changes)
    assert placed(rows) == sorted(placed(rows))
    assert max(part.nbytes for part in parts) < 50_000


def test_a_change_without_a_key_is_refused_where_it_arrives() -> None:
    """H20."""
    groups = Groups.by_weight({0: 1}, 1, 1)
    (mine,) = shuffled(pack([change_rows([upsert(1, 1), row(0, 0, None, 5, 0, Op.UPSERT, b"{}")])], groups), 1)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="without a key"):
        list(fold_changes(unpack(mine)))


def test_small_tables_share_a_group_and_large_ones_have_several() -> None:
    weights = {0: 10, 1: 20, 2: GROUP_BYTES * 12, 3: GROUP_BYTES - 5, 4: 10, 5: GROUP_BYTES * 3}
    groups = Groups.by_weight(weights, 2, 1)
    assert groups.shares == {
        0: Share(0),
        1: Share(0),
        2: Share(1, 2, 6),
        3: Share(13),
        4: Share(14),
        5: Share(15, 2, 2),
    }
    shared = Groups.by_weight(dict.fromkeys(range(8), GROUP_BYTES // 4), 16, 2)
    assert [share.first for share in shared.shares.values()] == [0] * 8
    assert Groups.by_weight({0: 8 * GROUP_BYTES}, 16, 2).shares == {0: Share(0, 4, 1)}


@pytest.mark.parametrize("share", [Share(0, 3, 1), Share(0, 1, 2)])
def test_an_epoch_cannot_lie_in_two_groups_that_other_epochs_share(share: Share) -> None:
    with pytest.raises(ValueError, match="table 4"):
        Groups(1, 2, {4: share})


def test_hashes_depend_on_the_key_alone() -> None:
    rows = change_rows([upsert(n, n) for n in (5, 77, 5, 123_456)])
    hashes = key_hashes(rows)
    assert hashes[0] == hashes[2]
    assert len(set(hashes.tolist())) == 3
    assert key_hashes(rows.slice(1, 2)).tolist() == hashes[1:3].tolist()


def test_what_cannot_be_written_or_fetched_names_the_file(tmp_path: Path) -> None:
    """A full or vanished scratch disk is told as such, and what was asked for can be tried again."""
    groups = Groups.by_weight({0: 1}, 1, 1)
    blocks = list(pack([change_rows([upsert(1, 1)])], groups))
    gone = f"{tmp_path}/nowhere/0"
    with pytest.raises(StorageUnavailable, match="nowhere/0"):
        list(write_blocks(blocks, gone))
    with pytest.raises(StorageUnavailable, match="dev/full"):
        list(write_blocks(blocks, "/dev/full"))
    (place,) = write_blocks(blocks, f"{tmp_path}/0")
    Path(place.path).unlink()
    with pytest.raises(StorageUnavailable, match=place.path):
        list(fetch([place]))


def test_a_folder_of_blocks_goes_whatever_happens_and_never_hides_why_a_job_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H11: a task that still writes while its folder is removed must not turn an error that passes into another one."""
    monkeypatch.setattr(os, "rmdir", lambda *_, **__: (_ for _ in ()).throw(OSError(errno.ENOTEMPTY, "not empty")))
    with pytest.raises(SourceUnavailable), block_folder(str(tmp_path)):
        raise SourceUnavailable("it does not answer")
    monkeypatch.undo()
    with block_folder(str(tmp_path)) as folder:
        (Path(folder) / "0").write_bytes(b"rows")
    assert not Path(folder).exists()


def test_a_full_disk_under_a_folder_of_blocks_can_be_tried_again(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="nowhere"), block_folder(f"{tmp_path}/nowhere"):
        pass
    with pytest.raises(StorageUnavailable, match="blocks-"), block_folder(str(tmp_path)):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(ConnectionRefusedError), block_folder(str(tmp_path)):
        raise ConnectionRefusedError(errno.ECONNREFUSED, "the JVM is gone")
