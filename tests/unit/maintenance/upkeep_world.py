"""One seeded history: the real actions, a table in memory, and all that can happen between any two of their calls.

    every tick, by chance:   an action goes on up to its next call to the world, begins, or dies there
                             an epoch is written, or published, by a coordinator that may have died or been replaced
                             somebody else appends, deletes, rewrites, tags, branches, upgrades, rolls back
                             hours pass
    after every snapshot     it shows what the model has (`upkeep_table`)
    after every deletion     no snapshot that is kept misses a file
    after every batch        what left the queue is gone, or the table refers to it
    at the end               nobody disturbs any more: nothing is left to convert or to put together, and of all files
                             that there ever were those are left that the table refers to

The planted faults of `upkeep_plants` show what it finds.

A failing seed is the whole bug report; its last steps are told with it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any

from conversion_world import KEY_SETS, NAME, VALUES
from simulation.fibers import Fiber
from upkeep_edges import Edge, Queue, Storage, WorldClock
from upkeep_spark import WorkedTable
from upkeep_table import Violation

from frazil.errors import FrazilError, OutcomeUnknown, TableChanged, Transient
from frazil.iceberg.commits.snapshots import Reference
from frazil.maintenance.compact.planner import CompactSettings
from frazil.maintenance.compact.runner import Compact, Compacted
from frazil.maintenance.convert.planner import ConvertSettings
from frazil.maintenance.convert.runner import Convert, Converted
from frazil.maintenance.expire.planner import Expire, Expired, ExpireSettings, Keep, Period
from frazil.maintenance.orphans import Sweep, Swept
from frazil.maintenance.queue import Cleaned, DeletionWorker, QueueSettings
from frazil.maintenance.rewrite_manifests import ManifestSettings, Merged, MergeManifests
from frazil.model.sort import SortField

OLDER_THAN = timedelta(hours=1)
"""Longer than anybody's commit takes."""
LONG = timedelta(hours=3)
SHORT = timedelta(minutes=2)
"""Longer than a deletion that failed waits for its next try."""
LONG_GRACE = timedelta(hours=2)
GRACES = (timedelta(0), timedelta(0), timedelta(seconds=5), LONG_GRACE)
AT_ONCE_MAX = 3
KEYS = (0, 1, 2, 3)
ROUNDS_MAX = 30
_TOLD = 60


class SeedFailed(AssertionError):
    """The seed, what went wrong in it, and what had happened."""


class UpkeepWorld:
    def __init__(self, seed: int) -> None:
        chance = self.chance = Random(seed)
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.table = WorkedTable(chance.choice((2, 3)), self.time)
        self.queue = Queue(self._must_not_be_garbage, mixes=chance.random() < 0.5)
        self.storage = Storage(self.table, self._is_trouble)
        self.grace = chance.choice(GRACES)
        self.calm = False
        self.met: Counter[str] = Counter()
        self.told: list[tuple[datetime, int, tuple[object, ...]]] = []
        self._fibers: list[Fiber] = []
        self._names = itertools.count(1)
        self._restlessness = chance.choice((0.1, 0.25, 0.5))
        self._haste = chance.choice((3, 6, 12))
        self._trouble = chance.choice((0.0, 0.1, 0.3))
        self.table.answers = self._answer
        self._convert = ConvertSettings(max_keys=chance.choice((2, 1000)))
        self._compact = CompactSettings(
            target_file_bytes=chance.choice((200, 1000)),
            min_input_files=2,
            commit_bytes=chance.choice((300, 1 << 20)),
            tiered=chance.random() < 0.5,
            order_by=chance.choice(((), (), (SortField("a"),))),
        )
        self._manifests = ManifestSettings(
            min_manifests=chance.choice((2, 4)),
            target_bytes=chance.choice((1000, 8 << 20)),
            drops_empty=chance.random() < 0.5,
        )
        most = chance.randint(1, 6)
        self._expire = ExpireSettings(
            max_age=chance.choice((timedelta(0), timedelta(seconds=20), timedelta(days=1))),
            max_snapshots=most,
            min_snapshots=chance.randint(1, min(most, 3)),
            min_epochs=chance.randint(1, 2),
            keep=chance.choice(((), (Keep(Period.DAILY, timedelta(days=2)),))),
        )

    def run(self, ticks: int) -> None:
        steps = self._steps()
        for _ in range(self.chance.randint(2, 5)):
            self.chance.choice([self._epoch_at_once, self._append])()
        for _ in range(ticks):
            self.now += timedelta(seconds=1)
            self.chance.choice(steps)()
        self._come_to_rest()

    def time(self) -> datetime:
        return self.now

    def tell(self, *what: object) -> None:
        self.told.append((self.now, self.table.metadata.main, what))

    @property
    def story(self) -> str:
        last = self.told[-_TOLD:]
        return "\n".join(f"{at:%d %H:%M:%S} main={main} {' '.join(map(str, what))}" for at, main, what in last)

    def _steps(self) -> list[Callable[[], None]]:
        """Some histories are about rows, some about files, and some about both."""
        rows, files = self.chance.choice(((3, 0), (1, 3), (2, 1)))
        rewriting = [self._convert_action, self._compact_action] * rows + [self._merge_action]
        cleaning = [self._expire_action, self._sweep_action, self._delete_action, self._delete_action] * files
        begin = [partial(self._begin, action) for action in (*rewriting, *cleaning)]
        others = [self._append, self._erase_keys, self._erase_row, self._rewrite] * rows + [self._adopt] * files
        rare = [self._name, self._forget_name, self._upgrade, self._kill]
        rare += [
            self._minutes,
            self._hours,
            self._slow_epoch,
            self._slow_read,
            self._clean_beside,
            self._clean_within,
        ] * files
        rare += [self._roll_back, *[self._detour] * rows]
        return [*begin, *[self._go_on] * self._haste, *[self._epoch] * 4, *others, *rare]

    # actions

    def _begin(self, action: Callable[[Any], object], restlessness: float | None = None) -> None:
        if len(self._fibers) >= AT_ONCE_MAX:
            return
        name = f"{action.__name__.strip('_')} {next(self._names)}"
        restless = self._restlessness if restlessness is None else restlessness
        fiber: Fiber

        def turn() -> None:
            if not self.calm and self.chance.random() < restless:
                fiber.pause()

        def body() -> None:
            try:
                done = action(turn)
            except (Transient, OutcomeUnknown) as error:
                done = error
            except TableChanged as error:
                if self.grace >= LONG_GRACE:
                    raise Violation(f"it was deleted before its grace period: {error}") from error
                done = error
            self.met.update(_events(done))
            self.tell(name, done)

        fiber = Fiber(name, body)
        self._fibers.append(fiber)
        self.tell(name, "begins")
        self._resume(fiber)

    def _resume(self, fiber: Fiber) -> None:
        fiber.resume()
        if fiber.done:
            self._fibers.remove(fiber)

    def _go_on(self) -> None:
        if self._fibers:
            self._resume(self.chance.choice(self._fibers))

    def _kill(self, chosen: Fiber | None = None) -> None:
        if self._fibers:
            fiber = chosen or self.chance.choice(self._fibers)
            self._fibers.remove(fiber)
            fiber.kill()
            self.met["died"] += 1
            self.tell(fiber.name, "dies")

    def _convert_action(self, turn: Callable[[], None]) -> object:
        committer = Edge(self.table, turn)
        made = Convert(committer, committer, WorldClock(self.time, self.chance, turn))
        head = committer.head(NAME)
        plan = made.plan(NAME, head, committer.live(NAME, head), self._convert)
        return None if plan is None else made.perform(plan, self._convert)

    def _compact_action(self, turn: Callable[[], None]) -> object:
        committer = Edge(self.table, turn)
        made = Compact(committer, committer, WorldClock(self.time, self.chance, turn))
        head = committer.head(NAME)
        plan = made.plan(NAME, head, committer.live(NAME, head), self._compact)
        return None if plan is None else made.perform(plan)

    def _merge_action(self, turn: Callable[[], None]) -> object:
        committer = Edge(self.table, turn)
        made = MergeManifests(committer, WorldClock(self.time, self.chance, turn))
        plan = made.plan(NAME, committer.head(NAME), self._manifests)
        return None if plan is None else made.perform(plan)

    def _expire_action(self, turn: Callable[[], None]) -> object:
        made = Expire(
            Edge(self.table, turn), Edge(self.queue, turn), self._expire, WorldClock(self.time, self.chance, turn)
        )
        return made.perform(NAME)

    def _sweep_action(self, turn: Callable[[], None]) -> object:
        made = Sweep(
            Edge(self.storage, turn), Edge(self.queue, turn), OLDER_THAN, WorldClock(self.time, self.chance, turn)
        )
        return made.perform(NAME)

    def _delete_action(self, turn: Callable[[], None]) -> object:
        queue, storage, settings = Edge(self.queue, turn), Edge(self.storage, turn), QueueSettings(grace=self.grace)
        return DeletionWorker(queue, storage, settings, WorldClock(self.time, self.chance, turn)).perform()

    def _read_action(self, turn: Callable[[], None]) -> object:
        """Somebody reads a snapshot, file by file; in vain at most if it expired and nothing waits for readers."""
        opened = self.chance.choice(sorted(self.table.metadata.kept or {0}))
        for path in sorted(self.table.paths_of(opened)):
            turn()
            if path not in self.table.stored:
                if self.grace >= LONG_GRACE or opened in self.table.metadata.kept:
                    raise Violation(f"a reader of snapshot {opened} misses {path}")
                return "a reader comes too late"
        return f"snapshot {opened} was read"

    def _clean_beside(self) -> None:
        """While a rewrite is under way, whose files nobody refers to yet; and the cleaning may die, too."""
        if not self._fibers:
            self._begin(self.chance.choice((self._convert_action, self._compact_action)), restlessness=0.5)
            self._begin(self._sweep_action, restlessness=0.0)
            if self.grace < OLDER_THAN:
                self.now += self.grace
            self._begin(self._delete_action, restlessness=self.chance.choice((0.0, 0.3)))
            if self._fibers and self._fibers[-1].name.startswith("delete"):
                self._kill(self._fibers[-1])

    def _clean_within(self) -> None:
        """Between the queueing of an expiry's files and its commit; another expiry may be faster."""
        if not self._fibers:
            self._begin(self._expire_action, restlessness=0.5)
            if self.chance.random() < 0.5:
                self._begin(self._expire_action, restlessness=0.0)
            if self.grace < OLDER_THAN:
                self.now += self.grace
            for _ in range(2):
                self._begin(self._delete_action, restlessness=0.0)
                self._minutes()

    def _slow_read(self) -> None:
        """Snapshots expire while one of them is read."""
        if not self._fibers and self.table.metadata.kept:
            self._begin(self._read_action, restlessness=1.0)
            self._begin(self._expire_action, restlessness=0.0)
            self._begin(self._delete_action, restlessness=0.0)

    def _answer(self) -> str:
        return self.chance.choice(("lands without a word", "is lost")) if self._is_trouble() else "lands"

    def _is_trouble(self) -> bool:
        return not self.calm and self.chance.random() < self._trouble

    def _must_not_be_garbage(self, forgotten: Collection[str]) -> None:
        """Nobody would delete it: the sweep looks at our own folders, and not at what somebody else wrote."""
        if left := self.table.stored.keys() & forgotten - self.table.needed():
            raise Violation(f"the queue forgets {min(left)}, which is garbage")

    # the pipeline

    def _epoch(self) -> None:
        """It may be interrupted, and for hours, between its files and its commit; another one may take over."""
        if any(fiber.name.startswith("epoch") for fiber in self._fibers) or self.chance.random() < 0.1:
            self.table.take_over()
        self._begin(self._epoch_action)

    def _slow_epoch(self) -> None:
        """It is under way for hours, and others clean up meanwhile."""
        if not self._fibers:
            self._begin(self._epoch_action, restlessness=1.0)
            self._hours()
            self._begin(self._sweep_action, restlessness=0.0)
            self.now += self.grace
            self._begin(self._delete_action, restlessness=0.0)

    def _epoch_at_once(self) -> None:
        self._epoch_action(lambda: None)
        self.tell("an epoch")

    def _epoch_action(self, turn: Callable[[], None]) -> object:
        if self.table.is_rolled_back():
            self.table.rewind()
        chosen = self.chance.sample(KEYS, self.chance.randint(1, 3))
        deleted = frozenset(key for key in chosen if self.chance.random() < 0.3)
        rows = {key: self.chance.randint(0, 2) for key in chosen if key not in deleted}
        part = self.chance.choice((None, 1, 2))
        written = self.table.write_epoch(rows, deleted, part, by_key=self.chance.random() < 0.5)
        turn()
        return self.table.publish(written)

    # somebody else

    def _append(self) -> None:
        rows = [(self.chance.choice(VALUES), self.chance.choice(VALUES)) for _ in range(self.chance.randint(1, 4))]
        branches = [name for name, one in self.table.metadata.references.items() if one.is_branch]
        branch = self.chance.choice(branches) if branches and self.chance.random() < 0.3 else None
        self.table.append_rows(rows, self.chance.choice((None, 1, 2)), branch)
        self.tell("somebody appends", rows, "to", branch or "main")

    def _erase_keys(self) -> None:
        ids = self.chance.choice(KEY_SETS)
        keys = [tuple(self.chance.choice(VALUES) for _ in ids) for _ in range(self.chance.randint(1, 2))]
        part = self.chance.choice((None, 1, 2))
        self.table.erase_keys(ids, keys, part)
        self.tell("somebody deletes", ids, keys, "in", part)

    def _erase_row(self) -> None:
        if self.table.current.data:
            path = self.chance.choice(sorted(self.table.current.data))
            position = self.chance.randrange(len(self.table.rows[path]))
            self.table.erase_row(path, position)
            self.tell("somebody deletes row", position, "of", path)

    def _rewrite(self) -> None:
        now = self.table.current
        start = self.chance.choice((now, self.table.states[now.parent or 0]))
        if now.data and start.number in self.table.metadata.kept:
            paths = self.chance.sample(sorted(now.data), self.chance.randint(1, len(now.data)))
            done = self.table.rewrite(start, paths)
            self.tell("somebody rewrites", paths, "as of", start.number, done)

    def _adopt(self) -> None:
        """Files that were left behind become part of the table after all (H46). Not those of somebody who is at work,
        and not between a last look and a deletion: there nobody can help."""
        if self._fibers:
            return
        rows, shown = self.table.rows, self.table.model[self.table.current.number].keys()
        left = [path for path in self.table.stored if path in rows and path not in self.table.needed()]
        left = [path for path in left if shown.isdisjoint(row[2] for row in rows[path])]
        if left:
            path = self.chance.choice(left)
            self.table.adopt(path, self.chance.choice((None, 1, 2)))
            self.tell("somebody adds", path)

    def _name(self) -> None:
        known = self.table.metadata
        if known.kept:
            number, is_branch = self.chance.choice(sorted(known.kept)), self.chance.random() < 0.5
            name = f"{'branch' if is_branch else 'tag'}{next(self._names)}"
            self.table.replace_metadata(references={**known.references, name: Reference(number, is_branch)})
            self.tell("somebody makes", name, "of", number)

    def _forget_name(self) -> None:
        known = self.table.metadata.references
        if known:
            gone = self.chance.choice(sorted(known))
            self.table.replace_metadata(references={name: one for name, one in known.items() if name != gone})
            self.tell("somebody removes", gone)

    def _roll_back(self) -> None:
        if self.table.metadata.kept:
            self._set_main(self.chance.choice(sorted(self.table.metadata.kept)))

    def _detour(self) -> None:
        """Main goes back, is written to, and goes forward again; a rewrite began in between."""
        before = self.table.metadata.main
        if before:
            self._roll_back()
            self.chance.choice((self._append, self._erase_keys))()
            self._begin(self.chance.choice((self._convert_action, self._compact_action)))
            if before in self.table.metadata.kept:
                self._set_main(before)

    def _set_main(self, number: int) -> None:
        self.table.roll_back(number)
        self.met["rolled back"] += 1
        self.tell("somebody sets main to", number)

    def _upgrade(self) -> None:
        if self.chance.random() < 0.1:
            self.table.upgrade()

    def _minutes(self) -> None:
        self.now += SHORT
        self.tell("minutes pass")

    def _hours(self) -> None:
        """Only epochs are ever under way for so long."""
        if all(fiber.name.startswith("epoch") for fiber in self._fibers):
            self.now += LONG
            self.tell("hours pass")

    # the end

    def _come_to_rest(self) -> None:
        self.calm = True
        self.tell("nobody disturbs any more")
        while self._fibers:
            (self._kill if self.chance.random() < 0.5 else self._go_on)()
        self.table.take_over()
        self._epoch_at_once()
        self._until(self._convert_action, lambda done: done is None)
        self._until(self._compact_action, lambda done: done is None or not done.snapshot_ids)
        self._until(self._merge_action, lambda done: done is None)
        equality = self.table.equality
        if equality:
            raise Violation(f"{min(equality)} was not converted")
        for action in (self._expire_action, self._sweep_action, self._delete_action):
            self.now += LONG
            self.tell(action.__name__, action(lambda: None))
        self.now += LONG
        self._sweep_action(lambda: None)
        self.now += LONG
        self._delete_action(lambda: None)
        left = self.table.stored.keys() - self.table.needed()
        if left or self.queue.held:
            raise Violation(f"nobody deletes {sorted(left)}, and {list(self.queue.held.values())} is queued")

    def _until(self, action: Callable[[Callable[[], None]], Any], done: Callable[[Any], bool]) -> None:
        for _ in range(ROUNDS_MAX):
            found = action(lambda: None)
            self.tell(action.__name__, found)
            if done(found):
                return
        raise Violation(f"{action.__name__} never comes to an end")


def _events(done: object) -> Iterator[str]:
    """What an action that others could disturb came to."""
    match done:
        case Compacted(snapshot_ids=snapshots, reprojected_rows=rows, dropped=dropped):
            yield from ("compacted" for _ in snapshots[:1])
            yield from ("followed deletes" for _ in range(rows)[:1])
            yield from ("gave up a group" for _ in dropped[:1])
        case Converted(snapshot_id=int(), rows=int(rows)) if rows:
            yield "converted"
        case Merged(snapshot_id=int()):
            yield "merged manifests"
        case Expired(snapshots=int(count)) if count:
            yield "expired"
        case Swept(queued=int(count)) if count:
            yield "swept"
        case Cleaned(deleted=int(deleted), dismissed=int(dismissed), failed=int(failed)):
            yield from ("deleted" for _ in range(deleted)[:1])
            yield from ("dismissed" for _ in range(dismissed)[:1])
            yield from ("failed to delete" for _ in range(failed)[:1])
        case FrazilError():
            yield type(done).__name__
        case False:
            yield "came too late with an epoch"


def run_seed(seed: int, ticks: int = 20) -> UpkeepWorld:
    """Raises SeedFailed with the last steps of its history."""
    world = UpkeepWorld(seed)
    try:
        world.run(ticks)
    except Exception as error:
        raise SeedFailed(f"seed {seed}: {type(error).__name__}: {error}\n{world.story}") from error
    return world
