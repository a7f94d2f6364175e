"""Broken variants of the loop: what `plants` puts in place of a method or a decision of `ingest.loop`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from frazil.ingest.loop.commit_lanes import CommitLanes, Group
from frazil.ingest.loop.reader_loop import ReaderLoop
from frazil.ingest.loop.table_registry import TableRegistry
from frazil.ingest.loop.target_tables import TargetTable
from frazil.model.frontier import EpochProgress
from frazil.model.position import Position

_step, _submit, _start_at = ReaderLoop._step, CommitLanes.submit, TargetTable.start_at


def furthest(tables: Iterable[EpochProgress]) -> Position | None:
    """What one table at least is published up to."""
    known = [progress.forgettable for progress in tables]
    return max((position for position in known if position is not None), key=lambda p: p.order, default=None)


def all_wait(found: Mapping[str, object], tables: Sequence[str]) -> bool:
    return bool(found)


def reads_again(loop: ReaderLoop) -> bool:
    """The window just written is handed out once more."""
    source: Any = loop._source
    before = loop._after, source._reached
    went_on = _step(loop)
    if went_on:
        loop._after, source._reached = before
    return went_on


def takes_twice(lanes: CommitLanes, window: Mapping[str, Sequence[Group]], patience: float | None = None) -> None:
    _submit(lanes, window, patience)
    _submit(lanes, window, patience)


def goes_on_after_a_failure(lanes: CommitLanes, lane: Any) -> None:
    """What follows a failed epoch in its lane is sent all the same (H11)."""
    while lane.windows:
        for group in lane.windows[0]:
            try:
                lanes._publish(group)
            except Exception as error:
                lanes._failures[lane.name] = error
        with lanes._changed:
            lane.windows.popleft()
            lanes._count(lane)
            if not lane.windows:
                lanes._at_work.discard(lane.name)
            lanes._changed.notify_all()


def keeps_its_frontier(table: TargetTable, frontier: Any, entry: Any, at: datetime) -> None:
    """A loop that begins goes on from what the one before it knew."""
    if table.progress.tip is None:
        _start_at(table, frontier, entry, at)


def as_handed_over(progress: EpochProgress) -> Position | None:
    return progress.untouched if progress.tip is None else progress.tip_position


def has_read(loop: ReaderLoop) -> bool:
    return loop._epochs > 0 or (loop._after is not None and not loop._in_flight)


def asks_every_table(registry: TableRegistry, branches: Any) -> int:
    return max((registry._seen_by(table.target, branches) for table in registry.targets), default=0)
