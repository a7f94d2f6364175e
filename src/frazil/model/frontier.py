"""Epochs: the changes of one pipeline in (lower, upper], where upper is resolved.

A window is a run of consecutive epochs that one Spark job reads and writes: catching up over many
resolved timestamps costs one pass over the files, and still one snapshot for each of them.

    published   R1            R2            R3            newest resolved
    ----|-------|-------------|-------------|
    lower       `-- epoch 0 --'-- epoch 1 --'      uppers = (R1, R2, R3): three epochs, one window

How far a first load is, for people.

How far each table of a pipeline is, and what is to be done next.

    resolved positions --plan_window--> Window --read, write--> which epochs have files
                                                                     |
        published  ...  in flight  ...  tip                          v
    ----|---------------|---------------|          epochs_to_publish --chain--> (lower, upper) for each commit
                                        `- the next lower of this table

A table's lower is always its last *published* upper (or the one about to be published), never the upper
of an epoch that had nothing for it: epochs without changes of a table coalesce into its next one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Literal

from frazil.model.position import Position, is_before


@dataclass(frozen=True, slots=True)
class Frontier:
    """How far a table is published. `notes` are the source's own: what it must remember to go on
    from here (for CockroachDB the files that still hold rows beyond the position). `time` is the source's own time of
    the position, where that does not tell it by itself."""

    position: Position
    notes: str = ""
    time: datetime | None = None

    @property
    def source_time(self) -> datetime | None:
        """When the source says it was there; None if nothing tells."""
        return self.position.source_time if self.time is None else self.time


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsistentEpoch:
    """A moment of the source at which all tables of a pipeline can be read together. `snapshots` are by target; None
    where a table had nothing yet. `recorded_at` is None if nobody recorded it: then it follows from the ledgers.
    `source_time` is when that was by the source's clock, None if nothing tells."""

    resolved: str
    snapshots: Mapping[str, int | None]
    recorded_at: datetime | None = None
    source_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive epochs to be read at once; `uppers` ascend."""

    uppers: tuple[Position, ...]

    def __post_init__(self) -> None:
        if not self.uppers:
            raise ValueError("a window has at least one epoch")
        if any(not is_before(a, b) for a, b in zip(self.uppers, self.uppers[1:], strict=False)):
            raise ValueError(f"the uppers of a window must ascend: {[u.text for u in self.uppers]}")

    @property
    def upper(self) -> Position:
        return self.uppers[-1]

    def first(self, epochs: int) -> Window:
        return Window(self.uppers[:epochs])


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """`done` rows are read; `total` is what the source estimated when the load began, and may be wrong."""

    done: int
    total: int

    def __post_init__(self) -> None:
        if self.done < 0 or self.total < 0:
            raise ValueError(f"a load cannot have read {self.done} of {self.total}")


SnapshotMode = Literal["every-resolved", "latest"]


def plan_window(
    resolved: Sequence[Position], after: Position | None, mode: SnapshotMode, max_epochs: int
) -> Window | None:
    """The epochs to read next, or None if nothing is resolved beyond `after`.

    `every-resolved` takes the oldest `max_epochs` positions; `latest` one epoch up to the newest.
    """
    ahead = sorted({position for position in resolved if is_before(after, position)}, key=lambda p: p.order)
    if not ahead:
        return None
    return Window(tuple(ahead[-1:] if mode == "latest" else ahead[:max_epochs]))


def epochs_to_publish(
    window: Window,
    with_files: Collection[Position],
    tip: Position | None,
    heartbeat: bool,
    met_changes: bool = False,
    side_tables: Collection[Position] = (),
) -> tuple[Position, ...]:
    """Which epochs of a window one table must publish, in order: those with files, or else perhaps an empty one.

    - Those that a table beside it publishes (`side_tables`), so that its frontier speaks for them too.
    - A heartbeat that is due, so that lag and frontier stay visible. Not before the table's first change: it would
      move the frontier past a scan that is still to come (H54).
    - Changes (`met_changes`) that cancelled each other out in a table that has no frontier yet. Publishing nothing
      would leave the table without our fence: an older coordinator could still publish rows that are gone again.
    """
    wanted = {*with_files, *side_tables}
    uppers = tuple(upper for upper in window.uppers if upper in wanted and is_before(tip, upper))
    if uppers or not is_before(tip, window.upper):
        return uppers
    due = met_changes if tip is None else heartbeat
    return (window.upper,) if due else ()


def chain(lower: Position | None, uppers: Iterable[Position]) -> Iterator[tuple[Position | None, Position]]:
    """The (lower, upper) of each commit of one table: each lower is the upper published just before."""
    for upper in uppers:
        yield lower, upper
        lower = upper


def heartbeat_due(last_published_at: datetime | None, now: datetime, interval: timedelta | None) -> bool:
    """Without an interval there are no heartbeats; without a known last time one is due."""
    if interval is None:
        return False
    return last_published_at is None or now - last_published_at >= interval


@dataclass(frozen=True, slots=True)
class EpochProgress:
    """One table of a running pipeline.

    `published` is what the ledger proves, `in_flight` what was handed to the publisher since (oldest first),
    `read` how far the source was read for this table, `untouched` how far without meeting any change of it.

    `begins` is for a table that stands beside another one and is always published before it: whatever that one holds
    of the source, this one has too, or was not there to take. So it goes on behind the other one's frontier, however
    old its own is, and with none at all it begins there: no history is invented.
    """

    published: Frontier | None = None
    in_flight: tuple[Frontier, ...] = ()
    read: Position | None = None
    untouched: Position | None = None
    begins: Position | None = None

    def __post_init__(self) -> None:
        positions = [f.position for f in (*((self.published,) if self.published else ()), *self.in_flight)]
        for lower, upper in pairwise(positions):
            if not is_before(lower, upper):
                raise ValueError(f"an epoch up to {upper} cannot follow one up to {lower}")

    @property
    def tip(self) -> Frontier | None:
        """The end of the newest epoch, published or in flight: the next lower."""
        return self.in_flight[-1] if self.in_flight else self.published

    @property
    def tip_position(self) -> Position | None:
        return None if self.tip is None else self.tip.position

    @property
    def takes_after(self) -> Position | None:
        """The table takes changes beyond this position and no others."""
        tip = self.tip_position
        return self.begins if is_before(tip, self.begins) else tip

    def read_through(self, upper: Position, met_changes: bool = True) -> EpochProgress:
        """A window was read, and its partitions had changes of this table, within it or beyond, or not."""
        still_untouched = self.tip is None and self.untouched == self.read and not met_changes
        return replace(self, read=upper, untouched=upper if still_untouched else self.untouched)

    def handed_over(self, frontier: Frontier) -> EpochProgress:
        """An epoch was written and waits for its commit."""
        return replace(self, in_flight=(*self.in_flight, frontier))

    def landed(self, upper: Position) -> EpochProgress:
        """The oldest epoch in flight is published. Raises ValueError if it is another one: commits of a table
        happen in order."""
        if not self.in_flight or self.in_flight[0].position != upper:
            raise ValueError(f"{upper} landed, but in flight are {[f.position.text for f in self.in_flight]}")
        return replace(self, published=self.in_flight[0], in_flight=self.in_flight[1:])

    @property
    def forgettable(self) -> Position | None:
        """The position up to which a restart will not need the source for this table again: its frontier, or as long
        as it has none, how far the source holds no change of it."""
        return self.untouched if self.published is None else self.published.position


def resume_after(tables: Iterable[EpochProgress]) -> Position | None:
    """Where planning takes up again: behind the table that is furthest back."""
    return _minimum(progress.tip_position for progress in tables)


def acknowledgeable(tables: Iterable[EpochProgress]) -> Position | None:
    """What the source may forget: the minimum over all tables, never what one of them still needs (H28)."""
    return _minimum(progress.forgettable for progress in tables)


def _minimum(positions: Iterable[Position | None]) -> Position | None:
    known = list(positions)
    if not known or None in known:
        return None
    return min((p for p in known if p is not None), key=lambda p: p.order)
