"""The ledger: what a summary and a property say, and what a head makes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.model.commit import CommitPlan
from frazil.model.epoch import Window
from frazil.model.ledger import Fence, LedgerEntry, SnapshotFacts, TableHead
from frazil.model.names import JobId
from frazil.model.position import BatchNumber, Hlc

JOB = JobId("shop")
positions = st.builds(Hlc, st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1)) | st.builds(
    BatchNumber, st.integers(0, 2**40)
)
counts = st.integers(0, 2**40)
entries = st.builds(
    LedgerEntry,
    job=st.just(JOB),
    batch_id=st.uuids(),
    lower=st.none() | positions,
    resolved=positions,
    notes=st.text(max_size=20),
    fence=st.builds(Fence, st.integers(1, 10**6), st.uuids()),
    incarnation=st.text(max_size=10),
    config_hash=st.text(max_size=10),
    operation=st.sampled_from(["append", "row_delta", "heartbeat", "rewind"]),
    data_files=counts,
    delete_files=counts,
    rows=counts,
    deletes=counts,
    source=st.text(max_size=20),
)


def entry(resolved: int, **changed: Any) -> LedgerEntry:
    base = LedgerEntry(
        job=JOB,
        batch_id=UUID(int=1),
        lower=None,
        resolved=Hlc(resolved),
        notes="",
        fence=Fence(1, UUID(int=2)),
        incarnation="",
        config_hash="",
        operation="append",
        data_files=1,
        delete_files=0,
        rows=1,
        deletes=0,
    )
    return replace(base, **changed)


def snapshot(number: int, parent: int | None, told: LedgerEntry | None) -> SnapshotFacts:
    return SnapshotFacts(number, parent, number * 10, 0, told.to_summary() if told else {"operation": "append"})


@given(entries)
def test_a_summary_reads_back_as_the_same_entry(told: LedgerEntry) -> None:
    summary = told.to_summary()
    assert all(isinstance(value, str) and value for value in summary.values())
    assert LedgerEntry.from_summary(summary) == told


@given(entries, st.integers(1, 2**63 - 1), st.integers(1, 2**63 - 1))
def test_a_property_reads_back_with_its_snapshot(told: LedgerEntry, snapshot_id: int, sequence_number: int) -> None:
    found = LedgerEntry.from_property(told.to_property(snapshot_id, sequence_number))
    assert found == replace(told, snapshot_id=snapshot_id, sequence_number=sequence_number)


@given(st.builds(Fence, st.integers(0, 10**9), st.uuids()))
def test_a_fence_reads_back(fence: Fence) -> None:
    assert Fence.parse(fence.text) == fence
    assert fence.label == f"{fence.generation}-{fence.owner.hex[:8]}"


def test_a_foreign_summary_is_no_entry() -> None:
    assert LedgerEntry.from_summary({"operation": "append"}) is None


@pytest.mark.parametrize("key", ["frazil.batch-id", "frazil.fence"])
def test_a_summary_of_ours_that_lacks_a_fact_is_damaged(key: str) -> None:
    summary = {k: v for k, v in entry(5).to_summary().items() if k != key}
    with pytest.raises(ValueError, match=key):
        LedgerEntry.from_summary(summary)


def test_a_head_knows_its_newest_own_entry_and_all_of_them() -> None:
    """H5: keyed by job id, along the ancestry."""
    other = entry(9, job=JobId("other"))
    ancestry = (snapshot(4, 3, None), snapshot(3, 2, entry(7)), snapshot(2, 1, other), snapshot(1, None, entry(5)))
    head = TableHead(uuid="u", ancestry=ancestry, properties={})
    newest = head.newest(JOB)
    assert newest is not None
    assert (newest.resolved, newest.snapshot_id, newest.sequence_number) == (Hlc(7), 3, 30)
    assert [found.resolved for found in head.entries(JOB)] == [Hlc(7), Hlc(5)]
    assert head.newest(JobId("nobody")) is None
    assert head.snapshot_id == 4


def test_a_head_knows_whether_its_history_is_whole() -> None:
    assert TableHead(uuid="u", ancestry=(), properties={}).history_is_whole
    assert TableHead(uuid="u", ancestry=(snapshot(1, None, None),), properties={}).history_is_whole
    assert not TableHead(uuid="u", ancestry=(snapshot(2, 1, None),), properties={}).history_is_whole


def test_a_head_reads_the_property_of_one_job() -> None:
    head = TableHead(uuid="u", ancestry=(), properties={JOB.ledger_property: entry(5).to_property(3, 30)})
    mirror = head.mirror(JOB)
    assert mirror is not None
    assert (mirror.resolved, mirror.snapshot_id, mirror.sequence_number) == (Hlc(5), 3, 30)
    assert head.mirror(JobId("other")) is None


def test_a_plan_that_forgets_leaves_a_mark_with_a_fence_and_without_a_position() -> None:
    plan = CommitPlan(entry=entry(5), files=(), extra_summary={"crdb.job_id": "shop"})
    assert plan.summary == {**entry(5).to_summary(), "crdb.job_id": "shop"}
    mark = replace(plan, forget=True).summary
    assert (mark["frazil.job-id"], mark["frazil.fence"]) == ("shop", entry(5).fence.text)
    assert LedgerEntry.from_summary(mark) is None
    head = TableHead(uuid="u", ancestry=(SnapshotFacts(2, 1, 2, 0, mark), snapshot(1, None, entry(3))), properties={})
    assert head.newest(JOB) is None


def test_the_uppers_of_a_window_ascend() -> None:
    assert Window((Hlc(1), Hlc(1, 1))).upper == Hlc(1, 1)
    for uppers in ((), (Hlc(2), Hlc(1)), (Hlc(2), Hlc(2))):
        with pytest.raises(ValueError, match="window"):
            Window(uppers)
