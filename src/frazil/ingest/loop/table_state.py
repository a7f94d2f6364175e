"""Where each table of a pipeline stands, and which cursors follow from it. Pure.

LOAD ----caught up----> STEADY       a first load, beside what the others do
  RESYNC --adopted-------^  |        loaded anew on a branch, since the source lost what lay between
    ^----- source lost -----+
                            +--> STOPPED     a person must act; the others go on

STEADY tables share one cursor. One that fails, or lets the others wait, gets a cursor of its own (`apart`) until it
has caught up; a run that only drains is DONE with it then. A transient failure is tried again for ever; a terminal one
is confirmed once alone and then stops the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum

from frazil.errors import FrazilError, SourceLost, Terminal
from frazil.model.position import Position

BACKOFF_FIRST = 1.0
BACKOFF_MAX = 60.0
APART_FIRST = 60.0
APART_MAX = 3600.0
APART_AT_ONCE = 8


class Road(StrEnum):
    LOAD = "load"
    STEADY = "steady"
    RESYNC = "resync"
    STOPPED = "stopped"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Standing:
    """One source table. `cursor` is the one that reads it now, `not_before` when the next one may, by the clock's
    monotonic seconds. `apart_until` keeps a table that lagged on its own for a while; `anew` clears what a re-sync has
    begun before."""

    road: Road
    apart: bool = False
    attempts: int = 0
    lags: int = 0
    not_before: float = 0.0
    apart_until: float = 0.0
    cursor: int | None = None
    anew: bool = False
    error: FrazilError | None = None

    @property
    def is_over(self) -> bool:
        return self.road in (Road.STOPPED, Road.DONE)

    @property
    def is_free(self) -> bool:
        return self.cursor is None and not self.is_over


@dataclass(frozen=True, slots=True)
class CursorPlan:
    """A cursor to start; `is_main` if others may join it later."""

    road: Road
    tables: tuple[str, ...]
    is_main: bool = False


@dataclass(frozen=True, slots=True)
class Dispatch:
    """What to do now. With `main_yields`, the main cursor must end so that it can start again with more tables."""

    starts: tuple[CursorPlan, ...]
    main_yields: bool


def dispatch(standings: Mapping[str, Standing], main: int | None, now: float, max_first_loads: int) -> Dispatch:
    free = {name: one for name, one in standings.items() if one.is_free and one.not_before <= now}
    budget = max_first_loads - sum(
        1 for one in standings.values() if one.cursor is not None and one.road in (Road.LOAD, Road.RESYNC)
    )
    starts = []
    for name, one in free.items():
        if one.road is Road.RESYNC or (one.apart and one.road is Road.LOAD):
            if budget > 0:
                starts.append(CursorPlan(one.road, (name,)))
                budget -= 1
        elif one.apart:
            starts.append(CursorPlan(one.road, (name,)))
    together = tuple(name for name, one in free.items() if one.road is Road.LOAD and not one.apart)[: max(budget, 0)]
    if together:
        starts.append(CursorPlan(Road.LOAD, together))
    steady = tuple(name for name, one in free.items() if one.road is Road.STEADY and not one.apart)
    if steady and main is None:
        starts.append(CursorPlan(Road.STEADY, steady, is_main=True))
    return Dispatch(tuple(starts), main_yields=bool(steady) and main is not None)


def after_failure(
    standing: Standing,
    error: FrazilError,
    *,
    alone: bool,
    can_rescan: bool,
    now: float,
    jitter: float,
    attempts_max: int | None = None,
) -> Standing:
    """Where a table stands that its cursor failed with; `alone` if it was the only one there. Without `attempts_max` a
    transient failure is tried again for ever."""
    freed = replace(standing, cursor=None, error=error)
    attempts = standing.attempts + 1
    if isinstance(error, SourceLost) and can_rescan:
        wait = backoff(attempts, jitter) if standing.road is Road.RESYNC else 0.0
        return replace(freed, road=Road.RESYNC, anew=True, apart=False, attempts=attempts, not_before=now + wait)
    if isinstance(error, Terminal):
        if alone:
            return replace(freed, road=Road.STOPPED)
        return replace(freed, apart=True, not_before=now)
    if attempts_max is not None and attempts > attempts_max:
        return replace(freed, road=Road.STOPPED, attempts=attempts)
    return replace(freed, apart=not alone, attempts=attempts, not_before=now + backoff(attempts, jitter))


def concerns_all(found: Mapping[str, FrazilError], tables: Sequence[str]) -> bool:
    """Whether what happened to some tables is rather about what all of them share, as a catalog that is away: then they
    wait together. A cursor for each would ask the source for everything so many times."""
    if any(isinstance(error, Terminal) for error in found.values()):
        return False
    return len(found) > 1 and (len(found) == len(tables) or len(found) > APART_AT_ONCE)


def after_lag(standing: Standing, now: float) -> Standing:
    """A table that let the others wait reads alone for a while, longer each time."""
    lags = standing.lags + 1
    until = now + min(APART_MAX, APART_FIRST * 2.0 ** (lags - 1))
    return replace(standing, cursor=None, apart=True, lags=lags, not_before=now, apart_until=until)


def asked_for(standing: Standing, now: float) -> Standing:
    """Somebody wants the table loaded anew."""
    return replace(standing, road=Road.RESYNC, anew=True, apart=False, attempts=0, cursor=None, not_before=now)


def caught_up(standing: Standing) -> Standing:
    return replace(standing, road=Road.STEADY, apart=False, attempts=0, cursor=None, error=None)


def backoff(attempts: int, jitter: float) -> float:
    """Seconds to wait after so many failures in a row; `jitter` takes up to half off."""
    return min(BACKOFF_MAX, BACKOFF_FIRST * 2.0 ** min(attempts - 1, 16)) * (1.0 - jitter / 2)


def is_outlived(frontier: Position | None, newest: Position | None, bound: timedelta) -> bool:
    """Whether a stopped table is so far behind the others that the source must not keep everything for it any longer
    (H52)."""
    if frontier is None or newest is None or frontier.source_time is None or newest.source_time is None:
        return False
    return newest.source_time - frontier.source_time > bound
