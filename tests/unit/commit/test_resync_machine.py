"""Loading a table anew on a branch: what may be done with it, whoever asks and whatever happened meanwhile (H27)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from commit_builders import (
    ALICE,
    BOB,
    FOREIGN,
    JOB,
    ORDERS,
    REPLACE,
    StillClock,
    at,
    coordinator,
    entry,
    head,
    recorded,
)

from frazil import errors
from frazil.commit.admission import Coordinator
from frazil.commit.frontier_check import At, Fresh, read_frontier
from frazil.commit.machine import EPOCHS
from frazil.commit.resync_machine import (
    Abandonment,
    Adopt,
    Adopted,
    Adoption,
    Begin,
    Behind,
    Clear,
    DropBranch,
    Loading,
    MainMoved,
    NotUnderWay,
    TakeOver,
    clear_plan,
    decide,
    highest_generation,
    resync_stage,
)
from frazil.commit.resync_runner import abandon_resync, adopt_resync, begin_resync
from frazil.model.commit import Accepted, ClearPlan, CommitAnswer, CommitPlan, Conflicted, Refused, Unknown
from frazil.model.frontier import Frontier
from frazil.model.ids import TableName
from frazil.model.ledger import BRANCH_FACT, BranchedHead, Fence, LedgerEntry, SnapshotFacts, TableHead
from frazil.sources.mongodb.position import ClusterTime

ME = coordinator(3)
ON_BRANCH = {BRANCH_FACT: JOB.resync_branch}


def clear(fence: Fence = ME.fence) -> Mapping[str, str]:
    return clear_plan(coordinator(fence.generation, fence.owner)).summary


def loaded(resolved: int, lower: int | None = None, **changed: Any) -> Mapping[str, str]:
    """The summary of an epoch that was published on the branch."""
    facts = {"fence": ME.fence, **changed}
    return {**entry(resolved, lower, **facts).to_summary(), **ON_BRANCH}


def table(
    main: Sequence[LedgerEntry | Mapping[str, str]] = (),
    branch: Sequence[Mapping[str, str]] | None = None,
    since: Sequence[LedgerEntry | Mapping[str, str]] = (),
    in_property: LedgerEntry | None = None,
    cut: bool = False,
) -> BranchedHead:
    """Newest first: `main` is what main was when the branch was made, `since` what happened to it from then on. `cut`
    if expiry has left only the newest snapshot of the branch, whose snapshots are numbered from 101."""
    now = head(*since, *main, in_property=in_property)
    if branch is None:
        return BranchedHead(now, None)
    before = head(*main)
    ancestry, parent = before.ancestry, before.snapshot_id
    for number, summary in enumerate(reversed(branch), 101):
        ancestry = (SnapshotFacts(number, parent, number, 0, summary), *ancestry)
        parent = number
    return BranchedHead(now, replace(before, ancestry=ancestry[:1] if cut else ancestry))


def newest(heads: BranchedHead) -> LedgerEntry:
    assert heads.branch is not None
    found = heads.branch.newest(JOB)
    assert found is not None
    return found


def stage(heads: BranchedHead, me: Coordinator = ME) -> NotUnderWay | Loading | errors.Terminal:
    return resync_stage(heads, ORDERS, me)


def begin(heads: BranchedHead, me: Coordinator = ME, anew: bool = False) -> object:
    return decide(heads, Begin(table=ORDERS, coordinator=me, anew=anew))


def adopt(heads: BranchedHead, me: Coordinator = ME, what: LedgerEntry | None = None) -> object:
    return decide(heads, Adoption(table=ORDERS, coordinator=me, loaded=what or newest(heads)))


# How far a table is


def test_a_table_without_a_branch_is_not_under_way() -> None:
    assert stage(table([entry(7)])) == NotUnderWay()


def test_a_cleared_branch_is_loaded_from_the_start_of_the_source() -> None:
    heads = table([entry(7)], [clear()])
    assert stage(heads) == Loading(None, None)
    assert heads.branch is not None
    assert heads.branch.is_empty
    assert read_frontier(heads.branch, JOB) == Fresh(ME.fence)


def test_a_load_goes_on_from_the_newest_entry_on_the_branch_with_its_notes() -> None:
    heads = table([entry(7)], [loaded(20, 15, notes="ranges"), loaded(15), clear()])
    found = stage(heads, coordinator(4, BOB))
    assert isinstance(found, Loading)
    assert found.frontier == Frontier(at(20), "ranges")
    assert found.entry == newest(heads)


def test_a_load_goes_on_when_expiry_has_left_only_the_newest_snapshot_of_the_branch() -> None:
    heads = table([entry(7)], [loaded(20, 15), loaded(15), clear()], cut=True)
    assert stage(heads) == Loading(Frontier(at(20)), newest(heads))


def test_main_may_be_of_another_source_or_rolled_back_since_the_load_is_to_replace_it() -> None:
    other = table([entry(7, incarnation="cluster-0")], [loaded(20), clear()])
    assert isinstance(stage(other), Loading)
    rolled_back = table([entry(5)], [loaded(20), clear()], in_property=recorded(entry(7, 5), 9))
    assert isinstance(stage(rolled_back), Loading)


def test_a_load_from_another_source_cannot_go_on() -> None:
    """H9"""
    found = stage(table([entry(7)], [loaded(20, incarnation="cluster-0"), clear()]))
    assert isinstance(found, errors.SourceLost)


def test_a_branch_that_somebody_else_made_is_no_load() -> None:
    assert stage(table([entry(7)], [FOREIGN])) == NotUnderWay()
    assert stage(table([], [FOREIGN])) == NotUnderWay()


def test_a_branch_that_main_was_set_forward_to_by_hand_is_no_load_any_more() -> None:
    both = head(loaded(20), clear(), entry(7))
    assert stage(BranchedHead(both, both)) == NotUnderWay()


@pytest.mark.parametrize("fence", [Fence(4, BOB), Fence(3, BOB)])
@pytest.mark.parametrize("wish", ["begin", "begin anew", "adopt", "abandon"])
@pytest.mark.parametrize("where", ["main", "branch", "clear", "rolled back main"])
def test_only_the_exact_newest_fence_of_main_and_branch_may_do_anything(fence: Fence, wish: str, where: str) -> None:
    """H12, H45"""
    theirs = entry(8, 7, fence=fence)
    heads = {
        "main": table([entry(7)], [loaded(20), clear()], since=[theirs]),
        "branch": table([entry(7)], [loaded(20, fence=fence), clear()]),
        "clear": table([entry(7)], [clear(fence)]),
        "rolled back main": table([entry(7)], [loaded(20), clear()], in_property=recorded(theirs, 9)),
    }[where]
    what = recorded(entry(20), 102)
    wishes = {
        "begin": Begin(table=ORDERS, coordinator=ME),
        "begin anew": Begin(table=ORDERS, coordinator=ME, anew=True),
        "adopt": Adoption(table=ORDERS, coordinator=ME, loaded=what),
        "abandon": Abandonment(table=ORDERS, coordinator=ME),
    }
    error = decide(heads, wishes[wish])
    assert isinstance(error, errors.Fenced)
    assert error.facts["by"] == fence.text


def test_a_ledger_that_cannot_be_read_stops_everything() -> None:
    edited = table([entry(7)], [loaded(20), clear()])
    broken = replace(edited.main, properties={JOB.ledger_property: "?"})
    assert isinstance(adopt(replace(edited, main=broken), what=newest(edited)), errors.TableChanged)
    assert isinstance(begin(table([entry(7)], [{**loaded(20), "frazil.fence": "?"}, clear()])), errors.TableChanged)


def test_the_generation_on_the_branch_counts_for_taking_a_fence() -> None:
    assert highest_generation(table([entry(7)], [loaded(20, fence=Fence(9, BOB)), clear()]), JOB) == 9
    assert highest_generation(table([], [clear(Fence(6, BOB))]), JOB) == 6
    assert highest_generation(table([entry(7, fence=Fence(8, BOB))], [clear()]), JOB) == 8
    assert highest_generation(table([entry(7)]), JOB) == 1


# Beginning


def test_a_load_begins_with_a_mark_that_has_a_fence_and_no_position() -> None:
    step = begin(table([entry(7)]))
    assert isinstance(step, Clear)
    assert step.plan.summary == {
        "frazil.format": "1",
        "frazil.job-id": "shop",
        "frazil.fence": ME.fence.text,
        "frazil.incarnation": "cluster-1",
        "frazil.config-hash": "abc",
        "frazil.operation": "resync",
        "frazil.branch": "frazil_shop_resync",
    }
    assert LedgerEntry.from_summary(step.plan.summary) is None


def test_a_load_of_ours_goes_on() -> None:
    heads = table([entry(7)], [loaded(20), clear()])
    assert begin(heads) == Loading(Frontier(at(20)), newest(heads))
    assert begin(table([entry(7)], [clear()])) == Loading(None, None)


def test_a_load_that_another_began_is_taken_over_with_our_fence() -> None:
    """H12: from then on nobody older can clear it or publish to it."""
    older = Fence(2, BOB)
    step = begin(table([entry(7)], [loaded(20, 15, notes="n", fence=older), clear(older)]))
    assert isinstance(step, TakeOver)
    stated = step.plan.entry
    assert (stated.lower, stated.resolved, stated.notes, stated.fence) == (at(15), at(20), "n", ME.fence)
    assert (stated.operation, step.plan.files) == ("take-over", ())
    taken = table([entry(7)], [{**step.plan.summary, **ON_BRANCH}, loaded(20, 15, fence=older), clear(older)])
    assert begin(taken) == Loading(Frontier(at(20), "n"), newest(taken))
    assert isinstance(begin(taken, coordinator(2, BOB), anew=True), errors.Fenced)
    assert isinstance(begin(table([entry(7)], [clear(older)])), Clear), "there is nothing to state"


def test_a_load_that_is_to_begin_anew_is_cleared_once() -> None:
    assert isinstance(begin(table([entry(7)], [loaded(20), clear()]), anew=True), Clear)
    assert isinstance(begin(table([entry(7)], [clear(Fence(2, BOB))]), anew=True), Clear)
    assert begin(table([entry(7)], [clear(), loaded(20), clear()]), anew=True) == Loading(None, None)


def test_a_load_from_another_source_can_only_begin_anew() -> None:
    heads = table([entry(7)], [loaded(20, incarnation="cluster-0"), clear()])
    assert isinstance(begin(heads), errors.SourceLost)
    assert isinstance(begin(heads, anew=True), Clear)


def test_a_branch_of_somebody_else_is_not_written_to() -> None:
    for anew in (False, True):
        error = begin(table([entry(7)], [FOREIGN]), anew=anew)
        assert isinstance(error, errors.TableChanged)
        assert "DROP BRANCH `frazil_shop_resync`" in error.hint


# Adopting


def test_what_was_loaded_is_adopted_with_the_fence_of_who_adopts() -> None:
    heads = table([entry(7)], [loaded(20, 15, notes="n", fence=Fence(2, BOB)), loaded(15), clear()])
    step = adopt(heads)
    assert isinstance(step, Adopt)
    stated = step.plan.entry
    assert (stated.resolved, stated.notes, stated.fence, stated.operation) == (at(20), "n", ME.fence, "adopt")
    assert (step.plan.files, stated.rows, BRANCH_FACT in step.plan.summary) == ((), 0, False)


def test_main_may_have_moved_meanwhile() -> None:
    for since in ([FOREIGN], [REPLACE], [entry(9, 7)], [FOREIGN, entry(20, 7)]):
        assert isinstance(adopt(table([entry(7)], [loaded(20), clear()], since=since)), Adopt)
    assert isinstance(adopt(table([entry(5)], [loaded(20), clear()], in_property=recorded(entry(7, 5), 9))), Adopt)
    assert isinstance(adopt(table([], [loaded(20), clear()])), Adopt)


def test_readers_of_main_never_go_back_in_time() -> None:
    heads = table([entry(7)], [loaded(20), clear()], since=[entry(25, 7)])
    assert adopt(heads) == Behind(newest(heads), heads.main.newest(JOB))  # type: ignore[arg-type]
    rolled_back = table([entry(7)], [loaded(20), clear()], in_property=recorded(entry(25, 7), 9))
    assert isinstance(adopt(rolled_back), Behind)


def test_positions_of_another_source_say_nothing_about_time() -> None:
    """H9"""
    other = table([entry(25, incarnation="cluster-0")], [loaded(20), clear()])
    assert isinstance(adopt(other), Adopt)
    mongo = table([replace(entry(7), resolved=ClusterTime.of(2_000_000_000, 1))], [loaded(20), clear()])
    assert isinstance(adopt(mongo), Adopt)


def test_a_branch_that_goes_on_or_begins_anew_is_looked_at_again() -> None:
    before = table([entry(7)], [loaded(15), clear()])
    after = table([entry(7)], [loaded(20, 15), loaded(15), clear()])
    assert adopt(after, what=newest(before)) == MainMoved(newest(after))
    assert adopt(table([entry(7)], [clear(), loaded(15), clear()]), what=newest(before)) == MainMoved(None)


def test_an_adoption_that_landed_is_found() -> None:
    """H6: also when its history has expired, and when main was rolled back since."""
    heads = table([entry(7)], [loaded(20), clear()])
    what = newest(heads)
    step = adopt(heads)
    assert isinstance(step, Adopt)
    assert what.snapshot_id == 102
    stated = step.plan.entry
    adopted = replace(head(stated, cut=True, first_id=103), properties={})
    assert adopt(BranchedHead(adopted, None), what=what) == Adopted(what)
    assert adopt(table([entry(7)], in_property=recorded(stated, 103)), what=what) == Adopted(what)
    later = replace(head(entry(30, 20, fence=ME.fence), loaded(20), first_id=102), properties={})
    assert adopt(BranchedHead(later, None), what=what) == Adopted(what)


def test_a_branch_that_somebody_removed_stops_the_adoption() -> None:
    error = adopt(table([entry(7)]), what=recorded(entry(20), 102))
    assert isinstance(error, errors.TableChanged)
    assert "frazil resync CONFIG shop.orders" in error.hint


def test_an_entry_that_was_not_read_from_a_branch_cannot_be_adopted() -> None:
    with pytest.raises(ValueError, match="not read from a branch"):
        Adoption(table=ORDERS, coordinator=ME, loaded=entry(20))


# Giving up


def test_a_load_is_given_up_if_there_is_one() -> None:
    wish = Abandonment(table=ORDERS, coordinator=ME)
    assert decide(table([entry(7)], [loaded(20), clear()]), wish) == DropBranch()
    assert decide(table([entry(7)], [loaded(20, incarnation="cluster-0"), clear()]), wish) == DropBranch()
    assert decide(table([entry(7)]), wish) == NotUnderWay()
    assert decide(table([entry(7)], [FOREIGN]), wish) == NotUnderWay()


# Performing it


class ScriptedBranch:
    """A table whose heads and answers come from a script; what was sent is written down."""

    def __init__(
        self, heads: Sequence[BranchedHead | Exception], answers: Sequence[CommitAnswer | Exception] = ()
    ) -> None:
        self.script, self.answers = list(heads), list(answers)
        self.sent: list[tuple[str, TableHead]] = []

    def heads(self, table: TableName) -> BranchedHead:
        found = self.script.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def begin(self, table: TableName, head: TableHead, plan: ClearPlan) -> CommitAnswer:
        return self._answer("begin", head)

    def commit(self, table: TableName, head: TableHead, plan: CommitPlan) -> CommitAnswer:
        return self._answer("commit", head)

    def adopt(self, table: TableName, head: TableHead, plan: CommitPlan) -> CommitAnswer:
        return self._answer("adopt", head)

    def abandon(self, table: TableName, head: TableHead) -> CommitAnswer:
        return self._answer("abandon", head)

    def _answer(self, what: str, head: TableHead) -> CommitAnswer:
        self.sent.append((what, head))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


PLAIN = table([entry(7)])
CLEARED = table([entry(7)], [clear()])
LOADED = table([entry(7)], [loaded(20), clear()])
UNCERTAIN = [Conflicted("409"), Unknown("timeout"), ConnectionResetError("broken")]


def test_beginning_sends_one_commit_on_the_head_that_was_read() -> None:
    committer, clock = ScriptedBranch([PLAIN], [Accepted(8)]), StillClock()
    assert begin_resync(ORDERS, committer, ME, clock) == Loading(None, None)
    assert committer.sent == [("begin", PLAIN.main)]
    assert clock.waits == [0.0]


@pytest.mark.parametrize("answer", UNCERTAIN, ids=str)
def test_a_beginning_whose_answer_proves_nothing_is_looked_for_and_not_sent_twice(
    answer: CommitAnswer | Exception,
) -> None:
    """H6, H43"""
    committer, clock = ScriptedBranch([PLAIN, errors.CatalogUnavailable("?"), CLEARED], [answer]), StillClock()
    assert begin_resync(ORDERS, committer, ME, clock) == Loading(None, None)
    assert len(committer.sent) == 1
    assert clock.waits == [0.0, 0.1, 0.2]


@pytest.mark.parametrize("answer", [*UNCERTAIN, Accepted(9)], ids=str)
def test_a_take_over_is_looked_at_whatever_the_answer(answer: CommitAnswer | Exception) -> None:
    """H6"""
    theirs = table([entry(7)], [loaded(20, fence=Fence(2, BOB)), clear(Fence(2, BOB))])
    committer = ScriptedBranch([theirs, LOADED], [answer])
    assert begin_resync(ORDERS, committer, ME, StillClock()) == Loading(Frontier(at(20)), newest(LOADED))
    assert committer.sent == [("commit", theirs.branch)]


@pytest.mark.parametrize("answer", UNCERTAIN, ids=str)
def test_an_adoption_whose_answer_proves_nothing_is_looked_for(answer: CommitAnswer | Exception) -> None:
    """H6, H43"""
    done = table([entry(7)], in_property=recorded(entry(20, operation="adopt", fence=ME.fence), 103))
    committer = ScriptedBranch([LOADED, done], [answer])
    what = newest(LOADED)
    assert adopt_resync(ORDERS, committer, ME, StillClock(), what) == Adopted(what)
    assert committer.sent == [("adopt", LOADED.branch)]


def test_an_adoption_that_did_not_land_is_sent_again_on_the_newer_head() -> None:
    moved = table([entry(7)], [loaded(20), clear()], since=[FOREIGN])
    committer = ScriptedBranch([LOADED, moved], [Conflicted("409"), Accepted(9)])
    assert isinstance(adopt_resync(ORDERS, committer, ME, StillClock(), newest(LOADED)), Adopted)
    assert [head is heads.branch for (_, head), heads in zip(committer.sent, (LOADED, moved), strict=True)] == [
        True,
        True,
    ]


def test_after_a_lost_answer_a_newer_coordinator_ends_this_one() -> None:
    """H12"""
    theirs = table([entry(7)], since=[entry(30, 7, fence=Fence(4, BOB))])
    with pytest.raises(errors.Fenced):
        adopt_resync(ORDERS, ScriptedBranch([LOADED, theirs], [Unknown("?")]), ME, StillClock(), newest(LOADED))


def test_giving_up_looks_again_too() -> None:
    committer = ScriptedBranch([LOADED, PLAIN], [Unknown("?")])
    abandon_resync(ORDERS, committer, ME, StillClock())
    assert committer.sent == [("abandon", LOADED.branch)]


def test_a_refusal_is_final_and_names_the_table() -> None:
    with pytest.raises(errors.CatalogRefused, match=r"shop\.orders.*read-only") as caught:
        begin_resync(ORDERS, ScriptedBranch([PLAIN], [Refused("read-only", "ask them")]), ME, StillClock())
    assert caught.value.hint == "ask them"


def test_attempts_are_bounded_and_doubt_is_told() -> None:
    committer = ScriptedBranch([PLAIN] * EPOCHS.attempts, [Unknown("timeout")] * EPOCHS.attempts)
    with pytest.raises(errors.OutcomeUnknown, match="8 attempts failed"):
        begin_resync(ORDERS, committer, ME, StillClock())
    silent = ScriptedBranch([errors.CatalogUnavailable("no answer")] * EPOCHS.attempts)
    with pytest.raises(errors.CatalogUnavailable, match="no answer"):
        begin_resync(ORDERS, silent, ME, StillClock())


def test_what_was_sent_once_stays_in_doubt_while_nobody_can_look() -> None:
    """H6: whoever is told that the catalog was away would take it for not sent."""
    silent: list[BranchedHead | Exception] = [errors.CatalogUnavailable("no answer")] * (EPOCHS.attempts - 1)
    with pytest.raises(errors.OutcomeUnknown, match="no answer"):
        begin_resync(ORDERS, ScriptedBranch([PLAIN, *silent], [Conflicted("409")]), ME, StillClock())


def test_a_stop_ends_the_waiting_and_a_lost_table_the_looking() -> None:
    with pytest.raises(errors.OutcomeUnknown, match="asked to stop"):
        begin_resync(ORDERS, ScriptedBranch([PLAIN], [Unknown("?")]), ME, StillClock(stops=True))
    with pytest.raises(errors.TableChanged):
        begin_resync(ORDERS, ScriptedBranch([errors.TableChanged("gone")]), ME, StillClock())


def test_after_the_adoption_main_goes_on_from_what_was_loaded() -> None:
    step = adopt(LOADED)
    assert isinstance(step, Adopt)
    stated = recorded(step.plan.entry, 103)
    main = head(step.plan.summary, loaded(20), clear(), entry(7), first_id=100, in_property=stated)
    found = read_frontier(main, JOB)
    assert isinstance(found, At)
    assert (found.entry.resolved, found.entry.fence) == (at(20), ME.fence)
    assert Fence(2, ALICE) < found.entry.fence
