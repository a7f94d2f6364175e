"""How tables fared over time: a bounded series for each, for plots and estimates.

    RunProgress, every few seconds --record--> recent: the newest RECENT_KEPT points
                                              | pushed out
                                            older: one point each `spacing` seconds;
                                                   full --> every second one is dropped, spacing doubles

So half an hour is seen in detail, and the whole run in outline, however long it lasts. Time is given by the caller.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frazil.model.results import RunProgress, TableProgress

EVERY_SECONDS = 5.0
RECENT_KEPT = 360
OLDER_KEPT = 360
RATE_SECONDS = 30.0
"""Rates and estimates look back this far: long enough to span a few epochs, short enough to follow."""


@dataclass(frozen=True, slots=True)
class Point:
    """One table at one moment. `at` is seconds since 1970; `rows` counts upserts and deletes since the start."""

    at: float
    lag_seconds: float | None
    rows: int
    epochs: int
    snapshots: int | None
    data_files: int | None
    delete_files: int | None
    loaded: int | None


@dataclass(frozen=True, slots=True)
class Series:
    """Columns of one length, oldest first. `rows_per_second` is None where there is no earlier point to compare."""

    at: tuple[float, ...]
    lag_seconds: tuple[float | None, ...]
    rows_per_second: tuple[float | None, ...]
    rows: tuple[int, ...]
    epochs: tuple[int, ...]
    snapshots: tuple[int | None, ...]
    data_files: tuple[int | None, ...]
    delete_files: tuple[int | None, ...]


class Timeseries:
    """The points of all tables of a pipeline. May be used from any thread."""

    def __init__(
        self, *, every: float = EVERY_SECONDS, recent_kept: int = RECENT_KEPT, older_kept: int = OLDER_KEPT
    ) -> None:
        if every <= 0 or recent_kept < 2 or older_kept < 2:
            raise ValueError("a history needs time between its points, and room for two")
        self._every = every
        self._recent_kept = recent_kept
        self._older_kept = older_kept
        self._lines: dict[str, _Line] = {}
        self._lock = Lock()

    @property
    def every(self) -> float:
        """Seconds between two points."""
        return self._every

    def record(self, at: datetime, progress: RunProgress) -> None:
        """Takes a point of each table, unless the last one is younger than `every`. A table that is gone is forgotten;
        a progress without tables tells nothing."""
        moment = at.timestamp()
        with self._lock:
            if progress.tables:
                named = {table.name for table in progress.tables}
                self._lines = {name: line for name, line in self._lines.items() if name in named}
            for table in progress.tables:
                line = self._lines.setdefault(table.name, _Line(self._every, self._recent_kept, self._older_kept))
                line.take(_point(moment, table))

    def series(self, table: str) -> Series | None:
        """None for a table without a point."""
        points = self._points(table)
        if not points:
            return None
        return Series(
            at=tuple(point.at for point in points),
            lag_seconds=tuple(point.lag_seconds for point in points),
            rows_per_second=(None, *_rates(points)),
            rows=tuple(point.rows for point in points),
            epochs=tuple(point.epochs for point in points),
            snapshots=tuple(point.snapshots for point in points),
            data_files=tuple(point.data_files for point in points),
            delete_files=tuple(point.delete_files for point in points),
        )

    def rows_per_second(self, table: str) -> float | None:
        """Over the last `RATE_SECONDS`; None if nothing can be told yet."""
        return _rate(self._points(table), lambda point: point.rows)

    def load_ends_in(self, table: str, remaining: int) -> float | None:
        """Seconds until so many rows more are loaded, at the present pace; None if there is none."""
        pace = _rate(self._points(table), lambda point: point.loaded)
        return None if not pace else max(0, remaining) / pace

    def _points(self, table: str) -> list[Point]:
        with self._lock:
            line = self._lines.get(table)
            return [] if line is None else line.points


class _Line:
    """The points of one table. Used with the lock held."""

    def __init__(self, every: float, recent_kept: int, older_kept: int) -> None:
        self._every = every
        self._recent: deque[Point] = deque()
        self._older: list[Point] = []
        self._recent_kept = recent_kept
        self._older_kept = older_kept
        self._spacing = every

    @property
    def points(self) -> list[Point]:
        return [*self._older, *self._recent]

    def take(self, point: Point) -> None:
        # A timer fires a little early or late: half a period more or less is no reason to lose a point.
        if self._recent and 0 <= point.at - self._recent[-1].at < self._every / 2:
            return
        if self._recent and point.at < self._recent[-1].at:
            # The clock was set back: what was seen under the other time cannot be put in order with what comes.
            self._recent.clear()
            self._older.clear()
        self._recent.append(point)
        if len(self._recent) > self._recent_kept:
            self._retire(self._recent.popleft())

    def _retire(self, point: Point) -> None:
        if self._older and point.at - self._older[-1].at < self._spacing - self._every / 2:
            return
        self._older.append(point)
        if len(self._older) > self._older_kept:
            del self._older[1::2]
            self._spacing *= 2


def _point(at: float, table: TableProgress) -> Point:
    return Point(
        at=at,
        lag_seconds=table.lag_seconds,
        rows=table.rows + table.deletes,
        epochs=table.epochs,
        snapshots=table.snapshots,
        data_files=table.data_files,
        delete_files=table.delete_files,
        loaded=None if table.load is None else table.load.done,
    )


def _rates(points: Sequence[Point]) -> Iterator[float | None]:
    """Between each point and the one before. A count that went down began anew, so nothing is known of that time."""
    for before, after in pairwise(points):
        yield (after.rows - before.rows) / (after.at - before.at) if after.rows >= before.rows else None


def _rate(points: Sequence[Point], count: Callable[[Point], int | None]) -> float | None:
    """Over the newest points that lie within `RATE_SECONDS` and whose counts only grow."""
    if not points or (end := count(points[-1])) is None:
        return None
    newest, first, least = points[-1].at, points[-1].at, end
    for point in reversed(points[:-1]):
        counted = count(point)
        if counted is None or counted > least or newest - point.at > RATE_SECONDS + EVERY_SECONDS / 2:
            break
        first, least = point.at, counted
    return None if first == newest else (end - least) / (newest - first)
