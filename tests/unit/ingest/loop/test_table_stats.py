"""What a table holds, counted along with every commit."""

from __future__ import annotations

from unit.commit.commit_builders import entry, file, head

from frazil.ingest.loop.table_stats import Added, TableStats
from frazil.model.commit import CommitPlan
from frazil.model.files import Blob, FileClosed, FileKind, LiveDelete

SUMMARY = {
    "total-data-files": "12",
    "total-delete-files": "3",
    "total-records": "1000",
    "total-position-deletes": "50",
    "total-equality-deletes": "7",
    "total-files-size": "4096",
    "manifests-created": "2",
    "manifests-kept": "9",
}


def vector(records: int, path: str = "v") -> FileClosed:
    blob = Blob(data_file="data-1", offset=4, length=40)
    return file(path, FileKind.POSITION_DELETE, records=records, equality_ids=(), vector=blob)


def older_vector(records: int) -> LiveDelete:
    return LiveDelete(
        path="old",
        kind=FileKind.POSITION_DELETE,
        format="puffin",
        size=60,
        records=records,
        sequence_number=1,
        spec_id=0,
        data_file="data-1",
        offset=4,
        length=40,
    )


def test_a_head_tells_what_the_table_holds_whoever_wrote_it() -> None:
    found = TableStats.at(head(SUMMARY, {"operation": "append"}))
    assert found == TableStats(
        data_files=12,
        delete_files=3,
        records=1000,
        position_deletes=50,
        equality_deletes=7,
        size=4096,
        snapshots=2,
        manifests=11,
    )
    assert found.delete_ratio == 0.057
    assert found.deletes_per_file == 0.25


def test_a_table_without_snapshots_holds_nothing() -> None:
    assert TableStats.at(head()) == TableStats()
    assert TableStats().delete_ratio == TableStats().deletes_per_file == 0.0


def test_a_summary_of_somebody_else_may_say_little_or_nonsense() -> None:
    found = TableStats.at(head({"total-data-files": "12", "total-records": "many", "total-files-size": "-1"}))
    assert found == TableStats(data_files=12, snapshots=1)


def test_a_commit_with_vectors_takes_the_older_ones_away() -> None:
    plan = CommitPlan(entry=entry(10), files=(file(), vector(30)), removed_deletes=(older_vector(20),))
    after = TableStats.at(head(SUMMARY)).with_commit(plan)
    assert (after.data_files, after.delete_files) == (13, 3)
    assert (after.records, after.position_deletes, after.equality_deletes) == (1003, 60, 7)
    assert (after.snapshots, after.manifests, after.size) == (2, 13, 4196)


def test_a_commit_with_equality_deletes_counts_their_keys() -> None:
    plan = CommitPlan(entry=entry(10), files=(file(), file("e", FileKind.EQUALITY_DELETE, records=5)))
    assert TableStats().with_commit(plan).equality_deletes == 5


def test_an_empty_epoch_is_a_snapshot_and_nothing_else() -> None:
    held = TableStats.at(head(SUMMARY))
    after = held.with_commit(CommitPlan(entry=entry(10), files=()))
    assert after.snapshots == held.snapshots + 1
    assert (after.data_files, after.manifests) == (held.data_files, held.manifests)


def test_what_was_added_is_counted_from_a_mark() -> None:
    plan = CommitPlan(entry=entry(10), files=(file("a", size=10), file("b", size=20), vector(3)))
    mark = Added().with_commit(plan)
    assert mark == Added(1, 2, 30)
    assert mark.with_commit(plan).since(mark) == Added(1, 2, 30)
