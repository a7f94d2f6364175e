"""Epochs whose older rows must be found before they are committed: found on a head, committed on that head."""

from __future__ import annotations

from dataclasses import replace

import pytest
from commit_builders import (
    FOREIGN,
    Notebook,
    ScriptedLake,
    ScriptedLocator,
    StillClock,
    entry,
    epoch_commit,
    file,
    head,
)

from frazil import errors
from frazil.commit.admission import Stopped
from frazil.commit.machine import (
    EPOCHS,
    LOOKUPS_LOST_MAX,
    Committing,
    GaveUp,
    Locating,
    LocatingFailed,
    LocatingRefused,
    NeedHead,
    Published,
    advance,
    located_plan,
)
from frazil.commit.publisher import publish
from frazil.model.commit import Accepted, Conflicted, Unknown
from frazil.model.files import Blob, FileKind, LiveDelete
from frazil.model.ports import Located

MINE = epoch_commit(5, 10, vectors=True)


def vector(data_file: str = "old", path: str = "v.puffin", records: int = 9) -> object:
    return file(path, FileKind.POSITION_DELETE, equality_ids=(), records=records, vector=Blob(data_file, 4, 40))


def old_vector(data_file: str = "old") -> LiveDelete:
    return LiveDelete(
        path="u.puffin",
        kind=FileKind.POSITION_DELETE,
        format="puffin",
        size=50,
        records=4,
        sequence_number=3,
        spec_id=0,
        data_file=data_file,
        offset=4,
        length=40,
    )


def found(**changed: object) -> Located:
    facts = {"files": (file(), vector()), "removed_deletes": (old_vector(),), "must_exist": ("old",), "found": 5}
    return Located(**{**facts, **changed})  # type: ignore[arg-type]


def test_a_head_that_fits_is_searched_and_then_committed_on() -> None:
    """H47: what was found on a head is committed on that very head."""
    seen = head(FOREIGN, entry(5))
    assert advance(NeedHead(), seen, MINE) == Locating(1, seen)
    state = advance(Locating(1, seen), found(), MINE)
    assert state == Committing(1, seen, located_plan(MINE, found()))


@pytest.mark.parametrize(
    "nothing_to_find",
    [
        epoch_commit(5, 10, [], vectors=True),
        epoch_commit(None, 10, requires_empty=True, vectors=True),
        epoch_commit(5, 10, vectors=False),
    ],
)
def test_nothing_is_searched_where_there_is_nothing_to_find(nothing_to_find: object) -> None:
    lower = nothing_to_find.lower  # type: ignore[attr-defined]
    seen = head() if lower is None else head(entry(5))
    state = advance(NeedHead(), seen, nothing_to_find)  # type: ignore[arg-type]
    assert state == Committing(1, seen, nothing_to_find.plan)  # type: ignore[attr-defined]


def test_the_ledger_counts_what_is_really_committed() -> None:
    told = located_plan(MINE, found())
    assert (told.entry.operation, told.entry.data_files, told.entry.delete_files) == ("row_delta", 1, 1)
    assert (told.entry.rows, told.entry.deletes) == (3, 5), "a vector of 9 rows of which this epoch deleted 5"
    assert told.summary["crdb.delete_file_count"] == "1"
    assert told.removed_deletes == (old_vector(),)
    assert told.must_exist == ("old",)


def test_keys_without_older_rows_make_an_append_and_deletes_of_unknown_keys_nothing() -> None:
    keys_of_deleted = file("k", FileKind.EQUALITY_DELETE)
    mine = epoch_commit(5, 10, [file(), keys_of_deleted], vectors=True)
    plan = located_plan(mine, Located(files=(file(),)))
    assert (plan.entry.operation, plan.entry.delete_files, plan.entry.deletes) == ("append", 0, 0)
    only_deletes = epoch_commit(5, 10, [keys_of_deleted], vectors=True)
    assert located_plan(only_deletes, Located(files=())).entry.operation == "heartbeat"
    by_equality = located_plan(mine, Located(files=mine.plan.files)).entry
    assert (by_equality.operation, by_equality.delete_files, by_equality.deletes) == ("row_delta", 1, 3)


def test_a_lost_race_is_searched_again_and_after_three_published_by_equality() -> None:
    heads = [head(*[FOREIGN] * n, entry(5)) for n in range(LOOKUPS_LOST_MAX + 1)]
    committer = ScriptedLake(heads, [*[Conflicted("409")] * LOOKUPS_LOST_MAX, Accepted(7)])
    answers = [found(found=n) for n in range(LOOKUPS_LOST_MAX + 1)]
    locator = ScriptedLocator(answers)
    outcome = publish(MINE, committer, StillClock(), Notebook(), locator)
    assert outcome == Published(7, MINE.plan)
    assert outcome.plan.entry.deletes == 3  # type: ignore[union-attr]
    assert [asked for asked, _ in locator.asked] == heads
    assert [by_equality for _, by_equality in locator.asked] == [False] * LOOKUPS_LOST_MAX + [True]
    assert [used for used, _ in committer.commits] == heads
    assert [plan.entry.deletes for _, plan in committer.commits] == [0, 1, 2, 3], "what was lost is not reported"


def test_an_unanswered_commit_is_no_lost_race() -> None:
    seen = head(entry(5))
    state = advance(Committing(1, seen, MINE.plan, lost=1), Unknown("timeout"), MINE)
    assert state == NeedHead(2, in_doubt=True, lost=1)


def test_losses_are_remembered_over_a_catalog_that_is_away() -> None:
    seen = head(entry(5))
    assert advance(NeedHead(4, True, lost=3), seen, MINE) == Locating(4, seen, True, lost=3)
    assert Locating(4, seen, True, lost=3).by_equality
    assert not Locating(4, seen, True, lost=2).by_equality
    assert advance(Locating(4, seen, True, lost=3), LocatingFailed("S3"), MINE) == NeedHead(5, True, lost=3)


def test_a_search_that_fails_is_tried_again_within_the_same_bound() -> None:
    committer = ScriptedLake([head(entry(5))] * EPOCHS.attempts)
    locator = ScriptedLocator([errors.StorageUnavailable("disk")] * EPOCHS.attempts)
    outcome = publish(MINE, committer, StillClock(), Notebook(), locator)
    assert outcome == GaveUp(EPOCHS.attempts, False, "StorageUnavailable: disk")
    assert committer.commits == []


def test_a_search_that_can_never_succeed_stops_the_epoch() -> None:
    gone = errors.TableChanged("a data file is gone")
    committer = ScriptedLake([head(entry(5)), head(entry(5))])
    assert publish(MINE, committer, StillClock(), Notebook(), ScriptedLocator([gone])) == Stopped(gone)
    assert advance(Locating(1, head(entry(5))), LocatingRefused(gone), MINE) == Stopped(gone)


def test_a_file_that_a_rewrite_and_an_expiry_took_away_is_no_damage() -> None:
    before, after = head(entry(5)), head(FOREIGN, entry(5))
    committer = ScriptedLake([before, after, after], [Accepted(7)])
    locator = ScriptedLocator([errors.TableChanged("a data file is gone"), found()])
    assert publish(MINE, committer, StillClock(), Notebook(), locator) == Published(7, MINE.plan)
    assert [asked for asked, _ in locator.asked] == [before, after]


def test_an_epoch_that_needs_a_search_cannot_be_published_without_one() -> None:
    with pytest.raises(AssertionError, match="nobody was given"):
        publish(MINE, ScriptedLake([head(entry(5))]), StillClock(), Notebook())


PARTIAL = file("partial-1", FileKind.PARTIAL, equality_ids=())


def test_an_epoch_with_partial_rows_is_searched_for_on_every_head_and_never_published_by_equality() -> None:
    """Deletes by key cannot fill what a row lacks, so a race that is always lost ends in giving up."""
    mine = epoch_commit(5, 10, [file(), PARTIAL], vectors=True)
    heads = [head(*[FOREIGN] * n, entry(5)) for n in range(EPOCHS.attempts)]
    committer = ScriptedLake(heads, [Conflicted("409")] * EPOCHS.attempts)
    locator = ScriptedLocator([found()] * EPOCHS.attempts)
    outcome = publish(mine, committer, StillClock(), Notebook(), locator)
    assert isinstance(outcome, GaveUp)
    assert [by_equality for _, by_equality in locator.asked] == [False] * EPOCHS.attempts
    assert [asked for asked, _ in locator.asked] == heads


def test_an_epoch_for_readers_that_know_no_equality_deletes_is_searched_for_on_every_head() -> None:
    mine = replace(MINE, by_position=True)
    heads = [head(*[FOREIGN] * n, entry(5)) for n in range(LOOKUPS_LOST_MAX + 2)]
    committer = ScriptedLake(heads, [*[Conflicted("409")] * (LOOKUPS_LOST_MAX + 1), Accepted(7)])
    locator = ScriptedLocator([found()] * (LOOKUPS_LOST_MAX + 2))
    assert publish(mine, committer, StillClock(), Notebook(), locator) == Published(7, MINE.plan)
    assert [by_equality for _, by_equality in locator.asked] == [False] * (LOOKUPS_LOST_MAX + 2)


def test_partial_rows_are_no_files_of_the_table() -> None:
    mine = epoch_commit(5, 10, [PARTIAL], vectors=True)
    assert (mine.plan.entry.data_files, mine.plan.entry.delete_files, mine.plan.entry.rows) == (0, 0, 0)
    assert mine.plan.data_files == mine.plan.delete_files == ()
    whole = located_plan(mine, Located(files=(file(), vector()), found=2))  # type: ignore[arg-type]
    assert (whole.entry.rows, whole.entry.deletes, whole.entry.operation) == (3, 2, "row_delta")
    with pytest.raises(AssertionError, match="not whole"):
        located_plan(mine, Located(files=(PARTIAL,)))


@pytest.mark.parametrize("road", [{"vectors": False}, {"vectors": True, "requires_empty": True}])
def test_partial_rows_that_nobody_would_complete_cannot_be_meant(road: dict[str, bool]) -> None:
    with pytest.raises(ValueError, match="partial"):
        epoch_commit(None, 10, [PARTIAL], **road)
