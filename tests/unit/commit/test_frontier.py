"""How far a table is published, read from its head."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from commit_builders import BOB, FOREIGN, JOB, REPLACE, at, entry, head, recorded

from frazil.commit.frontier_check import At, Damaged, Fresh, RolledBack, read_frontier
from frazil.model.commit import CommitPlan
from frazil.model.ids import JobId
from frazil.model.ledger import Fence, TableHead

FORGOTTEN = CommitPlan(entry=entry(9, fence=Fence(4, BOB), operation="forget"), files=(), forget=True).summary


def test_a_table_without_a_mark_of_ours_is_fresh() -> None:
    assert read_frontier(head(), JOB) == Fresh()
    assert read_frontier(head(FOREIGN, REPLACE), JOB) == Fresh()
    other = entry(7, job=JobId("other"))
    assert read_frontier(head(other), JOB) == Fresh()


def test_foreign_and_replace_snapshots_are_walked_over() -> None:
    """H5"""
    reading = read_frontier(head(REPLACE, FOREIGN, entry(7, 5), FOREIGN, entry(5)), JOB)
    assert isinstance(reading, At)
    assert reading.entry.resolved == at(7)
    assert reading.entry.snapshot_id == 3


def test_the_walk_stops_at_the_first_own_entry() -> None:
    damaged_before = {"frazil.job-id": "shop", "frazil.resolved": "nonsense"}
    assert isinstance(read_frontier(head(entry(7), damaged_before), JOB), At)


def test_an_entry_that_expired_is_taken_from_the_property() -> None:
    """H3"""
    expired = recorded(entry(7), 3)
    assert read_frontier(head(FOREIGN, FOREIGN, cut=True, first_id=8, in_property=expired), JOB) == At(expired)


@pytest.mark.parametrize("cut", [False, True])
def test_a_property_ahead_of_a_bare_ancestry_means_rolled_back(cut: bool) -> None:
    """H4: nothing was cut off, or what was cut off is older than the entry."""
    lost = recorded(entry(7), 9)
    reading = read_frontier(head(FOREIGN, cut=cut, first_id=4, in_property=lost), JOB)
    assert reading == RolledBack(lost, None, starts_over=not cut)


def test_a_property_ahead_of_the_newest_entry_means_rolled_back() -> None:
    """H4, H44"""
    lost = recorded(entry(7, 5), 9)
    reading = read_frontier(head(FOREIGN, entry(5), in_property=lost), JOB)
    assert isinstance(reading, RolledBack)
    assert (reading.lost, reading.left.resolved if reading.left else None) == (lost, at(5))
    assert not reading.starts_over


@pytest.mark.parametrize("in_property", [None, recorded(entry(7), 2), recorded(entry(5), 1)])
def test_a_property_that_is_missing_equal_or_older_leaves_the_word_to_the_ancestry(in_property: object) -> None:
    reading = read_frontier(head(entry(7, 5), entry(5), in_property=in_property), JOB)  # type: ignore[arg-type]
    assert isinstance(reading, At)
    assert reading.entry.resolved == at(7)


def test_a_forgotten_table_is_fresh_and_remembers_who_forgot_it() -> None:
    assert read_frontier(head(FOREIGN, FORGOTTEN, entry(5)), JOB) == Fresh(forgotten_by=Fence(4, BOB))


def test_a_table_rolled_back_to_where_it_was_forgotten_starts_over() -> None:
    lost = recorded(entry(7), 9)
    reading = read_frontier(head(FORGOTTEN, cut=True, first_id=6, in_property=lost), JOB)
    assert reading == RolledBack(lost, None, starts_over=True)


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "[]",
        "{}",
        json.dumps({"snapshot-id": 1, "sequence-number": 1}),
        json.dumps({**entry(7).to_summary(), "snapshot-id": 1}),
        json.dumps({**entry(7).to_summary(), "snapshot-id": 1, "sequence-number": "1"}),
        entry(7, job=JobId("other")).to_property(1, 1),
    ],
)
def test_an_edited_property_is_damage_and_not_a_guess(text: str) -> None:
    reading = read_frontier(head(entry(5), properties={JOB.ledger_property: text}), JOB)
    assert isinstance(reading, Damaged)


@pytest.mark.parametrize("key", ["frazil.fence", "frazil.batch-id", "frazil.resolved"])
def test_an_edited_summary_is_damage(key: str) -> None:
    summary = {**entry(5).to_summary(), key: "nonsense"}
    assert isinstance(read_frontier(head(summary), JOB), Damaged)
    without = {k: v for k, v in entry(5).to_summary().items() if k != "frazil.fence"}
    assert isinstance(read_frontier(head(without), JOB), Damaged)


@pytest.mark.parametrize(
    "found", [head(in_property=recorded(entry(7), 3)), head(FOREIGN, first_id=8, in_property=recorded(entry(7), 3))]
)
def test_an_older_property_beside_a_history_that_never_held_it_means_rolled_back(found: TableHead) -> None:
    """H4: main is empty, or begins with a snapshot that has no parent: nothing was expired."""
    assert read_frontier(found, JOB) == RolledBack(recorded(entry(7), 3), None, starts_over=True)


def test_a_property_that_names_the_snapshot_found_is_not_ahead_of_it() -> None:
    """Whatever sequence number it carries, for instance from before an upgrade of the table's format."""
    same = replace(entry(7), snapshot_id=1, sequence_number=4)
    assert isinstance(read_frontier(head(entry(7), in_property=same), JOB), At)
