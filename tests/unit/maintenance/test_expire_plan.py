"""Which snapshots go: whatever the history looks like, nothing that somebody needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.commit.frontier_check import Fresh, RolledBack, read_frontier
from frazil.iceberg.commits.snapshots import MAIN, Expiry, Reference, TableSnapshots
from frazil.maintenance.expire.planner import KEEP_TAG, ExpireSettings, Keep, Period, plan_expiry
from frazil.model.ids import JobId
from frazil.model.ledger import Fence, LedgerEntry, SnapshotFacts, TableHead
from frazil.sources.cockroachdb.position import Hlc

NOW = datetime(2026, 6, 1, tzinfo=UTC)
DAY = timedelta(days=1)
SHOP, BANK = JobId("shop"), JobId("bank")
ALL_GO = ExpireSettings(max_age=timedelta(0), max_snapshots=1)


def ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def entry(job: JobId, resolved: Hlc, lower: Hlc | None = None) -> LedgerEntry:
    return LedgerEntry(
        job=job,
        batch_id=UUID(int=resolved.wall),
        lower=lower,
        resolved=resolved,
        notes="",
        fence=Fence(1, UUID(int=1)),
        incarnation="c",
        config_hash="h",
        operation="append",
        data_files=1,
        delete_files=0,
        rows=1,
        deletes=0,
    )


EMPTY = TableSnapshots(uuid="u", snapshots={}, references={})


@dataclass
class World:
    """A table in the making, with its clock."""

    now: datetime = NOW - 100 * DAY
    table: TableSnapshots = EMPTY
    number: int = 0

    def commit(
        self, job: JobId | None = None, branch: str = MAIN, at: datetime | None = None, mark: bool = False
    ) -> int:
        """A snapshot on a branch; of a pipeline, with property and tag, if it is on main."""
        self.number += 1
        self.now += timedelta(minutes=1)
        named = self.table.references.get(branch) or self.table.references.get(MAIN)
        summary: Mapping[str, str] = {"operation": "append"}
        properties, references = dict(self.table.properties), dict(self.table.references)
        if job is not None:
            resolved = Hlc(int((at or self.now).timestamp()) * 10**9)
            own = entry(job, resolved)
            facts = own.to_summary()
            if mark:
                facts = {k: v for k, v in facts.items() if k not in ("frazil.resolved", "frazil.batch-id")}
                properties.pop(job.ledger_property, None)
                references.pop(job.tag, None)
            elif branch == MAIN:
                properties[job.ledger_property] = own.to_property(self.number, self.number)
                references[job.tag] = Reference(self.number)
            summary = facts if branch == MAIN else {**facts, "frazil.branch": branch}
        facts_ = SnapshotFacts(
            self.number, None if named is None else named.snapshot_id, self.number, ms(self.now), summary
        )
        references[branch] = Reference(self.number, True)
        self.table = replace(
            self.table,
            snapshots={**self.table.snapshots, self.number: facts_},
            references=references,
            properties=properties,
        )
        return self.number

    def name(self, name: str, snapshot_id: int, *, branch: bool = False) -> None:
        self.table = replace(self.table, references={**self.table.references, name: Reference(snapshot_id, branch)})

    def unname(self, name: str) -> None:
        self.table = replace(
            self.table, references={key: ref for key, ref in self.table.references.items() if key != name}
        )

    def apply(self, expiry: Expiry) -> None:
        expiry.check_against(self.table)
        references = {k: v for k, v in self.table.references.items() if k not in expiry.dropped_tags}
        references |= {name: Reference(snapshot_id) for name, snapshot_id in expiry.tags.items()}
        left = {k: v for k, v in self.table.snapshots.items() if k not in expiry.removed}
        self.table = replace(self.table, snapshots=left, references=references)

    def expire(self, wanted: ExpireSettings, at: datetime | None = None) -> Expiry:
        plan = plan_expiry(self.table, wanted, at or self.now)
        if plan is None:
            return Expiry()
        assert plan.reason
        self.apply(plan.expiry)
        return plan.expiry

    @property
    def head(self) -> TableHead:
        return TableHead(uuid="u", ancestry=self.table.ancestry(), properties=self.table.properties)

    @property
    def left(self) -> set[int]:
        return set(self.table.snapshots)


def test_an_empty_table_has_nothing_to_expire() -> None:
    assert plan_expiry(World().table, ALL_GO, NOW) is None


def test_old_snapshots_go_and_young_ones_stay() -> None:
    world = World()
    for _ in range(3):
        world.commit()
    world.now += 10 * DAY
    young = {world.commit(), world.commit()}
    world.expire(ExpireSettings(max_age=5 * DAY, max_snapshots=100))
    assert world.left == young


def test_of_too_many_the_oldest_go_however_young() -> None:
    world = World()
    made = [world.commit() for _ in range(10)]
    world.expire(ExpireSettings(max_age=100 * DAY, max_snapshots=4))
    assert world.left == set(made[-4:])


def test_a_minimum_stays_however_old() -> None:
    world = World()
    made = [world.commit() for _ in range(10)]
    world.expire(ExpireSettings(max_age=timedelta(0), max_snapshots=5, min_snapshots=3), NOW)
    assert world.left == set(made[-3:])


def test_a_minimum_of_every_pipeline_stays() -> None:
    world = World()
    bank = [world.commit(BANK) for _ in range(4)]
    shop = [world.commit(SHOP) for _ in range(4)]
    world.expire(replace(ALL_GO, min_epochs=2), NOW)
    assert world.left == {*bank[-2:], *shop[-2:]}


def test_the_newest_epoch_of_a_pipeline_stays_without_tag_and_property() -> None:
    """H3: also once an earlier expiry has cut the ancestry before it."""
    world = World()
    last = [world.commit(BANK) for _ in range(3)][-1]
    for _ in range(5):
        world.commit(SHOP)
    world.unname(BANK.tag)
    world.table = replace(world.table, properties={})
    world.expire(ALL_GO, NOW)
    assert last in world.left
    assert last not in {s.snapshot_id for s in world.table.ancestry()}, "there is a hole before it"
    for _ in range(3):
        world.commit(SHOP)
        world.expire(ALL_GO, NOW)
    assert last in world.left


def test_a_mark_without_a_position_stays_and_so_does_the_epoch_before_it() -> None:
    world = World()
    epoch = world.commit(SHOP)
    mark = world.commit(SHOP, mark=True)
    for _ in range(3):
        world.commit()
    world.expire(ALL_GO, NOW)
    assert {epoch, mark} < world.left


def test_all_that_is_only_on_a_branch_stays() -> None:
    """H27: a load under way reads its own history there."""
    world = World()
    world.commit(SHOP)
    loaded = [world.commit(SHOP, branch=SHOP.resync_branch) for _ in range(3)]
    for _ in range(4):
        world.commit(SHOP)
    world.expire(ALL_GO, NOW)
    assert set(loaded) < world.left


def test_what_a_rollback_left_behind_goes_once_it_is_old() -> None:
    world = World()
    base = world.commit()
    wrong = world.commit()
    world.name(MAIN, base, branch=True)
    world.commit()
    assert wrong in world.left
    world.expire(ExpireSettings(max_age=DAY, max_snapshots=100))
    assert wrong in world.left
    world.expire(ExpireSettings(max_age=DAY, max_snapshots=100), world.now + 2 * DAY)
    assert wrong not in world.left


def test_a_rollback_that_nobody_has_set_right_yet_does_not_come_to_look_like_an_expiry() -> None:
    """H4: somebody else writes on top of it, and all that tells of it is older than what may stay."""
    world = World()
    kept = world.commit(SHOP)
    lost = world.commit(SHOP)
    world.name(MAIN, kept, branch=True)
    for _ in range(3):
        world.commit()
    for _ in range(2):
        world.expire(ALL_GO, NOW)
        found = read_frontier(world.head, SHOP)
        assert isinstance(found, RolledBack)
        assert (found.lost.snapshot_id, found.left and found.left.snapshot_id) == (lost, kept)
    set_right = world.commit(SHOP)
    world.expire(ALL_GO, NOW)
    assert world.left == {set_right}


def test_clocks_that_disagree_make_no_hole() -> None:
    """Two writers, one of which is an hour behind: behind the first that goes, all go."""
    world = World()
    made = []
    for number in range(6):
        world.now += timedelta(hours=1 if number % 2 else -1)
        made.append(world.commit())
    world.now += timedelta(minutes=30)
    world.expire(ExpireSettings(max_age=timedelta(minutes=45), max_snapshots=100))
    on_main = [s.snapshot_id for s in world.table.ancestry()]
    assert set(on_main) == world.left


def test_a_table_that_shares_its_files_is_left_alone() -> None:
    world = World()
    for _ in range(3):
        world.commit()
    world.table = replace(world.table, properties={"gc.enabled": "FALSE"})
    assert plan_expiry(world.table, ALL_GO, NOW) is None


def test_a_snapshot_cannot_be_tagged_and_removed_at_once() -> None:
    with pytest.raises(ValueError, match="7"):
        Expiry(removed=frozenset([7]), tags={"a": 7})


def test_a_tag_of_ours_without_its_rule_is_dropped_and_others_are_not() -> None:
    world = World()
    for _ in range(3):
        world.commit(SHOP)
    for name in ("frazil_keep_2026-01-01", "frazil_keep_me", "daily", "frazil_keep_2026-13"):
        world.name(name, 1)
    assert world.expire(ALL_GO, NOW).dropped_tags == {"frazil_keep_2026-01-01"}


def test_a_pipeline_that_is_called_like_a_tag_of_ours_keeps_its_tag() -> None:
    world = World()
    strange = JobId("keep_2026-01-01")
    world.commit(strange)
    world.commit(SHOP)
    assert world.expire(ALL_GO, NOW).dropped_tags == frozenset()
    assert strange.tag in world.table.references


@pytest.mark.parametrize(
    ("period", "label"),
    [
        (Period.HOURLY, "2026-01-01T05"),
        (Period.DAILY, "2026-01-01"),
        (Period.WEEKLY, "2026-W01"),
        (Period.MONTHLY, "2026-01"),
    ],
)
def test_each_period_has_its_label_and_recognises_it(period: Period, label: str) -> None:
    world = World(now=datetime(2026, 1, 1, 5, 0, tzinfo=UTC))
    world.commit(SHOP)
    first = world.commit(SHOP)
    world.now += 40 * DAY
    world.commit(SHOP)
    rule = replace(ALL_GO, keep=(Keep(period, 100 * DAY),))
    assert world.expire(rule, NOW).tags == {KEEP_TAG + label: first}
    assert world.expire(rule, NOW) == Expiry(), "it is there already"
    assert world.expire(ALL_GO, NOW).dropped_tags == {KEEP_TAG + label}


def test_a_source_that_rests_keeps_what_it_has() -> None:
    """Spans are counted in the source's time: a year without an epoch drops nothing."""
    world = World()
    for _ in range(4):
        world.now += DAY
        world.commit(SHOP)
    rule = replace(ALL_GO, keep=(Keep(Period.DAILY, 30 * DAY),))
    world.expire(rule)
    assert len(world.left) == 4
    assert world.expire(rule, world.now + 365 * DAY) == Expiry()


SETTINGS = st.builds(
    lambda age, most, least, epochs, keep: ExpireSettings(
        max_age=timedelta(minutes=age),
        max_snapshots=max(most, least),
        min_snapshots=least,
        min_epochs=epochs,
        keep=(Keep(Period.DAILY, timedelta(days=keep)),) if keep else (),
    ),
    st.integers(0, 20_000),
    st.integers(1, 12),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 4),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("epoch"), st.sampled_from([SHOP, BANK])),
        st.tuples(st.just("mark"), st.sampled_from([SHOP, BANK])),
        st.tuples(st.just("foreign"), st.none()),
        st.tuples(st.just("branch"), st.sampled_from(["trial", SHOP.resync_branch])),
        st.tuples(st.just("unbranch"), st.sampled_from(["trial", SHOP.resync_branch])),
        st.tuples(st.just("tag"), st.sampled_from(["audit", "other"])),
        st.tuples(st.just("lose tag"), st.sampled_from([SHOP, BANK])),
        st.tuples(st.just("roll back"), st.integers(1, 8)),
        st.tuples(st.just("wait"), st.integers(1, 3000)),
        st.tuples(st.just("expire"), SETTINGS),
    ),
    min_size=5,
    max_size=40,
)


@settings(max_examples=300)
@given(STEPS, SETTINGS)
def test_nothing_that_somebody_needs_is_ever_removed(steps: list[tuple[str, object]], wanted: ExpireSettings) -> None:
    """H3, H4: the ledger of every pipeline reads the same before and after, however often and however it expires."""
    world = World()
    newest: dict[JobId, int] = {}
    for step, what in [*steps, ("expire", wanted)]:
        match step, what:
            case "epoch", JobId() as job:
                newest[job] = world.commit(job)
            case "mark", JobId() as job:
                newest[job] = world.commit(job, mark=True)
            case "foreign", _:
                world.commit()
            case "branch", str() as name if MAIN in world.table.references:
                world.commit(SHOP if name == SHOP.resync_branch else None, branch=name)
            case ("unbranch", str() as name) if name in world.table.references:
                world.unname(name)
            case "tag", str() as name if MAIN in world.table.references:
                world.name(name, world.table.references[MAIN].snapshot_id)
            case "lose tag", JobId() as job:
                world.unname(job.tag)
            case "roll back", int() as back if len(line := world.table.ancestry()) > 1:
                world.name(MAIN, line[min(back, len(line) - 1)].snapshot_id, branch=True)
                marks = {job: world.head.mark(job) for job in newest}
                newest = {job: mark.snapshot_id for job, mark in marks.items() if mark is not None}
            case "wait", int() as minutes:
                world.now += timedelta(minutes=minutes)
            case "expire", ExpireSettings() as rule:
                check_one_expiry(world, rule, newest)


def check_one_expiry(world: World, rule: ExpireSettings, newest: Mapping[JobId, int]) -> None:
    before, main = world.table, [s.snapshot_id for s in world.table.ancestry()]
    readings = {job: read_frontier(world.head, job) for job in (SHOP, BANK)}
    branch_only = {
        s.snapshot_id for name, ref in before.references.items() if ref.is_branch for s in before.ancestry(name)
    } - set(main)
    world.expire(rule)
    assert set(newest.values()) <= world.left
    assert branch_only <= world.left
    assert set(main[: rule.min_snapshots]) <= world.left
    assert {ref.snapshot_id for ref in world.table.references.values()} <= world.left
    dropped = before.references.keys() - world.table.references.keys()
    assert all(name.startswith(KEEP_TAG) for name in dropped)
    cut = ms(world.now - rule.max_age)
    young = [s.snapshot_id for s in before.ancestry() if s.timestamp_ms >= cut]
    assert set(young[: rule.max_snapshots]) <= world.left
    for job, reading in readings.items():
        after = read_frontier(world.head, job)
        mark = world.head.mark(job)
        # A mark without a position has no property to stand in for it once it is behind a hole, and nor has what main
        # was rolled back to from there: the table reads as fresh then.
        unmirrored = mark is None and job.ledger_property not in world.table.properties
        assert after == reading or (unmirrored and isinstance(after, Fresh)), (job, reading, after)
    assert plan_expiry(world.table, rule, world.now) is None, "one run is enough"


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.integers(1, 60 * 30), st.sampled_from([SHOP, BANK, None]), st.booleans()), min_size=1),
    st.integers(1, 5),
    st.integers(1, 4),
)
def test_the_last_epoch_of_every_source_day_stays_for_its_span(
    commits: list[tuple[int, JobId | None, bool]], days: int, most: int
) -> None:
    """However often it runs, in between or only at the end: what is tagged depends on the epochs alone."""
    world = World()
    rule = ExpireSettings(max_age=timedelta(0), max_snapshots=most, keep=(Keep(Period.DAILY, days * DAY),))
    epochs: list[tuple[datetime, int]] = []
    for minutes, job, run in commits:
        world.now += timedelta(minutes=minutes)
        snapshot_id = world.commit(job)
        if job is not None:
            epochs.append((world.now.replace(microsecond=0), snapshot_id))
        if run:
            world.expire(rule)
    world.expire(rule)
    tags = {name: ref.snapshot_id for name, ref in world.table.references.items() if name.startswith(KEEP_TAG)}
    last_of = {f"{KEEP_TAG}{at:%Y-%m-%d}": (at, snapshot_id) for at, snapshot_id in epochs}
    newest = max((at for at, _ in epochs), default=NOW)
    tags.pop(f"{KEEP_TAG}{newest:%Y-%m-%d}", None)  # of the day that is not over, which others may have hidden
    assert tags == {
        name: snapshot_id
        for name, (at, snapshot_id) in last_of.items()
        if at >= newest - days * DAY and at.date() != newest.date()
    }
