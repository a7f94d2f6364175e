"""Which files can no longer become part of a table."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.iceberg.system.queue_rows import ListedFile, TablePlace
from frazil.iceberg.tables.reachability import named_by, path_key
from frazil.maintenance.orphans import QUIET, plan_sweep
from frazil.model.ids import JobId
from frazil.model.ledger import Fence, LedgerEntry, SnapshotFacts, TableHead
from frazil.model.position import BatchNumber, Position
from frazil.sources.cockroachdb.position import Hlc

NOW = datetime(2026, 6, 1, tzinfo=UTC)
AGE = timedelta(days=1)
DATA, METADATA = "s3://lake/shop/orders/data", "s3://lake/shop/orders/metadata"
SHOP = JobId("shop")
RUN = "11111111-2222-3333-4444-555555555555"


def fence(generation: int, owner: int = 0) -> Fence:
    return Fence(generation, UUID(int=(0xABC + owner) << 96))


def facts(number: int, resolved: Position | None, by: Fence, job: JobId = SHOP) -> SnapshotFacts:
    summary = {"frazil.job-id": job.text, "frazil.fence": by.text}
    if resolved is not None:
        summary = LedgerEntry(
            job=job,
            batch_id=UUID(int=number),
            lower=None,
            resolved=resolved,
            notes="",
            fence=by,
            incarnation="c",
            config_hash="",
            operation="append",
            data_files=1,
            delete_files=0,
            rows=1,
            deletes=0,
        ).to_summary()
    return SnapshotFacts(number, number - 1 or None, number, number, summary)


def head(*snapshots: SnapshotFacts) -> TableHead:
    """Newest first."""
    return TableHead(uuid="u", ancestry=snapshots, properties={})


def place(main: TableHead, **branches: TableHead) -> TablePlace:
    return TablePlace(uuid="u", data_location=DATA, metadata_location=METADATA, main=main, branches=branches)


def old(path: str) -> ListedFile:
    return ListedFile(path, 1, NOW - 2 * AGE)


def young(path: str) -> ListedFile:
    return ListedFile(path, 1, NOW - AGE)


def epoch(resolved: Position, by: Fence, job: str = "shop") -> str:
    return f"{DATA}/frazil_job={job}/epoch={resolved.text}/fence={by.label}/shard=0/data-1-0.parquet"


def found(table: TablePlace, *files: ListedFile, older_than: timedelta = AGE) -> list[str]:
    return [file.path for file in plan_sweep(table, files, now=NOW, older_than=older_than)]


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 20), st.integers(1, 20), st.booleans(), st.booleans())
def test_an_epoch_is_closed_by_a_newer_fence_or_by_the_frontier(
    written: int, newest: int, position: int, frontier: int, same_owner: bool, is_old: bool
) -> None:
    """H18"""
    by = fence(written, 0 if same_owner else 1)
    table = place(head(facts(2, Hlc(frontier), fence(newest)), facts(1, Hlc(1), fence(1))))
    file = (old if is_old else young)(epoch(Hlc(position), by))
    closed = written < newest or (written == newest and same_owner and position <= frontier)
    assert bool(found(table, file)) == (closed and is_old)


def test_an_epoch_of_a_fence_the_table_has_not_seen_is_open() -> None:
    table = place(head(facts(1, Hlc(9), fence(1))))
    assert found(table, old(epoch(Hlc(5), fence(2)))) == []


def test_a_load_on_a_branch_is_only_as_far_as_the_branch() -> None:
    """H27"""
    main = facts(1, Hlc(9), fence(1))
    cleared = {"frazil_shop_resync": head(facts(2, None, fence(1)), main)}
    loading = {"frazil_shop_resync": head(facts(3, Hlc(4), fence(1)), facts(2, None, fence(1)), main)}
    files = [old(epoch(Hlc(n), fence(1))) for n in (4, 5)]
    assert found(place(head(main), **cleared), *files) == []
    assert found(place(head(main), **loading), *files) == [files[0].path]
    assert found(place(head(main), trial=head(facts(2, Hlc(1), fence(1)))), *files) == [file.path for file in files]


def test_a_table_that_starts_over_has_no_frontier() -> None:
    """A rewind left a mark without a position."""
    table = place(head(facts(2, None, fence(1)), facts(1, Hlc(9), fence(1))))
    assert found(table, old(epoch(Hlc(5), fence(1)))) == []


def test_positions_of_another_source_are_not_compared() -> None:
    table = place(head(facts(1, Hlc(9), fence(1))))
    assert found(table, old(epoch(BatchNumber(3), fence(1)))) == []


def test_a_damaged_ledger_closes_nothing() -> None:
    broken = SnapshotFacts(1, None, 1, 1, {"frazil.job-id": "shop", "frazil.fence": "what?"})
    assert found(place(head(broken)), old(epoch(Hlc(1), fence(0)))) == []


def mirrored(main: TableHead) -> TableHead:
    """The ledger property tells of an epoch 9 of fence 2."""
    entry = LedgerEntry.from_summary(facts(7, Hlc(9), fence(2)).summary)
    assert entry is not None
    return replace(main, properties={SHOP.ledger_property: entry.to_property(7, 7)})


def test_a_frontier_that_main_has_no_snapshot_of_any_more_is_told_by_the_ledger_property() -> None:
    """Snapshots of maintenance are all that expiry left of main."""
    cut, whole = SnapshotFacts(9, 8, 9, 9, {}), SnapshotFacts(1, None, 1, 1, {})
    closed, unpublished = old(epoch(Hlc(9), fence(2))), old(epoch(Hlc(10), fence(2)))
    table = place(mirrored(head(cut)))
    assert found(table, closed, unpublished, old(epoch(Hlc(10), fence(1)))) == [
        closed.path,
        epoch(Hlc(10), fence(1)),
    ]
    assert found(place(mirrored(head(whole))), closed) == [], "rolled back to before its first epoch"


def test_another_pipeline_has_its_own_fences() -> None:
    table = place(head(facts(1, Hlc(9), fence(7))))
    assert found(table, old(epoch(Hlc(1), fence(1), "bank"))) == []


def test_runs_are_abandoned_as_a_whole() -> None:
    table = place(head())
    run, replay = f"{DATA}/frazil_maintenance/compact={RUN}", f"{DATA}/frazil_job=shop/replay={RUN}"
    for folder in (run, replay):
        assert found(table, old(f"{folder}/a"), old(f"{folder}/deep/b")) == [f"{folder}/a", f"{folder}/deep/b"]
        assert found(table, old(f"{folder}/a"), young(f"{folder}/b")) == []


def test_what_only_its_age_tells_from_work_under_way_stays_for_an_hour_however_little_is_asked_for() -> None:
    """H18: another process may commit it yet. That an epoch is closed is told by the table."""
    table = place(head(facts(1, Hlc(9), fence(1))))
    closed = epoch(Hlc(9), fence(1))
    others = [
        f"{DATA}/frazil_maintenance/compact={RUN}/a",
        f"{DATA}/frazil_job=shop/replay={RUN}/a",
        f"{METADATA}/{RUN}-m0.avro",
        f"{METADATA}/00012-{RUN}.metadata.json",
    ]
    moments = {"now": timedelta(seconds=1), "an hour": QUIET, "more": QUIET + timedelta(seconds=1)}
    swept = {
        name: found(table, *(ListedFile(path, 1, NOW - age) for path in (closed, *others)), older_than=timedelta(0))
        for name, age in moments.items()
    }
    assert swept == {"now": [closed], "an hour": [closed], "more": [closed, *others]}


@pytest.mark.parametrize(
    "name",
    [
        f"{RUN}-m0.avro",
        f"optimized-m-{RUN}.avro",
        f"snap-7264-1-{RUN}.avro",
        f"00012-{RUN}.metadata.json",
        f"00012-{RUN}.gz.metadata.json",
        f"{RUN}.metadata.json",
        "v12.metadata.json",
        f"20260101_000000-{RUN}.stats",
    ],
)
def test_metadata_of_commits_that_did_not_land_is_found(name: str) -> None:
    assert found(place(head()), old(f"{METADATA}/{name}"), young(f"{METADATA}/x{name}")) == [f"{METADATA}/{name}"]
    assert found(place(head()), young(f"{METADATA}/{name}")) == []


@pytest.mark.parametrize(
    "path",
    [
        f"{METADATA}/version-hint.text",
        f"{METADATA}/notes.avro",
        f"{METADATA}/deeper/{RUN}-m0.avro",
        f"{DATA}/{RUN}-m0.avro",
        f"{DATA}/00000-1-{RUN}.parquet",
        f"{DATA}/frazil_jobs/epoch=1.0000000000/fence=1-abc/shard=0/data.parquet",
        f"{DATA}/other/frazil_job=shop/epoch=1.0000000000/fence=1-00000abc/shard=0/data.parquet",
        f"{DATA}/frazil_job=shop/epoch=soon/fence=9-00000abc/shard=0/data.parquet",
        f"{DATA}/frazil_maintenance/notes.txt",
        "s3://lake/shop/orders_2/data/frazil_maintenance/compact=1/a.parquet",
    ],
)
def test_what_is_not_ours_is_left_alone(path: str) -> None:
    assert found(place(head(facts(1, Hlc(9), fence(9)))), old(path)) == []


def test_one_file_has_one_key_however_it_is_spelled() -> None:
    local = {path_key(path) for path in ("/w/a b/%41", "file:/w/a b/%41", "file:///w/a b/%41", "file:///w//a b/%41")}
    assert local == {"/w/a b/%41"}
    assert path_key("s3://b/k") == path_key("s3a://b/k")
    assert path_key("hdfs://nn:8020/x") == path_key("hdfs:///x") == path_key("/x")
    assert path_key("/epoch=batch:7/x") == "/epoch=batch:7/x"


def test_metadata_names_its_lists_statistics_and_log() -> None:
    document = {
        "metadata-log": [{"metadata-file": "/m1"}],
        "snapshots": [{"snapshot-id": 1, "manifest-list": "/l1"}, {"snapshot-id": 2, "manifest-list": "/l2"}],
        "statistics": [{"snapshot-id": 1, "statistics-path": "/s1"}],
        "partition-statistics": [{"snapshot-id": 2, "statistics-path": "/p2"}],
    }
    assert set(named_by(document, "/m2")) == {"/m1", "/m2", "/l1", "/l2", "/s1", "/p2"}
    assert set(named_by(document, "/m2", without={1})) == {"/m1", "/m2", "/l2", "/p2"}
