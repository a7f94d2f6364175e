"""The publish machine: every answer in every state, and rule 2 of publishing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from commit_builders import ALICE, BOB, FOREIGN, JOB, ORDERS, at, coordinator, entry, epoch_commit, file, head, recorded

from frazil import errors
from frazil.commit.admission import FencedOut, Stopped
from frazil.commit.machine import (
    EPOCHS,
    AlreadyPublished,
    Committing,
    GaveUp,
    HeadRefused,
    HeadUnavailable,
    NeedHead,
    Published,
    Recut,
    advance,
    failure,
    make_epoch_commit,
)
from frazil.model.commit import Accepted, Conflicted, Refused, Unknown
from frazil.model.files import FileKind
from frazil.model.frontier import Frontier
from frazil.model.ids import batch_id
from frazil.model.ledger import Fence
from frazil.model.position import BatchNumber
from frazil.model.table import FieldForm, TableForm


def test_an_epoch_that_continues_the_frontier_is_committed_on_exactly_that_head() -> None:
    seen = head(FOREIGN, entry(5))
    mine = epoch_commit(5, 10)
    assert advance(NeedHead(), seen, mine) == Committing(1, seen, mine.plan)
    empty = head()
    first = epoch_commit(None, 10)
    assert advance(NeedHead(), empty, first) == Committing(1, empty, first.plan)


@pytest.mark.parametrize("published", [10, 12])
def test_an_epoch_at_or_behind_the_frontier_is_already_published(published: int) -> None:
    """H6, H8: also by another coordinator, and also when it went further."""
    state = advance(NeedHead(), head(entry(published, 5)), epoch_commit(5, 10))
    assert isinstance(state, AlreadyPublished)
    assert state.entry.resolved == at(published)


def test_an_epoch_that_was_published_in_part_is_cut_again() -> None:
    assert advance(NeedHead(), head(entry(7, 5)), epoch_commit(5, 10)) == Recut(at(7))
    assert advance(NeedHead(), head(entry(7)), epoch_commit(None, 10)) == Recut(at(7))


def test_logical_time_decides_too() -> None:
    half = replace(entry(10, 5), resolved=at(10, 1))
    mine = make_epoch_commit(coordinator(), ORDERS, "uuid-1", at(5), Frontier(at(10, 2)), [])
    assert advance(NeedHead(), head(half), mine) == Recut(at(10, 1))


@pytest.mark.parametrize("found", [head(entry(3)), head(FOREIGN), head()])
def test_a_table_behind_its_last_published_epoch_stops_the_epoch(found: object) -> None:
    """H44: rolled back together with its ledger."""
    state = advance(NeedHead(), found, epoch_commit(5, 10))  # type: ignore[arg-type]
    assert isinstance(state, Stopped)
    assert isinstance(state.error, errors.TableChanged)
    assert "frazil rewind CONFIG shop.orders" in state.error.hint


def test_a_rolled_back_table_stops_the_epoch_and_says_so() -> None:
    """H4, H44: even though the newest entry on main would fit."""
    state = advance(NeedHead(), head(entry(5), in_property=recorded(entry(7, 5), 9)), epoch_commit(5, 10))
    assert isinstance(state, Stopped)
    assert state.error.facts["what"] == "rolled back"
    assert "snapshot 9" in state.error.message
    assert "frazil rewind CONFIG shop.orders" in state.error.hint


def test_a_recreated_table_stops_the_epoch_and_says_so() -> None:
    """H10"""
    state = advance(NeedHead(), head(uuid="uuid-2"), epoch_commit(None, 10))
    assert isinstance(state, Stopped)
    assert state.error.facts["what"] == "recreated"


def test_an_edited_ledger_stops_the_epoch_and_says_so() -> None:
    state = advance(NeedHead(), head(entry(5), properties={JOB.ledger_property: "?"}), epoch_commit(5, 10))
    assert isinstance(state, Stopped)
    assert state.error.facts["what"] == "edited"
    assert JOB.ledger_property in state.error.hint


@pytest.mark.parametrize("fence", [Fence(2, BOB), Fence(2, ALICE), Fence(1, BOB)])
def test_another_coordinators_entry_fences_this_one(fence: Fence) -> None:
    """H12, H45: a newer generation, or an equal one of another owner."""
    mine = epoch_commit(5, 10, me=coordinator(1, ALICE))
    state = advance(NeedHead(), head(entry(5, fence=fence)), mine)
    assert state == FencedOut(fence)
    error = failure(state, mine)
    assert isinstance(error, errors.Fenced)
    assert error.exit_code == 6


@pytest.mark.parametrize("published", [5, 7, 10, 12])
def test_an_epoch_of_another_source_table_stops(published: int) -> None:
    """Two names of one table, where the catalog does not tell upper from lower case: neither may take the other's
    epochs for its own."""
    mine = make_epoch_commit(coordinator(), ORDERS, "uuid-1", at(5), Frontier(at(10)), [], source="shop.public.Orders")
    state = advance(NeedHead(), head(entry(published, 5, source="shop.public.orders")), mine)
    assert isinstance(state, Stopped)
    assert "holds the rows of shop.public.orders" in str(state.error)
    same = advance(NeedHead(), head(entry(5, source="Orders")), mine)
    assert isinstance(same, Committing), "the same table by its short name"


def test_a_newer_coordinator_goes_on_from_an_older_ones_entry() -> None:
    seen = head(entry(5, fence=Fence(1, BOB)))
    mine = epoch_commit(5, 10, me=coordinator(2, ALICE))
    assert advance(NeedHead(), seen, mine) == Committing(1, seen, mine.plan)


def test_another_source_stops_the_epoch() -> None:
    """H9"""
    state = advance(NeedHead(), head(entry(5, incarnation="cluster-2")), epoch_commit(5, 10))
    assert isinstance(state, Stopped)
    assert isinstance(state.error, errors.SourceLost)


@pytest.mark.parametrize(
    ("ledger", "source"),
    [
        ("cockroachdb:0b6ec3c4-1", "cockroachdb:0b6ec3c4-2"),
        ("cockroachdb:file:/feeds/shop", "cockroachdb:file:/feeds/shop2"),
        ("cockroachdb:s3://feeds/shop", "cockroachdb:gs://feeds/shop"),
        ("cockroachdb:host:26257/shop", "cockroachdb:host:26257/other"),
        ("mongodb:rs0:656e", "mongodb:rs0:656f"),
    ],
)
def test_another_source_of_the_same_kind_is_another_source(ledger: str, source: str) -> None:
    """H9: all of the incarnation counts, not how it begins."""
    for theirs, ours in ((ledger, source), (source, ledger)):
        mine = epoch_commit(5, 10, me=coordinator(incarnation=ours))
        state = advance(NeedHead(), head(entry(5, incarnation=theirs)), mine)
        assert isinstance(state, Stopped)
        assert isinstance(state.error, errors.SourceLost)


@pytest.mark.parametrize(("ledger", "source"), [("", "cluster-1"), ("cluster-1", "")])
def test_a_source_that_cannot_tell_its_incarnation_proves_nothing(ledger: str, source: str) -> None:
    mine = epoch_commit(5, 10, me=coordinator(incarnation=source))
    assert isinstance(advance(NeedHead(), head(entry(5, incarnation=ledger)), mine), Committing)


def test_files_without_deletes_only_go_into_an_empty_table() -> None:
    """H13: somebody wrote to it meanwhile."""
    mine = epoch_commit(None, 10, requires_empty=True)
    assert advance(NeedHead(), head(FOREIGN), mine) == Recut(None)
    assert isinstance(advance(NeedHead(), head(), mine), Committing)


def test_an_own_first_epoch_whose_answer_was_lost_is_recognised_in_the_no_longer_empty_table() -> None:
    """H6"""
    mine = epoch_commit(None, 10, requires_empty=True)
    assert isinstance(advance(NeedHead(2, in_doubt=True), head(entry(10)), mine), AlreadyPublished)


def test_an_accepted_commit_is_published() -> None:
    assert advance(Committing(1, head(), epoch_commit().plan), Accepted(77), epoch_commit()) == Published(
        77, epoch_commit().plan
    )


@pytest.mark.parametrize("answer", [Conflicted("409"), Unknown("timeout")])
def test_conflict_and_unknown_both_look_again(answer: Conflicted | Unknown) -> None:
    """H6, H43: a 409 may have landed as well."""
    assert advance(Committing(1, head(), epoch_commit().plan), answer, epoch_commit()) == NeedHead(2, in_doubt=True)
    state = advance(Committing(EPOCHS.attempts, head(), epoch_commit().plan), answer, epoch_commit())
    assert state == GaveUp(EPOCHS.attempts, True, answer.reason)
    assert isinstance(failure(state, epoch_commit()), errors.OutcomeUnknown)


def test_an_unavailable_head_is_looked_for_again_and_changes_no_doubt() -> None:
    assert advance(NeedHead(1), HeadUnavailable("down"), epoch_commit()) == NeedHead(2, in_doubt=False)
    assert advance(NeedHead(3, in_doubt=True), HeadUnavailable("down"), epoch_commit()) == NeedHead(4, in_doubt=True)
    state = advance(NeedHead(EPOCHS.attempts), HeadUnavailable("down"), epoch_commit())
    assert isinstance(failure(state, epoch_commit()), errors.CatalogUnavailable)
    in_doubt = advance(NeedHead(EPOCHS.attempts, in_doubt=True), HeadUnavailable("down"), epoch_commit())
    assert isinstance(failure(in_doubt, epoch_commit()), errors.OutcomeUnknown)


def test_doubt_survives_a_second_commit() -> None:
    seen = head()
    state = advance(NeedHead(2, in_doubt=True), seen, epoch_commit())
    assert state == Committing(2, seen, epoch_commit().plan, in_doubt=True)


def test_a_refusal_stops_the_epoch() -> None:
    state = advance(Committing(1, head(), epoch_commit().plan), Refused("403", "ask for rights"), epoch_commit())
    assert isinstance(state, Stopped)
    assert isinstance(state.error, errors.CatalogRefused)
    assert state.error.hint == "ask for rights"
    gone = errors.TableChanged("gone")
    assert advance(NeedHead(), HeadRefused(gone), epoch_commit()) == Stopped(gone)


def test_answers_that_cannot_follow_are_refused() -> None:
    with pytest.raises(AssertionError):
        advance(NeedHead(), Accepted(1), epoch_commit())
    with pytest.raises(AssertionError):
        advance(Published(1, epoch_commit().plan), head(), epoch_commit())


def test_outcomes_that_are_no_failure_have_no_error() -> None:
    for outcome in (Published(1, epoch_commit().plan), AlreadyPublished(entry(5)), Recut(None)):
        assert failure(outcome, epoch_commit()) is None


def test_waits_double_up_to_a_bound_and_jitter_only_shortens_them() -> None:
    assert EPOCHS.before(1, 0.5) == 0.0
    waits = [EPOCHS.before(attempt, 0.0) for attempt in range(2, 40)]
    assert waits[:4] == [0.1, 0.2, 0.4, 0.8]
    assert max(waits) == EPOCHS.longest
    assert EPOCHS.before(3, 0.999) > EPOCHS.before(3, 0.0) / 2.01


def test_an_intent_tells_the_ledger_what_is_published() -> None:
    files = [file("a", records=3), file("b", FileKind.EQUALITY_DELETE, records=5), file("c", records=4)]
    mine = epoch_commit(5, 10, files)
    told = mine.plan.entry
    assert told.batch_id == batch_id(JOB, ORDERS, at(10))
    assert (told.lower, told.resolved, told.notes) == (at(5), at(10), "notes")
    assert (told.operation, told.data_files, told.delete_files, told.rows, told.deletes) == ("row_delta", 2, 1, 7, 5)
    assert (told.fence, told.incarnation, told.config_hash) == (Fence(1, ALICE), "cluster-1", "abc")
    assert (told.snapshot_id, told.sequence_number) == (None, None)


def test_operations_are_named_by_what_they_hold() -> None:
    assert epoch_commit(files=[file("a")]).plan.entry.operation == "append"
    assert epoch_commit(files=[file("a", FileKind.EQUALITY_DELETE)]).plan.entry.operation == "row_delta"
    assert epoch_commit(files=[]).plan.entry.operation == "heartbeat"


def test_a_cockroachdb_epoch_carries_the_keys_its_own_tools_look_for() -> None:
    mine = epoch_commit(5, 10, [file("a"), file("b", FileKind.EQUALITY_DELETE)])
    assert mine.plan.extra_summary == {
        "crdb.batch_id": str(batch_id(JOB, ORDERS, at(10))),
        "crdb.job_id": "shop",
        "crdb.resolved_hlc": "10.0000000000",
        "crdb.data_file_count": "1",
        "crdb.delete_file_count": "1",
    }
    assert mine.plan.summary.items() >= mine.plan.extra_summary.items()
    streamed = make_epoch_commit(coordinator(), ORDERS, "uuid-1", None, Frontier(BatchNumber(3)), [])
    assert streamed.plan.extra_summary == {}


def test_an_epoch_that_ends_before_it_begins_cannot_be_meant() -> None:
    with pytest.raises(ValueError, match="cannot reach"):
        epoch_commit(10, 10)


def test_an_epoch_written_under_columns_that_the_head_lacks_is_not_published() -> None:
    """Its values would be under an id that nobody reads, and the column empty for good."""
    two = TableForm(fields={1: FieldForm(("id",), "long", 1), 2: FieldForm(("amount",), "string", 2)})
    one = TableForm(fields={1: FieldForm(("id",), "long", 1)})
    mine = replace(epoch_commit(5, 10), written=two)
    fine, dropped = (replace(head(FOREIGN, entry(5)), form=form) for form in (two, one))

    assert isinstance(advance(NeedHead(), fine, mine), Committing)
    state = advance(NeedHead(), dropped, mine)
    assert isinstance(state, Stopped)
    assert isinstance(state.error, errors.TableChanged)
    assert "amount was dropped" in str(state.error)

    assert isinstance(advance(NeedHead(), dropped, replace(epoch_commit(5, 10, files=[]), written=two)), Committing)
    landed = replace(head(entry(10, 5)), form=one)
    assert isinstance(advance(NeedHead(3, in_doubt=True), landed, mine), AlreadyPublished), "it was there before"
