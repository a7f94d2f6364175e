"""The ledger: what a summary and a property say, and what a head makes of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.commit.frontier_check import Damaged, read_frontier
from frazil.errors import LedgerTooNew
from frazil.model.commit import CommitPlan
from frazil.model.frontier import Window
from frazil.model.ids import JobId, TableName
from frazil.model.ledger import Fence, LedgerEntry, PublishedEpoch, SnapshotFacts, TableHead, check_formats
from frazil.model.position import BatchNumber, Position, without_login
from frazil.sources.cockroachdb.position import Hlc
from frazil.sources.mongodb.position import ClusterTime

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
    in_property = head.in_property(JOB)
    assert in_property is not None
    assert (in_property.resolved, in_property.snapshot_id, in_property.sequence_number) == (Hlc(5), 3, 30)
    assert head.in_property(JobId("other")) is None


def test_a_plan_that_forgets_leaves_a_mark_with_a_fence_and_without_a_position() -> None:
    plan = CommitPlan(entry=entry(5), files=(), extra_summary={"crdb.job_id": "shop"})
    assert plan.summary == {**entry(5).to_summary(), "crdb.job_id": "shop"}
    mark = replace(plan, forget=True).summary
    assert (mark["frazil.job-id"], mark["frazil.fence"]) == ("shop", entry(5).fence.text)
    assert mark["frazil.format"] == "1"
    assert "frazil.source-time" not in mark
    assert LedgerEntry.from_summary(mark) is None
    head = TableHead(uuid="u", ancestry=(SnapshotFacts(2, 1, 2, 0, mark), snapshot(1, None, entry(3))), properties={})
    assert head.newest(JOB) is None


def test_the_uppers_of_a_window_ascend() -> None:
    assert Window((Hlc(1), Hlc(1, 1))).upper == Hlc(1, 1)
    for uppers in ((), (Hlc(2), Hlc(1)), (Hlc(2), Hlc(2))):
        with pytest.raises(ValueError, match="window"):
            Window(uppers)


@pytest.mark.parametrize("url", ["HTTPS://token@feeds.example/shop", "Https://reader:hunter22@feeds.example/shop"])
def test_a_login_is_found_however_its_scheme_is_written(url: str) -> None:
    assert without_login(url).lower() == "https://feeds.example/shop"


def test_an_entry_of_an_earlier_version_that_names_a_password_is_of_the_same_source() -> None:
    """And the password is in nothing that is made of it."""
    told = entry(5, incarnation="cockroachdb:https://reader:hunter22@feeds.example/shop")
    for read in (
        LedgerEntry.from_summary(told.to_summary()),
        LedgerEntry.from_property(told.to_property(1, 1)),
    ):
        assert read is not None
        assert read.incarnation == "cockroachdb:https://feeds.example/shop"
        assert "hunter22" not in f"{read} {read.to_summary()}"


# the format, and the source's own time


@pytest.mark.parametrize(
    ("resolved", "time"),
    [
        (Hlc(1_700_000_000_123_456_789), "2023-11-14T22:13:20.123456Z"),
        (ClusterTime.of(1_700_000_000, 3), "2023-11-14T22:13:20.000000Z"),
        (BatchNumber(7), None),
    ],
)
def test_an_entry_says_its_format_and_the_time_of_its_position(resolved: Position, time: str | None) -> None:
    summary = replace(entry(5), resolved=resolved).to_summary()
    assert (summary["frazil.format"], summary.get("frazil.source-time")) == ("1", time)


def test_an_entry_from_before_there_were_formats_is_of_format_1() -> None:
    summary = entry(5).to_summary()
    before = {key: value for key, value in summary.items() if key not in ("frazil.format", "frazil.source-time")}
    assert LedgerEntry.from_summary(before) == LedgerEntry.from_summary(summary) == entry(5)


def test_a_position_without_a_time_may_be_told_its_time() -> None:
    """H52: an offset or an LSN has none."""
    then = datetime(2026, 3, 1, 12, 30, 0, 250_000, tzinfo=UTC)
    told = replace(entry(5), resolved=BatchNumber(7), position_time=then)
    read = LedgerEntry.from_summary(told.to_summary())
    assert read == told
    assert told.to_summary()["frazil.source-time"] == "2026-03-01T12:30:00.250000Z"
    epoch = PublishedEpoch(told, 1, then)
    assert (epoch.is_within(then), epoch.is_within(then - timedelta(microseconds=1))) == (True, False)
    assert (epoch.reaches(then), epoch.reaches(then + timedelta(microseconds=1))) == (True, False)
    assert not PublishedEpoch(replace(told, position_time=None), 1, then).is_within(then)


@pytest.mark.parametrize("fact", [{"frazil.source-time": "2026-03-01T12:30:00"}, {"frazil.format": "two"}])
def test_a_time_without_a_zone_and_a_format_that_is_no_number_are_damage(fact: dict[str, str]) -> None:
    facts = SnapshotFacts(1, None, 1, 0, {**entry(5).to_summary(), **fact})
    assert isinstance(read_frontier(TableHead(uuid="u", ancestry=(facts,), properties={}), JOB), Damaged)
    check_formats(TableName(("shop",), "orders"), [(1, facts.summary)], {})


def test_an_entry_of_a_newer_format_is_not_read() -> None:
    newer = {**entry(5).to_summary(), "frazil.format": "2", "frazil.resolved": "as nobody here could tell"}
    head = TableHead(uuid="u", ancestry=(SnapshotFacts(33, None, 1, 0, newer),), properties={})
    with pytest.raises(LedgerTooNew, match=r"snapshot 33 has format 2.*up to 1") as caught:
        read_frontier(head, JOB)
    assert "Upgrade" in caught.value.hint
    text = entry(5).to_property(33, 1).replace('"frazil.format":"1"', '"frazil.format":"2"')
    with pytest.raises(LedgerTooNew):
        LedgerEntry.from_property(text)


ORDERS = TableName(("shop",), "orders")


@pytest.mark.parametrize("job", [JOB, JobId("other")])
def test_a_newer_format_anywhere_in_a_table_is_told_with_its_name(job: JobId) -> None:
    newer = {**entry(5, job=job).to_summary(), "frazil.format": "12"}
    plain = (32, entry(4).to_summary())
    check_formats(ORDERS, [plain, (30, {})], {JOB.ledger_property: entry(4).to_property(32, 1), "other": "{"})
    with pytest.raises(LedgerTooNew, match=r"snapshot 33 in shop\.orders has format 12.*up to 1") as caught:
        check_formats(ORDERS, [plain, (33, newer)], {})
    assert caught.value.facts == {"table": "shop.orders", "snapshot_id": 33, "format": 12, "known": 1}
    text = entry(5, job=job).to_property(34, 1).replace('"frazil.format":"1"', '"frazil.format":"12"')
    with pytest.raises(LedgerTooNew, match=r"snapshot 34 in shop\.orders"):
        check_formats(ORDERS, [plain], {job.ledger_property: text})


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"frazil.format": null}', '{"frazil.format": "new"}'])
def test_a_property_that_cannot_be_read_is_left_to_whoever_reports_it(text: str) -> None:
    check_formats(ORDERS, [], {JOB.ledger_property: text})
